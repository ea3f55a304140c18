//! Plays a script while flows move between two runtimes, or runtimes fail, and holds the result
//! against the script's result while they stay.
//!
//! # Theory of operation
//! [`survives_migration`] is the one line that a function's author writes. It plays the script to
//! two real runtimes behind a switch (`rig`), once with all flows at one of them, and then once for
//! each [`Way`] of moving them at every step (`way`):
//!
//! ```text
//!                    before step n              step n is processed
//!   ThereAndBack     0 ─► 1 ─► 0                at 0: only arriving and departing is tried
//!   Over             0 ─► 1, or 1 ─► 0          where the flows are now: what an instance kept to itself is not there
//!   Amid                                        the move begins with it: it is kept, handed over, taken up behind the state
//! ```
//!
//! The two runtimes' clocks are 28 years apart (`clock`), as those of two hosts may be: a time that
//! a state keeps as a plain number is wrong at the other one. Times of flows and in the event log
//! there are told by the first runtime's clock, as far as they are a [`nf::Time`] or [`nf::Tick`],
//! or a date as EVE has it.
//!
//! Compared are (`story`): packets that leave, byte for byte and in order; drops by reason and
//! functions' counters, step by step; the flows' state; the event log; functions' answers.
//! Afterwards no route, block of ports, group, packet or buffer is left, and every flow has begun
//! and ended once.
//!
//! Where that differs, the case is made small (`shrink`): fewer moves, then fewer steps, as long as
//! it still differs; and printed with the numbers that its packets have in the script, and the line
//! that repeats it.
//!
//! # What may differ
//! Endpoints chosen at random, if it is said ([`Migration::choosing`]), and numbers that mean
//! something at one instance only ([`Migration::local`]). A new group begins at runtime 0 whether
//! flows move or not. A function that chooses by what *this* runtime has at the moment (the fewest
//! connections, the next in turn) may rightly choose otherwise when some of it has moved: give it
//! settings by which it does not, or one way of moving at a time ([`Migration::ways`]).
//!
//! # Failures
//! [`survives_failure`] is the line for runtimes that fail. Their flows go on at the other runtime
//! from copies, as `[replication]` has it with `commit`. Arrivals and counts of functions are
//! compared as above, but:
//!
//! - packets that the failed runtime had in hand come again (`play`, `failing`); its counts and log
//!   of them are forgotten with it;
//! - *lazy fields lag*: they are not compared, and where a chain's functions have any, neither are
//!   counters, and of the event log the lines' names alone. Verdicts that follow from them may
//!   differ, and are a difference. With [`Migration::committing_lazy`] lazy fields are as in the
//!   other run;
//! - a recovered flow has the time left that it had when it was copied: flows may be there still
//!   that are over in the other run.
//!
//! With [`Migration::replicated_by`] the policy is another one where no runtime fails, and `commit`
//! is set before one does.
//!
//! # Changes of the configuration
//! [`survives_change`] is the line for them: new instances take over before every step, asked about
//! each flow, and the same with a runtime that fails meanwhile, whose flows the other one asks as
//! they arrive ([`NetworkFunction::recovered_of_before`]).
//!
//! # Ends
//! [`Way::Expire`] has all flows end before a step, by hours that pass, and then a runtime fail: no
//! copy is left of flows that are over. The result is compared with the script's result where hours
//! pass and no runtime fails. The script begins again with each such step, so it is a way for some
//! of them; [`survives_expiry`] is the line that takes each step once, in several plays.
//!
//! A new group begins at runtime 0 if that is there: a function that decides by the runtime it is
//! at (NAT's blocks) may decide otherwise at the heir, and says so ([`Migration::choosing`]).
//!
//! Not here: more workers (`tests/nat_cluster.rs`), live threads (the tool's tests).

mod cables;
mod chosen;
mod clock;
mod failing;
mod play;
mod rig;
mod shrink;
mod story;
mod way;
mod wire;

#[cfg(test)]
mod tests;

use crate::step::Step;
use crate::watch::{Notes, Watched, WatchedConfig};
pub(crate) use clock::ahead;
use nf::{FlowState, NetworkFunction, Prefix};
use runtime::replication::Policy;
use runtime::stage::{Configured, Factory};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use story::Story;
pub use way::Way;

