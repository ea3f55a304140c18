//! The script of a run, drawn from its seed: the cluster's shape, which hosts talk, and which
//! faults there are.
//!
//! A script is a list of things, each of which can be taken out without changing the others: so a
//! failing one shrinks ([`crate::shrink`]). All else (when exactly a worker takes its turn, which
//! frame is lost) follows from the seed, the thing and its own past.
//!
//! ```text
//!   0 ───────── talks begin, faults come and go ─────────► heal ─► all quiet ─► early talks ─► flows end ─► late talks ─► flows end
//!              (safety: checkers look all the time)               (roomy shapes: all answered)   (all empty)  (all answered)  (all empty)
//! ```
//!
//! Two kinds of shapes: *roomy*, where nothing is ever full, so that whatever is sent after healing
//! must be answered at once; and *tight*, where buffers, queues and tables are tiny, so that new
//! flows may be refused until old ones have ended. One in eight scripts is *calm*: no fault at all,
//! and everything must be answered.
//!
//! Not here: doing it ([`crate::world`]).

use crate::Time;
use crate::changes::{Change, Snapshots};
use crate::coordinator::Joined;
pub(crate) use crate::fault::{Beyond, Fault, Timed, Whence, Who, Why};
use crate::frame::{End, PAYLOAD_MIN};
use crate::goings::Going;
use crate::kinds::Kinds;
use crate::network::Noise;
use crate::processes::Processes;
use crate::random::{Random, Stream};
use crate::scenario::{
    DENIED, OPEN, POOL, POOL_PORTS, REJECTED, SERVED, STRANGER, Scenario, VIRTUAL, Variant, even,
    inside_host, server,
};
use runtime::switch::Policy;
use std::fmt;

const MICRO: u64 = 1_000;
pub(crate) const MILLI: u64 = 1_000_000;

/// Hosts inside and servers outside.
pub(crate) const INSIDE_HOSTS: u16 = 5;
pub(crate) const SERVERS: u16 = 3;

/// The shortest way of a frame between a host and the cluster; an item on a ring between workers is
/// seen in less than this.
pub(crate) const PATH_DELAY_MIN: u64 = 5 * MICRO;

/// The shape of the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub switches: u8,
    pub runtimes: u16,
    pub ports: u8,
    /// Ports carry both sides.
    pub by_address: bool,
    /// Ports wait for their reader and lose nothing.
    pub waits: bool,
    pub policy: Policy,
    /// Packets in fragments that a worker follows.
    pub fragments_max: u32,
    /// Calls that wait at once, and packets behind them.
    pub calls_max: (u32, u32),
    pub is_roomy: bool,
    pub flows_max: u32,
    pub routes_max: u32,
    /// Of each switch's pool.
    pub buffers: u16,
    /// Of each runtime's pool.
    pub own_buffers: u16,
    /// Groups of a runtime that are on their way at once, packets kept for them, and how long each
    /// may take.
    pub moves_max: u32,
    pub kept_max: u32,
    pub move_timeout: u64,
    /// The room that rings to runtimes say they have.
    pub depth: u16,
    /// Frames that wait at a port.
    pub queue: u16,
    /// Longest time from something to do to doing it, in nanoseconds; and that of the one slow
    /// worker.
    pub pace: u64,
    pub slow: Option<(u8, u64)>,
    pub ring_delay: u64,
    /// Clocks run fast or slow by so many parts in a million.
    pub drift_ppm: u16,
    pub ethernet: bool,
    /// The cluster is several processes: links between these are channels over this network.
    pub apart: Option<Apart>,
}

/// The network between processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Apart {
    pub delay: u64,
    pub noise: Noise,
    /// Which workers are one process.
    pub processes: Processes,
    /// Frames that a channel has room for.
    pub frames: u16,
    /// Runtimes keep copies of each other's flows, which go on when one fails.
    pub copied: bool,
    /// These are taken from time to time.
    pub snapshots: Option<Snapshots>,
    /// Workers have joined a coordinator, and act by leases and views.
    pub joined: Option<Joined>,
}

/// How a talk is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    Tcp,
    Udp,
    Ping,
}

/// The fate of a talk's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// They get there, and so do the answers.
    Answered,
    /// No packet gets there; the client is told.
    Rejected,
    /// No packet gets there.
    Silent,
    /// That depends.
    Open,
}

/// When a talk begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Among the faults.
    Faults,
    /// As soon as all is healed.
    Early,
    /// When all flows have ended.
    Late,
}

