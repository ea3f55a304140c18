//! Servers on this machine that are checked by a running cluster, by HTTP and by a connection.

use crate::running::{PATIENCE, Running, text};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A server that answers every connection alike, until it is dropped.
struct Server {
    at: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// With an empty answer it accepts and says nothing.
    fn start(at: &str, answer: &'static str) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (at, ends) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let is_over = ends.clone();
        let serve = move || {
            let mut mute = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let Ok((mut stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                if answer.is_empty() {
                    mute.push(stream);
                    continue;
                }
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                let mut request = [0; 1024];
                // A check by TCP says nothing, and hangs up.
                let count = stream.read(&mut request).unwrap_or(0);
                if count > 0 {
                    assert!(request.starts_with(b"GET /health HTTP/1.1\r\n"));
                    let _ = stream.write_all(answer.as_bytes());
                }
            }
        };
        Server {
            at,
            ends,
            thread: Some(std::thread::spawn(serve)),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

const PROFILE: &str = "flows = 10\nrate = { total = 100.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/24\"]\n\
                       destinations = [\"198.51.100.1/32\"]\ndestination_ports = [443]\n";

fn config(
    profile: &str,
    events: &str,
    metrics: SocketAddr,
    backends: &[(&str, SocketAddr)],
    check: &str,
) -> String {
    let listed = |prefix: &str| {
        let one =
            |(name, at): &(&str, SocketAddr)| format!("{{ name = \"{prefix}{name}\", endpoint = \"{at}\" }}");
        backends.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let service = |name: &str, port: u16, check: &str, backends: &str| {
        format!(
            "[[function.load_balancer.services]]\nname = \"{name}\"\naddresses = [\"198.51.100.1\"]\nports = {port}\n\
             protocol = \"tcp\"\n{check}\nbackends = [{backends}]\n"
        )
    };
    let by_tcp = check.replace(HTTP, "\"tcp\"");
    let services =
        service("web", 443, check, &listed("")) + &service("plain", 80, &by_tcp, &listed("plain-"));
    format!(
        "runtimes = 1\nruntimes_max = 2\nclock = \"machine\"\n[log]\nevents = \"{events}\"\n[metrics]\nlisten = \"{metrics}\"\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"load_balancer\"]\n\
         {services}"
    )
}

const HTTP: &str = "\"http:/health\"";
const CHECK: &str = "check = \"http:/health\"\ninterval = \"200ms\"\ntimeout = \"150ms\"\nrise = 2\nfall = 2";

/// Whether a server is up by `status`, and why.
fn server(running: &Running, name: &str) -> (Option<bool>, String) {
    let status: Value = serde_json::from_slice(&running.ask(&["status", "--json"]).stdout).unwrap();
    let all = status["backends"].as_array().cloned().unwrap_or_default();
    let one = all.iter().find(|one| one["backend"] == name);
    let why = |one: &Value| one["why"].as_str().unwrap_or_default().to_owned();
    one.map_or((None, String::new()), |one| (one["up"].as_bool(), why(one)))
}

/// The state of a server in the function's own table; nothing if runtimes differ.
fn in_table(running: &Running, name: &str) -> Option<String> {
    let said = text(&running.ask(&["function", "load_balancer", "backends"]).stdout);
    let mut states = said.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next() == Some(name)).then(|| words.next().unwrap_or_default().to_owned())
    });
    let first = states.next()?;
    states.all(|state| state == first).then_some(first)
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(30));
    }
}

