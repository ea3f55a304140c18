//! The coordinator's log: numbered records, each there before the coordinator acts on it.
//!
//! ```text
//!   decider ── (number, record) ──► writer ── append, read back ──► store
//!           ◄─ Written(number) ────        ◄─ or why not; the same record again after RETRY
//!           ◄─ Withdrawn(number) ──           or another one in its place
//! ```
//!
//! A record in a store has its number and a checksum in front, so that damage and records at
//! another's place are seen.
//!
//! Not here: the meaning of records (`decider`).

mod embedded;
mod etcd;
mod read_back;
mod writer;

pub use embedded::Embedded;
pub use etcd::{Etcd, Held};
pub use writer::{RETRY, Report, Writer};

/// Records, by number.
pub trait Log: Send + 'static {
    /// All records, by ascending number.
    fn read(&mut self) -> Result<Vec<(u64, Vec<u8>)>, LogError>;

    /// Puts a record in; when this returns, it is there to stay. The same record again is no error.
    fn append(&mut self, number: u64, record: &[u8]) -> Result<(), LogError>;

    /// Whether a record is there for which `append` has failed. `None`: it may come yet, as where a
    /// server has not answered.
    fn has(&mut self, _number: u64) -> Result<Option<bool>, LogError> {
        Ok(None)
    }

    /// Takes records out. Some of them may stay after an error.
    fn forget(&mut self, numbers: &[u64]) -> Result<(), LogError>;
}

/// Why a call of the log fails.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The store says why.
    #[error("{0}")]
    Store(String),
    /// The store cannot be opened, and will not be while its file, or its rights, stay as they are.
    #[error("{0}")]
    Unusable(String),
    /// It was written, and is not there.
    #[error("record {0} was written and is not there: the store lies")]
    Lost(u64),
    /// It is not the record that was written.
    #[error("record {0} is damaged: restore the log from a copy")]
    Damaged(u64),
    /// Another record has this number.
    #[error("record {0} is there and is another one: a second coordinator has this log")]
    Other(u64),
    /// Another coordinator is elected.
    #[error("another coordinator is elected")]
    Deposed,
    /// No coordinator has written it.
    #[error("record {0} says nothing that a coordinator writes")]
    Meaning(u64),
    /// The machine does not take the records.
    #[error("the records do not lead to a view: {0}")]
    Order(String),
}

impl LogError {
    /// Whether the same thing may succeed later.
    pub fn may_pass(&self) -> bool {
        matches!(self, LogError::Store(_) | LogError::Lost(_))
    }
}

/// A record as stores have it: checksum over number and content, then content.
pub(crate) fn sealed(number: u64, record: &[u8]) -> Vec<u8> {
    let mut all = checksum(number, record).to_vec();
    all.extend_from_slice(record);
    all
}

/// The record of this number that a store has.
pub(crate) fn opened(number: u64, stored: &[u8]) -> Result<&[u8], LogError> {
    let (sum, record) = stored.split_at_checked(16).ok_or(LogError::Damaged(number))?;
    match sum == checksum(number, record) {
        true => Ok(record),
        false => Err(LogError::Damaged(number)),
    }
}

fn checksum(number: u64, record: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&number.to_be_bytes()).update(record);
    let mut sum = [0; 16];
    hasher.finalize_xof().fill(&mut sum);
    sum
}
