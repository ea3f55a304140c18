//! `flowkeep new NAME`: a crate with a network function, a test, a configuration and a capture,
//! ready to run.
//!
//! # Theory of operation The files lie in `templates/new`, the files of a kind of function in a
//! folder of their own, with placeholders that the name fills: `packet-counter` gives the crate
//! `packet-counter` (`{{name}}`), the function `packet_counter` (`{{function}}`) and the type
//! `PacketCounter` (`{{Type}}`).
//!
//! Flowkeep's own crates are taken by path where their sources are, so that the new crate goes with
//! the sources that the tool was made from, their lock file included; otherwise by version.
//!
//! ```text
//!   the checkout in which the tool was built, if it is still there
//!   share/flowkeep beside the tool's bin: a package has them (tools/package/sources.sh)
//!   neither: by version, from a registry
//! ```
//!
//! # Invariants Either the whole folder is there afterwards or no part of it: a folder that was
//! there before is refused and not touched.
//!
//! Not here: the command line; it calls [`create`] and prints the result.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The kinds of a new function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Kind {
    /// Counts packets and bytes of each flow
    #[default]
    Counter,
    /// Lets flows to some ports through
    Gate,
    /// Drops packets of a host beyond a rate
    Limiter,
    /// Writes a record of each flow
    Monitor,
}

/// The parts that differ between the kinds.
struct Template {
    function: &'static str,
    tests: &'static str,
    /// The function's table in `chain.toml`.
    table: &'static str,
    /// The function's work: it …
    what: &'static str,
}

impl Kind {
    fn template(self) -> Template {
        match self {
            Kind::Counter => Template {
                function: include_str!("../templates/new/counter/lib.rs.in"),
                tests: include_str!("../templates/new/counter/packets.rs.in"),
                table: "",
                what: "it counts the packets and bytes of each flow, and lets them pass",
            },
            Kind::Gate => Template {
                function: include_str!("../templates/new/gate/lib.rs.in"),
                tests: include_str!("../templates/new/gate/packets.rs.in"),
                table: "[function.{{function}}]\nports = [53, 80]\n\n",
                what: "it lets flows to some ports through, and drops all others",
            },
            Kind::Limiter => Template {
                function: include_str!("../templates/new/limiter/lib.rs.in"),
                tests: include_str!("../templates/new/limiter/packets.rs.in"),
                table: "[function.{{function}}]\nper_second = 100\nburst = 20\n\n",
                what: "it drops a host's packets beyond so many a second",
            },
            Kind::Monitor => Template {
                function: include_str!("../templates/new/monitor/lib.rs.in"),
                tests: include_str!("../templates/new/monitor/packets.rs.in"),
                table: "",
                what: "it writes a record of each flow, and lets packets pass",
            },
        }
    }

    /// All files of a new crate: where they go, and their template.
    fn texts(self) -> impl Iterator<Item = (&'static str, String)> {
        let Template {
            function,
            tests,
            table,
            what,
        } = self.template();
        let own = [("src/lib.rs", function), ("tests/packets.rs", tests)];
        let filled = move |text: &str| text.replace("{{table}}", table).replace("{{what}}", what);
        TEXTS
            .into_iter()
            .chain(own)
            .map(move |(file, text)| (file, filled(text)))
    }
}

/// The files that all kinds have: where they go, and their template.
const TEXTS: [(&str, &str); 6] = [
    (".cargo/config.toml", include_str!("../templates/new/config.toml")),
    ("Cargo.toml", include_str!("../templates/new/Cargo.toml.in")),
    (".gitignore", include_str!("../templates/new/gitignore.in")),
    ("README.md", include_str!("../templates/new/README.md")),
    ("chain.toml", include_str!("../templates/new/chain.toml")),
    ("src/main.rs", include_str!("../templates/new/main.rs.in")),
];

/// A web page, a name lookup and two pings (`tests/new.rs` makes it).
const CAPTURE: &[u8] = include_bytes!("../templates/new/example.pcap");

/// Where the tool's sources were when it was built.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A crate that was made. Its `Display` says what to type next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its folder.
    pub folder: PathBuf,
    /// The function's name in configurations.
    pub function: String,
    /// The function's type.
    pub type_name: String,
    /// Whether Flowkeep's crates are to come from a registry, since their sources are not here.
    pub is_by_version: bool,
}