/// Sees to it that a function's flows come through a move at every step of a script, in each
/// [`Way`].
///
/// ```
/// # use nf::{ConfigError, Cx, FlowState, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo, network_function};
/// # struct OneWay;
/// # #[derive(FlowState, Default, Clone, Copy, Debug)]
/// # #[repr(C)]
/// # struct Seen { packets: u64 }
/// # #[network_function]
/// # impl NetworkFunction for OneWay {
/// #     const NAME: &'static str = "one_way";
/// #     type Config = NoConfig;
/// #     type Flow = Seen;
/// #     type Group = ();
/// #     fn new(_: &std::sync::Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> { Ok(OneWay) }
/// #     fn process(&self, _: &mut Packet, flow: &mut Seen, cx: &mut Cx<Self>) -> Verdict {
/// #         flow.packets += 1;
/// #         Verdict::Forward
/// #     }
/// # }
/// use flowkeep_testkit::{self as testkit, tcp};
///
/// let web = tcp("10.0.0.1:1000", "192.0.2.1:80");
/// testkit::survives_migration::<OneWay>(NoConfig {}, [web.syn(), web.reply().syn_ack(), web.ack()]);
/// ```
///
/// # Panics
/// If anything differs from the script's result while flows stay, with the smallest case of it that
/// was found; or if the script has no flow that is still there when its next step comes.
#[track_caller]
pub fn survives_migration<F: NetworkFunction<Config: Clone>>(
    config: F::Config,
    script: impl IntoIterator<Item = Step>,
) -> Survived {
    migration().function::<F>(config).check(script)
}

/// Sees to it that a function's flows go on when their runtime fails at every step of a script, in
/// each of [`Way::FAILURES`].
///
/// ```
/// # use nf::{ConfigError, Cx, FlowState, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo,
/// network_function};
/// # struct OneWay;
/// # #[derive(FlowState, Default, Clone, Copy, Debug)]
/// # #[repr(C)]
/// # struct Seen { packets: u64 }
/// # #[network_function]
/// # impl NetworkFunction for OneWay {
/// #     const NAME: &'static str = "one_way";
/// #     type Config = NoConfig;
/// #     type Flow = Seen;
/// #     type Group = ();
/// #     fn new(_: &std::sync::Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
/// Ok(OneWay) }
/// #     fn process(&self, _: &mut Packet, flow: &mut Seen, cx: &mut Cx<Self>) -> Verdict {
/// #         flow.packets += 1;
/// #         Verdict::Forward
/// #     }
/// # }
/// use flowkeep_testkit::{self as testkit, tcp};
///
/// let web = tcp("10.0.0.1:1000", "192.0.2.1:80");
/// testkit::survives_failure::<OneWay>(NoConfig {}, [web.syn(), web.reply().syn_ack(), web.ack()]);
/// ```
///
/// # Panics
/// As [`survives_migration`], if anything differs from the script's result while no runtime fails.
#[track_caller]
pub fn survives_failure<F: NetworkFunction<Config: Clone>>(
    config: F::Config,
    script: impl IntoIterator<Item = Step>,
) -> Survived {
    failure().function::<F>(config).check(script)
}

/// Sees to it that a function's flows go on when its settings are taken again, as another
/// configuration, before every step of a script: alone, and with a runtime that fails before it has
/// asked a flow ([`Way::CHANGES`]).
///
/// # Panics
/// As [`survives_migration`], if anything differs from the script's result while neither happens.
#[track_caller]
pub fn survives_change<F: NetworkFunction<Config: Clone>>(
    config: F::Config,
    script: impl IntoIterator<Item = Step>,
) -> Survived {
    migration().ways(Way::CHANGES).function::<F>(config).check(script)
}

