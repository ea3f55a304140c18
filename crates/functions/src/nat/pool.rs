//! The external addresses that a configuration names, checked.
//!
//! Refused is a pool that no host outside reaches, that has an address twice, or that has addresses
//! of inside hosts: a packet to one of those would be taken for an answer.

use super::alloc::format;
use super::alloc::vec::Vec;
use super::config::{Config, POOL_MAX};
use nf::{ConfigError, Prefix};

/// First and last address of what a packet from outside cannot be sent to (RFC 6890, 5771, 1112).
const NO_HOSTS: &[(u32, u32, &str)] = &[
    (0, 0x00ff_ffff, "addresses of this network"),
    (0x7f00_0000, 0x7fff_ffff, "loopback addresses"),
    (0xe000_0000, 0xefff_ffff, "multicast groups"),
    (0xf000_0000, 0xffff_ffff, "reserved addresses"),
];

/// First and last address of each stretch of the pool, sorted.
pub(super) fn stretches(config: &Config) -> Result<Vec<(u32, u32)>, ConfigError> {
    let example = "write the external addresses, like pool = [\"203.0.113.0/28\"]";
    if config.pool.is_empty() {
        return Err(ConfigError::new("pool", "there is no external address", example));
    }
    let mut stretches = Vec::new();
    let mut total = 0u64;
    for (at, prefix) in config.pool.iter().enumerate() {
        if !prefix.is_v4() {
            let problem = format!("{prefix} is not IPv4");
            return Err(ConfigError::new(format!("pool[{at}]"), problem, example));
        }
        let first = prefix.addr().low_u32();
        let last = first | (u64::from(u32::MAX) >> prefix.length()) as u32;
        let no_hosts = NO_HOSTS
            .iter()
            .find(|(first_of, last_of, _)| first <= *last_of && last >= *first_of);
        if let Some((_, _, what)) = no_hosts {
            let problem = format!("{prefix} has {what}, by which no host outside reaches it");
            return Err(ConfigError::new(format!("pool[{at}]"), problem, example));
        }
        // Of two prefixes that overlap, one has the other's first address.
        let is_both = |inside: &&Prefix| {
            inside.length() > 0 && (inside.contains(prefix.addr()) || prefix.contains(inside.addr()))
        };
        if let Some(inside) = config.inside.iter().find(is_both) {
            return Err(ConfigError::new(
                format!("pool[{at}]"),
                format!("{prefix} overlaps {inside} of `inside`, whose addresses are translated"),
                "write addresses that no inside host has, or take them out of `inside`",
            ));
        }
        total += u64::from(last - first) + 1;
        stretches.push((first, last, at));
    }
    if total > u64::from(POOL_MAX) {
        return Err(ConfigError::new(
            "pool",
            format!("{total} addresses are more than one instance keeps account of"),
            format!("use at most {POOL_MAX}"),
        ));
    }
    stretches.sort_unstable();
    if let Some(pair) = stretches.windows(2).find(|pair| pair[0].1 >= pair[1].0) {
        let (one, other) = (pair[0].2.min(pair[1].2), pair[0].2.max(pair[1].2));
        return Err(ConfigError::new(
            format!("pool[{other}]"),
            format!("it overlaps pool[{one}]"),
            "name each external address once",
        ));
    }
    Ok(stretches.iter().map(|s| (s.0, s.1)).collect())
}
