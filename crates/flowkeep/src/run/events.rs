//! The event log: the file that it goes to, and the thread that writes it.
//!
//! # Theory of operation
//!
//! ```text
//!   runtime's log (1 MiB) ──► line chunks (64) ──► this thread ──► file, appended to
//!                                                     └ the file takes nothing: the chunk waits, and is tried again
//! ```
//!
//! *A disk that is full* holds this thread at the chunk that it has. The queue behind it fills,
//! then the log of each runtime. A line that finds no room there is lost, and counted by that
//! runtime (`flowkeep_lost_events_total`). The first refusal is reported at once. When the file
//! takes lines again, the chunk goes on at the byte where it stopped, so no line is cut, and a
//! report says how many lines were lost meanwhile.
//!
//! *At the end* of a cluster nothing waits for the file any more ([`Ending`]): each chunk is tried
//! once, and refused lines are counted.
//!
//! *The file* is appended to, so the log of the last start stays; its mode is 0640, since its lines
//! name users and their connections. Where the last writer was killed in the middle of a line, that
//! line is ended first. Times become times of day here ([`super::stamps`]).
//!
//! *Rotation*, at the end of a line ([`LogFile`]):
//!
//! ```text
//!   larger than `max_size`,   e.jsonl.1 ─► e.jsonl.2 ─► … `keep` of them      e.jsonl ─► e.jsonl.1, and a new e.jsonl
//!   or older than `max_age`
//!   SIGUSR1:                  e.jsonl is opened again by its name, as logrotate's `postrotate` wants it
//! ```
//!
//! *One process writes a file*: rotation renames it, and a second process would go on in the file
//! that the first has renamed. A file is locked (`flock`) as long as it is open; another process is
//! refused. A file system without locks goes without.
//!
//! *Other than files*: a terminal, `/dev/null` or a pipe that this process was given takes lines as
//! a file does. A named pipe, a socket, a disk or a folder is refused, here and by `chain check`
//! ([`refused`]).
//!
//! The new file is made first, as `e.jsonl.new`. A file that cannot be made, renamed or opened (a
//! full disk, a directory that the process may not write to) is reported once, and the file that is
//! open goes on: rotation loses no line.
//!
//! Invariants: the file has whole lines only, but for the last one of a process that was killed or
//! ended on a full disk; a lost line is in a count, and the count is said.
//!
//! Not here: lines ([`nf::cx::EventLog`]), which file (the configuration).

use super::stamps::Stamps;
use crate::config::ports;
use adapters::report::Reports;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::{File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

/// How long the thread waits before it tries a file again.
const RETRY: Duration = Duration::from_millis(200);
/// After this without a line the file looks whether it is to be opened again.
const QUIET: Duration = Duration::from_millis(200);
/// Bytes that are written at once, if so many are there.
const CHUNK: usize = 64 * 1024;
/// How often a file that another process looks at is tried, and how long it is waited in between.
const LOCK_TRIES: u32 = 5;
const LOCK_WAIT: Duration = Duration::from_millis(10);
/// The mode of the file: its owner writes, its group reads.
const MODE: u32 = 0o640;

/// Why no event log could be opened there, as far as that shows without making or changing
/// anything.
pub(super) fn refused(path: &Path) -> Option<String> {
    let opened = see_kind(path).and_then(|()| match path.is_file() {
        true => see_free(
            &append_to(path, OFlags::empty())?,
            FlockOperation::NonBlockingLockShared,
        ),
        false => Ok(()),
    });
    match opened {
        Err(error) => Some(cannot_be_opened(path, &error)),
        Ok(()) => ports::unwritten(path),
    }
}

/// The message on an event log that cannot be opened.
pub(super) fn cannot_be_opened(path: &Path, error: &io::Error) -> String {
    format!(
        "the event log {} cannot be opened: {error}; write a path of its own in a folder that exists and that you may write to, \
         or `-` for standard output",
        path.display()
    )
}

/// Refuses a file that takes no lines. A terminal takes them, and so does `/dev/null`, or a pipe
/// that this process was given (`/dev/stdout`, `/dev/fd/3`). Opening a named pipe waits until
/// another process reads it, and it keeps lines only as long as that does.
fn see_kind(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::metadata(path) else {
        // Opening it says the problem.
        return Ok(());
    };
    let kind = found.file_type();
    let is_named = || {
        let is_it = |of: rustix::io::Result<rustix::fs::Stat>| {
            of.is_ok_and(|of| (of.st_dev, of.st_ino) == (found.dev(), found.ino()))
        };
        let is_own = is_it(rustix::fs::fstat(io::stdout())) || is_it(rustix::fs::fstat(io::stderr()));
        // A pipe without a name is none of a file system's.
        !is_own && path.canonicalize().is_ok()
    };
    let what = match () {
        () if kind.is_dir() => "it is a folder",
        () if kind.is_socket() => "it is a socket",
        () if kind.is_block_device() => "it is a disk",
        () if kind.is_fifo() && is_named() => "it is a named pipe, which no process may be reading",
        () => return Ok(()),
    };
    Err(io::Error::other(what))
}

/// Opens it without waiting for anything; lines are waited for as they are written.
fn append_to(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | more;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(MODE))?;
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(File::from(file))
}

