//! The kernels of the hosts that the cluster's processes run on, where it is a router, and what
//! they know of the network's hosts.
//!
//! ```text
//!   runtime ── wanted ──► feed ──► kernel, each LOOK ── asks the host ──► answers a while later, or not ──► publish ──► feed ──► runtime
//!                                     ▲ forgets hosts; hears of one that has another link address
//! ```
//!
//! A process has one kernel, and tables of its own, whose generations count by themselves. A kernel
//! asks for a host until it answers. The tables' contents are kept for the checker.
//!
//! Not here: the checks ([`crate::checkers::addressed`]); when hosts are silent
//! (`crate::neighbours`).

use super::frames::port_of;
use super::{Due, HOSTS, Packet, addr_of};
use crate::Time;
use crate::checkers::Violation;
use crate::checkers::addressed::{self, Said};
use crate::frame;
use crate::kernel::{self, Kernel, Station};
use crate::kinds::ROUTERS;
use crate::random::{Random, Stream};
use crate::script::{INSIDE_HOSTS, MILLI, Script};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::LinkType;

/// How often a kernel looks at the wanted hosts, as the thread of `flowkeep` does.
const LOOK: u64 = 5 * MILLI;
/// How long a host takes to answer, and one in so many answers late.
const ANSWER: u64 = 2 * MILLI;
const LATE_IN: u64 = 4;
const LATE: u64 = 25 * MILLI;

/// The dues that follow, each with its time.
type Planned = Vec<(Time, Due)>;

/// One process's kernel.
struct Table {
    /// The first worker of the process.
    first: usize,
    kernel: Rc<dyn Kernel>,
    /// By host: the link address that it knows, whether it asks, and the contents of its tables.
    known: Vec<Option<[u8; 6]>>,
    asked: Vec<bool>,
    said: Vec<Said>,
    random: Random,
}

/// See the module's page.
pub(super) struct Neighbours {
    tables: Vec<Table>,
    /// By host: how often it was replaced, and until when it does not answer.
    replaced: Vec<u8>,
    mute_until: Vec<Time>,
    /// When packets came in first.
    entered: BTreeMap<u16, Time>,
}

/// The link address of a process's host, at a port.
fn own_link(first: usize, port: usize) -> [u8; 6] {
    [2, 0, 0, 9, first as u8, port as u8]
}

impl Neighbours {
    /// Where the plans have tables: those of all processes, by worker.
    pub fn new(script: &Script, planned: &[kernel::Planned]) -> Option<Self> {
        let mut tables = Vec::new();
        for (worker, planned) in planned.iter().enumerate() {
            let first = script.tables_of(worker);
            if first == worker {
                let mut random = Random::of(script.seed, Stream::Neighbours, 64 + worker as u64);
                let knows = (0..HOSTS).map(|_| random.once_in(2)).collect::<Vec<_>>();
                let known = knows.iter().enumerate();
                tables.push(Table {
                    first,
                    kernel: planned.kernel.clone()?,
                    known: known.map(|(host, knows)| knows.then(|| link(host, 0))).collect(),
                    asked: vec![false; HOSTS],
                    said: vec![Said::default(); HOSTS],
                    random,
                });
            }
        }
        Some(Neighbours {
            tables,
            replaced: vec![0; HOSTS],
            mute_until: vec![0; HOSTS],
            entered: BTreeMap::new(),
        })
    }
}

/// The link address of a host that was replaced so often.
fn link(host: usize, replaced: u8) -> [u8; 6] {
    [2, 0, 0, 1, host as u8, replaced]
}

impl Neighbours {
    /// All kernels say what they know.
    pub fn begin(&mut self, script: &Script) -> Planned {
        let mut looks = Vec::new();
        for (index, table) in self.tables.iter_mut().enumerate() {
            table.kernel.begin(table.random.next());
            // Tables before those in force: kernels have told of as many as others, or not.
            for _ in 0..=table.random.below(2) {
                table.publish(script, 0);
            }
            looks.push((table.random.below(LOOK), Due::Kernel(index as u8)));
        }
        looks
    }

