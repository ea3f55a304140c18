//! Counts packets and bytes by IP protocol or by inside host, in variables (FlexState V: the
//! counter function).
//!
//! # Theory of operation
//!
//! Each runtime counts for itself, in two maps of counters: `packets_by_protocol` and
//! `bytes_by_protocol`, or `packets_by_inside_host` and `bytes_by_inside_host`. With a store
//! (`[store]`) they outlast the process, and the whole function's count is the sum over all
//! runtimes and members, those that have ended too. A packet counts where it is processed, so
//! nothing moves with a flow.
//!
//! ```text
//!   packet ─► key: protocol, or address of the inside end ─► packets + 1, bytes + length of the frame ─► forward
//!                                                             └─ wait = true: until the store has it
//! ```
//!
//! With `merged = true` each runtime has the whole function's counts besides, as merged views: the
//! command `merged` shows them, and how old they are.
//!
//! A synchronous packet goes on when the store has acknowledged its counts; packets of its flow
//! queue behind it, a bounded number of them. Where the store says that another process has the
//! counts, the packet goes on, and `unstored` counts it.
//!
//! Invariants: the counter drops and changes no packet; the runtime drops those that have no room
//! behind one that waits (`waiting_queue_full`) (`moves_change_no_count`); the counts of packets
//! and `uncounted` add up to the packets (`every_packet_is_counted_once`).
//!
//! Not here: how counts get to a store, and how merges are made (`stores`).
//!
//! Source: FlexState, section V.

pub mod config;
#[cfg(test)]
mod tests;

pub use config::{By, Config};

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::IpAddr;
use nf::table::{Answer, ROWS_MAX};
use nf::variables::merged::Sums;
use nf::variables::{CounterMap, Key, Merged, Options, Refusal, Ticket, Variables};
use nf::{
    Adds, ConfigError, Cx, Direction, NetworkFunction, Packet, Row, Side, Table, Verdict, WorkerInfo,
    network_function, row,
};
use wire::packet::flag;

/// The most keys that the command `merged` lists.
const LISTED: usize = 1000;
/// The row of `counts` that has the keys with the fewest packets, where there are more than it
/// lists.
const OTHERS: &str = "(others)";

/// The age of merged counts, in milliseconds, and each key's packets and bytes.
type MergedCounts<K> = (u64, Vec<(K, i64, i64)>);

struct Counts<K> {
    packets: CounterMap<K>,
    bytes: CounterMap<K>,
    merged: Option<Whole<K>>,
}

/// The whole function's counts.
struct Whole<K> {
    packets: Merged<Sums<K>>,
    bytes: Merged<Sums<K>>,
}

impl<K: Key + Send + Ord> Counts<K> {
    fn open(variables: &mut Variables, by: &str, most: u32, merged: bool) -> Result<Self, ConfigError> {
        let options = Options {
            capacity: most as usize,
            ..Options::default()
        };
        let (packets, bytes) = (format!("packets_by_{by}"), format!("bytes_by_{by}"));
        Ok(Counts {
            packets: variables.counter_map(&packets, options)?,
            bytes: variables.counter_map(&bytes, options)?,
            merged: match merged {
                true => Some(Whole {
                    packets: variables.merged_counter_map(&packets)?,
                    bytes: variables.merged_counter_map(&bytes)?,
                }),
                false => None,
            },
        })
    }

    fn add(&self, key: &K, bytes: i64) -> Result<(), Refusal> {
        self.packets.add(key, 1)?;
        self.bytes.add(key, bytes).map(drop)
    }

    /// A row for each key, those with the most packets first; the last of them has all that are
    /// left.
    fn rows(&self, most: usize, shown: impl Fn(&K) -> String) -> Vec<Row> {
        let mut keys = Vec::new();
        self.packets.for_each(|key, packets| {
            keys.push((
                Reverse(positive(packets)),
                key.clone(),
                positive(self.bytes.get(key)),
            ));
        });
        keys.sort_unstable();
        let most = most.min(ROWS_MAX);
        let listed = match keys.len() > most {
            true => most.saturating_sub(1),
            false => keys.len(),
        };
        let (listed, others) = keys.split_at(listed);
        let row = |(packets, key, bytes): &(Reverse<u64>, K, u64)| row![&*shown(key), packets.0, *bytes];
        let mut rows: Vec<Row> = listed.iter().map(row).collect();
        if !others.is_empty() {
            let packets: u64 = others.iter().map(|(packets, ..)| packets.0).sum();
            let bytes: u64 = others.iter().map(|(.., bytes)| bytes).sum();
            rows.push(row![OTHERS, packets, bytes]);
        }
        rows
    }

    /// The merged counts, of the keys that are listed, and their age in milliseconds.
    fn merged_counts(&self) -> Result<MergedCounts<K>, String> {
        let merged = self.merged.as_ref();
        let merged =
            merged.ok_or("merged counts are not kept; write `merged = true` in the function's table")?;
        let age = merged.packets.age().ok_or(
            "the store has made no merge yet; see that `[store]` has a `uri`, and `flowkeep status` for how it does",
        )?;
        let counts = |packets: &Sums<K>| packets.iter().map(|(key, count)| (key.clone(), *count)).collect();
        let mut counts: Vec<(K, i64)> = merged.packets.read(counts).unwrap_or_default();
        counts.sort_unstable();
        counts.truncate(LISTED);
        let with_bytes = |bytes: &Sums<K>| {
            let both = counts.iter().map(|(key, packets)| {
                let bytes = bytes.get(key).copied().unwrap_or(0);
                (key.clone(), *packets, bytes)
            });
            both.collect()
        };
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        Ok((age, merged.bytes.read(with_bytes).unwrap_or_default()))
    }