/// Locks a file, unless another process has it. A look holds it for a moment, so it is tried again.
fn see_free(file: &File, how: FlockOperation) -> io::Result<()> {
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(file, how) {
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => std::thread::sleep(LOCK_WAIT),
            _ => return Ok(()),
        }
    }
    Err(io::Error::other("another process writes it"))
}

/// Opens the file of an event log, to append to it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    see_kind(path)?;
    let mut file = append_to(path, OFlags::CREATE)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(file);
    }
    see_free(&file, FlockOperation::NonBlockingLockExclusive)?;
    // A file of an earlier version is readable by all. The mode of another owner's file is that
    // owner's business.
    if metadata.permissions().mode() & 0o777 & !MODE != 0 {
        match file.set_permissions(Permissions::from_mode(MODE)) {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
    }
    if !ends_with_line(path) {
        // A full disk refuses that too: then the first line of this start goes on behind the cut
        // one.
        let _ = file.write_all(b"\n");
    }
    Ok(file)
}

/// Whether a file is empty or its last line is whole, as far as it can be read.
fn ends_with_line(path: &Path) -> bool {
    let last = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        io::Result::Ok(last == *b"\n")
    };
    last().unwrap_or(true)
}

/// When a file is full, and how it is renamed.
#[derive(Clone, Debug)]
pub(super) struct Rotation {
    /// Bytes beyond which it is rotated; never if not said.
    pub max_size: Option<u64>,
    /// Time after which a file with lines is rotated; never if not said.
    pub max_age: Option<Duration>,
    /// Files that are kept besides.
    pub keep: u32,
    /// Raised when the file is to be opened again by its name.
    pub again: Arc<AtomicBool>,
}

/// A file that is appended to and rotated.
pub(super) struct LogFile {
    file: File,
    path: PathBuf,
    rotation: Rotation,
    /// Its length, if it is a file that has one.
    length: Option<u64>,
    /// The time of day of its first line; of a file that was there at the start, when it was made.
    made: SystemTime,
    /// No line is cut here.
    at_line: bool,
    /// A refusal to rotate is said once.
    has_told: bool,
    reports: Reports,
}

impl LogFile {
    pub fn open(path: &Path, rotation: Rotation, reports: Reports) -> io::Result<Self> {
        let (file, length, made) = Self::append_to(path)?;
        Ok(LogFile {
            file,
            path: path.to_owned(),
            rotation,
            length,
            made,
            at_line: true,
            has_told: false,
            reports,
        })
    }

    fn append_to(path: &Path) -> io::Result<(File, Option<u64>, SystemTime)> {
        let file = open(path)?;
        let metadata = file.metadata()?;
        let length = metadata.is_file().then_some(metadata.len());
        // A file system without times of birth: a file's age counts from each start.
        let made = metadata.created().unwrap_or_else(|_| SystemTime::now());
        Ok((file, length, made))
    }

