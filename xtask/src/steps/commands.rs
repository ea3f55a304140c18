//! The commands that `cargo xtask ci` and `nightly` are made of, in the order in which they run.
//!
//! Not here: running them ([`super`]), and the checks of our own ([`crate::checks`]).

use super::Step;

pub const FORMAT: Step = Step {
    name: "format",
    words: &["cargo", "fmt", "--all", "--check"],
    more: Vec::new(),
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
    environment: &[("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")],
};

/// The fuzzers are a workspace of their own, which nothing else here builds: its lock file must be the one that goes with this
/// repository's, or the next nightly run cannot build them.
pub const FUZZ_LOCK: Step = Step {
    name: "fuzz lock file",
    words: &[
        "cargo",
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--manifest-path",
        "fuzz/Cargo.toml",
    ],
    more: Vec::new(),
    environment: &[],
};

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
    environment: &[],
};

/// The tests again, optimised, with ten thousand cases of each property instead of some hundreds.
pub const MANY_CASES: Step = Step {
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
    ],
    more: Vec::new(),
    environment: &[
        ("PROPTEST_CASES", "10000"),
        // All captures through every shape of cluster; other runs take some per shape.
        ("FLOWKEEP_EVERY_CAPTURE", "1"),
        ("CARGO_PROFILE_QUICK_DEBUG_ASSERTIONS", "true"),
        // Packets of the flood of SYNs; it is five million in every other run.
        ("FLOWKEEP_FLOOD", "50000000"),
    ],
};

/// Says how long the soak takes, in seconds; what whoever runs this has set counts more than what the step says.
pub const SOAK_SECONDS: &str = "FLOWKEEP_SOAK_SECONDS";

/// The chain on live ports for an hour; the other runs have it for 20 seconds. What it printed, memory by the time, is in its log.
pub const SOAK: Step = Step {
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
        "--",
        "--show-output",
        "soak::",
    ],
    more: Vec::new(),
    environment: &[(SOAK_SECONDS, "3600")],
};

/// The crates whose unsafe code works on plain memory. Miri is some hundred times slower: few cases. What is alive at the
/// end of a test is leaked by design: a pool whose buffers are out leaves its memory to them.
pub const MIRI: Step = Step {
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
        "-p",
        "flowkeep-runtime",
        "--lib",
        "--",
        "--show-output",
    ],
    more: Vec::new(),
    environment: &[
        ("PROPTEST_CASES", "2"),
        // Of a panic that a test expects; under miri a minute each.
        ("RUST_BACKTRACE", "0"),
        ("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks"),
    ],
};

/// The ring between workers with two threads, once for each of many seeds: a seed decides when threads take turns and, within
/// what the memory model allows, which of the values written to an atomic a read sees. So this finds a missing barrier even
/// where the processor would not.
pub const MIRI_RING: Step = Step {
    name: "miri, ring",
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
    environment: &[
        ("RUST_BACKTRACE", "0"),
        (
            "MIRIFLAGS",
            "-Zmiri-disable-isolation -Zmiri-many-seeds=0..32 -Zmiri-preemption-rate=0.05",
        ),
    ],
};

const FUZZ_TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

/// What `cargo fuzz` passes to the compiler; so nobody need install it for this.
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
    environment: &[("RUSTFLAGS", FUZZ_FLAGS)],
};

/// A fuzzer; what it finds to be new it adds to the corpus, what breaks something to `fuzz/artifacts`.
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
                "-timeout=20",
                "-print_final_stats=1",
                $($word,)*
            ],
            more: Vec::new(),
            environment: &[("RUSTFLAGS", FUZZ_FLAGS)],
        }
    };
}

/// All fuzzers, each for so many seconds.
pub fn fuzzers(seconds: u32) -> [Step; 9] {
    let mut all = [
        fuzz!("parse"),
        fuzz!("rewrite"),
        fuzz!("messages"),
        fuzz!("channel"),
        fuzz!("peer"),
        // As long as what workers say in twenty moves.
        fuzz!("words", "-max_len=65536"),
        fuzz!("capture"),
        fuzz!("config", "-dict=fuzz/corpus/config.dict"),
        fuzz!("rules"),
    ];
    for fuzzer in &mut all {
        fuzzer.more.push(format!("-max_total_time={seconds}"));
    }
    all
}
