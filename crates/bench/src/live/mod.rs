//! `bench live`: the chain on a live wire against the kernel's own forwarding, on the same wires in
//! the same run.
//!
//! # Method
//!
//! *The task*, the same for both ([`site`]): UDP of 64 bytes in both directions, from inside hosts
//! to a service and back, many flows in turn; stateful filtering that lets nothing else pass;
//! source NAT onto one address; routing; with or without a load balancer of two servers. The kernel
//! does it by nftables (conntrack, masquerade, dnat by `numgen`), Flowkeep by firewall → NAT →
//! (load balancer) → forward. Before anything is measured the tester looks at the packets that come
//! out: every flow translated as it should be, checksums right, one hop less; every reply back at
//! its host; packets that the rules refuse, in both directions, nowhere. The replies that are then
//! sent are made from the packets seen, since the two choose ports of their own.
//!
//! *The load* costs the same for both: prepared frames, put on the wire as a driver forwards them
//! ([`adapters::interface::offer`]), in turns of 64 in each direction, by the clock, whether they
//! are lost or not (an open loop). Only packets that the far ends' interfaces have received count.
//! A load is kept up for a moment, then the next; runs of the two alternate, first one first and
//! then the other.
//!
//! *The placement*: the sender is on one processor, Flowkeep's threads are on another. The
//! gateway's ends of the wires are polled where a veth pair does it by itself, in the sender's
//! softirq: so the kernel's forwarding is done there, as is the part that the kernel does for
//! AF_XDP. (Threads of the kernel that poll would make frames outlive the call that sends them,
//! which makes those calls dear, so they are not measured.)
//!
//! Both go before everything else on the machine (real-time priority), and while a load is kept up
//! the two processors do nothing else: the sender waits for its time without sleeping, and a thread
//! burns the time that Flowkeep leaves of its processor. Burnt time is in no account. So neither
//! finds its caches full of others' work; it is for tenths of seconds at a time.
//!
//! *The figure* is packets that arrived per core second, whosever they were ([`meter`]): `machine`
//! is the time of all processors that was not idle or stolen; `threads` the time of the threads
//! that take part, which is the same on a quiet machine; `net` is `threads` less the cost of
//! sending alone, measured in the same run by sending the same load into a wire whose end loses
//! everything at once. The ends' work for a frame that arrives (count and drop) is in all of them.
//!
//! Not here: physical interfaces; the kernel's flow tables (this compares with conntrack and
//! filter, as configured above).

mod frames;
mod meter;
mod site;
mod table;

use super::Report;
use super::report::{Case, Facts, Live, Parameters};
use adapters::clock::{CycleRate, allowed_cpus, monotonic_ns, pin_to, thread_ns};
use adapters::interface::Interface;
use adapters::interface::offer::{OFFERED, Offer, TOGETHER, lose_everything};
use adapters::machine::{CpuTimes, Machine, load_average};
use adapters::open::{BoxPort, Ports};
use frames::{Outside, PORT, REFUSED, SERVER, Text, VIRTUAL, client, link};
use lab::process::Run;
use meter::{Burner, Passed, Threads};
use runtime::env::Burst;
use site::{ENDS, PARKS, Processors, Site, System};
use std::time::Duration;
use wire::Pool;

pub use table::table;

/// The measurements.
#[derive(Clone, Debug)]
pub struct LiveSettings {
    /// Rounds, in each of which both are measured with every load.
    pub runs: usize,
    /// Numbers of flows.
    pub flows: Vec<u32>,
    /// Kind of Flowkeep's ports.
    pub port: &'static str,
    /// Frames per second, both directions together; 0 is as fast as can be.
    pub loads: Vec<u32>,
    /// How long a load is kept up.
    pub moment: Duration,
}

/// More flows have no room in one address's ports, by blocks of 64.
const FLOWS_MAX: u32 = 40_000;
/// Frames per second while flows are opened.
const OPENING: f64 = 40_000.0;
/// Frames that nothing may come of.
const REFUSALS: u32 = 64;
/// How long a sent packet may be on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(30);

