//! Invariant 14: one seed, one run, byte for byte.

use super::Violation;

/// Compares the digests and numbers of events of two runs of one script.
pub(crate) fn check(one: (u64, u64), other: (u64, u64)) -> Result<(), Violation> {
    if one == other {
        return Ok(());
    }
    let what = format!(
        "two runs of one seed differ: {} events, digest {:016x}, and {} events, digest {:016x}",
        one.1, one.0, other.1, other.0
    );
    Err(Violation::new("same_run", what))
}
