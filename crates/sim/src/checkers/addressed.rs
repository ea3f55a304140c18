//! A router writes in front of a packet the link address of the host that it is for, as the tables
//! of one of the cluster's hosts said at some time since the packet had come in, and that host's
//! own; and the packet leaves by the port that the host is behind.
//!
//! The frame's source says whose tables were used: each process of the cluster is on a host of its
//! own, with other link addresses.

use super::Violation;
use crate::Time;
use std::fmt::Write;

const NAME: &str = "addressed";

/// One host as one process's tables have had it: each link address, from when until when.
#[derive(Clone, Default, Debug)]
pub(crate) struct Said(Vec<(Time, Time, [u8; 6])>);

impl Said {
    /// From now on tables have this address, or none.
    pub fn say(&mut self, now: Time, link: Option<[u8; 6]>) {
        let is_same = |(_, until, said): &(Time, Time, [u8; 6])| *until == Time::MAX && Some(*said) == link;
        if self.0.last().is_some_and(is_same) {
            return;
        }
        if let Some((_, until, _)) = self.0.last_mut().filter(|(_, until, _)| *until == Time::MAX) {
            *until = now;
        }
        self.0.extend(link.map(|link| (now, Time::MAX, link)));
    }

    fn has(&self, link: [u8; 6], since: Time) -> bool {
        self.0
            .iter()
            .any(|(_, until, said)| *said == link && *until >= since)
    }

    fn in_words(&self) -> String {
        let mut words = String::new();
        for (from, until, link) in &self.0 {
            let until = match *until {
                Time::MAX => "now".to_owned(),
                until => crate::timeline::Millis(until).to_string(),
            };
            let from = crate::timeline::Millis(*from);
            let _ = write!(words, " {link:x?} from {from} to {until}");
        }
        words
    }
}

/// A frame has left by `port`, written in front of by the process whose tables said `said` of the
/// host that it is for; that host is behind the port `behind`.
pub(crate) fn check(
    what: &str,
    to: [u8; 6],
    (port, behind): (usize, usize),
    said: Option<&Said>,
    since: Time,
) -> Result<(), Violation> {
    let Some(said) = said else {
        return Err(Violation::new(
            NAME,
            format!("{what} left with a source of no router's"),
        ));
    };
    if port != behind {
        let what = format!("{what} left by port {port}, and its host is behind port {behind}");
        return Err(Violation::new(NAME, what));
    }
    if !said.has(to, since) {
        let what = format!(
            "{what} left for {to:x?}; since it came in, at {}, tables had{}",
            crate::timeline::Millis(since),
            said.in_words()
        );
        return Err(Violation::new(NAME, what));
    }
    Ok(())
}

/// By runtime, how many calls wait: no more than may.
pub(crate) fn bound(waiting: impl Iterator<Item = u64>, most: u64) -> Result<(), Violation> {
    let Some((runtime, waiting)) = waiting.enumerate().find(|(_, waiting)| *waiting > most) else {
        return Ok(());
    };
    let what = format!("{waiting} calls wait at runtime {runtime}, and {most} may");
    Err(Violation::new(NAME, what))
}
