//! Orders to move flows, and their receipts.
//!
//! ```text
//!   selector ─► every group with a flow that it names ─► waits ─► on its way ─► moved, refused or failed
//!                                                        │  ▲          │
//!                                  taken back ◄──────────┘  └──────────┘ refused or called back: offered to another
//! ```
//!
//! *Another target.* A target may have become full, or be drained, since the order was given; it
//! may be gone, or too slow. Where an order says several that may take its flows, a group that did
//! not move to one of them, for whatever reason, is offered to the others, each at most once: to
//! those that are there, have not refused groups, and of those first to a target at which no move
//! of this order has failed.
//!
//! *Taken back* ([`crate::Runtime::cancel`]): moves on their way end as they would have, others do
//! not begin.
//!
//! As many orders as [`KEPT`] may be under way; another is refused. Receipts of finished orders are
//! kept as long as there is room.
//!
//! A group that rests ([`crate::flows::resting`]) moves as one without flows; a receipt's figure
//! for it is its own.
//!
//! Groups move whole: a flow that is named takes its group along, and *asked* counts all of them.
//! As many groups as [`Settings::moves_max`](crate::Settings::moves_max) are on their way at once,
//! and of groups with many flows no more than have
//! [`Settings::moved_flows_max`](crate::Settings::moved_flows_max) of them: groups on their way
//! together pause together. When half of them have arrived the next ones begin together.
//!
//! *Selection.* An order looks through the groups that there are when it is given (where flows are
//! by themselves: through the flows), [`LOOKS`] places at once and as many in each step after that.
//! Which flows a group has, its record knows ([`crate::group`]).

use super::AHEAD;
use super::Moves;
use crate::flows::actor::Phase;
use crate::flows::group::GroupKey;
use crate::parts::Core;
use crate::stats::Durations;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use nf::{Affinity, Prefix};
use protocols::ownership::{Finished, RuntimeId};
use wire::{FlowKey, planted};

/// Which flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// All.
    All,
    /// Of all groups one in so many, by their hashes.
    OneIn(u16),
    /// The flow with this key, its first or its second.
    Flow(FlowKey),
    /// Flows with an end in this prefix, before translation.
    Ends(Prefix),
}

impl Core {
    /// Whether a flow has an end in a prefix, before translation.
    fn is_within(&self, actor: u32, prefix: &Prefix) -> bool {
        let key = &self.flows.header(actor).key;
        prefix.contains(key.first().addr) || prefix.contains(key.second().addr)
    }

    /// Whether a selector that looks at no flow names a group.
    fn is_chosen(&self, selector: &Selector, group: &GroupKey) -> bool {
        match selector {
            // By other bits than tables and switches go by.
            Selector::OneIn(many) => {
                (group.hash(&self.settings.seed) >> 16 & 0xffff).is_multiple_of(u64::from((*many).max(1)))
            }
            _ => true,
        }
    }

    /// Whether a selector names a flow, or its group.
    pub(crate) fn is_selected(&self, selector: &Selector, actor: u32) -> bool {
        match selector {
            Selector::Ends(prefix) => self.is_within(actor, prefix),
            selector => self.is_chosen(selector, &self.flows.group_key(actor)),
        }
    }
}

/// An order to move flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveOrder {
    /// Which.
    pub selector: Selector,
    /// Where to; with several, groups take turns.
    pub to: Vec<u16>,
}

/// Why an order is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// It names no runtime to go to.
    Nowhere,
    /// It names this runtime, or an absent one.
    NoSuchRuntime(u16),
    /// There are more switches than a move can have to do with.
    TooManySwitches,
    /// As many orders are under way as may be.
    TooMany,
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrderError::Nowhere => {
                f.write_str("there is no runtime to move flows to; the cluster needs two at least")
            }
            OrderError::NoSuchRuntime(runtime) => write!(
                f,
                "there is no runtime {runtime} that these flows could move to; `flowkeep runtime list` shows which there are"
            ),
            OrderError::TooManySwitches => f.write_str("groups move with at most 64 switches"),
            OrderError::TooMany => write!(
                f,
                "{KEPT} orders to move flows are under way, and no more may be at once; wait until one is over (`flowkeep order list`), or take one \
                 back: flowkeep order cancel ORDER"
            ),
        }
    }
}