    /// The name of the file that was rotated so many times.
    fn old(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// Has the next line go to another file, if it is time for that.
    fn turn(&mut self, next: usize) {
        if !self.at_line {
            return;
        }
        let is_full = |max: u64| {
            let length = self.length.unwrap_or(0);
            length > 0 && length.saturating_add(next as u64) > max
        };
        // A clock that was set back makes a file no older.
        let is_old =
            |max: Duration| self.length.unwrap_or(0) > 0 && self.made.elapsed().is_ok_and(|age| age >= max);
        let is_full = self.length.is_some() && self.rotation.max_size.is_some_and(is_full);
        let is_over = is_full || self.rotation.max_age.is_some_and(is_old);
        let again = self.rotation.again.swap(false, Ordering::AcqRel);
        if !(is_over || again && self.is_renamed()) {
            return;
        }
        let opened = match is_over && !again {
            true => self.another(),
            false => Self::append_to(&self.path),
        };
        match opened {
            Ok((file, length, made)) => {
                (self.file, self.length, self.made, self.has_told) = (file, length, made, false);
            }
            Err(error) => self.refused(&error),
        }
    }

    /// Whether another file, or none, has its name by now.
    fn is_renamed(&self) -> bool {
        let number = |of: io::Result<std::fs::Metadata>| of.map(|of| (of.dev(), of.ino())).ok();
        number(self.file.metadata()) != number(std::fs::metadata(&self.path))
    }

    /// Makes another file, then gives the old ones their names: where no file can be made, no file
    /// loses a line.
    fn another(&self) -> io::Result<(File, Option<u64>, SystemTime)> {
        // Not the lines of this file: it has another name by now.
        if std::fs::metadata(&self.path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(io::Error::other("its name is not a file's"));
        }
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        let made = Self::append_to(&new)?;
        match self.rename().and_then(|()| std::fs::rename(&new, &self.path)) {
            Ok(()) => Ok(made),
            Err(error) => {
                let _ = std::fs::remove_file(&new);
                Err(error)
            }
        }
    }

    fn rename(&self) -> io::Result<()> {
        if self.rotation.keep == 0 {
            return Ok(());
        }
        // A refusal behind the first steps leaves a gap: the files above it have their names
        // already.
        let olds = (1..self.rotation.keep).take_while(|number| self.old(*number).exists());
        for number in olds.collect::<Vec<_>>().into_iter().rev() {
            std::fs::rename(self.old(number), self.old(number + 1))?;
        }
        std::fs::rename(&self.path, self.old(1))
    }

    fn refused(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.has_told, true) {
            self.reports.warn(
                format_args!("event log {}", self.path.display()),
                format_args!("it cannot be rotated: {error}"),
                "lines go on to the file that is open; see that its name is free, and that the user that Flowkeep runs as may make a file there",
            );
        }
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.turn(bytes.len());
        let count = self.file.write(bytes)?;
        if self.length == Some(0) {
            self.made = SystemTime::now();
        }
        if let Some(last) = bytes.get(..count).and_then(<[u8]>::last) {
            self.at_line = *last == b'\n';
        }
        self.length = self.length.map(|length| length + count as u64);
        Ok(count)
    }

    /// Also where nothing is to be written: a file that was renamed is let go soon.
    fn flush(&mut self) -> io::Result<()> {
        self.turn(0);
        self.file.flush()
    }
}

/// Says to the thread that the cluster ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Ending(Arc<AtomicBool>);

