//! The log in a file of its own (`redb`), locked by the process that has it.
//!
//! After an error of the disk the file is opened again before the next record: the store takes
//! nothing more until then. A write that is not there when it is read back is such an error.

use super::read_back::{Lies, ReadBack};
use super::{Log, LogError, opened, sealed};
use redb::backends::FileBackend;
use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const RECORDS: TableDefinition<u64, &[u8]> = TableDefinition::new("records");

/// Pages of the file that are kept in memory, in bytes: a log is small.
const CACHE: usize = 1 << 20;

type Open = Box<dyn FnMut(Lies) -> Result<Database, redb::DatabaseError> + Send>;

/// The log in a file.
pub struct Embedded {
    open: Open,
    store: Option<Database>,
    lies: Lies,
}

fn failed(why: impl std::fmt::Display) -> LogError {
    LogError::Store(why.to_string())
}

/// Whether a file that does not open may do so later, though it and its rights stay as they are.
fn may_pass(why: &redb::DatabaseError) -> bool {
    use std::io::ErrorKind::{
        InvalidData, IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem,
    };
    match why {
        redb::DatabaseError::Storage(redb::StorageError::Io(why)) => !matches!(
            why.kind(),
            InvalidData | IsADirectory | NotADirectory | NotFound | PermissionDenied | ReadOnlyFilesystem
        ),
        // A write that was cut off has left it so: opening it again repairs it.
        redb::DatabaseError::Storage(why) => !matches!(why, redb::StorageError::Corrupted(_)),
        _ => false,
    }
}

impl Embedded {
    /// Opens the log of a path, or begins it, for its owner alone (mode 0600).
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let place = path.to_owned();
        let file = move || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&place)
        };
        let mut log = Embedded::opened_by(move || FileBackend::new(file()?));
        match (log.open)(log.lies.clone()) {
            Ok(store) => {
                log.store = Some(store);
                Ok(log)
            }
            Err(why) => {
                let text = format!("{}: {why}", path.display());
                Err(match may_pass(&why) {
                    true => LogError::Store(text),
                    false => LogError::Unusable(text),
                })
            }
        }
    }

    /// The log on something else than a file, which is opened again after errors.
    pub fn on<B: StorageBackend>(mut backend: impl FnMut() -> B + Send + 'static) -> Self {
        Embedded::opened_by(move || Ok(backend()))
    }

    fn opened_by<B: StorageBackend>(
        mut backend: impl FnMut() -> Result<B, redb::DatabaseError> + Send + 'static,
    ) -> Self {
        let open = move |lies| {
            let inner = backend()?;
            let file = ReadBack { inner, lies };
            Builder::new().set_cache_size(CACHE).create_with_backend(file)
        };
        Embedded {
            open: Box::new(open),
            store: None,
            lies: Lies::default(),
        }
    }

    fn store(&mut self) -> Result<&Database, LogError> {
        if self.store.is_none() {
            self.store = Some((self.open)(self.lies.clone()).map_err(failed)?);
        }
        self.store.as_ref().ok_or_else(|| failed("not open"))
    }

    /// After an error the store is closed.
    fn attempt<T>(&mut self, what: impl FnOnce(&Database) -> Result<T, LogError>) -> Result<T, LogError> {
        let done = what(self.store()?);
        if done.is_err() {
            self.store = None;
        }
        done
    }
}

fn read_one(store: &Database, number: u64) -> Result<Option<Vec<u8>>, LogError> {
    let read = store.begin_read().map_err(failed)?;
    let table = match read.open_table(RECORDS) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(why) => return Err(failed(why)),
    };
    let stored = table.get(number).map_err(failed)?;
    stored
        .map(|stored| opened(number, stored.value()).map(<[u8]>::to_vec))
        .transpose()
}

impl Log for Embedded {
    fn read(&mut self) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        self.attempt(|store| {
            let read = store.begin_read().map_err(failed)?;
            let table = match read.open_table(RECORDS) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                Err(why) => return Err(failed(why)),
            };
            let mut all = Vec::new();
            for stored in table.iter().map_err(failed)? {
                let (number, stored) = stored.map_err(failed)?;
                let record = opened(number.value(), stored.value())?;
                all.push((number.value(), record.to_vec()));
            }
            Ok(all)
        })
    }

    fn append(&mut self, number: u64, record: &[u8]) -> Result<(), LogError> {
        self.lies.take();
        let done = self.attempt(|store| {
            match read_one(store, number)? {
                Some(there) if there == record => return Ok(()),
                Some(_) => return Err(LogError::Other(number)),
                None => {}
            }
            let mut write = store.begin_write().map_err(failed)?;
            write.set_durability(Durability::Immediate).map_err(failed)?;
            {
                let mut table = write.open_table(RECORDS).map_err(failed)?;
                let stored = sealed(number, record);
                table.insert(number, stored.as_slice()).map_err(failed)?;
            }
            write.commit().map_err(failed)?;
            match read_one(store, number)? {
                Some(there) if there == record => Ok(()),
                _ => Err(LogError::Lost(number)),
            }
        });
        done.map_err(|why| match self.lies.take() {
            true => LogError::Lost(number),
            false => why,
        })
    }

    fn has(&mut self, number: u64) -> Result<Option<bool>, LogError> {
        // No other process has this file, and the store was opened again: nothing is on its way.
        let stored = self.attempt(|store| read_one(store, number))?;
        Ok(Some(stored.is_some()))
    }

    fn forget(&mut self, numbers: &[u64]) -> Result<(), LogError> {
        self.attempt(|store| {
            let write = store.begin_write().map_err(failed)?;
            {
                let mut table = write.open_table(RECORDS).map_err(failed)?;
                for number in numbers {
                    table.remove(number).map_err(failed)?;
                }
            }
            write.commit().map_err(failed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A coordinator that cannot open its log is started again where that may help.
    #[test]
    fn of_a_log_that_does_not_open_it_is_known_whether_it_may_later() {
        let directory = std::env::temp_dir().join(format!("flowkeep-log-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let later = |path: &Path| Embedded::open(path).err().map(|why| why.may_pass());
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert!(may_pass(&redb::DatabaseError::from(full)));
        // A device that takes no length: an error that is not known to stay.
        assert_eq!(later(Path::new("/dev/full")), Some(true));
        assert_eq!(later(&directory.join("nowhere/log")), Some(false));
        assert_eq!(later(&directory), Some(false));
        let text = directory.join("text");
        std::fs::write(&text, "Dear diary, ".repeat(1000)).unwrap();
        assert_eq!(later(&text), Some(false));
        let log = directory.join("log");
        let held = Embedded::open(&log).unwrap();
        assert_eq!(later(&log), Some(false), "it is open already");
        drop(held);
        assert_eq!(later(&log), None);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