impl core::error::Error for OrderError {}

/// The progress of an order so far. Times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Flows of all groups that have begun to move, without those that ended before they were sent.
    pub asked: u64,
    /// Flows that are at the target.
    pub moved: u64,
    /// Groups without flows that are.
    pub resting: u64,
    /// Flows whose groups were refused by the target, and by others to which they were offered
    /// then.
    pub refused: u64,
    /// Flows whose groups did not move to a target, so that they were offered to another; the
    /// outcome of that is in the other figures.
    pub offered_again: u64,
    /// Flows whose groups were called back, or could not begin to move: no runtime was there to
    /// take them.
    pub failed: u64,
    /// Groups that had not begun when the order was taken back, and do not.
    pub canceled: u64,
    /// Groups still to begin.
    pub waiting: u64,
    /// Groups on their way.
    pub under_way: u64,
    /// Packets that the target kept.
    pub buffered: u64,
    /// Packets that the source handed over.
    pub handed_on: u64,
    /// Packets dropped for want of room to keep them.
    pub dropped: u64,
    /// The longest time from the first home's being told to the target's word that the group is
    /// installed; by the source's clock.
    pub pause_longest: u64,
    /// The median of those.
    pub pause_median: u64,
    /// Bytes of state.
    pub bytes: u64,
    /// From the order to the last group's end.
    pub duration: u64,
    /// Whether that has come.
    pub is_over: bool,
}

/// In [`super::Moving::order`]: of no order here.
pub(crate) const NONE: u32 = u32::MAX;

/// Runtimes to which a group was offered, a bit each: there are 64 at most.
pub(crate) type Tried = u64;

pub(super) fn tried(runtime: u16) -> Tried {
    1_u64.checked_shl(runtime.into()).unwrap_or(0)
}

pub(super) struct Ordered {
    pub(super) number: u32,
    pub(super) to: Vec<u16>,
    pub(super) next: usize,
    /// Other runtimes that may be offered the groups that one of those refuses.
    pub(super) others: Vec<u16>,
    pub(super) next_other: usize,
    /// Targets to which something did not move.
    pub(super) refusers: Vec<u16>,
    pub(super) waiting: VecDeque<GroupKey>,
    /// Groups that did not move, to which runtime they are offered now, and those to which they
    /// were. They begin first.
    pub(super) again: VecDeque<(GroupKey, u16, Tried)>,
    /// Flows of groups that may still begin; the most that there can be where all may.
    pub(super) left: u32,
    /// Nothing more of it begins.
    pub(super) is_canceled: bool,
    pub(super) selector: Selector,
    /// Places still to be looked at.
    pub(super) unseen: core::ops::Range<u32>,
    pub(super) began: u64,
    pub(super) pauses: Vec<u64>,
    pub(super) receipt: Receipt,
}

impl Ordered {
    /// How many groups have not begun.
    fn unbegun(&self) -> usize {
        self.waiting.len() + self.again.len()
    }

    /// Takes flows from those that may still begin, if there are so many.
    pub(super) fn take_of_count(&mut self, flows: usize) -> bool {
        let flows = u32::try_from(flows).unwrap_or(u32::MAX);
        match self.left {
            u32::MAX => true,
            left if flows > left => false,
            left => {
                self.left = left - flows;
                true
            }
        }
    }

    /// These flows have not begun after all.
    pub(super) fn give_to_count(&mut self, flows: usize) {
        if self.left != u32::MAX {
            self.left = self.left.saturating_add(flows as u32);
        }
    }

    /// Begins nothing more; answers how many groups would have.
    fn cancel(&mut self) -> usize {
        let count = self.unbegun();
        self.is_canceled = true;
        self.unseen = 0..0;
        (self.waiting, self.again) = (VecDeque::new(), VecDeque::new());
        count
    }
}

