//! Microthreads: the slots in which calls that wait are kept, and their order of waking (S6 4.3).
//!
//! # Theory of operation
//!
//! A [`Frame`] is a slot: the facts and effects of one call (`cx`) and room for its future. The
//! worker always has one frame in hand. A call that finishes at once, nearly every call, leaves it
//! as it was. A call that waits keeps it: the worker takes another from the free list and notes in
//! [`Waiting`] what to do when the time has come.
//!
//! ```text
//!   in hand ──call waits──► waiting (heap by time, then by age) ──time──► polled: done, or waits again
//!      ▲                                                                    │
//!      └──────────────────────── free list ◄────────────────────────────────┘
//! ```
//!
//! While a future exists, its flow's actor is pinned: its state, its packet and its frame stay put,
//! and only the future touches them. Later packets of the flow queue in its [`Waiting`]. Everything
//! is allocated at the start; how many may wait, and how many packets may queue behind them, are
//! bounds, and beyond them is a counted drop.
//!
//! Invariants: a frame is in hand, free or waiting; a waiting frame has exactly one live future;
//! the oldest of equal wake times goes first.

use crate::stage::Code;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::future::Future;
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use nf::Verdict;
use nf::cx::RawCx;
use wire::memory::Region;

/// Room for one call: its `cx`, and its future if it waits.
#[repr(C)]
pub struct Frame {
    /// Facts and effects.
    pub cx: RawCx,
    future: FutureSlot,
}

/// How to poll and drop the future behind the frame's header.
pub struct FutureSlot {
    poll: MaybeUninit<unsafe fn(NonNull<Frame>) -> Code>,
    cancel: MaybeUninit<unsafe fn(NonNull<Frame>)>,
    room: usize,
}

/// The output of a function's future: the verdict and the timeout that its flow then asks for.
pub type Finished = (Verdict, Option<Duration>);

const ALIGN: usize = 16;

impl FutureSlot {
    fn place<U>(frame: NonNull<Frame>) -> NonNull<U> {
        let offset = size_of::<Frame>().next_multiple_of(ALIGN);
        // SAFETY: a frame is allocated with the room for a future behind it, so this stays within
        // one allocation.
        unsafe { frame.cast::<u8>().add(offset).cast() }
    }

    /// Puts `future` into the frame and polls it once.
    ///
    /// # Safety
    /// The frame has no live future, and all that `future` borrows stays valid and unused until it
    /// is done or cancelled.
    pub unsafe fn start<U: Future<Output = Finished>>(frame: NonNull<Frame>, future: U) -> Code {
        // SAFETY: the frame is valid; only its header is touched.
        let slot = unsafe { &mut *core::ptr::addr_of_mut!((*frame.as_ptr()).future) };
        const {
            assert!(
                align_of::<U>() <= ALIGN,
                "what a function keeps across an await needs an alignment of 16 bytes at most"
            );
        }
        assert!(
            size_of::<U>() <= slot.room,
            "a frame has room for its chain's largest future"
        );
        slot.poll = MaybeUninit::new(poll::<U>);
        slot.cancel = MaybeUninit::new(cancel::<U>);
        // SAFETY: the room was checked.
        unsafe {
            Self::place::<U>(frame).write(future);
            poll::<U>(frame)
        }
    }
}

