//! Memory that two processes have, of which neither can take the other's away.
//!
//! Theory of operation. The process that reads makes it (`memfd_create`), has the kernel reserve
//! all of it, and *seals* its size before the other has it. The other looks at the seal and the
//! size: a mapping whose file cannot shrink has no page whose use kills the process.
//!
//! In 2 MiB pages where some are reserved (`vm.nr_hugepages`) or the kernel puts them together for
//! shared memory (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`); else in small ones.
//!
//! Invariants: a mapping is as long as its file was when it was sealed, and is unmapped once. The
//! memory goes with the last process that has it, even if that one is killed: it has no name.

use crate::pages::{HUGE, advise_huge};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

/// A mapping of such memory.
pub(super) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping is not tied to a thread. Its users see to reads and writes, and none of them is
// `Sync`.
unsafe impl Send for Mapping {}

impl Mapping {
    /// New memory of `length` bytes, zeroed, and the descriptor by which another process has it.
    pub fn new(length: usize) -> io::Result<(Mapping, OwnedFd)> {
        let fd = match length.is_multiple_of(HUGE) {
            true => reserve(length, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)
                .or_else(|_| reserve(length, MemfdFlags::empty())),
            false => reserve(length, MemfdFlags::empty()),
        }?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Mapping::map(&fd, length)?;
        Ok((mapping, fd))
    }

    /// Memory that another process has made: `length` bytes, at least. Its size must be sealed.
    pub fn of(fd: &OwnedFd, length: usize) -> io::Result<Mapping> {
        let seals = fcntl_get_seals(fd)?;
        if !seals.contains(SealFlags::SHRINK) || seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE)
        {
            return Err(io::Error::other("the memory is not sealed as it must be"));
        }
        if u64::try_from(fstat(fd)?.st_size).is_ok_and(|size| size < length as u64) {
            return Err(io::Error::other("the memory is shorter than said"));
        }
        Mapping::map(fd, length)
    }

    fn map(fd: &OwnedFd, length: usize) -> io::Result<Mapping> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, placed by the kernel, touches no memory in use.
        let start = unsafe { mmap(std::ptr::null_mut(), length, rights, MapFlags::SHARED, fd, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        advise_huge(start, length);
        Ok(Mapping { start, length })
    }

    /// Where it starts.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes of it.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// A file of memory, all of which is there: a missing page could be refused, with a signal, when it
/// is first used.
fn reserve(length: usize, pages: MemfdFlags) -> io::Result<OwnedFd> {
    let fd = memfd_create(
        c"flowkeep-link",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | pages,
    )?;
    ftruncate(&fd, length as u64)?;
    fallocate(&fd, FallocateFlags::empty(), 0, length as u64)?;
    Ok(fd)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made with this length, and is used no more. An error cannot be
        // reported from here.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_the_same_bytes_and_neither_can_take_them_away() {
        let (ours, fd) = Mapping::new(1 << 16).unwrap();
        let theirs = Mapping::of(&fd, 1 << 16).unwrap();
        // SAFETY: inside both mappings, which only this test has.
        unsafe {
            ours.start().add(5000).write_volatile(7);
            assert_eq!(theirs.start().add(5000).read_volatile(), 7);
        }
        assert!(ftruncate(&fd, 100).is_err());
    }

    #[test]
    fn memory_that_could_be_taken_away_or_is_too_short_is_refused() {
        let fd = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 1 << 16).unwrap();
        assert!(Mapping::of(&fd, 1 << 16).is_err());
        fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
        assert!(Mapping::of(&fd, 1 << 16).is_ok());
        assert!(Mapping::of(&fd, (1 << 16) + 1).is_err());
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        ftruncate(&file, 1 << 16).unwrap();
        assert!(Mapping::of(&file, 1 << 16).is_err());
    }
}
