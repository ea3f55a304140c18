//! A number that grows from start to start, by which others tell a member that has started again
//! from the one before.
//!
//! It is the machine's time in nanoseconds, and more than the last one, which a file remembers: a
//! clock may go back. The file is locked as long as the process lives, so two processes are not one
//! member.
//!
//! The file has the last number and the first one, by which a coordinator tells this file from
//! another: processes that had earlier numbers of the same file had its lock, so they have ended.
//!
//! Invariant: a number that is handed out is on disk before it is used, and greater than all
//! numbers handed out before; the first number stays.
//!
//! Not here: sessions (`protocols::channel`, `adapters::shm`).

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// An incarnation, and being the only one.
#[derive(Debug)]
pub struct Incarnation {
    number: u64,
    first: u64,
    path: PathBuf,
    /// Locked.
    file: File,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum IncarnationError {
    /// The directory or the file cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another program may have written the file.
    #[error("{} does not hold the number of a start; it is {found:?}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// Its beginning.
        found: String,
    },
    /// The member runs already.
    #[error("member `{member}` runs already: another process has locked {}", path.display())]
    Running {
        /// Its name.
        member: String,
        /// The file.
        path: PathBuf,
    },
}

impl IncarnationError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            IncarnationError::File { .. } => {
                "name a directory that this user can write to: directory = \"…\" below [cluster]".to_owned()
            }
            IncarnationError::Content { path, .. } => {
                format!("if no other process uses it, remove it: rm {}", path.display())
            }
            IncarnationError::Running { .. } => "end that one first, or start another member".to_owned(),
        }
    }
}

/// Numbers that a file has at most: an earlier version wrote the last four, the newest first.
const NUMBERS: usize = 4;

/// No start is so late (it is in the year 2262), and each has room for what it counts on by itself.
const MOST: u64 = i64::MAX as u64;

