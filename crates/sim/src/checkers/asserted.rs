//! Assertions of the code itself: a panic is found like anything else, with its seed, and is made
//! small.
//!
//! The text of the assertion is the finding. It is told nowhere else: threads that simulate say
//! nothing on their own.

use super::Violation;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

std::thread_local! {
    static SIMULATES: Cell<bool> = const { Cell::new(false) };
    static LAST: Cell<String> = const { Cell::new(String::new()) };
}

/// Plays a run; a panic in it is a violation.
pub(crate) fn check(play: impl FnOnce() -> Result<(), Violation>) -> Result<(), Violation> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if SIMULATES.get() {
                LAST.set(panic.to_string().replace('\n', " "));
            } else {
                before(panic);
            }
        }));
    });
    SIMULATES.set(true);
    // A run that panics is not looked at any more.
    let played = catch_unwind(AssertUnwindSafe(play));
    SIMULATES.set(false);
    played.unwrap_or_else(|_| Err(Violation::new("asserted", LAST.take())))
}
