//! A session with its prepared statements, and a batch's changes in them.

use super::address::Address;
use super::slots::Slots;
use super::tls::Tls;
use super::{MAKING, MARKS};
use crate::batch::{Batch, Change};
use crate::driver::{Outcome, Version};
use crate::name::{Part, VariableName};
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
use scylla::statement::SerialConsistency;
use scylla::statement::batch::{Batch as Statements, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};
use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

const TABLES: [(&str, &str); 3] = [
    (
        "elements",
        "(partition text, kind text, name text, life bigint, slot bigint, is_held boolean, field blob, value blob, \
         epoch bigint static, sequence bigint static, lives map<text, bigint> static, \
         PRIMARY KEY (partition, kind, name, life, slot))",
    ),
    (
        "partitions",
        "(function text, partition text, PRIMARY KEY (function, partition))",
    ),
    ("records", "(name text PRIMARY KEY, value blob)"),
];
/// A value in a statement.
#[derive(Clone, Copy)]
pub enum Cell<'c> {
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

/// The failure of a call, before it is put in words.
pub enum Trouble {
    Server(DbError, String),
    /// There is no session, of which the library says this.
    Opening(String),
    /// Nothing that a server said: the session is worth nothing.
    Session(String),
    /// The server's answer does not fit the question.
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

pub type Lives = HashMap<String, i64>;

/// The writer's knowledge of a partition, as of its last batch.
#[derive(Default)]
pub struct Known {
    lives: Lives,
    /// Of variables that it has written, or read for that, by their names in the partition.
    slots: HashMap<String, Slots>,
}

/// The store's state of a partition.
pub struct State {
    pub version: Version,
    pub lives: Lives,
}

/// A session with its prepared statements.
pub struct Connected {
    pub session: Session,
    pub serial: SerialConsistency,
    pub mark: PreparedStatement,
    pub first: PreparedStatement,
    pub life: PreparedStatement,
    pub put: PreparedStatement,
    pub remove: PreparedStatement,
    pub clear: PreparedStatement,
    pub state: PreparedStatement,
    pub elements: PreparedStatement,
    pub places: PreparedStatement,
    pub known: PreparedStatement,
    pub partitions: PreparedStatement,
    pub all: PreparedStatement,
    pub names: PreparedStatement,
    pub record: PreparedStatement,
    pub record_names: PreparedStatement,
    pub record_first: PreparedStatement,
    pub record_set: PreparedStatement,
    pub record_delete: PreparedStatement,
}

/// A session with nodes of a version that is served. Nothing is made there.
pub async fn begin(address: &Address, tls: Option<&Tls>, patience: Duration) -> Result<Session, Trouble> {
    let (serial, _) = address.serial();
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
    if let Some(tls) = tls {
        tls.begin();
        builder = builder.tls_context(Some(Arc::clone(&tls.config)));
    }
    let opened = tokio::time::timeout(patience.saturating_mul(2), builder.build()).await;
    let opened = opened
        .map_err(|_| "it does not answer".to_owned())
        .and_then(|session| session.map_err(|error| chain(&error)));
    let session = opened.map_err(Trouble::Opening)?;
    check_version(&session).await?;
    Ok(session)
}

impl Connected {
    pub async fn open(address: &Address, tls: Option<&Tls>, patience: Duration) -> Result<Self, Trouble> {
        let session = begin(address, tls, patience).await?;
        make(&session, address).await?;
        let (serial, serial_read) = address.serial();
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
                "UPDATE KEYSPACE.elements SET epoch = ?, sequence = ? WHERE partition = ? IF epoch = ? AND sequence = ?",
            )
            .await?,
            first: prepare(
                "INSERT INTO KEYSPACE.elements (partition, kind, name, life, slot, is_held, field, value) \
                 VALUES (?, '', '', 0, 0, false, 0x, 0x)",
            )
            .await?,
            life: prepare("UPDATE KEYSPACE.elements SET lives[?] = ? WHERE partition = ?").await?,
            put: prepare(
                "INSERT INTO KEYSPACE.elements (partition, kind, name, life, slot, is_held, field, value) \
                 VALUES (?, ?, ?, ?, ?, true, ?, ?)",
            )
            .await?,
            remove: prepare(
                "INSERT INTO KEYSPACE.elements (partition, kind, name, life, slot, is_held, field, value) \
                 VALUES (?, ?, ?, ?, ?, false, 0x, 0x)",
            )
            .await?,
            clear: prepare(&format!("DELETE FROM KEYSPACE.elements WHERE {row}")).await?,
            state: prepare("SELECT DISTINCT partition, epoch, sequence, lives FROM KEYSPACE.elements WHERE partition = ?")
                .await?,
            elements: prepare(&format!("SELECT is_held, field, value FROM KEYSPACE.elements WHERE {row}")).await?,
            places: prepare(&format!("SELECT slot, is_held, field FROM KEYSPACE.elements WHERE {row}")).await?,
            known: prepare("INSERT INTO KEYSPACE.partitions (function, partition) VALUES (?, ?)").await?,
            partitions: prepare("SELECT partition FROM KEYSPACE.partitions WHERE function = ?").await?,
            all: prepare("SELECT DISTINCT partition FROM KEYSPACE.elements").await?,
            names: prepare("SELECT kind, name, is_held FROM KEYSPACE.elements WHERE partition = ?").await?,
            record: prepare("SELECT value FROM KEYSPACE.records WHERE name = ?").await?,
            record_names: prepare("SELECT name FROM KEYSPACE.records").await?,
            record_first: prepare("INSERT INTO KEYSPACE.records (name, value) VALUES (?, ?) IF NOT EXISTS").await?,
            record_set: prepare("UPDATE KEYSPACE.records SET value = ? WHERE name = ? IF value = ?").await?,
            record_delete: prepare("DELETE FROM KEYSPACE.records WHERE name = ? IF value = ?").await?,
            session,
        })
    }

    /// Asks for rows, page by page.
    pub async fn rows(
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
    pub async fn run(&self, statement: &PreparedStatement, values: &[Cell<'_>]) -> Result<bool, Trouble> {
        let answer = self.session.execute_unpaged(statement, values).await?;
        if !answer.is_rows() {
            return Ok(true);
        }
        applied(&answer.into_rows_result().map_err(|_| Trouble::Nonsense)?)
    }

    /// Reads the decided state of the partition; ends writes under way.
    pub async fn state(&self, partition: &str) -> Result<Option<State>, Trouble> {
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

    /// Makes `new` the version, with the writes of `more`, if `old` is the version.
    pub async fn mark(
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

    /// Writes the batches of one partition in their order; answers outcomes, as far as they are
    /// known.
    pub async fn write(&self, mut known: Option<Known>, batches: &[&Batch<'_>]) -> Written {
        let mut outcomes = Vec::with_capacity(batches.len());
        for batch in batches {
            match self.write_one(&mut known, batch).await {
                Ok(outcome) => outcomes.push(outcome),
                Err(trouble) => return (outcomes, None, Some(trouble)),
            }
        }
        (outcomes, known, None)
    }

    async fn write_one(&self, known: &mut Option<Known>, batch: &Batch<'_>) -> Result<Outcome, Trouble> {
        let partition = batch.partition.to_string();
        for _ in 0..2 {
            // Until the batch is applied nothing is known: the notes below hold only then.
            let mut now = match known.take() {
                Some(known) => known,
                None => {
                    let state = self.state(&partition).await?;
                    let version = state.as_ref().map_or(Version::default(), |state| state.version);
                    if let Some(outcome) = version.judge(batch.version) {
                        return Ok(outcome);
                    }
                    let lives = state.map_or_else(Lives::new, |state| state.lives);
                    Known {
                        lives,
                        ..Known::default()
                    }
                }
            };
            let before = Version {
                sequence: batch.version.sequence.saturating_sub(1),
                ..batch.version
            };
            let changes = Changes::of(batch, &now.lives);
            if !self.find(&partition, &changes, &mut now).await? {
                return Ok(Outcome::Forgotten);
            }
            let placed = changes.place(&mut now);
            let statements = changes.statements(self, &partition, &placed);
            if self
                .mark(&partition, Some(before), batch.version, &statements)
                .await?
            {
                drop(statements);
                drop(placed);
                now.lives = changes.lives;
                now.slots.values_mut().for_each(Slots::settle);
                *known = Some(now);
                return Ok(Outcome::Stored);
            }
        }
        Err(Trouble::Other(
            "a partition changes while it is looked at".to_owned(),
            "it is tried again",
        ))
    }

    /// Reads where the elements are of variables of which that is not known. `false`: rows
    /// contradict each other, so the writer's content is to be written whole.
    async fn find(&self, partition: &str, changes: &Changes<'_>, known: &mut Known) -> Result<bool, Trouble> {
        for (((variable, _), (kind, name)), cleared) in changes.each() {
            let key = variable.local_key();
            if cleared.is_some() || known.slots.contains_key(&key) {
                continue;
            }
            let life = known.lives.get(&key).copied().unwrap_or_default();
            let (mut slots, mut is_sound) = (Slots::default(), true);
            let row = [Text(partition), Text(kind), Text(name), Number(life)];
            self.rows(&self.places, &row, |row| {
                let [slot, is_held, field] = <[_; 3]>::try_from(row).ok()?;
                let field = match is_held? {
                    CqlValue::Boolean(true) => Some(field?.into_blob()?),
                    _ => None,
                };
                is_sound &= slots.read(slot?.as_bigint()?, field).is_some();
                Some(())
            })
            .await?;
            if !is_sound {
                return Ok(false);
            }
            slots.have_read();
            known.slots.insert(key, slots);
        }
        Ok(true)
    }
}

pub type Written = (Vec<Outcome>, Option<Known>, Option<Trouble>);

/// The last value of each element; `None` where it is gone.
type Fields<'b> = HashMap<&'b [u8], Option<&'b [u8]>>;

/// A variable's changes, its kind and name as columns, and the life that it had if it is cleared.
type Each<'c, 'b> = (
    (&'c (&'b VariableName, Fields<'b>), &'c (String, String)),
    &'c Option<i64>,
);

/// A slot, and the element that it gets; `None`: it is free from now on.
type Placed<'b> = (i64, Option<(&'b [u8], &'b [u8])>);

/// A batch's net changes: the last change of each element, since all of them have one time stamp.
struct Changes<'b> {
    fields: Vec<(&'b VariableName, Fields<'b>)>,
    /// Kinds and names as columns.
    columns: Vec<(String, String)>,
    /// The life that a variable had which is cleared.
    cleared: Vec<Option<i64>>,
    /// The lives afterwards.
    lives: Lives,
}

impl<'b> Changes<'b> {
    fn of(batch: &Batch<'b>, lives: &Lives) -> Self {
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
                    fields.insert(field, Some(value));
                }
                Change::Remove { field, .. } => {
                    fields.insert(field, None);
                }
            }
        }
        changes
    }

    fn each(&self) -> impl Iterator<Item = Each<'_, 'b>> {
        self.fields.iter().zip(&self.columns).zip(&self.cleared)
    }

    /// Gives each changed element its slot: its own, or a free one. An element that goes without
    /// having had one needs none.
    fn place(&self, known: &mut Known) -> Vec<Vec<Placed<'b>>> {
        let mut placed = Vec::with_capacity(self.fields.len());
        for (((variable, fields), _), cleared) in self.each() {
            let slots = known.slots.entry(variable.local_key()).or_default();
            if cleared.is_some() {
                *slots = Slots::default();
            }
            let one = |(field, value): (&&'b [u8], &Option<&'b [u8]>)| match value {
                Some(value) => Some((slots.take(field), Some((*field, *value)))),
                None => Some((slots.give(field)?, None)),
            };
            placed.push(fields.iter().filter_map(one).collect());
        }
        placed
    }

    fn statements<'c>(
        &'c self,
        by: &'c Connected,
        partition: &'c str,
        placed: &'c [Vec<Placed<'b>>],
    ) -> Vec<(&'c PreparedStatement, Vec<Cell<'c>>)> {
        let mut statements = Vec::new();
        for ((((variable, _), (kind, name)), cleared), placed) in self.each().zip(placed) {
            let key = self.lives.get_key_value(&variable.local_key());
            let life = key.map_or(0, |(_, life)| *life);
            if let (Some(before), Some((key, _))) = (cleared, key) {
                statements.push((
                    &by.clear,
                    vec![Text(partition), Text(kind), Text(name), Number(*before)],
                ));
                statements.push((&by.life, vec![Text(key), Number(life), Text(partition)]));
            }
            for (slot, element) in placed {
                let mut cells = vec![
                    Text(partition),
                    Text(kind),
                    Text(name),
                    Number(life),
                    Number(*slot),
                ];
                let statement = match element {
                    Some((field, value)) => {
                        cells.extend([Bytes(field), Bytes(value)]);
                        &by.put
                    }
                    None => &by.remove,
                };
                statements.push((statement, cells));
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

/// The first version of Cassandra that is served: of an earlier one nothing was tried.
const VERSION_MIN: u32 = 5;

/// Refuses a Cassandra that is older than [`VERSION_MIN`]. A ScyllaDB names an old Cassandra, and a
/// version of its own.
async fn check_version(session: &Session) -> Result<(), Trouble> {
    let ask = async |statement: &str| {
        let answer = session.query_unpaged(statement, &[]).await?;
        let rows = answer.into_rows_result().map_err(|_| Trouble::Nonsense)?;
        let row = rows.single_row::<(String,)>().map_err(|_| Trouble::Nonsense)?;
        Ok::<_, Trouble>(row.0)
    };
    let release = ask("SELECT release_version FROM system.local").await?;
    let major = release
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major >= VERSION_MIN)
        || ask("SELECT version FROM system.versions WHERE key = 'local'")
            .await
            .is_ok()
    {
        return Ok(());
    }
    Err(Trouble::Other(
        format!(
            "it is Cassandra {release}, and Flowkeep needs Cassandra {VERSION_MIN} or later, or ScyllaDB"
        ),
        "name a cluster of such nodes, or upgrade this one; changes wait meanwhile",
    ))
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

/// An error with its causes.
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
