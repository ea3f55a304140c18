//! The forwarding step: a router's duties to a packet before it leaves.
//!
//! It is the last function of its chain, whichever way a packet runs ([`NetworkFunction::LAST`]),
//! so it sees the destination that all others have made. A chain without it is a bridge: packets
//! leave as they are, by the port of their side.
//!
//! # Theory of operation
//!
//! ```text
//!   10.0.0.5 > 192.0.2.9, TTL 64, from port lan
//!     a damaged header                                      dropped, and not answered
//!     source or destination that no router forwards         dropped, by name
//!     10.0.0.5 is not reached by eth0                       dropped: `reverse_path`
//!     192.0.2.9: by 203.0.113.254 on eth1, port wan         no route: answered
//!       its link address is not known                       the packet waits, the kernel is asked; in vain: answered
//!     TTL 1                                                 answered: Time Exceeded
//!     longer than eth1's MTU                                DF or IPv6: answered: too big; else in parts
//!     TTL 63, eth1's link address > the router's, out by wan
//! ```
//!
//! Routes, neighbours and interfaces are the kernel's, or another publisher's: [`Feed`]. A flow
//! keeps its way out, each way, with the generation of the tables in which it was found
//! ([`state`]), so its usual packet is compared, not looked up. On another host it is looked up
//! again: generations are told apart by host.
//!
//! *Waiting.* While a neighbour is resolved, the packets for it wait ([`NetworkFunction::process`]
//! is asynchronous), within the runtime's bounds on waiting and on calls that wait for one thing;
//! other flows go on. The kernel does the asking. When tables come, calls that wait look at them
//! ([`Cx::changed`]). After [`Config::resolve_timeout`] all that wait are answered at once, and the
//! neighbour is *silent* for a while: packets for it are answered without a wait ([`resolving`]).
//!
//! *Sources* (RFC 3704) are checked where a flow is opened, and with each of its packets that way:
//! the one that the first function of the chain saw, against the interface by which the packet came
//! ([`config::ReversePath`]). A flow whose first packet is refused is over, with what the functions
//! before took for it. Not checked are replies (a function may have translated their source, and
//! they begin nothing), ICMP errors (they come from routers on the way), and packets that a
//! function made.
//!
//! *Errors* are sent from the address of the interface by which the packet came in, within a budget
//! per second, and never about an error, a later fragment, or a packet that was sent to many
//! ([`wire::answer`]). Errors that tell an MTU have a budget of their own, so a flood of packets
//! without hops makes no black hole of a narrow link. Errors go back through the functions that the
//! packet had passed, so a NAT translates them with the packet they quote, and then through this
//! step, which finds their way. A packet that cannot be answered is dropped, by the same name as
//! the error that would have been sent, and costs nothing of the budget.
//!
//! | counter | what |
//! |---|---|
//! | `time_exceeded`, `too_big`, `unreachable` | errors sent |
//! | `errors_limited` | errors not sent because there had been too many in that second |
//! | `fragmented` | packets sent in parts |
//! | `waited` | packets that waited for a neighbour's link address |
//! | `looked_up` | packets for which the tables were looked at |
//!
//! Invariants: every packet that leaves has one hop less, a right IPv4 header checksum, and the
//! link addresses of the way that the tables in force, or the ones just before, say; no packet
//! longer than the MTU leaves; no header that came in damaged leaves, mended or not; no packet waits
//! for a neighbour longer than [`Config::resolve_timeout`].
//!
//! A packet that may be cut makes [`split::PARTS_MAX`] parts at most, since a call emits so many
//! packets. A packet that would make more is told as if it must not be cut: most senders then cut
//! the next ones themselves.
//!
//! Not here: the kernel's tables ([`Feed`] is filled by the tool), ARP and neighbour discovery (the
//! kernel's business), multicast routing, redirects (RFC 1812 5.2.7.2 lets a router leave them
//! out), router advertisements, policy routing.
//!
//! Sources: RFC 1812 4.2.2.11, 4.3.2, 5.2, 5.3; RFC 8200 3, 5; RFC 4443 2.4, 3; RFC 1191; RFC 3927
//! 7; RFC 2644; RFC 5095.

pub mod config;
pub mod feed;
pub mod ranges;
mod refuse;
mod resolving;
mod reverse;
mod split;
pub mod state;
pub mod tables;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use feed::Feed;
pub use state::{Flow, Way};
pub use tables::Tables;

