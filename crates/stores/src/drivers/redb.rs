//! `redb:PATH`, a file: durable without a server.
//!
//! All batches of one call are one transaction, which is on the disk when the call answers. So a
//! store takes as many calls in a second as the disk takes flushes, and the agent's batches grow to
//! fit. One process has the file at a time.
//!
//! | table | key | value |
//! |---|---|---|
//! | `versions` | partition | epoch, sequence |
//! | `elements` | variable, 0, field | value |
//! | `records` | name | value |
//!
//! After an error of the disk the library refuses all further calls. So a failure closes the file,
//! and the next call opens it again, from its last whole transaction. Whether the failed
//! transaction is in it is not known: the agent repeats its batches, and their versions tell.
//! Another process that had the file in between has claimed its partitions, so the earlier writer
//! is fenced.
//!
//! Opening reads the whole file and checks its sums. The library trusts pages of a file that was
//! closed, and panics where one is another; the check makes that an error. A page that a disk
//! alters behind the opening is not found so.
//!
//! A file that is not there is made beside its name (`PATH.new`), and gets its name when it is
//! whole.
//!
//! A key of a variable has no byte 0, so an element's key has one reading, and a variable's
//! elements are side by side.

use crate::batch::{Batch, Change};
use crate::driver::{Driver, Failure, Outcome, Swapped, Version};
use crate::name::{PartitionName, VariableName};
use redb::{
    Database, DatabaseError, ReadOnlyDatabase, ReadableDatabase, ReadableTable, Table, TableDefinition,
    TableError, WriteTransaction,
};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const VERSIONS: TableDefinition<'_, &str, (u64, u64)> = TableDefinition::new("versions");
const ELEMENTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("elements");
const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");

/// The problem of a file that another process has.
const HELD: &str = "another process has the file: give each process a file of its own";

/// Whether a failure says that another process has the file.
pub fn is_held(failure: &Failure) -> bool {
    failure.remedy == HELD
}

/// A store in a file.
pub struct Redb {
    /// None after a failure: the next call opens the file again.
    database: Option<Database>,
    path: PathBuf,
    name: String,
}

impl Redb {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let name = format!("redb:{}", path.display());
        let database = Some(open(path, &name)?);
        let path = path.to_owned();
        Ok(Redb { database, path, name })
    }

    /// Does something with the file, which is opened where it is not, and closed where that fails.
    fn with<R>(&mut self, work: impl FnOnce(&Database) -> Result<R, redb::Error>) -> Result<R, Failure> {
        let database = match self.database.take() {
            Some(database) => database,
            None => open(&self.path, &self.name)?,
        };
        match work(&database) {
            Ok(done) => {
                self.database = Some(database);
                Ok(done)
            }
            Err(error) => Err(failed(&self.name, &error)),
        }
    }

    fn transact<R>(
        &mut self,
        work: impl FnOnce(&WriteTransaction) -> Result<R, redb::Error>,
    ) -> Result<R, Failure> {
        self.with(|database| transact(database, work))
    }

    fn read<R>(
        &mut self,
        work: impl FnOnce(&redb::ReadTransaction) -> Result<R, redb::Error>,
    ) -> Result<R, Failure> {
        self.with(|database| work(&database.begin_read()?))
    }
}

/// Why the file could not be opened now, as far as that shows without changing it: another process
/// has it, it may not be written, or it is no store. A file that is not there is made by
/// [`Redb::open`]; that is not looked at here.
pub fn look(path: &Path) -> Result<(), Failure> {
    let name = format!("redb:{}", path.display());
    if !path.try_exists().unwrap_or(true) {
        return Ok(());
    }
    looked(path).map_err(|error| failed(&name, &error))
}

