//! Descriptors that a process was started with.
//!
//! Not here: descriptors that the process opens itself; they are closed with it.

/// Closes all but standard input, output and error. To be called first in `main`: descriptors open
/// then have no owner in this process.
pub fn close() {
    // A kernel before 5.9 does not know the call: everything that Flowkeep opens is closed by the
    // start itself (`O_CLOEXEC`).
    // SAFETY: it takes three numbers, and no descriptor behind 2 is anything's yet.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
}
