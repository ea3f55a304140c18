//! The workers and ports, the members that have them, and their numbers: the same in every process
//! that reads the configuration.
//!
//! Workers are numbered in the order of the members, switches and runtimes each from 0. A member's
//! ports are dealt out to its switches in turn. A port's number in the cluster is
//! `place * switches + switch`, with its place among its switch's ports. So a division of the
//! number gives the switch.
//!
//! ```text
//!   member front: switches = 2      switch 0  ports 0, 2, …      (configuration's order, front's ports)
//!                                   switch 1  ports 1, 3, …
//!   member left:  runtimes = 1      runtime 0
//!   member right: runtimes = 2      runtime 1, runtime 2
//! ```
//!
//! Numbers of runtimes behind those of the members are for members that are not listed
//! (`runtimes_max`): the coordinator gives them ([`crate::member::newcomer`]).
//!
//! Not here: opening and making them ([`crate::run`](crate)).

use super::{Config, Member};
use std::ops::Range;

/// The workers of the whole cluster, and which of them are here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Switches of the cluster.
    pub switches: usize,
    /// Runtimes of the cluster.
    pub runtimes: usize,
    /// Numbers of the switches of this process.
    pub switches_here: Range<usize>,
    /// Numbers of the runtimes of this process.
    pub runtimes_here: Range<usize>,
    /// Where each port is, in the configuration's order.
    pub ports: Vec<PortPlace>,
}

/// Where a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortPlace {
    /// Its switch.
    pub switch: usize,
    /// Its place among that one's ports.
    pub place: usize,
}

impl PortPlace {
    /// Its number in a cluster of so many switches.
    pub fn number(self, switches: usize) -> usize {
        self.place * switches + self.switch
    }
}

/// A worker of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkerId {
    /// A switch, by its number among them.
    Switch(usize),
    /// A runtime, by its number among them.
    Runtime(usize),
}

impl std::fmt::Display for WorkerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WorkerId::Switch(number) => write!(f, "switch {number}"),
            WorkerId::Runtime(number) => write!(f, "runtime {number}"),
        }
    }
}

impl Layout {
    /// All workers in one process.
    pub fn whole(config: &Config) -> Self {
        let (switches, runtimes) = (usize::from(config.switches), usize::from(config.most_runtimes()));
        Layout {
            switches,
            runtimes,
            switches_here: 0..switches,
            runtimes_here: 0..runtimes,
            ports: places(config),
        }
    }

    /// The workers and ports of a member, by its place in the configuration.
    pub fn of_member(config: &Config, member: usize) -> Self {
        Layout {
            switches_here: numbers(config, member, |member| member.switches),
            runtimes_here: numbers(config, member, |member| member.runtimes),
            ..Self::whole(config)
        }
    }

    /// Whether all workers are here.
    pub fn is_whole(&self) -> bool {
        (self.switches_here.len(), self.runtimes_here.len()) == (self.switches, self.runtimes)
    }

    /// Whether a worker is here.
    pub fn is_here(&self, worker: WorkerId) -> bool {
        match worker {
            WorkerId::Switch(number) => self.switches_here.contains(&number),
            WorkerId::Runtime(number) => self.runtimes_here.contains(&number),
        }
    }

    /// Whether some port of the switches here brings packets by itself: a reflector has only
    /// packets that it was given, and an output has none.
    pub fn has_inputs(&self, config: &Config) -> bool {
        let here = self.ports.iter().zip(&config.port);
        here.filter(|(place, _)| self.is_here(WorkerId::Switch(place.switch)))
            .filter_map(|(_, port)| port.input.as_ref())
            .any(|input| !input.is_reflector())
    }

    /// A worker's number among all workers: the switches first.
    pub fn number(&self, worker: WorkerId) -> u16 {
        let number = match worker {
            WorkerId::Switch(number) => number,
            WorkerId::Runtime(number) => self.switches + number,
        };
        u16::try_from(number).expect("at most 128 workers")
    }

