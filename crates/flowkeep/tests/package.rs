//! The packages that `tools/package/build.sh` and `static.sh` make of this program. (`./x package
//! --try` installs them in bare chroots.)
//!
//! Needs `dpkg-deb`, `dpkg` and `xz`, which every Debian has, and `umoci` and `systemd-analyze`;
//! says so where they are missing.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{command:?}: {}\n{out}{err}",
        output.status
    );
    out.into_owned()
}

#[test]
fn a_package_has_units_manual_pages_completions_and_checksums() {
    for program in ["dpkg-deb", "dpkg", "sha256sum", "gzip"] {
        if Command::new(program).arg("--version").output().is_err() {
            return println!("not run: needs {program}");
        }
    }
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
    let _ = std::fs::remove_dir_all(&out);
    let mut build = Command::new("sh");
    build.arg(root().join("tools/package/build.sh"));
    build.arg(env!("CARGO_BIN_EXE_flowkeep")).arg(&out);
    // To be quick; another compression is another file, and nothing else.
    build.env("FLOWKEEP_PACKAGE_COMPRESSION", "none");
    let file = said(&mut build).trim().to_owned();

    let contents = said(Command::new("dpkg-deb").args(["--contents", &file]));
    for path in [
        "./usr/bin/flowkeep",
        "./usr/lib/systemd/system/flowkeep.service",
        "./usr/lib/systemd/system/flowkeep-node@.service",
        "./usr/lib/systemd/system/flowkeep-switch@.service",
        "./usr/lib/sysusers.d/flowkeep.conf",
        "./usr/share/man/man1/flowkeep.1.gz",
        "./usr/share/man/man1/flowkeep-flow-migrate.1.gz",
        "./usr/share/bash-completion/completions/flowkeep",
        "./usr/share/zsh/vendor-completions/_flowkeep",
        "./usr/share/fish/vendor_completions.d/flowkeep.fish",
        "./usr/share/doc/flowkeep/copyright",
        "./usr/share/doc/flowkeep/examples/demo.toml",
        "./etc/logrotate.d/flowkeep",
        "./usr/share/flowkeep/Cargo.lock",
        "./usr/share/flowkeep/crates/nf/Cargo.toml",
        "./usr/share/flowkeep/crates/testkit/src/lib.rs",
    ] {
        assert!(
            contents.lines().any(|line| line.ends_with(&format!(" {path}"))),
            "{path}:\n{contents}"
        );
    }
    assert!(
        contents.lines().all(|line| line.contains(" root/root ")),
        "{contents}"
    );

    let about = said(Command::new("dpkg-deb").args(["--field", &file]));
    assert!(
        about.contains(&format!("Version: {}\n", env!("CARGO_PKG_VERSION"))),
        "{about}"
    );
    said(
        Command::new("sha256sum")
            .args(["--check", "SHA256SUMS"])
            .current_dir(&out),
    );
    std::fs::remove_dir_all(&out).unwrap();
}

#[test]
fn units_start_what_there_is() {
    let folder = root().join("tools/package");
    for (unit, verb) in [
        ("flowkeep.service", "run"),
        ("flowkeep-node@.service", "node"),
        ("flowkeep-switch@.service", "switch"),
    ] {
        let text = std::fs::read_to_string(folder.join(unit)).unwrap();
        let of = |key: &str| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(key));
            values
                .next()
                .unwrap_or_else(|| panic!("{unit} has no {key}"))
                .to_owned()
        };
        assert!(of("ExecStart=/usr/bin/flowkeep ").starts_with(verb));
        assert_eq!(
            (of("Type="), of("User=")),
            ("notify".to_owned(), "flowkeep".to_owned())
        );
        assert_eq!(of("AmbientCapabilities="), of("CapabilityBoundingSet="));
        // The words are the program's own.
        let help = said(Command::new(env!("CARGO_BIN_EXE_flowkeep")).args([verb, "--help"]));
        let member = of("ExecStart=").contains("--member %i");
        assert_eq!(member, help.contains("--member <NAME>"), "{help}");
        assert!(
            help.contains("FLOWKEEP_SOCKET")
                && of("Environment=").starts_with("FLOWKEEP_SOCKET=/run/flowkeep/")
        );
    }
}

/// The settings that keep a service that was broken into from the rest of its machine.
const HARDENED: [&str; 20] = [
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectControlGroups=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_XDP",
    "RestrictNamespaces=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "MemoryDenyWriteExecute=yes",
    "SystemCallArchitectures=native",
    "UMask=0077",
    "Group=flowkeep",
    "RuntimeDirectoryMode=0750",
    "StateDirectoryMode=0750",
    "LogsDirectoryMode=0750",
    "CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_BPF CAP_IPC_LOCK CAP_SYS_NICE",
];

