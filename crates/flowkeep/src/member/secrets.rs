//! The secrets that are derived from the key files.
//!
//! The format of a key file is in [`adapters::keys`]. [`Secrets::next`] reads the keys again while
//! the member runs.
//!
//! ```text
//!   keys[0], keys[1] … ──► Protection: sends with the first, accepts all; the channel derives the keys of frames
//!   seed, or keys[0]   ──► seed of all hashes
//!   seed, configuration ─► words on the settings to agree on, a part each ([`PARTS`])
//!   name of the cluster ─► network that frames name
//! ```
//!
//! Invariant: a value that is derived for one purpose tells nothing of a key, or of a value for
//! another purpose.
//!
//! Not here: tags and keys of frames (`protocols::channel::auth` and `seal`).

use super::Written;
use crate::config::{Config, Function, Problem, cluster};
use crate::run::privileges::Account;
use adapters::keys::{self, KeyError};
use nf::WorkerInfo;
use nf::objects::WorkerObjects;
use nf::variables::Variables;
use protocols::channel::{AGREED, IN_HEAD, Key, Keys, Protection};
use runtime::stage::Schema;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::HashSeed;

/// The secrets that the members of a cluster share and no other process has.
#[derive(Clone)]
pub struct Secrets {
    /// Of all hashes.
    pub seed: HashSeed,
    /// Of the links between hosts.
    pub protection: Protection,
    /// Words on the settings that members must agree on: each of the first for one of [`PARTS`],
    /// each behind them for one of the functions.
    pub agreed: [u64; AGREED],
    /// The functions of all chains, in that order.
    pub functions: Arc<[String]>,
    /// The network that frames between hosts name: 24 bits.
    pub network: u32,
    /// The end of the name of the place where processes of one host meet.
    place: u64,
    /// The file that the seed is from.
    seed_file: String,
    /// Derives words on other configurations.
    pub agreement: Agreement,
}

/// Derives words on the settings that members must have alike.
#[derive(Clone)]
pub struct Agreement([u8; 32]);

impl std::fmt::Debug for Agreement {
    // The secret is never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Agreement")
    }
}

impl Agreement {
    /// An agreement by any secret, for tests.
    #[cfg(test)]
    pub fn of(secret: [u8; 32]) -> Self {
        Agreement(secret)
    }

    /// The words on a configuration, setting by setting, and its functions.
    pub fn words(&self, tree: &toml::Table, functions: &BTreeMap<String, Function>) -> [u64; AGREED] {
        let word = |part: &str| word_of(derive(WORD, &[&self.0, part.as_bytes()]));
        let parts = agreed(tree).map(|part| word(&part));
        let mut all = parts.into_iter().chain(words_of(functions, word));
        std::array::from_fn(|_| all.next().unwrap_or(0))
    }
}

/// Stands for chains and functions: two members with the same digest have the same ones.
pub fn digest(words: &[u64; AGREED]) -> String {
    format!("{:016x}", number(words))
}

/// The digest as a number, by which copies of flows name the configuration that they go by.
pub fn number(words: &[u64; AGREED]) -> u64 {
    words[1]
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({:?})", self.protection)
    }
}

/// The purpose of a derived secret, after BLAKE3's rule for such words: fixed, and used for nothing
/// else.
const SEED: &str = "flowkeep 2026-11-22 cluster: seed of all hashes";
const WORD: &str = "flowkeep 2026-11-22 cluster: what members must agree on";
const PLACE: &str = "flowkeep 2026-11-22 cluster: where processes of one host meet";
const NETWORK: &str = "flowkeep 2026-11-22 cluster: network";

/// The parts of the settings that members must agree on, before the functions.
pub const PARTS: [&str; IN_HEAD] = [
    "the version of flowkeep",
    "[[chain]] or [function]",
    "settings outside of them ([cluster], [[member]], [[port]], sizes, …)",
];

/// The number of the records between workers, which each change of them raises: unreleased builds
/// of one version may differ in it.
const RECORDS: u32 = 6;

/// Bits of a function's word: the versions of its flow state and its group state, their layouts,
/// and the objects that it shares.
const BITS: [(u32, u32, &str); 5] = [
    (0, 6, "the version of its flow state"),
    (6, 6, "the version of its group state"),
    (12, 18, "the layout of its flow state"),
    (30, 17, "the layout of its group state"),
    (47, 17, "the kinds of its shared objects"),
];