/// Orders that are not forgotten yet.
#[derive(Default)]
pub(crate) struct Orders {
    pub(super) all: Vec<Ordered>,
    pub(super) count: u32,
    pub(super) waiting: usize,
    pub(super) under_way: usize,
    /// Flows of groups that are.
    pub(super) flows: usize,
    /// Of all orders since the start.
    pub(super) pauses: Durations,
}

/// Groups, or flows, that an order looks at in a step.
const LOOKS: u32 = 4096;

/// The most orders under way; finished ones are kept as long as there is room.
pub const KEPT: usize = 16;

impl Orders {
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && !self.is_selecting()
    }

    /// Whether an order has places still to be looked at.
    fn is_selecting(&self) -> bool {
        self.all.iter().any(|ordered| !ordered.unseen.is_empty())
    }

    /// Begins nothing more.
    pub fn stop(&mut self) {
        self.waiting = 0;
        for ordered in &mut self.all {
            ordered.cancel();
        }
    }

    /// A group of so many flows is on its way no more.
    pub fn note_end(&mut self, flows: u32) {
        self.flows -= flows as usize;
    }

    /// Groups that will begin next, so many at most.
    pub fn next(&self, count: usize) -> impl Iterator<Item = &GroupKey> {
        let waiting = self.all.iter().flat_map(|ordered| &ordered.waiting);
        waiting.take(count)
    }

    fn find(&mut self, number: u32) -> Option<&mut Ordered> {
        self.all.iter_mut().find(|ordered| ordered.number == number)
    }

    /// The receipt of an order under way.
    pub fn receipt(&mut self, number: u32) -> Option<&mut Receipt> {
        self.find(number).map(|ordered| &mut ordered.receipt)
    }

    pub fn note_pause(&mut self, number: u32, pause: u64) {
        self.pauses.note(pause);
        if let Some(ordered) = self.find(number) {
            ordered.pauses.push(pause);
        }
    }
}

impl Moves {
    /// The same, of no more than so many flows. Groups move whole: a group that has more flows than
    /// are left of that stays.
    pub fn order_some(
        &mut self,
        core: &mut Core,
        order: MoveOrder,
        others: &[u16],
        count: u32,
    ) -> Result<u32, OrderError> {
        if order.to.is_empty() {
            return Err(OrderError::Nowhere);
        }
        for to in &order.to {
            if !self.is_there(core, *to) {
                return Err(OrderError::NoSuchRuntime(*to));
            }
        }
        if core.settings.switches > protocols::ownership::Switches::MAX {
            return Err(OrderError::TooManySwitches);
        }
        let all = &mut self.orders.all;
        if all.len() == KEPT {
            let oldest = all.iter().position(|ordered| ordered.receipt.is_over);
            all.remove(oldest.ok_or(OrderError::TooMany)?);
        }
        let (mut waiting, mut unseen) = (VecDeque::new(), 0..0);
        match &order.selector {
            Selector::Flow(key) => waiting.extend(self.group_of_key(core, key)),
            _ if core.flows.affinity() == Affinity::Flow => unseen = 0..core.flows.used(),
            _ => unseen = 0..core.flows.groups().used(),
        }
        let orders = &mut self.orders;
        let number = orders.count;
        orders.count = orders.count.wrapping_add(1) % NONE;
        orders.waiting += waiting.len();
        orders.all.push(Ordered {
            number,
            others: order.to.iter().chain(others).copied().collect(),
            next_other: 0,
            refusers: Vec::new(),
            to: order.to,
            next: 0,
            waiting,
            again: VecDeque::new(),
            is_canceled: false,
            selector: order.selector,
            unseen,
            left: count,
            began: core.now,
            pauses: Vec::new(),
            receipt: Receipt::default(),
        });
        self.go_on_selecting(core);
        self.see_whether_over(core, number);
        Ok(number)
    }

