//! A ring of records in memory that two processes share: one writes, one reads.
//!
//! ```text
//!   0            128                      256        512
//!   │ written    │ taken, records taken   │ lies     │ record │ record │ … │ skip │
//!     the writer's  the reader's             the reader's
//!
//!   record: length 4 │ sort 4 │ head │ body │ up to the next 16
//! ```
//!
//! Theory of operation. Both count bytes from the ring's beginning, without end; each keeps the
//! place of its count in the memory to itself. The writer copies a record behind the last one and
//! publishes its count (release); the reader looks at that (acquire), copies the record out, and
//! publishes its own count. A record lies in one piece: too little room before the end is a *skip*.
//! A writer that dies in the middle of a record has not published it.
//!
//! **The other end may write anything anywhere at any time.** So: our own count and place are never
//! read from the memory; each of the other's words is read once, and checked before it is used; a
//! record's bytes are copied before the worker looks at them. An impossible word is a
//! [`Violation`]. A record that is written while it is copied has whatever bytes it has then, like
//! one from any network.
//!
//! Invariants: places are multiples of 16 below the ring's length; a record that is handed out lies
//! inside; without a violation records come as they were put in, each once, in order.
//!
//! Not here: a record's content ([`super`]), whose memory it is ([`super::shared`]).

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The other end has written what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation;

#[repr(C, align(128))]
struct Written {
    bytes: AtomicU64,
}

#[repr(C, align(128))]
struct Taken {
    bytes: AtomicU64,
    records: AtomicU64,
}

#[repr(C, align(128))]
struct Bell {
    lies: AtomicU32,
}

#[repr(C)]
struct Control {
    written: Written,
    taken: Taken,
    bell: Bell,
}

/// Bytes before the first record.
pub(super) const FRONT: usize = 512;
const _: () = assert!(size_of::<Control>() <= FRONT);
/// Records begin at multiples of it.
const ALIGN: usize = 16;
/// Bytes before a record's content.
const PREFIX: usize = 8;
/// In the place of a length: nothing more comes before the ring's end.
const SKIP: u32 = u32::MAX;

/// Bytes of a record that says so many.
const fn record_length(said: usize) -> usize {
    (PREFIX + said).next_multiple_of(ALIGN)
}

/// The least memory in which records that say so much always come through: with two of the longest,
/// one fits behind what is left.
pub(super) const fn memory_min(said_max: usize) -> usize {
    FRONT + 4 * record_length(said_max)
}

/// The memory of a ring, as both ends use it.
#[derive(Clone, Copy)]
struct Place {
    start: NonNull<u8>,
    length: usize,
}

impl Place {
    /// # Safety
    /// As [`Writer::new`].
    unsafe fn new(start: NonNull<u8>, length: usize) -> Place {
        assert!(start.addr().get().is_multiple_of(128) && length >= memory_min(0));
        Place {
            start,
            length: (length - FRONT) / ALIGN * ALIGN,
        }
    }

    #[inline]
    fn control(&self) -> &Control {
        // SAFETY: inside the memory, which lives as long as the end that has this place; aligned;
        // all of it is atomics, of which any bytes are a value.
        unsafe { self.start.cast::<Control>().as_ref() }
    }

    /// The byte at `at`, a multiple of [`ALIGN`] below the length.
    #[inline]
    fn at(&self, at: usize) -> NonNull<u8> {
        debug_assert!(at < self.length && at.is_multiple_of(ALIGN));
        // SAFETY: `length` bytes lie behind the front, and the caller has checked that `at` is
        // below it.
        unsafe { self.start.add(FRONT + at) }
    }
}

/// The end that puts records in.
pub(super) struct Writer {
    place: Place,
    /// Where the next record begins.
    at: usize,
    /// Bytes written, published or not.
    written: u64,
    /// Bytes taken, by the last look.
    taken: u64,
    /// Records written, and those taken by the last look.
    records: u64,
    records_taken: Cell<u64>,
}

// SAFETY: the memory is not tied to a thread, and nothing else of this process uses it by this end.
unsafe impl Send for Writer {}

