//! Affinity groups: flows that are together because they share state.
//!
//! A group is known by a [`GroupKey`]: of an inside host, of an outside one, or, where flows are by
//! themselves, the flow's own key. The switch routes groups, a runtime keeps their state, and both
//! compute the key by [`Affinity`] and the packet alone, with one exception: a packet from outside
//! to a translated address says nothing of the inside host, so
//! [`BlockOwners`](crate::owners::BlockOwners) remembers which group owns which block of external
//! ports.
//!
//! A group begins with its first flow. It ends with its last, or rests behind that for as long as
//! its functions say ([`super::resting`]); its state is then handed to each function's
//! `group_ended`, which releases the blocks. Its record names its latest flow, and each flow the
//! one before and the one behind it:
//!
//! ```text
//!   record: key, count, latest ──► actor 7 ◄──► actor 3 ◄──► actor 12
//! ```
//!
//! The links lie in an array of their own, eight bytes a flow: a list that passed through the
//! actors' own lines would cost two cache misses for each flow that begins or ends.
//!
//! Invariants: a group's flow count is the length of its list, which has each actor that names the
//! group, once.

use crate::flows::resting::Resting;
use crate::flows::table::Table;
use alloc::vec::Vec;
use core::ptr::NonNull;
use nf::{Addr, Affinity, Endpoint, Prefix, Side};
use wire::memory::{Region, prefetch};
use wire::packet::flag;
use wire::{FlowKey, HashSeed, Packet, planted};

/// The name of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct GroupKey(FlowKey);

/// In a group key's version byte, where a flow key has 4 or 6.
const ADDRESS: u64 = 0x10;
const ENDPOINT: u64 = 0x11;

impl GroupKey {
    /// A flow that is its own group.
    #[inline]
    pub fn of_flow(key: FlowKey) -> Self {
        GroupKey(key)
    }

    /// All flows of an address.
    pub fn of_address(addr: Addr) -> Self {
        let [high, low] = halves(addr);
        GroupKey(FlowKey::from_words([ADDRESS, high, low, 0, 0]))
    }

    /// All flows of an address and port.
    pub fn of_endpoint(end: Endpoint, protocol: u8) -> Self {
        let [high, low] = halves(end.addr);
        let word0 = ENDPOINT | u64::from(protocol) << 8 | u64::from(end.port) << 32;
        GroupKey(FlowKey::from_words([word0, high, low, 0, 0]))
    }

    /// A key from its words, as a message carries them.
    pub fn from_words(words: [u64; 5]) -> Self {
        GroupKey(FlowKey::from_words(words))
    }

    /// The words.
    pub fn words(&self) -> &[u64; 5] {
        self.0.words()
    }

    /// The address of a group that is all flows of one.
    pub fn address(&self) -> Option<Addr> {
        let words = self.0.words();
        (words[0] == ADDRESS)
            .then(|| Addr::v6((u128::from(words[1]) << 64 | u128::from(words[2])).to_be_bytes()))
    }

    /// Whether this group is all flows of an address in a prefix, or of an end with one.
    pub fn is_within(&self, prefix: &Prefix) -> bool {
        let [kind, high, low, ..] = *self.0.words();
        let addr = Addr::v6((u128::from(high) << 64 | u128::from(low)).to_be_bytes());
        [ADDRESS, ENDPOINT].contains(&(kind & 0xff)) && prefix.contains(addr)
    }

    /// Whether this is a flow's reply key announced as a group of its own, where groups are
    /// coarser than flows.
    pub fn is_reply_key(&self, affinity: Affinity) -> bool {
        affinity != Affinity::Flow
            && self.0.words()[0] as u8 != ADDRESS as u8
            && self.0.words()[0] as u8 != ENDPOINT as u8
    }

    /// The group of a flow between two inside hosts: neither direction says which host opened it,
    /// so it is the one whose endpoint is the smaller, whichever host sends.
    pub fn between(affinity: Affinity, key: FlowKey) -> Self {
        match affinity {
            Affinity::Flow => GroupKey::of_flow(key),
            Affinity::InsideEndpoint => GroupKey::of_endpoint(key.first(), key.protocol()),
            _ => GroupKey::of_address(key.first().addr),
        }
    }

    /// The flow's own key, of a group that is a flow or a reply key.
    pub fn flow(&self) -> FlowKey {
        self.0
    }

    /// The hash that routes and tables use.
    #[inline]
    pub fn hash(&self, seed: &HashSeed) -> u64 {
        self.0.hash(seed)
    }