/// A host asks, another answers, some times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Talk {
    pub part: Part,
    pub start: Time,
    pub manner: Manner,
    pub is_v6: bool,
    pub client: End,
    pub to: End,
    /// So many requests at once, so many times.
    pub burst: u16,
    pub rounds: u16,
    /// Between rounds.
    pub gap: u64,
    pub size: u16,
    pub fate: Fate,
}

/// Which groups move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whom {
    /// All that are at the source.
    All,
    /// Groups with a flow of this host, over IPv4.
    Host(u8),
    /// The same over IPv6.
    HostOverV6(u8),
}

/// An order to move groups: an operation as an operator plans it, no fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    pub part: Part,
    /// Since the part began.
    pub at: Time,
    pub from: u16,
    /// Where to; `None` is to all others in turn.
    pub to: Option<u16>,
    pub whom: Whom,
}

/// All of a run.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub seed: u64,
    pub scenario: Scenario,
    pub variant: Variant,
    /// Configurations that follow it.
    pub others: Vec<Variant>,
    pub shape: Shape,
    pub noise: Noise,
    pub delay: u64,
    pub kinds: Kinds,
    pub is_calm: bool,
    pub talks: Vec<Talk>,
    pub moves: Vec<Move>,
    pub changes: Vec<Change>,
    pub faults: Vec<Timed>,
    /// Runtimes that leave by plan.
    pub goings: Vec<Going>,
    /// When the last runtime begins, where no configuration lists it.
    pub comes_at: Option<Time>,
    /// When faults end.
    pub heals_at: Time,
}

impl Script {
    pub fn of(scenario: Scenario, seed: u64) -> Script {
        let mut random = Random::of(seed, Stream::Script, scenario as u64);
        let is_calm = random.once_in(8);
        let variant = Variant::draw(&mut random);
        let shape = Shape::draw(&mut random, is_calm);
        let noise = if is_calm || random.once_in(3) {
            Noise::default()
        } else {
            noise(&mut random, 1)
        };
        let span = random.between(20, 120) * MILLI;
        let mut script = Script {
            seed,
            scenario,
            variant,
            others: Vec::new(),
            shape,
            noise,
            delay: PATH_DELAY_MIN + random.below(200 * MICRO),
            kinds: Kinds::default(),
            is_calm,
            talks: Vec::new(),
            moves: Vec::new(),
            changes: Vec::new(),
            faults: Vec::new(),
            goings: Vec::new(),
            comes_at: None,
            heals_at: span,
        };
        script.draw_talks(&mut random, span);
        script.draw_apart();
        script.draw_processes();
        script.draw_moves(span);
        if !is_calm {
            script.draw_faults(&mut random, span);
        }
        script.draw_faults_apart(span);
        script.draw_failures();
        script.draw_cuts();
        script.draw_stops();
        script.draw_goings();
        script.draw_changes();
        script.keep_cuts_short();
        script.draw_kinds();
        script.draw_neighbours();
        script.faults.retain(|timed| timed.at < script.heals_at);
        script.faults.sort_by_key(|timed| timed.at);
        script
    }

    fn draw_talks(&mut self, random: &mut Random, span: Time) {
        let count = random.between(3, 14);
        for index in 0..count as u16 {
            let start = random.below(span * 3 / 4);
            let talk = self.draw_talk(random, index, Part::Faults, start);
            self.talks.push(talk);
        }
        for (part, count) in [(Part::Early, 3), (Part::Late, 4)] {
            for _ in 0..count {
                let index = self.talks.len() as u16;
                let start = random.below(2 * MILLI);
                let talk = self.draw_talk(random, index, part, start);
                self.talks.push(talk);
            }
        }
    }

