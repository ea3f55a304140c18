//! The result of a script in a cluster, and whether it is the same as another time.
//!
//! # Theory of operation
//! A [`Story`] has a chapter for each step: packets that left, byte for byte and in order, its
//! drops and counts; and an end: the flows with their states, the lines of the event log, the
//! functions' answers when all is over. [`difference`] holds one against another.
//!
//! Two things may differ although nothing was lost: the time of a line in the event log (a flow's
//! end is noticed up to 34 ms late, and when exactly depends on when it was last looked at) and the
//! runtime that wrote it. And while a call waits, its group cannot move: packets that would open a
//! flow of the group then wait, too. So where calls waited, packets that left are compared by
//! conversation, and drops and counters in sum.
//!
//! Not here: leftovers (`rig`).

use super::chosen::{Chosen, Compared};
use super::rig::Left;
use crate::sent::{Copied, Words, side_name};
use nf::Side;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use wire::LinkType;

/// Counts by function and name; the runtime's own have no function.
pub type Counts = BTreeMap<(String, &'static str), u64>;

/// The result of a step.
#[derive(Default)]
pub struct Chapter {
    /// The frame that came in; none with a wait.
    pub came: Option<(Side, LinkType, Vec<u8>)>,
    pub left: Vec<Left>,
    pub dropped: Counts,
    pub counted: Counts,
    pub held: u64,
}

/// A flow, as it stood behind the last step.
pub type FlowLine = (String, Vec<(String, String)>);

/// See the module's page.
#[derive(Default)]
pub struct Story {
    pub chapters: Vec<Chapter>,
    pub flows: Vec<FlowLine>,
    /// The event log.
    pub events: String,
    /// Questions when all flows were over, and their answers.
    pub answers: Vec<String>,
    /// The error of the run by itself.
    pub wrong: Option<String>,
    pub moved: u64,
    /// Whether a call has waited.
    pub has_waited: bool,
}

/// Where two stories part: behind which step, if it is one, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The chapter.
    pub chapter: Option<usize>,
    pub words: String,
}

impl Difference {
    pub fn at_the_end(words: impl Into<String>) -> Self {
        Difference {
            chapter: None,
            words: words.into(),
        }
    }
}

/// How stories are compared.
pub struct Terms<'a> {
    pub chosen: &'a Chosen,
    /// Counters that are not compared, by function and name.
    pub uncounted: &'a BTreeSet<(String, String)>,
    /// The event of the second story: "they move".
    pub meanwhile: &'static str,
    /// Whether functions have fields that lag. Then their counts and lines of the event log may
    /// follow from these: no counters are compared, and of the log which function wrote lines of
    /// which names.
    pub lags: bool,
    /// Whether flows may be there still that are over in the first story: a recovered flow has as
    /// long as it had when it was copied.
    pub incarnations_longer: bool,
}

/// Holds the result of a script while flows moved against its result while they stayed.
pub fn difference(stayed: &Story, moved: &Story, terms: &Terms<'_>) -> Option<Difference> {
    let (chosen, meanwhile) = (terms.chosen, terms.meanwhile);
    let packets = (chosen.compared(stayed), chosen.compared(moved));
    let by_chapter = if stayed.has_waited || moved.has_waited {
        in_sum((stayed, &packets.0), (moved, &packets.1), terms)
    } else {
        chapter_by_chapter((stayed, &packets.0), (moved, &packets.1), terms)
    };
    if let Some(found) = by_chapter {
        return Some(found);
    }
    if let Some(wrong) = &moved.wrong {
        return Some(Difference::at_the_end(wrong.as_str()));
    }
    let (theirs, ours) = (lines(&stayed.events, terms), lines(&moved.events, terms));
    if let Some(found) = unequal("event", &theirs, &ours, meanwhile) {
        return Some(found);
    }
    let show = |flows: &[FlowLine]| -> Vec<String> {
        let line = |flow: &FlowLine| chosen.bare(&format!("{flow:?}"));
        let mut lines: Vec<String> = flows.iter().map(line).collect();
        lines.sort();
        lines
    };
    let (there, mut here) = (show(&stayed.flows), moved.flows.clone());
    if terms.incarnations_longer {
        here.retain(|(ends, _)| stayed.flows.iter().any(|(known, _)| known == ends));
    }
    unequal("flow", &there, &show(&here), meanwhile)
        .or_else(|| unequal("answer", &stayed.answers, &moved.answers, meanwhile))
}

