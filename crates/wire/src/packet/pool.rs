//! Where a buffer is: boxes, lists of them, and the pool they come from and go home to.
//!
//! ```text
//!   Pool ── take ─► PacketBox ── ports, rings, lists … ─► PacketBox ── give ─► Pool
//! ```
//!
//! A region has a fixed number of buffers. Each is laid out when it is taken for the first time, so
//! memory of buffers that nothing ever needed is never touched; from then on boxes only move. A
//! list needs no memory of its own: a buffer's notes have a place for the next one.
//!
//! Invariants: a box is the only handle to its buffer (so `&mut` is exclusive, and a box may change
//! threads); `capacity` is the number that the pool wrote, wherever the buffer is; the region
//! outlives every box (`tests::a_pool_that_goes_before_its_buffers_leaves_them_usable`).
//!
//! Not here: a buffer's content ([`Packet`]).

mod device;

pub use device::PoolMemory;

use super::{FRAME_MAX, HEADROOM, Notes, Packet};
use crate::memory::Region;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// The right to one packet buffer. See the module's page: it is passed on, never dropped.
#[must_use = "a packet is passed on or given back to its pool"]
pub struct PacketBox(NonNull<Notes>);

// SAFETY: a box is the only handle to its buffer, and a buffer is plain memory.
unsafe impl Send for PacketBox {}

impl PacketBox {
    /// Asks the processor to fetch the notes and the first line of the frame.
    #[inline]
    pub fn prefetch(&self) {
        let notes = self.0.as_ptr().cast::<u8>();
        crate::memory::prefetch(notes);
        crate::memory::prefetch(notes.wrapping_add(64 + HEADROOM));
    }
}

impl Deref for PacketBox {
    type Target = Packet;
    #[inline]
    fn deref(&self) -> &Packet {
        // SAFETY: the box alone owns the buffer; `capacity` was set by the pool that made it and
        // never changes.
        unsafe { &*packet_at(self.0) }
    }
}

impl DerefMut for PacketBox {
    #[inline]
    fn deref_mut(&mut self) -> &mut Packet {
        // SAFETY: as above, and `&mut self` makes this the only reference.
        unsafe { &mut *packet_at(self.0) }
    }
}

impl core::fmt::Debug for PacketBox {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

/// A queue of packets, first in first out, linked through the buffers themselves: it allocates
/// nothing.
#[derive(Default)]
pub struct PacketList {
    head: Option<NonNull<Notes>>,
    tail: Option<NonNull<Notes>>,
    length: u32,
}

// SAFETY: a list owns the boxes in it, which are `Send`.
unsafe impl Send for PacketList {}

impl PacketList {
    /// An empty list.
    pub const fn new() -> Self {
        PacketList {
            head: None,
            tail: None,
            length: 0,
        }
    }

    /// How many packets wait.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Appends a packet.
    pub fn push(&mut self, packet: PacketBox) {
        let node = packet.0;
        // SAFETY: the list now owns the buffer; its tail is a buffer that the list owns, too.
        unsafe {
            (*node.as_ptr()).next = None;
            match self.tail {
                Some(tail) => (*tail.as_ptr()).next = Some(node),
                None => self.head = Some(node),
            }
        }
        self.tail = Some(node);
        self.length += 1;
    }

    /// Appends all packets of another list, which is empty then.
    pub fn append(&mut self, other: &mut PacketList) {
        while let Some(packet) = other.pop() {
            self.push(packet);
        }
    }

    /// Takes the oldest packet.
    pub fn pop(&mut self) -> Option<PacketBox> {
        let node = self.head?;
        // SAFETY: the list owns its head.
        self.head = unsafe { (*node.as_ptr()).next.take() };
        if self.head.is_none() {
            self.tail = None;
        }
        self.length -= 1;
        Some(PacketBox(node))
    }

    /// The packets, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Packet> {
        let mut next = self.head;
        core::iter::from_fn(move || {
            let node = next?;
            // SAFETY: the list owns the buffers in it, and lends them as long as it is borrowed
            // itself.
            unsafe {
                next = (*node.as_ptr()).next;
                Some(&*packet_at(node))
            }
        })
    }

