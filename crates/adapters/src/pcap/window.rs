//! A file through one large buffer: the bytes at hand are one slice, and more are read on demand.
//!
//! ```text
//!   buffer │ used up │ bytes at hand │ free │
//!          0        from             to     len
//! ```
//!
//! `fill(n)` makes at least `n` bytes be at hand, and moves the bytes at hand to the front first if
//! it must; only then is anything moved, so a record's bytes stay where they are until the next
//! `fill`.
//!
//! Reads and no memory map, on purpose: a file that another process cuts off while it is mapped
//! kills this process with SIGBUS, and a pipe cannot be mapped. From the page cache the copy costs
//! a few nanoseconds a packet.

use std::io::{self, Read, Seek};

/// Bytes asked of the system at a time.
pub(super) const BUFFER: usize = 1 << 20;

pub(super) struct Window<R> {
    source: R,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// Where `from` is in the file.
    offset: u64,
    ended: bool,
}

impl<R: Read> Window<R> {
    pub(super) fn new(source: R, size: usize) -> Self {
        Window {
            source,
            buffer: vec![0; size],
            from: 0,
            to: 0,
            offset: 0,
            ended: false,
        }
    }

    /// The bytes at hand.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    /// Where the bytes at hand begin in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes on by `count` of the bytes at hand.
    #[inline]
    pub(super) fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.to - self.from);
        self.from += count;
        self.offset += count as u64;
    }

    /// Tries to have `needed` bytes at hand; `false` if the file ends before.
    #[inline]
    pub(super) fn fill(&mut self, needed: usize) -> io::Result<bool> {
        if self.to - self.from >= needed {
            return Ok(true);
        }
        self.read_on(needed)
    }

    #[cold]
    fn read_on(&mut self, needed: usize) -> io::Result<bool> {
        self.buffer.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        if needed > self.buffer.len() {
            self.buffer.resize(needed, 0);
        }
        while self.to < needed && !self.ended {
            match self.source.read(&mut self.buffer[self.to..]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.to += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.to >= needed)
    }
}

impl<R: Read + Seek> Window<R> {
    /// Back to the file's first byte.
    pub(super) fn rewind(&mut self) -> io::Result<()> {
        self.source.rewind()?;
        self.from = 0;
        self.to = 0;
        self.offset = 0;
        self.ended = false;
        Ok(())
    }
}
