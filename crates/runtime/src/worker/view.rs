//! A flow as an operator sees it.

use super::Runtime;
use crate::env::Port;
use crate::flows::actor::{Phase, flag};
use crate::group::GroupKey;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use nf::Endpoint;
use wire::FlowKey;

/// A flow as it stands.
#[derive(Clone, Debug)]
pub struct FlowView {
    /// The runtime that has it.
    pub runtime: u16,
    /// The key its first packet had.
    pub key: FlowKey,
    /// The endpoint that sent the first packet.
    pub source: Endpoint,
    /// The endpoint that it was for.
    pub destination: Endpoint,
    /// Whether the first packet came from outside.
    pub is_from_outside: bool,
    /// How the first packet left, if the chain translated it: source and destination.
    pub translated: Option<(Endpoint, Endpoint)>,
    /// The chain it runs.
    pub chain: String,
    /// Whether a call of it waits.
    pub waiting: bool,
    /// Nanoseconds until it expires, if nothing comes.
    pub expires_in: u64,
    /// Its copy, if its runtime has a replica.
    pub copy: Option<CopyView>,
    /// Each function's state, field by field.
    pub state: Vec<(String, Vec<(&'static str, String)>)>,
}

/// The copy of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyView {
    /// The runtime that keeps it, or is to.
    pub replica: u16,
    /// Whether there is one.
    pub is_there: bool,
    /// Records of the flow, or of flows that share its mark, that the replica has not acknowledged
    /// yet.
    pub behind: u64,
}

/// The keys of a flow, without its functions' state.
#[derive(Clone, Copy, Debug)]
pub struct FlowEnds {
    /// The key its first packet had.
    pub key: FlowKey,
    /// The key of its replies, if the chain translated it.
    pub reply_key: Option<FlowKey>,
    /// Whether the first packet came from outside.
    pub is_from_outside: bool,
    /// Whether the first packet's call waits, so that it is not known yet if this is a flow at all.
    pub is_undecided: bool,
    /// Source and destination of the first packet.
    pub ends: (Endpoint, Endpoint),
    /// The same as the first packet left, if the chain translated it.
    pub translated: Option<(Endpoint, Endpoint)>,
}

impl<P: Port> Runtime<P> {
    /// Shows each flow; unlike [`Runtime::flows`] it takes no memory.
    pub fn each_flow(&self, mut look: impl FnMut(&FlowEnds)) {
        for actor in 0..self.core.flows.capacity() as u32 {
            let header = self.core.flows.header(actor);
            if !matches!(header.phase, Phase::Active | Phase::Waiting) {
                continue;
            }
            let reply_key = (header.flags & flag::REPLY_KEY != 0).then(|| *self.core.flows.reply_key(actor));
            look(&FlowEnds {
                key: header.key,
                reply_key,
                is_from_outside: header.flags & flag::FROM_OUTSIDE != 0,
                is_undecided: header.phase == Phase::Waiting && header.has_nothing_to_its_name(),
                ends: header.key.ends(header.opening(0)),
                translated: reply_key.map(|key| key.ends(header.opening(1))),
            });
        }
    }

    /// Whether a group, or a flow with this reply key, is here.
    pub fn has_key(&self, key: &GroupKey) -> bool {
        self.core.flows.has_group(key)
    }

    /// The groups of all flows, and resting groups; without those whose state has been sent.
    #[cfg(test)]
    pub fn group_keys(&self) -> std::collections::HashSet<crate::group::GroupKey> {
        let headers = (0..self.core.flows.capacity() as u32).map(|actor| self.core.flows.header(actor));
        let used = headers.filter(|header| matches!(header.phase, Phase::Active | Phase::Waiting));
        let groups = self.core.flows.groups();
        let under_way = self.moves_under_way();
        let is_sent = |key: &crate::group::GroupKey| {
            let of_key = |(group, phase): &(_, _)| {
                group == key && matches!(phase, protocols::ownership::Phase::Forwarding { .. })
            };
            under_way.iter().any(of_key)
        };
        let resting = groups.resting().oldest().map(|index| groups.key(index));
        let resting = resting.filter(|key| !is_sent(key));
        used.map(|header| groups.key(header.group))
            .chain(resting)
            .collect()
    }

    /// Up to `limit` flows, but for those on their way to or from another runtime, from actor
    /// number `cursor` on, and the cursor to go on from; `None` behind the last.
    pub fn flows(&self, cursor: u32, limit: usize) -> (Vec<FlowView>, Option<u32>) {
        let mut views = Vec::new();
        for actor in cursor..self.core.flows.capacity() as u32 {
            if views.len() == limit {
                return (views, Some(actor));
            }
            if matches!(
                self.core.flows.header(actor).phase,
                Phase::Active | Phase::Waiting
            ) {
                views.push(self.view(actor));
            }
        }
        (views, None)
    }

    /// The flow that a packet with this key belongs to.
    pub fn flow(&self, key: &FlowKey) -> Option<FlowView> {
        let value = self.core.flows.find(key)?;
        Some(self.view(value >> 1))
    }

    fn view(&self, actor: u32) -> FlowView {
        let header = self.core.flows.header(actor);
        let (source, destination) = header.key.ends(header.opening(0));
        let translated = (header.flags & flag::REPLY_KEY != 0)
            .then(|| self.core.flows.reply_key(actor).ends(header.opening(1)));
        let waiting = header.phase == Phase::Waiting;
        let mut state = Vec::new();
        for step in self.core.runner.steps_of(actor, &self.core.flows) {
            let mut fields = Vec::new();
            // A waiting call may be in the middle of changing its state: it is not looked at.
            if !waiting {
                self.core
                    .runner
                    .each_field(actor, step, &self.core.flows, |name, value| {
                        fields.push((name, value))
                    });
            }
            state.push((
                self.core.runner.stages().names[usize::from(step.function)].clone(),
                fields,
            ));
        }
        FlowView {
            runtime: self.core.settings.info.runtime,
            key: header.key,
            source,
            destination,
            is_from_outside: header.flags & flag::FROM_OUTSIDE != 0,
            translated,
            chain: self.core.runner.chain_name(actor, &self.core.flows).to_string(),
            waiting,
            expires_in: header.deadline.saturating_sub(self.core.now),
            copy: self.core.copy_of(actor),
            state,
        }
    }
}