    /// Hands each packet to `job`, the oldest first.
    pub fn for_each_mut(&mut self, mut job: impl FnMut(&mut Packet)) {
        let mut next = self.head;
        while let Some(node) = next {
            // SAFETY: the list owns the buffers in it, and `&mut self` makes this the only
            // reference to the buffer.
            unsafe {
                next = (*node.as_ptr()).next;
                job(&mut *packet_at(node));
            }
        }
    }
}

/// The packet whose notes these are.
///
/// # Safety
/// `node` is a buffer's notes, whose `capacity` its pool has written.
unsafe fn packet_at(node: NonNull<Notes>) -> *mut Packet {
    // SAFETY: the caller's promise.
    let capacity = unsafe { (*node.as_ptr()).capacity } as usize;
    core::ptr::slice_from_raw_parts_mut(node.as_ptr().cast::<u8>(), capacity) as *mut Packet
}

/// Buffers of one size in one region; taken and given back by one worker.
pub struct Pool {
    // Field order matters for nothing: boxes do not touch the region when dropped.
    free: Vec<PacketBox>,
    /// Buffers from this one on have not been taken yet.
    fresh: usize,
    total: usize,
    stride: usize,
    origin: u8,
    _region: Region,
}

impl Pool {
    /// Bytes of region that `count` buffers for frames of up to `frame_max` bytes take.
    pub fn region_length(count: usize, frame_max: usize) -> usize {
        count * Self::stride(frame_max)
    }

    fn stride(frame_max: usize) -> usize {
        (size_of::<Notes>() + HEADROOM + frame_max.min(FRAME_MAX)).next_multiple_of(64)
    }

    /// Lays `count` buffers for frames of up to `frame_max` bytes out in `region`. `origin` numbers
    /// the pool: a worker that ends up with a buffer of another one's sends it home by that number.
    ///
    /// # Panics
    /// If the region is smaller than [`Pool::region_length`].
    pub fn new(region: Region, count: usize, frame_max: usize, origin: u8) -> Self {
        let stride = Self::stride(frame_max);
        assert!(
            count
                .checked_mul(stride)
                .is_some_and(|length| length <= region.length()),
            "the region is too small for {count} buffers"
        );
        Pool {
            free: Vec::with_capacity(count),
            fresh: 0,
            total: count,
            stride,
            origin,
            _region: region,
        }
    }

    /// Takes a buffer, or `None` when all are out.
    #[inline]
    pub fn take(&mut self) -> Option<PacketBox> {
        let mut packet = match self.free.pop() {
            Some(packet) => packet,
            None => self.lay_out()?,
        };
        // The hairpins of the packet before are over.
        packet.clear_hairpins();
        Some(packet)
    }

    /// The next buffer that has not been taken yet.
    #[cold]
    fn lay_out(&mut self) -> Option<PacketBox> {
        if self.fresh == self.total {
            return None;
        }
        // SAFETY: the offset lies within the region (asserted in `new`) and is a multiple of 64, so
        // aligned.
        let notes = unsafe { self._region.start().add(self.fresh * self.stride) }.cast::<Notes>();
        self.fresh += 1;
        // SAFETY: the memory is the region's, and each buffer is laid out once: nothing has a
        // pointer to it yet.
        unsafe {
            notes.write(Notes {
                capacity: (self.stride - size_of::<Notes>()) as u32,
                origin: self.origin,
                start: HEADROOM as u16,
                ..Notes::EMPTY
            })
        };
        Some(PacketBox(notes))
    }

    /// Gives a buffer back.
    #[inline]
    pub fn give(&mut self, packet: PacketBox) {
        debug_assert_eq!(packet.origin(), self.origin, "a buffer goes home to its own pool");
        debug_assert!(self.free() < self.total, "a buffer is given back once");
        self.free.push(packet);
    }