type Told<'a> = (&'a Story, &'a [Vec<Compared>]);

fn chapter_by_chapter((stayed, there): Told, (moved, here): Told, terms: &Terms<'_>) -> Option<Difference> {
    let meanwhile = terms.meanwhile;
    for (at, (theirs, ours)) in stayed.chapters.iter().zip(&moved.chapters).enumerate() {
        let words = if there.get(at) != here.get(at) {
            format!(
                "while flows stay,    {}\n{:<21}{}{}",
                show(&theirs.left),
                format!("while {meanwhile},"),
                show(&ours.left),
                why(theirs, ours, meanwhile)
            )
        } else if let Some(words) = counts_differ("dropped", &theirs.dropped, &ours.dropped, meanwhile)
            .or_else(|| counters_differ(&theirs.counted, &ours.counted, terms))
        {
            words
        } else if theirs.held != ours.held {
            format!(
                "{} packets are held, and {} while {meanwhile}",
                theirs.held, ours.held
            )
        } else {
            continue;
        };
        return Some(Difference {
            chapter: Some(at),
            words,
        });
    }
    None
}

fn in_sum((stayed, there): Told, (moved, here): Told, terms: &Terms<'_>) -> Option<Difference> {
    let meanwhile = terms.meanwhile;
    let sum = |story: &Story, of: fn(&Chapter) -> &Counts| {
        let mut whole = Counts::new();
        for (name, count) in story.chapters.iter().flat_map(of) {
            *whole.entry(name.clone()).or_default() += count;
        }
        whole
    };
    let conversations = |packets: &[Vec<Compared>]| {
        let mut whole: BTreeMap<(u8, String), Vec<Compared>> = BTreeMap::new();
        for left in packets.iter().flatten() {
            let packet = Copied::of_frame(&left.bytes, left.link, left.side);
            let key = wire::FlowKey::of(&packet).map_or(String::new(), |(key, _)| key.to_string());
            whole
                .entry((left.side as u8, key))
                .or_default()
                .push(left.clone());
        }
        whole
    };
    let (theirs, ours) = (conversations(there), conversations(here));
    let other = theirs
        .iter()
        .find(|(key, packets)| ours.get(key) != Some(packets));
    let other = other.or_else(|| ours.iter().find(|(key, _)| !theirs.contains_key(key)));
    let packets = other.map(|((_, key), _)| format!("of {key}, other packets left, or in another order"));
    let dropped = || {
        counts_differ(
            "dropped",
            &sum(stayed, |chapter| &chapter.dropped),
            &sum(moved, |chapter| &chapter.dropped),
            meanwhile,
        )
    };
    let counted = || {
        let counts = |story| sum(story, |chapter| &chapter.counted);
        counters_differ(&counts(stayed), &counts(moved), terms)
    };
    packets
        .or_else(dropped)
        .or_else(counted)
        .map(Difference::at_the_end)
}

/// A frame in words.
pub fn words(side: Side, link: LinkType, bytes: &[u8]) -> String {
    let packet = Copied::of_frame(bytes, link, side);
    format!("{} {}", side_name(side), Words(&packet))
}

fn show(left: &[Left]) -> String {
    if left.is_empty() {
        return "nothing leaves".into();
    }
    let packets = left
        .iter()
        .map(|left| words(left.side, left.link, &left.bytes))
        .collect::<Vec<_>>()
        .join(", ");
    let hex: String = left.iter().fold(String::new(), |mut hex, left| {
        for byte in left.bytes.iter().take(96) {
            let _ = write!(hex, "{byte:02x}");
        }
        hex + " "
    });
    format!("there leaves {packets}\n                     {hex}")
}

