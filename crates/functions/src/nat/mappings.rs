//! The mappings of one instance: which external endpoint stands for which inside endpoint, and for
//! how many flows.
//!
//! Theory of operation. A mapping is made by the first flow that needs it and goes with the last.
//! It is found two ways: by its inside endpoint, protocol and VLAN (and the remote end, for
//! address-and-port-dependent mapping) when a flow opens from inside, and by its external endpoint
//! and protocol when one opens from outside. Both are chains through the entries from an array of
//! heads, so that removing leaves no tombstones and nothing is ever rehashed.
//!
//! For address-dependent filtering a mapping also knows the remote addresses of its flows. The
//! first is kept in the entry (most mappings have one flow), the others in a second table with use
//! counts:
//!
//! ```text
//!   10.0.0.1:5000 udp ──► mapping 9: 203.0.113.1:1733, 3 flows, peer 198.51.100.7 × 2
//!                                    peers: (9, 192.0.2.8) × 1
//! ```
//!
//! The other two filterings need no table. Endpoint-independent filtering lets every sender in that
//! meets a mapping. With address-and-port-dependent filtering an allowed sender *is* the remote end
//! of an existing flow, so a packet that opens a flow from outside is never allowed.
//!
//! New flows come in bursts, and every line of these tables that one touches is a cache miss. So
//! the worker announces opening packets ahead ([`Mappings::prefetch`]), entries to be used next are
//! fetched when one is taken, and a new mapping is put into its outside chain a little later, when
//! the chain's head has arrived: until then it is *pending*. A look-up by an outside endpoint, or a
//! removal, sees to the pending ones first.
//!
//! Invariants (checked in `tests` against an oracle): the number of uses is the number of
//! translated flows with that external endpoint; the peers' counts add up to it; entries are in
//! exactly the chains of their keys. Everything here can be made again from the flow states.
//!
//! Memory is bounded and taken at the start. Source: RFC 4787 4 and 5, RFC 5382 4.
//!
//! Not here: which ports are free (`ports`); static mappings (`config`).

use super::alloc::vec;
use super::alloc::vec::Vec;
use super::state::V4Endpoint;
use wire::memory::prefetch;
use wire::{FlowKey, HashSeed};

/// One mapping, a cache line. Handles count from 1; 0 is none.
#[derive(Clone, Copy, Default, Debug)]
#[repr(align(64))]
pub(super) struct Mapping {
    pub inside: V4Endpoint,
    pub outside: V4Endpoint,
    /// Part of the inside key with address-and-port-dependent mapping, else zero.
    pub remote: V4Endpoint,
    pub vlan: u16,
    pub protocol: u8,
    /// Whether it is in the inside chains. A mapping made again from a flow that opened from
    /// outside may not know its key.
    pub indexed: bool,
    pub uses: u32,
    next_inside: u32,
    next_outside: u32,
    peer: [u8; 4],
    peer_uses: u32,
}

impl Mapping {
    /// A mapping without uses.
    pub fn new(inside: V4Endpoint, outside: V4Endpoint, protocol: u8, vlan: u16) -> Self {
        Mapping {
            inside,
            outside,
            vlan,
            protocol,
            ..Mapping::default()
        }
    }
}

/// The hash of an inside endpoint (and remote end) that has no mapping.
pub(super) struct InsideHash(u64);

/// Where a mapping is findable by its outside.
pub(super) struct OutsideHash(u64);

/// A remote address beside [`Mapping::peer`].
#[derive(Clone, Copy, Default)]
struct Peer {
    mapping: u32,
    addr: [u8; 4],
    uses: u32,
    next: u32,
}

/// Heads of chains, by hash.
struct Heads {
    heads: Vec<u32>,
    mask: u64,
}

impl Heads {
    fn new(capacity: usize) -> Self {
        // Twice as many heads as entries: a new mapping is looked for in vain first, and each entry
        // on that way is a cache miss.
        let count = (2 * capacity).next_power_of_two();
        Heads {
            heads: vec![0; count],
            mask: count as u64 - 1,
        }
    }

    fn at(&mut self, hash: u64) -> &mut u32 {
        &mut self.heads[(hash & self.mask) as usize]
    }

    fn first(&self, hash: u64) -> u32 {
        self.heads[(hash & self.mask) as usize]
    }

    fn prefetch(&self, hash: u64) {
        prefetch(&raw const self.heads[(hash & self.mask) as usize]);
    }
}

/// Mappings that may be pending at once: as many as a burst has packets.
const PENDING_MAX: usize = 32;
/// How many entries ahead of the one taken are fetched.
const AHEAD: usize = 4;

