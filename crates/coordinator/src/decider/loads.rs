//! The loads of runtimes, as their heartbeats say: told to all members once a second, for switches
//! that place new groups by them. They are told though nothing has changed: an agent that hears
//! nothing tries another coordinator.
//!
//! A runtime that was not heard for [`FRESH`] is left out: a switch has no figure of it then.
//! Nothing here is in the log.

use super::Decider;
use crate::proto;
use protocols::membership::Role;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two words to members.
const PERIOD: Duration = Duration::from_secs(1);
/// A load said longer ago counts no more.
const FRESH: Duration = Duration::from_secs(3);

impl Decider {
    /// The load of each runtime in the view, as it has said lately.
    pub(super) fn loads(&self, now: Instant) -> Vec<proto::RuntimeLoad> {
        let fresh = self
            .heard
            .iter()
            .filter(|(id, (at, _))| id.role == Role::Runtime && now.saturating_duration_since(*at) <= FRESH);
        let load = |(id, (_, load)): (&protocols::membership::WorkerId, &(Instant, proto::Load))| {
            proto::RuntimeLoad {
                runtime: u32::from(id.number),
                packet_rate: load.packet_rate,
                cpu: load.cpu,
            }
        };
        fresh.map(load).collect()
    }

    pub(super) fn tell_loads(&mut self, now: Instant) {
        if now < self.loads_at {
            return;
        }
        self.loads_at = now + PERIOD;
        let loads = self.loads(now);
        self.published
            .send_modify(|published| Arc::make_mut(published).loads = loads);
    }
}