    fn draw_talk(&self, random: &mut Random, index: u16, part: Part, start: Time) -> Talk {
        let scenario = self.scenario;
        let is_after = part != Part::Faults;
        // Few hosts where tables are tiny, so that there is a block of ports for each.
        let hosts = if is_after && !self.shape.is_roomy {
            2
        } else {
            u64::from(INSIDE_HOSTS)
        };
        let inside = inside_host(random.below(hosts) as u16);
        let outside = server(random.below(u64::from(SERVERS)) as u16);
        let port = 40_000 + even(index);
        let manner = random.of_these(&[Manner::Tcp, Manner::Tcp, Manner::Udp, Manner::Udp, Manner::Ping]);
        let open = random.of_these(&OPEN);
        let (client, mut to) = if scenario == Scenario::Balance {
            (outside, End::new(inside, open))
        } else {
            (inside, End::new(outside, open))
        };
        let mut fate = Fate::Answered;
        if scenario.has_balancer() && manner != Manner::Ping && random.once_in(2) {
            to = End::new(VIRTUAL[usize::from(scenario == Scenario::Balance)], SERVED);
        }
        let mut client = End::new(client, port);
        let what = random.below(8);
        if !is_after && manner != Manner::Ping && scenario.has_firewall() && what == 0 {
            to.port = random.of_these(&DENIED);
            fate = Fate::Silent;
        } else if !is_after && manner != Manner::Ping && scenario.has_firewall() && what == 1 {
            to.port = REJECTED;
            fate = Fate::Rejected;
        } else if !is_after && scenario != Scenario::Balance && what == 2 {
            (client, to) = (End::new(STRANGER, port), self.draw_target(random));
            let open = self.variant.admits_strangers(scenario);
            fate = if open { Fate::Open } else { Fate::Silent };
        }
        if manner == Manner::Ping {
            // One identifier stands for both ends.
            to.port = client.port;
        }
        let is_unasked = client.addr == STRANGER;
        Talk {
            part,
            start,
            manner,
            is_v6: false,
            client,
            to,
            burst: if is_unasked {
                1
            } else {
                random.between(1, 6) as u16
            },
            rounds: if is_after || is_unasked {
                2
            } else {
                random.between(1, 6) as u16
            },
            gap: random.of_these(&[10 * MICRO, MILLI, 5 * MILLI, 15 * MILLI]),
            size: PAYLOAD_MIN as u16 + random.below(200) as u16,
            fate,
        }
    }

    /// The end that a stranger tries.
    fn draw_target(&self, random: &mut Random) -> End {
        let inside = inside_host(random.below(u64::from(INSIDE_HOSTS)) as u16);
        if self.scenario.has_nat() && !random.once_in(3) {
            let (first, count) = POOL_PORTS;
            let port = first + random.below(u64::from(count)) as u16;
            return End::new(random.of_these(&POOL), port);
        }
        End::new(inside, 40_000 + even(random.below(14) as u16))
    }

    /// In two of three scripts with several runtimes, groups move: a few times among the faults,
    /// and while what must be answered is being said. In half of those they move all the time, back
    /// and forth, most often right behind the beginning of a talk, which then says more.
    fn draw_moves(&mut self, span: Time) {
        let mut random = Random::of(self.seed, Stream::Moves, self.scenario as u64);
        if self.shape.runtimes < 2 || random.once_in(3) {
            return;
        }
        let is_restless = random.once_in(2);
        for (part, most, time) in [
            (Part::Faults, 8, span),
            (Part::Early, 4, 20 * MILLI),
            (Part::Late, 4, 20 * MILLI),
        ] {
            let count = random.below(most) * if is_restless { 4 } else { 1 };
            for _ in 0..count {
                let at = random.below(time);
                let order = self.draw_move(&mut random, part, at, is_restless);
                self.moves.push(order);
            }
        }
        if is_restless {
            self.shape.move_timeout = random.of_these(&[1000 * MILLI, 2 * MILLI, 300 * MICRO, 50 * MICRO]);
            for talk in &mut self.talks {
                let more = random.of_these(&[1, 2, 4]);
                talk.rounds = (talk.rounds * more).min(60 / talk.burst);
                talk.gap = random.of_these(&[talk.gap, 10 * MICRO, 200 * MICRO]);
            }
            if !self.is_calm {
                self.draw_stalls(&mut random);
            }
        }
    }