/// Sees to it that nothing of a function's flows comes back that is over: before every step of a
/// script, one play in eight each, hours pass until all flows have ended, and then a runtime fails
/// ([`Way::Expire`]).
///
/// # Panics
/// As [`survives_migration`], if anything differs from the script's result while hours pass and no
/// runtime fails.
#[track_caller]
pub fn survives_expiry<F: NetworkFunction<Config: Clone>>(
    config: F::Config,
    script: impl IntoIterator<Item = Step>,
) -> Survived {
    let script: Vec<Step> = script.into_iter().collect();
    let steps = script.iter().map(|step| step.times).sum();
    let play = |first: usize| {
        let ending = failure().function::<F>(config.clone()).ways([Way::Expire]);
        let at = (first..steps).step_by(EXPIRIES_APART);
        ending.at(at).may_stay().check(script.clone())
    };
    (1..EXPIRIES_APART.min(steps)).fold(play(0), |_, first| play(first))
}

/// So many steps are between two at which all flows are over: a flow gets that far.
const EXPIRIES_APART: usize = 8;

/// A failure to be described in more detail than [`survives_failure`] takes: a [`migration`] in the
/// ways of [`Way::FAILURES`].
pub fn failure() -> Migration {
    migration().ways(Way::FAILURES)
}

/// A migration to be described in more detail than [`survives_migration`] takes.
pub fn migration() -> Migration {
    Migration {
        functions: Vec::new(),
        asked: Vec::new(),
        chosen: chosen::Chosen::default(),
        local: BTreeSet::new(),
        uncounted: BTreeSet::new(),
        lazy: Vec::new(),
        commits_lazy: false,
        replication: Policy::Commit,
        flows_max: 1024,
        begins_at: play::BEGINNING,
        switches: 1,
        ways: Way::MOVES.to_vec(),
        may_stay: false,
        every: 1,
        at: None,
        only: None,
    }
}

type Maker = Box<dyn Fn(Arc<Mutex<Notes>>) -> Box<dyn Factory>>;

struct Function {
    name: &'static str,
    /// As code names it.
    type_name: &'static str,
    make: Maker,
    /// With the settings that it changes to, if they are others.
    make_other: Option<Maker>,
}

/// Functions, and how their flows move. Made by [`migration`].
#[must_use = "it moves nothing before `check` or `replay`"]
pub struct Migration {
    functions: Vec<Function>,
    asked: Vec<(&'static str, Vec<String>)>,
    chosen: chosen::Chosen,
    local: BTreeSet<String>,
    /// Counters that are not compared, by function and name.
    uncounted: BTreeSet<(String, String)>,
    /// Fields that a copy may have as they were a while ago.
    lazy: Vec<String>,
    /// Whether they are copied like the others.
    commits_lazy: bool,
    /// The policy while no runtime fails.
    replication: Policy,
    flows_max: u32,
    begins_at: u64,
    switches: u8,
    ways: Vec<Way>,
    may_stay: bool,
    every: usize,
    at: Option<BTreeSet<usize>>,
    only: Option<BTreeSet<usize>>,
}

impl Migration {
    /// The chain's next function. Each play has a clone of its settings, so that no play sees
    /// another's changes of them. Settings that cannot be cloned, or whose clones share something
    /// that changes, are made by [`Migration::function_each`].
    pub fn function<F: NetworkFunction<Config: Clone>>(self, config: F::Config) -> Self {
        self.made::<F>(move || Arc::new(config.clone()))
    }

    /// The chain's next function, with settings that are made for each play.
    pub fn function_each<F: NetworkFunction>(self, config: impl Fn() -> F::Config + 'static) -> Self {
        self.made::<F>(move || Arc::new(config()))
    }

    fn made<F: NetworkFunction>(mut self, config: impl Fn() -> Arc<F::Config> + 'static) -> Self {
        let make = maker::<F>(config);
        self.lazy.extend(lazy_fields::<F>());
        self.functions.push(Function {
            name: F::NAME,
            type_name: std::any::type_name::<F>(),
            make,
            make_other: None,
        });
        self
    }