fn looked(path: &Path) -> Result<(), redb::Error> {
    see_that_it_is_a_file(path)?;
    let opened = std::fs::File::options().read(true).write(true).open(path);
    let file = opened.map_err(redb::Error::Io)?;
    // The lock goes with the file, so the next one has it.
    if let Err(std::fs::TryLockError::WouldBlock) = file.try_lock() {
        return Err(redb::Error::DatabaseAlreadyOpen);
    }
    let is_empty = file.metadata().map_err(redb::Error::Io)?.len() == 0;
    drop(file);
    // An empty file becomes a store when it is opened.
    if is_empty {
        return Ok(());
    }
    match ReadOnlyDatabase::open(path) {
        Ok(database) => see_its_tables(&database.begin_read()?),
        // The database was not closed. Opening mends that, and writes for it.
        Err(DatabaseError::RepairAborted) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A path to no file, such as a pipe, cannot be read at a place.
fn see_that_it_is_a_file(path: &Path) -> Result<(), redb::Error> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(redb::Error::Io(ErrorKind::InvalidData.into())),
        // Where nothing may be looked at, opening says so.
        _ => Ok(()),
    }
}

/// The tables that are there are a store's; missing ones are made.
fn see_its_tables(transaction: &redb::ReadTransaction) -> Result<(), redb::Error> {
    let seen = |opened: Result<(), TableError>| match opened {
        Ok(()) | Err(TableError::TableDoesNotExist(_)) => Ok(()),
        Err(error) => Err(redb::Error::from(error)),
    };
    seen(transaction.open_table(VERSIONS).map(drop))?;
    seen(transaction.open_table(ELEMENTS).map(drop))?;
    seen(transaction.open_table(RECORDS).map(drop))
}

/// Opens the file, or makes it.
fn open(path: &Path, name: &str) -> Result<Database, Failure> {
    let is_there = path.try_exists().unwrap_or(true);
    let opened = match is_there {
        true => see_that_it_is_a_file(path).and_then(|()| with_tables(path)),
        false => make(path),
    };
    opened.map_err(|error| failed(name, &error))
}

/// Makes the file under another name, and names it when it is whole: a disk that is full in between
/// leaves nothing behind.
fn make(path: &Path) -> Result<Database, redb::Error> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let made = with_tables(&beside);
    if matches!(made, Err(redb::Error::DatabaseAlreadyOpen)) {
        // Another process is making the file.
        return made;
    }
    // Unlike a renaming, this replaces no file that another process has made meanwhile.
    let named = made.and_then(|database| {
        std::fs::hard_link(&beside, path).map_err(redb::Error::Io)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = std::fs::File::open(folder.unwrap_or(Path::new(".")));
        folder
            .and_then(|folder| folder.sync_all())
            .map_err(redb::Error::Io)?;
        Ok(database)
    });
    // The rest of a failed making is of no use.
    let _ = std::fs::remove_file(&beside);
    named
}

/// Opens a file with its tables: a table that is not there cannot be read.
fn with_tables(path: &Path) -> Result<Database, redb::Error> {
    let database = Database::builder()
        .set_check_integrity_on_open(true)
        .create(path)?;
    transact(&database, |transaction| {
        let (versions, elements) = (
            transaction.open_table(VERSIONS)?,
            transaction.open_table(ELEMENTS)?,
        );
        let records = transaction.open_table(RECORDS)?;
        drop((versions, elements, records));
        Ok(())
    })?;
    Ok(database)
}

fn transact<R>(
    database: &Database,
    work: impl FnOnce(&WriteTransaction) -> Result<R, redb::Error>,
) -> Result<R, redb::Error> {
    let transaction = database.begin_write()?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

/// The file's error, and the remedy.
fn failed(name: &str, error: &redb::Error) -> Failure {
    let remedy = match error {
        redb::Error::DatabaseAlreadyOpen => HELD,
        redb::Error::Io(error) => match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                "make room for it: on its disk, in its user's quota and limits; changes wait meanwhile"
            }
            ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::ReadOnlyFilesystem => "see that its folder is there and may be written to",
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => "name another file, or move this one away",
            _ => "see that its disk works; changes wait meanwhile, and the file is opened again",
        },
        redb::Error::Corrupted(_)
        | redb::Error::UpgradeRequired(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TableIsNotMultimap(_)
        | redb::Error::TypeDefinitionChanged { .. } => "name another file, or move this one away",
        _ => "the file is opened again; see that its disk works",
    };
    let problem = match error {
        redb::Error::Io(error)
            if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
        {
            "the file is no redb database".to_owned()
        }
        error => error.to_string(),
    };
    Failure::new(name, problem, remedy)
}