    /// In one of three scripts each worker is a process: their links are channels. In three of four
    /// of those with several runtimes, these keep copies.
    fn draw_apart(&mut self) {
        let mut random = Random::of(self.seed, Stream::Apart, self.scenario as u64);
        let mut of_copies = Random::of(self.seed, Stream::Copies, self.scenario as u64);
        let (is_apart, joined) = match self.scenario.has_processes() {
            true => (true, self.draw_members()),
            false => {
                let is_apart = random.once_in(3);
                let joined = Joined::draw(self.seed, self.scenario as u64);
                (is_apart, joined.filter(|_| !is_apart))
            }
        };
        let shape = &mut self.shape;
        if !is_apart && joined.is_none() || shape.switches > 2 && shape.runtimes > 3 {
            return;
        }
        shape.apart = Some(Apart {
            delay: random.between(1, 100) * MICRO,
            processes: Processes::single(),
            noise: if self.is_calm || random.once_in(3) {
                Noise::default()
            } else {
                noise(&mut random, 1)
            },
            frames: if shape.is_roomy {
                512
            } else {
                random.of_these(&[64, 128])
            },
            copied: shape.runtimes > 1 && !of_copies.once_in(4),
            snapshots: None,
            joined,
        });
        self.variant.is_witnessed = shape.apart.is_some_and(|apart| apart.copied);
        // Packets come into buffers of the worker that receives them.
        let words = 16 * u16::from(shape.switches) + 56;
        shape.own_buffers = words
            + if shape.is_roomy {
                512
            } else {
                random.between(64, 128) as u16
            };
        shape.buffers = if shape.is_roomy {
            768
        } else {
            random.between(80, 160) as u16
        };
        // A flow must live longer than whatever holds up its packets within the cluster.
        self.variant.timeout_ms = 8000;
    }

    /// Processes that do not reach each other for a while, and such that die alone.
    fn draw_faults_apart(&mut self, span: Time) {
        if self.shape.apart.is_none() || self.is_calm {
            return;
        }
        let mut random = Random::of(self.seed, Stream::Apart, 16 + self.scenario as u64);
        let workers = u64::from(self.shape.switches) + u64::from(self.shape.runtimes);
        for _ in 0..random.below(4) {
            let from = random.below(workers) as u8;
            let to = ((u64::from(from) + 1 + random.below(workers - 1)) % workers) as u8;
            let fault = Fault::Partition {
                from,
                to,
                back: random.once_in(2),
                time: random.between(MILLI / 2, 20 * MILLI),
            };
            self.faults.push(Timed {
                at: random.below(span),
                fault,
            });
        }
        if random.once_in(2) {
            for _ in 0..random.between(1, 2) {
                let who = random.below(workers);
                self.keep_clocks_slow(who as u8);
                let who = Who::Worker(who as u8, random.between(MILLI / 10, 20 * MILLI));
                self.faults.push(Timed {
                    at: random.below(span),
                    fault: Fault::Crash { who },
                });
            }
        }
    }

    /// A switch that begins again waits a time for what runtimes have to tell, and goes on without
    /// those that have not: by a clock that leaps over that time it does so at once, and for a
    /// moment flows are at two runtimes (docs/status.md).
    pub(crate) fn keep_clocks_slow(&mut self, worker: u8) {
        if self.shape.has_switch(worker) {
            for timed in &mut self.faults {
                if let Fault::Jump { by, .. } = &mut timed.fault {
                    *by = 10 * MILLI;
                }
            }
        }
    }

    /// Workers that do nothing just when groups are on their way.
    fn draw_stalls(&mut self, random: &mut Random) {
        let workers = u64::from(self.shape.switches) + u64::from(self.shape.runtimes);
        for order in &self.moves {
            if order.part == Part::Faults && random.once_in(2) {
                let fault = Fault::Stall {
                    worker: random.below(workers) as u8,
                    time: random.of_these(&[100 * MICRO, MILLI, 10 * MILLI]),
                };
                let at = order.at + random.below(500 * MICRO);
                self.faults.push(Timed { at, fault });
            }
        }
    }

    fn draw_move(&self, random: &mut Random, part: Part, at: Time, is_restless: bool) -> Move {
        let runtimes = u64::from(self.shape.runtimes);
        let from = random.below(runtimes) as u16;
        let other = (from + 1 + random.below(runtimes - 1) as u16) % runtimes as u16;
        let talks = self.talks.iter().filter(|talk| talk.part == part);
        let starts: Vec<Time> = talks.map(|talk| talk.start).collect();
        let is_behind = is_restless && !starts.is_empty() && !random.once_in(3);
        let all = if is_restless { 4 } else { 2 };
        Move {
            part,
            at: if is_behind {
                random.of_these(&starts) + random.below(3 * MILLI)
            } else {
                at
            },
            from,
            to: (!random.once_in(4)).then_some(other),
            whom: if random.below(all) > 0 {
                Whom::All
            } else {
                Whom::Host(random.below(u64::from(INSIDE_HOSTS + SERVERS)) as u8)
            },
        }
    }

