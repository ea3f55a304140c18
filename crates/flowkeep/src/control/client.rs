//! The tool's end: of one process's control socket, or of a coordinator that asks all members.

use super::members::Members;
use super::{Answer, FOREIGN, Reply, Request};
use crate::cluster::Observed;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a change of configuration may: it compiles, and looks at every flow twice. And a new
/// runtime, whose memory is made behind the workers' work.
const PATIENCE_OF_A_CHANGE: Duration = Duration::from_secs(120);

/// The message on a process that answers no more.
const ENDED: &str = "Flowkeep has ended";

/// A connection to a running cluster.
#[derive(Debug)]
pub struct Client {
    way: Way,
}

#[derive(Debug)]
enum Way {
    Socket(Socket),
    Members(Box<Members>),
}

/// A process's control socket.
#[derive(Debug)]
struct Socket {
    path: PathBuf,
    reader: BufReader<UnixStream>,
}

/// Members of a cluster of several processes whose sockets are where this one was looked for.
fn members_beside(path: &Path) -> String {
    let entries = path.parent().and_then(|folder| std::fs::read_dir(folder).ok());
    let mut sockets: Vec<String> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().display().to_string())
        .filter(|other| {
            other.ends_with(".sock") && other.contains("/flowkeep-") && UnixStream::connect(other).is_ok()
        })
        .take(MEMBERS_NAMED)
        .collect();
    sockets.sort();
    match sockets.is_empty() {
        true => String::new(),
        false => format!(": {}", sockets.join(", ")),
    }
}

/// Why a path leads to no socket, if another file is in its place.
fn no_socket(path: &Path) -> Option<String> {
    use std::os::unix::fs::FileTypeExt;
    let shown = path.display();
    let what = match std::fs::metadata(path).map(|there| there.file_type()) {
        Ok(there) if there.is_socket() => return None,
        Ok(there) if there.is_dir() => "a folder",
        Ok(_) => "a file",
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
            // The folder of default paths is made where it is missing.
            let is_missing = matches!(folder.try_exists(), Ok(false)) && !super::is_default(path);
            return is_missing.then(|| {
                format!(
                    "no Flowkeep answers at {shown}: there is no folder {}; make it, and start one with `flowkeep run`, or name its socket with --socket",
                    folder.display()
                )
            });
        }
    };
    Some(format!(
        "{shown} is {what}, and no socket; name the socket of a Flowkeep with --socket, or none for {}",
        super::default_path().display()
    ))
}

/// Connects, however long the path is.
pub(super) fn reach(path: &Path) -> std::io::Result<UnixStream> {
    let (reachable, _folder) = super::reachable(path)?;
    UnixStream::connect(reachable)
}

/// So many members are named where none was.
const MEMBERS_NAMED: usize = 8;

