//! The work of this program when it is started to be a store's driver (`stores::apart`): a word of
//! the command line that no page has.
//!
//! Ctrl-C, and the signals that a service's manager sends to all processes of a service, are for
//! the process that started it: that process tells its store the last changes before it ends.

use crate::{cli, signals};
use std::process::ExitCode;
use stores::apart::WORD;

/// Whether that is the only word of the command line.
pub(crate) fn is_asked() -> bool {
    let mut words = std::env::args_os().skip(1);
    words.next().is_some_and(|word| word == WORD) && words.next().is_none()
}

/// Is a driver until the process that started this one ends.
pub(crate) fn serve() -> ExitCode {
    adapters::inherited::close();
    match signals::ignore().and_then(|()| stores::apart::serve()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "{WORD}: {error}; it is not for people: Flowkeep starts it, for a store of its configuration"
            );
            ExitCode::from(cli::FAILURE)
        }
    }
}