/// How many moving flows later the entries that a flow's chains begin with are fetched: their heads
/// have come by then.
const BEHIND: usize = 4;

/// The tables. See the module's page.
pub(super) struct Mappings {
    entries: Vec<Mapping>,
    free: Vec<u32>,
    count: usize,
    capacity: usize,
    inside: Heads,
    outside: Heads,
    /// Handles and hashes of mappings that are not yet in their outside chains.
    pending: Vec<(u32, u64)>,
    peers: Option<Peers>,
    seed: HashSeed,
    /// Hashes of outside and inside of the last flows that [`Mappings::prefetch_moving`] was asked
    /// for, and where the next goes.
    moving: ([[u64; 2]; BEHIND], usize),
}

impl Mappings {
    /// Room for `capacity` mappings and, with `peers`, for that many remote addresses.
    pub fn new(capacity: usize, peers: Option<usize>, seed: HashSeed) -> Self {
        let mut entries = Vec::with_capacity(capacity + 1);
        // Number 0 is never used: a zero handle is no mapping.
        entries.push(Mapping::default());
        Mappings {
            entries,
            free: Vec::with_capacity(capacity),
            count: 0,
            capacity,
            inside: Heads::new(capacity),
            outside: Heads::new(capacity),
            pending: Vec::with_capacity(PENDING_MAX),
            peers: peers.map(Peers::new),
            seed,
            moving: ([[0; 2]; BEHIND], 0),
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether there is room for one more flow: for its mapping, if that is new, and for its remote
    /// address.
    pub fn has_room(&self, new: bool) -> bool {
        (!new || self.count < self.capacity) && self.peers.as_ref().is_none_or(|p| p.count < p.capacity)
    }

    /// The mapping with this handle.
    pub fn at(&self, handle: u32) -> &Mapping {
        &self.entries[handle as usize]
    }

    fn inside_hash(&self, inside: V4Endpoint, remote: V4Endpoint, protocol: u8, vlan: u16) -> u64 {
        let word0 = u64::from(inside.port) << 48
            | u64::from(remote.port) << 32
            | u64::from(vlan) << 16
            | u64::from(protocol) << 8
            | 4;
        let word1 = u64::from(inside.number()) << 32 | u64::from(remote.number());
        FlowKey::from_words([word0, word1, 0, 0, 0]).hash(&self.seed)
    }

    fn outside_hash(&self, outside: V4Endpoint, protocol: u8) -> u64 {
        self.inside_hash(outside, V4Endpoint::default(), protocol, 0)
    }

    /// Fetches what [`Mappings::by_inside`] will look at first.
    pub fn prefetch(&self, inside: V4Endpoint, remote: V4Endpoint, protocol: u8, vlan: u16) {
        self.inside
            .prefetch(self.inside_hash(inside, remote, protocol, vlan));
    }

    /// Fetches what a flow that arrives or leaves will look at: the heads of its mapping's chains,
    /// and, a few flows later, the entries that those name. With as many mappings as there is room
    /// for, a third of the chains begins with another's.
    pub fn prefetch_moving(
        &mut self,
        inside: V4Endpoint,
        outside: V4Endpoint,
        remote: V4Endpoint,
        protocol: u8,
        vlan: u16,
    ) {
        let hashes = [
            self.outside_hash(outside, protocol),
            self.inside_hash(inside, remote, protocol, vlan),
        ];
        self.outside.prefetch(hashes[0]);
        self.inside.prefetch(hashes[1]);
        let (last, at) = &mut self.moving;
        let [outside, inside] = core::mem::replace(&mut last[*at], hashes);
        *at = (*at + 1) % BEHIND;
        self.prefetch_entry(self.outside.first(outside));
        self.prefetch_entry(self.inside.first(inside));
    }

    /// Fetches a mapping.
    pub fn prefetch_entry(&self, handle: u32) {
        if let Some(entry) = self.entries.get(handle as usize) {
            prefetch(core::ptr::from_ref(entry));
        }
    }

    /// The mapping of an inside endpoint; `remote` is zero but for address-and-port-dependent
    /// mapping. Without one, the answer is where it would be findable ([`Mappings::index`]).
    pub fn by_inside(
        &self,
        inside: V4Endpoint,
        remote: V4Endpoint,
        protocol: u8,
        vlan: u16,
    ) -> Result<u32, InsideHash> {
        let hash = self.inside_hash(inside, remote, protocol, vlan);
        let mut handle = self.inside.first(hash);
        while handle != 0 {
            let m = self.at(handle);
            let is_it = m.inside == inside && m.remote == remote && m.protocol == protocol && m.vlan == vlan;
            if is_it && !wire::planted::is("mapping_not_found") {
                return Ok(handle);
            }
            handle = m.next_inside;
        }
        Err(InsideHash(hash))
    }

    /// The mapping of an external endpoint. Without one, the answer is where it would be findable
    /// ([`Mappings::insert_at`]).
    pub fn by_outside(&mut self, outside: V4Endpoint, protocol: u8) -> Result<u32, OutsideHash> {
        self.link_pending();
        let hash = self.outside_hash(outside, protocol);
        let mut handle = self.outside.first(hash);
        while handle != 0 {
            let m = self.at(handle);
            if m.outside == outside && m.protocol == protocol {
                return Ok(handle);
            }
            handle = m.next_outside;
        }
        Err(OutsideHash(hash))
    }

    /// Takes a mapping in, without uses; `None` if the table is full. [`Mappings::index`] makes it
    /// findable by its inside.
    pub fn insert(&mut self, mapping: Mapping) -> Option<u32> {
        let hash = self.outside_hash(mapping.outside, mapping.protocol);
        self.insert_at(mapping, OutsideHash(hash))
    }

    /// [`Mappings::insert`] for a mapping that was looked for by its outside.
    pub fn insert_at(&mut self, mapping: Mapping, OutsideHash(hash): OutsideHash) -> Option<u32> {
        if self.count >= self.capacity {
            return None;
        }
        if self.pending.len() == PENDING_MAX {
            self.link_pending();
        }
        self.outside.prefetch(hash);
        let entry = Mapping {
            indexed: false,
            uses: 0,
            peer_uses: 0,
            ..mapping
        };
        let handle = match self.free.pop() {
            Some(handle) => {
                if let Some(ahead) = self.free.len().checked_sub(AHEAD) {
                    prefetch(&raw const self.entries[self.free[ahead] as usize]);
                }
                self.entries[handle as usize] = entry;
                handle
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.pending.push((handle, hash));
        self.count += 1;
        Some(handle)
    }

    /// Puts new mappings into their outside chains.
    fn link_pending(&mut self) {
        for at in 0..self.pending.len() {
            let (handle, hash) = self.pending[at];
            let first = self.outside.at(hash);
            self.entries[handle as usize].next_outside = *first;
            *first = handle;
        }
        self.pending.clear();
    }

    /// Makes a mapping findable by its inside endpoint (and `remote`).
    pub fn index(&mut self, handle: u32, remote: V4Endpoint, InsideHash(hash): InsideHash) {
        let m = &mut self.entries[handle as usize];
        if m.indexed {
            return;
        }
        let first = self.inside.at(hash);
        (m.remote, m.next_inside, m.indexed) = (remote, *first, true);
        *first = handle;
    }

    /// Has a mapping not found by its inside endpoint any more; its flows keep it. Answers where
    /// another one would be findable.
    pub fn hide(&mut self, handle: u32) -> InsideHash {
        let m = *self.at(handle);
        if m.indexed {
            self.unindex(handle, &m);
            self.entries[handle as usize].indexed = false;
        }
        InsideHash(self.inside_hash(m.inside, m.remote, m.protocol, m.vlan))
    }

    /// [`Mappings::index`] for a mapping whose inside key has not been hashed by a look-up.
    pub fn hash_and_index(&mut self, handle: u32, remote: V4Endpoint) {
        let m = self.at(handle);
        let hash = self.inside_hash(m.inside, remote, m.protocol, m.vlan);
        self.index(handle, remote, InsideHash(hash));
    }

    /// One more flow with this remote end. The caller has seen that there is room.
    pub fn acquire(&mut self, handle: u32, remote: V4Endpoint) {
        let m = &mut self.entries[handle as usize];
        m.uses += 1;
        let Some(peers) = &mut self.peers else { return };
        if m.peer_uses == 0 || m.peer == remote.addr {
            m.peer = remote.addr;
            m.peer_uses += 1;
        } else {
            peers.acquire(handle, remote.addr, &self.seed);
        }
    }

    /// One flow less; the mapping itself if that was the last, which is gone then.
    pub fn release(&mut self, handle: u32, remote: V4Endpoint) -> Option<Mapping> {
        let m = &mut self.entries[handle as usize];
        debug_assert!(m.uses > 0, "a mapping is released once per flow");
        m.uses -= 1;
        let uses = m.uses;
        if let Some(peers) = &mut self.peers {
            // An address may be in both places, if the first one went before; the sum of both is
            // what counts.
            if m.peer_uses > 0 && m.peer == remote.addr {
                m.peer_uses -= 1;
            } else {
                peers.release(handle, remote.addr, &self.seed);
            }
        }
        (uses == 0).then(|| self.remove(handle))
    }

    /// Whether a flow of the mapping has this remote address.
    pub fn knows(&self, handle: u32, remote: [u8; 4]) -> bool {
        let m = self.at(handle);
        match &self.peers {
            Some(peers) => {
                m.peer_uses > 0 && m.peer == remote || peers.find(handle, remote, &self.seed).is_some()
            }
            None => false,
        }
    }

    fn remove(&mut self, handle: u32) -> Mapping {
        self.link_pending();
        let m = *self.at(handle);
        let hash = self.outside_hash(m.outside, m.protocol);
        let mut link = self.outside.first(hash);
        if link == handle {
            *self.outside.at(hash) = m.next_outside;
        } else {
            while self.at(link).next_outside != handle {
                link = self.at(link).next_outside;
            }
            self.entries[link as usize].next_outside = m.next_outside;
        }
        if m.indexed {
            self.unindex(handle, &m);
        }
        self.free.push(handle);
        self.count -= 1;
        m
    }

    fn unindex(&mut self, handle: u32, m: &Mapping) {
        let hash = self.inside_hash(m.inside, m.remote, m.protocol, m.vlan);
        let mut link = self.inside.first(hash);
        if link == handle {
            *self.inside.at(hash) = m.next_inside;
        } else {
            while self.at(link).next_inside != handle {
                link = self.at(link).next_inside;
            }
            self.entries[link as usize].next_inside = m.next_inside;
        }
    }

    /// Capacities of what could grow.
    #[cfg(test)]
    pub fn capacities(&self) -> Vec<usize> {
        vec![
            self.entries.capacity(),
            self.peers.as_ref().map_or(0, |p| p.entries.capacity()),
        ]
    }

    /// How many remote addresses are in the second table.
    #[cfg(test)]
    pub fn peers(&self) -> usize {
        self.peers.as_ref().map_or(0, |p| p.count)
    }
}

/// Remote addresses of mappings, beyond each one's first.
struct Peers {
    entries: Vec<Peer>,
    heads: Heads,
    free: u32,
    count: usize,
    capacity: usize,
}

impl Peers {
    fn new(capacity: usize) -> Self {
        let mut entries = Vec::with_capacity(capacity + 1);
        entries.push(Peer::default());
        Peers {
            entries,
            heads: Heads::new(capacity),
            free: 0,
            count: 0,
            capacity,
        }
    }

    fn hash(mapping: u32, addr: [u8; 4], seed: &HashSeed) -> u64 {
        let word1 = u64::from(mapping) << 32 | u64::from(u32::from_be_bytes(addr));
        FlowKey::from_words([4, word1, 0, 0, 0]).hash(seed)
    }

    fn find(&self, mapping: u32, addr: [u8; 4], seed: &HashSeed) -> Option<u32> {
        let mut at = self.heads.first(Self::hash(mapping, addr, seed));
        while at != 0 {
            let peer = &self.entries[at as usize];
            if peer.mapping == mapping && peer.addr == addr {
                return Some(at);
            }
            at = peer.next;
        }
        None
    }

    fn acquire(&mut self, mapping: u32, addr: [u8; 4], seed: &HashSeed) {
        if let Some(at) = self.find(mapping, addr, seed) {
            self.entries[at as usize].uses += 1;
            return;
        }
        debug_assert!(self.count < self.capacity);
        if self.count >= self.capacity {
            return;
        }
        let hash = Self::hash(mapping, addr, seed);
        let peer = Peer {
            mapping,
            addr,
            uses: 1,
            next: self.heads.first(hash),
        };
        let at = self.free;
        let at = if at != 0 {
            self.free = self.entries[at as usize].next;
            self.entries[at as usize] = peer;
            at
        } else {
            self.entries.push(peer);
            (self.entries.len() - 1) as u32
        };
        *self.heads.at(hash) = at;
        self.count += 1;
    }

    /// Takes one use away; `false` if the address is not here.
    fn release(&mut self, mapping: u32, addr: [u8; 4], seed: &HashSeed) -> bool {
        let Some(at) = self.find(mapping, addr, seed) else {
            return false;
        };
        self.entries[at as usize].uses -= 1;
        if self.entries[at as usize].uses > 0 {
            return true;
        }
        let (hash, next) = (Self::hash(mapping, addr, seed), self.entries[at as usize].next);
        let mut link = self.heads.first(hash);
        if link == at {
            *self.heads.at(hash) = next;
        } else {
            while self.entries[link as usize].next != at {
                link = self.entries[link as usize].next;
            }
            self.entries[link as usize].next = next;
        }
        self.entries[at as usize].next = self.free;
        self.free = at;
        self.count -= 1;
        true
    }
}