    /// The group of a flow that `packet` belongs to or opens. `owner` answers which group has an
    /// outside endpoint of ours.
    #[inline]
    pub fn of(
        affinity: Affinity,
        packet: &Packet,
        key: FlowKey,
        owner: impl FnOnce(Endpoint, u8) -> Option<GroupKey>,
    ) -> GroupKey {
        if affinity == Affinity::Flow {
            return GroupKey::of_flow(key);
        }
        // Most packets that open a flow come from inside, and their source says it all.
        if affinity == Affinity::InsideAddress
            && packet.side() == Side::Inside
            && !packet.has(flag::ICMP_ERROR | flag::INSIDE_TO_INSIDE)
        {
            return GroupKey::of_address(packet.source_addr());
        }
        if packet.has(flag::INSIDE_TO_INSIDE) {
            return GroupKey::between(affinity, key);
        }
        // An ICMP error belongs where the packet it quotes belongs: seen from the error, that one's
        // ends are swapped. Its protocol is the quoted one's, too: an endpoint of a static mapping
        // has an owner for one protocol only.
        let quoted = wire::parse::quoted(packet).filter(|_| !planted::is("error_goes_by_its_own_ends"));
        let (near, far, protocol) = match quoted {
            Some(quoted) => (quoted.destination, quoted.source, quoted.protocol),
            None => (packet.source(), packet.destination(), packet.protocol()),
        };
        let (inside, outside) = match packet.side() {
            Side::Inside => (near, far),
            Side::Outside => (far, near),
        };
        if affinity == Affinity::OutsideAddress {
            return GroupKey::of_address(outside.addr);
        }
        if packet.side() == Side::Outside
            && let Some(group) = owner(inside, protocol)
        {
            return group;
        }
        if packet.side() == Side::Outside && packet.version() == 6 && planted::is("answer_over_v6_elsewhere")
        {
            return GroupKey::of_address(outside.addr);
        }
        match affinity {
            Affinity::InsideEndpoint => GroupKey::of_endpoint(inside, protocol),
            _ => GroupKey::of_address(inside.addr),
        }
    }
}

fn halves(addr: Addr) -> [u64; 2] {
    let whole = u128::from_be_bytes(*addr.octets());
    [(whole >> 64) as u64, whole as u64]
}

/// A hash table of so much capacity never grows while it has at most `entries`, whatever comes and
/// goes: it clears away what removed ones left behind in place, as long as it is no more than half
/// full.
pub(crate) fn room_for(entries: usize) -> usize {
    2 * entries
}

/// A group's bookkeeping, in front of its state.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Entry {
    key: GroupKey,
    flows: u32,
    /// The flow that joined last.
    latest: u32,
}

/// The neighbours of a flow in its group's list.
#[derive(Clone, Copy)]
struct Member {
    /// The flow that joined before it.
    before: u32,
    /// The flow that joined behind it.
    behind: u32,
}

impl Member {
    const ALONE: Member = Member {
        before: NO_FLOW,
        behind: NO_FLOW,
    };
}

/// In [`Entry`] and [`Member`]: no actor.
const NO_FLOW: u32 = u32::MAX;

/// The groups of one runtime, with their functions' state.
///
/// A group's place is one or more cache lines: its entry, then the state of all functions. The
/// index is the same kind of table as the flows', so that both can be fetched ahead for a burst of
/// new flows.
pub struct Groups {
    index: Table,
    free: Vec<u32>,
    /// Places never used yet begin here.
    unused: u32,
    stride: usize,
    capacity: usize,
    /// By actor.
    members: Vec<Member>,
    resting: Resting,
    seed: HashSeed,
    region: Region,
}

impl Groups {
    fn stride(state: usize) -> usize {
        (size_of::<Entry>() + state).next_multiple_of(64)
    }

    /// Bytes of region for `capacity` groups of `state` bytes.
    pub fn region_length(capacity: usize, state: usize) -> usize {
        capacity * Self::stride(state)
    }

    /// Room for `capacity` groups of `state` bytes, which may rest in `resting`, and of actors
    /// below `actors`, in a region for the groups and one of [`Table::region_length`] for the
    /// index.
    pub fn new(
        region: Region,
        index: Region,
        capacity: usize,
        actors: usize,
        state: usize,
        resting: Resting,
        seed: HashSeed,
    ) -> Self {
        assert!(
            region.length() >= Self::region_length(capacity, state),
            "the region is too small for the groups"
        );
        Groups {
            index: Table::new(index, capacity),
            free: Vec::with_capacity(capacity),
            unused: 0,
            stride: Self::stride(state),
            capacity,
            members: alloc::vec![Member::ALONE; if capacity == 0 { 0 } else { actors }],
            resting,
            seed,
            region,
        }
    }

