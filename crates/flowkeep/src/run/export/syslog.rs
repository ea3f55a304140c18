//! A line as a syslog message over UDP (RFC 5424, RFC 5426).
//!
//! ```text
//!   <134>1 2026-11-20T18:46:04.500000Z gateway flowkeep 4711 mapping_created - {"time":…}
//!   local0.info       the line's          host   name   process   the event    the line
//! ```

use super::{Collector, Sender, field};
use std::io::Write;

/// Facility local0 (16), severity informational (6).
const PRIORITY: u8 = 16 * 8 + 6;
/// The longest name of an event, and of a host (RFC 5424 6).
const EVENT_MAX: usize = 32;
const HOST_MAX: usize = 255;
/// The longest message that a datagram holds.
const MESSAGE_MAX: usize = 65_000;

pub(super) struct Syslog {
    sender: Sender,
    host: String,
    message: Vec<u8>,
}

impl Syslog {
    pub fn new(sender: Sender) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Syslog {
            sender,
            host: printable(host.trim(), HOST_MAX),
            message: Vec::new(),
        }
    }
}

impl Collector for Syslog {
    fn line(&mut self, line: &str) {
        // RFC 5424 has six places at most.
        let time = field(line, "time").and_then(|time| time.get(..26));
        let is_time = |time: &&str| {
            time.bytes()
                .all(|byte| byte.is_ascii_digit() || b"-T:.".contains(&byte))
        };
        let time = time
            .filter(is_time)
            .map_or_else(|| "-".to_owned(), |time| format!("{time}Z"));
        let event = printable(field(line, "event").unwrap_or_default(), EVENT_MAX);
        let process = std::process::id();
        self.message.clear();
        let message = &mut self.message;
        let written = write!(
            message,
            "<{PRIORITY}>1 {time} {} flowkeep {process} {event} - {line}",
            self.host
        );
        if written.is_ok() && message.len() <= MESSAGE_MAX {
            self.sender.send(message);
        } else {
            self.sender.unsent += 1;
        }
    }

    fn flush(&mut self) {}
}

/// A word of printable ASCII, `-` for none.
fn printable(text: &str, most: usize) -> String {
    let word: String = text.chars().filter(char::is_ascii_graphic).take(most).collect();
    match word.is_empty() {
        true => "-".to_owned(),
        false => word,
    }
}
