//! The queues that an `AF_XDP` socket and the kernel share: four of them, each with one writer and
//! one reader.
//!
//! ```text
//!   fill         Flowkeep ─► kernel    buffers to receive into          ─┐
//!   receive      kernel ─► Flowkeep    buffers with frames in them      ◄┘
//!   transmit     Flowkeep ─► kernel    frames to send                   ─┐
//!   completion   kernel ─► Flowkeep    buffers whose frames have left   ◄┘
//! ```
//!
//! A queue is an array of entries, its length a power of two, with two counters that only grow: how
//! many have been put in, how many taken out. The writer of an entry publishes it by the first
//! counter (release). The reader looks at that (acquire), and gives the place back by the second.
//!
//! Invariant: at most as many entries are in a queue as it has places; an entry is read once.

use crate::interface::system::{Plain, Shared};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// The bit by which the kernel asks to be woken.
const NEED_WAKEUP: u32 = 1;

struct Queue<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    length: u32,
    // Last: the memory that the pointers lead into.
    _shared: Shared,
}

// SAFETY: the pointers lead into the mapping that the queue owns; nothing is tied to a thread.
unsafe impl<T: Send> Send for Queue<T> {}

impl<T: Plain> Queue<T> {
    fn map(fd: &OwnedFd, page: u64, length: u32, offsets: &libc::xdp_ring_offset) -> io::Result<Self> {
        assert!(length.is_power_of_two());
        let bytes = offsets.desc as usize + length as usize * size_of::<T>();
        let shared = Shared::map(fd, bytes, page)?;
        let inside = |offset: u64, size: usize| {
            let offset = usize::try_from(offset).ok()?;
            (offset.checked_add(size)? <= shared.length() && offset.is_multiple_of(4))
                // SAFETY: the offset lies within the mapping.
                .then(|| unsafe { shared.start().add(offset) })
        };
        let word = |offset| inside(offset, 4).map(NonNull::cast::<AtomicU32>);
        let entries = inside(offsets.desc, length as usize * size_of::<T>());
        let entries = entries.filter(|start| start.addr().get().is_multiple_of(align_of::<T>()));
        let all = word(offsets.producer)
            .zip(word(offsets.consumer))
            .zip(word(offsets.flags))
            .zip(entries);
        let (((producer, consumer), flags), entries) =
            all.ok_or_else(|| io::Error::other("the kernel's queue is not as expected"))?;
        Ok(Queue {
            producer,
            consumer,
            flags,
            entries: entries.cast(),
            length,
            _shared: shared,
        })
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping (checked by `map`), which lives as long as `self`; aligned;
        // both sides use it atomically.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }
    }

    /// The place of the entry with this number.
    #[inline]
    fn place(&self, number: u32) -> NonNull<T> {
        // SAFETY: the index is below the length, and so many entries lie in the mapping (checked by
        // `map`).
        unsafe { self.entries.add((number & (self.length - 1)) as usize) }
    }
}

/// A queue that this side fills.
pub(super) struct Outgoing<T> {
    queue: Queue<T>,
    /// Entries put in.
    next: u32,
    /// Entries taken out, when it was last looked.
    taken: u32,
}

impl<T: Plain> Outgoing<T> {
    /// Maps a socket's queue of this length.
    pub fn map(fd: &OwnedFd, page: u64, length: u32, offsets: &libc::xdp_ring_offset) -> io::Result<Self> {
        Ok(Outgoing {
            queue: Queue::map(fd, page, length, offsets)?,
            next: 0,
            taken: 0,
        })
    }

    /// How many entries have room.
    #[inline]
    pub fn room(&mut self) -> u32 {
        self.taken = self.queue.consumer().load(Ordering::Acquire);
        self.queue.length - self.waiting()
    }

    /// How many entries the kernel had not taken when it was last looked.
    #[inline]
    fn waiting(&self) -> u32 {
        // A counter of the kernel's that is ahead of ours would be its mistake; then nothing has
        // room.
        self.next.wrapping_sub(self.taken).min(self.queue.length)
    }

    /// Whether the kernel has not taken all.
    #[inline]
    pub fn is_waiting(&mut self) -> bool {
        self.room() < self.queue.length
    }

    /// Puts an entry in; [`Outgoing::room`] was above zero.
    #[inline]
    pub fn push(&mut self, entry: T) {
        debug_assert!(self.waiting() < self.queue.length);
        // SAFETY: the place lies in the mapping; it is free, so the kernel does not read it before
        // it is published.
        unsafe { self.queue.place(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Has the kernel see the entries that were put in.
    #[inline]
    pub fn publish(&self) {
        self.queue.producer().store(self.next, Ordering::Release);
    }

    /// Whether the kernel sleeps and wants a call.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.queue.flags().load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// A queue that the kernel fills.
pub(super) struct Incoming<T> {
    queue: Queue<T>,
    /// Entries taken out.
    next: u32,
}

impl<T: Plain> Incoming<T> {
    /// Maps a socket's queue of this length.
    pub fn map(fd: &OwnedFd, page: u64, length: u32, offsets: &libc::xdp_ring_offset) -> io::Result<Self> {
        Ok(Incoming {
            queue: Queue::map(fd, page, length, offsets)?,
            next: 0,
        })
    }

    /// Takes up to `count` entries out, in order. Their places are the kernel's again afterwards.
    #[inline]
    pub fn take(&mut self, count: usize, mut each: impl FnMut(T)) -> usize {
        let there = self
            .queue
            .producer()
            .load(Ordering::Acquire)
            .wrapping_sub(self.next);
        let count = (there.min(self.queue.length) as usize).min(count);
        for _ in 0..count {
            // SAFETY: the place lies in the mapping; the kernel has published it and does not write
            // it before it is given back.
            each(unsafe { self.queue.place(self.next).read() });
            self.next = self.next.wrapping_add(1);
        }
        if count > 0 {
            self.queue.consumer().store(self.next, Ordering::Release);
        }
        count
    }
}
