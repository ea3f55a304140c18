//! Many datagrams in a system call, for links that carry frames ([`crate::udp`], [`crate::ether`]).
//!
//! ```text
//!   push, push, … ─► [ side by side ] ── sendmmsg ──► socket
//!   socket ── recvmmsg ──► [ side by side ] ─► next, next, …
//! ```
//!
//! The bytes of a datagram to be sent are copied, so that its sender need not keep them. The bytes
//! of a received datagram are read, and decrypted, where they are.
//!
//! Invariants: a datagram is counted once, as sent, unsent, received or refused; a datagram that
//! was cut off is refused. [`Incoming::next`] ends whatever comes in: a sender that floods a link
//! with datagrams of strangers keeps no worker from its other work.
//!
//! Not here: the datagrams' contents.

use arrayvec::ArrayVec;
use runtime::env::PortCounters;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Datagrams in a system call.
const BATCH: usize = 32;
/// Bytes that may wait in a socket, each way: some milliseconds of a fast link.
const QUEUE: usize = 4 << 20;
/// Refused datagrams after which a link looks for no further ones in the same call.
const REFUSED: usize = 2 * BATCH;
/// Failures in a row after which a socket is left alone: each call tells one.
const FAILURES: usize = 4;

/// Datagrams to be sent.
pub(crate) struct Outgoing {
    bytes: Box<[u8]>,
    stride: usize,
    lengths: ArrayVec<usize, BATCH>,
    /// How often the kernel was told that there is no socket where datagrams go.
    pub refusals: u64,
}

impl Outgoing {
    /// For datagrams of up to so many bytes.
    pub fn new(length_max: usize) -> Self {
        let stride = length_max.next_multiple_of(64);
        Outgoing {
            bytes: vec![0; BATCH * stride].into(),
            stride,
            lengths: ArrayVec::new(),
            refusals: 0,
        }
    }

    /// Whether there is no room for one more.
    pub fn is_full(&self) -> bool {
        self.lengths.is_full()
    }

    /// Appends one; `false` if it is longer than any may be.
    pub fn push(&mut self, front: &[u8], frame: &[u8]) -> bool {
        let length = front.len() + frame.len();
        if length > self.stride || self.is_full() {
            return false;
        }
        let place = &mut self.bytes[self.lengths.len() * self.stride..][..length];
        place[..front.len()].copy_from_slice(front);
        place[front.len()..].copy_from_slice(frame);
        self.lengths.push(length);
        true
    }

    /// Sends all, as far as the kernel takes them; answers what failed last, unless it was that the
    /// queue is full.
    pub fn send(&mut self, fd: BorrowedFd<'_>, counters: &mut PortCounters) -> Option<io::Error> {
        let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::zeroed() }; BATCH];
        let count = self.lengths.len();
        let frames = self.bytes.chunks_exact(self.stride).zip(&self.lengths);
        for (index, (frame, length)) in frames.enumerate() {
            let piece = pieces[index].write(libc::iovec {
                iov_base: frame.as_ptr().cast_mut().cast(),
                iov_len: *length,
            });
            // SAFETY: zeros are a value of `mmsghdr`: lengths of 0 and null pointers.
            let message = unsafe { messages[index].assume_init_mut() };
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
        }
        let (mut next, mut failures, mut failed) = (0, 0, None);
        while next < count {
            // SAFETY: messages `next..count` were written above, each with one piece that leads to
            // bytes of `self`, which is borrowed for the call. The kernel only reads these, and
            // writes the messages' lengths.
            let sent = unsafe {
                libc::sendmmsg(
                    fd.as_raw_fd(),
                    messages[next].as_mut_ptr(),
                    (count - next) as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                )
            };
            if sent > 0 {
                let sent = sent as usize;
                counters.sent_packets += sent as u64;
                let bytes: usize = self.lengths[next..next + sent].iter().sum();
                counters.sent_bytes += bytes as u64;
                next += sent;
                continue;
            }
            let error = io::Error::last_os_error();
            failures += 1;
            self.refusals += u64::from(error.raw_os_error() == Some(libc::ECONNREFUSED));
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS) => break,
                // Of a datagram before: the peer was not there. This one is tried again.
                Some(libc::ECONNREFUSED) if failures < FAILURES => {}
                _ => {
                    failed = Some(error);
                    counters.unsent_packets += 1;
                    next += 1;
                    if failures >= FAILURES {
                        break;
                    }
                }
            }
        }
        counters.unsent_packets += (count - next) as u64;
        self.lengths.clear();
        failed
    }
}

