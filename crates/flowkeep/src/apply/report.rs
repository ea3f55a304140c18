//! The answer to a request for a change: JSON in base units, and words for people.

use super::settings::Difference;
use crate::config::Problem;
use crate::report::Ends;
use crate::shape::Shape;
use runtime::chain::Plan;
use runtime::worker::change::CutFlow;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How it went.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// There is no difference, so no change was made.
    #[default]
    Same,
    /// The configuration can be applied, and cuts no flow.
    Possible,
    /// The configuration can be applied, and would cut flows.
    WouldCut,
    /// The configuration would have cut flows, without leave for it: nothing has changed.
    RefusedToCut,
    /// The configuration cannot be applied: nothing has changed.
    Refused,
    /// The configuration is in force.
    Applied,
}

/// A setting that cannot change while a cluster runs.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Its path.
    pub setting: String,
    /// The remedy.
    pub remedy: String,
}

/// Flows that end, by the function that ends them and its reason.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct CutCount {
    /// The function; empty where the new configuration has no chain for them.
    pub function: String,
    /// Why.
    pub reason: String,
    /// How many.
    pub flows: u64,
}

/// A flow that would end.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The runtime that has it.
    pub runtime: u16,
    /// Its IP protocol.
    pub protocol: String,
    /// Its VLAN; 0 for none.
    pub vlan: u16,
    /// The sender of the first packet.
    pub source: String,
    /// The receiver of the first packet.
    pub destination: String,
    /// How the first packet left, if the chain translated it.
    pub translated: Option<Ends>,
    /// The chain it runs.
    pub chain: String,
    /// The function that would end it; empty where the new configuration has no chain for it.
    pub function: String,
    /// Why.
    pub reason: String,
}

impl Listed {
    /// A flow that runs by a plan.
    pub fn of(flow: &CutFlow, plan: &Plan) -> Self {
        let function = flow
            .function
            .and_then(|index| plan.factories().get(usize::from(index)));
        Listed {
            runtime: flow.runtime,
            protocol: wire::key::protocol_name(flow.key.protocol()).to_string(),
            vlan: flow.key.vlan(),
            source: flow.source.to_string(),
            destination: flow.destination.to_string(),
            translated: flow.translated.map(Ends::from),
            chain: plan
                .chains()
                .get(usize::from(flow.chain))
                .map(|chain| chain.name.clone())
                .unwrap_or_default(),
            function: function
                .map(|factory| factory.name().to_owned())
                .unwrap_or_default(),
            reason: flow.reason.to_owned(),
        }
    }
}

/// The outcome of a change that was made.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct Receipt {
    /// The number of the configuration that is in force now.
    pub generation: u64,
    /// At so many runtimes.
    pub runtimes: usize,
    /// Over the cluster: of so many members. The number is the cluster's then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<usize>,
    /// Flows that go on.
    pub flows_kept: u64,
    /// Flows that ended by it.
    pub flows_cut: u64,
    /// Flows whose calls still wait; functions are asked about them when the calls are done.
    pub flows_waiting: u64,
    /// The flows that ended, by function and reason.
    #[serde(rename = "cut_by")]
    pub cut: Vec<CutCount>,
    /// Until it was ready everywhere and all flows had been looked at.
    pub prepared_seconds: f64,
    /// From the word to commit until the last runtime had; each does it between two bursts.
    pub commit_seconds: f64,
    /// All of it.
    pub seconds: f64,
    /// A defect that remains, though the configuration is in force.
    pub warning: Option<String>,
    /// The configuration goes back by itself after this time, unless it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_seconds: Option<f64>,
}

/// A change that would be made, or was.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// How it went.
    pub outcome: Outcome,
    /// The configuration that was in force when it was asked.
    pub generation: u64,
    /// The settings that differ.
    pub differences: Vec<Difference>,
    /// The differing settings that cannot change.
    pub fixed: Vec<Fixed>,
    /// The configuration's problems.
    pub problems: Vec<Problem>,
    /// Why a runtime refused.
    pub refusal: Option<String>,
    /// Flows that would go on.
    pub flows_kept: u64,
    /// Flows that would end.
    pub flows_cut: u64,
    /// Flows whose calls wait: no function can be asked about them before the calls are done.
    pub flows_waiting: u64,
    /// The flows that would end, by function and reason.
    #[serde(rename = "cut_by")]
    pub cut: Vec<CutCount>,
    /// The flows that would end, one by one, up to the number asked for.
    pub listed: Vec<Listed>,
    /// How many would end besides and are not listed.
    #[serde(default)]
    pub unlisted: u64,
    /// The outcome, if a change was made.
    pub receipt: Option<Receipt>,
    /// Over the cluster: each member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberPart>,
    /// Going back was asked for; the command that asked sets it, since its words name it.
    #[serde(skip)]
    pub was_rollback: bool,
}

