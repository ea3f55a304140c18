//! Bugs in production code that are there for tests alone: each of the simulator's checkers must
//! find one, and the others a test of the crate that has them.
//!
//! Where a bug is planted stands `if planted::is("name")`. Without the feature `planted`, which
//! only tests switch on, that is a constant `false`, and nothing of it is compiled. With it,
//! a bug is there in the thread that has chosen it by name (`choose`), and nowhere else.
//!
//! `grep -rn 'planted::is' crates` lists them all. A name says what goes wrong.

#[cfg(feature = "planted")]
std::thread_local! {
    static CHOSEN: core::cell::Cell<&'static str> = const { core::cell::Cell::new("") };
    static LOOKS_ONLY: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
    static REACHED: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
    static TURNS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Whether the bug of this name is there.
#[cfg(feature = "planted")]
#[inline]
pub fn is(name: &str) -> bool {
    if CHOSEN.get() != name {
        return false;
    }
    REACHED.set(REACHED.get() + 1);
    !LOOKS_ONLY.get()
}

/// Whether the bug of this name is there: none is.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is(_name: &str) -> bool {
    false
}

/// Has this thread's code have the bug of this name from now on; of no bug if it is empty.
#[cfg(feature = "planted")]
pub fn choose(name: &'static str) {
    CHOSEN.set(name);
    LOOKS_ONLY.set(false);
    REACHED.set(0);
}

/// Counts from now on how often this thread comes to where the bug of this name would be, which is
/// not there.
#[cfg(feature = "planted")]
pub fn watch(name: &'static str) {
    choose(name);
    LOOKS_ONLY.set(true);
}

/// How often this thread has come to where the chosen or watched bug is since it was.
#[cfg(feature = "planted")]
pub fn reached() -> u64 {
    REACHED.get()
}

/// How often this thread has asked: what a run must not depend on.
#[cfg(feature = "planted")]
pub fn turns() -> u64 {
    TURNS.set(TURNS.get() + 1);
    TURNS.get()
}

/// Without planted bugs no caller asks.
#[cfg(not(feature = "planted"))]
pub const fn turns() -> u64 {
    0
}
