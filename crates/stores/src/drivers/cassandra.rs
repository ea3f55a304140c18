//! `cassandra://[USER:PASSWORD@]HOST[:PORT][,HOST…][/KEYSPACE][?SETTING=VALUE&…]`: Cassandra 5, and ScyllaDB by the same protocol.
//!
//! | setting | is |
//! |---|---|
//! | `consistency` | `quorum` (usual), `local_quorum`, `all`, `one`, `local_one`: of reads, and of what a batch has reached when it counts as stored |
//! | `replication` | a number of copies in each data centre (usual: 1), or `DC:COPIES,DC:COPIES`; used where the keyspace is made |
//!
//! # Theory of operation
//!
//! FlexState (IV-B) gives each partition a key space, and each kind of variable a table. Here the partition is the *partition key* of one table, and
//! the kind is a column: only what lies in one table and has one partition key can be written whole or not at all, under a condition.
//!
//! ```text
//!   variables   partition     kind        name      life  field  value  │ epoch, sequence, lives
//!               nat@edge1@0   Counter     packets   0     –      41     │ 7, 42, {Map@seen: 1}
//!               nat@edge1@0   Map         seen      1     k      v      │ (one for the partition: static columns)
//!   partitions  function, partition            records  name, value
//! ```
//!
//! *A batch* is one conditional batch of prepared statements (a lightweight transaction): `IF epoch = E AND sequence = S - 1` writes all changes and the
//! version, or nothing. So a repetition, an earlier writer and a batch that comes late change nothing, whatever the consistency. Counters are written as
//! their values: Cassandra's own counters cannot be repeated. Partitions are written at the same time, the batches of one after another.
//!
//! *Lives.* ScyllaDB gives all statements of a batch one time stamp, and a deletion wins against a value of the same time: what a batch writes behind a
//! `clear` would be gone. (Cassandra dates deletions back by a microsecond.) So each variable has a life, a number that each `clear` raises; rows carry it,
//! and the rows of the life before are deleted. A reader takes the rows of the life that the partition names, and begins again where it has changed.
//!
//! *The first row* of each partition is an empty one. A condition makes Cassandra look for the partition's first row that is not deleted:
//! without it the look would pass the marks of all elements that ever went.
//!
//! *Sessions.* A call that fails, but by an error that the server sent, ends the session; the next call makes another. Nothing is retried here, the
//! agent does so.
//!
//! Invariants: `lives` of a partition is kept from one batch to the next only while each has been applied; rows of `variables` are written by
//! conditional batches alone.
//!
//! Not here: a bound on marks of deletion. A map whose elements come and go leaves a mark for each that went, until [`MARKS`] are over and
//! the table is compacted; Cassandra refuses to read a variable with more than 100,000 of them (`tombstone_failure_threshold`).

use crate::batch::{Batch, Change};
use crate::driver::{Driver, Failure, Outcome, Swapped, Version};
use crate::name::{Part, PartitionName, VariableName, unescaped};
use crate::uri::without_secret;
use futures_util::future::join_all;
use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::metadata::ColumnType;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::QueryRowsResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::serialize::SerializationError;
use scylla::serialize::value::SerializeValue;
use scylla::serialize::writers::{CellWriter, WrittenCellProof};
use scylla::statement::batch::{Batch as Statements, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row};
use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// How long a call waits for the server, or a page of one that reads.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// How long it waits until tables are made, the first time.
const MAKING: Duration = Duration::from_secs(30);
/// Seconds for which the marks of deleted rows stay: as long as a node's hints do. A node that was away longer has to be repaired.
pub const MARKS: u32 = 3 * 3600;
/// The longest key of an element: Cassandra takes 64 KiB for all columns of a row's key.
pub const KEY_BYTES_MAX: usize = 60_000;
/// How often a reader begins again, and a claim is tried, against others that write.
const TRIES: u32 = 20;

const TABLES: [(&str, &str); 3] = [
    (
        "variables",
        "(partition text, kind text, name text, life bigint, field blob, value blob, epoch bigint static, sequence bigint static, \
         lives map<text, bigint> static, PRIMARY KEY (partition, kind, name, life, field))",
    ),
    (
        "partitions",
        "(function text, partition text, PRIMARY KEY (function, partition))",
    ),
    ("records", "(name text PRIMARY KEY, value blob)"),
];