    fn merged(&self, shown: impl Fn(&K) -> String) -> Result<String, String> {
        let (age, counts) = self.merged_counts()?;
        let mut table = format!("merged {age} ms ago\ncount\n");
        for (key, packets, bytes) in counts {
            table += &format!("{} {packets} {bytes}\n", shown(&key));
        }
        Ok(table)
    }

    /// The same, a row for each key. Each runtime has the whole function's counts, of its own age.
    fn merged_rows(&self, shown: impl Fn(&K) -> String) -> Vec<Row> {
        let (age, counts) = self.merged_counts().unwrap_or_default();
        let row = |(key, packets, bytes): (K, i64, i64)| {
            row![&*shown(&key), positive(packets), positive(bytes), age]
        };
        counts.into_iter().map(row).collect()
    }
}

/// Nothing is taken off a count.
fn positive(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

enum Kept {
    ByProtocol(Counts<u8>),
    ByHost(Counts<IpAddr>),
}

/// The counter of one runtime.
pub struct Counter {
    kept: Kept,
    wait: bool,
}

#[network_function]
impl NetworkFunction for Counter {
    const NAME: &'static str = "counter";
    const COUNTERS: &'static [&'static str] = &[
        /// Packets that were seen.
        "packets",
        /// Packets that were not counted by key: there are as many keys as may be.
        "uncounted",
        /// Packets whose count the store does not have: another process has claimed it.
        "unstored",
    ];
    const TABLES: &'static [Table] = &[Table {
        name: "counts",
        columns: &[
            ("key", Adds::Name),
            ("packets", Adds::Counted),
            ("bytes", Adds::Counted),
        ],
        top: 0,
        metrics: &[],
    }];
    const ICMP_ERRORS: bool = false;
    type Config = Config;
    type Flow = ();
    type Group = ();

    fn new(config: &Arc<Config>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        Self::with_variables(config, worker, &mut Variables::local())
    }

    fn with_variables(
        config: &Arc<Config>,
        _: &WorkerInfo,
        variables: &mut Variables,
    ) -> Result<Self, ConfigError> {
        if !(1..=config::MOST).contains(&config.most) {
            let problem = format!("`{}` is no number of keys", config.most);
            let remedy = format!("write 1 to {}", config::MOST);
            return Err(ConfigError::new("most", problem, remedy));
        }
        let kept = match config.by {
            // There are no more protocols than that.
            By::Protocol => Kept::ByProtocol(Counts::open(
                variables,
                "protocol",
                config.most.min(256),
                config.merged,
            )?),
            By::InsideHost => Kept::ByHost(Counts::open(
                variables,
                "inside_host",
                config.most,
                config.merged,
            )?),
        };
        Ok(Counter {
            kept,
            wait: config.wait,
        })
    }

    fn process_now(&self, packet: &mut Packet, (): &mut (), cx: &mut Cx<Self>) -> Option<Verdict> {
        if self.wait {
            return None;
        }
        self.add(packet, cx);
        Some(Verdict::Forward)
    }

    async fn process(&self, packet: &mut Packet, (): &mut (), cx: &mut Cx<Self>) -> Verdict {
        self.add(packet, cx);
        if cx.stored(&self.tickets()).await.is_err() {
            cx.count("unstored");
        }
        Verdict::Forward
    }

    fn rows(&self, _: &str, most: usize) -> Vec<Row> {
        match &self.kept {
            Kept::ByProtocol(counts) => counts.rows(most, ToString::to_string),
            Kept::ByHost(counts) => counts.rows(most, ToString::to_string),
        }
    }

    fn command_rows(&self, words: &[&str]) -> Option<Answer> {
        const COLUMNS: &[(&str, Adds)] = &[
            ("key", Adds::Name),
            ("packets", Adds::Greatest),
            ("bytes", Adds::Greatest),
            ("age_ms", Adds::Greatest),
        ];
        let rows = match (words, &self.kept) {
            (["merged"], Kept::ByProtocol(counts)) => counts.merged_rows(ToString::to_string),
            (["merged"], Kept::ByHost(counts)) => counts.merged_rows(ToString::to_string),
            _ => return None,
        };
        Some((COLUMNS, rows))
    }

    fn command(&self, words: &[&str]) -> Result<String, String> {
        match (words, &self.kept) {
            (["merged"], Kept::ByProtocol(counts)) => counts.merged(ToString::to_string),
            (["merged"], Kept::ByHost(counts)) => counts.merged(ToString::to_string),
            _ => Err("the commands are: counts, merged".to_string()),
        }
    }
}

#[nf::network_function]
impl Counter {
    fn add(&self, packet: &Packet, cx: &mut Cx<Self>) {
        cx.count("packets");
        let bytes = i64::try_from(packet.frame().len()).unwrap_or(i64::MAX);
        let counted = match &self.kept {
            Kept::ByProtocol(counts) => counts.add(&packet.protocol(), bytes),
            Kept::ByHost(counts) => counts.add(&inside_end(packet, cx).to_ip(), bytes),
        };
        if counted.is_err() {
            cx.count("uncounted");
        }
    }

    fn tickets(&self) -> [Ticket; 2] {
        match &self.kept {
            Kept::ByProtocol(counts) => [counts.packets.stored(), counts.bytes.stored()],
            Kept::ByHost(counts) => [counts.packets.stored(), counts.bytes.stored()],
        }
    }
}

/// The address of the flow's inside end. Where both ends are inside, that of its opener.
fn inside_end(packet: &Packet, cx: &Cx<Counter>) -> wire::Addr {
    let (opener, other) = cx.opened_by();
    let is_opener_inside = (cx.side() == Side::Inside) == (cx.direction() == Direction::Opening);
    if is_opener_inside || packet.has(flag::INSIDE_TO_INSIDE) {
        opener.addr
    } else {
        other.addr
    }
}
