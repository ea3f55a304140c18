//! Regions of 2 MiB pages.
//!
//! Theory of operation. A table of 64 MiB in 4 KiB pages misses the processor's address cache on
//! nearly every access; in 2 MiB pages it has 32 entries. [`map`] tries, in order:
//!
//! ```text
//!   1 reserved    mmap(MAP_HUGETLB)             needs vm.nr_hugepages; never taken away again
//!   2 transparent mmap, aligned to 2 MiB,       the kernel gives 2 MiB pages where it has them together
//!                 madvise(MADV_HUGEPAGE)
//!   3 plain       what is left when it has none
//! ```
//!
//! Every page is touched at once ([`map_ahead`]: the first ones), so that none is missing on the
//! first packet's path and the pages asked for and the pages there can be compared:
//! [`Pages::huge_bytes`] are the bytes that are really huge, as the kernel says
//! (`/proc/self/smaps`).
//!
//! Invariants: a region is zeroed, aligned to 2 MiB, a whole number of pages long, and unmapped
//! once, by its `Drop`.
//!
//! Not here: memory shared between processes, and placement on NUMA nodes.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::process::{Resource, getrlimit};
use std::ffi::c_void;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::ptr::NonNull;
use wire::memory::Region;

/// Bytes of a huge page on x86-64 and, with 4 KiB base pages, on arm64.
pub const HUGE: usize = 2 << 20;
const BASE: usize = 4096;

/// The kind of a region's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// 2 MiB pages reserved beforehand (hugetlbfs).
    Reserved,
    /// 2 MiB pages that the kernel put together, at least in part.
    Transparent,
    /// 4 KiB pages.
    Plain,
}

/// The kind of pages to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// The best there are.
    #[default]
    Huge,
    /// 4 KiB pages, to measure the gain of the others.
    Plain,
}

/// A region, and the pages it was made of.
pub struct Pages {
    /// The memory.
    pub region: Region,
    /// Its kind of pages.
    pub kind: PageKind,
    /// How many of its bytes are in 2 MiB pages.
    pub huge_bytes: usize,
}

/// There is not enough memory.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} MiB of memory cannot be mapped: {source}; {}",
    length >> 20,
    remedy()
)]
pub struct PagesError {
    length: usize,
    source: std::io::Error,
}

/// How much address space this process may have, in bytes (`ulimit -v`), if that is limited.
pub fn space_max() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Has the C library's allocator reserve no address space for each thread, where that is limited:
/// it takes 64 MiB for a thread that it may not use, and leaves too little. To be called before
/// there are threads.
pub fn spare_space() {
    #[cfg(target_env = "gnu")]
    if space_max().is_some() {
        // SAFETY: mallopt(3) takes two numbers, and this process has one thread.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// The remedy where there is no more memory.
fn remedy() -> String {
    match space_max() {
        Some(most) => format!(
            "this process may map {} MiB (`ulimit -v`; `LimitAS=` of a unit): raise that, or lower `flows_max` or `runtimes`",
            most >> 20
        ),
        None => "lower `flows_max` or `runtimes`, or raise the memory limit".to_owned(),
    }
}

/// Ends the process with a word on its memory, where the language would end it without one.
pub(crate) fn out_of_memory(bytes: usize) -> ! {
    // An allocation may fail once more; then there are no words.
    let error = PagesError {
        length: bytes,
        source: std::io::ErrorKind::OutOfMemory.into(),
    };
    let _ = writeln!(std::io::stderr(), "{error}");
    // SAFETY: it ends the process. Nothing that runs at an end may allocate here.
    unsafe { libc::_exit(1) }
}

/// Maps at least `length` bytes, zeroed, in the best pages there are, all of them there at once.
pub fn map(length: usize, want: Want) -> Result<Pages, PagesError> {
    map_ahead(length, want, usize::MAX)
}

/// The same, with only the first so many bytes there at once. The kernel finds others when they are
/// used.
pub fn map_ahead(length: usize, want: Want, ahead: usize) -> Result<Pages, PagesError> {
    let failed = |source: rustix::io::Errno| PagesError {
        length,
        source: source.into(),
    };
    let length_whole = length.max(1).checked_next_multiple_of(HUGE);
    let whole = length_whole.ok_or(failed(rustix::io::Errno::NOMEM))?;
    if want == Want::Huge
        && let Some(start) = map_reserved(whole)
    {
        return Ok(Pages {
            region: own(start, whole),
            kind: PageKind::Reserved,
            huge_bytes: whole,
        });
    }
    let start = map_aligned(whole).map_err(failed)?;
    let advice = match want {
        Want::Huge => Advice::LinuxHugepage,
        Want::Plain => Advice::LinuxNoHugepage,
    };
    // SAFETY: the range was mapped just now. The advice changes no content; a kernel that knows no
    // huge pages refuses it, and plain pages it is.
    let _ = unsafe { madvise(start.as_ptr().cast(), whole, advice) };
    let region = own(start, whole);
    // SAFETY: a region that nothing else has yet; it holds zeros.
    unsafe { touch_from(region.start(), ahead.min(whole)) };
    let huge_bytes = huge_bytes_of(&region);
    Ok(Pages {
        region,
        kind: if huge_bytes > 0 {
            PageKind::Transparent
        } else {
            PageKind::Plain
        },
        huge_bytes,
    })
}

/// Keeps the kernel from putting large pages together for this process, in any allocation: to
/// measure what they bring.
pub fn only_plain() -> std::io::Result<()> {
    rustix::thread::disable_transparent_huge_pages(true).map_err(Into::into)
}

/// 2 MiB pages reserved beforehand; `None` if there are not enough.
fn map_reserved(length: usize) -> Option<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB | MapFlags::POPULATE;
    // SAFETY: a new anonymous mapping, placed by the kernel, touches no memory in use.
    let start = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ | ProtFlags::WRITE,
            flags,
        )
    };
    NonNull::new(start.ok()?.cast())
}