/// A failure, in words.
type Failure = String;

fn said(error: impl std::fmt::Display) -> Failure {
    error.to_string()
}

/// Measures, on a thread of its own that moves between the wires' namespaces.
pub fn run(settings: &LiveSettings) -> Result<Report, Failure> {
    if let Some(flows) = settings
        .flows
        .iter()
        .find(|flows| **flows > FLOWS_MAX || **flows == 0)
    {
        return Err(format!("{flows} flows cannot be measured here: 1 to {FLOWS_MAX}"));
    }
    let settings = settings.clone();
    let thread = std::thread::spawn(move || measure(&settings));
    thread
        .join()
        .unwrap_or_else(|_| Err("the measuring thread has failed".into()))
}

fn measure(settings: &LiveSettings) -> Result<Report, Failure> {
    let cpus = allowed_cpus();
    let on = match cpus[..] {
        [sender, device, ..] => Processors { sender, device },
        _ => return Err("this needs two processors: one that sends, one for Flowkeep".into()),
    };
    let (machine, times, load) = (Machine::read(), CpuTimes::read(), load_average());
    let rate = CycleRate::calibrate(Duration::from_millis(20));
    let site = Site::build().map_err(said)?;
    site.tester.enter().map_err(said)?;
    pin_to(on.sender).map_err(said)?;
    let burner = Burner::on(on.device);
    // Flowkeep is started by this thread, and so goes before others as it does. Without the right
    // to that, they go as all others.
    for (thread, priority) in [
        (rustix::thread::gettid().as_raw_pid() as u32, 50),
        (burner.thread, 1),
    ] {
        let words = format!("chrt -f -p {priority} {thread}");
        let _ = site.tester.run(&words, Run::within(Duration::from_secs(10)));
    }
    let mut cases = Vec::new();
    for &flows in &settings.flows {
        for balanced in [false, true] {
            let rounds = (0..settings.runs)
                .map(|run| round(&site, settings, (flows, balanced), on, &burner, run))
                .collect::<Result<Vec<Round>, Failure>>()?;
            cases.extend(cases_of(settings, flows, balanced, &rounds));
        }
    }
    Ok(Report {
        scenario: "live".into(),
        command: "flowkeep bench live".into(),
        machine: Facts {
            cpu_model: machine.cpu_model,
            cpus: machine.cpus,
            pinned_to: Some(on.sender),
            kernel: machine.kernel,
            virtual_machine: machine.virtual_machine,
            cycles_per_second: rate.hertz,
            pages: "transparent".into(),
            huge_bytes: 0,
            table_bytes: 0,
            load_average: load,
            stolen: CpuTimes::read().stolen_since(&times),
        },
        seed: 0,
        cases,
    })
}

/// The result of one load.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    sent: u64,
    passed: Passed,
    /// Core seconds of sending alone, for one frame.
    alone: f64,
}

impl Sample {
    fn per_second(&self, frames: u64) -> f64 {
        frames as f64 / self.passed.seconds
    }

    /// Nanoseconds for each frame that arrived.
    fn each(&self, seconds: f64) -> f64 {
        seconds * 1e9 / self.passed.arrived.max(1) as f64
    }

    fn lost(&self) -> f64 {
        self.sent.saturating_sub(self.passed.arrived) as f64 / self.sent.max(1) as f64
    }

    fn net(&self) -> f64 {
        let seconds = self.passed.threads() - self.alone * self.sent as f64;
        // A moment in which the sender was kept from sending says nothing.
        if seconds > 0.0 {
            self.passed.arrived as f64 / seconds
        } else {
            0.0
        }
    }
}

/// By system, the kernel first, and load.
type Round = Vec<Vec<Sample>>;

