//! `cassandra://[USER:PASSWORD@]HOST[:PORT][,HOST…][/KEYSPACE][?SETTING=VALUE&…]`: Cassandra 5, and
//! ScyllaDB by the same protocol; `cassandras://…` the same over TLS.
//!
//! | setting | is |
//! |---|---|
//! | `consistency` | `quorum` (usual), `local_quorum`, `all`, `one`, `local_one`: of reads, and of what a batch has reached when it counts as stored |
//! | `replication` | a number of copies in each data centre (usual: 1), or `DC:COPIES,DC:COPIES`; used where the keyspace is made |
//! | `ca`, of `cassandras` | a file in PEM: the authority that signed the nodes' certificates; without it, those that the system trusts |
//! | `cert`, `key`, of `cassandras` | files in PEM: our own certificate and its key, for nodes that ask for one |
//! | `name`, of `cassandras` | the name that the certificates of all nodes have; without it, each has to name the node's address, or a host as the URI writes it ([`tls`]) |
//!
//! # Theory of operation
//!
//! FlexState (IV-B) gives each partition a key space, and each kind of variable a table. Here the
//! partition is the *partition key* of one table, and the kind is a column: only rows that lie in
//! one table and have one partition key can be written whole or not at all, under a condition.
//!
//! ```text
//!   elements    partition     kind        name      life  slot  is_held  field  value  │ epoch, sequence, lives
//!               nat@edge1@0   Counter     packets   0     0     true     –      41     │ 7, 42, {Map@seen: 1}
//!               nat@edge1@0   Map         seen      1     0     true     k      v      │ (one for the partition:
//!               nat@edge1@0   Map         seen      1     1     false    –      –      │  static columns)
//!   partitions  function, partition            records  name, value
//! ```
//!
//! *A batch* is one conditional batch of prepared statements (a lightweight transaction):
//! `IF epoch = E AND sequence = S - 1` writes all changes and the version, or nothing. So a
//! repetition, an earlier writer and a batch that comes late change nothing, whatever the
//! consistency. Counters are written as their values: Cassandra's own counters cannot be repeated.
//! Partitions are written at the same time, the batches of one after another.
//!
//! *Slots.* An element is in a row that is named by a number, its slot. An element that goes leaves
//! the slot free (`is_held` is false), and a later element gets it: no row is ever deleted but by a
//! `clear`. Cassandra keeps a mark for each row that was deleted, for hours, and refuses to read
//! past 100,000 of them; a map whose elements come and go would so become unreadable. There are at
//! most as many rows as there were elements at once. The writer knows which element has which slot
//! ([`slots`]): it reads that with its first batch, and keeps it while each batch is applied. A
//! batch is applied only behind the one before, so the writer knows the table's content (decision
//! 29).
//!
//! *Lives.* ScyllaDB gives all statements of a batch one time stamp, and a deletion wins against a
//! value of the same time: a batch's rows behind a `clear` would be gone. (Cassandra dates
//! deletions back by a microsecond.) So each variable has a life, a number that each `clear`
//! raises; rows carry it, and the rows of the life before are deleted. A reader takes the rows of
//! the life that the partition names, and begins again where it has changed.
//!
//! *The first row* of each partition is an empty one. A condition makes Cassandra look for the
//! partition's first row that is not deleted: without it the look would pass the marks of cleared
//! rows.
//!
//! *Sessions.* A call that fails, but by an error that the server sent, ends the session; the next
//! call makes another. Nothing is retried here, the agent does so.
//!
//! Invariants: knowledge of a partition is kept from one batch to the next only while each has been
//! applied; rows of `elements` are written by conditional batches alone.
//!
//! Not here: batches themselves ([`crate::batch`]); repetitions (the agent).

mod address;
mod session;
mod slots;
mod tls;

use crate::batch::Batch;
use crate::driver::{Driver, Failure, Outcome, Swapped, Version};
use crate::name::{Part, PartitionName, VariableName, unescaped};
use crate::uri::without_secret;
use address::Address;
use futures_util::future::join_all;
use scylla::errors::DbError;
use scylla::value::CqlValue;
use session::Cell::{Bytes, Number, Text};
use session::{Connected, Known, Trouble};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use tls::Tls;

/// How long a call waits for the server, or a reading call for a page.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// How long it waits until tables are made, the first time.
const MAKING: Duration = Duration::from_secs(30);
/// Seconds for which the marks of cleared variables stay: as long as a node's hints do. A node that
/// was away longer has to be repaired.
pub const MARKS: u32 = 3 * 3600;
/// How often a reader begins again, and a claim is tried, against others that write.
const TRIES: u32 = 20;

