//! One check under way: a socket that never blocks.
//!
//! ```text
//!   connecting ──connected──► passed (tcp)
//!                  └────────► sending GET ──► reading the first line ──status 200 to 399──► passed (http)
//!   any of them ── refused, closed, another status, no answer by the deadline ──► failed, and why
//! ```
//!
//! The answer is a stranger's: [`ANSWER_MAX`] bytes of it are read, and of those the first line.

use nf::{Check, Probe};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// The most bytes of an answer that are read.
const ANSWER_MAX: usize = 512;

/// Why a check could not be made: nothing is known of the server by that.
#[derive(Debug, PartialEq, Eq)]
pub struct NotMade(pub String);

/// How a check ended: passed, or why not.
pub type Ended = Result<(), String>;

enum Stage {
    Connecting,
    Sending(usize),
    Reading(Vec<u8>),
}

/// A check under way.
pub struct Attempt {
    socket: OwnedFd,
    stage: Stage,
    /// The request to send; empty: a connection is enough.
    request: Vec<u8>,
    deadline: Instant,
    /// There is no way there: it ended as it began.
    failed: Option<Errno>,
}

impl Attempt {
    /// Begins one.
    pub fn begin(check: &Check, now: Instant) -> Result<Self, NotMade> {
        let to = SocketAddr::new(check.at.addr.to_ip(), check.at.port);
        let family = match to {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
            .map_err(|error| NotMade(format!("no socket: {error}")))?;
        let stage = Stage::Connecting;
        let request = match &check.probe {
            Probe::Tcp => Vec::new(),
            Probe::Http(path) => format!(
                "GET {path} HTTP/1.1\r\nHost: {to}\r\nUser-Agent: flowkeep\r\nAccept: */*\r\nConnection: close\r\n\r\n"
            )
            .into_bytes(),
        };
        let failed = match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => None,
            Err(
                error @ (Errno::ADDRNOTAVAIL | Errno::PERM | Errno::ACCESS | Errno::AGAIN | Errno::NOBUFS),
            ) => {
                return Err(NotMade(format!("no connection can be begun: {error}")));
            }
            Err(error) => Some(error),
        };
        Ok(Attempt {
            socket,
            stage,
            request,
            deadline: now + check.timeout,
            failed,
        })
    }

    /// The socket, and what it waits for.
    pub fn waits_for(&self) -> (BorrowedFd<'_>, PollFlags) {
        let flags = match self.stage {
            Stage::Connecting | Stage::Sending(_) => PollFlags::OUT,
            Stage::Reading(_) => PollFlags::IN,
        };
        (self.socket.as_fd(), flags)
    }

    /// Until when it may take.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Goes on where something has come of it; how it ended, if it has.
    pub fn go_on(&mut self) -> Option<Ended> {
        if let Some(error) = self.failed {
            return Some(Err(why(error)));
        }
        loop {
            let step = match &mut self.stage {
                Stage::Connecting => self.connected(),
                Stage::Sending(sent) => {
                    let rest = self.request.get(*sent..).unwrap_or_default();
                    if rest.is_empty() {
                        self.stage = Stage::Reading(Vec::new());
                        continue;
                    }
                    match rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL) {
                        Ok(count) => {
                            *sent += count;
                            continue;
                        }
                        Err(error) => Err(error),
                    }
                }
                Stage::Reading(answer) => {
                    let mut bytes = [0; ANSWER_MAX];
                    match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::empty()) {
                        Ok((_, 0)) => return Some(Err("it closed the connection without an answer".into())),
                        Ok((_, count)) => {
                            answer.extend_from_slice(bytes.get(..count).unwrap_or_default());
                            match judge(answer) {
                                None => continue,
                                judged => return judged,
                            }
                        }
                        Err(error) => Err(error),
                    }
                }
            };
            match step {
                Ok(()) if self.request.is_empty() => return Some(Ok(())),
                Ok(()) => self.stage = Stage::Sending(0),
                Err(Errno::AGAIN | Errno::INTR) => return None,
                Err(error) => return Some(Err(why(error))),
            }
        }
    }

    /// Whether there is a connection.
    fn connected(&self) -> Result<(), Errno> {
        match rustix::net::sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => return Err(error),
        }
        let peer = match rustix::net::getpeername(&self.socket) {
            Ok(peer) => peer,
            Err(Errno::NOTCONN) => return Err(Errno::AGAIN),
            Err(error) => return Err(error),
        };
        // To a port of this host without a listener, a socket may connect to itself.
        match rustix::net::getsockname(&self.socket) {
            Ok(own) if Some(&own) == peer.as_ref() => Err(Errno::CONNREFUSED),
            _ => Ok(()),
        }
    }
}