/// The differences, in words; `None` without any. The seed is in all parts. `functions` are this
/// member's, in their order.
pub fn difference(differs: &[u64; AGREED], functions: &[String]) -> Option<String> {
    let (parts, words) = differs.split_at(IN_HEAD);
    if parts.iter().all(|part| *part != 0) {
        return Some("all of it, or the file that the seed of the hashes is derived from".to_owned());
    }
    let named = PARTS.into_iter().zip(parts);
    let mut said: Vec<String> = named
        .filter(|(_, differs)| **differs != 0)
        .map(|(part, _)| part.to_owned())
        .collect();
    // With other functions, words are on others.
    let has_same_functions = parts.get(1) == Some(&0);
    for (place, word) in words
        .iter()
        .enumerate()
        .filter(|(_, word)| **word != 0 && has_same_functions)
    {
        let rest = functions.get(place..).unwrap_or_default();
        let name = match rest {
            [] => continue,
            [name, _, ..] if place + 1 == words.len() => format!("{name}` or one behind it"),
            [name, ..] => format!("{name}`"),
        };
        let of = BITS
            .iter()
            .filter(|(first, count, _)| word >> first & ((1 << count) - 1) != 0)
            .map(|(.., what)| *what);
        let what: Vec<&str> = of.collect();
        said.push(format!("function `{name}: {}", what.join(", ")));
    }
    (!said.is_empty()).then(|| said.join(", and "))
}

/// A word on each function: two that are alike have states that can move between them. There are
/// places for 16; the last is on all further functions.
fn words_of(functions: &BTreeMap<String, Function>, word: impl Fn(&str) -> u64) -> Vec<u64> {
    let of = |(name, function): (&String, &Function)| {
        let schemas = function.factory.schemas();
        let layout = |of: &str, schema: &Schema| {
            word(&format!(
                "{name} {} {of} {} {} {:016x}",
                function.kind, schema.size, schema.committed, schema.layout
            ))
        };
        let [flow, group] = &schemas;
        // Numbers of versions follow each other, so their last bits tell them apart.
        let parts = [
            u64::from(flow.version),
            u64::from(group.version),
            layout("flow", flow),
            layout("group", group),
            kinds_of(name, function).map_or(0, |kinds| word(&kinds)),
        ];
        let placed = BITS.iter().zip(parts);
        placed.fold(0, |word, ((first, count, _), part)| {
            word | (part & ((1 << count) - 1)) << first
        })
    };
    let mut words: Vec<u64> = functions.iter().map(of).collect();
    let places = AGREED - IN_HEAD;
    if words.len() > places {
        let rest = words.split_off(places - 1);
        // Rotated, so that no two of them undo each other.
        words.push(rest.iter().fold(0, |sum: u64, word| sum.rotate_left(1) ^ word));
    }
    words
}

/// The kinds of objects that a function shares, in their order, as a text; none if it shares none.
fn kinds_of(name: &str, function: &Function) -> Option<String> {
    let worker = WorkerInfo {
        runtime: 0,
        runtimes: 1,
        // Kinds do not depend on it, and tables are made to its size.
        flows_max: 1024,
        seed: 0,
    };
    let (mut variables, mut objects) = (Variables::local(), WorkerObjects::default());
    // The problems of settings were said when they were read.
    let _ = function
        .factory
        .instantiate(&worker, &mut variables, &mut objects.of(name));
    let kinds = objects.kinds().iter();
    let kinds: String = kinds
        .map(|kind| {
            let single = if kind.is_single { " single" } else { "" };
            format!(
                "{:?} {:?} {:x?}{single}; ",
                kind.function, kind.name, kind.layouts
            )
        })
        .collect();
    (!kinds.is_empty()).then_some(kinds)
}

