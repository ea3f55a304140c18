//! Orders to move flows, and their receipts.
//!
//! ```text
//!   selector ─► every group with a flow that it names ─► waits ─► on its way ─► moved, refused or failed
//!                                                        │  ▲          │
//!                                  taken back ◄──────────┘  └──────────┘ refused or called back: offered to another
//! ```
//!
//! *Another target.* A target may have become full, or be drained, since the order was given; it may be gone, or too slow. Where an order says several that may
//! take its flows, a group that did not move to one of them, for whatever reason, is offered to the others, each at most once: to those that are there, have
//! not said that they take no groups, and of those first to one at which no move of this order has failed.
//!
//! *Taken back* ([`Runtime::cancel`]): what is on its way ends as it would have, what has not begun does not begin.
//!
//! As many orders as [`KEPT`] may be under way; another is refused. Of those that are over, receipts are kept as long as there is room.
//!
//! Groups move whole: a flow that is named takes its group along, and *asked* counts all of them. As many groups as
//! [`Settings::moves_max`](crate::Settings::moves_max) are on their way at once, and of groups with many flows no more than have
//! [`Settings::moved_flows_max`](crate::Settings::moved_flows_max) of them: what is on its way together pauses together. When half of them have arrived the
//! next ones begin together.
//!
//! *Selection.* An order looks through the groups that there are when it is given (where flows are by themselves: through the flows), [`LOOKS`]
//! places at once and as many in each step after that. Which flows a group has, its record knows ([`crate::group`]).

use super::super::Runtime;
use super::{AHEAD, Moving};
use crate::env::Port;
use crate::flows::actor::Phase;
use crate::flows::group::GroupKey;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use nf::{Affinity, Prefix};
use protocols::ownership::{Finished, Input, Ownership, RuntimeId};
use wire::{FlowKey, planted};

/// Which flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// All.
    All,
    /// Of all groups one in so many, by their hashes.
    OneIn(u16),
    /// The one with this key, its first or its second.
    Flow(FlowKey),
    /// Those with an end in this prefix, before translation.
    Ends(Prefix),
}

/// An order to move flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
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
    /// It names this runtime, or one that is not there.
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

/// What came of an order so far. Times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Flows of all groups that have begun to move, without those that ended before they were sent.
    pub asked: u64,
    /// Flows that are at the target.
    pub moved: u64,
    /// Flows whose groups the target did not take, nor another to whom they were offered then.
    pub refused: u64,
    /// Flows whose groups did not move to a target, so that they were offered to another; what came of that is in the other figures.
    pub offered_again: u64,
    /// Flows whose groups were called back, or could not begin to move: nobody was there to take them.
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
    /// The longest time from the first home's being told to the target's word that the group is installed; by the source's clock.
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

/// In [`Moving::order`]: of nobody's here.
pub(super) const NONE: u32 = u32::MAX;

/// Runtimes to which a group was offered, a bit each: there are 64 at most.
pub(super) type Tried = u64;

fn tried(runtime: u16) -> Tried {
    1_u64.checked_shl(runtime.into()).unwrap_or(0)
}

struct Ordered {
    number: u32,
    to: Vec<u16>,
    next: usize,
    /// Who else may be offered what one of those refuses.
    others: Vec<u16>,
    next_other: usize,
    /// Targets to which something did not move.
    refusers: Vec<u16>,
    waiting: VecDeque<GroupKey>,
    /// Groups that did not move, to which runtime they are offered now, and those to which they were. They begin first.
    again: VecDeque<(GroupKey, u16, Tried)>,
    /// Flows of groups that may still begin; the most that there can be where all may.
    left: u32,
    /// Nothing more of it begins.
    is_canceled: bool,
    selector: Selector,
    /// Places still to be looked at.
    unseen: core::ops::Range<u32>,
    began: u64,
    pauses: Vec<u64>,
    receipt: Receipt,
}

impl Ordered {
    /// How many groups have not begun.
    fn unbegun(&self) -> usize {
        self.waiting.len() + self.again.len()
    }

    /// Takes flows from those that may still begin, if there are so many.
    fn take_of_count(&mut self, flows: usize) -> bool {
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
    fn give_to_count(&mut self, flows: usize) {
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
pub(super) struct Orders {
    all: Vec<Ordered>,
    count: u32,
    waiting: usize,
    under_way: usize,
    /// Flows of groups that are.
    flows: usize,
}

/// Groups, or flows, that an order looks at in a step.
const LOOKS: u32 = 4096;

/// Orders that are under way at most; those that are over are kept as long as there is room.
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
        if let Some(ordered) = self.find(number) {
            ordered.pauses.push(pause);
        }
    }
}

impl<P: Port> Runtime<P> {
    /// Begins to move flows; the number under which [`Runtime::receipt`] tells how it goes.
    pub fn order(&mut self, order: Order) -> Result<u32, OrderError> {
        self.order_with(order, &[])
    }

