//! An allocator that lays large pieces out in 2 MiB pages.
//!
//! Tables that functions keep (mappings, indices) are ordinary vectors and maps, and random accesses to them cost a page walk
//! each where pages are small. What is 1 MiB and larger comes from a mapping that the kernel is asked to back with large
//! pages; everything else is the system allocator's. Nothing is touched in advance: memory is taken when it is used.
//!
//! A binary opts in: `#[global_allocator] static MEMORY: LargePages = LargePages;`

use crate::pages::{advise_huge, map_aligned, unmap};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{NonNull, null_mut};

/// Pieces of this size and larger are mapped.
const LARGE: usize = 1 << 20;

/// The allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargePages;

fn is_large(layout: &Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= crate::pages::HUGE
}

fn whole(layout: &Layout) -> usize {
    layout.size().next_multiple_of(crate::pages::HUGE)
}

// SAFETY: small pieces are the system allocator's own. Large ones are fresh private mappings of at least the size asked for,
// aligned to 2 MiB, zeroed, and unmapped with the same length, which follows from the layout alone.
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_large(&layout) {
            // SAFETY: the caller's promise, handed on.
            return unsafe { System.alloc(layout) };
        }
        match map_aligned(whole(&layout)) {
            Ok(start) => {
                advise_huge(start, whole(&layout));
                start.as_ptr()
            }
            Err(_) => null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(&layout) {
            // SAFETY: a fresh mapping is zeroed.
            return unsafe { self.alloc(layout) };
        }
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if !is_large(&layout) {
            // SAFETY: the caller's promise, handed on: it came from there.
            return unsafe { System.dealloc(start, layout) };
        }
        if let Some(start) = NonNull::new(start) {
            // SAFETY: the mapping that `alloc` made for this layout, used by nobody any more.
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
            // SAFETY: the layout has a size; the piece is used within it and freed with the same layout.
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
}
