//! Plays a script to a [`Rig`] and writes down the result of each step.
//!
//! # Theory of operation
//! The clock is the player's, as when a function is alone (`crate::play`): it goes on by two
//! nanoseconds with a packet, and by what the script says, stopping wherever a call is due. Flows
//! move first, then time passes, then the packet comes: a flow goes on waiting where it has gone.
//!
//! *Runtimes fail* in turn, each with what it has in hand: packets that it has received and that
//! have neither left nor been dropped. These come again, in
//! their order and with their times of reception, when the flows are at the other runtime.
//!
//! Not here: expectations.

use super::clock;
use super::failing::Counted;
use super::rig::{CHAIN, Coming, Rig, Shape};
use super::story::{Chapter, Counts, Story};
use super::{Migration, Way};
use crate::build::{Conversations, Last};
use crate::step::{Step, What};
use crate::watch::Notes;
use nf::{Endpoint, Side, Verdict};
use runtime::chain::{ChainRule, Plan};
use runtime::replication::Policy;
use runtime::stats::{Named, RuntimeStats};
use std::collections::{BTreeMap, BTreeSet, HashMap};
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

/// The script's beginning, as where no flow moves: not zero, so that a time that was never set
/// shows.
pub const BEGINNING: u64 = 1_000_000_000_000;
const FRAME_MAX: usize = 2048;
/// Long after the last flow: no call and no timer waits longer.
const LONG: u64 = 400_000_000_000;

/// Longer than any flow lives without a packet.
const HOURS: Duration = Duration::from_secs(5 * 3600);

struct Player<'a> {
    migration: &'a Migration,
    rig: Rig,
    notes: Arc<Mutex<Notes>>,
    conversations: Conversations,
    last: Option<Last>,
    /// The ends by which the conversation of a packet is known, by its time of reception.
    known_as: HashMap<u64, (Endpoint, Endpoint)>,
    story: Story,
    dropped: Counts,
    counted: Counts,
    /// Packets that have neither left nor been dropped, by their times of reception, with the
    /// runtime that has them.
    in_hand: BTreeMap<u64, (Side, Coming, Option<usize>)>,
    /// Which runtime fails next.
    fails: usize,
    /// How often the configuration has changed.
    changes: u64,
}

/// The chain of the functions, made again, as the configuration of this number. Every second one
/// has other settings where there are any.
fn plan(migration: &Migration, notes: &Arc<Mutex<Notes>>, number: u64) -> Result<Plan, Failure> {
    let functions = migration.functions.iter();
    let is_other = number.is_multiple_of(2);
    let factories = functions.clone().map(|function| {
        let other = function.make_other.as_ref().filter(|_| is_other);
        other.unwrap_or(&function.make)(notes.clone())
    });
    let rule = ChainRule {
        name: CHAIN.into(),
        functions: functions.map(|function| function.name.into()).collect(),
        ..ChainRule::default()
    };
    let plan = Plan::new(vec![rule], factories.collect());
    let plan = plan.map_err(|error| Failure::Script(error.to_string()))?;
    Ok(plan.known_by(number))
}

/// Plays a script, flows moving at the steps of these numbers.
pub fn play(
    migration: &Migration,
    script: &[Numbered],
    points: &BTreeSet<usize>,
    way: Way,
) -> Result<Story, Failure> {
    let mut notes = Notes::default();
    notes.life.is_on = migration.functions.len() == 1;
    let notes = Arc::new(Mutex::new(notes));
    let plan = plan(migration, &notes, 1)?;
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
        commits_lazy: migration.commits_lazy,
        replication: migration.replication,
        is_apart: way.is_failure() && !points.is_empty(),
    };
    let mut player = Player {
        migration,
        rig: Rig::new(&shape, plan).map_err(Failure::Script)?,
        notes,
        conversations: Conversations::default(),
        last: None,
        known_as: HashMap::new(),
        story: Story::default(),
        dropped: Counts::new(),
        counted: Counts::new(),
        in_hand: BTreeMap::new(),
        fails: 0,
        changes: 0,
    };
    let mut before = None;
    for Numbered { number, step } in script {
        let first = before.map_or(0, |before| before + 1);
        let moves = points.range(first..=*number).next().is_some();
        before = Some(*number);
        player.play(*number, step, moves.then_some(way))?;
    }
    player.end()
}