fn why(error: Errno) -> String {
    match error {
        Errno::CONNREFUSED => "it refuses connections".into(),
        Errno::CONNRESET | Errno::PIPE => "it reset the connection".into(),
        error => error.to_string(),
    }
}

/// The result by an answer so far: none while its first line is not whole.
fn judge(answer: &[u8]) -> Option<Ended> {
    let Some(end) = answer.iter().position(|byte| *byte == b'\n') else {
        let is_too_long = answer.len() >= ANSWER_MAX;
        return is_too_long.then(|| Err("its answer is no HTTP".into()));
    };
    let line = std::str::from_utf8(answer.get(..end).unwrap_or_default()).unwrap_or_default();
    let mut words = line.split_ascii_whitespace();
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    let status = words.next().filter(|word| is_http && word.len() == 3);
    Some(match status.and_then(|status| status.parse::<u16>().ok()) {
        Some(200..=399) => Ok(()),
        Some(status) => Err(format!("it answers with status {status}")),
        None => Err("its answer is no HTTP".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, Timespec, poll};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    fn check(at: SocketAddr, probe: Probe) -> Check {
        Check {
            service: "web".into(),
            backend: "a".into(),
            at: nf::Endpoint::new(at.ip().into(), at.port()),
            probe,
            interval: Duration::from_secs(1),
            timeout: Duration::from_millis(300),
            rise: 1,
            fall: 1,
        }
    }

    /// How a check of this place ends; `None` at its deadline.
    fn ended(at: SocketAddr, probe: Probe) -> Option<Ended> {
        let mut attempt = Attempt::begin(&check(at, probe), Instant::now()).unwrap();
        loop {
            if let Some(ended) = attempt.go_on() {
                return Some(ended);
            }
            let left = attempt.deadline().saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let (socket, flags) = attempt.waits_for();
            let wait = Timespec::try_from(left).unwrap();
            poll(&mut [PollFd::new(&socket, flags)], Some(&wait)).unwrap();
        }
    }

    /// A server that answers its first connection so.
    fn server(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let count = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..count]).into_owned();
            assert!(
                request.starts_with("GET /health HTTP/1.1\r\nHost: 127.0.0.1:"),
                "{request}"
            );
            stream.write_all(answer).unwrap();
        });
        at
    }

    #[test]
    fn a_listener_passes_and_none_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        assert_eq!(ended(at, Probe::Tcp), Some(Ok(())));
        // The listener takes connections and says nothing.
        assert_eq!(ended(at, Probe::Http("/health".into())), None);
        drop(listener);
        assert_eq!(ended(at, Probe::Tcp), Some(Err("it refuses connections".into())));
        let six = TcpListener::bind("[::1]:0");
        if let Ok(six) = six {
            assert_eq!(ended(six.local_addr().unwrap(), Probe::Tcp), Some(Ok(())));
        }
    }

    #[test]
    fn the_status_decides() {
        let http = || Probe::Http("/health".into());
        let cases: [(&[u8], Ended); 7] = [
            (b"HTTP/1.1 200 OK\r\n\r\n", Ok(())),
            (b"HTTP/1.0 302 Found\r\n", Ok(())),
            (
                b"HTTP/1.1 500 Internal Server Error\r\n\r\n",
                Err("it answers with status 500".into()),
            ),
            (b"HTTP/1.1 404\n", Err("it answers with status 404".into())),
            (b"SSH-2.0-x\r\n", Err("its answer is no HTTP".into())),
            (b"HTTP/1.1 2000 OK\r\n", Err("its answer is no HTTP".into())),
            (b"", Err("it closed the connection without an answer".into())),
        ];
        for (answer, expected) in cases {
            assert_eq!(ended(server(answer), http()), Some(expected));
        }
        assert_eq!(judge(b"HTTP/1.1 200"), None);
        assert!(judge(&[b'x'; ANSWER_MAX]).unwrap().is_err());
    }
}