/// A store in a cluster.
pub struct Cassandra {
    address: Address,
    tls: Option<Tls>,
    /// Without a password.
    name: String,
    patience: Duration,
    runtime: Option<tokio::runtime::Runtime>,
    connected: Option<Connected>,
    /// Of partitions whose last batch was applied.
    known: HashMap<PartitionName, Known>,
}

impl Cassandra {
    /// Knows the cluster; the first call connects, and makes keyspace and tables where there are
    /// none. Each request waits for `patience` at most, and connecting twice that.
    pub fn new(uri: &str, patience: Duration) -> Result<Self, Failure> {
        let name = without_secret(uri);
        let address = Address::of(uri).map_err(|problem| {
            Failure::new(
                &name,
                problem,
                "write cassandra://USER:PASSWORD@HOST:PORT,HOST:PORT/KEYSPACE?consistency=quorum&replication=3, \
                 where all but a host may be left out; over TLS cassandras:// with &ca=FILE&cert=FILE&key=FILE, or fewer",
            )
        })?;
        let tls = address
            .tls
            .as_ref()
            .map(|settings| Tls::of(settings, &address.nodes));
        let tls = tls
            .transpose()
            .map_err(|(problem, remedy)| Failure::new(&name, problem, remedy))?;
        Ok(Cassandra {
            address,
            tls,
            name,
            patience,
            runtime: None,
            connected: None,
            known: HashMap::new(),
        })
    }

    /// Why the cluster could not be had now: a session is begun and ended, within three times the
    /// patience. No table is made.
    pub fn look(&self) -> Result<(), Failure> {
        let looked = made_runtime().and_then(|runtime| {
            let begun = session::begin(&self.address, self.tls.as_ref(), self.patience);
            let looked = runtime.block_on(async {
                let begun = tokio::time::timeout(self.patience.saturating_mul(3), begun).await;
                begun
                    .map_err(|_| Trouble::Opening("it does not answer".to_owned()))?
                    .map(drop)
            });
            runtime.shutdown_background();
            looked
        });
        looked.map_err(|trouble| self.failure(trouble))
    }

    /// Runs a call to its end. A failure that the server did not send ends the session.
    fn call<R>(&mut self, work: impl AsyncFnOnce(&Connected) -> Result<R, Trouble>) -> Result<R, Failure> {
        let done = self.try_call(work);
        done.map_err(|trouble| {
            if matches!(trouble, Trouble::Session(_) | Trouble::Nonsense) {
                self.disconnect();
            }
            self.failure(trouble)
        })
    }

    fn disconnect(&mut self) {
        self.known.clear();
        // Within the runtime: the tasks that it has started end there.
        let _runtime = self.runtime.as_ref().map(|runtime| runtime.enter());
        self.connected = None;
    }

    fn try_call<R>(
        &mut self,
        work: impl AsyncFnOnce(&Connected) -> Result<R, Trouble>,
    ) -> Result<R, Trouble> {
        let runtime = match &mut self.runtime {
            Some(runtime) => runtime,
            none => none.insert(made_runtime()?),
        };
        let (address, tls, patience) = (&self.address, self.tls.as_ref(), self.patience);
        let connected = &mut self.connected;
        runtime.block_on(async {
            let connected = match connected {
                Some(connected) => connected,
                none => {
                    let opened = tokio::time::timeout(MAKING, Connected::open(address, tls, patience)).await;
                    none.insert(opened.map_err(|_| Trouble::Opening("it does not answer".to_owned()))??)
                }
            };
            work(connected).await
        })
    }

    fn failure(&self, trouble: Trouble) -> Failure {
        let (problem, remedy) = match trouble {
            Trouble::Server(error, text) => {
                let remedy = remedy(&error);
                (if text.is_empty() { error.to_string() } else { text }, remedy)
            }
            Trouble::Session(text) | Trouble::Opening(text)
                if text.to_lowercase().contains("authenti") || text.contains("credentials") =>
            {
                (
                    text,
                    "set the user and the password that the cluster knows: cassandra://USER:PASSWORD@HOST",
                )
            }
            Trouble::Opening(text) => match &self.tls {
                Some(tls) => tls.problem(text),
                None => (
                    text,
                    "see that a node runs, that its port is for clients without TLS (with it: cassandras://), and that \
                     nothing is in the way; changes wait meanwhile",
                ),
            },
            Trouble::Session(text) => (
                text,
                "see that a node runs and that nothing is in the way; changes wait meanwhile",
            ),
            Trouble::Nonsense => (
                "its answer is not one to what was asked".to_owned(),
                "see that the address is that of a Cassandra or ScyllaDB node, and the keyspace one of Flowkeep's",
            ),
            Trouble::Other(problem, remedy) => (problem, remedy),
        };
        Failure::new(&self.name, problem, remedy)
    }
}

