//! An allocator that lays large pieces out in 2 MiB pages.
//!
//! Tables that functions keep (mappings, indices) are ordinary vectors and maps, and random
//! accesses to them cost a page walk each where pages are small. Pieces of 1 MiB and more come from
//! a mapping that the kernel is asked to back with large pages; all others are the system
//! allocator's.
//!
//! Memory is taken when it is used, but within [`at_once`]: there a piece is touched when it is
//! asked for. A worker is made so, since its first flows would otherwise wait, page by page, for
//! the kernel to find and clear 2 MiB: 0.1 ms where memory is at hand, and 5 to 15 ms in a virtual
//! machine whose host has yet to find it.
//!
//! A capture of some thousand packets uses a small part of many pieces, and a worker uses as little
//! of the pieces that it asks for while it runs. Where [`sparing`] was called, the first 2 MiB of a
//! piece are small pages, so that those parts alone are taken, and packets wait for no large one;
//! the rest has large ones, as all of a piece within [`at_once`] has.
//!
//! The allocator counts the bytes that a thread asks for within [`counted`]: a worker's need is
//! known by making one, without a second list of its tables' sizes.
//!
//! Where the kernel has no room for a large piece, the process ends with a word on what to do: Rust
//! would end it without one.
//!
//! A binary opts in: `#[global_allocator] static MEMORY: LargePages = LargePages;`
//!
//! Not here: regions that are asked for as such ([`crate::pages`]), which are always touched.

use crate::pages::{advise_huge, map_aligned, out_of_memory, touch_from, unmap};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Pieces of this size and larger are mapped.
const LARGE: usize = 1 << 20;

/// The allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargePages;

/// Whether pieces begin with small pages.
static SPARES: AtomicBool = AtomicBool::new(false);

/// From now on large pieces begin with 2 MiB of small pages, in this process.
pub fn sparing() {
    SPARES.store(true, Ordering::Relaxed);
}

thread_local! {
    /// Whether this thread's large pieces are touched. Neither made when first used nor dropped, so
    /// that an allocator may look at it.
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
    /// Bytes that this thread has asked for and not given back, while it counts.
    static COUNTED: Cell<Option<isize>> = const { Cell::new(None) };
}

/// How many bytes of those that this thread asks for meanwhile are still there at the end. 0 in a
/// binary with another allocator.
pub fn counted<T>(make: impl FnOnce() -> T) -> (T, usize) {
    /// Goes back, also if `make` panics.
    struct Before(Option<isize>);
    impl Drop for Before {
        fn drop(&mut self) {
            let more = COUNTED.get().unwrap_or(0);
            COUNTED.set(self.0.map(|before| before + more));
        }
    }
    let _before = Before(COUNTED.replace(Some(0)));
    // An optimiser leaves out a value that nothing else looks at.
    let made = std::hint::black_box(make());
    let bytes = COUNTED.get().unwrap_or(0);
    (made, usize::try_from(bytes).unwrap_or(0))
}

/// Counts bytes asked for, or given back, if that is wanted.
fn count(layout: &Layout, sign: isize) {
    if let Some(so_far) = COUNTED.get() {
        let bytes = match is_large(layout) {
            true => whole(layout),
            false => layout.size(),
        };
        COUNTED.set(Some(so_far.wrapping_add(sign.wrapping_mul(bytes as isize))));
    }
}

/// Has the large pieces that this thread asks for meanwhile touched at once.
pub fn at_once<T>(make: impl FnOnce() -> T) -> T {
    /// Goes back, also if `make` panics.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            AT_ONCE.set(self.0);
        }
    }
    let _before = Before(AT_ONCE.replace(true));
    make()
}

fn is_large(layout: &Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= crate::pages::HUGE
}

fn whole(layout: &Layout) -> usize {
    layout.size().next_multiple_of(crate::pages::HUGE)
}

