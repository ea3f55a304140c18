//! This runtime's flows that are in the store go on here: before its first step.
//!
//! ```text
//!   entries ─► read, layout found ─► copies, by slot ─► installed (`recovery`) ─► their entries are the flows' from here on
//!                 └─ refused: removed, counted, an event                └─ no flow after all: removed
//! ```
//!
//! A flow whose time was over while it had no process is installed, too, and ends in the first
//! steps as any flow does: so what it took is given back.
//!
//! Invariants: an entry is refused, or a copy; nothing is announced before all is installed.

use super::form::{self, Entry, Layout, Stamp, What};
use crate::flows::actor::{NO_GROUP, flag};
use crate::flows::group::GroupKey;
use crate::parts::Core;
use crate::record::{Copy, FlowHeader, NO_DEADLINE};
use crate::replica::keeper::{Copies, Keeper};
use crate::stats::STORED_REFUSED;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use nf::Affinity;
use nf::variables::{Bytes, Map};

/// How much longer than it was stored a flow may live: thirty days, in nanoseconds.
const DEADLINE_MAX: u64 = 30 * 24 * 3600 * 1_000_000_000;

/// Why entries were refused.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Refused {
    /// They are no entries.
    broken: u64,
    /// Functions of their chain keep something else now, or the chain is gone, or has another
    /// policy.
    layout: u64,
    /// Flows of a group that is not there.
    alone: u64,
}

/// Slots of copies and the entries that they are of.
struct Found {
    copies: Copies,
    flows: Vec<(u64, wire::FlowKey)>,
    groups: Vec<(u64, GroupKey)>,
    by_group: BTreeMap<[u64; 5], u32>,
    /// Groups that were coming: another partition has them.
    coming: BTreeSet<[u64; 5]>,
    refused: Vec<u64>,
    why: Refused,
    last: u64,
}

impl Keeper {
    /// Installs what the store has.
    #[cold]
    pub fn restore(&mut self, core: &mut Core) {
        let Some(entries) = core.runner.stages().ledger.clone() else {
            return;
        };
        let mut found = Found {
            copies: Copies::new(core, 0, core.incarnation(), 0),
            flows: Vec::new(),
            groups: Vec::new(),
            by_group: BTreeMap::new(),
            coming: BTreeSet::new(),
            refused: Vec::new(),
            why: Refused::default(),
            last: 0,
        };
        found.copies.know_own(core);
        found.read(core, &entries);
        core.ledger.next = found.last.saturating_add(1);
        core.out.set_muted(true);
        let copies = found.copies;
        self.install_all(core, copies);
        core.out.set_muted(false);
        core.note_blocks_in_use();
        core.adopt_entries(&entries, &found.flows, &found.groups, &mut found.refused);
        for entry in &found.refused {
            let _ = entries.remove(entry);
        }
        let Refused {
            broken,
            layout,
            alone,
        } = found.why;
        if broken + layout + alone > 0 {
            core.runner.log().write(
                core.now,
                "runtime",
                &STORED_REFUSED,
                format_args!("\"other_layout\":{layout},\"no_entry\":{broken},\"without_group\":{alone}"),
            );
        }
    }
}

impl Found {
    /// Reads all entries: groups first, since flows name theirs.
    fn read(&mut self, core: &Core, entries: &Map<u64, Bytes>) {
        let mut numbers = Vec::with_capacity(entries.len());
        entries.for_each(|number, _| numbers.push(*number));
        numbers.sort_unstable();
        self.last = numbers.last().copied().unwrap_or(0);
        for wants_groups in [true, false] {
            for number in &numbers {
                let Some(bytes) = entries.get(number) else {
                    continue;
                };
                let Some(entry) = form::read(&bytes) else {
                    if wants_groups {
                        self.why.broken += 1;
                        self.refused.push(*number);
                    }
                    continue;
                };
                if wants_groups == matches!(entry.what, What::Group(_))
                    && self.take(core, *number, &entry).is_none()
                {
                    self.refused.push(*number);
                }
            }
        }
    }