impl Client {
    /// Connects. The error says what to do.
    pub fn connect(path: &Path) -> Result<Self, String> {
        let stream = reach(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => format!(
                "no Flowkeep answers at {}; start one with `flowkeep run`, or name its socket with --socket{}",
                path.display(),
                members_beside(path)
            ),
            ErrorKind::PermissionDenied => format!(
                "you may not open {}: it belongs to that Flowkeep's user; ask as that user, or as root",
                path.display()
            ),
            _ => format!("{}: {error}", path.display()),
        });
        let stream = stream.map_err(|why| no_socket(path).unwrap_or(why))?;
        let set = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        set.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Client {
            way: Way::Socket(Socket {
                path: path.to_owned(),
                reader: BufReader::new(stream),
            }),
        })
    }

    /// All members, or one, by a coordinator.
    pub fn over(members: Members) -> Self {
        Client {
            way: Way::Members(Box::new(members)),
        }
    }

    /// The process at the other end.
    pub fn process(&self) -> std::io::Result<rustix::process::Pid> {
        match &self.way {
            Way::Socket(socket) => Ok(rustix::net::sockopt::socket_peercred(socket.reader.get_ref())?.pid),
            Way::Members(_) => Err(std::io::Error::new(
                ErrorKind::Unsupported,
                "a process is killed on its own host: say --socket there",
            )),
        }
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        match &mut self.way {
            Way::Socket(socket) => socket.ask(request),
            Way::Members(members) => members.ask(request),
        }
    }

    /// The observations of the watch since the last time. With `is_last`, nothing is kept back to
    /// be told in order.
    pub fn observed(&mut self, is_last: bool) -> Result<Observed, String> {
        match &mut self.way {
            Way::Socket(socket) => match socket.ask(&Request::Observed)? {
                Answer::Observed(observed) => Ok(*observed),
                _ => Err(FOREIGN.into()),
            },
            Way::Members(members) => members.observed(is_last),
        }
    }

    /// Whether it is all members that answer, or one of them by the coordinator.
    pub fn is_wide(&self) -> bool {
        matches!(self.way, Way::Members(_))
    }

    /// Members that left questions so far without an answer, and why.
    pub fn missing(&self) -> BTreeMap<String, String> {
        match &self.way {
            Way::Socket(_) => BTreeMap::new(),
            Way::Members(members) => members.missing().clone(),
        }
    }

    /// Over the cluster: which runtime of another member has the least load.
    pub fn replica_by_load(&mut self, runtime: u16) -> Result<u16, String> {
        match &mut self.way {
            Way::Socket(_) => {
                Err("one process does not say what all runtimes do: ask over the cluster (--cluster), or name one with --at".to_owned())
            }
            Way::Members(members) => members.replica_by_load(runtime),
        }
    }

    /// Over the cluster: which incarnation of a runtime the newest view has.
    pub fn incarnation_of(&mut self, runtime: u16) -> Result<Option<u64>, String> {
        match &mut self.way {
            Way::Socket(_) => Ok(None),
            Way::Members(members) => members.incarnation_of(runtime),
        }
    }

    /// Over the cluster: whose runtime it is.
    pub fn member_of(&self, runtime: u16) -> Option<&str> {
        match &self.way {
            Way::Socket(_) => None,
            Way::Members(members) => members.member_of(runtime),
        }
    }
}