/// What a URI says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    nodes: Vec<String>,
    user: Option<(String, String)>,
    keyspace: String,
    consistency: Consistency,
    /// As CQL has it.
    replication: String,
}

impl Address {
    fn of(uri: &str) -> Result<Self, String> {
        let rest = uri
            .strip_prefix("cassandra://")
            .ok_or("it does not begin with cassandra://")?;
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (secret, rest) = rest
            .rsplit_once('@')
            .map_or((None, rest), |(secret, rest)| (Some(secret), rest));
        let (hosts, keyspace) = rest.split_once('/').unwrap_or((rest, ""));
        let user = secret.map(|secret| {
            let (user, password) = secret.split_once(':')?;
            Some((unescaped(user)?, unescaped(password)?))
        });
        let user = match user {
            Some(None) => return Err("user and password are no USER:PASSWORD with %XX".to_owned()),
            user => user.flatten(),
        };
        let mut address = Address {
            nodes: hosts.split(',').map(node).collect::<Result<_, _>>()?,
            user,
            keyspace: checked_keyspace(keyspace)?,
            consistency: Consistency::Quorum,
            replication: replication("1")?,
        };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("consistency", name)) => address.consistency = consistency(name)?,
                Some(("replication", copies)) => address.replication = replication(copies)?,
                _ => {
                    return Err(format!(
                        "there is no setting `{}`",
                        setting.chars().take(40).collect::<String>()
                    ));
                }
            }
        }
        Ok(address)
    }

    /// Of conditions, and of reads that have to see what is under way.
    fn serial(&self) -> (SerialConsistency, Consistency) {
        match self.consistency {
            Consistency::LocalQuorum | Consistency::LocalOne => {
                (SerialConsistency::LocalSerial, Consistency::LocalSerial)
            }
            _ => (SerialConsistency::Serial, Consistency::Serial),
        }
    }
}

fn node(host: &str) -> Result<String, String> {
    let has_port = match host.strip_prefix('[') {
        Some(rest) => rest.contains("]:"),
        None => host.contains(':'),
    };
    let port = host.rsplit_once(':').filter(|_| has_port).map(|(_, port)| port);
    if host.is_empty() || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err(format!(
            "`{}` is no HOST:PORT",
            host.chars().take(40).collect::<String>()
        ));
    }
    Ok(if has_port {
        host.to_owned()
    } else {
        format!("{host}:9042")
    })
}

fn checked_keyspace(name: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    match name {
        "" => Ok("flowkeep".to_owned()),
        name if name.len() <= 48
            && name.bytes().all(is_plain)
            && !name.starts_with(|c: char| !c.is_ascii_lowercase()) =>
        {
            Ok(name.to_owned())
        }
        _ => Err("a keyspace has up to 48 of a-z, 0-9 and _, a letter first".to_owned()),
    }
}

fn consistency(name: &str) -> Result<Consistency, String> {
    Ok(match name {
        "one" => Consistency::One,
        "quorum" => Consistency::Quorum,
        "all" => Consistency::All,
        "local_one" => Consistency::LocalOne,
        "local_quorum" => Consistency::LocalQuorum,
        _ => return Err("consistency is one, quorum, all, local_one or local_quorum".to_owned()),
    })
}

fn replication(copies: &str) -> Result<String, String> {
    let wrong = || "replication is a number of copies, or DC:COPIES,DC:COPIES".to_owned();
    let number = |copies: &str| match copies.parse::<u8>() {
        Ok(copies @ 1..) => Ok(copies),
        _ => Err(wrong()),
    };
    let mut parts = vec!["'class': 'NetworkTopologyStrategy'".to_owned()];
    for part in copies.split(',') {
        parts.push(match part.split_once(':') {
            None => format!("'replication_factor': {}", number(part)?),
            Some((centre, copies)) => {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
                if centre.is_empty() || !centre.bytes().all(is_plain) {
                    return Err(wrong());
                }
                format!("'{centre}': {}", number(copies)?)
            }
        });
    }
    Ok(format!("{{{}}}", parts.join(", ")))
}