    /// For each runtime, how good a place it is for the copies of one runtime's flows: 0 in another
    /// rack, 1 at another host, 2 in another process; none in the same process, since it would fail
    /// together with it. In a cluster of one process all are alike.
    pub fn replica_ranks(config: &Config, runtime: usize, runtimes: usize) -> Vec<Option<u8>> {
        let member = |runtime| {
            let number = Self::member_of(config, WorkerId::Runtime(runtime))?;
            config.member.get(number).map(|member| (number, member))
        };
        let Some((number, here)) = member(runtime) else {
            return vec![Some(0); runtimes];
        };
        let rank = |other| {
            let (other, there) = member(other)?;
            (other != number).then(|| Self::replica_rank(here, there))
        };
        (0..runtimes).map(rank).collect()
    }

    /// The same of one member's runtimes for those of another.
    pub fn replica_rank(here: &Member, there: &Member) -> u8 {
        let racks = [here, there].map(|member| member.rack.as_ref().unwrap_or(&member.host));
        match (racks[0] != racks[1], here.host != there.host) {
            (true, true) => 0,
            (false, true) => 1,
            (_, false) => 2,
        }
    }

    /// The place in the configuration of the member that has a worker; none in a cluster without
    /// members.
    pub fn member_of(config: &Config, worker: WorkerId) -> Option<usize> {
        (0..config.member.len()).find(|member| match worker {
            WorkerId::Switch(number) => numbers(config, *member, |m| m.switches).contains(&number),
            WorkerId::Runtime(number) => numbers(config, *member, |m| m.runtimes).contains(&number),
        })
    }
}

/// The numbers of a member's workers of one kind.
fn numbers(config: &Config, member: usize, of: fn(&Member) -> Option<u16>) -> Range<usize> {
    let count = |member: &Member| usize::from(of(member).unwrap_or(0));
    let first = match config.member[member].first {
        Some(first) => first.into(),
        None => config.member[..member].iter().map(count).sum(),
    };
    first..first + count(&config.member[member])
}

/// Where all ports are.
fn places(config: &Config) -> Vec<PortPlace> {
    let only = config.member.iter().position(|member| member.switches.is_some());
    let mut dealt = vec![0; config.member.len().max(1)];
    let place = |port: &super::Port| {
        let named = port.member.as_ref();
        let member = named.and_then(|name| config.member.iter().position(|member| member.name == *name));
        let switches = match member.or(only) {
            Some(member) => numbers(config, member, |member| member.switches),
            None => 0..usize::from(config.switches),
        };
        let turn = &mut dealt[member.or(only).unwrap_or(0)];
        let index = *turn;
        *turn += 1;
        PortPlace {
            switch: switches.start + index % switches.len().max(1),
            place: index / switches.len().max(1),
        }
    };
    config.port.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(text: &str) -> Member {
        toml::from_str(text).expect("a member")
    }

    /// Another rack is better than another host of the same, and that than another process there.
    #[test]
    fn copies_are_best_in_another_rack_and_never_in_the_same_process() {
        let config = Config {
            member: [
                "name = \"front\"\nswitches = 1\nhost = \"one\"\nrack = \"a\"\n",
                "name = \"here\"\nruntimes = 2\nhost = \"one\"\nrack = \"a\"\n",
                "name = \"beside\"\nruntimes = 1\nhost = \"one\"\nrack = \"a\"\n",
                "name = \"near\"\nruntimes = 1\nhost = \"two\"\nrack = \"a\"\n",
                "name = \"far\"\nruntimes = 1\nhost = \"three\"\nrack = \"b\"\n",
                "name = \"alone\"\nruntimes = 1\nhost = \"four\"\n",
            ]
            .map(member)
            .into(),
            ..Config::default()
        };
        let ranks = |runtime| Layout::replica_ranks(&config, runtime, 7);
        let of_here = [None, None, Some(2), Some(1), Some(0), Some(0), None];
        assert_eq!(ranks(0), of_here, "the last is no member's");
        assert_eq!(ranks(1), of_here);
        let of_beside = [Some(2), Some(2), None, Some(1), Some(0), Some(0), None];
        assert_eq!(ranks(2), of_beside);
        // A host whose rack is not said is one by itself.
        let of_alone = [Some(0), Some(0), Some(0), Some(0), Some(0), None, None];
        assert_eq!(ranks(5), of_alone);
        // In one process all are alike.
        assert_eq!(Layout::replica_ranks(&Config::default(), 0, 3), [Some(0); 3]);
    }
}
