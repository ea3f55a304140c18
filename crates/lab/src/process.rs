//! Programs that a lab runs: to their end within a limit, or beside it until they are no longer
//! wanted.
//!
//! A program has its limit of time and is ended when it is over. Its output goes to a file without
//! a name, so that a program that prints much does not wait for a reader.

use super::LabError;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a program's end is looked for.
const LOOK: Duration = Duration::from_millis(5);
/// How long a program that was asked to end may take before it is ended: on a busy machine it takes
/// the kernel seconds to let go of an interface.
const GRACE: Duration = Duration::from_secs(60);

/// How a program is run.
#[derive(Clone, Debug)]
pub struct Run {
    limit: Duration,
    input: String,
}

impl Run {
    /// For at most so long.
    pub fn within(limit: Duration) -> Self {
        Run {
            limit,
            input: String::new(),
        }
    }

    /// For at most so long, with something to read on its standard input.
    pub fn with_input(limit: Duration, input: &str) -> Self {
        Run {
            limit,
            input: input.to_owned(),
        }
    }
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// Runs a program to its end, however that is. `name` is how errors call it.
pub(super) fn finish(command: Command, name: &str, run: Run) -> Result<Ended, LabError> {
    let mut process = Process::start_with_input(command, name, &run.input)?;
    let began = Instant::now();
    while began.elapsed() < run.limit {
        if let Some(status) = process.ended()? {
            let (out, err) = process.printed()?;
            return Ok(Ended { status, out, err });
        }
        std::thread::sleep(LOOK);
    }
    Err(LabError::TooLong {
        command: name.to_owned(),
        seconds: run.limit.as_secs(),
    })
}

/// Runs a program to its end; answers its standard output, or its words when it failed.
pub(super) fn run(command: Command, name: &str, run: Run) -> Result<String, LabError> {
    let Ended { status, out, err } = finish(command, name, run)?;
    if status.success() {
        return Ok(out);
    }
    let said = if err.trim().is_empty() { out } else { err };
    Err(LabError::Failed {
        command: name.to_owned(),
        problem: format!("{status}: {}", said.trim()),
    })
}

/// A program that runs beside this one, and is ended when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    out: File,
    err: File,
}

impl Process {
    pub(super) fn start(command: Command, name: &str) -> Result<Self, LabError> {
        Self::start_with_input(command, name, "")
    }

    fn start_with_input(mut command: Command, name: &str, input: &str) -> Result<Self, LabError> {
        let system = |source| LabError::System {
            what: format!("`{name}` cannot be started"),
            source,
        };
        let (out, err) = (scratch().map_err(system)?, scratch().map_err(system)?);
        command
            .stdin(Stdio::piped())
            .stdout(out.try_clone().map_err(system)?)
            .stderr(err.try_clone().map_err(system)?);
        let mut child = command.spawn().map_err(system)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that wants no input has closed it.
            let _ = stdin.write_all(input.as_bytes());
        }
        Ok(Process {
            name: name.to_owned(),
            child,
            out,
            err,
        })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, LabError> {
        self.child.try_wait().map_err(|source| LabError::System {
            what: self.name.clone(),
            source,
        })
    }

    /// Its standard output and standard error so far.
    pub fn printed(&mut self) -> Result<(String, String), LabError> {
        let read = |mut file: &File| {
            let mut bytes = Vec::new();
            file.rewind()?;
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let both = read(&self.out).and_then(|out| Ok((out, read(&self.err)?)));
        both.map_err(|source| LabError::System {
            what: format!("what `{}` printed", self.name),
            source,
        })
    }

    /// Waits until it has printed `text`; an error if it ends before, or does not within `limit`.
    pub fn wait_for(&mut self, text: &str, limit: Duration) -> Result<(), LabError> {
        let began = Instant::now();
        loop {
            let ended = self.ended()?;
            let (out, err) = self.printed()?;
            if out.contains(text) || err.contains(text) {
                return Ok(());
            }
            if let Some(status) = ended {
                return Err(LabError::Failed {
                    command: self.name.clone(),
                    problem: format!("{status}: {}{}", out, err.trim()),
                });
            }
            if began.elapsed() > limit {
                return Err(LabError::TooLong {
                    command: self.name.clone(),
                    seconds: limit.as_secs(),
                });
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Asks it to end as a person would (SIGTERM), and answers how it did.
    pub fn stop(mut self) -> Result<Ended, LabError> {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let began = Instant::now();
        while began.elapsed() < GRACE {
            if let Some(status) = self.ended()? {
                let (out, err) = self.printed()?;
                return Ok(Ended { status, out, err });
            }
            std::thread::sleep(LOOK);
        }
        Err(LabError::TooLong {
            command: self.name.clone(),
            seconds: GRACE.as_secs(),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file without a name, gone with its last descriptor. Reading it moves the writer's place as
/// well, so each append sets the place to the end again.
fn scratch() -> io::Result<File> {
    let folder = std::env::temp_dir();
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::APPEND;
    let fd = rustix::fs::open(
        &folder,
        flags | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )?;
    Ok(File::from(fd))
}
