//! A store's file, of which each write is read back: the store's own cache would answer with the
//! bytes that it was handed, not with those that are there.
//!
//! Not here: a disk that has bytes in memory only, and says that it has written them. Their loss
//! shows at the next start (`Refusal::LogBehind`).

use redb::{BackendError, StorageBackend};
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store's lies: it says that bytes were written, and has others.
#[derive(Clone, Default, Debug)]
pub(super) struct Lies(Arc<AtomicBool>);

impl Lies {
    /// Whether there was one, since this was asked last.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// The file, or its stand-in.
#[derive(Debug)]
pub(super) struct ReadBack<B> {
    pub inner: B,
    pub lies: Lies,
}

impl<B: StorageBackend> StorageBackend for ReadBack<B> {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)?;
        let mut there = vec![0; data.len()];
        self.inner.read(offset, &mut there)?;
        if there == data {
            return Ok(());
        }
        self.lies.0.store(true, Ordering::Relaxed);
        Err(io::Error::other("what was written is not there: the store lies"))
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}
