//! The commands that `cargo xtask ci` and `nightly` are made of, in the order in which they run.
//!
//! Each has a limit, some times its time on two busy processors from nothing built: the limit ends
//! a step that hangs, and is no measure of anything. A step that runs beside the tests may wait for
//! minutes. A [`Scale`] is the work that a night has time for.
//!
//! Not here: running them ([`super`]), and the checks of our own ([`crate::checks`]).

use super::Step;

/// How much of what could go on for ever a nightly run does.
#[derive(Debug)]
pub struct Scale {
    /// The command to type for it.
    pub words: &'static str,
    /// Cases of each property whose author has not chosen a number; the others have as many times
    /// theirs.
    pub cases: u32,
    /// Packets of the flood of SYNs.
    pub flood: u64,
    /// Whether all captures go through every shape of cluster, not some for each.
    pub every_capture: bool,
    pub soak_seconds: u32,
    /// Of full load in which nothing may be taken for failed.
    pub busy_seconds: u32,
    /// Of each fuzzer.
    pub fuzz_seconds: u32,
    /// Orders of two threads that miri tries.
    pub ring_seeds: u32,
    /// Which of the runtime's tests miri runs, as the test program wants it said.
    pub miri_runtime: &'static [&'static str],
    /// The minutes that miri may take for those, and the tests without it.
    pub miri_minutes_max: u32,
    pub tests_minutes_max: u32,
}

/// A night.
pub const NIGHT: Scale = Scale {
    words: "nightly",
    cases: 10_000,
    flood: 50_000_000,
    every_capture: true,
    soak_seconds: 3600,
    busy_seconds: 600,
    fuzz_seconds: 60,
    ring_seeds: 32,
    miri_runtime: &[
        "--skip",
        "fragments::tests",
        "--skip",
        "fragments::pieces",
        "--skip",
        "peer::",
        "--skip",
        "watch::bpf",
    ],
    miri_minutes_max: 240,
    tests_minutes_max: 300,
};

/// Everything that a night has, some of it each: half an hour on two processors that do nothing
/// else.
pub const SHORT: Scale = Scale {
    words: "nightly --short",
    cases: 512,
    flood: 5_000_000,
    every_capture: false,
    soak_seconds: 60,
    busy_seconds: 60,
    fuzz_seconds: 20,
    ring_seeds: 4,
    miri_runtime: &[
        "table::",
        "actor::",
        "group::",
        "tests::flows",
        "tests::ends",
        "tests::waits",
    ],
    miri_minutes_max: 60,
    tests_minutes_max: 90,
};

pub const FORMAT: Step = Step {
    name: "format",
    words: &["cargo", "fmt", "--all", "--check"],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 5,
    tells_progress: false,
    left_out: &[],
    environment: &[],
};

