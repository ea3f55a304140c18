//! Files that may be pipes with a name: opening one waits until another process has its other end.
//!
//! A signal that this process handles ends the wait with an error. A plain `open` would go on,
//! since handlers are installed so that system calls begin again; then a process that was asked to
//! end would not, as long as no other process comes.
//!
//! Not here: reading and writing once the file is open.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::thread::{NanosleepRelativeResult, nanosleep};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// How long a reader that has come waits for the pipe to be opened at most.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

fn interrupted() -> io::Error {
    let what = "a signal came before another process had opened this pipe";
    io::Error::new(io::ErrorKind::Interrupted, what)
}

/// Opens a file to read it. Of a pipe it waits until there is something, or the writer has gone.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.file_type().is_fifo() {
        match poll(&mut [PollFd::new(&file, PollFlags::IN)], None) {
            Err(Errno::INTR) => return Err(interrupted()),
            polled => polled?,
        };
    }
    fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

/// Opens a file to write it, made or emptied. Of a pipe it waits for a reader.
pub fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let is_pipe = || fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    loop {
        match rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => {
                fcntl_setfl(&file, OFlags::empty())?;
                return Ok(File::from(file));
            }
            Err(Errno::NXIO) if is_pipe() => match nanosleep(&LOOK) {
                NanosleepRelativeResult::Ok => {}
                NanosleepRelativeResult::Interrupted(_) => return Err(interrupted()),
                NanosleepRelativeResult::Err(error) => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::thread;
    use std::time::Duration;

    fn pipe(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("flowkeep-pipe-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, Mode::from_raw_mode(0o600), 0).unwrap();
        path
    }

    #[test]
    fn either_end_may_come_first() {
        for late in [Duration::ZERO, Duration::from_millis(60)] {
            for is_reader_late in [false, true] {
                let path = pipe(if is_reader_late { "reader" } else { "writer" });
                let other = path.clone();
                let writer = thread::spawn(move || {
                    thread::sleep(if is_reader_late { Duration::ZERO } else { late });
                    create(&other).unwrap().write_all(b"all of it").unwrap();
                });
                thread::sleep(if is_reader_late { late } else { Duration::ZERO });
                let mut text = String::new();
                open(&path).unwrap().read_to_string(&mut text).unwrap();
                writer.join().unwrap();
                fs::remove_file(&path).unwrap();
                assert_eq!(text, "all of it");
            }
        }
    }

    #[test]
    fn a_file_is_made_emptied_and_read() {
        let path = std::env::temp_dir().join(format!("flowkeep-file-{}", std::process::id()));
        for text in ["long", "s"] {
            create(&path).unwrap().write_all(text.as_bytes()).unwrap();
            let mut read = String::new();
            open(&path).unwrap().read_to_string(&mut read).unwrap();
            assert_eq!(read, text);
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
