//! `cluster scale`: members come and go by load ([`crate::scaling`]), as long as the command runs.
//!
//! ```text
//!   too much to do ─► token ─► the launch command, by the shell ─► its member is in view ─► flows move to it
//!   too little     ─► the member's runtime is drained ─► the member is told to stop ─► no view has it
//! ```
//!
//! The command launches members that no file lists, with one runtime each, called PREFIX-1,
//! PREFIX-2 and so on; it ends no others. It keeps nothing by itself: members in view by such a
//! name are its own, so it may end, be killed and begin again at any time.
//!
//! Not here: how a member joins (`crate::member`).

use super::listing::between_looks;
use super::reach::{There, say_tried};
use super::{Failure, print};
use crate::control::members::Members;
use crate::control::{Answer, Request};
use crate::scaling::acting::{Actor, Ground, Said};
use crate::scaling::{Limit, Rules, Step};
use crate::shape::{self, Shape};
use crate::signals::StopSignal;
use clap::Args;
use coordinator::identity::{Identity, is_name};
use coordinator::operator::Operator;
use nf::Period;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a member may take to be in view, and to be in none.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a token is good, in seconds.
const VALID: u64 = 120;
/// How often is looked.
const LOOK: Duration = Duration::from_millis(100);

/// Have members come and go by load, as long as this runs
#[derive(Args, Debug)]
#[command(after_help = "\
The launch command is run by /bin/sh, with FLOWKEEP_MEMBER, FLOWKEEP_TOKEN and FLOWKEEP_JOIN: it starts a node of that name with one runtime, and may \
stay or end. Members come so up to --max runtimes in all; only members that came so go again.

Example:
  flowkeep cluster scale --at 192.0.2.1:4400 --identity cluster/ --max 6 \\
    --launch 'exec flowkeep node gateway.toml --member $FLOWKEEP_MEMBER --runtimes 1 --join $FLOWKEEP_JOIN --token $FLOWKEEP_TOKEN'")]
pub(super) struct Scale {
    #[command(flatten)]
    there: There,
    /// Which certificate, with the right of admin: NAME.pem and NAME.key
    #[arg(long, value_name = "NAME", default_value = "admin")]
    name: String,
    /// The command that starts a member
    #[arg(long, value_name = "COMMAND")]
    launch: String,
    /// Members are called PREFIX-1, PREFIX-2 and so on
    #[arg(long, value_name = "PREFIX", default_value = "auto")]
    prefix: String,
    /// The fewest runtimes in all
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    min: u16,
    /// The most runtimes in all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    max: u16,
    /// Percent of its time in which a runtime has something to do, above which it gives flows away
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=100))]
    high: u8,
    /// A member goes where the others can take its load and stay below this
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(1..=100))]
    low: u8,
    /// Above --high for so long
    #[arg(long, value_name = "TIME", default_value = "2s")]
    out_after: Period,
    /// Below --low for so long
    #[arg(long, value_name = "TIME", default_value = "60s")]
    in_after: Period,
    /// Between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = between_looks)]
    interval: Period,
    /// Print a JSON object for each step
    #[arg(long)]
    json: bool,
}

/// The outcome of a step, or why none was made.
#[derive(Serialize, JsonSchema)]
pub(super) struct Scaled {
    /// `added`, `moved`, `removed`, `failed`, `limit`, or `unanswered` if the members' loads are
    /// not known.
    event: &'static str,
    /// The runtime that came, went, took flows, or has all of its load in one group.
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<u16>,
    /// The runtime that gave flows away.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u16>,
    /// Flows that moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    flows_moved: Option<u64>,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// Runtimes that take flows now.
    #[serde(skip_serializing_if = "Option::is_none")]
    runtimes: Option<usize>,
    /// Why the step failed, or none was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Shape for Scaled {
    const NAME: &'static str = "cluster-scale";
}

impl Scaled {
    fn because(event: &'static str, runtime: Option<u16>, why: String) -> Self {
        Scaled {
            event,
            runtime,
            from: None,
            flows_moved: None,
            seconds: None,
            runtimes: None,
            why: Some(why),
        }
    }

