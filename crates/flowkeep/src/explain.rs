//! `flowkeep flow explain`: which way a packet that came in now would take, by the live state of
//! switches and runtimes.
//!
//! ```text
//!   5-tuple ─► is the flow there?      its runtime, chain, translation, functions' states
//!           ─► a switch is asked       side, chain by rule, home switch, runtime by route or by the policy
//! ```
//!
//! No packet is sent, and no state changes. A function's verdict on a first packet is not said:
//! only a packet shows that ([`crate::trace`]).
//!
//! Not here: how a switch finds the way (`runtime::switch::explaining`).

use crate::control::Key;
use crate::report::{Ends, Flow};
use crate::shape::Shape;
use runtime::rules::Match;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The side from which a packet is taken to come.
#[derive(Serialize, Deserialize, JsonSchema, clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// From inside.
    Inside,
    /// From outside.
    Outside,
}

/// How the side is known from which a packet is taken to come.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum SideBy {
    /// The question was about packets from there.
    Asked,
    /// The flow is there.
    Flow,
    /// A port tells sides by addresses.
    Address,
    /// By nothing: it is taken to be inside.
    #[default]
    Assumed,
}

/// The question.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// The packet: its source sends it.
    pub key: Key,
    /// From which side; without, as ports tell.
    #[serde(default)]
    pub side: Option<From>,
}

/// How a packet's runtime is known.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// The flow is there.
    Flow,
    /// A flow's reply key leads there.
    ReplyKey,
    /// Its group is there, and the flow would be new.
    Group,
    /// Its group would be new: the policy would choose that runtime.
    Policy,
    /// Its group's home switch is another process's, which was not asked.
    Elsewhere,
}

/// How a group came to its runtime.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The runtime that gave it away.
    pub from: u16,
    /// Its epoch: the number of the view in which that was, 0 without a coordinator.
    pub view: u32,
    /// And the number of that change of hands within the view, at the runtime that gave it away.
    pub count: u32,
}

/// A function of the chain.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// As chains name it.
    pub function: String,
    /// Whether it may change addresses or ports.
    pub translates: bool,
}

/// Which way a packet would take.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Its IP protocol.
    pub protocol: String,
    /// Its VLAN; 0 for none.
    pub vlan: u16,
    /// Its sender.
    pub source: String,
    /// Its receiver.
    pub destination: String,
    /// From which side it is taken to come.
    pub side: From,
    /// How that side is known.
    #[serde(default)]
    pub side_by: SideBy,
    /// Whether both of its ends are inside.
    pub inside_to_inside: bool,
    /// Its group's home switch, which has its route; none where the process that was asked has no
    /// switch, or the packet has no group.
    pub switch: Option<u16>,
    /// The runtime that would have it; none if no runtime takes flows, or another process knows.
    pub runtime: Option<u16>,
    /// How that is known.
    pub by: Route,
    /// The last change of hands of its group; none if it has not moved, as far as that switch
    /// knows.
    #[serde(default)]
    pub moved: Option<Moved>,
    /// Whether it is known if its flow is there: the process that was asked has that runtime.
    pub is_flow_known: bool,
    /// Its chain: its flow's, or by its rule.
    pub chain: Option<String>,
    /// The match of that chain's rule.
    pub rule: Option<String>,
    /// The functions that it passes, in the order of the opening direction.
    pub functions: Vec<Passed>,
    /// How its flow's first packet left, if the chain translated it.
    pub translated: Option<Ends>,
    /// For which reason it would be dropped before any function has it.
    pub dropped: Option<String>,
    /// Its flow, if that is there, with its functions' states.
    pub flow: Option<Flow>,
}

impl Shape for Explanation {
    const NAME: &'static str = "flow-explain";
}

impl Explanation {
    /// The more complete of two members' answers: that with the flow, else with the route.
    pub fn better(one: Option<Box<Self>>, other: Option<Box<Self>>) -> Option<Box<Self>> {
        let knows = |of: &Option<Box<Self>>| match of {
            None => 0,
            Some(of) if of.switch.is_none() => 1,
            Some(of) if of.by == Route::Elsewhere => 2,
            Some(_) => 3,
        };
        let (mut best, other) = match knows(&other) > knows(&one) {
            true => (other, one),
            false => (one, other),
        };
        if let (Some(best), Some(other)) = (&mut best, other) {
            best.add(*other);
        }
        best
    }

    /// Adds another member's knowledge: the flow, or that a runtime of its has none.
    fn add(&mut self, other: Self) {
        if self.flow.is_none() && other.flow.is_some() {
            if self.chain != other.chain {
                (self.chain, self.rule) = (other.chain, other.rule);
                self.functions = other.functions;
            }
            (self.runtime, self.by) = (other.runtime, Route::Flow);
            (self.side, self.side_by) = (other.side, other.side_by);
            (self.translated, self.flow) = (other.translated, other.flow);
            (self.dropped, self.is_flow_known) = (None, true);
        }
    }

