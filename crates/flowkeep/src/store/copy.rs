//! Looking into a store that a running process has alone: a file (`redb:`), or its memory.
//!
//! ```text
//!   store inspect, store migrate                          running Flowkeep
//!   Source ── CopyStore, by the control socket ─────────► agent: all of the store, as of one moment ([`write`])
//!     │                                                        │ written beside, on the control side
//!     └── reads ◄── a `redb:` file in a folder of its own ◄────┘
//! ```
//!
//! The agent takes no batch while it reads; packets go on. A copy has the store's versions, so a
//! [`Follower`] of a store sees which partitions have changed since the copy before. It is made
//! again each time the variables are listed, which is once a pass. When the process has ended, the
//! file itself is read.
//!
//! Invariants: nothing is made where a store is only looked into; a copy has no name once it is
//! open, so it is gone with its reader, however that ends.
//!
//! Not here: the use of a copy ([`super::job`]).
//!
//! [`Follower`]: stores::migrate::Follower

use super::Named;
use crate::control::client::Client;
use crate::control::{Answer, FOREIGN, Request};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use stores::batch::Batch;
use stores::driver::Swapped;
use stores::drivers::memory::Memory;
use stores::migrate::copy_whole;
use stores::{Driver, Failure, Outcome, PartitionName, VariableName, Version};

/// How long reading all of a store may take.
const PATIENCE: Duration = Duration::from_secs(60);
const FILE: &str = "redb:";
const MEMORY: &str = "memory:";

/// Writes a copy of one of this process's stores into a new file.
pub(crate) fn write(all: &[Named], store: &str, to: &Path) -> Result<(), String> {
    let Some((_, found, _)) = all.iter().find(|(name, ..)| is_same(name, store)) else {
        let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
        return Err(match names.is_empty() {
            true => format!("this Flowkeep has no store, so it does not have {store}"),
            false => format!("this Flowkeep does not have {store}; it has {}", names.join(", ")),
        });
    };
    let read = found.within(PATIENCE).with(|driver| {
        let mut copy = Memory::default();
        copy_whole(driver, &mut copy).map(|()| copy)
    });
    let mut copy = read.map_err(|error| error.to_string())?;
    let mut file =
        stores::driver_of(&format!("{FILE}{}", to.display())).map_err(|error| error.to_string())?;
    copy_whole(&mut copy, file.as_mut()).map_err(|error| error.to_string())
}

/// Whether two URIs name one store: of a file, however its path is written.
fn is_same(ours: &str, store: &str) -> bool {
    let path = |uri: &str| std::fs::canonicalize(uri.strip_prefix(FILE)?).ok();
    ours == store || path(ours).is_some_and(|ours| path(store) == Some(ours))
}

/// A store to be read, wherever it is.
pub(super) enum Source {
    /// Its own driver.
    Itself(Box<dyn Driver>),
    /// A running process has it alone.
    Copied(Copied),
}

/// The last copy of a store, and how the next is made.
pub(super) struct Copied {
    uri: String,
    socket: PathBuf,
    driver: Option<Box<dyn Driver>>,
}

impl Source {
    /// Opens a store that is there; a store that a process has alone, by way of its control socket.
    pub fn open(uri: &str, socket: &Path) -> Result<Self, Failure> {
        if uri == MEMORY {
            return Copied::begin(uri, socket).map(Source::Copied);
        }
        if let Some(path) = uri.strip_prefix(FILE).filter(|path| !path.is_empty())
            && !Path::new(path).exists()
        {
            return Err(Failure::new(
                uri,
                "there is no such file",
                "see `uri` in [store] of the configuration for the file that Flowkeep has",
            ));
        }
        match stores::driver_of(uri) {
            Ok(driver) => Ok(Source::Itself(driver)),
            Err(failure) if stores::is_held(&failure) => Copied::begin(uri, socket).map(Source::Copied),
            Err(failure) => Err(failure),
        }
    }

    fn driver(&mut self) -> Result<&mut dyn Driver, Failure> {
        match self {
            Source::Itself(driver) => Ok(driver.as_mut()),
            Source::Copied(copied) => {
                if copied.driver.is_none() {
                    copied.again()?;
                }
                let Copied { driver, uri, .. } = copied;
                match driver {
                    Some(driver) => Ok(driver.as_mut()),
                    None => Err(Failure::new(uri, "there is no copy of it", "try again")),
                }
            }
        }
    }
}

impl Copied {
    fn begin(uri: &str, socket: &Path) -> Result<Self, Failure> {
        let mut copied = Copied {
            uri: uri.to_owned(),
            socket: socket.to_owned(),
            driver: None,
        };
        copied.again()?;
        Ok(copied)
    }

    /// Another copy; once the process has ended, the file itself.
    fn again(&mut self) -> Result<&mut dyn Driver, Failure> {
        self.driver = None;
        let folder = Folder::make(&self.uri)?;
        let to = folder.0.join("copy.redb");
        // The process may be in another folder.
        let path = self.uri.strip_prefix(FILE).map(std::path::absolute);
        let store = match path {
            Some(Ok(path)) => format!("{FILE}{}", path.display()),
            _ => self.uri.clone(),
        };
        let request = Request::CopyStore {
            store,
            to: to.clone(),
        };
        let asked = Client::connect(&self.socket).and_then(|mut client| match client.ask(&request)? {
            Answer::StoreCopied => Ok(()),
            _ => Err(FOREIGN.to_owned()),
        });
        let opened = match asked {
            Ok(()) => stores::driver_of(&format!("{FILE}{}", to.display())),
            Err(why) => match self.uri.starts_with(FILE) {
                true => stores::driver_of(&self.uri).map_err(|_| self.unasked(&why)),
                false => Err(self.unasked(&why)),
            },
        };
        Ok(self.driver.insert(opened?).as_mut())
    }

    fn unasked(&self, why: &str) -> Failure {
        Failure::new(
            &self.uri,
            format!("a running process has it alone, and gives no copy of it: {why}"),
            "name the control socket of the Flowkeep that has it with --socket, or end that process",
        )
    }
}

/// A folder for a copy, which only this user may open; gone with this.
struct Folder(PathBuf);

impl Folder {
    fn make(uri: &str) -> Result<Self, Failure> {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("flowkeep-store-{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => Ok(Folder(folder)),
            Err(error) => {
                let problem = format!(
                    "no folder can be made for a copy of it, {}: {error}",
                    folder.display()
                );
                Err(Failure::new(uri, problem, "make room there, or set TMPDIR"))
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Driver for Source {
    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, Failure> {
        self.driver()?.claim(partition, at_least)
    }

    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure> {
        self.driver()?.version(partition)
    }

    fn restore(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure> {
        self.driver()?.restore(partition, version)
    }

    fn write(&mut self, batches: &[Batch<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
        self.driver()?.write(batches, outcomes)
    }

    fn load(
        &mut self,
        variable: &VariableName,
        element: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        self.driver()?.load(variable, element)
    }

    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure> {
        self.driver()?.partitions(function)
    }

    /// The next reads are of this moment.
    fn variables(&mut self) -> Result<Vec<VariableName>, Failure> {
        match self {
            Source::Itself(driver) => driver.variables(),
            Source::Copied(copied) => copied.again()?.variables(),
        }
    }

    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.driver()?.record(name)
    }

    fn records(&mut self) -> Result<Vec<String>, Failure> {
        self.driver()?.records()
    }

    fn swap(&mut self, name: &str, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swapped, Failure> {
        self.driver()?.swap(name, expected, new)
    }
}
