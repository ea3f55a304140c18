//! Plays a script to a [`Rig`] and writes down what comes of each step.
//!
//! # Theory of operation
//! The clock is the player's, as when a function is alone (`crate::play`): it goes on by two nanoseconds with a packet, and by what the
//! script says, stopping wherever a call is due. Flows move first, then time passes, then the packet comes: what a flow
//! waits for, it waits for where it has gone.
//!
//! Not here: what is expected.

use super::rig::{Coming, Rig, Shape};
use super::story::{Chapter, Counts, Story};
use super::{Migration, Way};
use crate::build::{Conversations, Last};
use crate::step::{Step, What};
use crate::watch::Notes;
use nf::{Endpoint, Side};
use runtime::chain::{ChainRule, Plan};
use runtime::stats::Named;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::LinkType;

/// A step with its number in the script.
#[derive(Clone)]
pub struct Numbered {
    pub number: usize,
    pub step: Arc<Step>,
}

/// Why there is no story.
pub enum Failure {
    /// The script or the configuration cannot be.
    Script(String),
    /// The workers are in trouble.
    Broken(String),
}

/// The script's beginning, as where no flow moves: not zero, so that a time that was never set shows.
pub const BEGINNING: u64 = 1_000_000_000_000;
const FRAME_MAX: usize = 2048;
/// Long after the last flow: nobody waits for anything longer.
const LONG: u64 = 400_000_000_000;

struct Player {
    rig: Rig,
    notes: Arc<Mutex<Notes>>,
    conversations: Conversations,
    last: Option<Last>,
    /// The ends by which the conversation of a packet is known, by its time of reception.
    known_as: HashMap<u64, (Endpoint, Endpoint)>,
    story: Story,
    dropped: Counts,
    counted: Counts,
}

/// Plays a script, flows moving at the steps of these numbers.
pub fn play(
    migration: &Migration,
    script: &[Numbered],
    points: &BTreeSet<usize>,
    way: Way,
) -> Result<Story, Failure> {
    let notes = Arc::new(Mutex::new(Notes::default()));
    let factories = migration
        .functions
        .iter()
        .map(|function| (function.make)(notes.clone()))
        .collect();
    let rule = ChainRule {
        name: "test".into(),
        functions: migration
            .functions
            .iter()
            .map(|function| function.name.into())
            .collect(),
        ..ChainRule::default()
    };
    let plan = Plan::new(vec![rule], factories).map_err(|error| Failure::Script(error.to_string()))?;
    let longest = script.iter().map(|numbered| match &numbered.step.what {
        What::Frame(bytes, ..) => bytes.len(),
        What::Packet(described) => described.payload.len() + 128,
        What::Wait(_) => 0,
    });
    let shape = Shape {
        switches: migration.switches,
        flows_max: migration.flows_max,
        frame_max: longest.max().unwrap_or(0).max(FRAME_MAX),
        now: migration.begins_at,
    };
    let mut player = Player {
        rig: Rig::new(&shape, plan).map_err(Failure::Script)?,
        notes,
        conversations: Conversations::default(),
        last: None,
        known_as: HashMap::new(),
        story: Story::default(),
        dropped: Counts::new(),
        counted: Counts::new(),
    };
    let mut before = None;
    for Numbered { number, step } in script {
        let first = before.map_or(0, |before| before + 1);
        let moves = points.range(first..=*number).next().is_some();
        before = Some(*number);
        player.play(*number, step, moves.then_some(way))?;
    }
    player.end(migration)
}

impl Player {
    fn play(&mut self, number: usize, step: &Step, way: Option<Way>) -> Result<(), Failure> {
        match way {
            Some(Way::Over) => {
                self.order_both()?;
                self.settle()?;
            }
            Some(Way::ThereAndBack) => {
                for from in [0, 1] {
                    self.rig.order(from).map_err(Failure::Broken)?;
                    self.settle()?;
                }
            }
            Some(Way::Amid) | None => {}
        }
        self.story.chapters.push(Chapter::default());
        if let Some(time) = step.after {
            self.pass(time)?;
        }
        let is_amid = way == Some(Way::Amid);
        match &step.what {
            What::Wait(time) => {
                if is_amid {
                    self.order_both()?;
                }
                self.pass(*time)?;
            }
            What::Frame(bytes, link, side) => {
                let frame = (bytes.clone(), *link, *side);
                self.packet(frame, step, None, is_amid)?;
            }
            What::Packet(described) => {
                let built = self.conversations.build(described, self.last.as_ref());
                let built =
                    built.map_err(|why| Failure::Script(format!("step {number} cannot be: {why}")))?;
                let frame = (built.frame, LinkType::Ethernet, built.side);
                self.packet(frame, step, Some(built.known_as), is_amid)?;
            }
        }
        self.close_chapter();
        Ok(())
    }

