//! The commands that look inside a running cluster, started as a person starts them: on a terminal,
//! into a file, and killed.

mod running;

use running::{PATIENCE, Running, text};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PROFILE: &str = r#"
seed = 1
flows = 40
rate = { per_flow = 25.0 }
pace = "clock"
sources = ["10.0.0.0/24"]
destinations = ["192.0.2.1/32"]
destination_ports = [80, 22]
"#;

/// Firewall and NAT towards a world that answers.
fn running(name: &str) -> Running {
    Running::start(name, PROFILE, |profile| {
        format!(
            "runtimes = 2\nflows_max = 4096\n\
             [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
             [[port]]\nname = \"world\"\nside = \"outside\"\ninput = \"reflect:?mode=answer\"\noutput = \"reflect:?mode=answer\"\n\
             [[chain]]\nname = \"web\"\nfunctions = [\"firewall\", \"nat\"]\n\
             [[function.firewall.rules]]\nname = \"web\"\ndestination_ports = 80\naction = \"allow\"\n\
             [function.nat]\npool = [\"203.0.113.0/29\"]\n"
        )
    })
}

/// Whether a program is installed; else a word about it.
fn has(program: &str, package: &'static str) -> bool {
    let needed = lab::need(program, package);
    needed.inspect_err(|error| println!("not run: {error}")).is_ok()
}

/// Waits for a result that comes in its own time.
#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_capture_is_read_by_tcpdump_and_tshark() {
    let site = running("pcapng");
    let file = site.path("all.pcapng");
    // So many packets that each worker has its turn meanwhile, on a busy machine, too.
    let caught = site.ask(&["capture", "--in", "--out", "--drops", "-c", "5000", "-w", &file]);
    assert!(caught.status.success(), "{}", text(&caught.stderr));
    assert!(
        text(&caught.stderr).starts_with("5000 packets captured\n"),
        "{}",
        text(&caught.stderr)
    );
    if has("tcpdump", "tcpdump") {
        let read = Command::new("tcpdump").args(["-nr", &file]).output().unwrap();
        assert!(read.status.success(), "{}", text(&read.stderr));
        assert_eq!(text(&read.stdout).lines().count(), 5000);
    }
    if !has("tshark", "tshark") {
        return;
    }
    let fields = [
        "frame.interface_name",
        "frame.packet_flags_direction",
        "frame.comment",
        "tcp.dstport",
    ];
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", &file, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let read = command.output().unwrap();
    let lines = text(&read.stdout);
    let mut kinds = std::collections::BTreeMap::<&str, u32>::new();
    for line in lines.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let kind = match (fields[0], fields[1], fields[2]) {
            ("lan", "0x00000001", "firewall: not_allowed") => {
                assert_eq!(fields[3], "22", "{line}");
                "refused"
            }
            ("lan", "0x00000001", "") => "in by lan",
            ("world", "0x00000002", "") => "out by world",
            ("world", "0x00000001", "") => "in by world",
            ("lan", "0x00000002", "") => "out by lan",
            (_, _, reason) if reason.starts_with("firewall: ") => "refused for another reason",
            _ => panic!("{line}"),
        };
        *kinds.entry(kind).or_default() += 1;
    }
    assert!(
        kinds.values().sum::<u32>() == 5000 && kinds.len() >= 5,
        "{kinds:?}"
    );
}