fn round(
    site: &Site,
    settings: &LiveSettings,
    (flows, balanced): (u32, bool),
    on: Processors,
    burner: &Burner,
    run: usize,
) -> Result<Round, Failure> {
    let alone = alone(settings, burner)?;
    let systems = [System::Kernel, System::Flowkeep(settings.port)];
    let mut round = vec![Vec::new(); systems.len()];
    // Each is first in its turn.
    for turn in 0..systems.len() {
        let index = (run + turn) % systems.len();
        let system = systems[index];
        let device = site.place(system, balanced, on).map_err(said)?;
        let offers =
            open(system, flows, balanced).map_err(|problem| format!("{}: {problem}", system.name()))?;
        let threads = Threads {
            processes: device.process().into_iter().collect(),
        };
        for (&load, &alone) in settings.loads.iter().zip(&alone) {
            let (sent, passed) = send(&offers, &ENDS, load, settings.moment, &threads, burner)?;
            round[index].push(Sample { sent, passed, alone });
        }
        if let Some(report) = device.stop().map_err(said)? {
            balance(&report)?;
        }
    }
    Ok(round)
}

/// The cost of sending alone, by load: core seconds for a frame.
fn alone(settings: &LiveSettings, burner: &Burner) -> Result<Vec<f64>, Failure> {
    let index = |name| {
        Interface::find(name)
            .map(|interface| interface.index)
            .map_err(said)
    };
    let _lost = lose_everything(index("sink")?).map_err(said)?;
    let text = Text {
        source: client(0),
        destination: (SERVER, PORT),
        flow: 0,
    };
    let offer = |parked| {
        Offer::new(
            index("probe")?,
            Some(index(parked)?),
            &[frames::write(&text, link::INSIDE, link::LEFT)],
        )
        .map_err(said)
    };
    let offers = [offer(PARKS[0])?, offer(PARKS[1])?];
    let each = settings.loads.iter().map(|load| {
        let (sent, passed) = send(
            &offers,
            &["sink"],
            *load,
            settings.moment,
            &Threads::default(),
            burner,
        )?;
        if passed.arrived < sent / 2 {
            return Err(format!(
                "of {sent} frames sent into a wire, {} arrived",
                passed.arrived
            ));
        }
        Ok(passed.sender / sent.max(1) as f64)
    });
    each.collect()
}

/// Keeps a load up for a moment; answers how many frames were sent, and what it came to.
fn send(
    offers: &[Offer; 2],
    ends: &[&str],
    load: u32,
    moment: Duration,
    threads: &Threads,
    burner: &Burner,
) -> Result<(u64, Passed), Failure> {
    const TURN: u64 = TOGETHER as u64;
    burner.burn(true);
    let before = threads.now(ends, Some(burner));
    let began = monotonic_ns();
    let (mut sent, mut skipped, mut sending_ns) = (0_u64, 0_u64, 0_u64);
    loop {
        let now = monotonic_ns() - began;
        if now >= moment.as_nanos() as u64 {
            break;
        }
        let due = match load {
            0 => sent + TURN,
            load => ((now as f64 / 1e9) * f64::from(load)) as u64 - skipped,
        };
        let behind = due.saturating_sub(sent);
        if behind < TURN {
            std::hint::spin_loop();
            continue;
        }
        // A sender that was kept from sending for long does not make up for it in one burst.
        skipped += behind.saturating_sub(TURN * 8);
        let called = thread_ns();
        offers[(sent / TURN % 2) as usize]
            .send(TOGETHER)
            .map_err(|error| format!("frames cannot be sent: {error}"))?;
        sending_ns += thread_ns() - called;
        sent += TURN;
    }
    std::thread::sleep(ON_ITS_WAY);
    let mut passed = threads.now(ends, Some(burner)).since(&before, sending_ns);
    burner.burn(false);
    // Packets on their way are in it, the pause for them is not.
    passed.seconds = moment.as_secs_f64();
    // The kernel keeps a part of each second from threads that go before all others. This pause
    // leaves more than that, and other threads have their time.
    std::thread::sleep(moment * 2);
    Ok((sent, passed))
}

/// Listens at an end, while nothing is measured.
struct Ear {
    port: BoxPort,
    pool: Pool,
}