impl Player<'_> {
    fn play(&mut self, number: usize, step: &Step, way: Option<Way>) -> Result<(), Failure> {
        let fails = way.is_some_and(Way::is_failure);
        if fails {
            self.set_replication(Policy::Commit)?;
        }
        match way {
            Some(Way::Over) => {
                self.order_both()?;
                self.run_until_quiet()?;
            }
            Some(Way::ThereAndBack) => {
                for from in [0, 1] {
                    self.rig.order(from).map_err(Failure::Broken)?;
                    self.run_until_quiet()?;
                }
            }
            Some(Way::Fail | Way::FailBack | Way::FailTwice) => {
                self.fail_before(number, way)?;
            }
            Some(Way::Change) => self.change()?,
            Some(Way::ChangeFail) => self.change_and_fail()?,
            Some(Way::Pass | Way::Expire) => self.expire()?,
            Some(Way::Amid | Way::FailAmid) | None => {}
        }
        self.story.chapters.push(Chapter::default());
        if let Some(time) = step.after {
            self.pass(time)?;
        }
        match &step.what {
            What::Wait(time) => {
                match way {
                    Some(Way::Amid) => self.order_both()?,
                    Some(Way::FailAmid) => self.fail_next()?,
                    _ => {}
                }
                self.pass(*time)?;
            }
            What::Frame(bytes, link, side) => {
                let frame = (bytes.clone(), *link, *side);
                self.packet(frame, step, None, way)?;
            }
            What::Packet(described) => {
                let built = self.conversations.build(described, self.last.as_ref());
                let built =
                    built.map_err(|why| Failure::Script(format!("step {number} cannot be: {why}")))?;
                let frame = (built.frame, LinkType::Ethernet, built.side);
                self.packet(frame, step, Some(built.known_as), way)?;
            }
        }
        self.close_chapter();
        match fails {
            true => self.set_replication(self.migration.replication),
            false => Ok(()),
        }
    }

    /// Sets a policy; all flows that are to have copies by it get them.
    fn set_replication(&mut self, replication: Policy) -> Result<(), Failure> {
        match self.rig.set_replication(replication).map_err(Failure::Broken)? {
            true => self.run_until_quiet(),
            false => Ok(()),
        }
    }

    fn packet(
        &mut self,
        (bytes, link, side): (Vec<u8>, LinkType, Side),
        step: &Step,
        known_as: Option<(Endpoint, Endpoint)>,
        way: Option<Way>,
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
        let coming = Coming {
            bytes,
            link,
            wire_length: step.wire_length,
            stamp,
        };
        let before = self.rig.counted();
        if self.rig.is_apart() {
            self.in_hand.insert(stamp, (side, coming.clone(), None));
        }
        self.rig.bring(side, coming);
        match way {
            Some(Way::Amid) => self.order_both()?,
            Some(Way::FailAmid) => self.fail_amid(&before)?,
            _ => {}
        }
        self.run_until_quiet()?;
        let holder = self.rig.receiver(&before);
        if let Some((_, _, at)) = self.in_hand.get_mut(&stamp) {
            *at = holder;
        }
        Ok(())
    }

    /// A runtime fails between two packets.
    fn fail_before(&mut self, number: usize, way: Option<Way>) -> Result<(), Failure> {
        match way {
            Some(Way::FailBack) => {
                for runtime in [0, 1] {
                    let lost = self.fail(runtime, None)?;
                    self.come_back(runtime)?;
                    self.come_again(lost)?;
                }
            }
            Some(Way::FailTwice) => {
                let runtime = self.fails;
                self.fails = 1 - runtime;
                let lost = self.fail(runtime, None)?;
                // Now before it is met, now in the middle of the base, now behind it.
                self.rig
                    .fail_again(runtime, number % 7)
                    .map_err(Failure::Broken)?;
                self.come_back(runtime)?;
                self.come_again(lost)?;
            }
            _ => self.fail_next()?,
        }
        Ok(())
    }

    /// The next runtime fails, and the packets that it had in hand come again.
    fn fail_next(&mut self) -> Result<(), Failure> {
        let runtime = self.fails;
        self.fails = 1 - runtime;
        let lost = self.fail(runtime, None)?;
        self.come_back(runtime)?;
        self.come_again(lost)
    }

    /// The runtime that has received a packet fails before anything of it is with the other one.
    fn fail_amid(&mut self, before: &Counted) -> Result<(), Failure> {
        let receiver = self.rig.take_amid(before);
        self.collect();
        let Some(runtime) = receiver else {
            // No runtime has it: a switch has dropped or kept it.
            self.rig.mend();
            return Ok(());
        };
        let has_left = !self.in_hand.contains_key(&self.rig.now)
            || self
                .story
                .chapters
                .last()
                .is_some_and(|chapter| !chapter.left.is_empty());
        if let Some((_, _, at)) = self.in_hand.get_mut(&self.rig.now) {
            *at = Some(runtime);
        }
        self.rig.lose_copies(runtime);
        let lost = match has_left {
            true => self.fail(runtime, None)?,
            false => self.fail(runtime, Some(before))?,
        };
        self.come_again(lost)?;
        self.come_back(runtime)
    }

    /// A runtime fails; answers the packets that it had in hand.
    fn fail(&mut self, runtime: usize, as_of: Option<&Counted>) -> Result<Vec<(Side, Coming)>, Failure> {
        if as_of.is_none() {
            self.forget_dropped();
        } else if let Ok(mut notes) = self.notes.lock() {
            notes.go_back();
        }
        let has_some = as_of.is_some() || self.rig.in_hand(runtime) > 0;
        let lost = self
            .in_hand
            .values()
            .filter(|(_, _, at)| has_some && *at == Some(runtime));
        let lost = lost.map(|(side, coming, _)| (*side, coming.clone())).collect();
        self.in_hand.retain(|_, (_, _, at)| *at != Some(runtime));
        self.rig.fail(runtime, as_of);
        self.run_until_quiet()?;
        Ok(lost)
    }

    /// Both runtimes prepare their configuration as another one; `false` if a call waits that began
    /// under the one before.
    fn prepare_change(&mut self) -> Result<bool, Failure> {
        let plan = plan(self.migration, &self.notes, self.changes + 2)?;
        let is_prepared = self.rig.prepare_change(plan).map_err(Failure::Broken)?;
        self.changes += u64::from(is_prepared);
        Ok(is_prepared)
    }

    /// The configuration changes, and all flows are asked.
    fn change(&mut self) -> Result<(), Failure> {
        if self.prepare_change()? {
            // The survey is over every flow.
            self.run_until_quiet()?;
            [0, 1].iter().for_each(|runtime| self.rig.commit_change(*runtime));
            self.run_until_quiet()?;
        }
        Ok(())
    }

    /// The configuration changes, and the next runtime fails before it has asked a flow.
    fn change_and_fail(&mut self) -> Result<(), Failure> {
        if !self.prepare_change()? {
            return Ok(());
        }
        let (failing, heir) = (self.fails, 1 - self.fails);
        self.fails = heir;
        match self.changes % 3 {
            0 => {
                self.rig.commit_change(heir);
                self.run_until_quiet()?;
            }
            1 => self.rig.commit_change(failing),
            _ => [heir, failing]
                .iter()
                .for_each(|runtime| self.rig.commit_change(*runtime)),
        }
        let lost = self.fail(failing, None)?;
        self.rig.commit_change(heir);
        self.run_until_quiet()?;
        self.come_back(failing)?;
        self.come_again(lost)
    }

    /// All flows are over, and no copy is left of them when a runtime fails.
    fn expire(&mut self) -> Result<(), Failure> {
        for _ in 0..3 {
            self.pass(HOURS)?;
        }
        let copies = |stats: &RuntimeStats| (stats.flows, stats.copies);
        let left: Vec<_> = self.rig.stats().iter().map(copies).collect();
        if left.iter().any(|left| *left != (0, 0)) {
            let words =
                format!("hours have passed, and there are flows and copies yet, by runtime: {left:?}");
            return Err(Failure::Broken(words));
        }
        match self.rig.is_apart() {
            true => self.fail_next(),
            false => Ok(()),
        }
    }

    fn come_back(&mut self, runtime: usize) -> Result<(), Failure> {
        self.rig.recover(runtime).map_err(Failure::Broken)?;
        self.run_until_quiet()
    }

    /// Packets that a failed runtime had in hand come again.
    fn come_again(&mut self, lost: Vec<(Side, Coming)>) -> Result<(), Failure> {
        for (side, coming) in lost {
            let before = self.rig.counted();
            let stamp = coming.stamp;
            self.in_hand.insert(stamp, (side, coming.clone(), None));
            self.rig.bring(side, coming);
            self.run_until_quiet()?;
            let holder = self.rig.receiver(&before);
            if let Some((_, _, at)) = self.in_hand.get_mut(&stamp) {
                *at = holder;
            }
        }
        Ok(())
    }

    /// Packets that functions have dropped are in no hand.
    fn forget_dropped(&mut self) {
        if let Ok(notes) = self.notes.lock() {
            for (stamp, verdict) in &notes.verdicts {
                if matches!(verdict, Verdict::Drop(_)) {
                    // By the one clock or the other.
                    self.in_hand.remove(stamp);
                    self.in_hand.remove(&stamp.wrapping_sub(clock::AHEAD));
                }
            }
        }
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
            self.run_until_quiet()?;
            if self.rig.now >= until {
                return Ok(());
            }
        }
    }

    fn run_until_quiet(&mut self) -> Result<(), Failure> {
        self.rig.run_until_quiet().map_err(Failure::Broken)?;
        self.story.has_waited |= self.rig.has_waiting();
        self.collect();
        if self.rig.is_apart() {
            self.forget_dropped();
            if let Ok(mut notes) = self.notes.lock() {
                notes.come_to_rest();
            }
        }
        Ok(())
    }

    /// Takes packets that have left.
    fn collect(&mut self) {
        let left = self.rig.take_left();
        if !left.is_empty() {
            let known_as = &self.known_as;
            self.last = self.rig.take_last(|stamp| known_as.get(&stamp).copied());
            for left in &left {
                self.in_hand.remove(&left.stamp);
            }
            if let Some(chapter) = self.story.chapters.last_mut() {
                chapter.left.extend(left);
            }
        }
    }

    /// Writes down drops and counts since the chapter before.
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

    fn end(mut self) -> Result<Story, Failure> {
        let migration = self.migration;
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
                let fails = migration.ways.iter().any(|way| way.is_failure());
                let lags = |field: &str| fails && migration.lagging().iter().any(|lazy| lazy == field);
                let is_compared = |field: &str| !migration.local.contains(field) && !lags(field);
                let fields = fields.filter(|(field, _)| is_compared(field));
                self.story.flows.push((ends, fields.collect()));
            }
        }
        self.story.chapters.push(Chapter::default());
        self.rig.finish().map_err(Failure::Broken)?;
        for _ in 0..5 {
            self.rig.now += LONG;
            self.run_until_quiet()?;
        }
        self.close_chapter();
        for (function, words) in &migration.asked {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let fails = migration.ways.iter().any(|way| way.is_failure());
            for answer in self.rig.answers(function, &words, fails) {
                self.story.answers.push(answer);
            }
        }
        self.story.wrong = self.left_over();
        let [recovered, lost] = self.rig.recovered();
        self.story.moved = self.rig.moved + recovered;
        if self.story.wrong.is_none() && lost > 0 {
            self.story.wrong = Some(format!("{lost} flows could not be recovered from their copies"));
        }
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
        if notes.life.forgotten.is_some() {
            return notes.life.forgotten.clone();
        }
        match self.rig.refused {
            0 => {}
            lost if self.rig.is_apart() => {
                return Some(format!("{lost} flows could not be recovered from their copies"));
            }
            refused => {
                return Some(format!(
                    "{refused} flows were refused by a full runtime: choose a larger `flows_max`"
                ));
            }
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