    fn of(said: &Said) -> Self {
        match said {
            Said::Done {
                step,
                runtime,
                moved,
                took,
                runtimes,
            } => Scaled {
                event: match step {
                    Step::Add { .. } => "added",
                    Step::Move { .. } => "moved",
                    Step::Remove(_) => "removed",
                },
                runtime: Some(*runtime),
                from: match step {
                    Step::Add { from, .. } | Step::Move { from, .. } => Some(*from),
                    Step::Remove(_) => None,
                },
                flows_moved: Some(*moved),
                seconds: Some(took.as_secs_f64()),
                runtimes: Some(*runtimes),
                why: None,
            },
            Said::Failed(step, why) => {
                let runtime = match step {
                    Step::Add { .. } => None,
                    Step::Move { to, .. } => Some(*to),
                    Step::Remove(runtime) => Some(*runtime),
                };
                Scaled::because("failed", runtime, why.clone())
            }
            Said::Limit(Limit::Most) => Scaled::because(
                "limit",
                None,
                "as many runtimes as --max are there, and all have much to do".into(),
            ),
            Said::Limit(Limit::Undivided(runtime)) => Scaled::because(
                "limit",
                Some(*runtime),
                "its load is in one group of flows, which cannot be divided".into(),
            ),
        }
    }
}

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8}", self.event)?;
        if let Some(runtime) = self.runtime {
            write!(f, " runtime {runtime}")?;
        }
        if let (Some(moved), Some(seconds), Some(runtimes)) = (self.flows_moved, self.seconds, self.runtimes)
        {
            write!(
                f,
                ": {moved} flows moved, {seconds:.2} s, {runtimes} runtimes now"
            )?;
        }
        match &self.why {
            Some(why) => write!(f, ": {why}"),
            None => Ok(()),
        }
    }
}

/// All members.
struct Wide {
    members: Members,
    coordinators: String,
    prefix: String,
    launch: String,
    stop: StopSignal,
    children: Vec<Child>,
    /// The member of each runtime in view.
    runtimes: BTreeMap<u16, String>,
}

impl Wide {
    fn look(&mut self) -> Result<(), String> {
        self.runtimes = self.members.runtimes_of()?;
        Ok(())
    }

    fn is_own(&self, member: &str) -> bool {
        let rest = member.strip_prefix(&self.prefix);
        let number = rest.and_then(|rest| rest.strip_prefix('-'));
        number.is_some_and(|number| number.parse::<u16>().is_ok())
    }

    /// Polls until this answers; `what`, if that takes too long.
    fn until<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Result<Option<T>, String>,
    ) -> Result<T, String> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE && !self.stop.is_raised() {
            if let Some(answer) = look(self)? {
                return Ok(answer);
            }
            std::thread::sleep(LOOK);
        }
        Err(format!("{what} within {} s", PATIENCE.as_secs()))
    }

    /// Launch commands that have ended leave no process behind.
    fn reap(&mut self) {
        self.children
            .retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    fn launched(&mut self, member: &str) -> Result<(), String> {
        let token = self.members.token(member, VALID)?;
        let child = Command::new("/bin/sh")
            .args(["-c", &self.launch])
            .env("FLOWKEEP_MEMBER", member)
            .env("FLOWKEEP_TOKEN", token)
            .env("FLOWKEEP_JOIN", &self.coordinators)
            .stdin(Stdio::null())
            .spawn();
        let mut child = child.map_err(|error| format!("/bin/sh: {error}"))?;
        let what = format!("the launch command was run, and no member `{member}` takes flows");
        let runs = self.until(&what, |wide| {
            let ended = child.try_wait().map_err(|error| error.to_string())?;
            match ended.filter(|ended| !ended.success()) {
                Some(ended) => Err(format!("the launch command for `{member}` has ended: {ended}")),
                None => wide.takes_flows(member),
            }
        });
        self.children.push(child);
        runs.map(drop)
    }

    /// The member's runtime, once it takes flows.
    fn takes_flows(&mut self, member: &str) -> Result<Option<u16>, String> {
        self.look()?;
        let mut all = self.runtimes.iter();
        let Some(runtime) = all.find(|(_, of)| *of == member).map(|(runtime, _)| *runtime) else {
            return Ok(None);
        };
        let Answer::Status(status) = self.ask(&Request::Status)? else {
            return Ok(None);
        };
        let mut all = status.runtimes.iter();
        let is_there = all.any(|of| of.runtime == runtime && !of.absent && !of.leaving);
        Ok(is_there.then_some(runtime))
    }
}