/// A mapping that begins on a 2 MiB boundary: a mapping longer by a page, with both ends cut off.
pub(crate) fn map_aligned(length: usize) -> rustix::io::Result<NonNull<u8>> {
    let roomy = length.checked_add(HUGE).ok_or(rustix::io::Errno::NOMEM)?;
    // SAFETY: as above.
    let start = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            roomy,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }?;
    let start = start.cast::<u8>();
    let before = start.addr().next_multiple_of(HUGE) - start.addr();
    let after = HUGE - before;
    // SAFETY: `before + length + after` is the mapping's length, so all three parts lie in it, and
    // no pointer leads to the parts that go. Addresses and lengths are multiples of the base page.
    unsafe {
        if before > 0 {
            munmap(start.cast::<c_void>(), before)?;
        }
        if after > 0 {
            munmap(start.add(before + length).cast::<c_void>(), after)?;
        }
        NonNull::new(start.add(before)).ok_or(rustix::io::Errno::NOMEM)
    }
}

/// Asks the kernel for 2 MiB pages behind a mapping; where it has none, small ones it is.
pub(crate) fn advise_huge(start: NonNull<u8>, length: usize) {
    // SAFETY: the range is a mapping of the caller's; the advice changes no content.
    let _ = unsafe { madvise(start.as_ptr().cast(), length, Advice::LinuxHugepage) };
}

/// Gives a mapping back.
///
/// # Safety
/// It was made with this length by [`map_aligned`], and is used no more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, length: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { munmap(start.as_ptr().cast(), length) };
}

fn own(start: NonNull<u8>, length: usize) -> Region {
    // SAFETY: a fresh private anonymous mapping: zeroed, page-aligned, readable and writable, and
    // not shared; `release` unmaps exactly it.
    unsafe { Region::from_raw(start, length, release) }
}

/// # Safety
/// Called once, with a mapping that is used no more.
unsafe fn release(start: NonNull<u8>, length: usize) {
    // SAFETY: by the region's contract this is the mapping it was made from. An error could only
    // mean that it is not mapped, and cannot be reported from here.
    let _ = unsafe { munmap(start.as_ptr().cast(), length) };
}

/// Writes to every page of a fresh mapping, so that all are there from now on.
///
/// # Safety
/// From `start` on so many bytes are mapped, hold zeros, and are the caller's alone.
pub(crate) unsafe fn touch_from(start: NonNull<u8>, length: usize) {
    for at in (0..length).step_by(BASE) {
        // SAFETY: within what the caller promises; it holds zero before and after.
        unsafe { start.add(at).write_volatile(0) };
    }
}