    fn take(&mut self, core: &Core, number: u64, entry: &Entry<'_>) -> Option<()> {
        match entry.what {
            What::Group(group) => {
                if entry.layout.kept != core.ledger.group_layout {
                    self.why.layout += 1;
                    return None;
                }
                if group.is_coming && !crate::replica::is_broken("what is coming is not read") {
                    self.coming.insert(*entry.group.words());
                    return None;
                }
                let slot = u32::try_from(self.groups.len()).ok()?;
                let copy = Copy::Group {
                    slot,
                    group: entry.group,
                    length: u16::try_from(group.state.len()).ok()?,
                    piece: group.state,
                };
                let is_taken = self.copies.note(copy, core.now)
                    && self.by_group.insert(*entry.group.words(), slot).is_none();
                if !is_taken {
                    self.why.broken += 1;
                    return None;
                }
                self.copies.set_group_by(slot, by(core, entry.stamp));
                self.groups.push((number, entry.group));
                if let Some(left) = group.rests {
                    let left = time_left(core, left, entry.stamp);
                    self.copies.note(Copy::Rests { slot, left }, core.now);
                }
                for block in form::blocks(group.blocks) {
                    let claimed = Copy::Block {
                        is_claimed: true,
                        block,
                        group: entry.group,
                    };
                    self.copies.note(claimed, core.now);
                }
            }
            What::Flow(flow_header, state) => {
                let Some(chain) = chain_of(core, entry.layout) else {
                    self.why.layout += 1;
                    return None;
                };
                let group = match core.flows.affinity() {
                    Affinity::Flow => Some(NO_GROUP),
                    _ => self.by_group.get(entry.group.words()).copied(),
                };
                let Some(group) = group else {
                    let is_coming = self.coming.contains(entry.group.words());
                    self.why.alone += u64::from(!is_coming);
                    return None;
                };
                let slot = u32::try_from(self.flows.len()).ok()?;
                let copy = Copy::Flow {
                    slot,
                    group,
                    length: u16::try_from(state.len()).ok()?,
                    generation: core.runner.current_generation(),
                    flow_header: FlowHeader {
                        chain,
                        time_left: time_left(core, flow_header.time_left, entry.stamp),
                        flags: flow_header.flags & !(flag::HOLDS | flag::SETTLING),
                        ..flow_header
                    },
                    piece: state,
                };
                if !self.copies.note(copy, core.now) {
                    self.why.broken += 1;
                    return None;
                }
                self.copies.set_flow_by(slot, by(core, entry.stamp));
                self.flows.push((number, flow_header.key));
            }
        }
        Some(())
    }
}

/// The chain that goes on with flows of this layout: the one of the same name, else the first. It
/// has to have the policy.
fn chain_of(core: &Core, layout: Layout) -> Option<u8> {
    if crate::replica::is_broken("layouts agree") {
        return Some(0);
    }
    let policies = core.policies();
    let fits = |chain: &usize| {
        let known = core.ledger.layouts.get(*chain);
        policies.get(*chain).is_some_and(|policy| policy.is_stored())
            && known.is_some_and(|known| known.kept == layout.kept)
    };
    let chains = 0..core.ledger.layouts.len();
    let mut named = chains.clone().filter(fits);
    let named = named.find(|chain| core.ledger.layouts[*chain].name == layout.name);
    named
        .or_else(|| chains.clone().find(fits))
        .map(|chain| chain as u8)
}

/// By how much the worker's clock is ahead of the clock that an entry was written by.
fn by(core: &Core, stamp: Stamp) -> i64 {
    let now = i128::from(core.ledger.wall) - (i128::from(stamp.wall) - i128::from(stamp.clock));
    // Where the wall clock shows 0 later by the worker's, times are earlier.
    (-now).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// The rest of a flow's time: it went on while there was no process.
fn time_left(core: &Core, stored: u64, stamp: Stamp) -> u64 {
    if stored == NO_DEADLINE {
        return NO_DEADLINE;
    }
    let now = core.ledger.wall.saturating_add(core.now);
    stored
        .min(DEADLINE_MAX)
        .saturating_sub(now.saturating_sub(stamp.wall))
}

impl Core {
    /// Blocks of this runtime's pool that groups have, here again, are not given to others.
    fn note_blocks_in_use(&self) {
        for (addr, first) in self.flows.owners.places() {
            let ports = self.flows.owners.size_at(first);
            self.runner.block_in_use(nf::Block { addr, first, ports });
        }
    }

    /// From here on the entries of installed flows and groups are those of their actors and places;
    /// the numbers of all others are refused.
    fn adopt_entries(
        &mut self,
        entries: &Map<u64, Bytes>,
        flows: &[(u64, wire::FlowKey)],
        groups: &[(u64, GroupKey)],
        refused: &mut Vec<u64>,
    ) {
        for (number, key) in flows {
            let found = self.flows.find(key).filter(|value| value & 1 == 0);
            let place = found.and_then(|value| self.ledger.flows.get_mut((value >> 1) as usize));
            match place {
                Some(place) if place.entry == 0 => place.entry = *number,
                _ => refused.push(*number),
            }
        }
        for (number, key) in groups {
            let place = self.flows.groups().at(*key);
            match place.and_then(|index| self.ledger.groups.get_mut(index as usize)) {
                Some(place) if place.entry == 0 => place.entry = *number,
                _ => refused.push(*number),
            }
        }
        debug_assert!(flows.len() + groups.len() <= entries.len());
    }
}