    /// The settings that the function has in turn with its own, in ways by which settings change
    /// ([`Way::CHANGES`]). The script's result is compared with its result while they change and no
    /// runtime fails.
    ///
    /// # Panics
    /// If the chain has no such function.
    #[track_caller]
    pub fn changing_to<F: NetworkFunction<Config: Clone>>(mut self, config: F::Config) -> Self {
        let of = self
            .functions
            .iter_mut()
            .find(|function| function.name == F::NAME);
        match of {
            Some(function) => function.make_other = Some(maker::<F>(move || Arc::new(config.clone()))),
            None => panic!("`{}` is none of the chain's functions: name it first", F::NAME),
        }
        self
    }

    /// A counter of the function for an instance's own work: it is not compared.
    pub fn uncounted<F: NetworkFunction>(mut self, counter: &str) -> Self {
        self.uncounted.insert((F::NAME.to_owned(), counter.to_owned()));
        self
    }

    /// With lazy fields copied as committed ones, as `commit_lazy = true` in `[replication]` has
    /// it: they are compared like all others when runtimes fail.
    pub fn committing_lazy(mut self) -> Self {
        self.commits_lazy = true;
        self
    }

    /// With this policy where no runtime fails, `none` or `snapshot`: before each step at which one
    /// does, `commit` is set, as `flowkeep replication set` has it, and all flows are copied;
    /// behind the step this one is set again. Packets pass with it only where not every step is
    /// such a one ([`Migration::every`], [`Migration::at`]). A change of configuration undoes it:
    /// so it is not for [`Way::CHANGES`].
    pub fn replicated_by(mut self, policy: Policy) -> Self {
        self.replication = policy;
        self
    }

    /// Whether, and which, fields may be older than the rest when runtimes fail.
    fn lagging(&self) -> &[String] {
        match self.commits_lazy {
            true => &[],
            false => &self.lazy,
        }
    }

    /// The most flows of each runtime, 1024 otherwise.
    pub fn flows_max(mut self, flows: u32) -> Self {
        self.flows_max = flows;
        self
    }

    /// One switch, as it is otherwise, or two: inside and outside are then at one each.
    ///
    /// # Panics
    /// With another number.
    #[track_caller]
    pub fn switches(mut self, switches: u8) -> Self {
        assert!(
            matches!(switches, 1 | 2),
            "there are one or two switches, not {switches}"
        );
        self.switches = switches;
        self
    }

    /// The time at the beginning, in nanoseconds: a capture's first.
    pub fn begins_at(mut self, nanoseconds: u64) -> Self {
        self.begins_at = nanoseconds;
        self
    }

    /// These ways only.
    pub fn ways(mut self, ways: impl IntoIterator<Item = Way>) -> Self {
        self.ways = ways.into_iter().collect();
        self
    }

    /// It is no failure if no flow moves: a test that plays many scripts looks at the sum
    /// ([`Survived::moved`]).
    pub fn may_stay(mut self) -> Self {
        self.may_stay = true;
        self
    }

    /// At every so many steps instead of each.
    ///
    /// # Panics
    /// With 0.
    #[track_caller]
    pub fn every(mut self, steps: usize) -> Self {
        assert!(steps > 0, "flows cannot move at every 0th step");
        self.every = steps;
        self
    }

    /// At these steps only, by their numbers in the script.
    pub fn at(mut self, steps: impl IntoIterator<Item = usize>) -> Self {
        self.at = Some(steps.into_iter().collect());
        self
    }

    /// With these steps of the script only, which keep their numbers.
    pub fn only(mut self, steps: impl IntoIterator<Item = usize>) -> Self {
        self.only = Some(steps.into_iter().collect());
        self
    }

    /// When all flows are over, asks the function ([`NetworkFunction::command`]) at both runtimes;
    /// the answers are to be the same.
    pub fn asking<F: NetworkFunction>(mut self, words: &[&str]) -> Self {
        self.asked
            .push((F::NAME, words.iter().map(|word| (*word).to_owned()).collect()));
        self
    }

    /// The functions choose external endpoints with these addresses at random: which they are may
    /// differ, but a conversation keeps its own.
    ///
    /// # Panics
    /// If one is no prefix.
    #[track_caller]
    pub fn choosing(mut self, prefixes: &[&str]) -> Self {
        for text in prefixes {
            match text.parse::<Prefix>() {
                Ok(prefix) => self.chosen.0.push(prefix),
                Err(_) => panic!("`{text}` is no prefix: write it like `203.0.113.0/29`"),
            }
        }
        self
    }