impl fmt::Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "made {}: the function `{}`, type {}",
            self.folder.display(),
            self.function,
            self.type_name
        )?;
        writeln!(f)?;
        writeln!(f, "  cd {}", quoted(&self.folder))?;
        writeln!(
            f,
            "  cargo test                      runs it on packets in tests/packets.rs"
        )?;
        writeln!(f, "  cargo flowkeep run chain.toml   runs it on example.pcap")?;
        writeln!(f)?;
        write!(f, "The function is in src/lib.rs.")?;
        if self.is_by_version {
            write!(
                f,
                "\nFlowkeep's sources are not here, so its crates come from a registry. Where that has none, write in Cargo.toml\n\
                 where a checkout has them: nf = {{ package = \"flowkeep-nf\", path = \"…/crates/nf\" }}, and so on."
            )?;
        }
        Ok(())
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Why there is no new crate.
#[derive(Debug)]
pub enum NewError {
    /// The name cannot be one of a crate and a function.
    Name {
        /// As it was given.
        name: String,
        /// Its problem.
        problem: String,
        /// A name that would do.
        instead: String,
    },
    /// There is something of this name already.
    Exists {
        /// Where.
        folder: PathBuf,
    },
    /// The folder in which the new one should be is none.
    NoParent {
        /// Which.
        directory: PathBuf,
    },
    /// A file or folder could not be written.
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for NewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NewError::Name {
                name,
                problem,
                instead,
            } => {
                write!(
                    f,
                    "`{name}` cannot be the name: {problem}; write for instance `flowkeep new {instead}`"
                )
            }
            NewError::Exists { folder } => write!(
                f,
                "{} is there already; choose another name, or move it out of the way first",
                folder.display()
            ),
            NewError::NoParent { directory } => {
                write!(
                    f,
                    "{} is no folder; make it first: mkdir -p {}",
                    directory.display(),
                    quoted(directory)
                )
            }
            NewError::Write { path, error } => write!(f, "{} could not be written: {error}", path.display()),
        }
    }
}

impl std::error::Error for NewError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NewError::Write { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Makes a crate called `name`, with a function of this kind, in the folder `directory`, which must
/// not be there yet.
pub fn create(name: &str, kind: Kind, directory: &Path) -> Result<Created, NewError> {
    let names = Names::new(name)?;
    let folder = directory.to_owned();
    // The parent of a plain name is the empty path, which stands for here.
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        return Err(NewError::NoParent {
            directory: parent.to_owned(),
        });
    }
    match fs::create_dir(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(NewError::Exists { folder });
        }
        Err(error) => return Err(NewError::Write { path: folder, error }),
    }
    let sources = sources_of(std::env::current_exe().ok().as_deref());
    if let Err(error) = fill(&folder, &names, kind, sources.as_deref()) {
        // The folder was made a moment ago, by this call.
        let _ = fs::remove_dir_all(&folder);
        return Err(error);
    }
    Ok(Created {
        folder,
        function: names.function,
        type_name: names.type_name,
        is_by_version: sources.is_none(),
    })
}

/// Where the sources are that go with this program: where it was built, or where it was installed
/// with them.
fn sources_of(program: Option<&Path>) -> Option<PathBuf> {
    let installed = program.and_then(|program| Some(program.parent()?.parent()?.join("share/flowkeep")));
    let places = [Some(PathBuf::from(SOURCES)), installed].into_iter().flatten();
    first_with_sources(places)
}

fn first_with_sources(places: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let mut there = places.filter(|place| place.join("crates/nf/Cargo.toml").is_file());
    there.find_map(|place| place.canonicalize().ok())
}

fn fill(folder: &Path, names: &Names, kind: Kind, sources: Option<&Path>) -> Result<(), NewError> {
    for inner in [".cargo", "src", "tests"] {
        let path = folder.join(inner);
        fs::create_dir(&path).map_err(|error| NewError::Write { path, error })?;
    }
    let write = |file: &str, bytes: &[u8]| {
        let path = folder.join(file);
        fs::write(&path, bytes).map_err(|error| NewError::Write { path, error })
    };
    for (file, template) in kind.texts() {
        write(file, render(&template, names, sources).as_bytes())?;
    }
    write("example.pcap", CAPTURE)?;
    // The versions that Flowkeep itself is tested with; cargo takes out the unused ones.
    if let Some(lock) = sources.and_then(|sources| fs::read(sources.join("Cargo.lock")).ok()) {
        write("Cargo.lock", &lock)?;
    }
    Ok(())
}