impl Writer {
    /// The writing end of a ring that is empty.
    ///
    /// # Safety
    /// `length` bytes from `start` can be read and written for as long as the end lives; they are
    /// zero, but for the other end's writes. Of this process, only this end and one [`Reader`] use
    /// them. Aligned to 128.
    pub unsafe fn new(start: NonNull<u8>, length: usize) -> Writer {
        Writer {
            // SAFETY: the caller's promise.
            place: unsafe { Place::new(start, length) },
            at: 0,
            written: 0,
            taken: 0,
            records: 0,
            records_taken: Cell::new(0),
        }
    }

    #[inline]
    fn free(&self) -> usize {
        self.place.length - (self.written - self.taken) as usize
    }

    /// Puts a record of some sort in, `head` before `body`; `false` if there is no room. It is seen
    /// once it is [published](Writer::publish).
    #[inline]
    pub fn push(&mut self, sort: u32, head: &[u8], body: &[u8]) -> Result<bool, Violation> {
        let length = head.len() + body.len();
        debug_assert!(length < SKIP as usize);
        let need = record_length(length);
        let rest = self.place.length - self.at;
        let skip = if rest < need { rest } else { 0 };
        if self.free() < skip + need {
            self.look()?;
            if self.free() < skip + need {
                return Ok(false);
            }
        }
        if skip > 0 {
            // SAFETY: a word at a place inside the memory that is free, so that the reader does not
            // read it.
            unsafe { self.place.at(self.at).cast::<u64>().write(u64::from(SKIP)) };
            self.written += skip as u64;
            self.at = 0;
        }
        let record = self.place.at(self.at);
        // SAFETY: `need` bytes from here lie before the end (else they were skipped) and are free.
        unsafe {
            record.cast::<u64>().write(length as u64 | u64::from(sort) << 32);
            let said = record.add(PREFIX).as_ptr();
            std::ptr::copy_nonoverlapping(head.as_ptr(), said, head.len());
            std::ptr::copy_nonoverlapping(body.as_ptr(), said.add(head.len()), body.len());
        }
        self.written += need as u64;
        self.records += 1;
        self.at += need;
        if self.at == self.place.length {
            self.at = 0;
        }
        Ok(true)
    }

    /// Looks how far the reader is.
    fn look(&mut self) -> Result<(), Violation> {
        let taken = self.place.control().taken.bytes.load(Ordering::Acquire);
        // The reader's count goes neither backwards nor ahead of the writer's.
        if taken.wrapping_sub(self.taken) > self.written - self.taken || !taken.is_multiple_of(ALIGN as u64) {
            return Err(Violation);
        }
        self.taken = taken;
        Ok(())
    }

    /// Has the reader see the records that were put in.
    #[inline]
    pub fn publish(&self) {
        self.place
            .control()
            .written
            .bytes
            .store(self.written, Ordering::Release);
    }

    /// Whether the reader has said that it lies; then it must be woken, once. Behind
    /// [`Writer::publish`].
    #[inline]
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        let lies = &self.place.control().bell.lies;
        lies.load(Ordering::Relaxed) != 0 && lies.swap(0, Ordering::Relaxed) != 0
    }

    /// How far the reader is, if it has not taken all that was put in. The number is the other
    /// process's word: safety does not rest on it.
    pub fn unread(&self) -> Option<u64> {
        let taken = self.place.control().taken.bytes.load(Ordering::Relaxed);
        (taken != self.written).then_some(taken)
    }

    /// Records that the reader had not taken by the last look; if they are more than `few`, by a
    /// new one.
    #[inline]
    pub fn waiting(&self, few: usize) -> usize {
        let waiting = (self.records - self.records_taken.get()) as usize;
        if waiting <= few {
            return waiting;
        }
        // The number is the other process's word: it is kept between the last one and ours, and
        // safety does not rest on it.
        let taken = self.place.control().taken.records.load(Ordering::Relaxed);
        self.records_taken
            .set(taken.clamp(self.records_taken.get(), self.records));
        (self.records - self.records_taken.get()) as usize
    }
}

/// A record that lies in the memory, as far as it has been looked at.
#[derive(Clone, Copy)]
pub(super) struct Record {
    /// As it was put in, if the other end is not mad.
    pub sort: u32,
    /// Bytes that it says.
    pub length: usize,
    said: NonNull<u8>,
}

