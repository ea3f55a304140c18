//! Following flows at every runtime, for a reader of events ([`runtime::watch::flows`]).
//!
//! A runtime that comes later is followed from the next visit on. Events of one visit are in the
//! order of their times; events of two visits may not be.
//!
//! Invariants: however a [`Following`] goes, its followers end with it; memory is a fixed amount
//! for each runtime.

use super::Shared;
use super::handle::Handle;
use super::stamps::Rfc3339;
use crate::cluster::{Observed, Watching};
use crate::following::{self, Ends, FlowLine};
use runtime::watch::flows::{Change, Choice, FOLLOWERS_MAX, FlowEvent, Follower};
use std::sync::Arc;

/// Events for which a runtime has room between two visits.
const ROOM: usize = 16 * 1024;

/// A reader of events.
struct Following {
    shared: Arc<Shared>,
    id: u32,
    choice: Choice,
    /// Nanoseconds from the workers' clock to the time of day.
    clock: u64,
    events: Vec<FlowEvent>,
    is_over: bool,
}

/// Begins to follow flows.
pub(super) fn begin(shared: Arc<Shared>, choice: &following::Choice) -> Result<Box<dyn Watching>, String> {
    let address = choice.address.as_ref().map(|text| {
        text.parse()
            .map_err(|_| format!("`{text}` is no prefix: write an address, or one like 10.0.0.0/24"))
    });
    let choice = Choice {
        address: address.transpose()?,
        protocol: choice.protocol,
    };
    let following = Following {
        id: shared.watch_registry.come(),
        choice,
        clock: super::stamps::clock_offset(shared.packet_clock),
        events: Vec::with_capacity(ROOM),
        is_over: false,
        shared: Arc::clone(&shared),
    };
    for handle in shared.runtimes().into_values() {
        match following.follow(&handle) {
            Some(true) => {}
            Some(false) => {
                return Err(format!(
                    "{FOLLOWERS_MAX} follow flows already; end one of those first (Ctrl-C there)"
                ));
            }
            None => return Err("a runtime does not answer, and cannot be followed; try again".into()),
        }
    }
    Ok(Box::new(following))
}

impl Following {
    /// Has a runtime be followed; `false` if as many follow it as may.
    fn follow(&self, handle: &Handle) -> Option<bool> {
        let follower = Follower::new(self.id, self.choice, ROOM);
        let asked = handle.runtime(move |runtime| runtime.follow(follower));
        asked.ok().map(|refused| refused.is_ok())
    }

    /// Fetches a runtime's events, and how many it has lost.
    fn fetch(&mut self, number: u16, handle: &Handle, found: &mut Vec<(u64, FlowLine)>) -> u64 {
        let (id, mut events) = (self.id, std::mem::take(&mut self.events));
        if events.capacity() < ROOM {
            events = Vec::with_capacity(ROOM);
        }
        let asked = handle.runtime(move |runtime| (runtime.followed(id, &mut events), events));
        let Ok((lost, mut events)) = asked else { return 0 };
        if lost.is_none() {
            // The runtime has come since.
            self.follow(handle);
        }
        let lines = events.drain(..).map(|event| self.line(number, &event));
        found.extend(lines);
        self.events = events;
        lost.unwrap_or(0)
    }

    fn line(&self, runtime: u16, event: &FlowEvent) -> (u64, FlowLine) {
        let at = event.at.saturating_add(self.clock);
        let line = FlowLine {
            time: Rfc3339(at).to_string(),
            event: match event.change {
                Change::Opened => "opened",
                Change::Ended => "ended",
                Change::MovedIn => "moved_in",
                Change::MovedOut => "moved_out",
                Change::Recovered => "recovered",
            }
            .to_owned(),
            runtime,
            protocol: wire::key::protocol_name(event.protocol).to_string(),
            vlan: event.vlan,
            source: event.ends.0.to_string(),
            destination: event.ends.1.to_string(),
            translated: event.translated.map(Ends::from),
            chain: event.chain.to_string(),
            member: None,
        };
        (at, line)
    }
}

impl Watching for Following {
    fn ports(&self) -> Vec<String> {
        self.shared.port_names()
    }

    fn take(&mut self) -> Observed {
        let mut observed = Observed::default();
        if self.is_over {
            observed.is_over = true;
            return observed;
        }
        // The events fetched behind this look are all that there were before it.
        observed.is_over = self.shared.watch_registry.is_closing();
        let mut found = Vec::new();
        for (number, handle) in self.shared.runtimes() {
            observed.flows_lost += self.fetch(number, &handle, &mut found);
        }
        found.sort_by_key(|(at, _)| *at);
        observed.flows = found.into_iter().map(|(_, line)| line).collect();
        if observed.is_over {
            self.is_over = true;
            self.shared.watch_registry.leave();
        }
        observed
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        for handle in self.shared.runtimes().into_values() {
            handle.unwatch(self.id);
        }
        if !self.is_over {
            self.shared.watch_registry.leave();
        }
    }
}
