//! What is derived from the key files.
//!
//! A key file has 64 hexadecimal digits. The number by which frames name a key is derived from it, so nobody has to agree on numbers; two keys
//! with one number are refused. [`Secrets::read_keys`] reads the keys again while the member runs.
//!
//! ```text
//!   keys[0], keys[1] … ──► Protection: sends with the first, accepts all
//!   seed, or keys[0]   ──► seed of all hashes
//!   seed, configuration ─► word
//! ```
//!
//! Invariant: nothing that is derived for one purpose says anything of a key, or of what is derived for another.
//!
//! Not here: tags (`protocols::channel::auth`).

use super::Written;
use crate::config::{Config, Problem, cluster};
use protocols::channel::{Key, Keys, Protection};
use std::os::unix::fs::MetadataExt;
use wire::HashSeed;

/// What the members of a cluster share and nobody else has.
#[derive(Clone)]
pub struct Secrets {
    /// Of all hashes.
    pub seed: HashSeed,
    /// Of the links between hosts.
    pub protection: Protection,
    /// Stands for what members must agree on.
    pub word: u64,
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
const NUMBER: &str = "flowkeep 2026-11-22 cluster: number of a key";

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
        let secret = read_key(seed_file, at, written)?;
        let bytes = derive(SEED, &[&secret, cluster.name().as_bytes()]);
        let part = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("32 bytes"));
        let agreed = agreed(written.tree);
        let word = derive(WORD, &[&secret, agreed.as_bytes()]);
        Ok(Secrets {
            seed: HashSeed([part(0), part(8), part(16)]),
            protection,
            word: u64::from_le_bytes(*word.first_chunk().expect("32 bytes")),
            seed_file: seed_file.clone(),
        })
    }

    /// Reads the keys of the links.
    pub fn read_keys(config: &Config, written: &Written<'_>) -> Result<Protection, Box<Problem>> {
        if config.cluster.protection == cluster::Protection::DamageOnly {
            return Ok(Protection::DamageOnly);
        }
        let mut keys: Option<Keys> = None;
        for (index, file) in config.cluster.keys.iter().enumerate() {
            let at = format!("cluster.keys[{index}]");
            let secret = read_key(file, &at, written)?;
            let number = 1 + derive(NUMBER, &[&secret])[0] % 255;
            let key = Key::new(number, secret).expect("not 0");
            let is_new = match &mut keys {
                None => {
                    keys = Some(Keys::new(key));
                    true
                }
                Some(keys) => keys.accept(key),
            };
            if !is_new {
                let remedy = "make another key: openssl rand -hex 32";
                let problem = format!("frames could not tell `{file}` from a key before it");
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

/// The 32 bytes of a key file.
fn read_key(file: &str, at: &str, written: &Written<'_>) -> Result<[u8; 32], Box<Problem>> {
    let refuse = |problem: String, remedy: &str| Err(written.problem(at, &problem, remedy).into());
    let make = format!("make a key: openssl rand -hex 32 > {file}; chmod 600 {file}");
    let metadata = std::fs::metadata(file);
    let text = match metadata.and_then(|metadata| Ok((metadata, std::fs::read_to_string(file)?))) {
        Ok((metadata, _)) if metadata.mode() & 0o007 != 0 => {
            return refuse(
                format!("everybody may read `{file}`, or write it"),
                &format!("chmod 600 {file}"),
            );
        }
        Ok((_, text)) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return refuse(format!("there is no file `{file}`"), &make);
        }
        Err(error) => {
            return refuse(
                format!("`{file}` cannot be read: {error}"),
                "see to it that you may read it",
            );
        }
    };
    let digits = text.trim().as_bytes();
    let mut secret = [0; 32];
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    for (byte, pair) in secret.iter_mut().zip(digits.chunks(2)) {
        match pair
            .iter()
            .map(|digit| nibble(*digit))
            .collect::<Option<Vec<u32>>>()
            .as_deref()
        {
            Some([high, low]) => *byte = (high << 4 | low) as u8,
            _ => {
                return refuse(
                    format!("`{file}` is no key: there is something in it but hexadecimal digits"),
                    &make,
                );
            }
        }
    }
    if digits.len() != 64 {
        return refuse(
            format!("`{file}` is no key: it has {} digits, not 64", digits.len()),
            &make,
        );
    }
    if secret == [0; 32] {
        return refuse(format!("`{file}` is no key: it is all zeros"), &make);
    }
    Ok(secret)
}

/// What members must agree on, as text: the configuration without what is each one's own business.
fn agreed(tree: &toml::Table) -> String {
    let mut tree = tree.clone();
    for own in ["control", "metrics", "log", "threads", "idle"] {
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
    format!("{} {tree:?}", env!("CARGO_PKG_VERSION"))
}