    /// The same; what does not move to its targets may be offered to these, too, as far as they are there then.
    pub fn order_with(&mut self, order: Order, others: &[u16]) -> Result<u32, OrderError> {
        self.order_some(order, others, u32::MAX)
    }

    /// The same, of no more than so many flows. Groups move whole: one that has more flows than are left of that stays.
    pub fn order_some(&mut self, order: Order, others: &[u16], count: u32) -> Result<u32, OrderError> {
        if order.to.is_empty() {
            return Err(OrderError::Nowhere);
        }
        let peers = &self.moves.peers;
        for to in &order.to {
            if !matches!(peers.get(usize::from(*to)), Some(Some(link)) if link.session() != 0) {
                return Err(OrderError::NoSuchRuntime(*to));
            }
        }
        if self.settings.switches > protocols::ownership::Switches::MAX {
            return Err(OrderError::TooManySwitches);
        }
        let all = &mut self.moves.orders.all;
        if all.len() == KEPT {
            let oldest = all.iter().position(|ordered| ordered.receipt.is_over);
            all.remove(oldest.ok_or(OrderError::TooMany)?);
        }
        let (mut waiting, mut unseen) = (VecDeque::new(), 0..0);
        match &order.selector {
            Selector::Flow(key) => waiting.extend(self.group_of_key(key)),
            _ if self.flows.affinity() == Affinity::Flow => unseen = 0..self.flows.used(),
            _ => unseen = 0..self.flows.groups().used(),
        }
        let orders = &mut self.moves.orders;
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
            began: self.now,
            pauses: Vec::new(),
            receipt: Receipt::default(),
        });
        self.go_on_selecting();
        self.see_whether_over(number);
        Ok(number)
    }

    /// Takes back what has not begun of an order, if there is such an order.
    pub fn cancel(&mut self, number: u32) {
        let Some(ordered) = self.moves.orders.find(number) else {
            return;
        };
        let count = ordered.cancel();
        ordered.receipt.canceled += count as u64;
        self.moves.orders.waiting -= count;
        self.see_whether_over(number);
    }

    /// What has come of an order; `None` if it is long over.
    pub fn receipt(&mut self, number: u32) -> Option<Receipt> {
        let ordered = self.moves.orders.find(number)?;
        ordered.pauses.sort_unstable();
        let receipt = &mut ordered.receipt;
        receipt.waiting = (ordered.waiting.len() + ordered.again.len()) as u64;
        receipt.pause_longest = ordered.pauses.last().copied().unwrap_or(0);
        receipt.pause_median = ordered.pauses.get(ordered.pauses.len() / 2).copied().unwrap_or(0);
        Some(receipt.clone())
    }

    /// Whether an order is over; one that is forgotten is.
    pub fn is_over(&mut self, number: u32) -> bool {
        let ordered = self.moves.orders.find(number);
        ordered.is_none_or(|ordered| ordered.receipt.is_over)
    }

    fn group_of_key(&self, key: &FlowKey) -> Option<GroupKey> {
        let found = self.flows.find(key);
        found.map(|value| self.flows.group_key(value >> 1))
    }

    /// Goes on with the selections of orders; answers how many places were looked at.
    pub(super) fn go_on_selecting(&mut self) -> usize {
        let mut count = 0;
        for at in 0..self.moves.orders.all.len() {
            let ordered = &mut self.moves.orders.all[at];
            let unseen = core::mem::take(&mut ordered.unseen);
            if unseen.is_empty() {
                continue;
            }
            let number = ordered.number;
            let end = unseen.end.min(unseen.start + LOOKS);
            let selector = core::mem::replace(&mut ordered.selector, Selector::All);
            let mut found = core::mem::take(&mut ordered.waiting);
            let before = found.len();
            let places = unseen.start..end;
            count += places.len();
            match self.flows.affinity() {
                Affinity::Flow => self.select_flows(&selector, places, &mut found),
                _ => self.select_groups(&selector, places, &mut found),
            }
            let orders = &mut self.moves.orders;
            orders.waiting += found.len() - before;
            let ordered = &mut orders.all[at];
            (ordered.waiting, ordered.selector) = (found, selector);
            ordered.unseen = end..unseen.end;
            self.see_whether_over(number);
        }
        count
    }

    /// Selects among groups, by their places: none that has no flow yet but those that arrive.
    fn select_groups(&self, selector: &Selector, places: Range<u32>, found: &mut VecDeque<GroupKey>) {
        for place in places {
            let Some(group) = self.flows.groups().at_place(place) else {
                continue;
            };
            let is_meant = match selector {
                Selector::Ends(prefix) => self
                    .flows
                    .groups()
                    .members(place)
                    .any(|actor| self.is_within(actor, prefix)),
                selector => self.is_chosen(selector, &group),
            };
            if is_meant {
                found.push_back(group);
            }
        }
    }

    /// Selects among flows that are by themselves.
    fn select_flows(&self, selector: &Selector, places: Range<u32>, found: &mut VecDeque<GroupKey>) {
        for actor in places {
            // Headers are further apart than the processor looks ahead by itself.
            self.flows.prefetch_header(actor + 2 * AHEAD as u32);
            let header = self.flows.header(actor);
            if !matches!(header.phase, Phase::Active | Phase::Waiting) {
                continue;
            }
            let group = GroupKey::of_flow(header.key);
            let is_meant = match selector {
                Selector::Ends(prefix) => self.is_within(actor, prefix),
                selector => self.is_chosen(selector, &group),
            };
            if is_meant {
                found.push_back(group);
            }
        }
    }

    fn is_within(&self, actor: u32, prefix: &Prefix) -> bool {
        let key = &self.flows.header(actor).key;
        prefix.contains(key.first().addr) || prefix.contains(key.second().addr)
    }

    /// Whether a selector that looks at no flow names a group.
    fn is_chosen(&self, selector: &Selector, group: &GroupKey) -> bool {
        match selector {
            // By other bits than those that tables and switches go by.
            Selector::OneIn(many) => {
                (group.hash(&self.settings.seed) >> 16 & 0xffff).is_multiple_of(u64::from((*many).max(1)))
            }
            _ => true,
        }
    }

    /// Sends the next groups on their way, if half of those that may be have arrived; answers how many.
    pub(super) fn begin_moves(&mut self) -> usize {
        if self.is_changing() || self.sessions.is_telling() || !self.moves.answers.is_empty() {
            return 0;
        }
        let (most, flows_max) = (
            self.settings.moves_max as usize,
            self.settings.moved_flows_max as usize,
        );
        let orders = &self.moves.orders;
        if orders.waiting == 0 || orders.under_way > most / 2 || orders.flows > flows_max / 2 {
            return 0;
        }
        let mut flows = orders.flows;
        self.prefetch_waiting();
        let mut batch = Vec::new();
        let mut left_out = 0;
        for at in 0..self.moves.orders.all.len() {
            while self.moves.orders.under_way + batch.len() < most && flows < flows_max {
                let ordered = &mut self.moves.orders.all[at];
                let (group, to, before) = if let Some(again) = ordered.again.pop_front() {
                    again
                } else if let Some(group) = ordered.waiting.pop_front() {
                    if !ordered.take_of_count(self.flows.count_of(group)) {
                        left_out += 1;
                        continue;
                    }
                    let to = ordered.to[ordered.next % ordered.to.len()];
                    ordered.next += 1;
                    (group, to, 0)
                } else {
                    break;
                };
                // Each before the first begins: an order is not over while any of them may.
                ordered.receipt.under_way += 1;
                flows += self.flows.count_of(group);
                batch.push((group, to, before, at));
            }
        }
        self.moves.orders.waiting -= batch.len() + left_out;
        if left_out > 0 {
            let numbers: Vec<u32> = self
                .moves
                .orders
                .all
                .iter()
                .map(|ordered| ordered.number)
                .collect();
            numbers
                .into_iter()
                .for_each(|number| self.see_whether_over(number));
        }
        self.moves.orders.under_way += batch.len();
        let count = batch.len();
        for (group, to, before, at) in batch {
            let actors = self.flows_of(group);
            let order = self.moves.orders.all[at].number;
            if self.has_room_to_begin(actors.len()) {
                self.begin_move(group, (to, before), order, actors);
                continue;
            }
            // Words about so many second keys have to wait for buffers.
            let orders = &mut self.moves.orders;
            orders.under_way -= 1;
            orders.all[at].receipt.under_way -= 1;
            orders.waiting += 1;
            match before {
                0 => {
                    orders.all[at].give_to_count(actors.len());
                    orders.all[at].waiting.push_back(group);
                }
                before => orders.all[at].again.push_back((group, to, before)),
            }
        }
        count
    }

    /// Whether there are buffers for whatever is said of a group of so many flows; for more than half of them there always are.
    fn has_room_to_begin(&self, flows: usize) -> bool {
        let words = 2 + flows * (1 + usize::from(self.settings.switches)) / 10;
        self.pool.free() > self.message_frames() + words.min(self.pool.total() / 2)
    }

    fn begin_move(&mut self, group: GroupKey, (to, before): (u16, Tried), order: u32, actors: Vec<u32>) {
        let hash = group.hash(&self.settings.seed);
        if actors.is_empty() || self.moves.at(hash).is_some() {
            // Over, or on its way already by another order.
            return self.leave_order(order);
        }
        // Where nobody is there any more to hear of it, another may take it.
        let other = match self.is_there(to) {
            true => Some((to, before)),
            false => {
                let before = before | tried(to);
                self.another(order, before).map(|other| (other, before))
            }
        };
        let Some((to, before)) = other else {
            if let Some(receipt) = self.moves.orders.receipt(order) {
                receipt.asked += actors.len() as u64;
                receipt.failed += actors.len() as u64;
            }
            return self.leave_order(order);
        };
        let aliases = self.flows.announced_keys(&actors);
        let homes = self.homes(&group, &aliases);
        let machine = Ownership::active(self.me(), self.moves.clock, homes, self.all_switches());
        self.moves.clock = self.moves.clock.next();
        if let Some(receipt) = self.moves.orders.receipt(order) {
            receipt.asked += actors.len() as u64;
        }
        let deadline = self.moving_time().saturating_add(self.settings.move_timeout);
        let weight = actors.len() as u32;
        self.moves.orders.flows += weight as usize;
        let id = self.moves.insert(
            hash,
            &self.settings.seed,
            Moving {
                actors,
                aliases,
                deadline,
                order,
                to,
                tried: before | tried(to),
                weight,
                ..Moving::new(machine, group)
            },
        );
        self.drive(id, Input::Move(RuntimeId(to)));
    }

    /// Whether somebody is at the other end of the link to a runtime.
    fn is_there(&self, runtime: u16) -> bool {
        let link = self.moves.peers.get(usize::from(runtime));
        matches!(link, Some(Some(link)) if link.session() != 0)
    }

    /// Which other runtime may take a group of an order that was offered to some: in turn, those first to which all of it moved.
    fn another(&mut self, order: u32, before: Tried) -> Option<u16> {
        let ordered = self.moves.orders.find(order)?;
        let (next, count) = (ordered.next_other, ordered.others.len());
        ordered.next_other += 1;
        let others = core::mem::take(&mut ordered.others);
        let refusers = core::mem::take(&mut ordered.refusers);
        let in_turn = (0..count).map(|at| others[(next + at) % count]);
        let takes = |to: &u16| {
            before & tried(*to) == 0
                && *to != self.settings.info.runtime
                && self.is_there(*to)
                && !self.sessions.is_runtime_leaving(*to)
        };
        let found = in_turn.filter(takes).min_by_key(|to| refusers.contains(to));
        if let Some(ordered) = self.moves.orders.find(order) {
            (ordered.others, ordered.refusers) = (others, refusers);
        }
        found
    }

    /// A group did not move: it waits to be offered to another, if it may be.
    pub(super) fn offer_again(&mut self, id: u32) -> bool {
        let Some(moving) = self.moves.moving(id) else {
            return false;
        };
        let (order, group, flows) = (moving.order, moving.group, moving.actors.len() as u64);
        let (refuser, before) = (moving.to, moving.tried);
        let Some(ordered) = self.moves.orders.find(order) else {
            return false;
        };
        if !ordered.refusers.contains(&refuser) {
            ordered.refusers.push(refuser);
        }
        if ordered.is_canceled {
            return false;
        }
        let Some(to) = self.another(order, before) else {
            return false;
        };
        if let Some(ordered) = self.moves.orders.find(order) {
            ordered.again.push_back((group, to, before));
            let receipt = &mut ordered.receipt;
            // They are asked when they begin again.
            receipt.asked -= flows;
            receipt.offered_again += flows;
            self.moves.orders.waiting += 1;
        }
        self.leave_order(order);
        true
    }

    /// A move of an order is over, one way or another.
    pub(super) fn note_finished(&mut self, order: u32, flows: u64, how: Finished) {
        if let Some(receipt) = self.moves.orders.receipt(order) {
            match how {
                Finished::Moved => receipt.moved += flows,
                Finished::Refused(_) => receipt.refused += flows,
                Finished::Aborted if planted::is("flows_counted_twice") => receipt.failed += 2 * flows,
                Finished::Aborted => receipt.failed += flows,
            }
        }
        self.leave_order(order);
    }

    /// A group of an order is on its way no more, or was not to be.
    fn leave_order(&mut self, order: u32) {
        let orders = &mut self.moves.orders;
        orders.under_way -= 1;
        if let Some(receipt) = orders.receipt(order) {
            receipt.under_way -= 1;
        }
        self.see_whether_over(order);
    }

    fn see_whether_over(&mut self, order: u32) {
        let now = self.now;
        if let Some(ordered) = self.moves.orders.find(order)
            && ordered.unbegun() == 0
            && ordered.unseen.is_empty()
            && ordered.receipt.under_way == 0
        {
            ordered.receipt.is_over = true;
            ordered.receipt.duration = now.saturating_sub(ordered.began);
        }
    }
}
