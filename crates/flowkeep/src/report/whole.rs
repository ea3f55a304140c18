//! Members of a cluster of several processes, as `status` over the cluster has them.

use super::{Flows, Packets, Status, Table, grouped, human_time};
use crate::apply::joined::InForce;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// One member.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct MemberReport {
    /// Its name.
    pub member: String,
    /// Why it is not in the figures, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Which of the cluster's configurations it has in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<InForce>,
    /// How long it runs.
    pub uptime_seconds: f64,
    /// Where the packets are that it has had.
    pub packets: Packets,
    /// Its flows.
    pub flows: Flows,
}

impl MemberReport {
    /// A member that is not in the figures.
    pub fn without(member: &str, problem: &str) -> Self {
        MemberReport {
            member: member.to_owned(),
            problem: Some(problem.to_owned()),
            ..MemberReport::default()
        }
    }
}

/// A configuration's number, and the first digits of its digest.
pub(super) fn shown(of: &InForce) -> String {
    let digits: String = of.digest.chars().take(8).collect();
    let lags = of.problem.as_ref().map_or("", |_| ", lags");
    format!("{} ({digits}{lags})", of.number)
}

impl Status {
    /// A line for each member, where there are several.
    pub(super) fn write_members(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.members.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(&[
            "Member",
            ">Up",
            ">In",
            ">From others",
            ">Out",
            ">To others",
            ">Dropped",
            ">Flows",
            "Configuration",
            "",
        ]);
        for of in &self.members {
            let count = |count: u64| match of.problem {
                Some(_) => "-".to_owned(),
                None => grouped(count),
            };
            let up = Duration::from_secs_f64(of.uptime_seconds.max(0.0));
            table.row([
                of.member.clone(),
                of.problem
                    .as_ref()
                    .map_or_else(|| human_time(up), |_| "-".to_owned()),
                count(of.packets.r#in),
                count(of.packets.from_others),
                count(of.packets.out),
                count(of.packets.to_others),
                count(of.packets.dropped.values().sum()),
                count(of.flows.active),
                of.configuration.as_ref().map_or_else(|| "-".to_owned(), shown),
                of.problem
                    .as_ref()
                    .map_or("", |_| "not in the figures")
                    .to_owned(),
            ]);
        }
        writeln!(f, "{table}")?;
        for of in &self.members {
            if let Some(why) = of.configuration.as_ref().and_then(|of| of.problem.as_ref()) {
                writeln!(
                    f,
                    "member {} has not the configuration that was decided: {why}\n",
                    of.member
                )?;
            }
        }
        Ok(())
    }
}