#[test]
fn a_capture_is_filtered_counted_and_piped() {
    if !has("tcpdump", "tcpdump") {
        return;
    }
    let site = running("filter");
    let caught = site.ask(&[
        "capture",
        "--filter",
        "dst port 80 and src net 10.0.0.0/8",
        "-c",
        "20",
    ]);
    let lines = text(&caught.stdout);
    assert_eq!(lines.lines().count(), 20, "{lines}");
    for line in lines.lines() {
        assert!(
            line.contains(" lan   In   tcp 10.0.0.") && line.contains(" > 192.0.2.1:80 ["),
            "{line}"
        );
    }
    let wrong = site.ask(&["capture", "--filter", "port of call"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
    let mut capture = site
        .command(&["capture", "--out", "-c", "10", "-w", "-"])
        .spawn()
        .unwrap();
    let mut tcpdump = Command::new("tcpdump");
    let tcpdump = tcpdump.args(["-nr", "-"]).stdin(capture.stdout.take().unwrap());
    let read = tcpdump.output().unwrap();
    assert_eq!(text(&read.stdout).lines().count(), 10, "{}", text(&read.stderr));
    assert!(capture.wait().unwrap().success());
}

#[test]
fn killed_tools_end_their_watches() {
    let site = running("killed");
    for round in 0..3 {
        let watch = |number: u32| {
            let file = site.path(&format!("{round}-{number}.pcapng"));
            let tool = site.command(&["capture", "--in", "-w", &file]).spawn().unwrap();
            // The file is made when the watch has begun.
            let began = Instant::now();
            while !Path::new(&file).exists() {
                assert!(began.elapsed() < PATIENCE);
                std::thread::sleep(Duration::from_millis(5));
            }
            tool
        };
        let mut tools: Vec<Child> = (0..2).map(watch).collect();
        let third = site.ask(&["capture", "--in", "-c", "1"]);
        assert!(
            text(&third.stderr).contains("end one of those first"),
            "{}",
            text(&third.stderr)
        );
        for tool in &mut tools {
            tool.kill().unwrap();
            tool.wait().unwrap();
        }
        let began = Instant::now();
        while !site.ask(&["capture", "--in", "-c", "1"]).status.success() {
            assert!(began.elapsed() < PATIENCE, "the places do not get free");
        }
    }
}

#[test]
fn a_trace_ends_by_itself() {
    let site = running("trace");
    let flow = until("a flow", || {
        let flows: Value = serde_json::from_slice(&site.ask(&["flow", "list", "--json"]).stdout).unwrap();
        let mut all = flows["flows"].as_array().unwrap().iter();
        all.find(|flow| flow["destination"] == "192.0.2.1:80").cloned()
    });
    let (source, destination) = (
        flow["source"].as_str().unwrap(),
        flow["destination"].as_str().unwrap(),
    );
    let words = [
        "flow",
        "trace",
        "tcp",
        source,
        destination,
        "--packets",
        // A second of it: where the machine does something else for a while, some of one direction
        // come behind each other.
        "50",
        "--for",
        "60s",
    ];
    let traced = site.ask(&words);
    assert!(traced.status.success(), "{}", text(&traced.stderr));
    let lines = text(&traced.stdout);
    let mut packets = lines.lines().filter(|line| line.starts_with('#'));
    assert!(
        packets.next().is_some_and(|line| line.starts_with("#1 ")),
        "{lines}"
    );
    assert!(lines.contains("firewall  forward"), "{lines}");
    assert!(
        lines.contains(&format!("source {source} → 203.0.113.")),
        "{lines}"
    );
    assert!(lines.contains("out by world: 203.0.113."), "{lines}");
    let json = site.ask(&[&words[..], &["--json"]].concat());
    for line in text(&json.stdout).lines() {
        let step: Value = serde_json::from_str(line).unwrap();
        assert!(step["packet"].is_u64() && step["step"].is_string(), "{line}");
    }
    let silent = site.ask(&[
        "flow",
        "trace",
        "udp",
        "10.9.9.9:1",
        "10.9.9.8:2",
        "--for",
        "300ms",
    ]);
    assert!(
        text(&silent.stderr).starts_with("no packet of udp 10.9.9.9:1"),
        "{}",
        text(&silent.stderr)
    );
}

#[test]
fn top_prints_for_scripts_and_refuses_what_is_no_terminal() {
    let site = running("once");
    let once = site.ask(&["top", "--once"]);
    let screen = text(&once.stdout);
    assert!(once.status.success(), "{}", text(&once.stderr));
    for words in [
        "RUNTIME",
        "PORT",
        "firewall/not_allowed",
        "PROCESSOR",
        "BUSIEST FLOWS",
    ] {
        assert!(screen.contains(words), "{words} in\n{screen}");
    }
    assert!(!screen.contains('\u{1b}'), "no escape sequences: {screen}");
    // Forty flows of 25 packets a second, and the world's answers: far more than a few, once the
    // machine has time for them.
    until("rates", || {
        let json = site.ask(&["top", "--once", "--json", "--interval", "500ms"]);
        let rates: Value = serde_json::from_slice(&json.stdout).unwrap();
        let is_so = rates["in"]["packets"].as_f64().unwrap() > 50.0
            && rates["dropped"]["firewall/not_allowed"].as_f64() > Some(5.0)
            && !rates["busiest"].as_array().unwrap().is_empty();
        is_so.then_some(())
    });
    let refused = site.ask(&["top"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("--once"),
        "{}",
        text(&refused.stderr)
    );
}

/// `flowkeep top` on a terminal of its own, made by script(1): between two looks at the terminal's
/// settings.
struct OnTerminal {
    script: Child,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    fn start(site: &Running) -> Self {
        let shell = format!(
            "stty rows 30 cols 120; stty -a > '{}'; '{}' top --interval 200ms --socket '{}'; echo \"exit $?\"; stty -a > '{}'",
            site.path("before"),
            env!("CARGO_BIN_EXE_flowkeep"),
            site.path("s.sock"),
            site.path("after")
        );
        let mut command = Command::new("script");
        command.args(["-qfec", &shell, "/dev/null"]).env("TERM", "xterm");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut script = command.spawn().unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut out, all) = (script.stdout.take().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut some) {
                all.lock().unwrap().extend_from_slice(&some[..count]);
            }
        });
        OnTerminal { script, screen }
    }

    #[track_caller]
    fn wait_for(&self, words: &str) {
        let began = Instant::now();
        while !text(&self.screen.lock().unwrap()).contains(words) {
            assert!(
                began.elapsed() < PATIENCE,
                "no {words:?} in {}",
                text(&self.screen.lock().unwrap())
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, key: &str) {
        self.script
            .stdin
            .as_mut()
            .unwrap()
            .write_all(key.as_bytes())
            .unwrap();
    }

    /// Waits for the end; the terminal is as it was.
    #[track_caller]
    fn end(mut self, site: &Running, exit: &str) {
        self.wait_for(exit);
        let _ = self.script.wait();
        let read = |name: &str| fs::read_to_string(Path::new(&site.path(name))).unwrap();
        assert!(read("before").contains(" icanon"), "{}", read("before"));
        assert_eq!(read("before"), read("after"));
        let screen = text(&self.screen.lock().unwrap());
        let (entered, left) = (screen.rfind("\x1b[?1049h"), screen.rfind("\x1b[?1049l"));
        assert!(entered.is_some() && left > entered, "{screen}");
        assert!(
            screen.rfind("\x1b[?25h") > screen.rfind("\x1b[?25l"),
            "the cursor is back"
        );
    }
}

#[test]
fn top_draws_on_a_terminal_and_leaves_it_as_it_was() {
    if !has("script", "bsdutils") {
        return;
    }
    let mut site = running("terminal");
    let mut top = OnTerminal::start(&site);
    top.wait_for("firewall/not_allowed");
    top.press("q");
    top.end(&site, "exit 0");
    // Ctrl-C is a key like another.
    let mut top = OnTerminal::start(&site);
    top.wait_for("RUNTIME");
    top.press("\u{3}");
    top.end(&site, "exit 0");
    // The cluster ends under it.
    let mut top = OnTerminal::start(&site);
    top.wait_for("firewall/not_allowed");
    site.cluster.kill().unwrap();
    site.cluster.wait().unwrap();
    top.wait_for("THE CLUSTER HAS STOPPED");
    top.press("q");
    top.end(&site, "exit 1");
}