impl Shape for Change {
    const NAME: &'static str = "chain-change";
    /// 2: `translated` has named fields, `old` and `new` are values, and the causes of ended flows
    /// are `cut_by`.
    const VERSION: u32 = 2;
}

/// A member's part of a change over the cluster.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct MemberPart {
    /// Its name.
    pub member: String,
    /// Flows that would go on there.
    pub flows_kept: u64,
    /// Flows that would end.
    pub flows_cut: u64,
    /// Flows whose calls wait.
    pub flows_waiting: u64,
    /// Why it refuses, or lacks the decided configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

fn flows(count: u64) -> String {
    match count {
        1 => "1 flow".to_owned(),
        count => format!("{count} flows"),
    }
}

fn reasons(f: &mut fmt::Formatter<'_>, cut: &[CutCount]) -> fmt::Result {
    for one in cut {
        let name = match one.function.as_str() {
            "" => one.reason.clone(),
            function => format!("{function}/{}", one.reason),
        };
        writeln!(f, "  {:>9}  {name}", one.flows)?;
    }
    Ok(())
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{problem}\n")?;
        }
        if !self.differences.is_empty() {
            writeln!(f, "what differs:")?;
            for difference in &self.differences {
                let is_fixed = self.fixed.iter().any(|fixed| fixed.setting == difference.setting);
                let mark = if is_fixed { "!" } else { " " };
                writeln!(f, "{mark} {difference}")?;
            }
        }
        if !self.fixed.is_empty() {
            writeln!(f, "\nwhat cannot change while it runs:")?;
            for fixed in &self.fixed {
                writeln!(f, "  {}: {}", fixed.setting, fixed.remedy)?;
            }
        }
        if let Some(refusal) = &self.refusal {
            writeln!(f, "\n{refusal}")?;
        }
        let was_asked = matches!(
            self.outcome,
            Outcome::Possible | Outcome::WouldCut | Outcome::RefusedToCut | Outcome::Applied
        );
        if was_asked {
            write!(
                f,
                "\n{} would go on, {} would be cut",
                flows(self.flows_kept),
                self.flows_cut
            )?;
            if self.flows_waiting > 0 {
                write!(f, ", {} wait and are asked afterwards", self.flows_waiting)?;
            }
            writeln!(f)?;
            for of in self.members.iter().filter(|_| self.flows_cut > 0) {
                writeln!(f, "  {:>9}  of them at member {}", of.flows_cut, of.member)?;
            }
            reasons(f, &self.cut)?;
            if !self.listed.is_empty() {
                writeln!(f)?;
                crate::report::cut_table(f, &self.listed)?;
            }
            if self.unlisted > 0 && !self.listed.is_empty() {
                let unlisted = self.unlisted;
                writeln!(f, "… and {unlisted} more: say --limit N, or --json for all")?;
            }
        }
        let what = match self.members.is_empty() {
            true => "generation",
            false => "configuration",
        };
        match (self.outcome, &self.receipt) {
            (Outcome::Same, _) => write!(f, "nothing differs: {what} {} stays", self.generation),
            (Outcome::Refused, _) => write!(f, "\nnothing has changed: {what} {} stays", self.generation),
            (Outcome::RefusedToCut, _) => write!(
                f,
                "\nnothing has changed: `flowkeep chain {}` with --cut cuts {}",
                if self.was_rollback { "rollback" } else { "apply" },
                flows(self.flows_cut)
            ),
            (_, Some(receipt)) => write!(f, "\n{receipt}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runtimes = match self.runtimes {
            1 => "1 runtime".to_owned(),
            count => format!("{count} runtimes"),
        };
        let (what, runtimes) = match self.members {
            None => ("generation", runtimes),
            Some(members) => ("configuration", format!("{members} members with {runtimes}")),
        };
        writeln!(
            f,
            "{what} {} is in force at {runtimes}: {} went on, {} cut",
            self.generation,
            flows(self.flows_kept),
            self.flows_cut
        )?;
        reasons(f, &self.cut)?;
        if self.flows_waiting > 0 {
            writeln!(
                f,
                "{} still wait and are asked when their calls are done",
                flows(self.flows_waiting)
            )?;
        }
        if let Some(warning) = &self.warning {
            writeln!(f, "warning: {warning}")?;
        }
        if let Some(seconds) = self.confirm_seconds {
            writeln!(
                f,
                "it is on trial: it goes back in {seconds:.0} s unless `flowkeep chain confirm` is said"
            )?;
        }
        write!(
            f,
            "ready after {:.1} ms, committed within {:.1} ms, done after {:.1} ms",
            self.prepared_seconds * 1e3,
            self.commit_seconds * 1e3,
            self.seconds * 1e3
        )
    }
}