    /// A kernel looks at the wanted hosts.
    pub fn look(&mut self, index: u8, now: Time) -> Planned {
        let table = &mut self.tables[usize::from(index)];
        for addr in table.kernel.wanted() {
            if let Some(host) = (0..HOSTS).find(|host| addr_of(*host) == addr) {
                table.asked[host] |= table.known[host].is_none();
            }
        }
        let mut planned = Vec::new();
        for host in 0..HOSTS {
            if table.asked[host] && self.mute_until[host] <= now {
                table.asked[host] = false;
                let most = if table.random.once_in(LATE_IN) {
                    LATE
                } else {
                    ANSWER
                };
                let at = now + table.random.below(most);
                planned.push((at, Due::Resolved(index, host as u8)));
            }
        }
        planned.push((now + LOOK, Due::Kernel(index)));
        planned
    }

    /// A host has answered a kernel, or has told it that it has another link address.
    pub fn hear(&mut self, script: &Script, index: u8, host: u8, now: Time) {
        let host = usize::from(host);
        let table = &mut self.tables[usize::from(index)];
        table.asked[host] = false;
        table.known[host] = Some(link(host, self.replaced[host]));
        table.publish(script, now);
    }

    /// Kernels know nothing of a host any more, which does not answer for so long.
    pub fn forget(&mut self, script: &Script, host: u8, (now, time): (Time, u64)) {
        let host = usize::from(host);
        self.mute_until[host] = self.mute_until[host].max(now + time);
        for table in &mut self.tables {
            table.known[host] = None;
            table.publish(script, now);
        }
    }

    /// Another machine has the address of a host; kernels that know it hear so soon.
    pub fn replace(&mut self, host: u8, now: Time) -> Planned {
        let replaced = &mut self.replaced[usize::from(host)];
        *replaced = replaced.wrapping_add(1);
        let mut planned = Vec::new();
        for (index, table) in self.tables.iter_mut().enumerate() {
            if table.known[usize::from(host)].is_some() {
                let at = now + table.random.below(ANSWER);
                planned.push((at, Due::Resolved(index as u8, host)));
            }
        }
        planned
    }

    /// All hosts answer.
    pub fn heal(&mut self) {
        self.mute_until.fill(0);
    }

    /// A packet has come in.
    pub fn note_entered(&mut self, id: u16, now: Time) {
        self.entered.entry(id).or_insert(now);
    }

    /// Whether a frame that leaves by a port is written for the host that it is for.
    pub fn look_at_link(
        &self,
        script: &Script,
        (port, bytes): (usize, &[u8]),
        (id, packets): (u16, &[Packet]),
    ) -> Result<(), Violation> {
        let host = frame::destination_of(LinkType::Ethernet, bytes);
        let host = host.and_then(|addr| (0..HOSTS).find(|host| addr_of(*host) == addr));
        let (Some(host), Some((to, from))) = (host, frame::links_of(bytes)) else {
            // A packet for no host has no neighbour.
            return Ok(());
        };
        let mut tables = self.tables.iter();
        let said = tables
            .find(|table| from == own_link(table.first, port))
            .map(|table| &table.said[host]);
        // Of the cluster's own it is not known since when.
        let since = self.entered.get(&id).copied().unwrap_or(0);
        let what = match packets.get(usize::from(id)) {
            Some(packet) if id != 0 => packet.to_string(),
            _ => "a packet of the cluster's own".to_owned(),
        };
        addressed::check(&what, to, (port, port_of(script, host, 0)), said, since)
    }
}

impl Table {
    fn publish(&mut self, script: &Script, now: Time) {
        let own = |port: usize| {
            let is_inside = (0..usize::from(INSIDE_HOSTS)).any(|host| port_of(script, host, 0) == port);
            (own_link(self.first, port), ROUTERS[usize::from(is_inside)])
        };
        let own: Vec<_> = (0..usize::from(script.shape.ports)).map(own).collect();
        let stations: Vec<Station> = (0..HOSTS)
            .map(|host| Station {
                addr: addr_of(host),
                port: port_of(script, host, 0) as u8,
                link: self.known[host],
            })
            .collect();
        self.kernel.publish(&own, &stations);
        for (said, known) in self.said.iter_mut().zip(&self.known) {
            said.say(now, *known);
        }
    }
}