/// Other differences of this step.
fn why(theirs: &Chapter, ours: &Chapter, meanwhile: &str) -> String {
    let all = [
        counts_differ("dropped", &theirs.dropped, &ours.dropped, meanwhile),
        counts_differ("counted", &theirs.counted, &ours.counted, meanwhile),
    ];
    let lines = all.into_iter().flatten();
    lines.map(|words| format!("\n{words}")).collect()
}

fn counters_differ(theirs: &Counts, ours: &Counts, terms: &Terms<'_>) -> Option<String> {
    match terms.lags {
        true => None,
        false => {
            let is_compared = |(function, name): &&(String, &'static str)| {
                !terms.uncounted.contains(&(function.clone(), (*name).to_owned()))
            };
            let compared = |counts: &Counts| -> Counts {
                let names = counts.keys().filter(is_compared);
                names.map(|name| (name.clone(), counts[name])).collect()
            };
            counts_differ("counted", &compared(theirs), &compared(ours), terms.meanwhile)
        }
    }
}

fn counts_differ(what: &str, theirs: &Counts, ours: &Counts, meanwhile: &str) -> Option<String> {
    if theirs == ours {
        return None;
    }
    let mut words = String::new();
    let names: std::collections::BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
    for (function, name) in names {
        let key = (function.clone(), *name);
        let count = |counts: &Counts| counts.get(&key).copied().unwrap_or(0);
        let (stayed, moved) = (count(theirs), count(ours));
        if stayed != moved {
            let of = if function.is_empty() {
                "the runtime"
            } else {
                function
            };
            let _ = write!(
                words,
                "{}{what} by {of}, `{name}`: {stayed}, and {moved} while {meanwhile}",
                if words.is_empty() { "" } else { "\n" }
            );
        }
    }
    Some(words)
}

/// Lines of the event log without when and by which runtime they were written.
fn lines(events: &str, terms: &Terms<'_>) -> Vec<String> {
    let line = |line| match terms.lags {
        true => named(line),
        false => terms.chosen.bare(&bare(line)),
    };
    let mut lines: Vec<String> = events.lines().map(line).collect();
    lines.sort();
    if terms.lags {
        lines.dedup();
    }
    lines
}

/// `{"time":1.5,"runtime":0,"function":…` without its first two.
fn bare(line: &str) -> String {
    match line.split_once(",\"function\":") {
        Some((_, rest)) => format!("{{\"function\":{rest}"),
        None => line.to_owned(),
    }
}

/// Of `{"time":1.5,"runtime":0,"function":"a","event":"b",…` the part that says which function
/// wrote which event.
fn named(line: &str) -> String {
    let line = bare(line);
    let words: Vec<&str> = line.splitn(9, '"').take(8).collect();
    words.join("\"")
}

fn unequal(what: &str, theirs: &[String], ours: &[String], meanwhile: &str) -> Option<Difference> {
    let count = |lines: &[String]| {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for line in lines {
            *counts.entry(line.clone()).or_default() += 1;
        }
        counts
    };
    let (theirs, ours) = (count(theirs), count(ours));
    let less = |a: &BTreeMap<String, u64>, b: &BTreeMap<String, u64>| -> Option<String> {
        let line = a
            .iter()
            .find(|(line, count)| b.get(*line).copied().unwrap_or(0) < **count)?;
        Some(line.0.clone())
    };
    let (missing, added) = (less(&theirs, &ours), less(&ours, &theirs));
    let mut words = Vec::new();
    if let Some(line) = missing {
        words.push(format!("while flows stay there is the {what}   {line}"));
    }
    if let Some(line) = added {
        words.push(format!("while {meanwhile} there is the {what}    {line}"));
    }
    (!words.is_empty()).then(|| Difference::at_the_end(words.join("\n")))
}