    /// A field of the function's flow state that means something at one instance only, and is made
    /// again on arrival: it is not compared.
    pub fn local<F: NetworkFunction>(mut self, field: &str) -> Self {
        self.local.insert(format!("{}.{field}", F::NAME));
        self
    }

    /// Plays the script while flows stay and while they move, and compares.
    ///
    /// # Panics
    /// As [`survives_migration`].
    #[track_caller]
    pub fn check(&self, script: impl IntoIterator<Item = Step>) -> Survived {
        let script = self.script(script);
        let stayed = self.while_flows_stay(&script);
        let mut moved = 0;
        for way in &self.ways {
            let points = self.points(&script);
            let unfailed = self.while_none_fails(&script, &points, *way);
            let beside = unfailed.as_ref().unwrap_or(&stayed);
            let (story, difference) = shrink::judge(self, &script, &points, *way, Some(beside));
            if let Some(difference) = difference {
                panic!(
                    "{}",
                    shrink::smallest(self, &script, &points, *way, difference).report(self)
                );
            }
            moved += story.moved;
        }
        if moved == 0 && !self.may_stay {
            panic!(
                "no flow of `{}` has moved: the script has none that is still there when its next step comes",
                self.names()
            );
        }
        Survived { story: stayed, moved }
    }

    /// The first difference that is found, as it is: not made small. For tests of tests.
    ///
    /// # Panics
    /// If the script cannot be, or something is wrong while flows stay.
    #[track_caller]
    pub fn difference(&self, script: impl IntoIterator<Item = Step>) -> Option<String> {
        let script = self.script(script);
        let stayed = self.while_flows_stay(&script);
        let points = self.points(&script);
        let found = self
            .ways
            .iter()
            .find_map(|way| shrink::judge(self, &script, &points, *way, Some(&stayed)).1)?;
        Some(found.words)
    }

    #[track_caller]
    fn while_flows_stay(&self, script: &[play::Numbered]) -> Story {
        self.undisturbed(script, &BTreeSet::new(), Way::Over)
    }

    /// The script's result where no runtime fails, if that may differ from its result while flows
    /// stay.
    #[track_caller]
    fn while_none_fails(
        &self,
        script: &[play::Numbered],
        points: &BTreeSet<usize>,
        way: Way,
    ) -> Option<Story> {
        let (points, way) = self.beside(points, way);
        (!points.is_empty()).then(|| self.undisturbed(script, &points, way))
    }

    /// The run that a way is compared with: at which steps something happens there, too, and how.
    fn beside(&self, points: &BTreeSet<usize>, way: Way) -> (BTreeSet<usize>, Way) {
        let has_other = self
            .functions
            .iter()
            .any(|function| function.make_other.is_some());
        match way {
            Way::Change | Way::ChangeFail if has_other => (points.clone(), Way::Change),
            Way::Expire => (points.clone(), Way::Pass),
            _ => (BTreeSet::new(), way),
        }
    }

    #[track_caller]
    fn undisturbed(&self, script: &[play::Numbered], points: &BTreeSet<usize>, way: Way) -> Story {
        let stayed = match play::play(self, script, points, way) {
            Ok(story) => story,
            Err(play::Failure::Script(why) | play::Failure::Broken(why)) => panic!("{why}"),
        };
        if let Some(wrong) = &stayed.wrong {
            panic!("`{}`, while no flow moves: {wrong}", self.names());
        }
        stayed
    }

    /// Plays the script once, while flows move in the first of the ways, and compares it with
    /// nothing.
    ///
    /// # Panics
    /// If something is left over when all flows are over.
    #[track_caller]
    pub fn replay(&self, script: impl IntoIterator<Item = Step>) -> Survived {
        let script = self.script(script);
        let way = self.ways.first().copied().unwrap_or(Way::Over);
        let story = match play::play(self, &script, &self.points(&script), way) {
            Ok(story) => story,
            Err(play::Failure::Script(why) | play::Failure::Broken(why)) => panic!("{why}"),
        };
        if let Some(wrong) = &story.wrong {
            panic!("`{}`: {wrong}", self.names());
        }
        Survived {
            moved: story.moved,
            story,
        }
    }