fn render(template: &str, names: &Names, sources: Option<&Path>) -> String {
    let dependency = |key: &str, package: &str, folder: &str, more: &str| {
        let renamed = if key == package {
            String::new()
        } else {
            format!("package = \"{package}\", ")
        };
        match sources {
            Some(sources) => {
                let path = sources.join("crates").join(folder).display().to_string();
                // Rust's escapes of printable text are TOML's.
                format!("{{ {renamed}path = {path:?}{more} }}")
            }
            None => format!("{{ {renamed}version = \"{}\"{more} }}", env!("CARGO_PKG_VERSION")),
        }
    };
    template
        .replace("{{name}}", &names.name)
        .replace("{{function}}", &names.function)
        .replace("{{Type}}", &names.type_name)
        .replace(
            "{{flowkeep}}",
            &dependency("flowkeep", "flowkeep", "flowkeep", ", optional = true"),
        )
        .replace("{{nf}}", &dependency("nf", "flowkeep-nf", "nf", ""))
        .replace(
            "{{testkit}}",
            &dependency("flowkeep-testkit", "flowkeep-testkit", "testkit", ""),
        )
}

/// The three forms of a name.
#[derive(Debug, PartialEq, Eq)]
struct Names {
    name: String,
    function: String,
    type_name: String,
}

/// Crates that the new one uses or that the language has, and words that no crate can be called.
const TAKEN: [&str; 64] = [
    "flowkeep",
    "flowkeep_nf",
    "flowkeep_testkit",
    "nf",
    "alloc",
    "core",
    "std",
    "test",
    "proc_macro",
    // Of the crate that is made.
    "main",
    "schemars",
    "serde",
    "tests",
    "abstract",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "struct",
    "super",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// Types that the templates themselves name.
const TYPES: [&str; 28] = [
    "Admission",
    "Affinity",
    "Arc",
    "ConfigError",
    "Counts",
    "Cx",
    "Departure",
    "Deserialize",
    "Dropped",
    "Duration",
    "Err",
    "FlowState",
    "Forwarded",
    "Host",
    "NetworkFunction",
    "NoConfig",
    "Ok",
    "Packet",
    "Rate",
    "Record",
    "Self",
    "Side",
    "Step",
    "Time",
    "TokenBucket",
    "Vec",
    "Verdict",
    "WorkerInfo",
];

/// The longest name: it stands in metrics and messages.
const NAME_MAX: usize = 40;

impl Names {
    fn new(name: &str) -> Result<Self, NewError> {
        let refuse = |problem: &str, instead: String| {
            Err(NewError::Name {
                name: name.to_owned(),
                problem: problem.to_owned(),
                instead,
            })
        };
        let mended = mended(name);
        // A proposed name is not refused, too.
        let proposed = match name == mended {
            true => mended.clone(),
            false => match Names::new(&mended) {
                Err(NewError::Name { instead, .. }) => instead,
                _ => mended.clone(),
            },
        };
        if name.contains(['/', '\\']) {
            return refuse("it is a path; say where with --directory", proposed);
        }
        if name != mended {
            return refuse(
                "a name has lower case letters, digits, `-` and `_`, and begins with a letter",
                proposed,
            );
        }
        if name.len() > NAME_MAX {
            let short = mended[..NAME_MAX].trim_end_matches(['-', '_']).to_owned();
            return refuse(&format!("it has more than {NAME_MAX} letters"), short);
        }
        let function = name.replace('-', "_");
        if TAKEN.contains(&function.as_str()) {
            return refuse("Rust or Flowkeep use this name", format!("my-{name}"));
        }
        if crate::functions().entry(&function).is_some() {
            return refuse("a function that comes with Flowkeep has it", format!("my-{name}"));
        }
        let type_name = camel(name);
        if TYPES.contains(&type_name.as_str()) {
            let problem = format!("its type would be called `{type_name}`, which the contract has already");
            return refuse(&problem, format!("my-{name}"));
        }
        Ok(Names {
            name: name.to_owned(),
            function,
            type_name,
        })
    }
}

/// `packet-counter` gives `PacketCounter`.
fn camel(name: &str) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    };
    name.split(['-', '_'])
        .filter(|word| !word.is_empty())
        .map(capital)
        .collect()
}

