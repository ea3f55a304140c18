//! The thread that follows the kernel for chains that forward: its tables go to the workers, their
//! wishes to it.
//!
//! ```text
//!   kernel ──netlink──► Watcher ──network──► tables by port ──publish──► Feed ──► workers
//!          ◄──resolve── this thread ◄──wanted neighbours──────────────── Feed ◄──
//! ```
//!
//! The first tables are there before any worker starts. Neighbours that have gone stale are
//! confirmed a few at a time, since the kernel sees none of the traffic to them. New tables make
//! each flow look for its way again, so none are published for a neighbour that is as it was.
//!
//! Not here: netlink (`adapters::netlink`), look-ups (`functions::forward`).

use super::build::RunError;
use adapters::netlink::{Network, RouteKind, Watcher};
use functions::forward::tables::{Interface, Kind, Neighbour, Route, Way};
use functions::forward::{Feed, Supply};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a worker's wish may lie.
const LOOK: Duration = Duration::from_millis(5);
/// How often stale neighbours are looked for, and how many are confirmed then.
const REFRESH: Duration = Duration::from_secs(1);
const REFRESHED: usize = 64;

/// The thread, which ends with this.
pub(super) struct Kernel {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A port of the cluster, by its number.
#[derive(Default)]
pub(super) struct PortName {
    pub name: String,
    /// The interface that its address names, if it names one.
    pub interface: Option<String>,
}

impl Kernel {
    /// Publishes the kernel's tables for these ports, and goes on doing so.
    pub fn follow(supply: &Supply, ports: &[PortName]) -> Result<Self, RunError> {
        for name in supply.interfaces.keys() {
            if !ports.iter().any(|port| port.name == *name) {
                return Err(RunError::NoSuchPort { port: name.clone() });
            }
        }
        let of = |port: &PortName| {
            supply
                .interfaces
                .get(&port.name)
                .or(port.interface.as_ref())
                .cloned()
        };
        let names: Vec<Option<String>> = ports.iter().map(of).collect();
        let mut watcher = Watcher::open().map_err(RunError::Kernel)?;
        let is_there = |name: &String| watcher.network().links.values().any(|link| link.name == *name);
        if let Some(missing) = names.iter().flatten().find(|name| !is_there(name)) {
            let all: Vec<_> = watcher
                .network()
                .links
                .values()
                .map(|link| link.name.as_str())
                .collect();
            return Err(RunError::NoSuchInterface {
                interface: missing.clone(),
                there_are: all.join(", "),
            });
        }
        // Random: no other process has it.
        supply.feed.distinguish(RandomState::new().hash_one(0_u8));
        publish(&supply.feed, watcher.network(), &names);
        let stop = Arc::new(AtomicBool::new(false));
        let (ends, feed) = (stop.clone(), supply.feed.clone());
        let thread = std::thread::Builder::new().name("kernel".into()).spawn(move || {
            let mut wanted = Vec::new();
            let mut refreshed = Instant::now();
            while !ends.load(Ordering::Relaxed) {
                match watcher.wait(LOOK) {
                    Ok(true) => publish(&feed, watcher.network(), &names),
                    Ok(false) => {}
                    // The watcher has told it before: a shortage. The tables stay as they are
                    // meanwhile.
                    Err(_) => std::thread::sleep(LOOK),
                }
                feed.take_wanted(&mut wanted);
                for (link, neighbour) in wanted.drain(..) {
                    // Without the right to, or with a full table, the packet's patience ends and
                    // its sender is told.
                    let _ = watcher.resolve(link, neighbour);
                }
                if refreshed.elapsed() >= REFRESH {
                    refreshed = Instant::now();
                    let ours: Vec<u32> = interfaces(watcher.network(), &names)
                        .iter()
                        .map(|i| i.index)
                        .collect();
                    let _ = watcher.refresh(&ours, REFRESHED);
                }
            }
        });
        Ok(Kernel {
            stop,
            thread: Some(thread.map_err(RunError::Thread)?),
        })
    }
}

/// The interfaces that ports are, and the tagged ones on them, as far as they are up.
fn interfaces(network: &Network, names: &[Option<String>]) -> Vec<Interface> {
    let mut found = Vec::new();
    for link in network.links.values().filter(|link| link.is_up) {
        let (parent, vlan) = link.vlan.unwrap_or((link.index, 0));
        let Some(base) = network.links.get(&parent) else {
            continue;
        };
        let Some(port) = names.iter().position(|name| name.as_ref() == Some(&base.name)) else {
            continue;
        };
        let Some(address) = link.address else { continue };
        found.push(Interface {
            index: link.index,
            port: port as u8,
            vlan,
            link: address,
            mtu: link.mtu,
            addresses: network.addresses.get(&link.index).cloned().unwrap_or_default(),
        });
    }
    found
}

fn publish(feed: &Feed, network: &Network, names: &[Option<String>]) {
    let route = |route: &adapters::netlink::Route| Route {
        to: route.to,
        kind: match route.kind {
            RouteKind::Unicast => Kind::Forward,
            RouteKind::Local => Kind::Local,
            RouteKind::Broadcast => Kind::Broadcast,
            RouteKind::Unreachable => Kind::Unreachable,
            RouteKind::Prohibited => Kind::Prohibited,
            RouteKind::Blackhole => Kind::Blackhole,
        },
        ways: route
            .ways
            .iter()
            .map(|way| Way {
                interface: way.link,
                gateway: way.gateway,
                weight: way.weight,
            })
            .collect(),
        // Table before metric.
        metric: u32::from(route.rank.0) << 30 | route.rank.1.min((1 << 30) - 1),
        mtu: route.mtu,
    };
    let neighbours: Vec<Neighbour> = network
        .neighbours
        .iter()
        .map(|((interface, address), neighbour)| Neighbour {
            interface: *interface,
            address: *address,
            link: neighbour.link,
        })
        .collect();
    let routes = network.routes.iter().map(route).collect();
    feed.publish(interfaces(network, names), routes, &neighbours);
}

#[cfg(test)]
mod tests {
    use super::*;
    use adapters::netlink::Link;
    use lab::{Lab, LabError};
    use std::collections::BTreeMap;