    fn script(&self, script: impl IntoIterator<Item = Step>) -> Vec<play::Numbered> {
        let steps = script.into_iter().flat_map(|step| {
            let times = step.times;
            std::iter::repeat_n(Arc::new(step), times)
        });
        let steps = steps
            .enumerate()
            .map(|(number, step)| play::Numbered { number, step });
        let is_in = |step: &play::Numbered| self.only.as_ref().is_none_or(|only| only.contains(&step.number));
        steps.filter(is_in).collect()
    }

    fn points(&self, script: &[play::Numbered]) -> BTreeSet<usize> {
        match &self.at {
            Some(at) => at.clone(),
            None => script
                .iter()
                .map(|step| step.number)
                .filter(|number| number % self.every == 0)
                .collect(),
        }
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.functions.iter().map(|function| function.name).collect();
        names.join(", ")
    }
}

/// The lazy fields of a function's states, by name: the fields that begin behind the committed
/// bytes.
fn maker<F: NetworkFunction>(config: impl Fn() -> Arc<F::Config> + 'static) -> Maker {
    Box::new(move |notes| -> Box<dyn Factory> {
        let config = config();
        Box::new(Configured::<Watched<F>>::new(
            F::NAME,
            WatchedConfig { config, notes },
        ))
    })
}

fn lazy_fields<F: NetworkFunction>() -> Vec<String> {
    let state = F::Flow::default();
    let begins_at = std::ptr::from_ref(&state).addr();
    let mut fields = Vec::new();
    state.each_field(&mut |name, value| {
        let place = std::ptr::from_ref(value).addr() - begins_at;
        if place >= F::Flow::COMMITTED {
            fields.push(format!("{}.{name}", F::NAME));
        }
    });
    if F::Group::COMMITTED < size_of::<F::Group>() {
        fields.push(format!("{} (group)", F::NAME));
    }
    fields
}

/// The result of a script that was played while flows moved: the same, moved or not.
pub struct Survived {
    story: Story,
    moved: u64,
}

impl Survived {
    /// How often a flow has moved, or was recovered, in all ways together.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// How many packets have left.
    pub fn left(&self) -> usize {
        self.story.chapters.iter().map(|chapter| chapter.left.len()).sum()
    }

    /// How many were dropped for a reason, a function's or the runtime's own.
    pub fn dropped(&self, reason: &str) -> u64 {
        let counts = self.story.chapters.iter().flat_map(|chapter| &chapter.dropped);
        counts
            .filter(|((_, name), _)| *name == reason)
            .map(|(_, count)| count)
            .sum()
    }

    /// The functions' counters that a step has raised, by its place in the script.
    pub fn counted_at(&self, step: usize) -> impl Iterator<Item = &str> {
        let counts = self.story.chapters.get(step).map(|chapter| &chapter.counted);
        let raised = counts.into_iter().flatten().filter(|(_, count)| **count > 0);
        raised.map(|((_, counter), _)| *counter)
    }

    /// For which reasons packets were dropped with a step, a function's or the runtime's own.
    pub fn dropped_at(&self, step: usize) -> impl Iterator<Item = &str> {
        let counts = self.story.chapters.get(step).map(|chapter| &chapter.dropped);
        let dropped = counts.into_iter().flatten().filter(|(_, count)| **count > 0);
        dropped.map(|((_, reason), _)| *reason)
    }

    /// A counter of a function's.
    pub fn counter(&self, name: &str) -> u64 {
        let counts = self.story.chapters.iter().flat_map(|chapter| &chapter.counted);
        counts
            .filter(|((_, counter), _)| *counter == name)
            .map(|(_, count)| count)
            .sum()
    }

    /// The functions' answers when all flows were over ([`Migration::asking`]), runtime by runtime.
    pub fn answers(&self) -> &[String] {
        &self.story.answers
    }

    /// The event log, a JSON object per line: the flows' ends after the script's are in it too.
    pub fn events(&self) -> &str {
        &self.story.events
    }
}