/// The end that takes records out.
pub(super) struct Reader {
    place: Place,
    /// Where the next record begins.
    at: usize,
    /// Bytes taken, published or not.
    taken: u64,
    /// Bytes written, by the last look.
    written: u64,
    /// Records taken.
    records: u64,
}

// SAFETY: as for the writer.
unsafe impl Send for Reader {}

impl Reader {
    /// The reading end of a ring that is empty.
    ///
    /// # Safety
    /// As [`Writer::new`], but of this process only this end and one [`Writer`] use the memory.
    pub unsafe fn new(start: NonNull<u8>, length: usize) -> Reader {
        Reader {
            // SAFETY: the caller's promise.
            place: unsafe { Place::new(start, length) },
            at: 0,
            taken: 0,
            written: 0,
            records: 0,
        }
    }

    /// Bytes that are there, by the last look.
    #[inline]
    fn there(&self) -> usize {
        (self.written - self.taken) as usize
    }

    #[inline]
    fn look(&mut self) -> Result<(), Violation> {
        let written = self.place.control().written.bytes.load(Ordering::Acquire);
        let there = written.wrapping_sub(self.taken);
        if there < self.there() as u64
            || there > self.place.length as u64
            || !there.is_multiple_of(ALIGN as u64)
        {
            return Err(Violation);
        }
        self.written = written;
        Ok(())
    }

    /// The next record, if there is one. It is looked at again until it is [taken](Reader::take).
    #[inline]
    pub fn next(&mut self) -> Result<Option<Record>, Violation> {
        if self.there() == 0 {
            self.look()?;
            if self.there() == 0 {
                return Ok(None);
            }
        }
        let (mut length, mut sort) = self.prefix_here();
        if length == SKIP {
            let rest = self.place.length - self.at;
            // A record follows, published with it.
            if self.there() <= rest {
                return Err(Violation);
            }
            self.taken += rest as u64;
            self.at = 0;
            (length, sort) = self.prefix_here();
        }
        let length = length as usize;
        // The first bound keeps the second from going around.
        if length > self.place.length || record_length(length) > self.there().min(self.place.length - self.at)
        {
            return Err(Violation);
        }
        // SAFETY: the record's bytes lie inside the memory, just held against it.
        let said = unsafe { self.place.at(self.at).add(PREFIX) };
        Ok(Some(Record { sort, length, said }))
    }

    #[inline]
    fn prefix_here(&self) -> (u32, u32) {
        // SAFETY: a word inside the memory: at least as much as a record's alignment lies before
        // its end. Read once.
        let prefix = unsafe { self.place.at(self.at).cast::<u64>().as_ptr().read_volatile() };
        (prefix as u32, (prefix >> 32) as u32)
    }

    /// Copies the next record's content, from `at` on.
    ///
    /// # Panics
    /// If it does not say so much.
    #[inline]
    pub fn copy(&self, record: &Record, at: usize, into: &mut [u8]) {
        assert!(at <= record.length && into.len() <= record.length - at);
        // SAFETY: `next` has held the record against the memory, and so much lies in it. The bytes
        // may be written meanwhile by a mad other end; they are only bytes.
        unsafe { std::ptr::copy_nonoverlapping(record.said.add(at).as_ptr(), into.as_mut_ptr(), into.len()) };
    }

    /// Is done with the record that was the next. Its place is the writer's again once that is
    /// [published](Reader::publish).
    #[inline]
    pub fn take(&mut self, record: Record) {
        let length = record_length(record.length);
        self.taken += length as u64;
        self.at += length;
        self.records += 1;
        if self.at == self.place.length {
            self.at = 0;
        }
    }

    /// Gives the places of taken records back.
    #[inline]
    pub fn publish(&self) {
        let taken = &self.place.control().taken;
        taken.records.store(self.records, Ordering::Relaxed);
        taken.bytes.store(self.taken, Ordering::Release);
    }

    /// Says that this end lies down: a writer that puts something in from now on wakes it. The
    /// caller looks once more behind that.
    pub fn lie_down(&self) {
        self.place.control().bell.lies.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that this end need not be woken.
    pub fn get_up(&self) {
        self.place.control().bell.lies.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