    fn packet(
        &mut self,
        (bytes, link, side): (Vec<u8>, LinkType, Side),
        step: &Step,
        known_as: Option<(Endpoint, Endpoint)>,
        is_amid: bool,
    ) -> Result<(), Failure> {
        if step.after.is_none() {
            self.rig.now += 2;
        }
        let stamp = self.rig.now;
        if let Some(ends) = known_as {
            self.known_as.insert(stamp, ends);
        }
        if let Some(chapter) = self.story.chapters.last_mut() {
            chapter.came = Some((side, link, bytes.clone()));
        }
        self.rig.bring(
            side,
            Coming {
                bytes,
                link,
                wire_length: step.wire_length,
                stamp,
            },
        );
        if is_amid {
            self.order_both()?;
        }
        self.settle()
    }

    fn order_both(&mut self) -> Result<(), Failure> {
        for from in [0, 1] {
            self.rig.order(from).map_err(Failure::Broken)?;
        }
        Ok(())
    }

    fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        let until = self.rig.now + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4);
        loop {
            let due = self.rig.next_at().unwrap_or(until).max(self.rig.now + 1);
            self.rig.now = due.min(until);
            self.settle()?;
            if self.rig.now >= until {
                return Ok(());
            }
        }
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.rig.settle().map_err(Failure::Broken)?;
        self.story.has_waited |= self.rig.has_waiting();
        let left = self.rig.take_left();
        if !left.is_empty() {
            let known_as = &self.known_as;
            self.last = self.rig.take_last(|stamp| known_as.get(&stamp).copied());
            if let Some(chapter) = self.story.chapters.last_mut() {
                chapter.left.extend(left);
            }
        }
        Ok(())
    }

    /// What was dropped and counted since the chapter before.
    fn close_chapter(&mut self) {
        let stats = self.rig.stats();
        let drops = self.rig.drops();
        let drops = stats.iter().flat_map(|stats| &stats.dropped).chain(&drops);
        let dropped = sum(drops);
        let counted = sum(stats.iter().flat_map(|stats| &stats.counters));
        if let Some(chapter) = self.story.chapters.last_mut() {
            chapter.dropped = since(&self.dropped, &dropped);
            chapter.counted = since(&self.counted, &counted);
            chapter.held = stats.iter().map(|stats| stats.held).sum();
        }
        (self.dropped, self.counted) = (dropped, counted);
        if let Ok(mut notes) = self.notes.lock() {
            notes.verdicts.clear();
        }
    }

    fn end(mut self, migration: &Migration) -> Result<Story, Failure> {
        for flow in self.rig.flows() {
            // Its end is noticed sooner or later.
            if flow.expires_in > 0 {
                let chosen = |(from, to): &(Endpoint, Endpoint)| {
                    migration.chosen.has(from.addr) || migration.chosen.has(to.addr)
                };
                let translated = match flow.translated {
                    Some(ends) if chosen(&ends) => "translated".into(),
                    Some((from, to)) => format!("as {from} > {to}"),
                    None => String::new(),
                };
                let ends = format!("{} > {} {translated}", flow.source, flow.destination);
                let fields = flow.state.into_iter().flat_map(|(function, fields)| {
                    let named = move |(field, value): (&str, String)| (format!("{function}.{field}"), value);
                    fields.into_iter().map(named)
                });
                let fields = fields.filter(|(field, _)| !migration.local.contains(field));
                self.story.flows.push((ends, fields.collect()));
            }
        }
        self.story.chapters.push(Chapter::default());
        self.rig.finish().map_err(Failure::Broken)?;
        for _ in 0..5 {
            self.rig.now += LONG;
            self.settle()?;
        }
        self.close_chapter();
        for (function, words) in &migration.asked {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            for answer in self.rig.command(function, &words) {
                self.story.answers.push(format!("{answer:?}"));
            }
        }
        self.story.wrong = self.left_over();
        self.story.moved = self.rig.moved;
        self.story.events = std::mem::take(&mut self.rig.events);
        Ok(self.story)
    }

    fn left_over(&mut self) -> Option<String> {
        if let Some(wrong) = self.rig.left_over() {
            return Some(wrong);
        }
        let Ok(notes) = self.notes.lock() else {
            return Some("a function has panicked".into());
        };
        let ((begun, over), (came, gone)) = (notes.flows(), notes.moved());
        if begun != over {
            return Some(format!("{begun} flows have begun, but {over} are over"));
        }
        if came != gone {
            return Some(format!("{gone} flows have gone away, but {came} have arrived"));
        }
        if self.rig.refused > 0 {
            return Some(format!(
                "{} flows were refused by a full runtime: choose a larger `flows_max`",
                self.rig.refused
            ));
        }
        let stats = self.rig.stats();
        let lost: u64 = stats.iter().map(|stats| stats.events_lost).sum();
        (lost > 0).then(|| format!("{lost} lines of the event log were lost"))
    }
}

fn sum<'a>(named: impl Iterator<Item = &'a Named>) -> Counts {
    let mut counts = Counts::new();
    for Named {
        function,
        name,
        count,
    } in named
    {
        *counts.entry((function.clone(), *name)).or_default() += count;
    }
    counts
}

fn since(before: &Counts, now: &Counts) -> Counts {
    let new = now.iter().filter_map(|(name, count)| {
        let more = count - before.get(name).copied().unwrap_or(0);
        (more > 0).then(|| (name.clone(), more))
    });
    new.collect()
}
