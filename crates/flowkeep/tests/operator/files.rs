//! Files that a run writes.

use crate::codes::{PROFILE, code, port};
use std::path::Path;

fn folder(name: &str) -> std::path::PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("files-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(
        path.join("profile.toml"),
        PROFILE.replace("packets_max = 1", "packets_max = 2000"),
    )
    .unwrap();
    path
}

/// A run appends to no file that it reads, and to no configuration; refused files stay as they
/// were.
#[test]
fn a_run_writes_no_file_that_it_uses_otherwise() {
    let folder = folder("twice");
    let made = "run --input generate:profile.toml --output pcap:in.pcap --events /dev/null --socket s";
    assert_eq!(code(&folder, made).0, Some(0));
    let _ = std::fs::remove_file(folder.join("other.pcap"));
    std::fs::hard_link(folder.join("in.pcap"), folder.join("other.pcap")).unwrap();
    std::fs::write(folder.join("c.toml"), port("generate:profile.toml")).unwrap();
    let before = std::fs::read(folder.join("in.pcap")).unwrap();
    for words in [
        "--input pcap:in.pcap --events in.pcap",
        "--input pcap:in.pcap --events other.pcap",
        "c.toml --events c.toml",
        "c.toml --events profile.toml",
        "--input pcap:in.pcap --output pcap:new.pcap --events new.pcap",
    ] {
        let (code, said) = code(&folder, &format!("run {words} --socket s"));
        assert_eq!(code, Some(2), "{words}: {said}");
        let why = "this run reads or writes it already; choose another name";
        assert!(said.contains(why), "{words}: {said}");
    }
    assert!(std::fs::read(folder.join("in.pcap")).unwrap() == before);
    assert!(!folder.join("new.pcap").exists());
    let own = port("generate:profile.toml") + "[log]\nevents = \"c.toml\"\n";
    std::fs::write(folder.join("c.toml"), own).unwrap();
    let (checked, said) = code(&folder, "chain check c.toml");
    assert_eq!(checked, Some(2), "{said}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A limit on the size of files ends no cluster: it says that lines cannot be written.
#[test]
fn a_limit_on_the_size_of_files_ends_nothing() {
    let folder = folder("limit");
    let many = PROFILE
        .replace("flows = 1", "flows = 500")
        .replace("packets_max = 1", "packets_max = 5000");
    std::fs::write(folder.join("profile.toml"), many).unwrap();
    let program = env!("CARGO_BIN_EXE_flowkeep");
    let line = format!(
        "ulimit -f 8; exec '{program}' run --input generate:profile.toml --events e.jsonl --socket s"
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &line])
        .current_dir(&folder)
        .output()
        .unwrap();
    let said = crate::running::text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("it cannot be written: File too large"), "{said}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// The files have the size and age that `[log]` says: the newest `keep` are there besides, each as
/// long as it may be, and all lines are whole.
#[test]
fn an_event_log_is_rotated_as_the_configuration_says() {
    const PACED: &str = "pace = \"clock\"\n";
    const SIZE: u64 = 100 << 10;
    for (name, setting, profile, most) in [
        ("size", "max_size = \"100 KiB\"", "packets_max = 6000\n", SIZE),
        ("age", "max_age = \"200ms\"", PACED, u64::MAX),
    ] {
        let folder = folder(name);
        // Each flow has two packets, and NAT a line for its begin and one for its end.
        let profile = format!(
            "flows = 10\nrate = {{ total = 1000.0 }}\n{profile}sources = [\"10.0.0.0/24\"]\n\
             destinations = [\"192.0.2.1/32\"]\n[[classes]]\nshare = 1.0\ntcp = 0.0\nlife = {{ packets = {{ fixed = 2 }} }}\n"
        );
        std::fs::write(folder.join("profile.toml"), profile).unwrap();
        let config = format!(
            "flows_max = 8192\n[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:profile.toml\"\n\
             [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
             [[chain]]\nname = \"out\"\nfunctions = [\"nat\"]\n[function.nat]\npool = [\"203.0.113.0/29\"]\n\
             [log]\nevents = \"e.jsonl\"\n{setting}\nkeep = 2\n"
        );
        std::fs::write(folder.join("c.toml"), config).unwrap();
        let (ended, said) = code(&folder, "run c.toml --for 2s --socket s");
        assert_eq!(ended, Some(0), "{said}");
        for file in ["e.jsonl", "e.jsonl.1", "e.jsonl.2"] {
            let lines = std::fs::read_to_string(folder.join(file)).expect(file);
            println!("{name}: {file} has {} bytes", lines.len());
            assert!(lines.len() as u64 <= most, "{file}: {} bytes", lines.len());
            assert!(file == "e.jsonl" || lines.ends_with('\n'), "{file} is cut");
            for line in lines.lines() {
                let line: serde_json::Value = serde_json::from_str(line).expect(line);
                assert!(line["time"].is_string(), "{file}: {line}");
            }
        }
        assert!(!folder.join("e.jsonl.3").exists(), "more files than `keep` says");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
