//! What is derived from the key files.
//!
//! What a key file is says [`adapters::keys`]. [`Secrets::next`] reads the keys again while the member runs.
//!
//! ```text
//!   keys[0], keys[1] … ──► Protection: sends with the first, accepts all
//!   seed, or keys[0]   ──► seed of all hashes
//!   seed, configuration ─► words on what members must agree on, a part each ([`PARTS`])
//!   name of the cluster ─► network that frames name
//! ```
//!
//! Invariant: nothing that is derived for one purpose says anything of a key, or of what is derived for another.
//!
//! Not here: tags (`protocols::channel::auth`).

use super::Written;
use crate::config::{Config, Problem, cluster};
use crate::run::privileges::Account;
use adapters::keys::{self, KeyError};
use protocols::channel::{AGREED, Key, Keys, Protection};
use std::path::{Path, PathBuf};
use wire::HashSeed;

/// What the members of a cluster share and nobody else has.
#[derive(Clone)]
pub struct Secrets {
    /// Of all hashes.
    pub seed: HashSeed,
    /// Of the links between hosts.
    pub protection: Protection,
    /// Stand for what members must agree on, each for one of [`PARTS`].
    pub agreed: [u64; AGREED],
    /// The network that frames between hosts name: 24 bits.
    pub network: u32,
    /// The end of the name of the place where processes of one host meet.
    place: u64,
    /// The file that the seed is from.
    seed_file: String,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({:?})", self.protection)
    }
}

/// Whom a derived secret is for, after BLAKE3's rule for such words: fixed, and used for nothing else.
const SEED: &str = "flowkeep 2026-11-22 cluster: seed of all hashes";
const WORD: &str = "flowkeep 2026-11-22 cluster: what members must agree on";
const PLACE: &str = "flowkeep 2026-11-22 cluster: where processes of one host meet";
const NETWORK: &str = "flowkeep 2026-11-22 cluster: network";

/// The parts of what members must agree on.
pub const PARTS: [&str; AGREED] = [
    "the version of flowkeep",
    "[[chain]] or [function]",
    "settings outside of them ([cluster], [[member]], [[port]], sizes, …)",
];

/// What is different, in words; nothing if nothing is. The seed is in all parts.
pub fn difference(differs: [bool; AGREED]) -> Option<String> {
    let parts: Vec<&str> = PARTS
        .into_iter()
        .zip(differs)
        .filter_map(|(part, differs)| differs.then_some(part))
        .collect();
    match parts.len() {
        0 => None,
        AGREED => Some("all of it, or the file that the seed of the hashes is derived from".to_owned()),
        _ => Some(parts.join(", and ")),
    }
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
        let agreed = agreed(written.tree);
        let word = |bytes: [u8; 32]| u64::from_le_bytes(*bytes.first_chunk().expect("32 bytes"));
        let network = word(derive(NETWORK, &[cluster.name().as_bytes()]));
        Ok(Secrets {
            seed: HashSeed([part(0), part(8), part(16)]),
            protection,
            agreed: agreed.map(|part| word(derive(WORD, &[&secret, part.as_bytes()]))),
            network: network as u32 >> 8,
            place: word(derive(PLACE, &[&secret, cluster.name().as_bytes()])),
            seed_file: seed_file.clone(),
        })
    }

    /// Where processes of one host meet that are this user's. A directory that all may write to has room for others' names: so its name there is
    /// known to those only that have the key file. Root's are in a directory of root's.
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

    /// The keys of a configuration, to be taken while this member runs: who starts with it must have the same seed.
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
                "who starts with it would have another seed for the hashes than who runs: that is from `{}`",
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

/// The number and the bytes of a key file.
fn read_key(
    file: &str,
    at: &str,
    config: &Config,
    written: &Written<'_>,
) -> Result<(u8, [u8; 32]), Box<Problem>> {
    let also = |problem: String| written.problem(at, &problem, "");
    let account = Account::of(config).map_err(also)?;
    keys::secret(Path::new(file), account.map(|account| account.user)).map_err(|error| {
        let remedy = match &error {
            KeyError::Open { .. } => format!("chmod 600 {file}"),
            KeyError::Foreign { user, .. } => format!("chown {user} {file}"),
            KeyError::Unreadable { source, .. } if source.kind() != std::io::ErrorKind::NotFound => {
                "see to it that you may read it".to_owned()
            }
            _ => format!("make a key: echo \"1 $(openssl rand -hex 32)\" > {file}; chmod 600 {file}"),
        };
        written.problem(at, &error.to_string(), &remedy).into()
    })
}

/// What members must agree on, as texts, in [`PARTS`]: the configuration without what is each one's own business.
fn agreed(tree: &toml::Table) -> [String; AGREED] {
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
    let chains = ["chain", "function"].map(|table| tree.remove(table));
    [
        env!("CARGO_PKG_VERSION").to_owned(),
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
        // Each one's own business, and keys that are added or changed: the same seed, the same word.
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
        // What all must have alike.
        for (apart, differs) in [
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
            let said = difference(std::array::from_fn(|part| {
                other.agreed[part] != base.agreed[part]
            }));
            assert!(said.unwrap().starts_with(differs), "{apart}");
            assert_eq!(other.network, base.network);
        }
        assert_eq!(difference([false; AGREED]), None);
        let other = read(&text(&keys(&[&two]), "", "\"flow_monitor\"")).unwrap();
        assert_ne!(other.seed.0, base.seed.0);
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