impl Ear {
    fn at(end: &str) -> Result<Self, Failure> {
        let mut port = Ports::new()
            .open_input(&format!("afpacket:{end}?take=everything"))
            .map_err(said)?;
        let mut pool = adapters::buffers::pool(256, port.frame_max(), 0).map_err(said)?;
        port.attach(&mut pool).map_err(said)?;
        Ok(Ear { port, pool })
    }

    /// Frames that have come in since, as far as they are ours.
    fn heard(&mut self) -> Result<Vec<Text>, Failure> {
        let mut all = Vec::new();
        let mut burst = Burst::new();
        loop {
            self.port.receive(0, &mut self.pool, &mut burst);
            if burst.is_empty() {
                return Ok(all);
            }
            for packet in burst.drain(..) {
                if let Some(text) = frames::read(packet.frame()) {
                    all.push(text?);
                }
                self.pool.give(packet);
            }
        }
    }
}

/// Sends every frame once, slowly; `each` is called in between.
fn once(offer: &Offer, count: u32, mut each: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    const STEP: u32 = 16;
    for begin in (0..count).step_by(STEP as usize) {
        offer.send(STEP.min(count - begin)).map_err(said)?;
        std::thread::sleep(Duration::from_secs_f64(f64::from(STEP) / OPENING));
        each()?;
    }
    std::thread::sleep(ON_ITS_WAY);
    each()
}

/// Opens all flows and looks at the packets that come out; answers the load of both directions.
fn open(system: System, flows: u32, balanced: bool) -> Result<[Offer; 2], Failure> {
    let index = |name| {
        Interface::find(name)
            .map(|interface| interface.index)
            .map_err(said)
    };
    let (inside, outside) = (index("client")?, index("server")?);
    let service = if balanced { VIRTUAL } else { SERVER };
    let out = |port: u16, parked| {
        let frame = |flow| Text {
            source: client(flow),
            destination: (service, port),
            flow,
        };
        let frames: Vec<_> = (0..flows)
            .map(|flow| frames::write(&frame(flow), link::INSIDE, link::LEFT))
            .collect();
        Offer::new(inside, parked, &frames).map_err(said)
    };
    let parks = [index(PARKS[0])?, index(PARKS[1])?];
    let forth = out(PORT, Some(parks[0]))?;
    let mut ear = Ear::at("server")?;
    let mut seen = Outside::new(flows);
    // Some may be lost while tables are read and memory is touched for the first time.
    for _ in 0..5 {
        if seen.missing() == 0 {
            break;
        }
        once(&forth, flows, || {
            let mut heard = ear.heard()?.into_iter();
            heard.try_for_each(|text| seen.take(text, system.translated(), balanced))
        })?;
    }
    if seen.missing() > 0 {
        return Err(format!("{} of {flows} flows do not come out", seen.missing()));
    }
    once(&out(REFUSED, None)?, REFUSALS.min(flows), || {
        match ear.heard()?.first() {
            Some(text) => Err(format!("{text:?}: no rule lets it pass")),
            None => Ok(()),
        }
    })?;
    drop(ear);
    let back = replies(outside, parks[1], &seen)?;
    heard_inside(&back, outside, &seen, system, service)?;
    Ok([forth, back])
}

fn replies(outside: u32, parked: u32, seen: &Outside) -> Result<Offer, Failure> {
    let texts = seen.seen.iter().flatten();
    let frames: Vec<[u8; OFFERED]> = texts
        .map(|text| {
            let reply = Text {
                source: text.destination,
                destination: text.source,
                flow: text.flow,
            };
            frames::write(&reply, link::OUTSIDE, link::RIGHT)
        })
        .collect();
    Offer::new(outside, Some(parked), &frames).map_err(said)
}

