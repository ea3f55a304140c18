//! The process of a driver: started, watched, and ended.
//!
//! ```text
//!   keeper (a thread) ── starts ──► process ── standard error ──► keeper: its first words
//!        │                            ▲ └─ standard input: the socket
//!        └─ waits for its end ────────┘
//! ```
//!
//! The kernel kills the process when the *thread* that started it ends. So a thread of its own does
//! that, and lives as long as the process.

use super::Program;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The most bytes of words on the end of a process.
const WORDS_MAX: usize = 240;
/// How long a process may take to end when told to, and the kernel to kill one.
const GRACE: Duration = Duration::from_secs(2);
/// The environment variables of the process: where its libraries and the system's authorities are.
const ENVIRONMENT: [&str; 3] = ["LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// A process that runs. It ends with this.
pub struct Process {
    pub socket: UnixStream,
    pub began: Instant,
    child: Arc<Mutex<Child>>,
    /// How it ended.
    ended: Receiver<String>,
}

impl Process {
    pub fn start(program: &Program) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&program.path);
        command.arg0("flowkeep").args(&program.words).arg(super::WORD);
        command.env_clear();
        command.envs(
            ENVIRONMENT
                .iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        );
        // A group of its own: the terminal's Ctrl-C is for this process, which ends that one.
        command
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        let (tell, started) = channel();
        let (say, ended) = channel();
        let keeper = thread::Builder::new().name("store process".into());
        keeper.spawn(move || {
            let spawned = command.spawn();
            // The other end of the socket is the process's alone.
            drop(command);
            let mut child = match spawned {
                Ok(child) => child,
                Err(error) => return drop(tell.send(Err(error))),
            };
            let errors = child.stderr.take();
            let child = Arc::new(Mutex::new(child));
            let _ = tell.send(Ok(Arc::clone(&child)));
            let words = errors.map(first_words).unwrap_or_default();
            let mut child = lock(&child);
            // Without standard error it has ended, or does what it should not.
            let _ = child.kill();
            let _ = say.send(described(child.wait(), &words));
        })?;
        let child = started
            .recv()
            .map_err(|_| io::Error::other("its thread has ended"))??;
        Ok(Process {
            socket,
            began: Instant::now(),
            child,
            ended,
        })
    }

    /// Kills it, if it has not ended; answers how it ended.
    pub fn kill(&self) -> String {
        let _ = lock(&self.child).kill();
        self.ended
            .recv_timeout(GRACE)
            .unwrap_or_else(|_| "it has not ended yet".to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        if self.ended.recv_timeout(GRACE).is_err() {
            // Ended already, or to be killed.
            let _ = lock(&self.child).kill();
        }
    }
}

/// No holder panics; the keeper holds it while the kernel ends the process.
fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first words that a process says; the others are read and left.
fn first_words(mut errors: ChildStderr) -> String {
    let mut words = Vec::new();
    let _ = errors.by_ref().take(4096).read_to_end(&mut words);
    let _ = io::copy(&mut errors, &mut io::sink());
    let words = plain(&String::from_utf8_lossy(&words), 2, WORDS_MAX);
    // The program's words on its memory end with remedies for other cases.
    words.split("; ").next().unwrap_or_default().to_owned()
}

/// So many lines of what another process says, fit to be printed; without the language's advice.
pub fn plain(said: &str, lines: usize, letters: usize) -> String {
    let is_said = |line: &&str| !line.is_empty() && !line.starts_with("note: run with");
    let whole = said.lines().map(str::trim).filter(is_said);
    let all = whole.take(lines).collect::<Vec<_>>().join(" ");
    all.chars()
        .filter(|letter| !letter.is_control())
        .take(letters)
        .collect()
}

fn described(status: io::Result<ExitStatus>, words: &str) -> String {
    let how = match status {
        Ok(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("signal {signal}"),
            (_, code) => format!("code {}", code.unwrap_or_default()),
        },
        Err(error) => error.to_string(),
    };
    match words {
        "" => format!("it ended with {how}"),
        words => format!("it ended with {how}: {words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_said_in_one_line_that_nothing_gets_out_of() {
        let said = "\nthread 'x' has overflowed its stack\nfatal\x1b[2J error\nmore";
        let words = plain(said, 2, WORDS_MAX);
        assert_eq!(words, "thread 'x' has overflowed its stack fatal[2J error");
        let aborted = "memory allocation of 9 bytes failed\nnote: run with `RUST_BACKTRACE=1`\n";
        assert_eq!(
            plain(aborted, 2, WORDS_MAX),
            "memory allocation of 9 bytes failed"
        );
        let aborted = described(Ok(ExitStatus::from_raw(6)), &words);
        assert!(
            aborted.starts_with("it ended with signal 6: thread 'x'"),
            "{aborted}"
        );
        assert_eq!(
            described(Ok(ExitStatus::from_raw(256)), ""),
            "it ended with code 1"
        );
        assert_eq!(plain(&"é".repeat(5000), 2, WORDS_MAX).chars().count(), WORDS_MAX);
    }
}
