//! Where a thread without work sleeps until a port or another thread has some.
//!
//! Theory of operation. A thread that finds nothing to do says that it lies down, looks once more,
//! and then waits for its ports' descriptors and an event of its own. A thread that hands it
//! something looks behind that whether it lies, and sets the event if so.
//!
//! ```text
//!   sleeper: asleep = true ── fence ── look at rings: nothing ── poll(ports, event)
//!   giver:   put into the ring ── fence ── asleep? ── set event
//! ```
//!
//! Of the two, at least one sees what the other has done, so nothing that was handed over is slept
//! through. A thread that is awake costs the giver a fence and a load per burst, no system call.
//!
//! Not here: when to sleep, and for how long at most.

use crate::interface::system::checked;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// The place of one thread.
#[derive(Debug)]
pub struct Sleeper {
    asleep: AtomicBool,
    event: OwnedFd,
}

impl Sleeper {
    /// A place in which no thread lies.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes numbers only.
        let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        Ok(Sleeper {
            asleep: AtomicBool::new(false),
            // SAFETY: the kernel has just made this descriptor, and nothing else has it.
            event: unsafe { OwnedFd::from_raw_fd(fd) },
        })
    }

    /// From now on a thread that hands something over wakes this one. This thread looks for work
    /// once more before it sleeps.
    pub fn lie_down(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// From now on this thread need not be woken.
    pub fn get_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        let mut count = 0_u64;
        // SAFETY: the kernel writes eight bytes at most. An event that is set only behind this ends
        // the next sleep at once.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    /// Sleeps until a descriptor has something to be read, a thread wakes this one, or the time is
    /// over.
    pub fn sleep(&self, descriptors: &mut Vec<Wanted>, limit: Duration) {
        descriptors.push(Wanted::of(self.event.as_raw_fd()));
        let limit = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: as many structures as said, each transparent, borrowed for the call.
        unsafe {
            libc::poll(
                descriptors.as_mut_ptr().cast(),
                descriptors.len() as libc::nfds_t,
                limit,
            )
        };
        descriptors.pop();
    }

    /// Wakes the thread if it lies there.
    #[inline]
    pub fn wake(&self) {
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            let one = 1_u64;
            // SAFETY: the kernel reads eight bytes. The call fails only if the event is set to
            // bursting, and then it is set.
            unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }
}

/// Called between handing something over and [`Sleeper::wake`].
#[inline]
pub fn handed_over() {
    fence(Ordering::SeqCst);
}

/// A descriptor from which something is to be read.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Wanted(libc::pollfd);

impl Wanted {
    /// Something from this one.
    pub fn of(descriptor: i32) -> Self {
        Wanted(libc::pollfd {
            fd: descriptor,
            events: libc::POLLIN,
            revents: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    /// Longer than all that is handed over takes on a busy machine.
    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn nothing_handed_over_is_slept_through() {
        const HANDED: u64 = 2000;
        let (sleeper, mail) = (Arc::new(Sleeper::new().unwrap()), Arc::new(AtomicU64::new(0)));
        let (theirs, post) = (sleeper.clone(), mail.clone());
        let began = Instant::now();
        let thread = std::thread::spawn(move || {
            let mut seen = 0;
            while seen < HANDED {
                theirs.lie_down();
                let now = post.load(Ordering::Relaxed);
                if now == seen {
                    theirs.sleep(&mut Vec::new(), LONG);
                }
                theirs.get_up();
                seen = post.load(Ordering::Relaxed);
            }
        });
        for number in 1..=HANDED {
            mail.store(number, Ordering::Relaxed);
            handed_over();
            sleeper.wake();
            if number % 7 == 0 {
                std::thread::yield_now();
            }
        }
        thread.join().unwrap();
        assert!(began.elapsed() < LONG, "it slept its time out");
    }

    #[test]
    fn a_sleep_ends_by_itself_and_who_is_up_is_not_woken() {
        let sleeper = Sleeper::new().unwrap();
        sleeper.wake();
        sleeper.lie_down();
        let began = Instant::now();
        sleeper.sleep(&mut Vec::new(), Duration::from_millis(20));
        assert!(
            began.elapsed() >= Duration::from_millis(19),
            "{:?}",
            began.elapsed()
        );
        sleeper.get_up();
    }
}
