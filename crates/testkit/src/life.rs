//! Whether a group was forgotten before its time.
//!
//! # Theory of operation
//! A function that says how long its groups live without a flow
//! ([`nf::NetworkFunction::group_timeout`]) relies on its state being there when the group's next
//! packet comes. So the watcher notes each group's state behind every call, by the address that the
//! group is of. Where a call meets the default state, although another was noted less than the
//! function's time ago, the state was discarded: the runtime had no place for so many groups, as a
//! rule. The run fails, and says so.
//!
//! ```text
//!   call ─► state noted, with the time ─► next call: default state, within the time? ─► forgotten
//! ```
//!
//! Of a function that says no time, a group ends with its last flow, and a first packet that is
//! dropped leaves none. That its state is gone may be meant: the watcher warns on standard error,
//! once, of a test that passes, too.
//!
//! The address is told by the flow's ends as this function sees them. That is not the group's where
//! another function translates, and not where packets come back in that were sent to the own
//! addresses; those are left out.
//!
//! Not here: when groups end (the runtime's `flows::resting`).

use nf::plain::bytes_of;
use nf::{Addr, Affinity, Cx, Direction, Endpoint, NetworkFunction, Packet, Side};
use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;
use wire::packet::flag;

/// Notes on groups, by address and, where they are of an endpoint, its port.
#[derive(Clone, Default)]
pub struct Life {
    /// Whether the function is alone in its chain, so that it sees all ends as they are.
    pub is_on: bool,
    /// Whether groups of a function that says no time are noted, too. To look at a group is to take
    /// its state, which sends copies the long way: so not where copies are kept.
    pub warns: bool,
    groups: HashMap<(Addr, u16), Noted>,
    /// The first group that was forgotten, in words.
    pub forgotten: Option<String>,
    /// The same of a function that says no time.
    pub warned: Option<String>,
}

/// A group, as a call left it.
#[derive(Clone, Copy)]
struct Noted {
    /// By the script's clock, in nanoseconds.
    at: u64,
    is_default: bool,
    lives: Duration,
}

/// The group of the flow at hand, if it can be told.
pub fn group_of<F: NetworkFunction>(packet: Option<&Packet>, cx: &Cx<F>) -> Option<(Addr, u16)> {
    let is_other = packet.is_some_and(|packet| packet.has(flag::INSIDE_TO_INSIDE | flag::ICMP_ERROR));
    let has_groups = F::OUTLIVES || size_of::<F::Group>() > 0;
    let is_plain = has_groups && !F::TRANSLATES && !is_other;
    let (source, destination) = cx.opened_by();
    let opened_from = match cx.direction() {
        Direction::Opening => cx.side(),
        Direction::Reply => cx.side().opposite(),
    };
    let (inside, outside) = match opened_from {
        Side::Inside => (source, destination),
        Side::Outside => (destination, source),
    };
    let whole = |end: Endpoint| (end.addr, 0);
    is_plain.then(|| match F::AFFINITY {
        Affinity::OutsideAddress => whole(outside),
        Affinity::InsideEndpoint => (inside.addr, inside.port),
        _ => whole(inside),
    })
}

impl Life {
    /// Makes room, so that noting allocates nothing while the runtime works.
    pub fn make_room(&mut self) {
        self.groups.reserve(64);
    }

    /// A call begins, with the group as it is.
    pub fn begin<F: NetworkFunction>(&mut self, key: (Addr, u16), at: u64, group: &F::Group) {
        let Some(noted) = self.groups.get(&key).filter(|_| self.is_on) else {
            return;
        };
        let since = Duration::from_nanos(at.wrapping_sub(noted.at));
        if !F::OUTLIVES {
            if is_default(group) && !noted.is_default && self.warned.is_none() {
                let words = format!(
                    "the group of {} began again {since:?} after its last packet: `{}` says no `group_timeout`, so its state ended with its last \
                     flow, and a first packet that is dropped leaves no flow",
                    key.0,
                    F::NAME
                );
                // `eprintln!` would be kept by the test harness, which shows it of failures only.
                let _ = writeln!(std::io::stderr(), "warning: {words}");
                self.warned = Some(words);
            }
            return;
        }
        if is_default(group) && !noted.is_default && since < noted.lives && self.forgotten.is_none() {
            self.forgotten = Some(format!(
                "the group of {} began again {since:?} after its last packet, although `{}` says that it lives for {:?} \
                 without a flow (`group_timeout`): its state was discarded. The runtime has no place for so many groups: choose a \
                 larger `flows_max`, or have groups that need not be remembered say no time",
                key.0,
                F::NAME,
                noted.lives
            ));
        }
    }

    /// A call has ended, and left the group so; `lives` says for how long it is to live.
    pub fn end<G: nf::FlowState>(&mut self, key: (Addr, u16), at: u64, group: &G, lives: Duration) {
        let is_default = is_default(group);
        if self.is_on {
            self.groups.insert(
                key,
                Noted {
                    at,
                    is_default,
                    lives,
                },
            );
        }
    }
}

fn is_default<G: nf::FlowState>(group: &G) -> bool {
    bytes_of(group) == bytes_of(&G::default())
}
