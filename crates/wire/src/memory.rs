//! Memory that slabs, tables and packet pools are laid out in.
//!
//! The runtime makes no system call, so the caller that starts it hands it regions: plain heap
//! here, 2 MiB pages from `flowkeep-adapters`.

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use core::ptr::NonNull;

/// A zeroed, cache-line aligned piece of memory, freed when dropped.
pub struct Region {
    start: NonNull<u8>,
    length: usize,
    release: unsafe fn(NonNull<u8>, usize),
}

// SAFETY: a region owns its memory; nothing about it is tied to a thread.
unsafe impl Send for Region {}

const ALIGN: usize = 64;

impl Region {
    /// `length` bytes from the heap. Large ones take memory only where they are used.
    ///
    /// An allocator asked for zeros at more than its own alignment writes them one by one, into
    /// every page. So one line more is asked for at its own alignment, and the region starts at the
    /// first whole line, with the way back before it:
    ///
    /// ```text
    ///   given │ … │ given │ region, whole lines … │ …
    ///   └── 16 to 64 bytes ┘
    /// ```
    pub fn heap(length: usize) -> Self {
        let length = length.max(ALIGN).checked_next_multiple_of(ALIGN);
        let (length, layout) = length
            .and_then(|length| Some((length, heap_layout(length)?)))
            .expect("a region is smaller than isize::MAX");
        // SAFETY: the layout has a size above zero.
        let given = unsafe { alloc_zeroed(layout) };
        let Some(given) = NonNull::new(given) else {
            handle_alloc_error(layout)
        };
        let skipped = ALIGN - given.addr().get() % ALIGN;
        // SAFETY: `given` is a multiple of 16, so 16 to 64 bytes are skipped: room for a pointer,
        // aligned for one, and `length` bytes are left of the line more.
        let start = unsafe {
            let start = given.add(skipped);
            start.cast::<NonNull<u8>>().sub(1).write(given);
            start
        };
        Region {
            start,
            length,
            release: release_heap,
        }
    }

    /// Memory from elsewhere.
    ///
    /// # Safety
    /// `start` must be aligned to 64 bytes, zeroed and valid for reads and writes of `length` bytes
    /// until `release` is called on it, by the region alone.
    pub unsafe fn from_raw(
        start: NonNull<u8>,
        length: usize,
        release: unsafe fn(NonNull<u8>, usize),
    ) -> Self {
        debug_assert!(start.as_ptr().addr().is_multiple_of(ALIGN));
        Region {
            start,
            length,
            release,
        }
    }

    /// Where it starts.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length in bytes.
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }
}

/// So many values of one type, laid out in a region.
pub struct Array<T> {
    region: Region,
    length: usize,
    values: core::marker::PhantomData<T>,
}

impl<T: Copy> Array<T> {
    /// Bytes of region for `length` values.
    pub fn region_length(length: usize) -> usize {
        length * size_of::<T>()
    }

    /// `length` times `value`.
    ///
    /// # Panics
    /// If the region is smaller than [`Array::region_length`], or the type needs more than its
    /// alignment of 64.
    pub fn filled(region: Region, length: usize, value: T) -> Self {
        assert!(align_of::<T>() <= ALIGN && Self::region_length(length) <= region.length());
        for index in 0..length {
            // SAFETY: inside the region (asserted), which starts aligned to 64.
            unsafe { region.start().cast::<T>().add(index).write(value) };
        }
        Array {
            region,
            length,
            values: core::marker::PhantomData,
        }
    }
}

impl<T> core::ops::Deref for Array<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: all values were written by `filled`; the region is this array's alone.
        unsafe { core::slice::from_raw_parts(self.region.start().cast().as_ptr(), self.length) }
    }
}

impl<T> core::ops::DerefMut for Array<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `&mut self` makes this the only reference.
        unsafe { core::slice::from_raw_parts_mut(self.region.start().cast().as_ptr(), self.length) }
    }
}

/// The layout of a region of so many bytes for the allocator, at an alignment that it has anyway.
fn heap_layout(length: usize) -> Option<Layout> {
    Layout::from_size_align(length.checked_add(ALIGN)?, 16).ok()
}

unsafe fn release_heap(start: NonNull<u8>, length: usize) {
    // SAFETY: called once by `Drop`, with the memory that `Region::heap` allocated: the pointer
    // before it is the one given then, and the layout the same.
    unsafe {
        let given = start.cast::<NonNull<u8>>().sub(1).read();
        dealloc(given.as_ptr(), heap_layout(length).unwrap_unchecked());
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region is going, so its memory is used no more, and this runs once.
        unsafe { (self.release)(self.start, self.length) }
    }
}

/// Asks the processor to fetch a cache line.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is without effect but on caches.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zeroed_aligned_and_whole_lines() {
        for (asked, given) in [(0, 64), (1, 64), (64, 64), (65, 128)] {
            let region = Region::heap(asked);
            assert_eq!((region.length(), region.start().addr().get() % ALIGN), (given, 0));
            // SAFETY: the region is ours alone and this long.
            let bytes = unsafe { core::slice::from_raw_parts(region.start().as_ptr(), region.length()) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            prefetch(region.start().as_ptr());
        }
    }

    /// Kilobytes of memory that this process has used at most.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn memory_used() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_large_region_takes_no_memory_before_it_is_used() {
        let before = memory_used();
        let region = Region::heap(1 << 30);
        let after = memory_used();
        assert!(after - before < 1 << 18, "{before} kB before, {after} kB after");
        drop(region);
    }

    #[test]
    #[should_panic(expected = "isize::MAX")]
    fn a_region_beyond_all_memory_is_refused() {
        Region::heap(usize::MAX);
    }
}
