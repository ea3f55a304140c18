//! Lines of the event log for collectors: all of them as syslog, NAT's log as IPFIX.
//!
//! ```text
//!   thread of the event log ─► Exporting ─┬─► the file, or nowhere
//!                                         ├─► syslog   a line is a datagram (RFC 5424, RFC 5426)
//!                                         └─► IPFIX    mappings and blocks of ports are records (RFC 7011, RFC 8158)
//! ```
//!
//! Lines that the file has taken go to the collectors, each once. Datagrams are sent without
//! waiting: refused datagrams are counted, the first is reported at once, and their number at the
//! end. No collector confirms a datagram, so a log that must be complete is kept in the file, and a
//! collector that is away is no failure of the process.
//!
//! Invariant: no line goes to a collector before the file has all of it.
//!
//! Not here: lines ([`super::events`]); NAT's events (`functions::nat`).

mod ipfix;
mod syslog;

use crate::config::Log;
use adapters::report::Reports;
use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The longest line that is kept until its end has come.
const LINE_MAX: usize = 64 * 1024;

/// A file, and the collectors that have the same lines.
pub(super) struct Exporting<W> {
    file: W,
    collectors: Vec<Box<dyn Collector>>,
    /// A line whose end has not come.
    begun: Vec<u8>,
    /// Whether that line is too long to be sent.
    is_too_long: bool,
}

trait Collector: Send {
    /// A line, without its end.
    fn line(&mut self, line: &str);
    /// All lines that are here for now were said.
    fn flush(&mut self);
}

/// Why a collector cannot be sent to.
#[derive(Debug)]
pub(super) struct Unreached {
    /// The setting that names it.
    pub at: &'static str,
    to: SocketAddr,
    error: io::Error,
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unreached { at, to, error } = self;
        write!(
            f,
            "no socket for the collector of events {to} (`{at}`): {error}; write the address of one host, to which \
             this machine has a route (`ip route get {}`)",
            to.ip()
        )
    }
}

/// The collectors that the configuration names.
pub(super) fn of<W: Write>(log: &Log, file: W, reports: &Reports) -> Result<Exporting<W>, Unreached> {
    let mut collectors: Vec<Box<dyn Collector>> = Vec::new();
    if let Some(to) = log.syslog {
        let sender = Sender::to("syslog", to, reports.clone());
        let sender = sender.map_err(unreached("log.syslog", to))?;
        collectors.push(Box::new(syslog::Syslog::new(sender)));
    }
    if let Some(to) = log.ipfix {
        let sender = Sender::to("IPFIX", to, reports.clone());
        let sender = sender.map_err(unreached("log.ipfix", to))?;
        collectors.push(Box::new(ipfix::Ipfix::new(sender)));
    }
    Ok(Exporting {
        file,
        collectors,
        begun: Vec::new(),
        is_too_long: false,
    })
}

fn unreached(at: &'static str, to: SocketAddr) -> impl FnOnce(io::Error) -> Unreached {
    move |error| Unreached { at, to, error }
}

/// The collector to which there is no way, if there is one; nothing is sent.
pub(super) fn refused(log: &Log) -> Option<(&'static str, String)> {
    let unreached = of(log, io::sink(), &Reports::default()).err()?;
    Some((unreached.at, unreached.to_string()))
}

impl<W: Write> Write for Exporting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        let mut rest = bytes.get(..count).unwrap_or_default();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, behind) = rest.split_at(end);
            self.begun.extend_from_slice(line);
            if !std::mem::take(&mut self.is_too_long)
                && let Ok(line) = str::from_utf8(&self.begun)
            {
                for collector in self.collectors.iter_mut().filter(|_| !line.is_empty()) {
                    collector.line(line);
                }
            }
            self.begun.clear();
            rest = behind.get(1..).unwrap_or_default();
        }
        match self.begun.len() + rest.len() <= LINE_MAX {
            true => self.begun.extend_from_slice(rest),
            false => self.is_too_long = true,
        }
        self.collectors.iter_mut().for_each(|collector| collector.flush());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Sends datagrams to a collector, as long as its socket takes them.
struct Sender {
    socket: UdpSocket,
    name: String,
    reports: Reports,
    unsent: u64,
}

impl Sender {
    fn to(kind: &str, to: SocketAddr, reports: Reports) -> io::Result<Self> {
        let socket = match to {
            SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
            SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
        };
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        Ok(Sender {
            socket,
            name: format!("{kind} to {to}"),
            reports,
            unsent: 0,
        })
    }

