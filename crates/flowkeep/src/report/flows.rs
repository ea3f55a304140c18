//! Flows, as `flow list` and `flow show` have them.

use super::values::{shown, value};
use super::{Table, human_time, joined};
use crate::apply::report::Listed;
use crate::cluster::Cursor;
use crate::shape::Shape;
use runtime::worker::FlowView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Source and destination.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
pub struct Ends {
    /// Address and port.
    pub source: String,
    /// Address and port.
    pub destination: String,
}

impl From<(nf::Endpoint, nf::Endpoint)> for Ends {
    fn from((source, destination): (nf::Endpoint, nf::Endpoint)) -> Self {
        Ends {
            source: source.to_string(),
            destination: destination.to_string(),
        }
    }
}

/// One flow.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub struct Flow {
    /// The runtime that has it.
    pub runtime: u16,
    /// Asked over the cluster: the member that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
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
    /// Whether a function of it waits for something.
    pub waiting: bool,
    /// Until it expires, if nothing comes.
    pub expires_in_seconds: f64,
    /// Its copy, if its runtime has a replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<FlowCopy>,
    /// Each function's state, by the names of its fields. Numbers, truth values, lists and nested
    /// structs are such, an option without a value is null, and a type with a format of its own is
    /// text.
    pub state: BTreeMap<String, BTreeMap<String, Value>>,
}

impl Shape for Flow {
    const NAME: &'static str = "flow";
    /// 2: `translated` has named fields.
    const VERSION: u32 = 2;
}

/// The copy of a flow.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq)]
pub struct FlowCopy {
    /// The runtime that keeps it, or is to.
    pub replica: u16,
    /// Whether there is one.
    pub there: bool,
    /// Records that the replica has not acknowledged yet.
    pub behind_records: u64,
}

impl From<&FlowView> for Flow {
    fn from(view: &FlowView) -> Self {
        let fields = |fields: &[(&'static str, String)]| {
            fields
                .iter()
                .map(|(name, text)| ((*name).to_owned(), value(text)))
                .collect()
        };
        Flow {
            runtime: view.runtime,
            member: None,
            protocol: wire::key::protocol_name(view.key.protocol()).to_string(),
            vlan: view.key.vlan(),
            source: view.source.to_string(),
            destination: view.destination.to_string(),
            translated: view.translated.map(Ends::from),
            chain: view.chain.clone(),
            waiting: view.waiting,
            expires_in_seconds: Duration::from_nanos(view.expires_in).as_secs_f64(),
            copy: view.copy.map(|copy| FlowCopy {
                replica: copy.replica,
                there: copy.is_there,
                behind_records: copy.behind,
            }),
            state: view
                .state
                .iter()
                .map(|(function, state)| (function.clone(), fields(state)))
                .collect(),
        }
    }
}

impl Flow {
    /// The state by its name: by the first function that has a `phase` or `state`.
    pub fn state_name(&self) -> &str {
        let named = |name: &str| self.state.values().find_map(|fields| fields.get(name));
        match named("phase").or_else(|| named("state")) {
            _ if self.waiting => "waiting",
            Some(Value::String(state)) => state,
            _ => "-",
        }
    }

    fn expires(&self) -> String {
        human_time(Duration::from_secs_f64(self.expires_in_seconds.max(0.0)))
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {} -> {}", self.protocol, self.source, self.destination)?;
        if let Some(Ends { source, destination }) = &self.translated {
            writeln!(f, "  translated  {source} -> {destination}")?;
        }
        if self.vlan != 0 {
            writeln!(f, "  vlan        {}", self.vlan)?;
        }
        writeln!(f, "  runtime     {}", self.runtime)?;
        if let Some(member) = &self.member {
            writeln!(f, "  member      {member}")?;
        }
        writeln!(f, "  chain       {}", self.chain)?;
        writeln!(f, "  expires in  {}", self.expires())?;
        if let Some(copy) = self.copy {
            let replica = copy.replica;
            match (copy.there, copy.behind_records) {
                (false, _) => writeln!(
                    f,
                    "  copy        none; runtime {replica} keeps those of its runtime"
                )?,
                (true, 0) => writeln!(f, "  copy        at runtime {replica}")?,
                (true, records) => {
                    writeln!(f, "  copy        at runtime {replica}, {records} records behind")?
                }
            }
        }
        if self.waiting {
            writeln!(f, "  waiting     yes")?;
        }
        for (function, fields) in &self.state {
            writeln!(f, "  {function}")?;
            for (name, value) in fields {
                writeln!(f, "    {name} = {}", shown(value))?;
            }
        }
        Ok(())
    }
}

/// Some flows.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct FlowList {
    /// The flows.
    pub flows: Vec<Flow>,
    /// Of a list that is cut: the word behind `--after` that shows more.
    pub next: Option<Cursor>,
    /// There are more flows than were to be listed.
    #[serde(default)]
    pub cut: bool,
}

impl Shape for FlowList {
    const NAME: &'static str = "flows";
    /// 2: `translated` has named fields, `next` is the word to say, and `cut` is always there.
    const VERSION: u32 = 2;
}

impl fmt::Display for FlowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&[
            "Proto",
            "State",
            "Source",
            "Destination",
            "Translated",
            ">Expires",
            ">Runtime",
            "Member",
            "Chain",
        ]);
        for flow in &self.flows {
            let translated = translated(&flow.translated, &flow.source, &flow.destination);
            table.row([
                flow.protocol.clone(),
                flow.state_name().to_owned(),
                flow.source.clone(),
                flow.destination.clone(),
                translated,
                flow.expires(),
                flow.runtime.to_string(),
                flow.member.clone().unwrap_or_default(),
                flow.chain.clone(),
            ]);
        }
        if self.flows.iter().all(|flow| flow.member.is_none()) {
            table.without("Member");
        }
        write!(f, "{table}")
    }
}

/// Flows that a change would cut, as `flow list` shows flows.
pub(crate) fn cut_table(f: &mut fmt::Formatter<'_>, flows: &[Listed]) -> fmt::Result {
    let mut table = Table::new(&[
        "Proto",
        "Source",
        "Destination",
        "Translated",
        ">Runtime",
        "Chain",
        "Cut by",
    ]);
    for flow in flows {
        table.row([
            flow.protocol.clone(),
            flow.source.clone(),
            flow.destination.clone(),
            translated(&flow.translated, &flow.source, &flow.destination),
            flow.runtime.to_string(),
            flow.chain.clone(),
            joined(&flow.function, &flow.reason),
        ]);
    }
    write!(f, "{table}")
}

/// How a flow's first packet left, as far as that is not how it came.
fn translated(ends: &Option<Ends>, source: &str, destination: &str) -> String {
    match ends {
        Some(Ends {
            source: out,
            destination: to,
        }) if to == destination => out.clone(),
        Some(Ends {
            source: out,
            destination: to,
        }) if out == source => format!("-> {to}"),
        Some(Ends {
            source: out,
            destination: to,
        }) => format!("{out} -> {to}"),
        None => "-".to_owned(),
    }
}