/// A value in a statement.
#[derive(Clone, Copy)]
enum Cell<'c> {
    Text(&'c str),
    Bytes(&'c [u8]),
    Number(i64),
    Nothing,
}

impl SerializeValue for Cell<'_> {
    fn serialize<'b>(
        &self,
        kind: &ColumnType<'_>,
        writer: CellWriter<'b>,
    ) -> Result<WrittenCellProof<'b>, SerializationError> {
        match self {
            Cell::Text(text) => SerializeValue::serialize(text, kind, writer),
            Cell::Bytes(bytes) => SerializeValue::serialize(bytes, kind, writer),
            Cell::Number(number) => SerializeValue::serialize(number, kind, writer),
            Cell::Nothing => Ok(writer.set_null()),
        }
    }
}

use Cell::{Bytes, Nothing, Number, Text};

/// What went wrong in a call, before it is said to a person.
enum Trouble {
    Server(DbError, String),
    /// Nothing that a server said: the session is worth nothing.
    Session(String),
    /// The server's answer is none to what was asked.
    Nonsense,
    Other(String, &'static str),
}

impl From<ExecutionError> for Trouble {
    fn from(error: ExecutionError) -> Self {
        match error {
            ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, text)) => {
                Trouble::Server(error, text)
            }
            other => Trouble::Session(other.to_string()),
        }
    }
}

impl From<PrepareError> for Trouble {
    fn from(error: PrepareError) -> Self {
        Trouble::Session(error.to_string())
    }
}

type Lives = HashMap<String, i64>;

/// What the store has of a partition.
struct State {
    version: Version,
    lives: Lives,
}

/// A session with its prepared statements.
struct Connected {
    session: Session,
    serial: SerialConsistency,
    mark: PreparedStatement,
    first: PreparedStatement,
    life: PreparedStatement,
    put: PreparedStatement,
    remove: PreparedStatement,
    clear: PreparedStatement,
    state: PreparedStatement,
    elements: PreparedStatement,
    known: PreparedStatement,
    partitions: PreparedStatement,
    all: PreparedStatement,
    names: PreparedStatement,
    record: PreparedStatement,
    record_first: PreparedStatement,
    record_set: PreparedStatement,
    record_delete: PreparedStatement,
}

impl Connected {
    async fn open(address: &Address, patience: Duration) -> Result<Self, Trouble> {
        let (serial, serial_read) = address.serial();
        let profile = ExecutionProfile::builder()
            .consistency(address.consistency)
            .serial_consistency(Some(serial))
            .request_timeout(Some(patience))
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(&address.nodes)
            .default_execution_profile_handle(profile.into_handle())
            .connection_timeout(patience)
            .fetch_schema_metadata(false)
            .pool_size(PoolSize::PerHost(NonZeroUsize::MIN));
        if let Some((user, password)) = &address.user {
            builder = builder.user(user, password);
        }
        let opened = tokio::time::timeout(patience.saturating_mul(2), builder.build()).await;
        let session = match opened {
            Ok(session) => session.map_err(|error| Trouble::Session(chain(&error)))?,
            Err(_) => return Err(Trouble::Session("it does not answer".to_owned())),
        };
        make(&session, address).await?;
        let space = &address.keyspace;
        let prepare = async |text: &str| {
            let mut prepared = session.prepare(text.replace("KEYSPACE", space)).await?;
            if text.starts_with("SELECT DISTINCT partition, epoch") || text.starts_with("SELECT value") {
                prepared.set_consistency(serial_read);
            }
            Ok::<_, Trouble>(prepared)
        };
        let row = "partition = ? AND kind = ? AND name = ? AND life = ?";
        Ok(Connected {
            serial,
            mark: prepare(
                "UPDATE KEYSPACE.variables SET epoch = ?, sequence = ? WHERE partition = ? IF epoch = ? AND sequence = ?",
            )
            .await?,
            first: prepare(
                "INSERT INTO KEYSPACE.variables (partition, kind, name, life, field, value) VALUES (?, '', '', 0, 0x, 0x)",
            )
            .await?,
            life: prepare("UPDATE KEYSPACE.variables SET lives[?] = ? WHERE partition = ?").await?,
            put: prepare(
                "INSERT INTO KEYSPACE.variables (partition, kind, name, life, field, value) VALUES (?, ?, ?, ?, ?, ?)",
            )
            .await?,
            remove: prepare(&format!("DELETE FROM KEYSPACE.variables WHERE {row} AND field = ?")).await?,
            clear: prepare(&format!("DELETE FROM KEYSPACE.variables WHERE {row}")).await?,
            state: prepare("SELECT DISTINCT partition, epoch, sequence, lives FROM KEYSPACE.variables WHERE partition = ?")
                .await?,
            elements: prepare(&format!("SELECT field, value FROM KEYSPACE.variables WHERE {row}")).await?,
            known: prepare("INSERT INTO KEYSPACE.partitions (function, partition) VALUES (?, ?)").await?,
            partitions: prepare("SELECT partition FROM KEYSPACE.partitions WHERE function = ?").await?,
            all: prepare("SELECT DISTINCT partition FROM KEYSPACE.variables").await?,
            names: prepare("SELECT kind, name FROM KEYSPACE.variables WHERE partition = ? GROUP BY kind, name").await?,
            record: prepare("SELECT value FROM KEYSPACE.records WHERE name = ?").await?,
            record_first: prepare("INSERT INTO KEYSPACE.records (name, value) VALUES (?, ?) IF NOT EXISTS").await?,
            record_set: prepare("UPDATE KEYSPACE.records SET value = ? WHERE name = ? IF value = ?").await?,
            record_delete: prepare("DELETE FROM KEYSPACE.records WHERE name = ? IF value = ?").await?,
            session,
        })
    }