    #[inline]
    fn place(&self, index: u32) -> NonNull<u8> {
        assert!((index as usize) < self.capacity);
        // SAFETY: the index is below the capacity, so the offset is within the region.
        unsafe { self.region.start().add(index as usize * self.stride) }
    }

    #[inline]
    fn entry(&self, index: u32) -> &Entry {
        // SAFETY: a place begins with an entry, zeroed or written by `enter`; a pointer to a state
        // is none to the entry.
        unsafe { self.place(index).cast::<Entry>().as_ref() }
    }

    #[inline]
    fn entry_mut(&mut self, index: u32) -> &mut Entry {
        // SAFETY: as above; `&mut self` makes it the only reference.
        unsafe { self.place(index).cast::<Entry>().as_mut() }
    }

    /// The hash of a key in the index.
    #[inline]
    pub fn hash(&self, key: GroupKey) -> u64 {
        key.hash(&self.seed)
    }

    /// Asks the processor for the line that finding a key of this hash begins with.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Asks the processor for the group that has, by all likelihood, a key of this hash; or for the
    /// place it would get.
    #[inline]
    pub fn prefetch_candidate(&self, hash: u64) {
        let index = match self.index.candidate(hash) {
            Some(index) => index,
            None => self.free.last().copied().unwrap_or(self.unused),
        };
        if (index as usize) < self.capacity {
            self.prefetch_place(index);
        }
    }

    /// Asks the processor for the place that the group behind the next `count` new ones will get.
    pub fn prefetch_free(&self, count: usize) {
        let at = self.free.len().checked_sub(count + 1);
        if let Some(index) = at.and_then(|at| self.free.get(at)) {
            self.prefetch_place(*index);
        }
    }

    fn prefetch_place(&self, index: u32) {
        let place = self.place(index).as_ptr();
        for line in 0..self.stride.min(256) / 64 {
            prefetch(place.wrapping_add(64 * line));
        }
    }

    fn find(&self, hash: u64, key: GroupKey) -> Option<u32> {
        self.index.find(hash, |index| self.entry(index).key == key)
    }

    /// The group of this key, made if need be; whether it is new; `None` if there is no room. A new
    /// group has a flow [joined](Groups::join) next, or is [abandoned](Groups::abandon).
    pub fn enter(&mut self, key: GroupKey) -> Option<(u32, bool)> {
        let hash = key.hash(&self.seed);
        if let Some(index) = self.find(hash, key) {
            return Some((index, false));
        }
        let index = match self.free.last() {
            Some(index) => *index,
            None if (self.unused as usize) < self.capacity => self.unused,
            None => return None,
        };
        self.index.insert(hash, index).ok()?;
        if self.free.pop().is_none() {
            self.unused += 1;
        }
        *self.entry_mut(index) = Entry {
            key,
            flows: 0,
            latest: NO_FLOW,
        };
        Some((index, true))
    }

    /// Forgets a group that has no flow and does not rest.
    pub fn abandon(&mut self, index: u32) {
        debug_assert_eq!(self.entry(index).flows, 0);
        self.forget(index);
    }

    fn forget(&mut self, index: u32) -> GroupKey {
        debug_assert!(self.resting.until(index).is_none(), "what rests is woken first");
        let key = self.entry(index).key;
        let removed = self.index.remove(key.hash(&self.seed), index);
        debug_assert!(removed, "a group is in the index");
        self.free.push(index);
        key
    }

    /// The group of this key.
    pub fn at(&self, key: GroupKey) -> Option<u32> {
        self.find(key.hash(&self.seed), key)
    }

    /// A group's state as bytes: it is plain data.
    pub fn state_bytes(&self, index: u32) -> &[u8] {
        let length = self.stride - size_of::<Entry>();
        // SAFETY: a place has room for an entry and the state; the region began zeroed, and states
        // are plain data.
        unsafe { core::slice::from_raw_parts(self.state(index).as_ptr(), length) }
    }

    /// How long that is.
    pub fn state_length(&self) -> usize {
        self.stride - size_of::<Entry>()
    }

    /// The same, to be written.
    pub fn state_bytes_mut(&mut self, index: u32) -> &mut [u8] {
        let length = self.stride - size_of::<Entry>();
        // SAFETY: as above, and `&mut self` makes it the only reference.
        unsafe { core::slice::from_raw_parts_mut(self.state(index).as_ptr(), length) }
    }