impl Secrets {
    /// Reads the key files that the configuration names.
    pub fn read(config: &Config, written: &Written<'_>) -> Result<Self, Box<Problem>> {
        let protection = Self::read_keys(config, written)?;
        let cluster = &config.cluster;
        let (at, seed_file) = match (&cluster.seed, cluster.keys.first()) {
            (Some(seed), _) => ("cluster.seed", seed),
            (None, Some(key)) => ("cluster.keys[0]", key),
            (None, None) => {
                let remedy = "name a file with 64 hexadecimal digits: seed = \"edge.seed\"";
                return Err(written
                    .problem("cluster", "there is no seed for the hashes", remedy)
                    .into());
            }
        };
        let (_, secret) = read_key(seed_file, at, config, written)?;
        let bytes = derive(SEED, &[&secret, cluster.name().as_bytes()]);
        let part = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("32 bytes"));
        let word = word_of;
        let network = word(derive(NETWORK, &[cluster.name().as_bytes()]));
        Ok(Secrets {
            seed: HashSeed([part(0), part(8), part(16)]),
            protection,
            agreed: Agreement(secret).words(written.tree, &config.functions),
            agreement: Agreement(secret),
            functions: config.functions.keys().cloned().collect(),
            network: network as u32 >> 8,
            place: word(derive(PLACE, &[&secret, cluster.name().as_bytes()])),
            seed_file: seed_file.clone(),
        })
    }

    /// Where processes of one host meet that are this user's. A directory that all may write to has
    /// room for others' names: so its name there is known only to processes that have the key file.
    /// Root's are in a directory of root's.
    pub fn meeting(&self, user: u32, cluster: &str) -> PathBuf {
        let base = match user {
            0 => "/run",
            _ => "/dev/shm",
        };
        PathBuf::from(format!("{base}/flowkeep-{user}-{cluster}-{:016x}", self.place))
    }

    /// Reads the keys of the links.
    pub fn read_keys(config: &Config, written: &Written<'_>) -> Result<Protection, Box<Problem>> {
        if config.cluster.protection == cluster::Protection::DamageOnly {
            return Ok(Protection::DamageOnly);
        }
        let mut keys: Option<Keys> = None;
        for (index, file) in config.cluster.keys.iter().enumerate() {
            let at = format!("cluster.keys[{index}]");
            let (number, secret) = read_key(file, &at, config, written)?;
            let key = Key::new(number, secret).expect("a key file has no number 0");
            let is_new = match &mut keys {
                None => {
                    keys = Some(Keys::new(key));
                    true
                }
                Some(keys) => keys.accept(key),
            };
            if !is_new {
                let problem = format!("`{file}` has the number {number}, as one before it has");
                let remedy = "give it another number: the first word in it, 1 to 255";
                return Err(written.problem(&at, &problem, remedy).into());
            }
        }
        keys.map(Protection::Keyed).ok_or_else(|| {
            let remedy = "below [cluster] write keys = [\"edge.key\"]";
            written.problem("cluster", "members have no key", remedy).into()
        })
    }

    /// The keys of a configuration, for this member to take while it runs. A member that starts
    /// with that configuration must have the same seed.
    pub fn next(&self, config: &Config, written: &Written<'_>) -> Result<Protection, Box<Problem>> {
        let cluster = &config.cluster;
        let is_keyed = matches!(self.protection, Protection::Keyed(_));
        if is_keyed != (cluster.protection == cluster::Protection::Keys) {
            let remedy = "stop all members, and start them with it";
            return Err(written
                .problem("cluster.protection", "cannot change while members run", remedy)
                .into());
        }
        if cluster.seed.as_ref().or(cluster.keys.first()) != Some(&self.seed_file) {
            let at = if cluster.seed.is_some() {
                "cluster.seed"
            } else {
                "cluster.keys[0]"
            };
            let problem = format!(
                "a member that starts with it would have another seed for the hashes than those that run: theirs is from `{}`",
                self.seed_file
            );
            let remedy = format!(
                "write seed = \"{}\" below [cluster], and keep that file",
                self.seed_file
            );
            return Err(written.problem(at, &problem, &remedy).into());
        }
        Self::read_keys(config, written)
    }
}

/// Bytes derived from others for one purpose.
fn derive(purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(purpose);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// The beginning of derived bytes, as a number.
fn word_of(bytes: [u8; 32]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("32 bytes"))
}