    fn draw_faults(&mut self, random: &mut Random, span: Time) {
        let workers = u64::from(self.shape.switches) + u64::from(self.shape.runtimes);
        for _ in 0..random.below(7) {
            let at = random.below(span);
            let time = random.between(MILLI / 2, 20 * MILLI);
            let worker = random.below(workers) as u8;
            let fault = match random.below(16) {
                0..6 => Fault::Stall { worker, time },
                6..8 => Fault::Jump {
                    worker: self.moves.is_empty().then_some(worker),
                    by: random.of_these(&[10 * MILLI, 300 * MILLI, 9000 * MILLI]),
                },
                8..11 => Fault::Storm {
                    noise: noise(random, 5),
                    time,
                },
                11..15 => {
                    let way = random.below(3);
                    Fault::Cut {
                        host: random.below(u64::from(INSIDE_HOSTS + SERVERS)) as u8,
                        to: way != 1,
                        from: way != 0,
                        time,
                    }
                }
                _ => Fault::Crash { who: Who::All },
            };
            self.faults.push(Timed { at, fault });
        }
    }

    /// Whether whatever comes in of a talk that must be answered must leave: there is room for all
    /// of it, no clock jumps, no worker crashes, and the network at most loses packets and slows
    /// them. A packet that it damages, doubles or delays may come when its flow is over, or not
    /// begun.
    pub fn loses_nothing(&self) -> bool {
        let is_mild = |noise: &Noise| {
            let only_loses = Noise {
                lost: noise.lost,
                bandwidth: noise.bandwidth,
                ..Noise::default()
            };
            *noise == only_loses
        };
        self.shape.is_roomy
            && is_mild(&self.noise)
            && self.faults.iter().all(|timed| match &timed.fault {
                Fault::Stall { .. } | Fault::Stop { .. } | Fault::Cut { .. } | Fault::Partition { .. } => {
                    true
                }
                Fault::Storm { noise, .. } => is_mild(noise),
                _ => false,
            })
            && (self.joined().is_none() || self.is_calm)
    }

    /// Whether workers are given up that live.
    pub fn has_silence(&self) -> bool {
        let is_silence = |timed: &Timed| matches!(timed.fault, Fault::Silence { .. });
        self.faults.iter().any(is_silence)
    }

    /// Whether clocks jump.
    pub fn has_jumps(&self) -> bool {
        let is_jump = |timed: &Timed| matches!(timed.fault, Fault::Jump { .. });
        self.faults.iter().any(is_jump)
    }

    /// Whether single workers crash, or are given up.
    pub fn loses_workers(&self) -> bool {
        let is_one = |timed: &Timed| match timed.fault {
            Fault::Crash { who } => who != Who::All,
            Fault::Silence { .. } => true,
            _ => false,
        };
        self.faults.iter().any(is_one) || self.joined().is_some() && !self.is_calm
    }

    /// How long leases and the like last, where workers have joined a coordinator.
    pub fn joined(&self) -> Option<Joined> {
        self.shape.apart?.joined
    }

    /// Whether runtimes keep copies of each other's flows.
    pub fn is_copied(&self) -> bool {
        self.shape.apart.is_some_and(|apart| apart.copied)
    }

    /// Whether no flow may be lost: one runtime crashes at a time, once all is copied; there is
    /// room for all, and groups move only when all is healed. With a coordinator nothing else goes
    /// wrong ([`Script::draw_removals`]).
    pub fn keeps_flows(&self) -> bool {
        let is_alone = |timed: &Timed| matches!(timed.fault, Fault::Crash { .. } | Fault::Silence { .. });
        let is_lossless = |timed: &Timed| match timed.fault {
            Fault::Crash { who } => match who {
                Who::Copied(worker, _) => !self.shape.has_switch(worker),
                _ => false,
            },
            Fault::Silence { worker, why, .. } => why.is_copied() && !self.shape.has_switch(worker),
            Fault::Jump { .. } => false,
            _ => true,
        };
        self.is_copied()
            && self.shape.is_roomy
            && self.moves.iter().all(|order| order.part != Part::Faults)
            && self.faults.iter().all(is_lossless)
            && (self.joined().is_none() || self.is_calm || self.faults.iter().all(is_alone))
    }

    /// The first worker of those that have tables of routes in common with this one.
    pub fn tables_of(&self, worker: usize) -> usize {
        match self.scenario.has_neighbours() && self.shape.apart.is_some() {
            true => self.shape.first_of(worker),
            false => 0,
        }
    }

    /// The name of a worker by its number: switches come first.
    pub fn worker(&self, worker: u8) -> String {
        match worker.checked_sub(self.shape.switches) {
            None => format!("switch {worker}"),
            Some(runtime) => format!("runtime {runtime}"),
        }
    }
}