fn version_of(
    table: &impl ReadableTable<&'static str, (u64, u64)>,
    key: &str,
) -> Result<Version, redb::Error> {
    let (epoch, sequence) = table.get(key)?.map_or((0, 0), |guard| guard.value());
    Ok(Version { epoch, sequence })
}

/// Where a variable's elements begin; they end before the same with `end`.
fn prefix(variable: &VariableName, last: u8) -> Vec<u8> {
    let mut key = variable.to_string().into_bytes();
    key.push(last);
    key
}

fn key(variable: &VariableName, field: &[u8]) -> Vec<u8> {
    let mut key = prefix(variable, 0);
    key.extend_from_slice(field);
    key
}

fn apply(
    elements: &mut Table<'_, &'static [u8], &'static [u8]>,
    change: Change<'_>,
) -> Result<(), redb::Error> {
    match change {
        Change::Clear { variable } => {
            let (from, to) = (prefix(variable, 0), prefix(variable, 1));
            elements.retain_in(from.as_slice()..to.as_slice(), |_, _| false)?;
        }
        Change::Put {
            variable,
            field,
            value,
        } => {
            elements.insert(key(variable, field).as_slice(), value)?;
        }
        Change::Remove { variable, field } => {
            elements.remove(key(variable, field).as_slice())?;
        }
    }
    Ok(())
}

impl Driver for Redb {
    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, Failure> {
        let key = partition.to_string();
        self.transact(|transaction| {
            let mut versions = transaction.open_table(VERSIONS)?;
            let has = version_of(&versions, &key)?;
            let epoch = has.epoch.saturating_add(1).max(at_least);
            versions.insert(key.as_str(), (epoch, 0))?;
            Ok(epoch)
        })
    }

    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure> {
        let key = partition.to_string();
        self.read(|transaction| {
            let has = transaction.open_table(VERSIONS)?.get(key.as_str())?;
            Ok(has.map(|guard| {
                let (epoch, sequence) = guard.value();
                Version { epoch, sequence }
            }))
        })
    }