// SAFETY: small pieces are the system allocator's own. Large ones are fresh private mappings of at
// least the size asked for, aligned to 2 MiB, zeroed, and unmapped with the same length, which
// follows from the layout alone.
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(&layout, 1);
        if !is_large(&layout) {
            // SAFETY: the caller's promise, handed on.
            return unsafe { System.alloc(layout) };
        }
        match map_aligned(whole(&layout)) {
            Ok(start) => {
                let small = match SPARES.load(Ordering::Relaxed) && !AT_ONCE.get() {
                    true => crate::pages::HUGE,
                    false => 0,
                };
                // SAFETY: a large piece has at least one such page.
                advise_huge(unsafe { start.add(small) }, whole(&layout) - small);
                if AT_ONCE.get() {
                    // SAFETY: a fresh mapping of this length, which nothing else has yet.
                    unsafe { touch_from(start, whole(&layout)) };
                }
                start.as_ptr()
            }
            Err(_) => out_of_memory(whole(&layout)),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(&layout) {
            // SAFETY: a fresh mapping is zeroed.
            return unsafe { self.alloc(layout) };
        }
        count(&layout, 1);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count(&layout, -1);
        if !is_large(&layout) {
            // SAFETY: the caller's promise, handed on: it came from there.
            return unsafe { System.dealloc(start, layout) };
        }
        if let Some(start) = NonNull::new(start) {
            // SAFETY: the mapping that `alloc` made for this layout, used no more.
            unsafe { unmap(start, whole(&layout)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_small_pieces_are_usable_and_zeroed() {
        for size in [64, LARGE - 1, LARGE, (5 << 20) + 3] {
            let layout = Layout::from_size_align(size, 64).unwrap();
            // SAFETY: the layout has a size; the piece is used within it and freed with the same
            // layout.
            unsafe {
                let start = LargePages.alloc_zeroed(layout);
                assert!(!start.is_null());
                assert_eq!((*start, *start.add(size - 1)), (0, 0));
                start.write_bytes(7, size);
                let larger = LargePages.realloc(start, layout, size * 2);
                assert_eq!((*larger, *larger.add(size - 1)), (7, 7));
                LargePages.dealloc(larger, Layout::from_size_align(size * 2, 64).unwrap());
            }
        }
    }

    #[test]
    fn what_is_asked_for_and_not_given_back_is_counted() {
        let piece = |size| Layout::from_size_align(size, 64).unwrap();
        // SAFETY: the layouts have sizes; each piece is freed with its layout.
        unsafe {
            let before = LargePages.alloc(piece(100));
            let ((small, large), bytes) = counted(|| {
                LargePages.dealloc(LargePages.alloc(piece(5000)), piece(5000));
                let (large, inner) = counted(|| LargePages.alloc_zeroed(piece(LARGE + 1)));
                assert_eq!(inner, crate::pages::HUGE);
                (LargePages.alloc_zeroed(piece(700)), large)
            });
            assert_eq!(bytes, crate::pages::HUGE + 700);
            let ((), freed) = counted(|| LargePages.dealloc(before, piece(100)));
            assert_eq!(freed, 0, "what was there before is not counted");
            LargePages.dealloc(small, piece(700));
            LargePages.dealloc(large, piece(LARGE + 1));
        }
        assert!(COUNTED.get().is_none());
    }

    /// Kilobytes of a piece that there is memory for.
    #[cfg(not(miri))]
    fn present(start: *mut u8, length: usize) -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut at, mut kilobytes) = (0..0, 0);
        for line in smaps.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            if let Some((from, to)) = words[0].split_once('-')
                && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
            {
                at = from..to;
            } else if words[0] == "Rss:" && at.contains(&start.addr()) && at.end >= start.addr() + length {
                kilobytes = words[1].parse().unwrap();
            }
        }
        kilobytes
    }

    #[test]
    #[cfg(not(miri))]
    fn a_large_piece_is_there_at_once_where_that_is_wanted() {
        // Odd lengths, and nothing else of this test's is that large: the kernel may join
        // neighbouring mappings.
        let layout = Layout::from_size_align((32 << 20) + 5, 64).unwrap();
        // SAFETY: the layout has a size; the piece is freed with the same layout.
        let measured = || unsafe {
            let start = LargePages.alloc(layout);
            assert!(!start.is_null());
            let kilobytes = present(start, layout.size());
            LargePages.dealloc(start, layout);
            kilobytes
        };
        let (before, within, after) = (measured(), at_once(measured), measured());
        assert!(within >= 32 << 10, "{within} kB");
        assert!(
            before < 16 << 10 && after < 16 << 10,
            "{before} kB and {after} kB"
        );
        let caught = std::panic::catch_unwind(|| at_once(|| panic!("in the middle")));
        assert!(caught.is_err() && !AT_ONCE.get());
    }
}
