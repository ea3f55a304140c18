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
    static IS_WATCHED: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
    static REACHED: core::cell::RefCell<alloc::vec::Vec<(&'static str, u64)>> =
        const { core::cell::RefCell::new(alloc::vec::Vec::new()) };
    static TURNS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Whether the bug of this name is there.
#[cfg(feature = "planted")]
#[inline]
pub fn is(name: &str) -> bool {
    if IS_WATCHED.get() {
        count(name);
    }
    CHOSEN.get() == name
}

#[cfg(feature = "planted")]
fn count(name: &str) {
    REACHED.with_borrow_mut(|reached| {
        let watched = reached.iter_mut().find(|(watched, _)| *watched == name);
        watched.into_iter().for_each(|(_, times)| *times += 1);
    });
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
    IS_WATCHED.set(false);
}

/// Counts from now on how often this thread comes to where each bug of these names would be, none
/// of which is there.
#[cfg(feature = "planted")]
pub fn watch(names: &[&'static str]) {
    choose("");
    REACHED.set(names.iter().map(|name| (*name, 0)).collect());
    IS_WATCHED.set(true);
}

/// How often this thread has come to where the watched bug of this name would be, since it is
/// watched.
#[cfg(feature = "planted")]
pub fn reached(name: &str) -> u64 {
    REACHED.with_borrow(|reached| {
        let watched = reached.iter().find(|(watched, _)| *watched == name);
        watched.map_or(0, |(_, times)| *times)
    })
}

/// How often this thread has asked: a value that a run must not depend on.
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