/// The number and the bytes of a key file.
fn read_key(
    file: &str,
    at: &str,
    config: &Config,
    written: &Written<'_>,
) -> Result<(u8, [u8; 32]), Box<Problem>> {
    let also = |problem: String| written.problem(at, &problem, "");
    let account = Account::of(config).map_err(also)?;
    secret(file, account.map(|account| account.user)).map_err(|error| {
        let remedy = remedy(file, &error);
        written.problem(at, &error.to_string(), &remedy).into()
    })
}

/// The key in a file. A folder is none, whatever rights there are to it.
fn secret(file: &str, also: Option<u32>) -> Result<(u8, [u8; 32]), KeyError> {
    let path = Path::new(file);
    match path.is_dir() {
        true => Err(KeyError::Unreadable {
            file: path.to_owned(),
            source: ErrorKind::IsADirectory.into(),
        }),
        false => keys::secret(path, also),
    }
}

/// The remedy where a key file cannot be used.
fn remedy(file: &str, error: &KeyError) -> String {
    match error {
        KeyError::Open { .. } => format!("chmod 600 {file}"),
        KeyError::Foreign { user, .. } => format!("chown {user} {file}"),
        KeyError::Unreadable { source, .. } => match source.kind() {
            ErrorKind::NotFound => make_key(file),
            ErrorKind::IsADirectory => "it is a folder; name the key's file".to_owned(),
            ErrorKind::NotADirectory => {
                let mut folders = Path::new(file).ancestors().skip(1);
                let one = folders.find(|of| of.exists()).unwrap_or(Path::new(file));
                format!("`{}` is no folder: name another file", one.display())
            }
            ErrorKind::PermissionDenied => "see to it that you may read it".to_owned(),
            _ => "name another file".to_owned(),
        },
        _ => make_key(file),
    }
}

/// The command that makes a key, and the folder of its file if that is not there.
fn make_key(file: &str) -> String {
    let folder = Path::new(file)
        .parent()
        .filter(|of| !of.as_os_str().is_empty() && !of.exists());
    let folder = folder.map_or(String::new(), |of| format!("mkdir -p {}; ", of.display()));
    format!("make a key: {folder}echo \"1 $(openssl rand -hex 32)\" > {file}; chmod 600 {file}")
}

/// Key files that cannot be used here: the setting, and the problem.
pub fn unusable(config: &Config, user: Option<u32>) -> Vec<(String, String)> {
    let keys = config.cluster.keys.iter().enumerate();
    let keys = keys.map(|(index, file)| (format!("cluster.keys[{index}]"), file));
    let seed = config
        .cluster
        .seed
        .iter()
        .map(|file| ("cluster.seed".to_owned(), file));
    let wrong = |(at, file): (String, &String)| {
        let error = secret(file, user).err()?;
        Some((at, format!("{error}; {}", remedy(file, &error))))
    };
    keys.chain(seed).filter_map(wrong).collect()
}

/// A configuration without the settings that are each member's own business.
pub fn shared(tree: &toml::Table) -> toml::Table {
    let mut tree = tree.clone();
    for own in ["control", "metrics", "log", "threads", "idle", "user"] {
        tree.remove(own);
    }
    if let Some(toml::Value::Table(cluster)) = tree.get_mut("cluster") {
        for own in ["keys", "seed", "directory"] {
            cluster.remove(own);
        }
    }
    if let Some(toml::Value::Array(members)) = tree.get_mut("member") {
        for member in members.iter_mut().filter_map(toml::Value::as_table_mut) {
            for own in ["socket", "metrics", "events"] {
                member.remove(own);
            }
        }
    }
    tree
}

