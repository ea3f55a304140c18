//! Which workers and ports there are, who has them, and their numbers: the same in every process that reads the configuration.
//!
//! Ports are dealt out to switches in turn. A port's number in the cluster is `place * switches + switch`, with its place among
//! its switch's ports, so whoever has the number has the switch by a division.
//!
//! Not here: opening and making them ([`crate::run`](crate)).

use super::Config;
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

impl Layout {
    /// All workers in one process.
    pub fn whole(config: &Config) -> Self {
        let (switches, runtimes) = (usize::from(config.switches), usize::from(config.runtimes));
        let ports = (0..config.port.len()).map(|index| PortPlace {
            switch: index % switches,
            place: index / switches,
        });
        Layout {
            switches,
            runtimes,
            switches_here: 0..switches,
            runtimes_here: 0..runtimes,
            ports: ports.collect(),
        }
    }

    /// Whether all workers are here.
    pub fn is_whole(&self) -> bool {
        (self.switches_here.len(), self.runtimes_here.len()) == (self.switches, self.runtimes)
    }
}
