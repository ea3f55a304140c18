//! A function that counts each flow's packets and tells the simulator, for scripts in which
//! runtimes keep copies: first in the chain.
//!
//! ```text
//!   packet ─► count in the flow's state ─► account: this packet, this life of the flow, this count
//!   packet leaves the cluster ──────────► account: that count has left (`checkers::kept`)
//! ```
//!
//! Each flow that begins gets a number that no other had, kept in its state. So it shows whether a
//! flow goes on, goes back or begins again, whatever its packets say.
//! The account is the thread's, as a run is.
//!
//! Not here: the demands on it ([`crate::checkers`]).

use crate::frame;
use nf::{
    ConfigError, Cx, Departure, FlowState, NetworkFunction, NoConfig, Packet, Verdict, WorkerInfo,
    network_function,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::LinkType;

/// A flow's number, from 1, and how many packets it has had.
#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct Witnessed {
    number: u32,
    count: u32,
}

/// Counts, at this runtime.
pub struct Witness {
    runtime: u16,
}

#[network_function]
impl NetworkFunction for Witness {
    const NAME: &'static str = "witness";
    type Config = NoConfig;
    type Flow = Witnessed;
    type Group = ();

    fn new(_: &Arc<NoConfig>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        let runtime = worker.runtime;
        Ok(Witness { runtime })
    }

    fn process(&self, packet: &mut Packet, flow: &mut Witnessed, cx: &mut Cx<Self>) -> Verdict {
        ACCOUNT.with_borrow_mut(|account| {
            if flow.number == 0 {
                flow.number = account.begin(*cx.key().words());
            }
            flow.count += 1;
            let id = frame::id_of(LinkType::Raw, packet.network()).unwrap_or(0);
            account.processed(id, *flow);
        });
        Verdict::Forward
    }

    fn departed(&self, flow: &Witnessed, why: Departure, _: &mut Cx<Self>) {
        if why == Departure::Expired {
            ACCOUNT.with_borrow_mut(|account| account.ended(flow.number, self.runtime));
        }
    }
}

std::thread_local! {
    static ACCOUNT: RefCell<Account> = RefCell::default();
}

/// The account of a run.
#[derive(Default)]
pub(crate) struct Account {
    flows: u32,
    /// A worker that has crashed is taken apart: its work is not seen.
    is_deaf: bool,
    /// By key: the flow that began last.
    latest: BTreeMap<[u64; 5], u32>,
    /// Flows that have ended as they should: where, unless that runtime has crashed since.
    over: BTreeMap<u32, Option<u16>>,
    /// How often a flow ended that had ended at a runtime which has crashed since.
    pub ended_again: u64,
    /// The key with which each flow began of which nothing has left.
    begun: BTreeMap<u32, [u64; 5]>,
    /// By identifier of a packet: how often, and as which of a flow, it was processed; and from
    /// what the flow had gone back, if it had.
    packets: BTreeMap<u16, Vec<(Witnessed, Option<u32>)>>,
    /// By flow: the greatest count with which a packet of it has left.
    left: BTreeMap<u32, u32>,
    /// A flow that has gone back: its number, the count that has left, the count that it went on
    /// from.
    pub gone_back: Option<(u32, u32, u32)>,
    /// A flow that was forgotten, and how many packets of it had left.
    pub forgotten: Option<(u32, u32)>,
}

impl Account {
    /// A run begins.
    pub fn clear() {
        ACCOUNT.take();
    }

    /// Looks at the account so far.
    pub fn look<T>(look: impl FnOnce(&Account) -> T) -> T {
        ACCOUNT.with_borrow(look)
    }

    /// A packet has left the cluster.
    pub fn note_left(id: u16) {
        ACCOUNT.with_borrow_mut(|account| account.has_left(id));
    }

    /// Does work that is not to be seen: a worker that has crashed is taken apart.
    pub fn unseen<T>(doing: impl FnOnce() -> T) -> T {
        ACCOUNT.with_borrow_mut(|account| account.is_deaf = true);
        let done = doing();
        ACCOUNT.with_borrow_mut(|account| account.is_deaf = false);
        done
    }

    /// A runtime has crashed. Its replica may not have heard of the flows that had ended there
    /// last, and goes on with them.
    pub fn note_crash(runtime: u16) {
        ACCOUNT.with_borrow_mut(|account| {
            let places = account.over.values_mut();
            let its = places.filter(|place| **place == Some(runtime));
            its.for_each(|place| *place = None);
        });
    }

    fn begin(&mut self, key: [u64; 5]) -> u32 {
        self.flows += 1;
        if !self.is_deaf {
            self.begun.insert(self.flows, key);
        }
        self.flows
    }

    /// The first packet of a flow has left: from now on it is the flow of its key.
    fn has_begun(&mut self, number: u32) {
        if let Some(key) = self.begun.remove(&number)
            && let Some(before) = self.latest.insert(key, number)
            && !self.over.contains_key(&before)
            && let Some(left) = self.left.get(&before)
        {
            self.forgotten.get_or_insert((before, *left));
        }
    }

    fn processed(&mut self, id: u16, flow: Witnessed) {
        if self.is_deaf {
            return;
        }
        let left = self.left.get(&flow.number).copied().unwrap_or(0);
        if id != 0 {
            let gone_back = (flow.count <= left).then_some(left);
            self.packets.entry(id).or_default().push((flow, gone_back));
        }
    }

    fn ended(&mut self, number: u32, runtime: u16) {
        if !self.is_deaf {
            let before = self.over.insert(number, Some(runtime));
            self.ended_again += u64::from(before == Some(None));
        }
    }

    /// A packet that was processed twice has left at least as it was the first time, of the flow
    /// that it was last. Packets of a runtime that others had given up count if they have left.
    fn has_left(&mut self, id: u16) {
        let seen = self.packets.get(&id);
        let Some((last, _)) = seen.and_then(|seen| seen.last()).copied() else {
            return;
        };
        let of_it = seen.into_iter().flatten();
        let of_it: Vec<_> = of_it.filter(|(flow, _)| flow.number == last.number).collect();
        let count = of_it.iter().map(|(flow, _)| flow.count).min().unwrap_or(0);
        if of_it.iter().all(|(_, gone_back)| gone_back.is_some())
            && let Some((flow, Some(left))) = of_it.first()
        {
            self.gone_back.get_or_insert((flow.number, *left, flow.count - 1));
        }
        self.has_begun(last.number);
        let left = self.left.entry(last.number).or_default();
        *left = count.max(*left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_ends_again_behind_a_crash_of_the_runtime_where_it_ended() {
        Account::clear();
        let ended = |number, runtime| ACCOUNT.with_borrow_mut(|account| account.ended(number, runtime));
        let again = || Account::look(|account| account.ended_again);
        for number in [1, 2, 3] {
            ended(number, 2);
        }
        // Where it ended lives: that is no excuse.
        ended(1, 0);
        assert_eq!(again(), 0);
        Account::note_crash(2);
        Account::unseen(|| ended(2, 2));
        ended(1, 3);
        assert_eq!(again(), 0);
        ended(2, 0);
        assert_eq!(again(), 1);
        // The heir crashes, too.
        Account::note_crash(0);
        ended(2, 1);
        ended(3, 1);
        assert_eq!(again(), 3);
        Account::clear();
    }
}