/// The settings that members must agree on, as texts, in [`PARTS`].
fn agreed(tree: &toml::Table) -> [String; IN_HEAD] {
    let mut tree = shared(tree);
    let chains = ["chain", "function"].map(|table| tree.remove(table));
    [
        format!("{} {RECORDS}", env!("CARGO_PKG_VERSION")),
        format!("{chains:?}"),
        format!("{tree:?}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("flowkeep-secrets-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn key(&self, name: &str, content: &str) -> String {
            let path = self.0.join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            path.display().to_string()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn text(cluster: &str, member: &str, functions: &str) -> String {
        format!(
            "[cluster]\nname = \"edge\"\n{cluster}\n[[member]]\nname = \"front\"\nswitches = 1\n{member}\n\
             [[member]]\nname = \"left\"\nruntimes = 1\n[[chain]]\nname = \"all\"\nfunctions = [{functions}]\n"
        )
    }

    fn read(text: &str) -> Result<Secrets, Box<Problem>> {
        with(text, Secrets::read)
    }

    fn with<T>(text: &str, read: impl FnOnce(&Config, &Written<'_>) -> T) -> T {
        let registry = crate::functions();
        let config = crate::config::parse("f.toml", text, &registry).unwrap();
        let tree: toml::Table = text.parse().unwrap();
        let written = Written {
            path: Path::new("f.toml"),
            text,
            tree: &tree,
            registry: &registry,
        };
        read(&config, &written)
    }

    #[test]
    fn members_agree_on_what_must_be_agreed_on() {
        let folder = Folder::new("agree");
        let (one, two) = (
            folder.key("one", &format!("1 {}", "01".repeat(32))),
            folder.key("two", &format!("2 {}", "02".repeat(32))),
        );
        let keys = |names: &[&String]| format!("keys = {names:?}");
        let base = read(&text(&keys(&[&one]), "", "\"flow_monitor\"")).unwrap();
        // Each one's own business, and keys that are added or changed: the same seed, the same
        // word.
        for same in [
            text(&keys(&[&one, &two]), "socket = \"a.sock\"", "\"flow_monitor\""),
            text(
                &format!("{}\nseed = {one:?}", keys(&[&two])),
                "events = \"e\"",
                "\"flow_monitor\"",
            ),
            format!("threads = 1\n{}", text(&keys(&[&one]), "", "\"flow_monitor\"")),
        ] {
            let other = read(&same).unwrap();
            assert_eq!((other.seed.0, other.agreed), (base.seed.0, base.agreed), "{same}");
        }
        // The settings that all members must have alike.
        for (apart, part) in [
            (
                text(&keys(&[&one]), "", "\"firewall\", \"flow_monitor\""),
                "[[chain]] or [function]",
            ),
            (
                text(&keys(&[&one]), "host = \"here\"", "\"flow_monitor\""),
                "settings outside",
            ),
            (
                format!("flows_max = 5\n{}", text(&keys(&[&one]), "", "\"flow_monitor\"")),
                "settings outside",
            ),
            (
                text(&keys(&[&two]), "", "\"flow_monitor\""),
                "all of it, or the file",
            ),
        ] {
            let other = read(&apart).unwrap();
            let differs = std::array::from_fn(|part| other.agreed[part] ^ base.agreed[part]);
            let said = difference(&differs, &base.functions);
            assert!(said.unwrap().starts_with(part), "{apart}");
            assert_eq!(other.network, base.network);
        }
        assert_eq!(difference(&[0; AGREED], &[]), None);
        let other = read(&text(&keys(&[&two]), "", "\"flow_monitor\"")).unwrap();
        assert_ne!(other.seed.0, base.seed.0);
    }

    /// A function as two builds have it.
    fn build<F: nf::FlowState, G: nf::FlowState>() -> BTreeMap<String, Function> {
        struct Kept<F, G>(std::marker::PhantomData<(F, G)>);

        #[nf::network_function]
        impl<F: nf::FlowState, G: nf::FlowState> nf::NetworkFunction for Kept<F, G> {
            const NAME: &'static str = "kept";
            const AFFINITY: nf::Affinity = nf::Affinity::Flow;
            type Config = nf::NoConfig;
            type Flow = F;
            type Group = G;

            fn new(_: &Arc<nf::NoConfig>, _: &nf::WorkerInfo) -> Result<Self, nf::ConfigError> {
                Ok(Kept(std::marker::PhantomData))
            }

            fn process(&self, _: &mut nf::Packet, _: &mut F, _: &mut nf::Cx<Self>) -> nf::Verdict {
                nf::Verdict::Forward
            }
        }

        let kept = runtime::stage::Configured::<Kept<F, G>>::new("b", nf::NoConfig::default());
        let mut all = crate::config::parse(
            "f.toml",
            "[[port]]\nname = \"a\"\ninput = \"pcap:a\"\n[[chain]]\nname = \"all\"\nfunctions = [\"firewall\", \"nat\"]\n\
             [function.nat]\npool = [\"192.0.2.0/28\"]\n",
            &crate::functions(),
        )
        .unwrap()
        .functions;
        all.insert(
            "b".into(),
            Function {
                kind: "kept",
                factory: Box::new(kept),
            },
        );
        all
    }

    #[derive(nf::FlowState, Default, Clone, Copy, Debug)]
    #[repr(C)]
    struct One {
        packets: u32,
    }

    #[derive(nf::FlowState, Default, Clone, Copy, Debug)]
    #[flow_state(version = 2)]
    #[repr(C)]
    struct Two {
        packets: u32,
    }

    #[derive(nf::FlowState, Default, Clone, Copy, Debug)]
    #[repr(C)]
    struct Three {
        bytes: u32,
    }

    struct Shares<const KINDS: usize>;

    #[derive(nf::Plain, Default, Clone, Copy, Debug)]
    #[repr(C)]
    struct Count {
        packets: u64,
    }

    impl nf::objects::SharedObject for Count {
        type Call = u64;
        type Answer = u64;
        fn apply(&mut self, by: &u64) -> u64 {
            self.packets += by;
            self.packets
        }
        fn read(&self, _: &u64) -> u64 {
            self.packets
        }
    }

    #[nf::network_function]
    impl<const KINDS: usize> nf::NetworkFunction for Shares<KINDS> {
        const NAME: &'static str = "shares";
        type Config = nf::NoConfig;
        type Flow = One;

        fn with_objects(
            _: &Arc<nf::NoConfig>,
            _: &WorkerInfo,
            _: &mut Variables,
            objects: &mut nf::objects::Objects<'_>,
        ) -> Result<Self, nf::ConfigError> {
            for name in ["hosts", "nets"].iter().take(KINDS) {
                objects.open::<Count>(name)?;
            }
            Ok(Shares)
        }

        fn process(&self, _: &mut nf::Packet, _: &mut One, _: &mut nf::Cx<Self>) -> nf::Verdict {
            nf::Verdict::Forward
        }
    }

    fn sharing<const KINDS: usize>() -> BTreeMap<String, Function> {
        let shares = runtime::stage::Configured::<Shares<KINDS>>::new("b", nf::NoConfig::default());
        let factory = Box::new(shares);
        let kind = "shares";
        BTreeMap::from([("b".to_owned(), Function { kind, factory })])
    }

    #[test]
    fn builds_that_share_other_objects_do_not_meet() {
        let word = |text: &str| word_of(derive(WORD, &[text.as_bytes()]));
        let differ = |one: &BTreeMap<String, Function>, other: &BTreeMap<String, Function>| {
            let mut differs = [0; AGREED];
            differs[IN_HEAD] = words_of(one, word)[0] ^ words_of(other, word)[0];
            difference(&differs, &["b".to_owned()])
        };
        let said = Some("function `b`: the kinds of its shared objects");
        assert_eq!(differ(&sharing::<1>(), &sharing::<2>()).as_deref(), said);
        assert_eq!(differ(&sharing::<0>(), &sharing::<1>()).as_deref(), said);
        assert_eq!(differ(&sharing::<2>(), &sharing::<2>()), None);
    }

    #[test]
    fn builds_with_other_states_do_not_meet_and_say_which_function_it_is() {
        let word = |text: &str| word_of(derive(WORD, &[text.as_bytes()]));
        let differ = |other: BTreeMap<String, Function>| {
            let (ours, theirs) = (words_of(&build::<One, One>(), word), words_of(&other, word));
            let mut differs = [0; AGREED];
            for (place, (one, other)) in ours.iter().zip(&theirs).enumerate() {
                differs[IN_HEAD + place] = one ^ other;
            }
            let names: Vec<String> = other.keys().cloned().collect();
            difference(&differs, &names)
        };
        assert_eq!(differ(build::<One, One>()), None);
        for (other, said) in [
            (build::<Two, One>(), "function `b`: the version of its flow state"),
            (
                build::<One, Two>(),
                "function `b`: the version of its group state",
            ),
            (
                build::<Three, One>(),
                "function `b`: the layout of its flow state",
            ),
            (
                build::<One, Three>(),
                "function `b`: the layout of its group state",
            ),
            (
                build::<Three, Two>(),
                "function `b`: the version of its group state, the layout of its flow state",
            ),
        ] {
            assert_eq!(differ(other).as_deref(), Some(said));
        }
        // Beyond as many as there are words, the last is on all of the rest.
        let many = |last: u32| {
            let mut all = BTreeMap::new();
            for number in 0..20 {
                let built = match number == last {
                    true => build::<Three, One>(),
                    false => build::<One, One>(),
                };
                let function = built.into_iter().find(|(name, _)| name == "b").unwrap().1;
                all.insert(format!("b{number:02}"), function);
            }
            words_of(&all, word)
        };
        let (ours, theirs) = (many(20), many(18));
        assert_eq!(
            (ours.len(), ours[..15] == theirs[..15], ours[15] == theirs[15]),
            (16, true, false)
        );
    }

    #[test]
    fn keys_change_while_it_runs_and_the_seed_does_not() {
        let folder = Folder::new("next");
        let (one, two) = (
            folder.key("one", &format!("1 {}", "01".repeat(32))),
            folder.key("two", &format!("2 {}", "02".repeat(32))),
        );
        let running = read(&text(&format!("keys = [{one:?}]"), "", "\"flow_monitor\"")).unwrap();
        let next = |cluster: &str| {
            with(&text(cluster, "", "\"flow_monitor\""), |config, written| {
                running
                    .next(config, written)
                    .map(|protection| format!("{protection:?}"))
            })
        };
        assert!(next(&format!("keys = [{one:?}, {two:?}]")).is_ok());
        assert!(next(&format!("seed = {one:?}\nkeys = [{two:?}]")).is_ok());
        let refused = next(&format!("keys = [{two:?}, {one:?}]")).unwrap_err();
        assert!(
            refused.problem.contains("another seed") && refused.remedy.contains("seed = "),
            "{refused}"
        );
        let refused = next(&format!("protection = \"damage-only\"\nseed = {one:?}")).unwrap_err();
        assert!(
            refused.problem.contains("cannot change while members run"),
            "{refused}"
        );
    }

    #[test]
    fn where_members_meet_is_known_to_those_with_the_key_only() {
        let folder = Folder::new("meet");
        let place = |digits: &str| {
            let key = folder.key(digits, &format!("1 {}", digits.repeat(32)));
            read(&text(&format!("keys = [{key:?}]"), "", "\"flow_monitor\"")).unwrap()
        };
        let (one, two) = (place("01").meeting(7, "edge"), place("02").meeting(7, "edge"));
        assert_eq!(one, place("01").meeting(7, "edge"));
        assert_ne!(one, two);
        let name = one.display().to_string();
        assert!(name.starts_with("/dev/shm/flowkeep-7-edge-"), "{name}");
        assert!(place("01").meeting(0, "edge").starts_with("/run"));
    }

    #[test]
    fn what_is_no_key_is_refused_with_its_place() {
        let folder = Folder::new("wrong");
        for (content, problem) in [
            ("", "there is no key"),
            (&*"01".repeat(32), "there are not two words"),
            ("0 01", "its number is none from 1 to 255"),
            ("7 zz", "not 64 digits long"),
            (&format!("7 {}", "zz".repeat(32)), "no hexadecimal digit"),
            (&format!("7 {}", "0".repeat(64)), "all zeros"),
        ] {
            let key = folder.key("key", content);
            let refused = read(&text(&format!("keys = [{key:?}]"), "", "\"flow_monitor\"")).unwrap_err();
            assert!(refused.problem.contains(problem), "{content:?}: {refused}");
            assert_eq!((refused.line, refused.setting.as_str()), (3, "cluster.keys[0]"));
        }
        let key = folder.key("open", &format!("1 {}", "01".repeat(32)));
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
        let refused = read(&text(&format!("keys = [{key:?}]"), "", "\"flow_monitor\"")).unwrap_err();
        assert!(
            refused.problem.contains("others than its owner") && refused.remedy.starts_with("chmod 600"),
            "{refused}"
        );
        // Twice the same.
        let key = folder.key("key", &format!("1 {}", "01".repeat(32)));
        let refused = read(&text(
            &format!("keys = [{key:?}, {key:?}]"),
            "",
            "\"flow_monitor\"",
        ))
        .unwrap_err();
        assert!(refused.problem.contains("has the number 1"), "{refused}");
    }
}
