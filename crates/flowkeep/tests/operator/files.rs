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

/// A run appends to no file that it reads, and to no configuration; what is refused is as it was.
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

/// A limit on the size of files ends no cluster: what cannot be written is said.
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