/// Datagrams that were received.
pub(crate) struct Incoming {
    bytes: Box<[u8]>,
    stride: usize,
    /// Length, and whether that is all of it.
    received: ArrayVec<(usize, bool), BATCH>,
    next: usize,
}

impl Incoming {
    /// For datagrams of up to so many bytes.
    pub fn new(length_max: usize) -> Self {
        let stride = length_max.next_multiple_of(64);
        Incoming {
            bytes: vec![0; BATCH * stride].into(),
            stride,
            received: ArrayVec::new(),
            next: 0,
        }
    }

    /// The frame in the next datagram that has one, to be changed where it is. `front` says how
    /// many bytes are before the frame; a datagram without an answer is refused.
    ///
    /// `None` if no datagram is there, or many were refused. Nothing is left here then, so that
    /// later ones wait in the socket, which wakes a worker that sleeps.
    pub fn next(
        &mut self,
        fd: BorrowedFd<'_>,
        counters: &mut PortCounters,
        front: impl Fn(&[u8]) -> Option<usize>,
    ) -> Option<&mut [u8]> {
        let mut refused = 0;
        let found = loop {
            if self.next == self.received.len() {
                if refused >= REFUSED {
                    return None;
                }
                self.receive(fd);
            }
            let (length, is_whole) = *self.received.get(self.next)?;
            let start = self.next * self.stride;
            self.next += 1;
            let datagram = self.bytes.get(start..start + length)?;
            match front(datagram).filter(|_| is_whole) {
                Some(front) => {
                    counters.received_packets += 1;
                    counters.received_bytes += length as u64;
                    break start + front..start + length;
                }
                None => {
                    counters.refused_packets += 1;
                    refused += 1;
                }
            }
        };
        self.bytes.get_mut(found)
    }

    fn receive(&mut self, fd: BorrowedFd<'_>) {
        self.received.clear();
        self.next = 0;
        let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BATCH];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::zeroed() }; BATCH];
        for (index, place) in self.bytes.chunks_exact_mut(self.stride).enumerate() {
            let piece = pieces[index].write(libc::iovec {
                iov_base: place.as_mut_ptr().cast(),
                iov_len: place.len(),
            });
            // SAFETY: zeros are a value of `mmsghdr`: lengths of 0 and null pointers.
            let message = unsafe { messages[index].assume_init_mut() };
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
        }
        // The kernel's first answer may be the error of a datagram sent while the peer was not
        // there.
        for _ in 0..FAILURES {
            // SAFETY: each message has one piece that leads to a stretch of `self.bytes` of its
            // own, which is borrowed for the call; the kernel writes at most its length there, and
            // the messages' lengths and flags.
            let count = unsafe {
                libc::recvmmsg(
                    fd.as_raw_fd(),
                    messages[0].as_mut_ptr(),
                    BATCH as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            };
            if count >= 0 {
                for message in &messages[..count as usize] {
                    // SAFETY: all were zeroed, and some fields written since.
                    let message = unsafe { message.assume_init_ref() };
                    let is_whole = message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
                    let length = (message.msg_len as usize).min(self.stride);
                    self.received.push((length, is_whole));
                }
                return;
            }
            if io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) {
                return;
            }
        }
    }
}

/// Makes a socket's queues long enough; without the right to exceed the system's limit, as long as
/// that allows.
pub(crate) fn widen(fd: &std::os::fd::OwnedFd) -> io::Result<()> {
    use crate::interface::system::set_option;
    let queue = QUEUE as libc::c_int;
    for (forced, usual) in [
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
    ] {
        if set_option(fd, libc::SOL_SOCKET, forced, &queue).is_err() {
            set_option(fd, libc::SOL_SOCKET, usual, &queue)?;
        }
    }
    Ok(())
}