    /// Takes back the moves of an order that have not begun, if there is such an order.
    pub fn cancel(&mut self, core: &mut Core, number: u32) {
        let Some(ordered) = self.orders.find(number) else {
            return;
        };
        let count = ordered.cancel();
        ordered.receipt.canceled += count as u64;
        self.orders.waiting -= count;
        self.see_whether_over(core, number);
    }

    /// The progress of an order; `None` if it is long over.
    pub fn receipt(&mut self, number: u32) -> Option<Receipt> {
        let ordered = self.orders.find(number)?;
        ordered.pauses.sort_unstable();
        let receipt = &mut ordered.receipt;
        receipt.waiting = (ordered.waiting.len() + ordered.again.len()) as u64;
        receipt.pause_longest = ordered.pauses.last().copied().unwrap_or(0);
        receipt.pause_median = ordered.pauses.get(ordered.pauses.len() / 2).copied().unwrap_or(0);
        Some(receipt.clone())
    }

    /// Whether an order is over; a forgotten one is.
    pub fn is_over(&mut self, number: u32) -> bool {
        let ordered = self.orders.find(number);
        ordered.is_none_or(|ordered| ordered.receipt.is_over)
    }

    fn group_of_key(&self, core: &Core, key: &FlowKey) -> Option<GroupKey> {
        let found = core.flows.find(key);
        found.map(|value| core.flows.group_key(value >> 1))
    }

    /// Goes on with the selections of orders; answers how many places were looked at.
    pub(crate) fn go_on_selecting(&mut self, core: &mut Core) -> usize {
        let mut count = 0;
        for at in 0..self.orders.all.len() {
            let ordered = &mut self.orders.all[at];
            let unseen = core::mem::take(&mut ordered.unseen);
            if unseen.is_empty() {
                continue;
            }
            let (number, is_counted) = (ordered.number, ordered.left != u32::MAX);
            let end = unseen.end.min(unseen.start + LOOKS);
            let selector = core::mem::replace(&mut ordered.selector, Selector::All);
            let mut found = core::mem::take(&mut ordered.waiting);
            let before = found.len();
            let places = unseen.start..end;
            count += places.len();
            match core.flows.affinity() {
                Affinity::Flow => self.select_flows(core, &selector, places, &mut found),
                _ => self.select_groups(core, &selector, (places, is_counted), &mut found),
            }
            let orders = &mut self.orders;
            orders.waiting += found.len() - before;
            let ordered = &mut orders.all[at];
            (ordered.waiting, ordered.selector) = (found, selector);
            ordered.unseen = end..unseen.end;
            self.see_whether_over(core, number);
        }
        count
    }

    /// Selects among groups, by their places: of groups without a flow yet, only those that arrive.
    /// A group that rests is not meant by an order for so many flows.
    fn select_groups(
        &self,
        core: &Core,
        selector: &Selector,
        (places, is_counted): (Range<u32>, bool),
        found: &mut VecDeque<GroupKey>,
    ) {
        for place in places {
            let Some(group) = core.flows.groups().at_place(place) else {
                continue;
            };
            let rests = core.flows.groups().resting().until(place).is_some();
            let is_meant = match selector {
                _ if rests && is_counted => false,
                Selector::Ends(prefix) if rests => group.is_within(prefix),
                Selector::Ends(prefix) => core
                    .flows
                    .groups()
                    .members(place)
                    .any(|actor| core.is_within(actor, prefix)),
                selector => core.is_chosen(selector, &group),
            };
            if is_meant {
                found.push_back(group);
            }
        }
    }

    /// Selects among flows that are by themselves.
    fn select_flows(
        &self,
        core: &Core,
        selector: &Selector,
        places: Range<u32>,
        found: &mut VecDeque<GroupKey>,
    ) {
        for actor in places {
            // Headers are further apart than the processor looks ahead by itself.
            core.flows.prefetch_header(actor + 2 * AHEAD as u32);
            let header = core.flows.header(actor);
            if !matches!(header.phase, Phase::Active | Phase::Waiting) {
                continue;
            }
            let group = GroupKey::of_flow(header.key);
            let is_meant = match selector {
                Selector::Ends(prefix) => core.is_within(actor, prefix),
                selector => core.is_chosen(selector, &group),
            };
            if is_meant {
                found.push_back(group);
            }
        }
    }