    /// A flow belongs to a group from now on.
    #[inline]
    pub fn join(&mut self, index: u32, actor: u32) {
        let entry = self.entry_mut(index);
        entry.flows += 1;
        let is_first = entry.flows == 1;
        let before = core::mem::replace(&mut entry.latest, actor);
        if is_first && !self.resting.is_empty() {
            self.resting.end(index);
        }
        self.set_member(
            actor,
            Member {
                before,
                behind: NO_FLOW,
            },
        );
        if let Some(member) = self.members.get_mut(before as usize) {
            member.behind = actor;
        }
    }

    #[inline]
    fn set_member(&mut self, actor: u32, member: Member) {
        if let Some(place) = self.members.get_mut(actor as usize) {
            *place = member;
        }
    }

    /// Asks the processor for the line that a flow's joining, or leaving, begins with.
    #[inline]
    pub fn prefetch_member(&self, actor: u32) {
        if let Some(member) = self.members.get(actor as usize) {
            prefetch(core::ptr::from_ref(member));
        }
    }

    /// The flows of a group, the latest first.
    pub fn members(&self, index: u32) -> impl Iterator<Item = u32> {
        let first = Some(self.entry(index).latest).filter(|actor| *actor != NO_FLOW);
        core::iter::successors(first, |actor| {
            let before = self.members.get(*actor as usize)?.before;
            (before != NO_FLOW).then_some(before)
        })
    }

    /// How many flows a group has.
    pub fn flows(&self, index: u32) -> u32 {
        self.entry(index).flows
    }

    /// Groups that were ever there have numbers below this one.
    pub fn used(&self) -> u32 {
        self.unused
    }

    /// How many more groups there may be.
    pub fn room(&self) -> usize {
        self.capacity - self.index.len()
    }

    /// Whether there is a group of this key.
    pub fn has(&self, key: GroupKey) -> bool {
        self.find(key.hash(&self.seed), key).is_some()
    }

    /// Whether this flow is the group's last.
    pub fn is_last(&self, index: u32) -> bool {
        self.entry(index).flows == 1
    }

    /// A flow leaves; with its last one the group is gone and its key is answered.
    pub fn leave(&mut self, index: u32, actor: u32) -> Option<GroupKey> {
        self.unlist(index, actor).then(|| self.forget(index))
    }

    /// A group's last flow leaves, and the group rests.
    pub fn leave_to_rest(&mut self, index: u32, actor: u32, until: u64) {
        let is_empty = self.unlist(index, actor);
        debug_assert!(is_empty, "a group that rests has no flow");
        self.resting.begin(index, until);
    }

    /// A group that was [entered](Groups::enter) rests, without a flow.
    pub fn rest(&mut self, index: u32, until: u64) {
        self.resting.begin(index, until);
    }

    /// Forgets a group that rests.
    pub fn forget_resting(&mut self, index: u32) -> GroupKey {
        self.resting.end(index);
        self.forget(index)
    }

    /// The groups that rest.
    pub fn resting(&self) -> &Resting {
        &self.resting
    }

    /// The same, to look for those whose time is over.
    pub fn resting_mut(&mut self) -> &mut Resting {
        &mut self.resting
    }

    /// Takes a flow off its group's list; whether that is empty now.
    fn unlist(&mut self, index: u32, actor: u32) -> bool {
        let Some(Member { before, behind }) = self.members.get(actor as usize).copied() else {
            debug_assert!(false, "an actor with a group is a member");
            return false;
        };
        self.set_member(actor, Member::ALONE);
        if let Some(member) = self.members.get_mut(before as usize) {
            member.behind = behind;
        }
        if let Some(member) = self.members.get_mut(behind as usize) {
            member.before = before;
        }
        let entry = self.entry_mut(index);
        if entry.latest == actor {
            entry.latest = before;
        }
        entry.flows -= 1;
        entry.flows == 0
    }

    /// The key of the group at a place, if there is one.
    pub fn at_place(&self, index: u32) -> Option<GroupKey> {
        let is_there =
            index < self.unused && (self.entry(index).flows > 0 || self.resting.until(index).is_some());
        is_there.then(|| self.key(index))
    }

    /// Places that groups have, or had.
    pub fn places(&self) -> u32 {
        self.unused
    }

    /// The key of a group.
    pub fn key(&self, index: u32) -> GroupKey {
        self.entry(index).key
    }

