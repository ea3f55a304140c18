//! A change of the configuration ends no flow that both configurations let in, and none is refused
//! that differs in what may differ.

use super::Violation;
use runtime::stats::Named;
use runtime::worker::change::ChangeError;

const NAME: &str = "changed";

/// Flows that a change has ended, by function and reason.
pub(crate) fn cut(worker: &str, cut: &[Named]) -> Result<(), Violation> {
    match cut.first() {
        Some(Named {
            function,
            name,
            count,
        }) => {
            let what =
                format!("{worker}: {count} flows ended by a change, which lets them in: {function} {name}");
            Err(Violation::new(NAME, what))
        }
        None => Ok(()),
    }
}

/// A runtime that had prepared a change has none to commit.
pub(crate) fn unprepared(worker: &str) -> Result<(), Violation> {
    Err(Violation::new(
        NAME,
        format!("{worker} had prepared a change, and has none to commit"),
    ))
}

/// A runtime has refused a configuration: it may while groups move and the change before is not
/// over.
pub(crate) fn refused(worker: &str, error: &ChangeError) -> Result<(), Violation> {
    match error {
        ChangeError::Moving | ChangeError::Unsettled { .. } => Ok(()),
        error => Err(Violation::new(
            NAME,
            format!("{worker} refused a change: {error}"),
        )),
    }
}
