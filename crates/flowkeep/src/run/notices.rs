//! Events of the process itself, beside those of its functions: lines for the event log.
//!
//! A line has no `function` and no `runtime`: `{"time":…,"event":"backend_down",…}`. A queue that
//! is full makes the thread that tells wait for a second at most; then the line is lost, and
//! standard error says so.
//!
//! Not here: the writer of the lines ([`super::events`]), events of stores ([`crate::store`]).

use super::lock;
use crate::events::Declared;
use crate::log::{self, Level};
use serde_json::{Map, Value};
use std::sync::Mutex;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a full queue is tried, and how long it is waited for in between.
const TRIES: u32 = 100;
const WAIT: Duration = Duration::from_millis(10);

/// Where the process tells its events.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<Option<SyncSender<String>>>);

impl Notices {
    /// To the writer of the event log.
    pub fn to(lines: SyncSender<String>) -> Self {
        Notices(Mutex::new(Some(lines)))
    }

    /// No more events come: the writer may end.
    pub fn close(&self) {
        drop(lock(&self.0).take());
    }

    /// Tells an event.
    pub fn tell(&self, event: &Declared, fields: &[(&str, Value)]) {
        let mut line = line(event, fields);
        // Not under the lock: the end of the cluster does not wait for a full disk.
        let Some(lines) = lock(&self.0).clone() else {
            return;
        };
        for _ in 0..TRIES {
            line = match lines.try_send(line) {
                Ok(()) => return,
                Err(TrySendError::Full(line)) => line,
                Err(TrySendError::Disconnected(_)) => return,
            };
            if lock(&self.0).is_none() {
                break;
            }
            std::thread::sleep(WAIT);
        }
        log::say(
            Level::Warn,
            format_args!("the event log has no room for: {}", line.trim_end()),
        );
    }
}

/// The line of an event, with the time of day.
fn line(event: &Declared, fields: &[(&str, Value)]) -> String {
    fields.iter().for_each(|(name, _)| event.hold(name));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut all = Map::new();
    all.insert("event".into(), event.event().name.into());
    all.extend(
        fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone())),
    );
    let rest = Value::Object(all).to_string();
    let (seconds, nanoseconds) = (now.as_secs(), now.subsec_nanos());
    format!(
        "{{\"time\":{seconds}.{nanoseconds:09},{}\n",
        rest.trim_start_matches('{')
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_line_has_the_time_of_day_and_is_json() {
        let text = line(
            &events::CONFIGURATION_WENT_BACK,
            &[("file", "a\"b".into()), ("flows_cut", 3.into())],
        );
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (read["event"].as_str(), read["flows_cut"].as_u64()),
            (Some("configuration_went_back"), Some(3))
        );
        assert_eq!(read["file"], "a\"b");
        assert!(read["time"].as_f64().unwrap() > 1.7e9, "{text}");
        assert!(text.starts_with("{\"time\":") && text.ends_with("}\n"), "{text}");
    }

    #[test]
    fn a_full_log_does_not_hold_up_the_end() {
        let (lines, incoming) = sync_channel(1);
        let notices = Notices::to(lines);
        notices.tell(&events::BACKEND_UP, &[]);
        std::thread::scope(|scope| {
            scope.spawn(|| notices.tell(&events::BACKEND_DOWN, &[]));
            notices.close();
        });
        assert!(incoming.recv().unwrap().contains("backend_up"));
        assert!(incoming.recv().is_err(), "the writer ends");
    }
}
