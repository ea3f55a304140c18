//! The state of coordinators and members in a run: coordinator hosts, agents, views, and what
//! decides that all of it is at rest.
//!
//! A coordinator host is a coordinator's process with its host's clock and its paths to the
//! members. An agent is one worker's member slot; that of a process's first worker speaks for all.
//!
//! Not here: their steps (`joined`), elections (`elections`).

use super::elections::Elections;
use crate::Time;
use crate::agent::Agent;
use crate::checkers::fenced::Views;
use crate::coordinator::{Instance, Joined, Office, Told, first_view, id_of};
use crate::network::{Noise, Path};
use crate::random::{Random, Stream};
use crate::script::{MILLI, Script};
use protocols::membership::{Incarnation, View, WorkerId};

pub(super) const HOUR: u64 = 3_600_000 * MILLI;
pub(super) const YEAR: u64 = 365 * 24 * HOUR;

/// See the module's page.
pub(super) struct Members {
    pub joined: Joined,
    /// One desk, or several of which one is elected.
    pub coordinator_hosts: Vec<CoordinatorHost>,
    /// By which one is, where there are several.
    pub elections: Option<Elections>,
    pub agents: Vec<Agent>,
    pub random: Random,
    pub clocks: Random,
    /// The view in force, and the number of the list of suspects that was said last.
    pub view: View,
    pub list: u64,
    pub views: Views,
    /// Packets that a removed runtime had passed on, by worker.
    pub passed: Vec<u64>,
}

/// A coordinator's process, its host's clock, and its paths.
pub(super) struct CoordinatorHost {
    pub office: Office,
    /// By worker: to the coordinator and from it.
    pub to: Vec<Path>,
    pub from: Vec<Path>,
    /// Of the coordinator's clock, parts in a million.
    drift_ppm: u64,
    /// How much later that clock is than the first one's: each process may be on another host, as
    /// that of a coordinator that is elected next.
    pub ahead: u64,
    pub stalled_until: Time,
    /// The view and the list that were said to all last.
    pub said: (u32, u64),
    /// When the last record on its way is written.
    pub written_at: Time,
    /// How many records are on their way.
    pub planned: usize,
}

impl CoordinatorHost {
    /// The coordinator's clock.
    pub fn local(&self, now: Time) -> u64 {
        self.ahead + now + now / 1_000_000 * self.drift_ppm
    }
}

pub(super) fn incarnation_of(id: WorkerId, begun: u64) -> Instance {
    (id, Incarnation(begun + 1))
}

impl Members {
    /// All workers of a script are members, if they join at all.
    pub fn new(script: &Script) -> Option<Members> {
        let apart = script.shape.apart?;
        let joined = apart.joined?;
        let switches = usize::from(script.shape.switches);
        let workers = switches + usize::from(script.shape.runtimes);
        let incarnations: Vec<Instance> = (0..workers)
            .map(|worker| incarnation_of(id_of(worker, switches), 0))
            .collect();
        // A runtime that is not listed joins later.
        let listed = switches + usize::from(script.listed());
        let view = first_view(incarnations.iter().take(listed).copied());
        let path = |index: usize| {
            let random = Random::of(script.seed, Stream::Leases, 64 + index as u64);
            // A connection damages nothing.
            let noise = Noise {
                corrupted: 0,
                ..apart.noise
            };
            Path::new(apart.delay, noise, random)
        };
        let mut random = Random::of(script.seed, Stream::Leases, 32);
        let drift_ppm = random.below(u64::from(script.shape.drift_ppm) + 1);
        let mut clocks = Random::of(script.seed, Stream::Leases, 48);
        let coordinator_hosts = (0..usize::from(joined.offices)).map(|which| {
            let first = 2 * workers * which;
            CoordinatorHost {
                office: match which {
                    0 => Office::new(joined, 0, view.clone()),
                    _ => Office::waiting(joined),
                },
                to: (first..first + workers).map(path).collect(),
                from: (first + workers..first + 2 * workers).map(path).collect(),
                drift_ppm,
                ahead: match which {
                    0 => 0,
                    _ => clocks.of_these(&[0, HOUR, YEAR]),
                },
                stalled_until: 0,
                said: (view.number, 0),
                written_at: 0,
                planned: 0,
            }
        });
        let coordinator_hosts: Vec<CoordinatorHost> = coordinator_hosts.collect();
        Some(Members {
            joined,
            elections: Elections::new(script, &coordinator_hosts),
            coordinator_hosts,
            agents: incarnations.into_iter().map(Agent::new).collect(),
            random,
            clocks,
            list: 0,
            views: Views::default(),
            view,
            passed: vec![0; workers],
        })
    }

    /// The one that decides: where there are several, the elected one, if it leads.
    pub fn leading(&self) -> Option<usize> {
        match &self.elections {
            None => Some(0),
            Some(elections) => elections.leading(),
        }
    }

    /// Whether the incarnation that a worker is was removed by the view in force.
    pub fn is_removed(&self, worker: usize) -> bool {
        let agent = &self.agents[worker];
        agent.has_member_slot() && !self.view.has(agent.incarnation.0, agent.incarnation.1)
    }

    /// Whether all workers are members, run, and have heard all that the coordinator has to say.
    pub fn is_at_rest(&self, now: Time) -> bool {
        let knows = (self.view.number, self.list);
        let is_in = |agent: &Agent| {
            agent.has_member_slot()
                && agent.knows() == knows
                && self.view.has(agent.incarnation.0, agent.incarnation.1)
        };
        let has_decided_all = |coordinator_host: &CoordinatorHost| {
            coordinator_host
                .office
                .has_decided_all(coordinator_host.local(now))
        };
        let coordinator_host = self.leading().and_then(|which| self.coordinator_hosts.get(which));
        coordinator_host.is_some_and(has_decided_all) && self.agents.iter().all(is_in)
    }

    /// The word of a process's agent now.
    pub fn tell(&mut self, process: &[u8]) -> Option<Told> {
        let agents = self.agents.iter_mut().enumerate();
        let of_it = agents.filter(|(worker, _)| process.contains(&(*worker as u8)));
        let mut of_it: Vec<&mut Agent> = of_it.map(|(_, agent)| agent).collect();
        Agent::tell(&mut of_it)
    }
}
