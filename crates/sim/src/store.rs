//! A simulated store that compares, as etcd does: keys with the revision at which they were
//! created, leases, and transactions. Coordinators are elected by it, and write their log to it
//! (`protocols::election`).
//!
//! One place stands for all members of etcd: a request is carried out for all of them, at once. A
//! request may come late, twice, or never, and its answer may be lost: that is the network's
//! (`crate::world`). While the store elects a leader itself, it carries nothing out, and leases
//! last longer by that.
//!
//! Invariant: a key that was put with a lease is gone when the lease is over.
//!
//! Not here: the coordinators' side ([`crate::candidate`]).

use crate::Time;
use crate::coordinator::Record;
use protocols::election::{Compare, Found, Key, Operation, Transaction, TransactionAnswer};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A record; nothing at the leader's key.
pub(crate) type Value = Option<Rc<Record>>;

/// Records of a page.
const PAGE: usize = 3;

/// A request of a coordinator.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Transact(Transaction<Value>),
    /// A lease.
    Grant,
    /// This lease is to go on.
    Keep(i64),
    /// Records from this number on.
    Page(u64),
}

/// A reply of the store.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Transacted(TransactionAnswer<Value>),
    Granted(i64),
    /// Whether the lease is there still.
    Kept(bool),
    /// And whether there are more records behind these.
    Page(Vec<(u64, Value)>, bool),
}

/// A key as the store has it.
#[derive(Clone, Debug)]
struct Stored {
    created: i64,
    puts: i64,
    value: Value,
    lease: i64,
    /// Which coordinator put it.
    by: u8,
}

/// A record that was put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub number: u64,
    pub by: u8,
    /// Which coordinator was the elected one just then.
    pub leader: Option<u8>,
}

/// See the module's page.
pub(crate) struct Store {
    ttl: u64,
    revision: i64,
    keys: BTreeMap<Key, Stored>,
    /// Until when each lasts.
    leases: BTreeMap<i64, Time>,
    next_lease: i64,
    stalled_until: Time,
    written: Vec<Written>,
}

impl Store {
    /// A store with these records, whose leases last so long.
    pub fn new(ttl: u64, records: impl Iterator<Item = (u64, Record)>) -> Self {
        let mut store = Store {
            ttl,
            revision: 1,
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            next_lease: 1,
            stalled_until: 0,
            written: Vec::new(),
        };
        for (number, record) in records {
            store.put(Key::Record(number), Some(Rc::new(record)), 0, 0);
        }
        store
    }

    /// The coordinator that is elected, and the revision of its election.
    pub fn leader(&self) -> Option<(u8, i64)> {
        self.keys.get(&Key::Leader).map(|there| (there.by, there.created))
    }

    /// When it carries out a request that comes now.
    pub fn ready_at(&self, now: Time) -> Time {
        self.stalled_until.max(now)
    }

    /// The store carries nothing out until then.
    pub fn stall(&mut self, now: Time, until: Time) {
        self.expire(now);
        let more = until.saturating_sub(self.stalled_until.max(now));
        self.stalled_until = self.stalled_until.max(until);
        for end in self.leases.values_mut() {
            *end += more;
        }
    }

    /// The store carries out requests again, at once.
    pub fn heal(&mut self) {
        self.stalled_until = 0;
    }

    /// Records that were put since this was asked last.
    pub fn take_written(&mut self) -> Vec<Written> {
        std::mem::take(&mut self.written)
    }

    /// Does what a coordinator asks.
    pub fn carry_out(&mut self, now: Time, by: u8, request: Request) -> Reply {
        self.expire(now);
        match request {
            Request::Transact(transaction) => Reply::Transacted(self.transact(by, transaction)),
            Request::Grant => {
                let lease = self.next_lease;
                self.next_lease += 1;
                self.leases.insert(lease, now + self.ttl);
                Reply::Granted(lease)
            }
            Request::Keep(lease) => {
                let end = self.leases.get_mut(&lease);
                Reply::Kept(end.map(|end| *end = now + self.ttl).is_some())
            }
            Request::Page(from) => {
                let mut records = self.keys.range(Key::Record(from)..);
                let page = records.by_ref().take(PAGE).filter_map(|(key, stored)| match key {
                    Key::Record(number) => Some((*number, stored.value.clone())),
                    Key::Leader => None,
                });
                let page = page.collect();
                Reply::Page(page, records.next().is_some())
            }
        }
    }

    fn expire(&mut self, now: Time) {
        self.leases.retain(|_, end| *end > now);
        let leases = &self.leases;
        self.keys
            .retain(|_, stored| stored.lease == 0 || leases.contains_key(&stored.lease));
    }

    fn put(&mut self, key: Key, value: Value, lease: i64, by: u8) {
        let revision = self.revision;
        let stored = self.keys.entry(key).or_insert(Stored {
            created: revision,
            puts: 0,
            value: None,
            lease,
            by,
        });
        stored.puts += 1;
        (stored.value, stored.lease, stored.by) = (value, lease, by);
    }

    fn transact(&mut self, by: u8, transaction: Transaction<Value>) -> TransactionAnswer<Value> {
        let succeeded = transaction.compare.iter().all(|compare| match compare {
            Compare::Created(key, revision) => {
                self.keys.get(key).map_or(0, |there| there.created) == *revision
            }
            Compare::Puts(key, puts) => self.keys.get(key).map_or(0, |there| there.puts) == *puts,
        });
        let operations = match succeeded {
            true => transaction.success,
            false => transaction.failure,
        };
        if operations.iter().any(|each| !matches!(each, Operation::Get(_))) {
            self.revision += 1;
        }
        let found = operations
            .into_iter()
            .map(|each| self.operate(by, each))
            .collect();
        TransactionAnswer {
            succeeded,
            revision: self.revision,
            found,
        }
    }

    fn operate(&mut self, by: u8, operation: Operation<Value>) -> Option<Found<Value>> {
        match operation {
            // A lease that is over takes no key.
            Operation::Lead(lease) if !self.leases.contains_key(&lease) => {}
            Operation::Lead(lease) => self.put(Key::Leader, None, lease, by),
            Operation::Put(number, record) => {
                let leader = self.leader().map(|(leader, _)| leader);
                self.written.push(Written { number, by, leader });
                self.put(Key::Record(number), record, 0, by);
            }
            Operation::Get(key) => {
                let there = self.keys.get(&key)?;
                return Some(Found {
                    created: there.created,
                    puts: there.puts,
                    value: there.value.clone(),
                });
            }
            Operation::Delete(key) => {
                self.keys.remove(&key);
            }
        }
        None
    }
}