    fn send(&mut self, datagram: &[u8]) {
        let Err(error) = self.socket.send(datagram) else {
            return;
        };
        self.unsent += 1;
        if self.unsent == 1 {
            let remedy = "such lines are in the event log's file alone, if there is one (`file` of [log]); how many were not sent is said at the end";
            let problem = format_args!("a datagram was not sent: {error}");
            self.reports.warn(&self.name, problem, remedy);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.unsent > 1 {
            let problem = format_args!("{} datagrams were not sent", self.unsent);
            self.reports.warn(&self.name, problem, "");
        }
    }
}

/// A field of a line, if it has no quotes within: of an address, a name or a time.
fn field<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let at = line.find(&format!("\"{name}\":\""))?;
    let value = line.get(at + name.len() + 4..)?;
    value.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn collector() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let at = socket.local_addr().unwrap();
        (socket, at)
    }

    fn heard(socket: &UdpSocket) -> Vec<u8> {
        let mut datagram = [0; 65_536];
        let count = socket.recv(&mut datagram).unwrap();
        datagram[..count].to_vec()
    }

    /// A file that takes seven bytes at a time.
    struct Narrow(Vec<u8>);

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(7);
            self.0.extend_from_slice(&bytes[..count]);
            Ok(count)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const LINES: &str = concat!(
        r#"{"time":"2026-11-20T18:46:04.500000000Z","runtime":0,"function":"nat","event":"mapping_created","inside":"10.0.0.1:5000","outside":"203.0.113.1:1733","protocol":"udp","vlan":3}"#,
        "\n",
        r#"{"time":"2026-11-20T18:46:05.000000000Z","runtime":0,"function":"nat","event":"block_released","host":"10.0.0.2","outside":"203.0.113.1","ports":"1024-1535"}"#,
        "\n",
        r#"{"time":"2026-11-20T18:46:06.000000000Z","runtime":0,"function":"ids","event":"alert","signature":"é"}"#,
        "\n",
    );

    #[test]
    fn what_the_file_has_goes_to_the_collectors_once() {
        let ((syslog, at), (ipfix, records_at)) = (collector(), collector());
        let log = Log {
            syslog: Some(at),
            ipfix: Some(records_at),
            ..Log::default()
        };
        let mut out = of(&log, Narrow(Vec::new()), &Reports::default()).unwrap();
        out.write_all(LINES.as_bytes()).unwrap();
        assert_eq!(out.file.0, LINES.as_bytes());
        for (line, event) in LINES.lines().zip(["mapping_created", "block_released", "alert"]) {
            let datagram = String::from_utf8(heard(&syslog)).unwrap();
            assert!(datagram.starts_with("<134>1 2026-11-20T18:46:0"), "{datagram}");
            assert!(datagram.ends_with(&format!(" {event} - {line}")), "{datagram}");
        }
        let records = [heard(&ipfix), heard(&ipfix)];
        assert_eq!(records.map(|message| message[1]), [10, 10]);
    }

    #[test]
    fn a_collector_that_is_not_there_is_said_once_and_counted() {
        let (socket, at) = collector();
        drop(socket);
        let reports = Reports::default();
        let log = Log {
            syslog: Some(at),
            ..Log::default()
        };
        let mut out = of(&log, io::sink(), &reports).unwrap();
        for _ in 0..20 {
            out.write_all(LINES.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(out);
        let told: Vec<String> = reports.take().iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("a datagram was not sent"), "{told:?}");
        assert!(told[1].contains("datagrams were not sent"), "{told:?}");
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_whole() {
        let (socket, at) = collector();
        let log = Log {
            syslog: Some(at),
            ..Log::default()
        };
        let mut out = of(&log, io::sink(), &Reports::default()).unwrap();
        for piece in ["a piece, ", &"x".repeat(LINE_MAX), "its end\n", "another line\n"] {
            out.write_all(piece.as_bytes()).unwrap();
        }
        let datagram = String::from_utf8(heard(&socket)).unwrap();
        assert!(datagram.ends_with("- another line"), "{datagram}");
    }

    #[test]
    fn any_line_does() {
        let (_socket, at) = collector();
        let log = Log {
            syslog: Some(at),
            ipfix: Some(at),
            ..Log::default()
        };
        let mut out = of(&log, io::sink(), &Reports::default()).unwrap();
        let event = |rest: &str| format!("{{\"time\":\"x\",\"event\":\"mapping_created\",{rest}\n");
        for rest in [
            "",
            "\"inside\":\"",
            "\"inside\":\"é:1\"",
            "\"inside\":\"1.2.3.4\",\"outside\":\":\"",
        ] {
            out.write_all(event(rest).as_bytes()).unwrap();
        }
        out.write_all(&[0xff, b'\n']).unwrap();
        out.write_all(&vec![b'x'; 3 * LINE_MAX]).unwrap();
        assert!(out.begun.len() <= LINE_MAX);
        out.write_all(b"\n").unwrap();
    }
}