/// The nearest name that is allowed; a good name comes back as it was.
fn mended(name: &str) -> String {
    // `MyNf` and `my nf` are both `my-nf`.
    let name = name
        .trim_end_matches(['/', '\\'])
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or_default();
    let mut mended = String::new();
    let mut after_small = false;
    for letter in name.chars() {
        if letter.is_ascii_alphanumeric() {
            if letter.is_ascii_uppercase() && after_small {
                mended.push('-');
            }
            mended.push(letter.to_ascii_lowercase());
        } else if !mended.is_empty() && !mended.ends_with(['-', '_']) {
            mended.push(if letter == '_' { '_' } else { '-' });
        }
        after_small = letter.is_ascii_lowercase() || letter.is_ascii_digit();
    }
    let begins = mended
        .find(|c: char| c.is_ascii_lowercase())
        .unwrap_or(mended.len());
    let mended = mended[begins..].trim_end_matches(['-', '_']);
    if mended.is_empty() {
        "my-function".to_owned()
    } else {
        mended.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn sources_are_found_beside_an_installed_program() {
        let prefix = std::env::temp_dir().join(format!("flowkeep-installed-{}", std::process::id()));
        let share = prefix.join("share/flowkeep");
        let none = first_with_sources([share.clone()].into_iter());
        assert_eq!(none, None);
        fs::create_dir_all(share.join("crates/nf")).unwrap();
        fs::write(share.join("crates/nf/Cargo.toml"), "").unwrap();
        let checkout = prefix.join("no/such/checkout");
        let found = first_with_sources([checkout, share.clone()].into_iter());
        assert_eq!(found, share.canonicalize().ok());
        fs::remove_dir_all(&prefix).unwrap();
        // This test's own program was built in a checkout, which goes before.
        let own = sources_of(Some(Path::new("/usr/bin/flowkeep"))).unwrap();
        assert_eq!(Some(own), Path::new(SOURCES).canonicalize().ok());
    }

    #[test]
    fn a_name_has_three_forms() {
        let names = Names::new("packet-counter2").unwrap();
        assert_eq!(names.function, "packet_counter2");
        assert_eq!(names.type_name, "PacketCounter2");
        assert_eq!(Names::new("my_nf").unwrap().type_name, "MyNf");
        assert_eq!(Names::new("a").unwrap().type_name, "A");
    }

    #[test]
    fn a_bad_name_is_refused_with_a_good_one() {
        let instead = |name: &str| match Names::new(name) {
            Err(NewError::Name { instead, .. }) => {
                assert!(
                    Names::new(&instead).is_ok(),
                    "`{name}` gives `{instead}`, which is refused too"
                );
                instead
            }
            other => panic!("`{name}` gives {other:?}"),
        };
        assert_eq!(instead(""), "my-function");
        assert_eq!(instead("--"), "my-function");
        assert_eq!(instead("MyNf"), "my-nf");
        assert_eq!(instead("my nf"), "my-nf");
        assert_eq!(instead("my.nf/"), "my-nf");
        assert_eq!(instead("../here/Counter"), "my-counter");
        assert_eq!(instead("3com"), "com");
        assert_eq!(instead("größe"), "gr-e");
        assert_eq!(instead("fn"), "my-fn");
        assert_eq!(instead("nf"), "my-nf");
        assert_eq!(instead("load-balancer"), "my-load-balancer");
        assert_eq!(instead("packet"), "my-packet");
        assert_eq!(instead("a--b"), "a-b");
        assert_eq!(instead("x-"), "x");
        assert_eq!(instead(&"ab".repeat(30)).len(), NAME_MAX);
        assert_eq!(
            instead(&format!("{}-{}", "a".repeat(39), "b".repeat(39))).len(),
            39
        );
    }

    #[test]
    fn nothing_is_left_to_fill_in() {
        let names = Names::new("packet-counter").unwrap();
        for sources in [None, Some(Path::new("/somewhere/a \"quoted\" place"))] {
            for kind in Kind::value_variants() {
                for (file, template) in kind.texts() {
                    let text = render(&template, &names, sources);
                    assert!(
                        !text.contains("{{") && !text.contains("}}"),
                        "{kind:?}: {file}:\n{text}"
                    );
                }
            }
            let (_, manifest) = TEXTS.into_iter().find(|(file, _)| *file == "Cargo.toml").unwrap();
            let manifest: toml::Table = render(manifest, &names, sources).parse().unwrap();
            let nf = &manifest["dependencies"]["nf"];
            assert_eq!(nf["package"].as_str(), Some("flowkeep-nf"));
            match sources {
                Some(sources) => assert_eq!(nf["path"].as_str(), sources.join("crates/nf").to_str()),
                None => assert_eq!(nf["version"].as_str(), Some(env!("CARGO_PKG_VERSION"))),
            }
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let error = create("My Nf", Kind::Counter, Path::new(".")).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("write for instance `flowkeep new my-nf`"),
            "{error}"
        );
        let error = create("my-nf", Kind::Counter, Path::new("/no/such folder/my-nf")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/no/such folder is no folder; make it first: mkdir -p '/no/such folder'"
        );
    }
}