/// Each unit has all of them, once, and systemd takes the unit: it knows every line, and finds the
/// service no more exposed than the rights of live ports demand.
#[test]
fn units_are_hardened_and_systemd_takes_them() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("units");
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir_all(&out).unwrap();
    let mut files = Vec::new();
    for unit in [
        "flowkeep.service",
        "flowkeep-node@.service",
        "flowkeep-switch@.service",
    ] {
        let text = std::fs::read_to_string(root().join("tools/package").join(unit)).unwrap();
        for line in HARDENED {
            let (key, _) = line.split_once('=').unwrap();
            let set = text.lines().filter(|of| of.split('=').next() == Some(key));
            assert_eq!(set.collect::<Vec<_>>(), [line], "{unit}");
        }
        // The program is where it was built, and not where the package puts it.
        let own = text.replace("/usr/bin/flowkeep", env!("CARGO_BIN_EXE_flowkeep"));
        assert_ne!(own, text);
        files.push(out.join(unit));
        std::fs::write(out.join(unit), own).unwrap();
    }
    let analyze = |words: &[&str], file: &Path| {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(words).arg(file).output()
    };
    let [verify, security] = [
        &["verify", "--man=no"][..],
        &["security", "--offline=yes", "--threshold=50"],
    ];
    if analyze(&["--version"], &out).is_err() {
        return println!("not run: needs systemd-analyze");
    }
    for file in &files {
        for words in [verify, security] {
            let judged = analyze(words, file).unwrap();
            assert!(judged.status.success(), "{words:?} {file:?}: {judged:?}");
            // A line that it does not know is a warning.
            assert!(words == security || judged.stderr.is_empty(), "{judged:?}");
        }
    }
    // The check works: a wrong line is said, and a service with all rights is exposed.
    let wrong = out.join("wrong.service");
    let text = std::fs::read_to_string(&files[0]).unwrap();
    std::fs::write(&wrong, text.replace("ProtectHome=", "ProtectHouse=")).unwrap();
    let judged = analyze(verify, &wrong).unwrap();
    assert!(
        String::from_utf8_lossy(&judged.stderr).contains("ProtectHouse"),
        "{judged:?}"
    );
    let open = text
        .lines()
        .filter(|line| !HARDENED.contains(line) && !line.starts_with("User="));
    std::fs::write(&wrong, open.collect::<Vec<_>>().join("\n")).unwrap();
    assert!(!analyze(security, &wrong).unwrap().status.success());
    std::fs::remove_dir_all(&out).unwrap();
}

/// A program that needs no library, as C makes one; `None` without a compiler or a static library.
fn static_program(folder: &Path) -> Option<PathBuf> {
    std::fs::create_dir_all(folder).unwrap();
    let (source, program) = (folder.join("p.c"), folder.join("p"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let mut compile = Command::new("cc");
    compile.arg("-static").arg("-o").arg(&program).arg(source);
    compile
        .output()
        .is_ok_and(|of| of.status.success())
        .then_some(program)
}

#[test]
fn an_archive_and_an_image_have_the_program_and_are_equal_each_time() {
    for program in ["umoci", "tar", "xz", "dpkg", "readelf"] {
        if Command::new(program).arg("--version").output().is_err() {
            return println!("not run: needs {program}");
        }
    }
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static");
    let _ = std::fs::remove_dir_all(&out);
    let build = |program: &Path, folder: &str| {
        let mut build = Command::new("sh");
        build.arg(root().join("tools/package/static.sh"));
        build.arg(program).arg(out.join(folder));
        build
    };
    // A program that needs libraries, as tests build it, would not run with nothing but itself.
    let dynamic = Path::new(env!("CARGO_BIN_EXE_flowkeep"));
    let refused = build(dynamic, "dynamic").output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && why.contains("is no static program"),
        "{why}"
    );
    let Some(program) = static_program(&out) else {
        return println!("not run: needs cc with a static C library");
    };
    let make = |folder: &str| -> Vec<String> {
        let files = said(&mut build(&program, folder));
        files.lines().map(str::to_owned).collect()
    };
    let (first, second) = (make("first"), make("second"));
    assert_eq!(first.len(), 2, "{first:?}");
    for (one, other) in first.iter().zip(&second) {
        assert!(
            std::fs::read(one).unwrap() == std::fs::read(other).unwrap(),
            "{one} differs from {other}"
        );
    }
    let [archive, image] = &first[..] else { panic!() };
    let listed = said(Command::new("tar").args(["-tvf", archive]));
    assert!(listed.contains(" ./usr/bin/flowkeep\n"), "{listed}");
    assert!(
        listed.contains("examples/demo.toml") && listed.contains("LICENSE-MIT"),
        "{listed}"
    );
    let layout = out.join("layout");
    std::fs::create_dir_all(&layout).unwrap();
    said(Command::new("tar").args(["-xf", image, "-C"]).arg(&layout));
    let of = format!("{}:{}", layout.display(), env!("CARGO_PKG_VERSION"));
    let stat = said(Command::new("umoci").args(["stat", "--json", "--image", &of]));
    assert!(stat.contains("tools/package/static.sh"), "{stat}");
    let blobs = layout.join("blobs/sha256");
    let has_entrypoint = std::fs::read_dir(blobs).unwrap().flatten().any(|blob| {
        let bytes = std::fs::read(blob.path()).unwrap();
        bytes.len() < 65536
            && String::from_utf8_lossy(&bytes).contains("\"Entrypoint\":[\"/usr/bin/flowkeep\"]")
    });
    assert!(has_entrypoint, "the image starts something else");
}