    /// Asks for rows, page by page.
    async fn rows(
        &self,
        statement: &PreparedStatement,
        values: &[Cell<'_>],
        mut each: impl FnMut(Vec<Option<CqlValue>>) -> Option<()>,
    ) -> Result<(), Trouble> {
        let mut page = PagingState::start();
        loop {
            let (answer, more) = self.session.execute_single_page(statement, values, page).await?;
            let rows = answer.into_rows_result().map_err(|_| Trouble::Nonsense)?;
            for row in rows.rows::<Row>().map_err(|_| Trouble::Nonsense)? {
                let row = row.map_err(|_| Trouble::Nonsense)?;
                each(row.columns).ok_or(Trouble::Nonsense)?;
            }
            match more {
                PagingStateResponse::HasMorePages { state } => page = state,
                PagingStateResponse::NoMorePages => return Ok(()),
            }
        }
    }

    /// Runs one statement; a conditional one answers whether it was applied.
    async fn run(&self, statement: &PreparedStatement, values: &[Cell<'_>]) -> Result<bool, Trouble> {
        let answer = self.session.execute_unpaged(statement, values).await?;
        if !answer.is_rows() {
            return Ok(true);
        }
        applied(&answer.into_rows_result().map_err(|_| Trouble::Nonsense)?)
    }

    /// Reads what has been decided of the partition; ends what is under way.
    async fn state(&self, partition: &str) -> Result<Option<State>, Trouble> {
        let mut found = None;
        self.rows(&self.state, &[Text(partition)], |row| {
            let [_, epoch, sequence, lives] = <[_; 4]>::try_from(row).ok()?;
            let version = match (epoch, sequence) {
                (None, None) => return Some(()),
                (Some(epoch), Some(sequence)) => Version {
                    epoch: u64::try_from(epoch.as_bigint()?).ok()?,
                    sequence: u64::try_from(sequence.as_bigint()?).ok()?,
                },
                _ => return None,
            };
            let pairs = match lives {
                Some(CqlValue::Map(pairs)) => pairs,
                None => Vec::new(),
                _ => return None,
            };
            let pair = |(key, life): (CqlValue, CqlValue)| Some((key.into_string()?, life.as_bigint()?));
            let lives = pairs.into_iter().map(pair).collect::<Option<Lives>>()?;
            found = Some(State { version, lives });
            Some(())
        })
        .await?;
        Ok(found)
    }

    /// Makes `new` the version, with what `more` writes, if `old` is.
    async fn mark(
        &self,
        partition: &str,
        old: Option<Version>,
        new: Version,
        more: &[(&PreparedStatement, Vec<Cell<'_>>)],
    ) -> Result<bool, Trouble> {
        let mut statements = Statements::new(BatchType::Unlogged);
        statements.set_serial_consistency(Some(self.serial));
        let mut values = Vec::with_capacity(more.len() + 1);
        let cell = |number: fn(Version) -> u64| old.map_or(Nothing, |old| Number(signed(number(old))));
        statements.append_statement(self.mark.clone());
        values.push(vec![
            Number(signed(new.epoch)),
            Number(signed(new.sequence)),
            Text(partition),
            cell(|old| old.epoch),
            cell(|old| old.sequence),
        ]);
        for (statement, cells) in more {
            statements.append_statement((*statement).clone());
            values.push(cells.clone());
        }
        let answer = self.session.batch(&statements, values).await?;
        applied(&answer.into_rows_result().map_err(|_| Trouble::Nonsense)?)
    }

    /// Writes the batches of one partition in their order; answers outcomes, as far as they are known.
    async fn write(&self, mut lives: Option<Lives>, batches: &[&Batch<'_>]) -> Written {
        let mut outcomes = Vec::with_capacity(batches.len());
        for batch in batches {
            match self.write_one(&mut lives, batch).await {
                Ok(outcome) => outcomes.push(outcome),
                Err(trouble) => return (outcomes, None, Some(trouble)),
            }
        }
        (outcomes, lives, None)
    }

    async fn write_one(&self, known: &mut Option<Lives>, batch: &Batch<'_>) -> Result<Outcome, Trouble> {
        let partition = batch.partition.to_string();
        for _ in 0..2 {
            let lives = match known.take() {
                Some(lives) => lives,
                None => {
                    let state = self.state(&partition).await?;
                    let version = state.as_ref().map_or(Version::default(), |state| state.version);
                    if let Some(outcome) = version.judge(batch.version) {
                        return Ok(outcome);
                    }
                    state.map_or_else(Lives::new, |state| state.lives)
                }
            };
            let before = Version {
                sequence: batch.version.sequence.saturating_sub(1),
                ..batch.version
            };
            let changes = Changes::of(batch, &lives)?;
            let statements = changes.statements(self, &partition);
            if self
                .mark(&partition, Some(before), batch.version, &statements)
                .await?
            {
                drop(statements);
                *known = Some(changes.lives);
                return Ok(Outcome::Stored);
            }
        }
        Err(Trouble::Other(
            "a partition changes while it is looked at".to_owned(),
            "it is tried again",
        ))
    }
}

type Written = (Vec<Outcome>, Option<Lives>, Option<Trouble>);

/// What a batch comes to: the last change of each element, since all of them have one time stamp.
struct Changes<'b> {
    fields: Vec<(&'b VariableName, HashMap<&'b [u8], Option<&'b [u8]>>)>,
    /// Kinds and names as columns.
    columns: Vec<(String, String)>,
    /// The life that a variable had which is cleared.
    cleared: Vec<Option<i64>>,
    /// The lives afterwards.
    lives: Lives,
}

impl<'b> Changes<'b> {
    fn of(batch: &Batch<'b>, lives: &Lives) -> Result<Self, Trouble> {
        let mut places: HashMap<&VariableName, usize> = HashMap::new();
        let mut changes = Changes {
            fields: Vec::new(),
            columns: Vec::new(),
            cleared: Vec::new(),
            lives: lives.clone(),
        };
        for change in batch.changes() {
            let (Change::Clear { variable } | Change::Put { variable, .. } | Change::Remove { variable, .. }) =
                change;
            let at = *places.entry(variable).or_insert_with(|| {
                changes.fields.push((variable, HashMap::new()));
                changes
                    .columns
                    .push((variable.kind().to_string(), Part(variable.name()).to_string()));
                changes.cleared.push(None);
                changes.fields.len() - 1
            });
            let (Some((_, fields)), Some(cleared)) =
                (changes.fields.get_mut(at), changes.cleared.get_mut(at))
            else {
                continue;
            };
            match change {
                Change::Clear { .. } => {
                    fields.clear();
                    if cleared.is_none() {
                        let life = changes.lives.entry(variable.local_key()).or_default();
                        *cleared = Some(*life);
                        *life = life.saturating_add(1);
                    }
                }
                Change::Put { field, value, .. } => {
                    if field.len() > KEY_BYTES_MAX {
                        let problem = format!("a key in {variable} has {} bytes", field.len());
                        return Err(Trouble::Other(
                            problem,
                            "give it at most 60000, or keep it in another kind of store",
                        ));
                    }
                    fields.insert(field, Some(value));
                }
                // What is longer was never written.
                Change::Remove { field, .. } if field.len() > KEY_BYTES_MAX => {}
                Change::Remove { field, .. } => {
                    fields.insert(field, None);
                }
            }
        }
        Ok(changes)
    }

    fn statements<'c>(
        &'c self,
        by: &'c Connected,
        partition: &'c str,
    ) -> Vec<(&'c PreparedStatement, Vec<Cell<'c>>)> {
        let mut statements = Vec::new();
        for (((variable, fields), (kind, name)), cleared) in
            self.fields.iter().zip(&self.columns).zip(&self.cleared)
        {
            let key = self.lives.get_key_value(&variable.local_key());
            let life = key.map_or(0, |(_, life)| *life);
            if let (Some(before), Some((key, _))) = (cleared, key) {
                statements.push((
                    &by.clear,
                    vec![Text(partition), Text(kind), Text(name), Number(*before)],
                ));
                statements.push((&by.life, vec![Text(key), Number(life), Text(partition)]));
            }
            let row = |field| {
                vec![
                    Text(partition),
                    Text(kind),
                    Text(name),
                    Number(life),
                    Bytes(field),
                ]
            };
            for (field, value) in fields {
                match value {
                    Some(value) => {
                        let mut cells = row(field);
                        cells.push(Bytes(value));
                        statements.push((&by.put, cells));
                    }
                    None if cleared.is_some() => {}
                    None => statements.push((&by.remove, row(field))),
                }
            }
        }
        statements
    }
}

/// An epoch or a number of a batch, as a column has it: neither gets to 2^63.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Whether a condition held: the first column of the first row.
fn applied(rows: &QueryRowsResult) -> Result<bool, Trouble> {
    let row = rows.first_row::<Row>().map_err(|_| Trouble::Nonsense)?;
    match row.columns.first() {
        Some(Some(CqlValue::Boolean(applied))) => Ok(*applied),
        _ => Err(Trouble::Nonsense),
    }
}

/// Makes keyspace and tables, where they are not there.
async fn make(session: &Session, address: &Address) -> Result<(), Trouble> {
    let space = &address.keyspace;
    let found = session
        .query_unpaged(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?",
            (space,),
        )
        .await?;
    let found = found.into_rows_result().map_err(|_| Trouble::Nonsense)?;
    let mut tables = BTreeSet::new();
    for row in found.rows::<(String,)>().map_err(|_| Trouble::Nonsense)? {
        tables.insert(row.map_err(|_| Trouble::Nonsense)?.0);
    }
    let missing: Vec<_> = TABLES
        .iter()
        .filter(|(name, _)| !tables.contains(*name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut statements = Vec::new();
    if tables.is_empty() {
        let replication = &address.replication;
        statements.push(format!(
            "CREATE KEYSPACE IF NOT EXISTS {space} WITH replication = {replication}"
        ));
    }
    for (name, columns) in missing {
        statements.push(format!(
            "CREATE TABLE IF NOT EXISTS {space}.{name} {columns} WITH gc_grace_seconds = {MARKS}"
        ));
    }
    for statement in statements {
        let mut statement = scylla::statement::Statement::new(statement);
        statement.set_request_timeout(Some(MAKING));
        session.query_unpaged(statement, ()).await?;
    }
    Ok(())
}

/// An error with what led to it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

/// A store in a cluster.
pub struct Cassandra {
    address: Address,
    /// Without a password.
    name: String,
    patience: Duration,
    runtime: Option<tokio::runtime::Runtime>,
    connected: Option<Connected>,
    /// Of partitions whose last batch was applied.
    lives: HashMap<PartitionName, Lives>,
}

impl Cassandra {
    /// Knows the cluster; the first call connects, and makes keyspace and tables where there are none. Each request waits for
    /// `patience` at most, and connecting twice that.
    pub fn new(uri: &str, patience: Duration) -> Result<Self, Failure> {
        let name = without_secret(uri);
        let address = Address::of(uri).map_err(|problem| {
            Failure::new(
                &name,
                problem,
                "write cassandra://USER:PASSWORD@HOST:PORT,HOST:PORT/KEYSPACE?consistency=quorum&replication=3, \
                 where all but a host may be left out",
            )
        })?;
        Ok(Cassandra {
            address,
            name,
            patience,
            runtime: None,
            connected: None,
            lives: HashMap::new(),
        })
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
        self.lives.clear();
        // Within the runtime: what it has started ends there.
        let _runtime = self.runtime.as_ref().map(|runtime| runtime.enter());
        self.connected = None;
    }

    fn try_call<R>(
        &mut self,
        work: impl AsyncFnOnce(&Connected) -> Result<R, Trouble>,
    ) -> Result<R, Trouble> {
        let runtime = match &mut self.runtime {
            Some(runtime) => runtime,
            none => {
                // A thread of its own: connections are kept alive while the agent sleeps.
                let made = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .thread_name("cassandra")
                    .enable_all()
                    .build();
                none.insert(made.map_err(|error| Trouble::Session(error.to_string()))?)
            }
        };
        let (address, patience) = (&self.address, self.patience);
        let connected = &mut self.connected;
        runtime.block_on(async {
            let connected = match connected {
                Some(connected) => connected,
                none => {
                    let opened = tokio::time::timeout(MAKING, Connected::open(address, patience)).await;
                    none.insert(opened.map_err(|_| Trouble::Session("it does not answer".to_owned()))??)
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
            Trouble::Session(text)
                if text.to_lowercase().contains("authenti") || text.contains("credentials") =>
            {
                (
                    text,
                    "set the user and the password that the cluster knows: cassandra://USER:PASSWORD@HOST",
                )
            }
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

/// What a person may do about a server's error.
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
        DbError::ReadFailure { .. } => {
            "see the nodes' logs: a variable may have left more marks of deletion than they read"
        }
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
        self.lives.remove(partition);
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
        self.lives.remove(partition);
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
            .map(|(partition, ..)| self.lives.remove(*partition))
            .collect();
        let written = self.call(async |connected| {
            let writes = groups.iter().zip(known);
            Ok(join_all(writes.map(|((_, of, _), lives)| connected.write(lives, of))).await)
        })?;
        let mut said = vec![None; batches.len()];
        let mut failed = None;
        for ((partition, _, places), (known, lives, trouble)) in groups.into_iter().zip(written) {
            for (at, outcome) in places.into_iter().zip(known) {
                if let Some(place) = said.get_mut(at) {
                    *place = Some(outcome);
                }
            }
            if let Some(lives) = lives {
                self.lives.insert(partition.clone(), lives);
            }
            failed = failed.or(trouble);
        }
        // Those behind the first that is not known are repeated, and found to be stored.
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
                        let [field, value] = <[_; 2]>::try_from(row).ok()?;
                        elements.push((field?.into_blob()?, value?.into_blob()?));
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
            let mut found = Vec::new();
            for partition in partitions {
                connected
                    .rows(&connected.names, &[Text(&partition)], |row| {
                        let [kind, name] = <[_; 2]>::try_from(row).ok()?;
                        let (Some(kind), Some(name)) = (kind, name) else {
                            return Some(());
                        };
                        // The first row, and what else may be there, is none of ours.
                        let key = format!("{partition}@{}@{}", kind.as_text()?, name.as_text()?);
                        found.extend(key.parse::<VariableName>());
                        Some(())
                    })
                    .await?;
            }
            Ok(found)
        })
    }

    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let key = record_key(name);
        self.call(async |connected| read_record(connected, &key).await)
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