impl Ending {
    /// From now on nothing waits for the file.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it has.
    pub fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The state of the thread.
pub(super) struct Writer<L> {
    pub out: Box<dyn Write + Send>,
    /// Its name in reports.
    pub name: String,
    pub stamps: Stamps,
    pub reports: Reports,
    pub ending: Ending,
    /// Asks how many lines found no room at the runtimes so far.
    pub lost: L,
}

/// A time in which the file takes nothing.
struct Outage {
    since: Instant,
    lost_before: u64,
    error: io::Error,
}

impl<L: Fn() -> u64> Writer<L> {
    /// Writes lines until none can come. The error says how many were not written at the end.
    pub fn run(mut self, incoming: Receiver<String>) -> Result<(), String> {
        let mut outage: Option<Outage> = None;
        let mut unwritten = 0;
        let mut chunk = String::new();
        loop {
            let lines = match incoming.recv_timeout(QUIET) {
                Ok(lines) => lines,
                Err(RecvTimeoutError::Timeout) => {
                    // A refusal comes again with the next line, and is said then.
                    let _ = self.out.flush();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            chunk.clear();
            self.stamps.append(&lines, &mut chunk);
            while chunk.len() < CHUNK
                && let Ok(more) = incoming.try_recv()
            {
                self.stamps.append(&more, &mut chunk);
            }
            let rest = self.write(chunk.as_bytes(), &mut outage);
            unwritten += rest.iter().filter(|byte| **byte == b'\n').count();
        }
        // A writer in front of the file may keep bytes until then.
        let flushed = self.out.flush();
        match (outage, flushed) {
            (Some(Outage { error, .. }), _) | (None, Err(error)) => Err(format!(
                "the event log {} cannot be written: {error}; {unwritten} lines were lost at the end",
                self.name
            )),
            (None, Ok(())) => Ok(()),
        }
    }

    /// Writes a chunk, as long as that takes; the rest of it where the cluster ends meanwhile.
    fn write<'c>(&mut self, chunk: &'c [u8], outage: &mut Option<Outage>) -> &'c [u8] {
        let mut rest = chunk;
        while !rest.is_empty() {
            let error = match self.out.write(rest) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    if let Some(over) = outage.take() {
                        self.tell_over(&over);
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            match outage {
                Some(outage) => outage.error = error,
                None => *outage = Some(self.begin_outage(error)),
            }
            if self.ending.has_begun() {
                return rest;
            }
            std::thread::sleep(RETRY);
        }
        rest
    }

    fn begin_outage(&self, error: io::Error) -> Outage {
        self.reports.warn(
            format_args!("event log {}", self.name),
            format_args!("it cannot be written: {error}"),
            "lines wait, and are lost and counted where there is no more room for them; it is tried again and again",
        );
        Outage {
            since: Instant::now(),
            lost_before: (self.lost)(),
            error,
        }
    }

    fn tell_over(&self, outage: &Outage) {
        let lost = (self.lost)().saturating_sub(outage.lost_before);
        let seconds = outage.since.elapsed().as_secs_f64();
        let name = format!("event log {}", self.name);
        let problem = format!("it is written again after {seconds:.1} s; {lost} lines were lost meanwhile");
        match lost {
            0 => self.reports.warn(name, problem, ""),
            _ => self.reports.tell(name, problem, ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc::sync_channel;

    /// A disk: it takes so many bytes, then none until there is room again.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap();
            let count = bytes.len().min(disk.1);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.0.extend_from_slice(&bytes[..count]);
            disk.1 -= count;
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn until(mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_full_disk_is_said_losses_are_counted_and_writing_goes_on() {
        let disk = Disk::default();
        disk.0.lock().unwrap().1 = 10;
        let reports = Reports::default();
        let lost = Arc::new(AtomicU64::new(3));
        let (lines, incoming) = sync_channel(2);
        let writer = Writer {
            out: Box::new(disk.clone()),
            name: "e".into(),
            stamps: Stamps::default(),
            reports: reports.clone(),
            ending: Ending::default(),
            lost: {
                let lost = Arc::clone(&lost);
                move || lost.load(Ordering::Relaxed)
            },
        };
        let thread = std::thread::spawn(move || writer.run(incoming));
        lines.send("{\"a\":1}\n{\"b\":2}\n".to_owned()).unwrap();
        let mut told = Vec::new();
        until(|| {
            told.extend(reports.take());
            !told.is_empty()
        });
        assert!(
            told[0]
                .to_string()
                .starts_with("event log e: it cannot be written: "),
            "{told:?}"
        );
        // The queue fills behind it: the sender sees that, and counts.
        until(|| lines.try_send("{\"c\":3}\n".to_owned()).is_err());
        lost.store(10, Ordering::Relaxed);
        disk.0.lock().unwrap().1 = usize::MAX;
        until(|| {
            told.extend(reports.take());
            told.len() > 1
        });
        assert!(
            told[1].problem.contains("written again")
                && told[1].problem.ends_with("7 lines were lost meanwhile"),
            "{told:?}"
        );
        drop(lines);
        assert_eq!(thread.join().unwrap(), Ok(()));
        let text = String::from_utf8(disk.0.lock().unwrap().0.clone()).unwrap();
        assert!(text.starts_with("{\"a\":1}\n{\"b\":2}\n{\"c\":3}\n"), "{text}");
    }

    #[test]
    fn a_cluster_that_ends_does_not_wait_for_a_full_disk() {
        let reports = Reports::default();
        let (lines, incoming) = sync_channel(64);
        let writer = Writer {
            out: Box::new(Disk::default()),
            name: "e".into(),
            stamps: Stamps::default(),
            reports: reports.clone(),
            ending: Ending::default(),
            lost: || 0,
        };
        let ending = writer.ending.clone();
        let thread = std::thread::spawn(move || writer.run(incoming));
        lines.send("1\n2\n".to_owned()).unwrap();
        until(|| !reports.take().is_empty());
        ending.begin();
        for _ in 0..40 {
            lines.send("3\n".to_owned()).unwrap();
        }
        drop(lines);
        let said = thread.join().unwrap().unwrap_err();
        assert!(said.ends_with("42 lines were lost at the end"), "{said}");
    }

    #[test]
    fn a_file_is_appended_to_and_not_for_all_to_read() {
        let path = std::env::temp_dir().join(format!("flowkeep-events-{}", std::process::id()));
        std::fs::write(&path, "1\n{\"cut").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        for line in ["2\n", "3\n"] {
            open(&path).unwrap().write_all(line.as_bytes()).unwrap();
        }
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((text.as_str(), mode), ("1\n{\"cut\n2\n3\n", 0o640));
        drop(open(&path).unwrap());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        std::fs::remove_file(&path).unwrap();
        assert_eq!(mode & !0o640, 0);
    }

    /// A directory that is gone with this.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("flowkeep-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn read(&self, name: &str) -> Option<String> {
            std::fs::read_to_string(self.0.join(name)).ok()
        }

        fn log(&self, max_size: Option<u64>, keep: u32) -> (LogFile, Arc<AtomicBool>, Reports) {
            let (again, reports) = (Arc::new(AtomicBool::new(false)), Reports::default());
            let rotation = Rotation {
                max_size,
                max_age: None,
                keep,
                again: again.clone(),
            };
            let log = LogFile::open(&self.0.join("e"), rotation, reports.clone()).unwrap();
            (log, again, reports)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_that_is_full_is_rotated_between_lines_and_so_many_are_kept() {
        let folder = Folder::new("rotate");
        let (mut log, _, reports) = folder.log(Some(9), 2);
        for line in 1..=4 {
            // The second half of a line goes where the first has gone.
            log.write_all(format!("{line}{line}{line}").as_bytes()).unwrap();
            log.write_all(b"444\n").unwrap();
        }
        let files = ["e", "e.1", "e.2", "e.3"].map(|name| folder.read(name).unwrap_or_default());
        assert_eq!(files, ["444444\n", "333444\n", "222444\n", ""]);
        // The present file counts after a new start, too.
        drop(log);
        let (mut log, ..) = folder.log(Some(9), 2);
        log.write_all(b"5555\n").unwrap();
        let files = ["e", "e.1", "e.2"].map(|name| folder.read(name).unwrap_or_default());
        assert_eq!(files, ["5555\n", "444444\n", "333444\n"]);
        drop(log);
        let (mut log, ..) = folder.log(Some(4), 0);
        log.write_all(b"6666\n").unwrap();
        assert_eq!(folder.read("e").as_deref(), Some("6666\n"));
        assert!(reports.take().is_empty());
    }

    #[test]
    fn one_process_writes_a_file_also_the_one_it_turns_to() {
        let folder = Folder::new("lock");
        let (mut log, again, reports) = folder.log(Some(9), 1);
        let path = folder.0.join("e");
        let refused = || {
            let looked = super::refused(&path).unwrap_or_default();
            let opened = open(&path).err().map(|error| error.to_string());
            assert!(looked.contains("another process writes it"), "{looked}");
            assert_eq!(opened.as_deref(), Some("another process writes it"));
        };
        refused();
        log.write_all(b"333333\n").unwrap();
        log.write_all(b"444444\n").unwrap();
        refused();
        // A signal without a new file changes nothing.
        again.store(true, Ordering::Release);
        log.write_all(b"5\n").unwrap();
        refused();
        std::fs::rename(&path, folder.0.join("moved")).unwrap();
        again.store(true, Ordering::Release);
        log.write_all(b"6\n").unwrap();
        assert_eq!(folder.read("e").unwrap(), "6\n");
        refused();
        assert_eq!(reports.take(), []);
        drop(log);
        assert_eq!(super::refused(&path), None);
        drop(open(&path).unwrap());
    }

    #[test]
    fn a_file_that_is_old_is_rotated_once_it_has_a_line() {
        const AGE: Duration = Duration::from_millis(100);
        let folder = Folder::new("age");
        let (mut log, _, reports) = folder.log(None, 2);
        log.rotation.max_age = Some(AGE);
        std::thread::sleep(AGE);
        log.flush().unwrap();
        assert_eq!(folder.read("e.1"), None, "a file without a line");
        log.write_all(b"1\n").unwrap();
        log.write_all(b"half").unwrap();
        std::thread::sleep(AGE);
        log.flush().unwrap();
        assert_eq!(folder.read("e.1"), None, "no line is cut");
        log.write_all(b" 2\n").unwrap();
        log.flush().unwrap();
        let files = ["e", "e.1"].map(|name| folder.read(name).unwrap_or_default());
        assert_eq!(files, ["", "1\nhalf 2\n"], "without a further line");
        // The next file is young, and its age goes on over a new start.
        log.write_all(b"3\n").unwrap();
        drop(log);
        std::thread::sleep(AGE);
        let (mut log, ..) = folder.log(None, 2);
        log.rotation.max_age = Some(AGE);
        log.write_all(b"4\n").unwrap();
        let files = ["e", "e.1", "e.2"].map(|name| folder.read(name).unwrap_or_default());
        assert_eq!(files, ["4\n", "3\n", "1\nhalf 2\n"]);
        assert!(reports.take().is_empty());
    }

    #[test]
    fn a_file_that_was_renamed_is_let_go_when_it_is_said() {
        let folder = Folder::new("again");
        let (mut log, again, reports) = folder.log(None, 4);
        log.write_all(b"1\n").unwrap();
        std::fs::rename(folder.0.join("e"), folder.0.join("old")).unwrap();
        log.write_all(b"2\n").unwrap();
        again.store(true, Ordering::Relaxed);
        log.flush().unwrap();
        assert_eq!(folder.read("e").as_deref(), Some(""), "before there is a line");
        log.write_all(b"3\n").unwrap();
        let files = ["old", "e"].map(|name| folder.read(name).unwrap_or_default());
        assert_eq!(files, ["1\n2\n", "3\n"]);
        assert!(reports.take().is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_rotated_goes_on_and_that_is_said_once() {
        let folder = Folder::new("stuck");
        let (mut log, _, reports) = folder.log(Some(1), 1);
        // Nothing can be renamed to a directory that is not empty.
        std::fs::create_dir_all(folder.0.join("e.1/full")).unwrap();
        for line in ["1\n", "2\n", "3\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(folder.read("e").as_deref(), Some("1\n2\n3\n"));
        let told = reports.take();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].to_string().contains("cannot be rotated"), "{told:?}");
    }

    /// An operator moved the file away and made a folder in its place: old files keep their names.
    #[test]
    fn where_the_name_is_a_folders_no_file_is_renamed() {
        let folder = Folder::new("a-folder");
        let (mut log, _, reports) = folder.log(Some(1), 4);
        for line in ["1\n", "2\n", "3\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        std::fs::rename(folder.0.join("e"), folder.0.join("away")).unwrap();
        std::fs::create_dir(folder.0.join("e")).unwrap();
        for line in ["4\n", "5\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        let files = ["away", "e.1", "e.2", "e.3"].map(|name| folder.read(name).unwrap_or_default());
        assert_eq!(files, ["3\n4\n5\n", "2\n", "1\n", ""]);
        assert_eq!(reports.take().len(), 1);
        std::fs::remove_dir(folder.0.join("e")).unwrap();
    }

    /// A disk without room for another file: the old ones keep their names and lines.
    #[test]
    fn where_no_other_file_can_be_made_no_file_is_renamed() {
        let folder = Folder::new("no-room");
        let (mut log, _, reports) = folder.log(Some(1), 4);
        for line in ["1\n", "2\n", "3\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        std::fs::create_dir_all(folder.0.join("e.new/full")).unwrap();
        for line in ["4\n", "5\n", "6\n", "7\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        let files = ["e", "e.1", "e.2", "e.3"].map(|name| folder.read(name).unwrap_or_default());
        assert_eq!(files, ["3\n4\n5\n6\n7\n", "2\n", "1\n", ""]);
        assert_eq!(reports.take().len(), 1);
        std::fs::remove_dir_all(folder.0.join("e.new")).unwrap();
        log.write_all(b"8\n").unwrap();
        let files = ["e", "e.1", "e.2"].map(|name| folder.read(name).unwrap_or_default());
        assert_eq!(files, ["8\n", "3\n4\n5\n6\n7\n", "2\n"]);
    }

    #[test]
    fn a_device_that_is_always_full_is_opened_and_refuses() {
        let mut full = open(Path::new("/dev/full")).unwrap();
        assert_eq!(full.write(b"1\n").unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