    fn restore(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure> {
        let key = partition.to_string();
        self.transact(|transaction| {
            let mut versions = transaction.open_table(VERSIONS)?;
            let has = version_of(&versions, &key)?;
            if has.epoch > version.epoch {
                return Ok(Outcome::Fenced);
            }
            let version = version.max(has);
            versions.insert(key.as_str(), (version.epoch, version.sequence))?;
            Ok(Outcome::Stored)
        })
    }

    fn write(&mut self, batches: &[Batch<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
        if batches.is_empty() {
            return Ok(());
        }
        let done = self.transact(|transaction| {
            let mut versions = transaction.open_table(VERSIONS)?;
            let mut elements = transaction.open_table(ELEMENTS)?;
            let mut done = Vec::with_capacity(batches.len());
            for batch in batches {
                let key = batch.partition.to_string();
                if let Some(outcome) = version_of(&versions, &key)?.judge(batch.version) {
                    done.push(outcome);
                    continue;
                }
                for change in batch.changes() {
                    apply(&mut elements, change)?;
                }
                versions.insert(key.as_str(), (batch.version.epoch, batch.version.sequence))?;
                done.push(Outcome::Stored);
            }
            Ok(done)
        })?;
        // Only now are they on the disk.
        outcomes.extend(done);
        Ok(())
    }

    fn load(
        &mut self,
        variable: &VariableName,
        element: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        let (from, to) = (prefix(variable, 0), prefix(variable, 1));
        self.read(|transaction| {
            let elements = transaction.open_table(ELEMENTS)?;
            for found in elements.range(from.as_slice()..to.as_slice())? {
                let (key, value) = found?;
                element(key.value().get(from.len()..).unwrap_or_default(), value.value());
            }
            Ok(())
        })
    }

    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure> {
        self.read(|transaction| {
            let versions = transaction.open_table(VERSIONS)?;
            let mut all = Vec::new();
            for found in versions.iter()? {
                let (key, _) = found?;
                // A key of a later version of Flowkeep is none of ours.
                let name = key.value().parse::<PartitionName>();
                all.extend(name.ok().filter(|name| name.function() == function));
            }
            Ok(all)
        })
    }

    fn variables(&mut self) -> Result<Vec<VariableName>, Failure> {
        self.read(|transaction| {
            let elements = transaction.open_table(ELEMENTS)?;
            let mut all = Vec::new();
            // From each variable's first element to the next variable's.
            let mut from: Vec<u8> = Vec::new();
            while let Some(found) = elements.range::<&[u8]>(&*from..)?.next() {
                let (key, _) = found?;
                let end = key.value().iter().position(|byte| *byte == 0);
                let name = key
                    .value()
                    .get(..end.unwrap_or(key.value().len()))
                    .unwrap_or_default();
                let parsed = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
                all.extend(parsed);
                from = name.to_vec();
                from.push(1);
            }
            Ok(all)
        })
    }

    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.read(|transaction| {
            let has = transaction.open_table(RECORDS)?.get(name)?;
            Ok(has.map(|guard| guard.value().to_vec()))
        })
    }

    fn records(&mut self) -> Result<Vec<String>, Failure> {
        self.read(|transaction| {
            let records = transaction.open_table(RECORDS)?;
            let mut all = Vec::new();
            for found in records.iter()? {
                all.push(found?.0.value().to_owned());
            }
            Ok(all)
        })
    }

    fn swap(&mut self, name: &str, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swapped, Failure> {
        self.transact(|transaction| {
            let mut records = transaction.open_table(RECORDS)?;
            let has = records.get(name)?.map(|guard| guard.value().to_vec());
            if has.as_deref() != expected {
                return Ok(Swapped::Other(has));
            }
            match new {
                Some(new) => records.insert(name, new)?,
                None => records.remove(name)?,
            };
            Ok(Swapped::Done)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::KeptBatch;
    use crate::name::Kind;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use variables::buffer::Buffer;

    type Content = (
        Option<Version>,
        Vec<(Vec<u8>, Vec<u8>)>,
        Vec<VariableName>,
        Option<Vec<u8>>,
    );

    fn content(driver: &mut Redb, variable: &VariableName) -> Result<Content, Failure> {
        let mut elements = Vec::new();
        driver.load(variable, &mut |field, value| {
            elements.push((field.to_vec(), value.to_vec()))
        })?;
        Ok((
            driver.version(variable.partition())?,
            elements,
            driver.variables()?,
            driver.record("r")?,
        ))
    }

    /// A page of a file that was closed is another one: that is told, or does not matter.
    #[test]
    fn a_damaged_file_is_a_failure_and_no_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let partition = PartitionName::new("f", "m", 0).unwrap();
        let variable = partition.variable(Kind::Map, "m").unwrap();
        let mut driver = Redb::open(&path).unwrap();
        let epoch = driver.claim(&partition, 5).unwrap();
        driver.swap("r", None, Some(b"record")).unwrap();
        for sequence in 1..=3 {
            let mut buffer = Buffer::new();
            for key in 0..400u32 {
                buffer.put(0, &(key + 100 * sequence as u32), &[7u8; 24]).unwrap();
            }
            let version = Version { epoch, sequence };
            let bytes = buffer.bytes().to_vec();
            let kept = KeptBatch::new(&partition, version, std::slice::from_ref(&variable), bytes);
            driver.write(&[kept.batch()], &mut Vec::new()).unwrap();
        }
        let right = content(&mut driver, &variable).unwrap();
        drop(driver);
        let whole = std::fs::read(&path).unwrap();
        let (mut told, mut panics) = (0, Vec::new());
        for page in 0..whole.len() / 4096 {
            let mut damaged = whole.clone();
            damaged[4096 * page] ^= 0xff;
            // A page without content is no other one.
            if page > 0
                && whole[4096 * page..4096 * (page + 1)]
                    .iter()
                    .all(|byte| *byte == 0)
            {
                continue;
            }
            std::fs::write(&path, &damaged).unwrap();
            let seen = catch_unwind(AssertUnwindSafe(|| {
                Redb::open(&path).and_then(|mut driver| content(&mut driver, &variable))
            }));
            match seen {
                Ok(Ok(read)) => assert_eq!(read, right, "page {page}"),
                Ok(Err(failure)) => {
                    told += 1;
                    assert!(
                        failure.remedy.contains("move this one away"),
                        "page {page}: {failure}"
                    );
                }
                Err(_) => panics.push(page),
            }
        }
        assert_eq!(panics, Vec::<usize>::new());
        assert!(told > 10, "{told}");
    }
}