/// Every reply comes to its host, and nothing that no host asked for.
fn heard_inside(
    back: &Offer,
    outside: u32,
    seen: &Outside,
    system: System,
    service: std::net::Ipv4Addr,
) -> Result<(), Failure> {
    let mut ear = Ear::at("client")?;
    let flows = seen.seen.len() as u32;
    let mut came = vec![false; flows as usize];
    for _ in 0..5 {
        if came.iter().all(|came| *came) {
            break;
        }
        once(back, flows, || {
            for text in ear.heard()? {
                if (text.source, text.destination) != ((service, PORT), client(text.flow)) {
                    return Err(format!("{text:?}: a reply is not translated back"));
                }
                came[text.flow as usize] = true;
            }
            Ok(())
        })?;
    }
    let missing = came.iter().filter(|came| !**came).count();
    if missing > 0 {
        return Err(format!("{missing} of {flows} replies do not come back"));
    }
    let stranger = std::net::Ipv4Addr::new(198, 51, 100, 66);
    let unasked: Vec<_> = (0..REFUSALS)
        .map(|number| Text {
            source: (stranger, 53),
            destination: (system.translated(), 1024 + 512 * number as u16),
            flow: number,
        })
        .map(|text| frames::write(&text, link::OUTSIDE, link::RIGHT))
        .collect();
    let unasked = Offer::new(outside, None, &unasked).map_err(said)?;
    once(&unasked, REFUSALS, || match ear.heard()?.first() {
        Some(text) => Err(format!("{text:?}: no host asked for it")),
        None => Ok(()),
    })
}

/// In + made = out + held + dropped.
fn balance(report: &str) -> Result<(), Failure> {
    let line = report.lines().last().unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(line).map_err(said)?;
    let packets = &report["packets"];
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    let dropped: u64 = packets["dropped"]
        .as_object()
        .map_or(0, |dropped| dropped.values().map(number).sum());
    let came = number(&packets["in"]) + number(&packets["made"]);
    let went = number(&packets["out"]) + number(&packets["held"]) + dropped;
    if std::env::var_os("FLOWKEEP_BENCH_LIVE_TELL").is_some() {
        eprintln!("{line}");
    }
    match came > 0 && came == went {
        true => Ok(()),
        false => Err(format!("flowkeep's books do not balance: {packets}")),
    }
}

/// The figures of some rounds, by load.
fn cases_of(settings: &LiveSettings, flows: u32, balanced: bool, rounds: &[Round]) -> Vec<Case> {
    let systems = [System::Kernel, System::Flowkeep(settings.port)];
    let mut cases = Vec::new();
    for (at, load) in settings.loads.iter().enumerate() {
        let parameters = Parameters {
            flows,
            popularity: "in turn",
            frame_bytes: OFFERED,
            packets_per_run: (f64::from(*load) * settings.moment.as_secs_f64()) as usize,
            live: Some(Live {
                load_balancer: balanced,
                port: settings.port,
                offered_per_second: *load,
            }),
        };
        type Figure = (&'static str, &'static str, fn(&Sample) -> f64);
        let figures: [Figure; 9] = [
            ("net", "packets per core second", Sample::net),
            ("threads", "packets per core second", |s| {
                s.passed.arrived as f64 / s.passed.threads().max(1e-9)
            }),
            ("machine", "packets per core second", |s| {
                s.passed.arrived as f64 / s.passed.machine.max(1e-9)
            }),
            ("offered", "packets per second", |s| s.per_second(s.sent)),
            ("forwarded", "packets per second", |s| {
                s.per_second(s.passed.arrived)
            }),
            ("lost", "of all sent", Sample::lost),
            ("time of who sends", "nanoseconds per packet", |s| {
                s.each(s.passed.sender)
            }),
            ("time of others", "nanoseconds per packet", |s| {
                s.each(s.passed.others)
            }),
            ("sending alone", "nanoseconds per packet", |s| s.alone * 1e9),
        ];
        for (metric, unit, figure) in figures {
            let of = |index: usize| {
                let samples = rounds.iter().map(|round| figure(&round[index][at])).collect();
                Case::new(systems[index].name(), parameters.clone(), metric, unit, samples)
            };
            let kernel = of(0);
            cases.extend((1..systems.len()).map(|index| of(index).against(&kernel)));
            cases.push(kernel);
        }
    }
    cases
}