fn figures(at: SocketAddr) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn servers_that_stop_say_nothing_or_answer_500_are_failing_until_they_return() {
    let good = Server::start("127.0.0.1:0", "HTTP/1.1 200 OK\r\n\r\n");
    let mute = Server::start("127.0.0.1:0", "");
    let broken = Server::start("127.0.0.1:0", "HTTP/1.1 500 No\r\n\r\n");
    let backends = [("good", good.at), ("mute", mute.at), ("broken", broken.at)];
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = free.local_addr().unwrap();
    drop(free);
    let running = Running::start("checks", PROFILE, |profile| {
        config(profile, &format!("{profile}.events"), metrics, &backends, CHECK)
    });
    let events = running.path("traffic.toml.events");
    until("the first checks", || {
        server(&running, "good").0 == Some(true)
            && server(&running, "mute") == (Some(false), "no answer within 150ms".into())
            && server(&running, "broken") == (Some(false), "it answers with status 500".into())
    });
    // By a connection each of them is there, though they say nothing, or the wrong thing.
    until("the checks by a connection", || {
        ["plain-good", "plain-mute", "plain-broken"].map(|name| server(&running, name).0) == [Some(true); 3]
    });
    until("what the function knows", || {
        in_table(&running, "good").as_deref() == Some("up")
            && in_table(&running, "broken").as_deref() == Some("failing")
    });
    let text_of = figures(metrics);
    for (service, name, up) in [
        ("web", "good", 1),
        ("web", "mute", 0),
        ("web", "broken", 0),
        ("plain", "plain-mute", 1),
    ] {
        let sample = format!(
            "flowkeep_backend_up{{function=\"load_balancer\",service=\"{service}\",backend=\"{name}\"}} {up}\n"
        );
        assert!(text_of.contains(&sample), "{sample} is not in\n{text_of}");
    }
    let shown = text(&running.ask(&["status"]).stdout);
    assert!(
        shown.contains("web/broken") && shown.contains("it answers with status 500"),
        "{shown}"
    );

    // The good server stops, and returns at the same place.
    let at = good.at;
    drop(good);
    until("its end", || server(&running, "good").0 == Some(false));
    until("its end by TCP", || {
        server(&running, "plain-good") == (Some(false), "it refuses connections".into())
    });
    until("its end in the table", || {
        in_table(&running, "good").as_deref() == Some("failing")
    });
    // An added runtime has heard nothing of all that, and hears it.
    assert!(running.ask(&["runtime", "add"]).status.success());
    until("the second runtime", || {
        in_table(&running, "broken").as_deref() == Some("failing")
    });
    let good = Server::start(&at.to_string(), "HTTP/1.1 204 No Content\r\n\r\n");
    until("its return", || {
        ["good", "plain-good"].map(|name| in_table(&running, name))
            == [Some("up".to_owned()), Some("up".to_owned())]
    });

    // An operator's word stays above its checks.
    assert!(
        running
            .ask(&["function", "load_balancer", "backend", "good", "down"])
            .status
            .success()
    );
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(in_table(&running, "good").as_deref(), Some("down"));
    assert_eq!(
        server(&running, "good").0,
        Some(true),
        "its check passes all the same"
    );
    running.ask(&["function", "load_balancer", "backend", "good", "up"]);
    assert_eq!(in_table(&running, "good").as_deref(), Some("up"));

    // A configuration without checks has all of them up.
    let other = running.path("other.toml");
    let profile = running.path("traffic.toml");
    fs::write(&other, config(&profile, &events, metrics, &backends, "")).unwrap();
    let applied = running.ask(&["chain", "apply", &other]);
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    until("no checks", || {
        in_table(&running, "broken").as_deref() == Some("up") && server(&running, "broken").0.is_none()
    });
    // And a meaningless check is refused with its line and a remedy.
    fs::write(
        &other,
        config(&profile, &events, metrics, &backends, "check = \"ping\""),
    )
    .unwrap();
    let refused = running.ask(&["chain", "apply", &other]);
    let why = text(&refused.stdout);
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(
        why.contains("`ping` is no check") && why.contains("other.toml:"),
        "{why}"
    );

    let lines = fs::read_to_string(&events).unwrap();
    let of = |event: &str, name: &str| {
        let is_it = |line: &&Value| line["event"] == event && line["backend"] == name;
        let lines: Vec<Value> = lines
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        lines.iter().filter(is_it).count()
    };
    let counts = [
        ("backend_down", "good"),
        ("backend_up", "good"),
        ("backend_down", "mute"),
        ("backend_up", "mute"),
        ("backend_down", "plain-good"),
        ("backend_down", "plain-mute"),
    ];
    assert_eq!(
        counts.map(|(event, name)| of(event, name)),
        [1, 1, 1, 0, 1, 0],
        "{lines}"
    );
    drop((good, mute, broken));
}