/// How many bytes of a region are in transparent 2 MiB pages now, by the kernel's word.
///
/// The kernel counts by mapping, and may have joined two neighbouring regions to one: then this is
/// what both have, at most the region's length.
pub fn huge_bytes_of(region: &Region) -> usize {
    let start = region.start().addr().get();
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    huge_bytes_in(&smaps, start..start + region.length())
}

fn huge_bytes_in(smaps: &str, range: Range<usize>) -> usize {
    let mut overlaps = false;
    let mut kibibytes = 0;
    for line in smaps.lines() {
        if let Some(mapping) = mapping_of(line) {
            overlaps = mapping.start < range.end && range.start < mapping.end;
        } else if overlaps && let Some(rest) = line.strip_prefix("AnonHugePages:") {
            let number = rest.trim().trim_end_matches("kB").trim_end();
            kibibytes += number.parse().unwrap_or(0usize);
        }
    }
    (kibibytes << 10).min(range.len())
}

/// `7f0000000000-7f0000200000 rw-p …`
fn mapping_of(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(region: &mut Region) -> &mut [u8] {
        // SAFETY: the region owns its memory, which is initialised (zeroed), and is borrowed for as
        // long as the slice.
        unsafe { std::slice::from_raw_parts_mut(region.start().as_ptr(), region.length()) }
    }

    #[test]
    fn regions_are_zeroed_aligned_and_writable() {
        for want in [Want::Huge, Want::Plain] {
            let mut pages = map(3 * HUGE + 5, want).unwrap();
            assert_eq!(pages.region.length(), 4 * HUGE);
            assert_eq!(pages.region.start().addr().get() % HUGE, 0);
            let kind = pages.kind;
            let bytes = bytes(&mut pages.region);
            assert!(bytes.iter().all(|b| *b == 0));
            bytes.fill(7);
            println!(
                "asked for {want:?}, got {kind:?}, {} of {} bytes huge",
                pages.huge_bytes,
                4 * HUGE
            );
            if want == Want::Plain {
                assert_eq!((kind, pages.huge_bytes), (PageKind::Plain, 0));
            }
        }
    }

    #[test]
    fn pages_are_huge_where_the_kernel_gives_them() {
        let mode = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        if !mode.contains("[madvise]") && !mode.contains("[always]") {
            println!("not run: needs transparent huge pages");
            return;
        }
        let pages = map(16 * HUGE, Want::Huge).unwrap();
        assert_ne!(pages.kind, PageKind::Plain);
        assert!(pages.huge_bytes > 0 && pages.huge_bytes <= 16 * HUGE);
    }

    #[test]
    fn memory_is_given_back() {
        let mapped = |start: usize| {
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().filter_map(mapping_of).any(|m| m.contains(&start))
        };
        let pages = map(HUGE, Want::Plain).unwrap();
        let start = pages.region.start().addr().get();
        assert!(mapped(start));
        // Another test's thread may map something there in the moment between; three times in a row
        // it does not.
        drop(pages);
        let still = (0..3).all(|_| {
            let pages = map(HUGE, Want::Plain).unwrap();
            let start = pages.region.start().addr().get();
            drop(pages);
            mapped(start)
        });
        assert!(!still);
    }

    #[test]
    fn what_cannot_be_mapped_is_an_error_with_advice() {
        let error = map(1 << 60, Want::Huge).err().unwrap().to_string();
        assert!(
            error.contains("cannot be mapped") && error.contains("lower `flows_max`"),
            "{error}"
        );
        assert!(map(usize::MAX, Want::Huge).is_err());
    }

    #[test]
    fn smaps_are_read() {
        let smaps = "10000000-10400000 rw-p 00000000 00:00 0 \nSize: 4096 kB\nAnonHugePages:      2048 kB\nVmFlags: rd wr hg \n\
                     20000000-20400000 rw-p 00000000 00:00 0 [heap]\nAnonHugePages:      4096 kB\n";
        assert_eq!(huge_bytes_in(smaps, 0x1000_0000..0x1040_0000), HUGE);
        assert_eq!(huge_bytes_in(smaps, 0x2000_0000..0x2020_0000), HUGE);
        assert_eq!(huge_bytes_in(smaps, 0x3000_0000..0x3020_0000), 0);
        assert_eq!(huge_bytes_in("", 0..10), 0);
    }
}
