//! A trace as people read it.

use super::{Change, Event, Step};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Collects a packet's steps until they can be printed together.
#[derive(Debug, Default)]
pub struct Printer {
    /// By packet; and in how many rounds nothing was heard of it.
    packets: BTreeMap<u64, (Vec<Step>, u32)>,
}

/// Rounds after which a packet of which nothing is heard is printed as far as it has come.
const ROUNDS: u32 = 20;

impl Printer {
    /// Takes a step; answers the packet's text if it was the last.
    pub fn take(&mut self, step: Step) -> Option<String> {
        let number = step.packet;
        let is_last = step.event.is_last();
        let (steps, quiet) = self.packets.entry(number).or_default();
        steps.push(step);
        *quiet = 0;
        if is_last {
            return self.packets.remove(&number).map(|(steps, _)| text(&steps));
        }
        None
    }

    /// A round is over: packets of which nothing has been heard for long.
    pub fn round(&mut self) -> Vec<String> {
        self.packets.values_mut().for_each(|(_, quiet)| *quiet += 1);
        let silent: Vec<u64> = (self.packets.iter())
            .filter(|(_, (_, quiet))| *quiet > ROUNDS)
            .map(|(number, _)| *number)
            .collect();
        let silent = silent.iter().filter_map(|number| self.packets.remove(number));
        silent.map(|(steps, _)| text(&steps)).collect()
    }

    /// All packets that are left.
    pub fn finish(&mut self) -> Vec<String> {
        std::mem::take(&mut self.packets)
            .values()
            .map(|(steps, _)| text(steps))
            .collect()
    }
}

/// All steps of one packet.
fn text(steps: &[Step]) -> String {
    let mut out = String::new();
    let Some(first) = steps.first() else {
        return out;
    };
    let _ = write!(out, "#{:<3} {}  ", first.packet, time_of_day(first.time_ns));
    if let Some(member) = &first.member {
        let _ = write!(out, "({member})  ");
    }
    let _ = match &first.event {
        Event::In {
            protocol,
            ends,
            tcp_flags,
            length,
            is_error,
            ..
        } => {
            let flags = tcp_flags
                .as_ref()
                .map_or(String::new(), |flags| format!(" [{flags}]"));
            let error = if *is_error {
                ", an error that quotes the flow"
            } else {
                ""
            };
            writeln!(
                out,
                "{protocol} {} > {}{flags}, {length} bytes{error}",
                ends.source, ends.destination
            )
        }
        Event::Made { function, way } => writeln!(out, "made by {function}, goes {way}"),
        Event::Flow { .. } if first.member.is_some() => writeln!(out, "came by a link"),
        Event::Out { ends, .. } if first.member.is_some() => {
            writeln!(out, "came back by a link: {} > {}", ends.source, ends.destination)
        }
        _ => writeln!(out, "was inside when this began"),
    };
    let mut worker = "";
    let width = steps
        .iter()
        .filter_map(function_name)
        .map(str::len)
        .max()
        .unwrap_or(0);
    for step in steps {
        let Some(what) = line(&step.event, width) else {
            continue;
        };
        let place = if step.worker == worker { "" } else { &step.worker };
        worker = &step.worker;
        let _ = writeln!(out, "     {place:<11}{what}");
    }
    out
}

fn function_name(step: &Step) -> Option<&str> {
    match &step.event {
        Event::Function { function, .. } => Some(function),
        _ => None,
    }
}

fn line(event: &Event, width: usize) -> Option<String> {
    Some(match event {
        Event::In { port, side, .. } => format!("in by {port} ({side})"),
        Event::HandedOver { to } => format!("to switch {to}, its group's home"),
        Event::Routed { runtime, by } => format!("to runtime {runtime}: {}", route(by)),
        Event::Turned => "turned: comes in once more, as if from outside".into(),
        Event::Flow { is } => match is.as_str() {
            "launched" => "launched a flow".into(),
            "queued" => "flow found; queued behind a call that waits".into(),
            "expired" => "flow found, its time over: ended, opened again".into(),
            _ => "flow found".into(),
        },
        Event::Chain {
            chain,
            direction,
            passed,
        } => {
            let passed = match passed {
                0 => String::new(),
                1 => ", behind 1 function".into(),
                count => format!(", behind {count} functions"),
            };
            format!("chain {chain}, {direction}{passed}")
        }
        Event::Function {
            function,
            verdict,
            reason,
            resumed,
            changed,
        } => {
            let mut what = format!("  {function:<width$}  ");
            if *resumed {
                what += "(resumed) ";
            }
            what += verdict;
            if let Some(reason) = reason {
                let _ = write!(what, ": {reason}");
            }
            if let Some(Change { before, after }) = changed {
                for (which, before, after) in [
                    ("source", &before.source, &after.source),
                    ("destination", &before.destination, &after.destination),
                ] {
                    if before != after {
                        let _ = write!(what, ", {which} {before} → {after}");
                    }
                }
            }
            what
        }
        Event::Made { .. } => return None,
        Event::Released { function } => format!("released by {function}"),
        Event::ReplyKey { ends } => format!("reply key: {} > {}", ends.source, ends.destination),
        Event::Leaves { side } => format!("leaves to {side}"),
        Event::Out { port, ends } => format!("out by {port}: {} > {}", ends.source, ends.destination),
        Event::Dropped { function, reason } => match function {
            Some(function) => format!("DROPPED by {function}: {reason}"),
            None => format!("DROPPED: {reason}"),
        },
    })
}

fn route(by: &str) -> &str {
    match by {
        "route" => "its group's route",
        "reply_key" => "the route of its reply key",
        "least_loaded" => "a new group, the least loaded runtime",
        "round_robin" => "a new group, the next runtime in turn",
        "maglev" => "a new group, by its hash (Maglev)",
        other => other,
    }
}

/// Hours, minutes, seconds, in UTC.
pub(crate) fn time_of_day(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    format!(
        "{:02}:{:02}:{:02}.{:06}",
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
        nanoseconds / 1000 % 1_000_000
    )
}