/// A thread of its own: connections are kept alive while the agent sleeps.
fn made_runtime() -> Result<tokio::runtime::Runtime, Trouble> {
    let made = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("cassandra")
        .enable_all()
        .build();
    made.map_err(|error| Trouble::Session(error.to_string()))
}

/// The remedy for a server's error.
fn remedy(error: &DbError) -> &'static str {
    match error {
        DbError::AuthenticationError => {
            "set the user and the password that the cluster knows: cassandra://USER:PASSWORD@HOST"
        }
        DbError::Unauthorized => {
            "give the user SELECT and MODIFY on the keyspace, and CREATE until its tables are made"
        }
        DbError::Unavailable { .. } => "too few nodes are up for the consistency; changes wait meanwhile",
        DbError::ReadTimeout { .. }
        | DbError::WriteTimeout { .. }
        | DbError::Overloaded
        | DbError::IsBootstrapping => {
            "the nodes are slow or too few; it is tried again, and changes wait meanwhile"
        }
        DbError::ReadFailure { .. } => "see the nodes' logs; it is tried again",
        DbError::Invalid | DbError::SyntaxError => {
            "see that the keyspace's tables are those that Flowkeep makes"
        }
        DbError::ConfigError => "see that the nodes take these replication settings",
        _ => "see the nodes' logs; it is tried again",
    }
}