impl Ground for Wide {
    fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        self.reap();
        let answer = self.members.ask(request)?;
        let missing = self.members.take_missing();
        match missing.into_iter().next() {
            // Without a member's part, the answer would seem to be of a smaller cluster.
            Some((member, why)) => Err(format!("{member}: {why}")),
            None => Ok(answer),
        }
    }

    fn add(&mut self) -> Result<u16, String> {
        self.look()?;
        let is_free = |name: &String| !self.runtimes.values().any(|member| member == name);
        let names = (1..=u16::MAX).map(|number| format!("{}-{number}", self.prefix));
        let member = names.into_iter().find(is_free).ok_or("no name is free")?;
        self.launched(&member)?;
        self.takes_flows(&member)?
            .ok_or_else(|| format!("member `{member}` came and went"))
    }

    fn remove(&mut self, runtime: u16) -> Result<bool, String> {
        let Answer::Status(status) = self.ask(&Request::Status)? else {
            return Ok(false);
        };
        let mut all = status.runtimes.iter();
        if all.any(|of| of.runtime == runtime && of.flows > 0) {
            return Ok(false);
        }
        let member = self.runtimes.get(&runtime).cloned();
        let member = member.ok_or_else(|| format!("runtime {runtime} is in no view"))?;
        self.members.stop(&member)?;
        let what = format!("member `{member}` was told to stop, and a view has it still");
        self.until(&what, |wide| {
            wide.look()?;
            Ok((!wide.runtimes.contains_key(&runtime)).then_some(true))
        })
    }

    fn may_go(&self, runtime: u16) -> bool {
        let member = self.runtimes.get(&runtime);
        member.is_some_and(|member| {
            let its = self.runtimes.values().filter(|other| *other == member);
            self.is_own(member) && its.count() == 1
        })
    }

    fn is_over(&self) -> bool {
        self.stop.is_raised()
    }

    fn begin(&mut self) -> Result<(), String> {
        self.look()
    }
}

/// `cluster scale`
pub(super) fn scale(words: &Scale, out: &mut dyn Write) -> Result<(), Failure> {
    if words.min > words.max {
        return Err(Failure::usage("error: --min is more than --max"));
    }
    if u64::from(words.low) * 4 > u64::from(words.high) * 3 {
        return Err(Failure::usage(format!(
            "error: members would come and go by turns: say --low {}, or less",
            u64::from(words.high) * 3 / 4
        )));
    }
    if !is_name(&format!("{}-1", words.prefix)) {
        return Err(Failure::usage(format!(
            "error: `{}-1` names no member: a name is up to 63 small letters, digits and `-`",
            words.prefix
        )));
    }
    let failed = |what: &dyn fmt::Display| Failure::failed(format!("error: {what}"));
    let identity = Identity::read(&words.there.identity, &words.name).map_err(|error| failed(&error))?;
    let operator = Operator {
        addresses: words.there.at.clone(),
        identity,
    };
    let stop = StopSignal::of_process(None).map_err(|error| failed(&error))?;
    let rules = Rules {
        min: words.min,
        max: words.max,
        high: u64::from(words.high) * 10,
        low: u64::from(words.low) * 10,
        out_after: words.out_after.duration(),
        in_after: words.in_after.duration(),
    };
    let members = || Members::connect(&operator, None);
    let wide = |members| Wide {
        members,
        coordinators: words.there.at.join(","),
        prefix: words.prefix.clone(),
        launch: words.launch.clone(),
        stop: stop.clone(),
        children: Vec::new(),
        runtimes: BTreeMap::new(),
    };
    let first = members().map_err(|error| failed(&error))?;
    say_tried(&first.tried());
    let mut actor = Actor::new(wide(first), rules);
    let mut unanswered = String::new();
    while !stop.is_raised() {
        let began = Instant::now();
        let said = match actor.turn() {
            Ok(said) => {
                unanswered.clear();
                said.as_ref().map(Scaled::of)
            }
            Err(why) => {
                // The coordinator may have begun again, or another one decides.
                if let Ok(members) = members() {
                    actor.ground_mut().members = members;
                }
                let is_new = std::mem::replace(&mut unanswered, why.clone()) != why;
                is_new.then(|| Scaled::because("unanswered", None, why))
            }
        };
        if let Some(said) = said {
            match words.json {
                true => print(out, shape::object(&said))?,
                false => print(out, &said)?,
            }
        }
        while began.elapsed() < words.interval.duration() && !stop.is_raised() {
            std::thread::sleep(LOOK.min(words.interval.duration()));
        }
    }
    Ok(())
}