    /// Every member has answered: a flow that none of them has is not there.
    pub fn conclude(&mut self) {
        self.is_flow_known = true;
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {} -> {}", self.protocol, self.source, self.destination)?;
        if self.vlan != 0 {
            writeln!(f, "  vlan        {}", self.vlan)?;
        }
        let (side, other) = match self.side {
            From::Inside => ("inside", "outside"),
            From::Outside => ("outside", "inside"),
        };
        let inside_to_inside = if self.inside_to_inside {
            ", inside to inside"
        } else {
            ""
        };
        let by = match self.side_by {
            SideBy::Asked => String::new(),
            SideBy::Flow => ": its flow's".to_owned(),
            SideBy::Address => ": by its address".to_owned(),
            SideBy::Assumed => format!(": assumed; --side {other} asks about the other"),
        };
        writeln!(f, "  side        {side}{inside_to_inside}{by}")?;
        if let Some(switch) = self.switch {
            writeln!(f, "  switch      {switch}, its group's home")?;
        }
        match (self.runtime, self.by) {
            (Some(runtime), by) => {
                let why = match by {
                    Route::Flow => "the flow is there",
                    Route::ReplyKey => "a flow's reply key leads there",
                    Route::Group if !self.is_flow_known => "its group is there",
                    Route::Group => "its group is there, the flow would be new",
                    Route::Policy => "the policy would choose it, the group would be new",
                    Route::Elsewhere => "as far as is known here",
                };
                writeln!(f, "  runtime     {runtime}: {why}")?;
                if let Some(Moved { from, view, count }) = self.moved {
                    writeln!(f, "  group       moved from runtime {from}, epoch {view}.{count}")?;
                }
            }
            (None, Route::Elsewhere) => {
                writeln!(
                    f,
                    "  runtime     not known here: its home switch is another process's"
                )?;
            }
            // A packet that no worker can read goes nowhere.
            (None, _) if self.switch.is_none() => {}
            (None, _) => writeln!(f, "  runtime     none: no runtime takes flows")?,
        }
        if let Some(chain) = &self.chain {
            let rule = self.rule.as_deref().unwrap_or("by its flow");
            writeln!(f, "  chain       {chain}: {rule}")?;
        }
        let functions = self.functions.iter().map(|of| match of.translates {
            true => format!("{} (translates)", of.function),
            false => of.function.clone(),
        });
        let functions = functions.collect::<Vec<_>>().join(", ");
        if !functions.is_empty() {
            writeln!(f, "  functions   {functions}")?;
        }
        if let Some(reason) = &self.dropped {
            writeln!(f, "  dropped     {reason}, before any function has it")?;
        }
        match &self.flow {
            Some(flow) => write!(f, "\nits flow:\n{flow}"),
            None if self.dropped.is_some() => Ok(()),
            None if !self.is_flow_known => writeln!(
                f,
                "\nWhether its flow is there the runtime's process knows: ask that one (--socket), or all with --cluster."
            ),
            None => writeln!(
                f,
                "\nIts flow is not there: whether a function drops or translates it shows when it comes (`flowkeep flow trace`)."
            ),
        }
    }
}

/// The match of a chain's rule, in words.
pub fn rule_text(matching: &Match, is_only: bool) -> String {
    let list = |of: Vec<String>| of.join(", ");
    let ports = |of: &[std::ops::RangeInclusive<u16>]| {
        let one = |range: &std::ops::RangeInclusive<u16>| match range.start() == range.end() {
            true => range.start().to_string(),
            false => format!("{}-{}", range.start(), range.end()),
        };
        of.iter().map(one).collect::<Vec<_>>()
    };
    let prefixes = |of: &[wire::Prefix]| of.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut parts = Vec::new();
    if let Some(protocol) = matching.protocol {
        parts.push(format!("protocol {}", wire::key::protocol_name(protocol)));
    }
    if let Some(side) = matching.side {
        parts.push(format!("from {}", format!("{side:?}").to_lowercase()));
    }
    for (name, values) in [
        ("source", prefixes(&matching.source)),
        ("destination", prefixes(&matching.destination)),
        ("source port", ports(&matching.source_port)),
        ("destination port", ports(&matching.destination_port)),
    ] {
        if !values.is_empty() {
            parts.push(format!("{name} {}", list(values)));
        }
    }
    match (parts.is_empty(), is_only) {
        (true, true) => "everything".to_owned(),
        (true, false) => "everything else".to_owned(),
        (false, _) => parts.join("; "),
    }
}