    #[test]
    fn a_tagged_interface_has_the_port_of_the_one_it_is_on() {
        let link = |index, name: &str, vlan| Link {
            index,
            name: name.to_string(),
            address: Some([2, 0, 0, 0, 0, index as u8]),
            mtu: 1500,
            is_up: index != 9,
            vlan,
        };
        let mut network = Network::default();
        for link in [
            link(2, "eth0", None),
            link(3, "eth1", None),
            link(4, "eth1.20", Some((3, 20))),
            link(5, "eth2", None),
            link(9, "eth1.30", Some((3, 30))),
        ] {
            network.links.insert(link.index, link);
        }
        let names = [Some("eth0".to_string()), None, Some("eth1".to_string())];
        let found: Vec<_> = interfaces(&network, &names)
            .iter()
            .map(|i| (i.index, i.port, i.vlan))
            .collect();
        assert_eq!(found, [(2, 0, 0), (3, 2, 0), (4, 2, 20)]);
    }

    /// The generation of the tables once there has been no other one for a while.
    fn settled(feed: &Feed) -> u32 {
        let (mut generation, mut since) = (feed.generation(), Instant::now());
        while since.elapsed() < Duration::from_millis(500) {
            if feed.generation() != generation {
                (generation, since) = (feed.generation(), Instant::now());
            }
            std::thread::sleep(LOOK);
        }
        generation
    }

    #[test]
    fn a_neighbour_that_goes_stale_or_is_confirmed_keeps_the_generation() {
        let mut lab = match Lab::new() {
            Ok(lab) => lab,
            Err(LabError::NotRoot) => return println!("not run: needs root"),
            Err(error) => panic!("{error}"),
        };
        let (host, other) = (lab.namespace("host").unwrap(), lab.namespace("other").unwrap());
        for namespace in [&host, &other] {
            // Routes of addresses that the kernel makes come seconds later.
            namespace.set("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        }
        lab.cable((&host, "eth0"), (&other, "eth0")).unwrap();
        host.address("eth0", "10.0.0.1/24").unwrap();
        let feed = Arc::<Feed>::default();
        let supply = Supply {
            feed: feed.clone(),
            interfaces: BTreeMap::new(),
        };
        let neighbour = |last: u8, state: &str| {
            let words = format!("neigh replace 10.0.0.9 lladdr 02:00:00:00:00:0{last} dev eth0 nud {state}");
            host.ip(&words).unwrap();
            settled(&feed)
        };
        std::thread::scope(|scope| {
            let follows = scope.spawn(|| {
                host.enter().unwrap();
                let port = PortName {
                    name: "lan".into(),
                    interface: Some("eth0".into()),
                };
                Kernel::follow(&supply, &[port]).unwrap()
            });
            let _kernel = follows.join().unwrap();
            let known = neighbour(7, "reachable");
            assert_eq!(neighbour(7, "stale"), known);
            assert_eq!(neighbour(7, "reachable"), known);
            assert_ne!(neighbour(8, "reachable"), known, "another link address");
        });
    }
}