    /// Whether a runtime is at the other end of the link to this number.
    pub(super) fn is_there(&self, core: &Core, runtime: u16) -> bool {
        self.has_peer(RuntimeId(runtime)) && core.sessions.has_runtime(runtime)
    }

    /// Which other runtime may take a group of an order that was offered to some: in turn, those
    /// first to which all of it moved.
    pub(super) fn another(&mut self, core: &mut Core, order: u32, before: Tried) -> Option<u16> {
        let ordered = self.orders.find(order)?;
        let (next, count) = (ordered.next_other, ordered.others.len());
        ordered.next_other += 1;
        let others = core::mem::take(&mut ordered.others);
        let refusers = core::mem::take(&mut ordered.refusers);
        let in_turn = (0..count).map(|at| others[(next + at) % count]);
        let takes = |to: &u16| {
            before & tried(*to) == 0
                && *to != core.settings.info.runtime
                && self.is_there(core, *to)
                && !core.sessions.is_runtime_leaving(*to)
        };
        let found = in_turn.filter(takes).min_by_key(|to| refusers.contains(to));
        if let Some(ordered) = self.orders.find(order) {
            (ordered.others, ordered.refusers) = (others, refusers);
        }
        found
    }

    /// A group did not move: it waits to be offered to another, if it may be.
    pub(crate) fn offer_again(&mut self, core: &mut Core, id: u32) -> bool {
        let Some(moving) = self.moving(id) else {
            return false;
        };
        let (order, group, flows) = (moving.order, moving.group, moving.actors.len() as u64);
        let (refuser, before) = (moving.to, moving.tried);
        let Some(ordered) = self.orders.find(order) else {
            return false;
        };
        if !ordered.refusers.contains(&refuser) {
            ordered.refusers.push(refuser);
        }
        if ordered.is_canceled {
            return false;
        }
        let Some(to) = self.another(core, order, before) else {
            return false;
        };
        if let Some(ordered) = self.orders.find(order) {
            ordered.again.push_back((group, to, before));
            let receipt = &mut ordered.receipt;
            // They are asked when they begin again.
            receipt.asked -= flows;
            receipt.offered_again += flows;
            self.orders.waiting += 1;
        }
        self.leave_order(core, order);
        true
    }

    /// A move of an order is over, one way or another.
    pub(crate) fn note_finished(&mut self, core: &mut Core, order: u32, flows: u64, how: Finished) {
        if let Some(receipt) = self.orders.receipt(order) {
            match how {
                Finished::Moved => {
                    receipt.moved += flows;
                    receipt.resting += u64::from(flows == 0);
                }
                Finished::Refused(_) => receipt.refused += flows,
                Finished::Aborted if planted::is("flows_counted_twice") => receipt.failed += 2 * flows,
                Finished::Aborted => receipt.failed += flows,
            }
        }
        self.leave_order(core, order);
    }

    /// A group of an order is on its way no more, or was not to be.
    pub(super) fn leave_order(&mut self, core: &mut Core, order: u32) {
        if order == NONE {
            // A target that was fenced: no order of this runtime's moved the group.
            return;
        }
        let orders = &mut self.orders;
        orders.under_way -= 1;
        if let Some(receipt) = orders.receipt(order) {
            receipt.under_way -= 1;
        }
        self.see_whether_over(core, order);
    }

    pub(super) fn see_whether_over(&mut self, core: &mut Core, order: u32) {
        let now = core.now;
        if let Some(ordered) = self.orders.find(order)
            && ordered.unbegun() == 0
            && ordered.unseen.is_empty()
            && ordered.receipt.under_way == 0
        {
            ordered.receipt.is_over = true;
            ordered.receipt.duration = now.saturating_sub(ordered.began);
        }
    }
}