use crate::budget::Budget;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;
use core::cell::RefCell;
use nf::{ConfigError, Cx, Keep, NetworkFunction, Packet, Verdict, WorkerInfo, network_function, reason};
use resolving::{Resolving, Wanted};
use reverse::Origin;
use tables::{Found, Kind};
use wire::answer::Unreachable;
use wire::packet::flag;
use wire::planted;

/// The facts that the publisher of the tables needs.
#[derive(Clone, Debug)]
pub struct Supply {
    /// Where they go.
    pub feed: Arc<Feed>,
    /// Names of interfaces by those of ports.
    pub interfaces: BTreeMap<String, String>,
}

/// How long until the next look, in nanoseconds, where another worker was at the tables, or at the
/// list of wishes, just then.
const LOOK: u64 = 2_000_000;

/// The forwarding step of one runtime.
pub struct Forward {
    feed: Arc<Feed>,
    tables: RefCell<Arc<Tables>>,
    errors: Budget,
    /// For errors that tell an MTU.
    too_long: Budget,
    resolving: RefCell<Resolving>,
    reverse_path: config::ReversePath,
}

#[network_function]
impl NetworkFunction for Forward {
    const NAME: &'static str = "forward";
    const COUNTERS: &'static [&'static str] = &[
        /// ICMP errors that were sent since a TTL was over.
        "time_exceeded",
        /// ICMP errors that were sent since a packet was longer than the next MTU.
        "too_big",
        /// ICMP errors that were sent since no route or neighbour was there.
        "unreachable",
        /// ICMP errors that were not sent: there had been too many.
        "errors_limited",
        /// Packets that were cut into fragments.
        "fragmented",
        /// Packets that waited for a neighbour's link address.
        "waited",
        /// Packets whose route was looked up, since their flow had none that counts.
        "looked_up",
    ];
    const REASONS: &'static [&'static str] = &[
        /// The checksum of its IPv4 header is wrong (RFC 1812 5.2.2).
        "bad_header_checksum",
        /// A source or destination that no packet on a wire has (RFC 1812 5.3.7).
        "martian",
        /// With a source route, or an IPv6 routing header of type 0 (RFC 5095).
        "source_routed",
        /// A link-local address: such packets stay on their link.
        "link_local",
        /// To a multicast address.
        "multicast",
        /// To a broadcast address.
        "broadcast",
        /// To an address of the host itself.
        "for_this_host",
        /// The kernel's route is `blackhole`.
        "blackhole",
        /// The kernel's route is `prohibit`.
        "prohibited",
        /// The kernel has no route.
        "no_route",
        /// Its source is not reached by the port that it came in by (RFC 3704).
        "reverse_path",
        /// Its neighbour does not answer ARP or neighbour discovery.
        "unresolved",
        /// As many packets wait for neighbours as may.
        "neighbours_full",
        /// Its TTL or hop limit is used up.
        "ttl_exceeded",
        /// Longer than the next link takes, and not to be fragmented.
        "too_big",
        /// Longer than the next link takes, and of more parts than one packet is cut into: eight.
        "too_many_parts",
        /// Under an MPLS label, which leads one way.
        "labelled",
        /// No buffer is free for its fragments.
        "no_buffer",
    ];
    const ICMP_ERRORS: bool = false;
    const LAST: bool = true;
    const BEGINS_AGAIN: bool = true;
    type Config = Config;
    type Flow = Flow;
    type Group = ();

    fn new(config: &Arc<Config>, worker: &WorkerInfo) -> Result<Self, ConfigError> {
        let nanoseconds = |time: core::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Ok(Forward {
            feed: config.feed.clone(),
            tables: RefCell::new(config.feed.in_force()),
            errors: Budget::new(config.errors_per_second),
            too_long: Budget::new(config.errors_per_second),
            resolving: RefCell::new(Resolving::new(
                nanoseconds(config.resolve_timeout),
                nanoseconds(config.silent_for),
                worker.seed,
            )),
            reverse_path: config.reverse_path,
        })
    }

    /// The kernel is followed for the interfaces that there were at the start.
    fn succeed(config: &mut Config, before: &Config) -> Result<(), ConfigError> {
        if config.interfaces != before.interfaces {
            return Err(ConfigError::new(
                "interfaces",
                "ports are on other interfaces than at the start",
                "restart",
            ));
        }
        config.feed = before.feed.clone();
        Ok(())
    }

    fn take_over(&self, before: &Self) {
        self.tables.borrow_mut().clone_from(&before.tables.borrow());
        self.resolving.borrow_mut().take_over(&before.resolving.borrow());
    }

    /// Its ways are looked up again: its source may be checked otherwise.
    fn configured(&self, flow: &mut Flow, _: &mut Cx<Self>) -> Keep {
        *flow = Flow::default();
        Keep::Keep
    }

    fn generation(&self) -> u32 {
        self.feed.generation()
    }

    fn feed(config: &Config) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(Supply {
            feed: config.feed.clone(),
            interfaces: config.interfaces.clone(),
        }))
    }

    #[inline]
    fn process_now(&self, packet: &mut Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Option<Verdict> {
        let known = self.tables.borrow().generation();
        if self.feed.generation() != known && !(known > 0 && planted::is("tables_kept")) {
            self.renew();
        }
        if packet.has(flag::HAIRPIN) {
            return Some(self.turn(packet, flow, cx));
        }
        self.step(packet, flow, cx)
    }

    async fn process(&self, packet: &mut Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Verdict {
        let verdict = loop {
            if let Found::Unresolved(interface, neighbour) = self.look_up(packet, cx) {
                let neighbour = (interface, neighbour);
                let mut wait = match self.want(neighbour, cx) {
                    Wanted::Wait(until) => until.saturating_sub(cx.clock()).min(resolving::AGAIN),
                    Wanted::Silent => break self.silent(packet, cx),
                    Wanted::NoRoom => break cx.drop("neighbours_full"),
                };
                if !self.resolving.borrow().is_asked(neighbour) || self.is_behind() {
                    wait = wait.min(LOOK);
                }
                let number = self.resolving.borrow().number(neighbour);
                cx.changed(number, wait).await;
            }
            self.renew();
            if let Some(verdict) = self.step(packet, flow, cx) {
                break verdict;
            }
        };
        // Once, wherever it has begun.
        cx.count("waited");
        verdict
    }
}

#[nf::network_function]
impl Forward {
    /// Takes newer tables, if they are to be had just now.
    #[cold]
    fn renew(&self) {
        if let Some(tables) = self.feed.tables()
            && tables.generation() != self.tables.borrow().generation()
        {
            let is_found = |(interface, address)| tables.has_neighbour(interface, address);
            self.resolving.borrow_mut().forget_found(is_found);
            *self.tables.borrow_mut() = tables;
        }
    }

    /// Whether there are newer tables that were not to be had.
    fn is_behind(&self) -> bool {
        self.tables.borrow().generation() != self.feed.generation()
    }

    fn want(&self, neighbour: resolving::Neighbour, cx: &Cx<Self>) -> Wanted {
        let ask = || self.feed.want(neighbour.0, neighbour.1);
        let tables = self.tables.borrow().generation();
        self.resolving
            .borrow_mut()
            .want(neighbour, tables, cx.clock(), ask)
    }

    /// For a packet whose neighbour does not answer.
    #[cold]
    fn silent(&self, packet: &mut Packet, cx: &mut Cx<Self>) -> Verdict {
        self.unreachable(packet, cx, reason!(Forward, "unresolved"), Unreachable::Host)
    }

    fn look_up(&self, packet: &Packet, cx: &Cx<Self>) -> Found {
        // One flow, one way: by its key, which both directions have.
        let hash = cx.key().hash(&wire::HashSeed::FIXED);
        self.tables.borrow().look_up(packet.destination_addr(), hash)
    }

    /// Forwards, refuses or answers a packet; `None`, and nothing is changed, if its neighbour's
    /// link address is not known.
    #[inline]
    fn step(&self, packet: &mut Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Option<Verdict> {
        let destination = packet.destination_addr().low_u32();
        let tables = self.tables.borrow();
        let way = &mut flow.ways[cx.direction() as usize];
        let known = way.generation == tables.generation()
            && way.destination == destination
            && (way.arrival == 0 || tables.is_arrival(way.arrival, packet.port(), packet.vlan()));
        if !known {
            drop(tables);
            return self.first_step(packet, flow, cx);
        }
        if let Some(reason) = refuse::reason_on_the_way(packet) {
            return Some(cx.drop(reason));
        }
        let (hop, mtu) = (way.hop, u32::from(way.mtu));
        let Some(hop) = tables.hop(hop).copied() else {
            // The generation says that it is there.
            return Some(cx.drop("no_route"));
        };
        drop(tables);
        if packet.ttl() <= 1 || length_of(packet) > mtu {
            return Some(self.unusual(packet, cx, &hop, mtu));
        }
        Some(send(packet, cx, &hop))
    }

    /// [`Forward::step`] for a packet whose way is not known, or that has none.
    #[cold]
    #[inline(never)]
    fn first_step(&self, packet: &mut Packet, flow: &mut Flow, cx: &mut Cx<Self>) -> Option<Verdict> {
        if let Some(reason) = refuse::reason(packet) {
            return Some(cx.drop(reason));
        }
        let origin = self.origin(packet, cx);
        if origin == Origin::Spoofed {
            return Some(cx.drop("reverse_path"));
        }
        match self.look_up(packet, cx) {
            Found::Hop(hop, mtu) => {
                cx.count("looked_up");
                let tables = self.tables.borrow();
                let generation = tables.generation();
                let found = tables.hop(hop).copied();
                drop(tables);
                let Some(way_out) = found else {
                    // The tables say that it is there.
                    return Some(cx.drop("no_route"));
                };
                if let Origin::Right(arrival) = origin {
                    flow.ways[cx.direction() as usize] = Way {
                        generation,
                        destination: packet.destination_addr().low_u32(),
                        hop,
                        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
                        arrival,
                    };
                }
                let hop = way_out;
                if packet.ttl() <= 1 || length_of(packet) > mtu {
                    return Some(self.unusual(packet, cx, &hop, mtu));
                }
                Some(send(packet, cx, &hop))
            }
            Found::Unresolved(interface, neighbour) => match self.want((interface, neighbour), cx) {
                Wanted::Wait(_) => None,
                Wanted::Silent => Some(self.silent(packet, cx)),
                Wanted::NoRoom => Some(cx.drop("neighbours_full")),
            },
            Found::Refused(kind) => Some(self.refuse(packet, cx, kind)),
        }
    }

    /// A packet that has no hop left, or is too long.
    #[cold]
    #[inline(never)]
    fn unusual(&self, packet: &mut Packet, cx: &mut Cx<Self>, hop: &tables::Hop, mtu: u32) -> Verdict {
        if packet.ttl() <= 1 {
            return self.time_exceeded(packet, cx);
        }
        let whole = !packet.has(flag::CUT_SHORT);
        let may_be_cut = packet.version() == 4 && packet.network()[6] & 0x40 == 0 && whole;
        if !may_be_cut {
            return self.too_big(packet, cx, reason!(Forward, "too_big"), mtu);
        }
        let Some(plan) = split::Plan::of(packet, mtu) else {
            // The sender cuts the next ones, once it knows: else they would go into a black hole.
            return self.too_big(packet, cx, reason!(Forward, "too_many_parts"), mtu);
        };
        let sent = send(packet, cx, hop);
        if sent != Verdict::Forward {
            return sent;
        }
        for n in 1..=plan.later() {
            let whole: &Packet = packet;
            let filled = cx.emit(nf::Way::Onward, |part| {
                let written = plan.write(whole, n, part);
                part.set_egress(hop.port);
                written
            });
            if !filled {
                return cx.drop("no_buffer");
            }
        }
        if !plan.cut(packet) {
            return cx.drop("too_big");
        }
        cx.count("fragmented");
        Verdict::Forward
    }

    #[cold]
    fn refuse(&self, packet: &mut Packet, cx: &mut Cx<Self>, kind: Kind) -> Verdict {
        match kind {
            Kind::Local => cx.drop("for_this_host"),
            Kind::Broadcast => cx.drop("broadcast"),
            Kind::Blackhole | Kind::Forward => cx.drop("blackhole"),
            Kind::Prohibited => self.unreachable(
                packet,
                cx,
                reason!(Forward, "prohibited"),
                Unreachable::Prohibited,
            ),
            Kind::Unreachable => {
                self.unreachable(packet, cx, reason!(Forward, "no_route"), Unreachable::NoRoute)
            }
        }
    }
}

/// Length of the IP packet, as its header says.
#[inline]
fn length_of(packet: &Packet) -> u32 {
    let header = packet.network();
    let word = |at: usize| match header.get(at..at + 2) {
        Some(bytes) => u32::from(u16::from_be_bytes([bytes[0], bytes[1]])),
        None => 0,
    };
    if packet.version() == 4 {
        word(2)
    } else {
        40 + word(4)
    }
}

/// Takes a hop off and writes the way in front.
#[inline]
#[nf::network_function]
fn send(packet: &mut Packet, cx: &mut Cx<Forward>, hop: &tables::Hop) -> Verdict {
    // More than one, so this works.
    packet.decrement_ttl();
    if !packet.set_ethernet(hop.to, hop.from, hop.vlan) {
        let is_labelled = packet.has(flag::LABELLED);
        return cx.drop(if is_labelled { "labelled" } else { "no_buffer" });
    }
    packet.set_egress(hop.port);
    Verdict::Forward
}
