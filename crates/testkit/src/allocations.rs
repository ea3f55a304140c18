//! A counting global allocator, with which a test proves that packets allocate nothing.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: flowkeep_testkit::CountingAllocator = flowkeep_testkit::CountingAllocator;
//!
//! fn main() {
//!     let mut room = Vec::with_capacity(8);
//!     assert_eq!(flowkeep_testkit::allocations(|| room.push(1)), 0);
//!     assert_eq!(flowkeep_testkit::allocations(|| drop(vec![1, 2, 3])), 1);
//! }
//! ```
//!
//! # Theory of operation
//! Each thread has a count of its own, so tests that run beside do not disturb. Growing an
//! allocation counts, freeing does not.
//!
//! Not here: how much was allocated, and by which code.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static SO_FAR: Cell<u64> = const { Cell::new(0) };
}

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The system's allocator, counted. Make it the global one with the two lines of the module's
/// example.
pub struct CountingAllocator;

fn count() {
    INSTALLED.store(true, Ordering::Relaxed);
    // A thread that is ending has no count any more; its allocations then are for no packet.
    let _ = SO_FAR.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: each method hands its arguments on to the system's allocator and passes its answer on.
// Counting allocates nothing: the count is a plain number in the thread's own memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, handed on.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// How many allocations this thread makes while it does `work`.
///
/// # Panics
/// If [`CountingAllocator`] is not the global allocator, which would make every answer zero.
#[track_caller]
pub fn allocations<T>(work: impl FnOnce() -> T) -> u64 {
    assert_installed();
    let before = so_far();
    let result = work();
    let after = so_far();
    drop(result);
    after - before
}

/// This thread's allocations so far.
pub(crate) fn so_far() -> u64 {
    SO_FAR.with(Cell::get)
}

#[track_caller]
pub(crate) fn assert_installed() {
    // Whatever runs has allocated by now; one more makes sure.
    drop(std::hint::black_box(Box::new(0_u8)));
    assert!(
        INSTALLED.load(Ordering::Relaxed),
        "no allocator counts allocations here: write\n\n    #[global_allocator]\n    static ALLOCATOR: \
         flowkeep_testkit::CountingAllocator = flowkeep_testkit::CountingAllocator;\n\nat the top of the test's file"
    );
}