    /// Where a group's state begins. It stays valid as long as this lives.
    #[inline]
    pub fn state(&self, index: u32) -> NonNull<u8> {
        // SAFETY: a place has room for an entry and the state.
        unsafe { self.place(index).add(size_of::<Entry>()) }
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_begin_and_end_with_their_flows() {
        let (region, index) = (Groups::region_length(2, 8), Table::region_length(2));
        let mut groups = Groups::new(
            Region::heap(region),
            Region::heap(index),
            2,
            4,
            8,
            Resting::new(0, 0),
            HashSeed::FIXED,
        );
        let a = GroupKey::of_address("10.0.0.1".parse().unwrap());
        let b = GroupKey::of_address("10.0.0.2".parse().unwrap());
        let (ia, new) = groups.enter(a).unwrap();
        assert!(new);
        groups.join(ia, 0);
        assert_eq!(groups.enter(a), Some((ia, false)));
        groups.join(ia, 2);
        let (ib, _) = groups.enter(b).unwrap();
        groups.join(ib, 1);
        assert_eq!(
            groups.enter(GroupKey::of_address("10.0.0.3".parse().unwrap())),
            None
        );
        assert_eq!(groups.leave(ia, 0), None);
        assert!(groups.is_last(ia));
        assert_eq!(groups.leave(ia, 2), Some(a));
        assert_eq!(groups.leave(ib, 1), Some(b));
        assert!(groups.is_empty());
        let (ic, _) = groups.enter(a).unwrap();
        groups.abandon(ic);
        assert!(groups.is_empty());
    }

    proptest::proptest! {
        /// Flows come and go in any order: each group's list has its flows, the latest first.
        #[test]
        fn a_groups_list_has_its_flows(ops in proptest::collection::vec((0..3_u8, 0..12_u32), 0..200)) {
            let (region, index) = (Groups::region_length(3, 8), Table::region_length(3));
            let mut groups = Groups::new(Region::heap(region), Region::heap(index), 3, 12, 8, Resting::new(0, 0), HashSeed::FIXED);
            let mut model: std::vec::Vec<std::vec::Vec<u32>> = std::vec![std::vec::Vec::new(); 3];
            let key = |group: u8| GroupKey::of_address(Addr::v4([10, 0, 0, group]));
            for (group, actor) in ops {
                if let Some(has) = model.iter().position(|flows| flows.contains(&actor)) {
                    let index = groups.at(key(has as u8)).unwrap();
                    model[has].retain(|other| *other != actor);
                    let over = groups.leave(index, actor);
                    proptest::prop_assert_eq!(over.is_some(), model[has].is_empty());
                } else {
                    let (index, is_new) = groups.enter(key(group)).unwrap();
                    proptest::prop_assert_eq!(is_new, model[usize::from(group)].is_empty());
                    groups.join(index, actor);
                    model[usize::from(group)].insert(0, actor);
                }
                for (group, flows) in model.iter().enumerate() {
                    let index = groups.at(key(group as u8)).into_iter();
                    let members: std::vec::Vec<_> = index.flat_map(|index| groups.members(index)).collect();
                    proptest::prop_assert_eq!(&members, flows);
                }
            }
        }
    }

    #[test]
    fn an_icmp_error_belongs_with_the_packet_it_quotes() {
        let mut quoted = std::vec::Vec::new();
        etherparse::PacketBuilder::ipv4([203, 0, 113, 1], [192, 0, 2, 9], 64)
            .udp(8080, 53)
            .write(&mut quoted, b"")
            .unwrap();
        let mut frame = std::vec::Vec::new();
        etherparse::PacketBuilder::ipv4([198, 51, 100, 1], [203, 0, 113, 1], 64)
            .icmpv4_raw(3, 3, [0; 4])
            .write(&mut frame, &quoted)
            .unwrap();
        let mut pool = wire::Pool::new(Region::heap(wire::Pool::region_length(1, 256)), 1, 256, 0);
        let mut packet = pool.take().unwrap();
        assert!(packet.set_frame(&frame, wire::LinkType::Raw));
        packet.set_side(Side::Outside);
        wire::parse(&mut packet).unwrap();
        let (key, _) = FlowKey::of(&packet).unwrap();
        let host = GroupKey::of_address("10.0.0.1".parse().unwrap());
        // The host has the endpoint for UDP.
        let owner = |end: Endpoint, protocol| {
            (end == "203.0.113.1:8080".parse().unwrap() && protocol == wire::protocol::UDP).then_some(host)
        };
        assert_eq!(GroupKey::of(Affinity::InsideAddress, &packet, key, owner), host);
        pool.give(packet);
    }
}
