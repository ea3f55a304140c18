//! The Cassandra node that all tests of this process share (`tools/cassandra/run.sh`).
//!
//! ```text
//!   test process ── start, kill ──► keeper (sh) ──► java
//!                ── end of file, however the process ended ──► keeper kills it and removes its folder
//! ```
//!
//! Tests that only use the node hold it for reading, tests that harm it for writing. A node with
//! other settings is its test's own ([`Node::start_with`]). The shared node takes clients with and
//! without TLS.

use crate::authority::Authority;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

const KEEPER: &str = r#"
trap '' INT TERM HUP
while read -r word; do
    case $word in
        start) sh "$1" "$2" "$3" </dev/null >>"$2/log" 2>&1 & pid=$!; echo "$pid" ;;
        kill) kill -9 "$pid"; wait "$pid"; echo killed ;;
    esac
done
kill -9 "$pid"; wait; rm -rf "$2"
"#;

/// TLS for clients that want it, as `cassandra.yaml` has it.
const OPTIONAL_TLS: &str = "client_encryption_options:\n  enabled: true\n  optional: true\n  \
                            ssl_context_factory:\n    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory\n  \
                            keystore: FOLDER/node.pem\n  truststore: FOLDER/ca.crt\n";

pub struct Node {
    keeper: Child,
    said: BufReader<std::process::ChildStdout>,
    pub folder: PathBuf,
    /// The authority that signed the node's certificate, `ca.crt` in the folder.
    pub authority: Authority,
    pub port: u16,
    pub pid: i32,
    /// It is on 127.0.0.this.
    number: u8,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/cassandra/run.sh")
}

impl Node {
    /// The error says why there is no node here; a node that does not start ends the test.
    fn start() -> Result<Self, String> {
        Self::start_with(OPTIONAL_TLS)
    }

    /// A node with further settings, as `cassandra.yaml` has them. `FOLDER` in them is the node's,
    /// which has its certificate, for `localhost`.
    pub fn start_with(settings: &str) -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        Self::start_at(1, port, settings)
    }

    /// A node of several, which have one port; the first of them is there before the others.
    pub fn start_at(number: u8, port: u16, settings: &str) -> Result<Self, String> {
        let installed = Command::new("sh").arg(script()).arg("install").output();
        let installed = installed.map_err(|error| error.to_string())?;
        if installed.status.code() == Some(77) {
            let said = String::from_utf8_lossy(&installed.stderr).into_owned();
            return Err(said.lines().last().unwrap_or_default().to_owned());
        }
        assert!(installed.status.success(), "{installed:?}");
        let folder = tempfile::tempdir().unwrap().keep();
        let authority = Authority::new(&folder.join("ca.crt"));
        authority.sign(&folder, "node", "localhost");
        join_pem(&folder);
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .args([&script(), &folder, Path::new(&port.to_string())])
            .env("FLOWKEEP_CASSANDRA_NODE", number.to_string())
            .env(
                "FLOWKEEP_CASSANDRA_YAML",
                settings.replace("FOLDER", &folder.display().to_string()),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = BufReader::new(keeper.stdout.take().unwrap());
        let mut node = Node {
            keeper,
            said,
            folder,
            authority,
            port,
            pid: 0,
            number,
        };
        node.launch();
        Ok(node)
    }

    fn say(&mut self, word: &str) -> String {
        let mut input = self.keeper.stdin.as_ref().unwrap();
        writeln!(input, "{word}").unwrap();
        let mut answer = String::new();
        self.said.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    /// Starts the process, on the data that there is, and waits until it answers.
    pub fn launch(&mut self) {
        let began = Instant::now();
        self.pid = self.say("start").parse().unwrap();
        while TcpStream::connect((Ipv4Addr::new(127, 0, 0, self.number), self.port)).is_err() {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let is_over = began.elapsed() > Duration::from_secs(240) || log().contains("during startup");
            assert!(!is_over, "Cassandra does not start: {}", log());
            std::thread::sleep(Duration::from_millis(100));
        }
        println!("Cassandra answers after {:.1} s", began.elapsed().as_secs_f64());
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        assert_eq!(self.say("kill"), "killed");
    }

    /// Removes what it had. It may not run.
    pub fn forget(&self) {
        for folder in ["data", "commitlog", "hints", "caches", "cdc"] {
            let _ = std::fs::remove_dir_all(self.folder.join(folder));
        }
    }

    /// A keyspace that no other call gives.
    pub fn uri(&self) -> String {
        static KEYSPACES: AtomicU32 = AtomicU32::new(0);
        let keyspace = KEYSPACES.fetch_add(1, Ordering::Relaxed);
        format!(
            "cassandra://127.0.0.1:{}/test_{keyspace}?consistency=quorum&replication=1",
            self.port
        )
    }
    /// The same over TLS.
    pub fn uri_over_tls(&self) -> String {
        let uri = self
            .uri()
            .replace("cassandra://127.0.0.1", "cassandras://localhost");
        format!("{uri}&ca={}", self.folder.join("ca.crt").display())
    }
}

/// Writes the node's key and certificate as one file, which Cassandra reads when it starts.
pub fn join_pem(folder: &Path) {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    std::fs::write(folder.join("node.pem"), read("node.key") + &read("node.crt")).unwrap();
}

fn node() -> Result<&'static RwLock<Node>, String> {
    static NODE: OnceLock<Result<RwLock<Node>, String>> = OnceLock::new();
    NODE.get_or_init(|| Node::start().map(RwLock::new))
        .as_ref()
        .map_err(Clone::clone)
}

/// The node, for calls that harm nothing. The error says why it cannot be had.
pub fn shared() -> Result<RwLockReadGuard<'static, Node>, String> {
    Ok(node()?.read().unwrap_or_else(PoisonError::into_inner))
}

/// The node, for a test that harms it.
pub fn alone() -> Result<RwLockWriteGuard<'static, Node>, String> {
    Ok(node()?.write().unwrap_or_else(PoisonError::into_inner))
}

/// Asks a node in a session of its own, as this user, whose password is the name.
pub fn asked<R>(node: &Node, user: Option<&str>, ask: impl AsyncFnOnce(Session) -> R) -> R {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut session = SessionBuilder::new().known_node(format!("127.0.0.1:{}", node.port));
        if let Some(user) = user {
            session = session.user(user, user);
        }
        ask(session.build().await.unwrap()).await
    })
}