fn noise(random: &mut Random, times: u16) -> Noise {
    let mut per_mille = |most: u16| random.below(u64::from(most * times) + 1) as u16;
    Noise {
        lost: per_mille(20),
        doubled: per_mille(20),
        reordered: per_mille(20),
        corrupted: per_mille(10),
        jitter: random.of_these(&[0, 0, 20 * MICRO, 500 * MICRO]),
        bandwidth: random.of_these(&[0, 0, 2_000_000, 50_000_000]),
    }
}

impl Shape {
    fn draw(random: &mut Random, is_calm: bool) -> Shape {
        let switches = random.of_these(&[1, 1, 2, 2, 3]);
        let runtimes = random.of_these(&[1, 2, 2, 3, 4]);
        let is_roomy = is_calm || random.once_in(2);
        let by_address = random.once_in(4);
        let waits = random.once_in(4);
        // Buffers that a runtime keeps for a step's words; four that are ready for what functions
        // emit, and one to answer with, or more to move flows (`mobility`).
        let messages = 16 * u16::from(switches) + if runtimes > 1 { 80 } else { 5 };
        let workers = u64::from(switches) + u64::from(runtimes);
        let tight = |random: &mut Random, least: u64, most: u64| random.between(least, most) as u16;
        Shape {
            switches,
            runtimes,
            ports: if by_address { switches } else { switches.max(2) },
            by_address,
            waits,
            policy: random.of_these(&[
                Policy::LeastLoaded,
                Policy::RoundRobin,
                Policy::RoundRobin,
                Policy::Maglev,
            ]),
            fragments_max: 16,
            calls_max: (4, 16),
            is_roomy,
            flows_max: if is_roomy {
                128
            } else {
                random.between(4, 20) as u32
            },
            routes_max: if is_roomy {
                1024
            } else {
                random.between(16, 64) as u32
            },
            buffers: if is_roomy { 512 } else { tight(random, 16, 80) },
            own_buffers: messages + if is_roomy { 64 } else { tight(random, 0, 6) },
            depth: match (is_roomy, waits) {
                (true, _) => 512,
                // Less than two bursts is drops with some room to spare: where ports wait, none is
                // wanted.
                (_, true) => tight(random, 64, 96),
                _ => tight(random, 8, 96),
            },
            queue: if is_roomy { 1024 } else { tight(random, 4, 64) },
            pace: random.of_these(&[500, 5 * MICRO, 50 * MICRO]),
            slow: (!random.once_in(3)).then(|| {
                (
                    random.below(workers) as u8,
                    random.of_these(&[100 * MICRO, MILLI]),
                )
            }),
            ring_delay: random.below(PATH_DELAY_MIN),
            drift_ppm: if is_calm { 0 } else { random.below(200) as u16 },
            ethernet: random.once_in(2),
            apart: None,
            moves_max: random.of_these(&[1, 2, 256]),
            kept_max: if is_roomy {
                4096
            } else {
                random.between(0, 16) as u32
            },
            move_timeout: random.of_these(&[1000 * MILLI, 1000 * MILLI, 2 * MILLI, 50 * MICRO]),
        }
    }
}

impl fmt::Display for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let manner = match self.manner {
            Manner::Tcp => "TCP",
            Manner::Udp => "UDP",
            Manner::Ping => "ping",
        };
        let when = match self.part {
            Part::Faults => format!("at {}", crate::timeline::Millis(self.start)),
            Part::Early => "after healing".to_owned(),
            Part::Late => "after all flows' end".to_owned(),
        };
        let times = usize::from(self.rounds) * usize::from(self.burst);
        write!(
            f,
            "{manner}{} {} to {}, {times} requests, {when}",
            if self.is_v6 { " over IPv6" } else { "" },
            self.client,
            self.to
        )?;
        match self.fate {
            Fate::Answered => Ok(()),
            Fate::Rejected => f.write_str(", to be rejected"),
            Fate::Silent => f.write_str(", to be dropped"),
            Fate::Open => f.write_str(", passed or not"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_one_script() {
        for seed in 0..300 {
            let (one, other) = (
                Script::of(Scenario::Gateway, seed),
                Script::of(Scenario::Gateway, seed),
            );
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
            assert!(one.talks.iter().map(|talk| talk.rounds * talk.burst).max() <= Some(64));
            assert!(one.shape.ring_delay < 2 * PATH_DELAY_MIN);
        }
    }
}