/// # Safety
/// The frame holds a live `U`.
unsafe fn poll<U: Future<Output = Finished>>(frame: NonNull<Frame>) -> Code {
    let place = FutureSlot::place::<U>(frame);
    let mut context = Context::from_waker(Waker::noop());
    // SAFETY: the future was written there and stays there until it is dropped: it is pinned.
    match unsafe { Pin::new_unchecked(&mut *place.as_ptr()) }.poll(&mut context) {
        Poll::Pending => Code::WAITING,
        Poll::Ready((verdict, timeout)) => {
            // SAFETY: the future is live and done; its borrows, the cx among them, are free again.
            unsafe {
                place.drop_in_place();
                if let (Some(timeout), false) = (timeout, matches!(verdict, Verdict::Drop(_))) {
                    let cx = &mut (*frame.as_ptr()).cx;
                    cx.timeout = cx
                        .timeout
                        .max(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
                }
            }
            verdict.into()
        }
    }
}

/// # Safety
/// The frame holds a live `U`.
unsafe fn cancel<U>(frame: NonNull<Frame>) {
    // SAFETY: the caller's promise; afterwards the frame counts as empty.
    unsafe { FutureSlot::place::<U>(frame).drop_in_place() }
}

/// A call that waits, and what to do when it is done.
pub struct Waiting<T> {
    /// The frame with its future.
    pub frame: NonNull<Frame>,
    /// Whatever the worker needs to go on.
    pub rest: T,
    /// Of its entry in the order of waking: entries of any other number count no more.
    sequence: u64,
    is_hastened: bool,
}

/// All frames of a worker.
pub struct Frames<T> {
    free: Vec<u32>,
    waiting: Vec<Option<Waiting<T>>>,
    ready: BinaryHeap<Reverse<(u64, u64, u32)>>,
    sequence: u64,
    /// The generations of all functions when they were looked at last; `None` while no call waits.
    generations: Option<u64>,
    count: usize,
    stride: usize,
    region: Region,
}

impl<T> Frames<T> {
    fn stride(future: usize) -> usize {
        (size_of::<Frame>().next_multiple_of(ALIGN) + future).next_multiple_of(64)
    }

    /// Bytes of region for `waiting_max` waiting calls, one in hand, and futures of up to `future`
    /// bytes.
    pub fn region_length(waiting_max: usize, future: usize) -> usize {
        Self::stride(future) * (waiting_max + 1)
    }

    /// Frames in `region`; `make` fills in a fresh `cx`.
    pub fn new(region: Region, waiting_max: usize, future: usize, make: impl Fn(u32) -> RawCx) -> Self {
        let (stride, count) = (Self::stride(future), waiting_max + 1);
        assert!(
            region.length() >= stride * count,
            "the region is too small for the frames"
        );
        let frames = Frames {
            free: (0..count as u32).rev().collect(),
            waiting: core::iter::repeat_with(|| None).take(count).collect(),
            // A call that was hastened has a second entry.
            ready: BinaryHeap::with_capacity(count * 2),
            sequence: 0,
            generations: None,
            count,
            stride,
            region,
        };
        for index in 0..count as u32 {
            let room = stride - size_of::<Frame>().next_multiple_of(ALIGN);
            let future = FutureSlot {
                poll: MaybeUninit::uninit(),
                cancel: MaybeUninit::uninit(),
                room,
            };
            // SAFETY: the address is inside the region, aligned to 64, and it is not in use yet.
            unsafe {
                frames.frame(index).write(Frame {
                    cx: make(index),
                    future,
                })
            };
        }
        frames
    }

    /// A frame's address: it never changes.
    #[inline]
    pub fn frame(&self, index: u32) -> NonNull<Frame> {
        debug_assert!((index as usize) < self.count);
        // SAFETY: the index is below the count, so the address is inside the region.
        unsafe { self.region.start().add(index as usize * self.stride) }.cast()
    }

    /// Takes a frame in hand, unless all are waiting.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Gives a frame back whose future is gone.
    pub fn give(&mut self, index: u32) {
        self.free.push(index);
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.count - self.free.len() - 1
    }

    /// Puts a frame with a live future to wait until `wake_at`.
    pub fn park(&mut self, index: u32, wake_at: u64, rest: T) {
        let frame = self.frame(index);
        self.sequence += 1;
        let sequence = self.sequence;
        self.waiting[index as usize] = Some(Waiting {
            frame,
            rest,
            sequence,
            is_hastened: false,
        });
        self.push(wake_at, sequence, index);
    }

    /// In the memory that is there: entries that count no more make room.
    fn push(&mut self, wake_at: u64, sequence: u64, index: u32) {
        if self.ready.len() >= self.count * 2 {
            let waiting = &self.waiting;
            self.ready
                .retain(|Reverse((_, sequence, index))| counts(waiting, *sequence, *index));
        }
        self.ready.push(Reverse((wake_at, sequence, index)));
    }

    /// Has one call go on at `now`.
    pub fn hasten_one(&mut self, index: u32, now: u64) {
        if let Some(Some(waiting)) = self.waiting.get_mut(index as usize)
            && !core::mem::replace(&mut waiting.is_hastened, true)
        {
            let sequence = waiting.sequence;
            self.push(now, sequence, index);
        }
    }

    /// The rest of a waiting frame.
    pub fn rest_mut(&mut self, index: u32) -> Option<&mut T> {
        self.waiting
            .get_mut(index as usize)?
            .as_mut()
            .map(|w| &mut w.rest)
    }

    /// The rest of a waiting frame, to look at.
    pub fn rest(&self, index: u32) -> Option<&T> {
        self.waiting.get(index as usize)?.as_ref().map(|w| &w.rest)
    }

    /// The next waiting call whose time has come; it no longer counts as parked, and its frame is
    /// the caller's.
    pub fn wake(&mut self, now: u64) -> Option<(u32, Waiting<T>)> {
        loop {
            let Reverse((wake_at, sequence, index)) = *self.ready.peek()?;
            let is_live = counts(&self.waiting, sequence, index);
            if is_live && wake_at > now {
                return None;
            }
            self.ready.pop();
            if is_live {
                let waiting = self.waiting.get_mut(index as usize)?.take()?;
                return Some((index, waiting));
            }
        }
    }

    /// Has the calls for which that `is_meant` go on at `now` if these generations are others than
    /// the last time. The first look after no call waited finds them changed: no change since a
    /// call began to wait is overlooked.
    pub fn hasten(&mut self, generations: u64, now: u64, is_meant: impl Fn(&T) -> bool) {
        if self.generations.replace(generations) != Some(generations) {
            self.hasten_those(now, is_meant);
        }
    }

    /// Has the calls for which that `is_meant` go on at `now`: looks at each that waits.
    pub fn hasten_those(&mut self, now: u64, is_meant: impl Fn(&T) -> bool) {
        let mut ready = core::mem::take(&mut self.ready).into_vec();
        for Reverse((wake_at, _, index)) in &mut ready {
            let waiting = self.waiting.get(*index as usize).and_then(Option::as_ref);
            if waiting.is_some_and(|waiting| is_meant(&waiting.rest)) {
                *wake_at = now.min(*wake_at);
            }
        }
        // In the same memory.
        self.ready = ready.into();
    }

    /// Forgets the generations: no call waits.
    pub fn none_waits(&mut self) {
        self.generations = None;
    }

    /// Takes these frames, sorted, out of waiting; their futures and the frames are the caller's.
    pub fn pull(&mut self, indices: &[u32]) -> Vec<(u32, Waiting<T>)> {
        self.ready
            .retain(|Reverse((_, _, index))| indices.binary_search(index).is_err());
        let taken = |index: &u32| Some((*index, self.waiting.get_mut(*index as usize)?.take()?));
        indices.iter().filter_map(taken).collect()
    }

    /// When the next waiting call's time comes.
    pub fn next_wake(&self) -> Option<u64> {
        self.ready.peek().map(|Reverse((wake_at, ..))| *wake_at)
    }

    /// Polls the future of a frame.
    ///
    /// # Safety
    /// The frame holds a live future and the caller touches nothing that it borrows.
    pub unsafe fn poll(frame: NonNull<Frame>) -> Code {
        // SAFETY: a live future's functions were set when it was put there.
        unsafe { (*frame.as_ptr()).future.poll.assume_init()(frame) }
    }

    /// Drops the future of a frame without finishing it.
    ///
    /// # Safety
    /// The frame holds a live future.
    pub unsafe fn cancel(frame: NonNull<Frame>) {
        // SAFETY: as above.
        unsafe { (*frame.as_ptr()).future.cancel.assume_init()(frame) }
    }
}

/// Whether an entry is that of a call that waits.
fn counts<T>(waiting: &[Option<Waiting<T>>], sequence: u64, index: u32) -> bool {
    let waiting = waiting.get(index as usize).and_then(Option::as_ref);
    waiting.is_some_and(|waiting| waiting.sequence == sequence)
}

impl<T> Drop for Frames<T> {
    fn drop(&mut self) {
        for waiting in self.waiting.iter_mut().filter_map(Option::take) {
            // SAFETY: a parked frame holds a live future, and it was just taken out of the list.
            unsafe { Self::cancel(waiting.frame) };
        }
    }
}
