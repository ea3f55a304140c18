//! The election of the one coordinator that may write the log, and its records, as transactions
//! over a store that compares (etcd, version 3).
//!
//! ```text
//!   look ─► the leader's key is there: wait, look again
//!        └► not there ─► a lease L ─► stand: if it is not there, put it with L ─► elected, at revision E
//!   read, page by page ─► append: if the leader's key is of E and was put K times, and record N is not there:
//!                                 put record N, and the leader's key again
//!                      ─► forget, resign: if the leader's key is of E
//! ```
//!
//! The key goes with its lease. A coordinator whose lease is over is not the leader any more, and
//! the store takes no record of it: the comparison fails, whatever that coordinator believes.
//!
//! An answer may be lost behind what it answers, and a request may be carried out long after its
//! caller has given it up and asked another member of the store. Each record puts the leader's key
//! once more, and is compared with how often that was put. So a request that comes late finds
//! another count, though its record was forgotten meanwhile.
//!
//! | word | what it bounds |
//! |---|---|
//! | [`Elected`] | records: the coordinator of one election writes them, each once |
//! | [`Hold`] | how long a coordinator takes itself for elected, by its own clock, counted from before it asked |
//!
//! Invariants: a record is written only while the key that its coordinator was elected by is there;
//! a number has one record for ever; a coordinator that reads behind its election reads all that
//! any before it has decided.
//!
//! Not here: calls, their time and their repetition (the crate `coordinator`, the simulator); the
//! meaning of records.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// A place in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// Where the elected coordinator stands.
    Leader,
    /// A record, by its number.
    Record(u64),
}

/// A condition on a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// The revision at which it was created; 0: it is not there.
    Created(Key, i64),
    /// How often it was put since it was created.
    Puts(Key, i64),
}

/// A part of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation<V> {
    /// The leader's key is put, and goes with this lease.
    Lead(i64),
    /// A record is put.
    Put(u64, V),
    /// The key is read.
    Get(Key),
    /// The key is deleted.
    Delete(Key),
}

/// All of `success` at once if all comparisons hold, else all of `failure`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction<V> {
    /// The conditions.
    pub compare: Vec<Compare>,
    /// The operations if all conditions hold.
    pub success: Vec<Operation<V>>,
    /// The operations otherwise.
    pub failure: Vec<Operation<V>>,
}

/// A key as the store has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found<V> {
    /// The revision at which it was created.
    pub created: i64,
    /// How often it was put since.
    pub puts: i64,
    /// The value that was put last.
    pub value: V,
}

/// The answer to a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransactionAnswer<V> {
    /// Whether all was as compared.
    pub succeeded: bool,
    /// The store's revision behind it.
    pub revision: i64,
    /// For each operation what it found.
    pub found: Vec<Option<Found<V>>>,
}

impl<V> TransactionAnswer<V> {
    fn at(&self, place: usize) -> Option<&Found<V>> {
        self.found.get(place)?.as_ref()
    }
}

/// Asks whether a coordinator is elected: [`is_vacant`] reads the answer.
pub fn look<V>() -> Transaction<V> {
    Transaction {
        compare: Vec::new(),
        success: vec![Operation::Get(Key::Leader)],
        failure: Vec::new(),
    }
}

/// Whether none is elected, by the answer to [`look`].
pub fn is_vacant<V>(answer: &TransactionAnswer<V>) -> bool {
    answer.at(0).is_none()
}

/// Stands for election with this lease: [`Elected::by`] reads the answer.
pub fn stand<V>(lease: i64) -> Transaction<V> {
    Transaction {
        compare: vec![Compare::Created(Key::Leader, 0)],
        success: vec![Operation::Lead(lease)],
        failure: Vec::new(),
    }
}

/// Why a record is not in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotTaken {
    /// It was put, and is not there.
    Lost,
    /// Another record has its number.
    Other,
    /// Another coordinator is elected.
    Deposed,
}

/// An election, and how often its coordinator has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elected {
    /// The revision at which the leader's key was created.
    created: i64,
    lease: i64,
    /// How often it was put, as far as is known.
    puts: i64,
}

impl Elected {
    /// Reads the answer to [`stand`].
    pub fn by<V>(lease: i64, answer: &TransactionAnswer<V>) -> Option<Self> {
        answer.succeeded.then_some(Elected {
            created: answer.revision,
            lease,
            puts: 1,
        })
    }

    /// The revision of the election: that of a later one is higher.
    pub fn revision(&self) -> i64 {
        self.created
    }

    fn compared(&self) -> Vec<Compare> {
        match wire::planted::is("writer_not_compared") {
            true => Vec::new(),
            false => vec![Compare::Created(Key::Leader, self.created)],
        }
    }