impl Incarnation {
    /// The next one of a member that remembers the last in `directory`.
    pub fn take(directory: &Path, member: &str) -> Result<Self, IncarnationError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self::take_at(directory, member, now.map_or(1, |since| since.as_nanos() as u64))
    }

    fn take_at(directory: &Path, member: &str, now: u64) -> Result<Self, IncarnationError> {
        let path = directory.join(format!("{member}.incarnation"));
        let failed = |source| IncarnationError::File {
            path: path.clone(),
            source,
        };
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory);
        made.map_err(|source| IncarnationError::File {
            path: directory.to_owned(),
            source,
        })?;
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let mut file = opened.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(IncarnationError::Running {
                    member: member.to_owned(),
                    path,
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut text = String::new();
        Read::by_ref(&mut file)
            .take(128)
            .read_to_string(&mut text)
            .map_err(failed)?;
        // No number is in a file that was made just now, or whose process was killed before it
        // wrote: that process spoke to no other.
        let mut before = Vec::new();
        for word in text.split_whitespace().take(NUMBERS) {
            let number = word.parse().ok().filter(|number| *number < MOST);
            before.push(number.ok_or_else(|| IncarnationError::Content {
                path: path.clone(),
                found: text.chars().take(24).collect(),
            })?);
        }
        let last = before.iter().copied().max().unwrap_or(0);
        let number = now.max(last + 1);
        let mut incarnation = Incarnation {
            number,
            first: before.iter().copied().min().unwrap_or(number),
            path,
            file,
        };
        incarnation.write()?;
        Ok(incarnation)
    }

    /// Has the number be above another one: its worker's numbers were another member's.
    pub fn raise_above(&mut self, incarnation: u64) -> Result<(), IncarnationError> {
        if self.number > incarnation {
            return Ok(());
        }
        self.number = incarnation.saturating_add(1).min(MOST - 1);
        self.write()
    }

    fn write(&mut self) -> Result<(), IncarnationError> {
        // Of one length always, so it is overwritten whole.
        let line = format!("{:020} {:020}\n", self.number, self.first);
        let written = self
            .file
            .rewind()
            .and_then(|()| self.file.write_all(line.as_bytes()))
            // The line of an earlier version is longer.
            .and_then(|()| self.file.set_len(line.len() as u64));
        let written = written.and_then(|()| self.file.sync_all());
        written.map_err(|source| IncarnationError::File {
            path: self.path.clone(),
            source,
        })
    }

    /// The first number that this file has handed out, as far as it remembers.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Writes a higher number into the same file, for the agent: its thread takes one where a
    /// coordinator knows this one already. The lock stays with this.
    pub fn keeper(&self) -> coordinator::agent::Keep {
        let path = self.path.clone();
        Arc::new(move |number| {
            let file = OpenOptions::new().write(true).open(&path);
            let written = file.and_then(|mut file| {
                // The newest is the first word, and all have 20 digits.
                file.write_all(format!("{number:020}").as_bytes())?;
                file.sync_all()
            });
            written.map_err(|why| format!("{}: {why}", path.display()))
        })
    }

    /// The number, at least 1.
    pub fn number(&self) -> u64 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that an agent has raised is known to the next start, too.
    #[test]
    fn a_number_that_the_agent_raises_is_in_the_file() {
        let directory = Directory::new("raised");
        let first = Incarnation::take_at(&directory.0, "left", 1000).unwrap();
        first.keeper()(1007).unwrap();
        drop(first);
        // A test that forks has the lock for a moment.
        let next = (0..4000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            Incarnation::take_at(&directory.0, "left", 5).ok()
        });
        let next = next.unwrap();
        assert_eq!(next.number(), 1008, "the clock went back");
    }

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let name = format!("flowkeep-incarnation-{name}-{}", std::process::id());
            Directory(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn it_grows_though_the_clock_goes_back() {
        let directory = Directory::new("grows");
        // A process that another test is just starting has a copy of the lock until it runs its own
        // program.
        let take = |now| {
            let began = std::time::Instant::now();
            loop {
                match Incarnation::take_at(&directory.0, "left", now) {
                    Err(IncarnationError::Running { .. }) if began.elapsed().as_secs() < 20 => {
                        std::thread::sleep(std::time::Duration::from_millis(5));
                    }
                    taken => break taken.map(|taken| (taken.number(), taken.first())).unwrap(),
                }
            }
        };
        let all = [take(1000), take(2000), take(5), take(5), take(3000), take(1)];
        assert_eq!(
            all.map(|(number, _)| number),
            [1000, 2000, 2001, 2002, 3000, 3001]
        );
        assert!(
            all.iter().all(|(_, first)| *first == 1000),
            "however many there are"
        );
        let other = Incarnation::take_at(&directory.0, "right", 7).unwrap();
        assert_eq!((other.number(), other.first()), (7, 7));
    }

    #[test]
    fn a_file_of_four_numbers_is_read() {
        let directory = Directory::new("four");
        std::fs::create_dir_all(&directory.0).unwrap();
        let path = directory.0.join("left.incarnation");
        std::fs::write(&path, "00000000000000000040 00000000000000000030 20 10\n").unwrap();
        let taken = Incarnation::take_at(&directory.0, "left", 50).unwrap();
        assert_eq!((taken.number(), taken.first()), (50, 10));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "00000000000000000050 00000000000000000010\n");
    }

    #[test]
    fn a_member_is_one_process() {
        let directory = Directory::new("once");
        let first = Incarnation::take_at(&directory.0, "left", 10).unwrap();
        let error = Incarnation::take_at(&directory.0, "left", 20).unwrap_err();
        assert!(matches!(error, IncarnationError::Running { .. }), "{error}");
        drop(first);
        let began = std::time::Instant::now();
        let again = loop {
            match Incarnation::take_at(&directory.0, "left", 20) {
                Err(IncarnationError::Running { .. }) if began.elapsed().as_secs() < 20 => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                taken => break taken.unwrap(),
            }
        };
        assert_eq!(again.number(), 20);
    }

    #[test]
    fn what_is_no_number_is_left_alone() {
        let directory = Directory::new("strange");
        std::fs::create_dir_all(&directory.0).unwrap();
        let path = directory.0.join("left.incarnation");
        std::fs::write(&path, "dear diary").unwrap();
        let error = Incarnation::take_at(&directory.0, "left", 20).unwrap_err();
        assert!(error.to_string().contains("dear diary"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "dear diary");
        // A number that no start has had, behind which there would be no room.
        std::fs::write(&path, u64::MAX.to_string()).unwrap();
        let error = Incarnation::take_at(&directory.0, "left", 20).unwrap_err();
        assert!(matches!(error, IncarnationError::Content { .. }), "{error}");
        // A start that was killed before it wrote anything.
        std::fs::write(&path, "").unwrap();
        assert_eq!(
            Incarnation::take_at(&directory.0, "left", 20).unwrap().number(),
            20
        );
    }
}