pub const CLIPPY: Step = Step {
    name: "clippy",
    words: &[
        "cargo",
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 60,
    tells_progress: false,
    left_out: &[],
    environment: &[],
};

pub const DOCS: Step = Step {
    name: "docs",
    words: &[
        "cargo",
        "doc",
        "--locked",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 40,
    tells_progress: false,
    left_out: &[],
    environment: &[("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")],
};

/// The fuzzers are a workspace of their own, which nothing else here builds: its lock file must go
/// with this repository's, and their shared code with this repository's interfaces, or the next
/// nightly run cannot build them.
pub const FUZZ_LOCK: Step = Step {
    name: "fuzz lock file and library",
    words: &[
        "cargo",
        "check",
        "--locked",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--lib",
        "--examples",
        "--target-dir",
        "target",
    ],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 40,
    tells_progress: false,
    left_out: &[],
    environment: &[],
};

/// Each crate can be published: its manifest names versions, and it has all its files. Nothing is
/// sent.
pub const CRATES: Step = Step {
    name: "crates",
    words: &[
        "cargo",
        "package",
        "--locked",
        "--workspace",
        "--exclude",
        "xtask",
        "--no-verify",
        "--offline",
        "--allow-dirty",
        "--quiet",
    ],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 20,
    tells_progress: false,
    left_out: &[],
    environment: &[],
};

/// The program without drivers of stores, and with each one alone: no other step finds a driver
/// that needs another, or code that is left unbound without it.
pub fn drivers() -> [Step; 4] {
    [
        ("no driver", ""),
        ("driver redb alone", "redb"),
        ("driver redis alone", "redis"),
        ("driver cassandra alone", "cassandra"),
    ]
    .map(|(name, features)| Step {
        name,
        more: vec!["--features".to_owned(), features.to_owned()],
        ..DRIVERS
    })
}

const DRIVERS: Step = Step {
    name: "drivers",
    words: &[
        "cargo",
        "check",
        "--locked",
        "-p",
        "flowkeep",
        "--no-default-features",
    ],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 40,
    tells_progress: false,
    left_out: &[],
    environment: &[],
};

/// Each crate is built from its files as published and those of the crates that it uses.
pub const CRATES_BUILT: Step = Step {
    name: "crates built",
    words: &[
        "cargo",
        "package",
        "--locked",
        "--workspace",
        "--exclude",
        "xtask",
        "--allow-dirty",
        "--quiet",
    ],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 60,
    tells_progress: false,
    left_out: &[],
    environment: &[],
};

/// The registry's own rules for published crates, too; nothing is sent. The registry is asked which
/// versions it has, and each crate was built in the step before.
pub const CRATES_PUBLISHED: Step = Step {
    name: "crates, as published",
    words: &[
        "cargo",
        "publish",
        "--dry-run",
        "--locked",
        "--workspace",
        "--exclude",
        "xtask",
        "--no-verify",
        "--allow-dirty",
        "--quiet",
    ],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 10,
    tells_progress: false,
    left_out: &[],
    environment: &[],
};

/// The README's first line, as it stands.
pub const DEMO: Step = Step {
    name: "demo",
    words: &["./x", "demo"],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 30,
    tells_progress: false,
    left_out: &[],
    environment: &[],
};

/// All pages as a book, by mdBook, which is built where it is not there.
pub const BOOK: Step = Step {
    name: "book",
    words: &["./x", "book"],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 30,
    tells_progress: false,
    left_out: &[],
    environment: &[],
};

/// The packages of `./x package` are installed, run and removed in bare chroots, and the pages are
/// typed there.
pub const PACKAGES: Step = Step {
    name: "packages",
    words: &["./x", "package", "--try"],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 120,
    tells_progress: false,
    left_out: &[],
    environment: &[],
};

/// Builds the tests' programs; it has both processors.
pub const TESTS_BUILT: Step = Step {
    name: "tests built",
    words: &["cargo", "test", "--locked", "--workspace", "--no-run"],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 45,
    tells_progress: false,
    left_out: &[],
    environment: &[],
};

/// Tests that calculate or compile for minutes and ask no clock but for processor time: parts of
/// their names.
const CALCULATIONS: [&str; 9] = [
    "seeds_that_found_something_find_nothing_more",
    "thousands_of_seeds_find_nothing",
    "every_checker_finds_the_bug_planted_for_it",
    "other_scenarios_do_not_find_them",
    "runs_come_to_where_groups_move",
    "macros_refuse_with_advice",
    "a_new_crate_passes_its_tests_and_runs_on_its_capture",
    "each_kind_passes_its_tests_and_runs",
    "what_the_guide_shows_builds_and_passes",
];

/// Every test but those that only calculate.
pub fn tests() -> Step {
    let skip = |name: &str| ["--skip".to_owned(), name.to_owned()];
    Step {
        more: CALCULATIONS.into_iter().flat_map(skip).collect(),
        ..TESTS
    }
}

/// The others.
pub fn calculations() -> Step {
    Step {
        name: "calculations",
        more: CALCULATIONS.map(str::to_owned).into(),
        tells_progress: false,
        ..TESTS
    }
}

pub const TESTS: Step = Step {
    name: "tests",
    words: &[
        "cargo",
        "test",
        "--locked",
        "--workspace",
        "--no-fail-fast",
        "--",
        "--show-output",
    ],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 75,
    tells_progress: true,
    left_out: &[],
    environment: &[],
};

/// The tests of every change, optimised, with assertions, and with many more cases of each
/// property. The soak has a step of its own.
pub fn many_cases(scale: &Scale) -> Step {
    let mut chosen = vec![
        ("PROPTEST_CASES", scale.cases.to_string()),
        // Inputs that a property is not about; by default a thousand, whatever the cases.
        ("PROPTEST_MAX_GLOBAL_REJECTS", (scale.cases * 20).to_string()),
        ("FLOWKEEP_FLOOD", scale.flood.to_string()),
    ];
    if scale.every_capture {
        chosen.push(("FLOWKEEP_EVERY_CAPTURE", "1".to_owned()));
        chosen.push(("FLOWKEEP_THREE_NODES", "1".to_owned()));
    }
    Step {
        name: "tests, many cases",
        words: &[
            "cargo",
            "test",
            "--locked",
            "--workspace",
            "--no-fail-fast",
            "--profile",
            "quick",
            "--",
            "--show-output",
            "--skip",
            "soak::",
        ],
        more: Vec::new(),
        chosen,
        minutes_max: scale.tests_minutes_max,
        tells_progress: true,
        left_out: &[],
        environment: QUICK_CHECKED,
    }
}

/// Optimised code that checks itself as it does in other tests.
const QUICK_CHECKED: &[(&str, &str)] = &[
    ("CARGO_PROFILE_QUICK_DEBUG_ASSERTIONS", "true"),
    ("CARGO_PROFILE_QUICK_OVERFLOW_CHECKS", "true"),
];

/// The chain on live ports for an hour, and twice ten minutes of full load: no session may end, and
/// no member be suspected. The other runs have each for a shorter time. Their output, memory by the
/// time for one, is in the step's log.
pub fn soak(scale: &Scale) -> Step {
    Step {
        name: "soak",
        words: &[
            "cargo",
            "test",
            "--locked",
            "-p",
            "flowkeep",
            "--profile",
            "quick",
            "--test",
            "live",
            "--test",
            "members",
            "--",
            "--show-output",
            "soak::",
            "a_busy_processor_is_no_failure",
            "the_usual_times_hold_under_full_load",
        ],
        more: Vec::new(),
        chosen: vec![
            ("FLOWKEEP_SOAK_SECONDS", scale.soak_seconds.to_string()),
            ("FLOWKEEP_BUSY_SECONDS", scale.busy_seconds.to_string()),
        ],
        // Either full load is tried again, three times at most, where the machine has paused.
        minutes_max: (scale.soak_seconds + 8 * scale.busy_seconds) / 60 + 30,
        tells_progress: false,
        left_out: &[],
        environment: QUICK_CHECKED,
    }
}

/// Seen by miri alone: it is some hundred times slower, so there are few cases. Memory alive at the
/// end of a test is leaked by design: a pool whose buffers are out leaves its memory to them.
const MIRI_ENVIRONMENT: &[(&str, &str)] = &[
    ("PROPTEST_CASES", "2"),
    // Of a panic that a test expects; under miri a minute each.
    ("RUST_BACKTRACE", "0"),
    ("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks"),
];

/// The code that is unsafe and works on plain memory; safe code takes miri hours and cannot fail
/// there. The rings of shared memory have plain memory in their tests.
pub fn miri(scale: &Scale) -> [Step; 4] {
    [
        Step {
            name: "miri",
            words: &[
                "cargo",
                "+nightly",
                "miri",
                "test",
                "--locked",
                "--no-fail-fast",
                "-p",
                "flowkeep-wire",
                "-p",
                "flowkeep-nf",
                "--lib",
                "--",
                "--show-output",
                "packet::",
                "memory::",
                "plain::",
                "cx::",
                "by_hand::",
            ],
            more: Vec::new(),
            chosen: Vec::new(),
            minutes_max: 60,
            tells_progress: false,
            left_out: &[
                "wire::{parse, rewrite, checksum, key, hostile, …}, nf's units and settings (no unsafe code)",
            ],
            environment: MIRI_ENVIRONMENT,
        },
        Step {
            name: "miri, runtime",
            words: &[
                "cargo",
                "+nightly",
                "miri",
                "test",
                "--locked",
                "--no-fail-fast",
                "-p",
                "flowkeep-runtime",
                "--lib",
                "--",
                "--show-output",
            ],
            more: scale.miri_runtime.iter().map(|word| (*word).to_owned()).collect(),
            chosen: Vec::new(),
            minutes_max: scale.miri_minutes_max,
            tells_progress: false,
            left_out: &[
                "runtime::{fragments, peer, watch::bpf} (no unsafe code); with --short all but tables, actors, groups, flows, ends, waits",
            ],
            environment: MIRI_ENVIRONMENT,
        },
        Step {
            name: "miri, adapters",
            words: &[
                "cargo",
                "+nightly",
                "miri",
                "test",
                "--locked",
                "--no-fail-fast",
                "-p",
                "flowkeep-adapters",
                "--lib",
                "--",
                "--show-output",
                "ring::",
                "--skip",
                "threads_",
            ],
            more: Vec::new(),
            chosen: Vec::new(),
            minutes_max: 60,
            tells_progress: false,
            left_out: &[
                "adapters::shm but its ring (mmap and ftruncate of shared files, which miri does not have)",
                "adapters::{afxdp, afpacket, interface, udp, ether, netlink} (sockets, which it does not have)",
                "adapters::{large, clock} (madvise; the time-stamp counter)",
            ],
            environment: MIRI_ENVIRONMENT,
        },
        miri_rings(scale),
    ]
}

/// The rings, between workers and in shared memory, with two threads, once for each of many seeds:
/// a seed decides when threads take turns and, within what the memory model allows, which of the
/// values written to an atomic a read sees. So this finds a missing barrier even where the
/// processor would not.
fn miri_rings(scale: &Scale) -> Step {
    Step {
        name: "miri, rings",
        words: &[
            "cargo",
            "+nightly",
            "miri",
            "test",
            "--locked",
            "-p",
            "flowkeep-adapters",
            "--lib",
            "--",
            "--show-output",
            "ring::tests::threads_",
        ],
        more: Vec::new(),
        chosen: vec![(
            "MIRIFLAGS",
            format!(
                "-Zmiri-disable-isolation -Zmiri-many-seeds=0..{} -Zmiri-preemption-rate=0.05",
                scale.ring_seeds
            ),
        )],
        minutes_max: 60,
        tells_progress: false,
        left_out: &[],
        environment: &[("RUST_BACKTRACE", "0")],
    }
}

const FUZZ_TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

/// The flags that `cargo fuzz` passes to the compiler; so it need not be installed for this.
const FUZZ_FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cdebug-assertions -Ccodegen-units=16 \
     -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Builds all fuzzers, so that each one's time is its own.
pub const FUZZ_BUILD: Step = Step {
    name: "fuzz build",
    words: &[
        "cargo",
        "+nightly",
        "build",
        "--locked",
        "--release",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target",
        FUZZ_TARGET,
        "--bins",
        "--examples",
    ],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 40,
    tells_progress: false,
    left_out: &[],
    environment: &[("RUSTFLAGS", FUZZ_FLAGS)],
};

/// The corpus the fuzzers begin with. Built as they are, so that everything is built once.
pub const SEEDS: Step = Step {
    name: "fuzz seeds",
    words: &[
        "cargo",
        "+nightly",
        "run",
        "--locked",
        "--release",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target",
        FUZZ_TARGET,
        "--example",
        "seeds",
    ],
    more: Vec::new(),
    chosen: Vec::new(),
    minutes_max: 30,
    tells_progress: false,
    left_out: &[],
    environment: &[("RUSTFLAGS", FUZZ_FLAGS)],
};

/// A fuzzer; it adds new inputs to the corpus, and inputs that break something to `fuzz/artifacts`.
macro_rules! fuzz {
    ($name:literal $(, $word:literal)*) => {
        Step {
            name: concat!("fuzz ", $name),
            words: &[
                "cargo",
                "+nightly",
                "run",
                "--locked",
                "--release",
                "--manifest-path",
                "fuzz/Cargo.toml",
                "--target",
                FUZZ_TARGET,
                "--bin",
                $name,
                "--",
                concat!("fuzz/corpus/", $name),
                concat!("-artifact_prefix=fuzz/artifacts/", $name, "-"),
                "-timeout=60",
                "-print_final_stats=1",
                $($word,)*
            ],
            more: Vec::new(),
            chosen: Vec::new(),
            minutes_max: 0,
            tells_progress: false,
            left_out: &[],
            environment: &[("RUSTFLAGS", FUZZ_FLAGS)],
        }
    };
}

/// All fuzzers, each for so many seconds.
pub fn fuzzers(scale: &Scale) -> [Step; 10] {
    let mut all = [
        fuzz!("parse"),
        fuzz!("rewrite"),
        fuzz!("messages"),
        fuzz!("channel"),
        fuzz!("peer"),
        // As long as the workers' messages in twenty moves.
        fuzz!("words", "-max_len=65536"),
        fuzz!("objects", "-max_len=16384"),
        fuzz!("capture"),
        fuzz!("config", "-dict=fuzz/corpus/config.dict"),
        fuzz!("rules"),
    ];
    for fuzzer in &mut all {
        fuzzer
            .more
            .push(format!("-max_total_time={}", scale.fuzz_seconds));
        // The fuzzer looks at the time after it has read its corpus, and after each input.
        fuzzer.minutes_max = scale.fuzz_seconds / 60 + 20;
    }
    all
}