    /// Writes a record. Records are written one at a time: the next waits until
    /// [`Elected::appended`] has taken the answer.
    pub fn append<V: Clone>(&self, number: u64, record: &V) -> Transaction<V> {
        let mut compare = self.compared();
        if !compare.is_empty() && !wire::planted::is("writes_not_counted") {
            compare.push(Compare::Puts(Key::Leader, self.puts));
        }
        compare.push(Compare::Created(Key::Record(number), 0));
        Transaction {
            compare,
            success: vec![
                Operation::Put(number, record.clone()),
                Operation::Lead(self.lease),
                Operation::Get(Key::Record(number)),
            ],
            failure: vec![Operation::Get(Key::Leader), Operation::Get(Key::Record(number))],
        }
    }

    /// Reads the answer to [`Elected::append`]. The same record may have been written by a request
    /// whose answer was lost.
    pub fn appended<V: PartialEq>(
        &mut self,
        record: &V,
        answer: &TransactionAnswer<V>,
    ) -> Result<(), NotTaken> {
        let is_there = |place| answer.at(place).is_some_and(|there| there.value == *record);
        if answer.succeeded {
            self.puts = self.puts.saturating_add(1);
            return if is_there(2) { Ok(()) } else { Err(NotTaken::Lost) };
        }
        match answer.at(0).filter(|leader| leader.created == self.created) {
            None => Err(NotTaken::Deposed),
            Some(leader) if is_there(1) => {
                self.puts = leader.puts;
                Ok(())
            }
            Some(_) => Err(NotTaken::Other),
        }
    }

    /// Takes records out. If it does not succeed, another coordinator is elected.
    pub fn forget<V>(&self, numbers: &[u64]) -> Transaction<V> {
        let delete = |number: &u64| Operation::Delete(Key::Record(*number));
        Transaction {
            compare: self.compared(),
            success: numbers.iter().map(delete).collect(),
            failure: Vec::new(),
        }
    }

    /// Leads no more: the next one need not wait for the lease.
    pub fn resign<V>(&self) -> Transaction<V> {
        Transaction {
            compare: vec![Compare::Created(Key::Leader, self.created)],
            success: vec![Operation::Delete(Key::Leader)],
            failure: Vec::new(),
        }
    }
}

/// The records of a log, read page by page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading<V> {
    records: BTreeMap<u64, V>,
    is_whole: bool,
}

impl<V> Default for Reading<V> {
    fn default() -> Self {
        Reading {
            records: BTreeMap::new(),
            is_whole: false,
        }
    }
}

impl<V> Reading<V> {
    /// The number from which on the next page is read, unless all is.
    pub fn next(&self) -> Option<u64> {
        let behind = |(last, _): (&u64, _)| last.saturating_add(1);
        (!self.is_whole).then(|| self.records.last_key_value().map_or(0, behind))
    }

    /// Takes a page in. `more`: there are records behind it.
    pub fn take(&mut self, page: impl IntoIterator<Item = (u64, V)>, more: bool) {
        let before = self.records.len();
        self.records.extend(page);
        let is_last = !more || self.records.len() == before;
        self.is_whole = is_last || wire::planted::is("first_page_is_all");
    }

    /// All records, by ascending number.
    pub fn records(self) -> impl Iterator<Item = (u64, V)> {
        self.records.into_iter()
    }
}

/// Numbers of records that are to go, in the order in which they are to. A record that did not go
/// goes first the next time: a log of which a later record went and an earlier one stayed leads to
/// no view.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Spare(Vec<u64>);

impl Spare {
    /// These numbers are to go, behind all others.
    pub fn add(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.0.extend(numbers);
    }

    /// All numbers that are to go.
    pub fn all(&self) -> &[u64] {
        &self.0
    }

    /// The records have gone, or some may be there still.
    pub fn done(&mut self, have_gone: bool) {
        if have_gone {
            self.0.clear();
        }
    }
}

/// How long a coordinator takes itself for elected, in nanoseconds of its own clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    ttl: u64,
    /// When the last question was asked that the store has answered with a lease.
    kept: u64,
    is_over: bool,
}

impl Hold {
    /// The lease was asked for at this time.
    pub fn new(asked: u64, ttl: u64) -> Self {
        Hold {
            ttl,
            kept: asked,
            is_over: false,
        }
    }

    /// The store was asked then to keep it, and has done so, or has none any more.
    pub fn answered(&mut self, asked: u64, is_kept: bool) {
        if is_kept {
            self.kept = self.kept.max(asked);
        } else {
            self.is_over = true;
        }
    }

    /// Whether the lease may be over, so that another may be elected.
    pub fn is_over(&self, now: u64) -> bool {
        let is_over = self.is_over || now.saturating_sub(self.kept) >= self.ttl;
        is_over && !wire::planted::is("elected_for_ever")
    }
}

#[cfg(test)]
mod tests;
