//! Memory by `chain check`, compared with that of a running cluster.

use crate::running::{PATIENCE, Running, text};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// Many flows, each of a packet or two.
const PROFILE: &str = "flows = 30000\nrate = { total = 60000.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/20\"]\n\
                       source_ports = [1024, 60000]\ndestinations = [\"198.51.100.0/28\"]\ndestination_ports = [443]\n\
                       [[classes]]\nshare = 1.0\ntcp = 0.0\n";

fn config(profile: &str, runtimes: u16, more: &str) -> String {
    format!(
        "clock = \"machine\"\nruntimes = {runtimes}\n{more}\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"reflect:?mode=answer\"\ninput = \"reflect:?mode=answer\"\n\
         [[chain]]\nname = \"all\"\nfunctions = [\"firewall\", \"nat\"]\n\
         [[function.firewall.rules]]\nname = \"out\"\nfrom = \"inside\"\naction = \"allow\"\n\
         [function.nat]\npool = [\"203.0.113.0/24\"]\n"
    )
}

fn flowkeep(words: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowkeep"));
    command.args(words).output().unwrap()
}

fn checked(config: &str) -> Value {
    let output = flowkeep(&["chain", "check", "--json", config]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["memory"].clone()
}

fn resident(process: u32) -> u64 {
    of_process(process, "VmRSS:")
}

fn of_process(process: u32, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// The bytes of all tables of a worker, by a name of a figure.
fn of(memory: &Value, worker: &str, figure: &str) -> u64 {
    let mut workers = memory["workers"].as_array().unwrap().iter();
    let worker = workers.find(|of| of["worker"] == worker).unwrap();
    let tables = worker["tables"].as_array().unwrap().iter();
    tables.map(|table| table[figure].as_u64().unwrap()).sum()
}

#[test]
fn a_cluster_takes_what_the_check_says() {
    takes_what_is_said(2, 100_000);
    // More than the check makes room for.
    takes_what_is_said(1, 1_200_000);
}

fn takes_what_is_said(runtimes: u16, flows_max: u32) {
    let running = Running::start("memory", PROFILE, |profile| {
        config(profile, runtimes, &format!("flows_max = {flows_max}"))
    });
    let memory = checked(&running.path("config.toml"));
    let figure = |name: &str| memory[name].as_u64().unwrap();
    let (start, most) = (figure("start_bytes"), figure("most_bytes"));
    // Runtimes take most of it, so their figures are compared.
    assert!(
        2 * of(&memory, "runtime", "start_bytes") > start / 2,
        "{memory:#}"
    );
    let began = resident(running.cluster.id());
    let began_at = Instant::now();
    let flows = || -> u64 {
        let status: Value = serde_json::from_slice(&running.ask(&["status", "--json"]).stdout).unwrap();
        let runtimes = status["runtimes"].as_array().unwrap().iter();
        runtimes.map(|runtime| runtime["flows"].as_u64().unwrap()).sum()
    };
    while flows() < 15_000 {
        assert!(began_at.elapsed() < PATIENCE, "no flows come");
        std::thread::sleep(Duration::from_millis(20));
    }
    let then = resident(running.cluster.id());
    println!("checked: {start} at the start, {most} at most; resident: {began}, with flows {then}");
    let within = |resident: u64| (start as f64 * 0.8..start as f64 * 1.25).contains(&(resident as f64));
    assert!(
        within(began),
        "{began} is resident, and {start} was said\n{memory:#}"
    );
    assert!(then < most, "{then} is resident, and {most} was said\n{memory:#}");
}

/// The example of an IDS, on traffic that goes by the clock. It once took gigabytes.
#[test]
fn an_ids_takes_what_the_check_says_and_no_gigabytes() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let example = std::fs::read_to_string(examples.join("ids.toml")).unwrap();
    let rules = examples.join("ids.rules");
    let running = Running::start("ids-memory", PROFILE, |profile| {
        let example = example.replace("pcap:in.pcap", &format!("generate:{profile}"));
        let example = example.replace("examples/ids.rules", rules.to_str().unwrap());
        example.replace("events = \"-\"", "events = \"/dev/null\"")
    });
    let memory = checked(&running.path("config.toml"));
    let start = memory["start_bytes"].as_u64().unwrap();
    let began_at = Instant::now();
    let flows = || {
        let status: Value = serde_json::from_slice(&running.ask(&["status", "--json"]).stdout).unwrap();
        status["runtimes"][0]["flows"].as_u64().unwrap()
    };
    while flows() < 15_000 {
        assert!(began_at.elapsed() < PATIENCE, "no flows come");
        std::thread::sleep(Duration::from_millis(20));
    }
    let most = of_process(running.cluster.id(), "VmHWM:");
    println!("an IDS for 100,000 flows: checked {start}, and took {most} with 15,000 of them");
    assert!((100_000_000..350_000_000).contains(&start), "{memory:#}");
    assert!((start / 5 * 4..400_000_000).contains(&most), "{most}\n{memory:#}");
}

#[test]
fn figures_follow_the_settings() {
    let folder =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("need-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (profile, file) = (path("traffic.toml"), path("config.toml"));
    std::fs::write(&profile, PROFILE).unwrap();
    let needs = |runtimes, more: &str| {
        std::fs::write(&file, config(&profile, runtimes, more)).unwrap();
        checked(&file)
    };
    let flow = |memory: &Value| of(memory, "runtime", "start_bytes");
    let [few, twice, many, more] =
        [65_536, 131_072, 1_048_576, 4_194_304].map(|flows| flow(&needs(1, &format!("flows_max = {flows}"))));
    // The fixed part is in each, and pieces of 1 MiB and more are whole pages of 2 MiB.
    let ratio = (many - twice) as f64 / (twice - few) as f64;
    assert!((11.0..=16.0).contains(&ratio), "{few}, {twice} and {many}");
    let ratio = (more - twice) as f64 / (many - twice) as f64;
    assert!((4.2..=4.7).contains(&ratio), "{twice}, {many} and {more}");
    assert!(twice - few > 65_536 * 400, "{few} and {twice}");
    // A replay finds its memory as it uses it.
    let machine = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, machine.replace("\"machine\"", "\"capture\"")).unwrap();
    let replay = flow(&checked(&file));
    assert!(2 * replay < more, "{replay} of {more}");
    let text = flowkeep(&["chain", "check", &file]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("memory: ") && text.contains("function nat"),
        "{text}"
    );

    // More than any machine has.
    std::fs::write(&file, config(&profile, 64, "flows_max = 268_435_456")).unwrap();
    let output = flowkeep(&["run", &file, "--socket", &path("socket")]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("`flows_max` takes") && said.contains("this machine has"),
        "{said}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Address space that is limited is an error that says so, how much is needed, and how low the
/// setting that takes most must be. Its remedies help.
#[test]
fn too_little_address_space_is_told_with_its_limit_and_a_setting() {
    let folder =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("space-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (profile, file) = (path("traffic.toml"), path("config.toml"));
    std::fs::write(&profile, PROFILE).unwrap();
    std::fs::write(&file, config(&profile, 1, "flows_max = 400_000")).unwrap();
    let limited = |kilobytes: u64| {
        let script = format!(
            "ulimit -v {kilobytes}; exec {} run {file} --for 200ms --socket {}",
            env!("CARGO_BIN_EXE_flowkeep"),
            path("socket")
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let number = |said: &str, before: &str| -> u64 {
        let behind = said
            .split_once(before)
            .unwrap_or_else(|| panic!("{before}: {said}"))
            .1;
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    // Either remedy leads to a start.
    let (code, said) = limited(800_000);
    assert_eq!(code, Some(1), "{said}");
    let (code, again) = limited(number(&said, "raise that (`ulimit -v "));
    assert_eq!(code, Some(0), "{said}{again}");
    let lower = number(&said, "or lower `flows_max` to ");
    assert!(lower < 400_000, "{said}");
    std::fs::write(&file, config(&profile, 1, &format!("flows_max = {lower}"))).unwrap();
    let (code, again) = limited(800_000);
    assert_eq!(code, Some(0), "{said}{again}");
    // No number of flows is small enough; then there is too little to see its need.
    let (code, said) = limited(400_000);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("`flows_max` (alone that is not enough)"), "{said}");
    let (code, said) = limited(number(&said, "raise that (`ulimit -v "));
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = limited(150_000);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("`ulimit -v") && said.contains("`flows_max`"),
        "{said}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A proposed number of flows is low enough, though memory comes and goes between two looks.
#[test]
fn a_number_of_flows_that_is_proposed_has_room() {
    let folder =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fewer-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (profile, file) = (path("traffic.toml"), path("config.toml"));
    std::fs::write(&profile, PROFILE).unwrap();
    for runtimes in [1, 3] {
        let check = |flows_max: u64| {
            std::fs::write(
                &file,
                config(&profile, runtimes, &format!("flows_max = {flows_max}")),
            )
            .unwrap();
            flowkeep(&["chain", "check", "--strict", &file])
        };
        let refused = check(268_435_456);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        let (_, proposed) = said
            .split_once("lower it to ")
            .unwrap_or_else(|| panic!("{said}"));
        let digits: String = proposed.chars().take_while(char::is_ascii_digit).collect();
        let proposed = digits.parse::<u64>().unwrap();
        let good = check(proposed);
        assert!(good.status.success(), "{said}\n{}", text(&good.stderr));
        let memory = checked(&file);
        let of = |name: &str| memory[name].as_u64().unwrap() as f64;
        let share = of("start_bytes") / of("available_bytes");
        println!("{proposed} flows take {share:.2} of what there is");
        assert!((0.4..0.95).contains(&share), "{share}: {memory:#}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