    /// How many buffers are free.
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len() + self.total - self.fresh
    }

    /// How many buffers there are.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The pool's number.
    #[inline]
    pub fn origin(&self) -> u8 {
        self.origin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkType;
    use crate::packet::Side;

    fn pool(count: usize) -> Pool {
        Pool::new(Region::heap(Pool::region_length(count, 2048)), count, 2048, 0)
    }

    #[test]
    fn buffers_come_and_go() {
        let mut pool = pool(2);
        let mut a = pool.take().unwrap();
        let b = pool.take().unwrap();
        assert!(pool.take().is_none());
        assert!(a.set_frame(&[7; 60], LinkType::Ethernet));
        assert_eq!(a.frame(), &[7; 60]);
        assert!(a.grow_front(HEADROOM));
        assert!(!a.grow_front(1));
        assert!(!a.set_frame(&[0; 3000], LinkType::Ethernet));
        pool.give(a);
        pool.give(b);
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn a_packet_written_again_keeps_its_way_and_a_fresh_buffer_has_none() {
        let mut pool = pool(1);
        let mut a = pool.take().unwrap();
        a.add_hairpin();
        a.set_exit(Side::Outside);
        assert!(a.set_frame(&[7; 60], LinkType::Ethernet));
        assert_eq!((a.hairpins(), a.exit()), (1, Side::Outside));
        pool.give(a);
        let a = pool.take().unwrap();
        assert_eq!(a.hairpins(), 0);
        pool.give(a);
    }

    #[test]
    fn lists_keep_order() {
        let mut pool = pool(3);
        let mut list = PacketList::new();
        for n in 0..3 {
            let mut p = pool.take().unwrap();
            p.set_timestamp(n);
            list.push(p);
        }
        for n in 0..3 {
            let p = list.pop().unwrap();
            assert_eq!(p.timestamp(), n);
            pool.give(p);
        }
        assert!(list.pop().is_none() && list.is_empty());
    }

    #[test]
    fn a_list_shows_its_packets_and_lends_them() {
        let mut pool = pool(3);
        let mut list = PacketList::new();
        assert_eq!(list.iter().count(), 0);
        for byte in [1, 2, 3] {
            let mut p = pool.take().unwrap();
            assert!(p.set_frame(&[byte; 4], LinkType::Raw));
            list.push(p);
        }
        list.for_each_mut(|p| p.frame_mut()[0] += 10);
        let first = |p: &Packet| p.frame()[0];
        assert_eq!(list.iter().map(first).collect::<Vec<_>>(), [11, 12, 13]);
        while let Some(p) = list.pop() {
            pool.give(p);
        }
        assert_eq!(pool.free(), 3);
    }

    #[test]
    fn a_pool_that_goes_before_its_buffers_leaves_them_usable() {
        let mut pool = pool(1);
        let mut p = pool.take().unwrap();
        drop(pool);
        assert!(p.set_frame(&[1; 10], LinkType::Raw));
    }

    #[test]
    fn a_buffer_given_to_the_wrong_pool_stays_valid() {
        let (mut ours, mut theirs) = (pool(1), pool(1));
        let (a, b) = (ours.take().unwrap(), theirs.take().unwrap());
        ours.give(b);
        theirs.give(a);
        drop(ours);
        // It lies in the region of the pool that is gone.
        let mut a = theirs.take().unwrap();
        assert!(a.set_frame(&[1; 10], LinkType::Raw));
        assert_eq!(a.frame(), &[1; 10]);
        theirs.give(a);
    }

    #[test]
    fn packets_cross_threads_in_lists() {
        let mut pool = pool(3);
        let mut list = PacketList::new();
        for n in 0..3 {
            let mut p = pool.take().unwrap();
            assert!(p.set_frame(&[n; 20], LinkType::Raw));
            p.prefetch();
            list.push(p);
        }
        let mut list = std::thread::spawn(move || {
            let mut back = PacketList::new();
            while let Some(mut p) = list.pop() {
                p.frame_mut()[0] += 10;
                assert!(p.grow_front(4) && p.set_length(30));
                back.push(p);
            }
            back
        })
        .join()
        .unwrap();
        let mut first = list.pop().unwrap();
        let second = list.pop().unwrap();
        assert_eq!((first.frame()[4], second.frame()[4]), (10, 11));
        assert!(first.copy_from(&second));
        assert_eq!((first.frame(), first.origin()), (second.frame(), 0));
        for p in [first, second, list.pop().unwrap()] {
            pool.give(p);
        }
        assert_eq!(pool.free(), 3);
    }

    #[test]
    #[should_panic(expected = "too small")]
    fn a_region_too_small_is_no_pool() {
        Pool::new(Region::heap(4096), usize::MAX / 2048, 2048, 0);
    }
}