impl Socket {
    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        let patience = match request {
            Request::Change(_) | Request::Add { .. } | Request::CopyStore { .. } => PATIENCE_OF_A_CHANGE,
            _ => PATIENCE,
        };
        let set = self.reader.get_ref().set_read_timeout(Some(patience));
        set.map_err(|error| format!("{}: {error}", self.path.display()))?;
        let mut line = serde_json::to_vec(request).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let mut answer = String::new();
        self.reader
            .get_mut()
            .write_all(&line)
            .and_then(|()| self.reader.read_line(&mut answer))
            .map_err(|error| match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    format!(
                        "{}: no answer within {} s",
                        self.path.display(),
                        patience.as_secs()
                    )
                }
                // The process was killed while it was asked.
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
                    format!("{}: {ENDED}", self.path.display())
                }
                _ => format!("{}: {error}", self.path.display()),
            })?;
        if answer.is_empty() {
            return Err(format!("{}: {ENDED}", self.path.display()));
        }
        match serde_json::from_str(&answer) {
            Ok(Reply::Ok(answer)) => Ok(answer),
            Ok(Reply::Error(problem)) => Err(problem),
            Err(error) => Err(format!(
                "{}: this answer cannot be read: {error}",
                self.path.display()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake::Fake;
    use crate::cluster::{Cluster, Cursor};
    use crate::control::server::{CONNECTIONS_MAX, Server, ServerError};
    use crate::control::{FLOWS_MAX, Key, REQUEST_MAX};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    /// A path for a socket, in a directory that is gone afterwards.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("flowkeep-test-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            Place(directory)
        }
        fn socket(&self) -> PathBuf {
            self.0.join("s.sock")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn start(place: &Place) -> (Arc<Fake>, Server) {
        let cluster = Arc::new(Fake::default());
        let server = Server::start(&place.socket(), Arc::clone(&cluster) as Arc<dyn Cluster>).unwrap();
        (cluster, server)
    }

    #[test]
    fn a_socket_of_a_long_path_answers() {
        let place = Place::new("long");
        let folder = place.0.join("f".repeat(120));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("s".repeat(super::super::NAME_MAX));
        let cluster = Arc::new(Fake::default());
        let server = Server::start(&path, Arc::clone(&cluster) as Arc<dyn Cluster>).unwrap();
        let mut client = Client::connect(&path).unwrap();
        assert!(client.ask(&Request::Status).is_ok());
        let again = Server::start(&path, cluster as Arc<dyn Cluster>).unwrap_err();
        assert!(again.to_string().contains("another Flowkeep answers"), "{again}");
        drop(server);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_is_said_to_be_none() {
        let place = Place::new("none");
        let file = place.0.join("file");
        std::fs::write(&file, "").unwrap();
        let said = |path: &Path| Client::connect(path).unwrap_err();
        assert!(said(&place.0).contains("is a folder, and no socket"));
        assert!(said(&file).contains("is a file, and no socket"));
        let folder = place.0.join("missing");
        let missing = said(&folder.join("s.sock"));
        assert!(
            missing.contains(&format!("there is no folder {};", folder.display())),
            "{missing}"
        );
    }

    #[test]
    fn every_question_has_its_answer() {
        let place = Place::new("answers");
        let (cluster, server) = start(&place);
        let mut client = Client::connect(server.path()).unwrap();
        let Ok(Answer::Status(status)) = client.ask(&Request::Status) else {
            panic!()
        };
        assert_eq!(status.packets.r#in, 100);
        let from = Cursor::default();
        let Ok(Answer::Flows(page)) = client.ask(&Request::Flows { from, limit: 2 }) else {
            panic!()
        };
        assert_eq!(page.flows.len(), 2);
        let Ok(Answer::Flows(rest)) = client.ask(&Request::Flows {
            from: page.next.unwrap(),
            limit: FLOWS_MAX * 10,
        }) else {
            panic!()
        };
        assert_eq!((rest.flows.len(), rest.next), (1, None));
        let mut key = Key {
            protocol: 6,
            source: "192.0.2.1:443".parse().unwrap(),
            destination: "10.0.0.1:40000".parse().unwrap(),
            vlan: 0,
        };
        let Ok(Answer::Flow(Some(flow))) = client.ask(&Request::Flow(key)) else {
            panic!()
        };
        assert_eq!(flow.source, "10.0.0.1:40000", "the reply's key finds it too");
        key.vlan = 7;
        assert_eq!(client.ask(&Request::Flow(key)), Ok(Answer::Flow(None)));
        let words = vec!["backend".to_owned(), "web1".to_owned()];
        let function = |name: &str| Request::Function {
            name: name.to_owned(),
            words: words.clone(),
        };
        let Ok(Answer::Function(answers)) = client.ask(&function("load_balancer")) else {
            panic!()
        };
        assert_eq!(answers.len(), 2);
        assert_eq!(
            client.ask(&function("nat")),
            Err("there is no function `nat`".into())
        );
        assert_eq!(client.ask(&Request::Stop), Ok(Answer::Stopping));
        assert_eq!(
            *cluster.asked.lock().unwrap(),
            ["load_balancer backend web1", "nat backend web1", "stop"]
        );
    }

    #[test]
    fn only_the_user_may_open_it_and_it_goes_away() {
        let place = Place::new("mode");
        let (_, server) = start(&place);
        let mode = std::fs::metadata(place.socket()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(server);
        assert!(!place.socket().exists());
        assert_eq!(
            std::fs::read_dir(&place.0).unwrap().count(),
            0,
            "nothing is left behind"
        );
        let problem = Client::connect(&place.socket()).unwrap_err();
        assert!(problem.contains("no Flowkeep answers at"), "{problem}");
        // Of a cluster of several processes, the members' sockets are beside it.
        let member = place.0.join("flowkeep-left.sock");
        let _server = Server::start(&member, Arc::new(Fake::default())).unwrap();
        let problem = Client::connect(&place.socket()).unwrap_err();
        assert!(
            problem.ends_with(&format!("with --socket: {}", member.display())),
            "{problem}"
        );
    }

    /// Whether it dies before the request, while it reads it, or while it answers.
    #[test]
    fn a_process_that_is_gone_has_ended() {
        let place = Place::new("gone");
        let listener = std::os::unix::net::UnixListener::bind(place.socket()).unwrap();
        let connected = || {
            let client = Client::connect(&place.socket()).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let ended = format!("{}: Flowkeep has ended", place.socket().display());
        let (mut client, end) = connected();
        drop(end);
        assert_eq!(client.ask(&Request::Status).unwrap_err(), ended);
        // With bytes that it has not read, the kernel gives another error.
        let (mut client, end) = connected();
        let Way::Socket(socket) = &mut client.way else {
            panic!("a socket")
        };
        socket.reader.get_mut().write_all(b"unread").unwrap();
        drop(end);
        assert_eq!(client.ask(&Request::Status).unwrap_err(), ended);
    }

    #[test]
    fn a_socket_in_use_is_refused_and_a_dead_one_taken_over() {
        let place = Place::new("taken");
        let (_, server) = start(&place);
        let again = Server::start(&place.socket(), Arc::new(Fake::default()));
        assert!(matches!(again, Err(ServerError::Taken(_))));
        drop(server);
        // A listener that is gone without having removed its file, as after a kill.
        drop(std::os::unix::net::UnixListener::bind(place.socket()).unwrap());
        assert!(place.socket().exists());
        drop(start(&place));
        std::fs::write(place.socket(), "precious").unwrap();
        let on_file = Server::start(&place.socket(), Arc::new(Fake::default()));
        assert!(matches!(on_file, Err(ServerError::Io(..))));
        assert_eq!(std::fs::read_to_string(place.socket()).unwrap(), "precious");
    }

    #[test]
    fn what_is_no_request_is_told_so_and_does_no_harm() {
        let place = Place::new("hostile");
        let (_, server) = start(&place);
        for wrong in [
            "",
            "{}",
            "[",
            "{\"ask\":\"everything\"}",
            "{\"ask\":\"flows\"}",
            "\u{0}\u{1}",
        ] {
            let mut stream = UnixStream::connect(server.path()).unwrap();
            stream.write_all(wrong.as_bytes()).unwrap();
            stream.write_all(b"\n").unwrap();
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            assert!(
                line.starts_with("{\"error\":\"this is no request"),
                "{wrong:?}: {line}"
            );
        }
        let mut stream = UnixStream::connect(server.path()).unwrap();
        stream.write_all(&vec![b'x'; REQUEST_MAX as usize + 1]).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.contains("at most"), "{line}");
        assert!(
            Client::connect(server.path())
                .unwrap()
                .ask(&Request::Status)
                .is_ok()
        );
    }

    /// Whether the server serves a new client. The threads of earlier clients need some time to see
    /// that these are gone.
    fn is_served(server: &Server) -> bool {
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            if Client::connect(server.path()).is_ok_and(|mut client| client.ask(&Request::Status).is_ok()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    #[test]
    fn there_is_a_bound_on_connections() {
        let place = Place::new("bound");
        let (_, server) = start(&place);
        let mut clients: Vec<Client> = (0..CONNECTIONS_MAX)
            .map(|_| Client::connect(server.path()).unwrap())
            .collect();
        for client in &mut clients {
            assert!(client.ask(&Request::Status).is_ok());
        }
        let mut line = String::new();
        BufReader::new(UnixStream::connect(server.path()).unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.contains("too many connections"), "{line}");
        drop(clients);
        // Their threads see it a moment later.
        assert!(is_served(&server));
    }

    #[test]
    fn half_lines_noise_and_a_thousand_connections_are_borne() {
        let place = Place::new("crowd");
        let (_, server) = start(&place);
        // Some clients say nothing, some half a request, some noise; each goes away at once or
        // after others have come.
        let mut open = std::collections::VecDeque::new();
        let mut noise = 1_u64;
        for n in 0..1000_u32 {
            let mut stream = UnixStream::connect(server.path()).unwrap();
            let said: Vec<u8> = match n % 4 {
                0 => Vec::new(),
                1 => b"{\"ask\":\"sta".to_vec(),
                2 => [b"[".repeat(n as usize % 500), b"\n".to_vec()].concat(),
                _ => (0..n % 300)
                    .map(|_| {
                        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (noise >> 56) as u8
                    })
                    .collect(),
            };
            // A connection too many is closed already.
            let _ = stream.write_all(&said);
            open.push_back(stream);
            if open.len() > 2 * CONNECTIONS_MAX {
                open.pop_front();
            }
        }
        let threads = std::fs::read_dir("/proc/self/task").unwrap().filter(|task| {
            let name = task
                .as_ref()
                .map(|task| std::fs::read_to_string(task.path().join("comm")));
            matches!(name, Ok(Ok(name)) if name.starts_with("flowkeep-contro"))
        });
        // Other tests run beside this one, with servers of their own.
        let threads = threads.count();
        assert!(threads < 8 * CONNECTIONS_MAX, "{threads} threads");
        drop(open);
        assert!(is_served(&server), "a client behind the crowd is served");
    }
}
