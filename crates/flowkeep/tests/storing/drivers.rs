//! One program, one chain, each kind of store: only a line of the configuration changes from one to
//! the next.

use super::*;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use storing::Server;

const COUNTED: &str = "\"counter\", \"firewall\", \"nat\"";

/// A node of Cassandra, as `tools/cassandra/run.sh` starts it; ended with the test, however that
/// ends.
struct Node(Child, u16);

/// Becomes the node's parent, and kills it when the test's end of the pipe is closed.
const KEEPER: &str = r#"sh "$1" "$2" "$3" </dev/null >"$2/log" 2>&1 & pid=$!; cat >/dev/null; kill -9 "$pid"; wait; rm -rf "$2""#;

impl Node {
    fn start() -> Result<Self, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/cassandra/run.sh");
        let installed = Command::new("sh").arg(&script).arg("install").output();
        let installed = installed.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&installed.stderr).into_owned();
        if installed.status.code() == Some(77) {
            return Err(said.lines().last().unwrap_or_default().to_owned());
        }
        assert!(installed.status.success(), "{said}");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = port.expect("a free port").port();
        let folder = tempfile::tempdir().expect("a folder").keep();
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(script).arg(&folder);
        command.arg(port.to_string()).stdin(Stdio::piped());
        let node = Node(command.spawn().expect("a shell"), port);
        let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        wait("Cassandra", || {
            assert!(!log().contains("during startup"), "{}", log());
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        Ok(node)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The sum of the counters of all runtimes.
fn counted(folder: &Folder) -> u64 {
    let said = wait("counts", || folder.asked(&["function", "counter", "counts"]));
    let answers = said["answers"].as_array().expect("answers");
    let rows = answers
        .iter()
        .flat_map(|answer| answer["rows"].as_array().expect("rows"));
    rows.filter_map(|row| row["packets"].as_u64()).sum()
}

/// The packets that a store has.
fn kept(uri: &str) -> u64 {
    let (done, said, error) = output(&["store", "inspect", uri, "--merged", "--json"]);
    assert!(done, "{error}");
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let rows = said["variables"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["name"] == "packets_by_protocol");
    row.and_then(|row| row["sum"].as_u64()).expect("a sum")
}

/// Traffic, `kill -9`, start: counts and flows are there again, as far as the store outlives the
/// process.
fn goes_on(uri: &str, outlives: bool) {
    let folder = Folder::new();
    let config = folder.gateway(1, COUNTED, &table(uri, "10ms"));
    let running = Running::start(&config);
    let before = all_flows(&folder);
    let count = counted(&folder);
    assert!(count >= FLOWS as u64, "{count}");
    // Counts are in the store within the interval, and some time for a machine that is busy.
    std::thread::sleep(Duration::from_secs(1));
    drop(running);
    if outlives {
        let kept = kept(uri);
        assert!(kept >= count, "{uri}: {kept} packets of at least {count}");
    }
    let _running = Running::start(&config);
    let enough =
        |status: &Value| number(status, "/packets/in").is_some_and(|count| count > 10 * FLOWS as u64);
    let status = wait("packets", || folder.status().filter(enough));
    let opened = number(&status, "/flows/opened");
    if !outlives {
        assert_eq!((opened, recovered(&folder)), (Some(FLOWS as u64), 0), "{status}");
        return;
    }
    assert_eq!(opened, Some(0), "{uri}: {status}");
    assert_eq!(folder.mappings(), before, "{uri}");
    wait("events", || (recovered(&folder) == FLOWS as u64).then_some(()));
    let now = counted(&folder);
    assert!(now >= count + 10 * FLOWS as u64, "{uri}: {now} behind {count}");
    println!("{uri}: {count} packets and {FLOWS} flows went on; {now} packets now");
}

#[test]
fn one_program_goes_on_out_of_each_kind_of_store() {
    goes_on("memory:", false);
    let folder = Folder::new();
    goes_on(&format!("redb:{}", folder.path("all.redb")), true);
    for program in ["redis-server", "valkey-server"] {
        match Server::start_program(program, &[]) {
            Ok(server) => goes_on(&server.uri(), true),
            Err(why) => println!("not run: {why}"),
        }
    }
    match Node::start() {
        Ok(node) => goes_on(&format!("cassandra://127.0.0.1:{}", node.1), true),
        Err(why) => println!("not run: {why}"),
    }
}
