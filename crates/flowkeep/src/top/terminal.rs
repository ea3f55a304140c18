//! The terminal: a screen of its own, keys without Enter, and all as it was afterwards.
//!
//! A terminal needs six escape sequences, which every one has had for decades (ECMA-48, xterm's
//! alternate screen), and two settings of termios(3); so there is no library for it.
//!
//! Invariant: however `top` ends but for SIGKILL, the terminal is as it was: when [`Terminal`] is
//! dropped, and before a panic is told.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use rustix::termios::{isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Alternate screen, cursor hidden; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// How the terminal was, while it is ours.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// A terminal in use.
#[derive(Debug)]
pub struct Terminal;

/// Why there is no screen here.
pub fn refusal() -> Option<&'static str> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    (is_dumb || !isatty(io::stdin()) || !isatty(io::stdout())).then_some(
        "`flowkeep top` draws on a terminal, and this is none: say --once for one look as text, or --json for a line a second",
    )
}

impl Terminal {
    /// Takes the terminal.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut ours = before.clone();
        // Ctrl-C comes as a key, so that nothing ends without having put things back.
        ours.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        ours.special_codes[SpecialCodeIndex::VMIN] = 0;
        ours.special_codes[SpecialCodeIndex::VTIME] = 0;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let terminal = Terminal;
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            told(panic);
        }));
        tcsetattr(io::stdin(), OptionalActions::Now, &ours)?;
        write(ENTER)?;
        Ok(terminal)
    }

    /// Columns and rows.
    pub fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    /// Shows a screen. The first line is bold.
    pub fn draw(&self, lines: &[String]) -> io::Result<()> {
        let mut screen = String::from("\x1b[H");
        for (at, line) in lines.iter().enumerate() {
            if at > 0 {
                screen.push_str("\r\n");
            }
            if at == 0 {
                screen.push_str(&format!("\x1b[1m{line}\x1b[0m\x1b[K"));
            } else {
                screen.push_str(line);
                screen.push_str("\x1b[K");
            }
        }
        // Whatever was below.
        screen.push_str("\x1b[J");
        write(&screen)
    }

    /// Waits for a key for so long.
    pub fn key(&self, wait: Duration) -> io::Result<Option<u8>> {
        let stdin = io::stdin();
        let mut descriptors = [PollFd::new(&stdin, PollFlags::IN)];
        let wait = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        match poll(&mut descriptors, Some(&wait)) {
            Err(rustix::io::Errno::INTR) | Ok(0) => return Ok(None),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let mut key = [0];
        match stdin.lock().read(&mut key)? {
            // The terminal has gone.
            0 => Ok(Some(b'q')),
            _ => Ok(Some(key[0])),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}