impl Drop for Cassandra {
    fn drop(&mut self) {
        self.disconnect();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn function_key(function: &str) -> String {
    // A key may not be empty.
    format!("{}@", Part(function))
}

fn record_key(name: &str) -> String {
    format!("@{}", Part(name))
}

impl Driver for Cassandra {
    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, Failure> {
        self.known.remove(partition);
        let (function, key) = (function_key(partition.function()), partition.to_string());
        self.call(async |connected| {
            connected
                .run(&connected.known, &[Text(&function), Text(&key)])
                .await?;
            for _ in 0..TRIES {
                let old = connected.state(&key).await?.map(|state| state.version);
                let last = old.map_or(0, |old| old.epoch);
                let epoch = last.saturating_add(1).max(at_least);
                let first = [(&connected.first, vec![Text(&key)])];
                if connected
                    .mark(&key, old, Version { epoch, sequence: 0 }, &first)
                    .await?
                {
                    return Ok(epoch);
                }
            }
            Err(Trouble::Other(
                "others claim the partition all the time".to_owned(),
                "end all but one of them",
            ))
        })
    }

    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure> {
        let key = partition.to_string();
        self.call(async |connected| Ok(connected.state(&key).await?.map(|state| state.version)))
    }

    fn restore(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure> {
        self.known.remove(partition);
        let (function, key) = (function_key(partition.function()), partition.to_string());
        self.call(async |connected| {
            connected
                .run(&connected.known, &[Text(&function), Text(&key)])
                .await?;
            for _ in 0..TRIES {
                let old = connected.state(&key).await?.map(|state| state.version);
                match old {
                    Some(old) if old.epoch > version.epoch => return Ok(Outcome::Fenced),
                    Some(old) if old >= version => return Ok(Outcome::Stored),
                    _ => {}
                }
                let first = [(&connected.first, vec![Text(&key)])];
                if connected.mark(&key, old, version, &first).await? {
                    return Ok(Outcome::Stored);
                }
            }
            Err(Trouble::Other(
                "others claim the partition all the time".to_owned(),
                "end all but one of them",
            ))
        })
    }

    fn write(&mut self, batches: &[Batch<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
        if batches.is_empty() {
            return Ok(());
        }
        let mut groups: Vec<(&PartitionName, Vec<&Batch<'_>>, Vec<usize>)> = Vec::new();
        for (at, batch) in batches.iter().enumerate() {
            match groups
                .iter_mut()
                .find(|(partition, ..)| *partition == batch.partition)
            {
                Some((_, of, places)) => {
                    of.push(batch);
                    places.push(at);
                }
                None => groups.push((batch.partition, vec![batch], vec![at])),
            }
        }
        let known: Vec<_> = groups
            .iter()
            .map(|(partition, ..)| self.known.remove(*partition))
            .collect();
        let written = self.call(async |connected| {
            let writes = groups.iter().zip(known);
            Ok(join_all(writes.map(|((_, of, _), known)| connected.write(known, of))).await)
        })?;
        let mut said = vec![None; batches.len()];
        let mut failed = None;
        for ((partition, _, places), (done, known, trouble)) in groups.into_iter().zip(written) {
            for (at, outcome) in places.into_iter().zip(done) {
                if let Some(place) = said.get_mut(at) {
                    *place = Some(outcome);
                }
            }
            if let Some(known) = known {
                self.known.insert(partition.clone(), known);
            }
            failed = failed.or(trouble);
        }
        // Batches behind the first without an answer are repeated, and found to be stored.
        outcomes.extend(said.into_iter().map_while(|outcome| outcome));
        match failed {
            Some(trouble) => self.call(async |_| Err(trouble)),
            None => Ok(()),
        }
    }

    fn load(
        &mut self,
        variable: &VariableName,
        element: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        let (partition, kind) = (variable.partition().to_string(), variable.kind().to_string());
        let (name, key) = (Part(variable.name()).to_string(), variable.local_key());
        let elements = self.call(async |connected| {
            let life = async || {
                let state = connected.state(&partition).await?;
                Ok::<_, Trouble>(
                    state
                        .and_then(|state| state.lives.get(&key).copied())
                        .unwrap_or_default(),
                )
            };
            let mut now = life().await?;
            for _ in 0..TRIES {
                let mut elements = Vec::new();
                let row = [Text(&partition), Text(&kind), Text(&name), Number(now)];
                connected
                    .rows(&connected.elements, &row, |row| {
                        let [is_held, field, value] = <[_; 3]>::try_from(row).ok()?;
                        if is_held?.as_boolean()? {
                            elements.push((field?.into_blob()?, value?.into_blob()?));
                        }
                        Some(())
                    })
                    .await?;
                let then = life().await?;
                if then == now {
                    return Ok(elements);
                }
                now = then;
            }
            Err(Trouble::Other(
                format!("{variable} is cleared again and again"),
                "it is tried again",
            ))
        })?;
        for (field, value) in elements {
            element(&field, &value);
        }
        Ok(())
    }

    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure> {
        let key = function_key(function);
        self.call(async |connected| {
            let mut found = Vec::new();
            connected
                .rows(&connected.partitions, &[Text(&key)], |row| {
                    let [name] = <[_; 1]>::try_from(row).ok()?;
                    found.push(name?.into_string()?.parse().ok()?);
                    Some(())
                })
                .await?;
            Ok(found)
        })
    }

    fn variables(&mut self) -> Result<Vec<VariableName>, Failure> {
        self.call(async |connected| {
            let mut partitions = Vec::new();
            connected
                .rows(&connected.all, &[], |row| {
                    let [name] = <[_; 1]>::try_from(row).ok()?;
                    partitions.push(name?.into_string()?);
                    Some(())
                })
                .await?;
            let mut found = BTreeSet::new();
            for partition in partitions {
                connected
                    .rows(&connected.names, &[Text(&partition)], |row| {
                        let [kind, name, is_held] = <[_; 3]>::try_from(row).ok()?;
                        // The first row holds nothing, nor does a partition that has none but
                        // static columns.
                        let (Some(kind), Some(name), Some(CqlValue::Boolean(true))) = (kind, name, is_held)
                        else {
                            return Some(());
                        };
                        let key = format!("{partition}@{}@{}", kind.as_text()?, name.as_text()?);
                        found.extend(key.parse::<VariableName>());
                        Some(())
                    })
                    .await?;
            }
            Ok(found.into_iter().collect())
        })
    }

    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let key = record_key(name);
        self.call(async |connected| read_record(connected, &key).await)
    }

    fn records(&mut self) -> Result<Vec<String>, Failure> {
        self.call(async |connected| {
            let mut found = Vec::new();
            connected
                .rows(&connected.record_names, &[], |row| {
                    let [name] = <[_; 1]>::try_from(row).ok()?;
                    // Other names there are none of ours.
                    let key = name?.into_string()?;
                    found.extend(key.strip_prefix('@').and_then(unescaped));
                    Some(())
                })
                .await?;
            Ok(found)
        })
    }

    fn swap(&mut self, name: &str, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swapped, Failure> {
        let key = record_key(name);
        self.call(async |connected| {
            let done = match (expected, new) {
                (None, Some(new)) => {
                    connected
                        .run(&connected.record_first, &[Text(&key), Bytes(new)])
                        .await?
                }
                (Some(has), Some(new)) => {
                    let values = [Bytes(new), Text(&key), Bytes(has)];
                    connected.run(&connected.record_set, &values).await?
                }
                (Some(has), None) => {
                    connected
                        .run(&connected.record_delete, &[Text(&key), Bytes(has)])
                        .await?
                }
                (None, None) => read_record(connected, &key).await?.is_none(),
            };
            if done {
                return Ok(Swapped::Done);
            }
            Ok(Swapped::Other(read_record(connected, &key).await?))
        })
    }
}

async fn read_record(connected: &Connected, key: &str) -> Result<Option<Vec<u8>>, Trouble> {
    let mut found = None;
    connected
        .rows(&connected.record, &[Text(key)], |row| {
            let [value] = <[_; 1]>::try_from(row).ok()?;
            found = Some(value?.into_blob()?);
            Some(())
        })
        .await?;
    Ok(found)
}
