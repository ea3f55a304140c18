//! Looking inside while packets pass: a trace says the truth about its packets, and a capture has
//! as many packets as the figures say.

use crate::cluster::{Lines, Ran, Shape, finish, start};
use adapters::memory::{Frame, MemoryEnd};
use adapters::open::Ports;
use flowkeep::capture::{CapturePoint, Wanted};
use flowkeep::cluster::{Cluster, Observed, Subject, Watching};
use flowkeep::control::client::Client;
use flowkeep::control::server::Server;
use flowkeep::control::{Answer, Observe, Request};
use flowkeep::run::Running;
use flowkeep::trace::{Event, Step};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Addr, Endpoint, FlowKey, LinkType, hostile, protocol};

type End = ([u8; 4], u16);

const HOST: End = ([10, 0, 0, 1], 5000);
const SERVICE: End = ([192, 0, 2, 1], 80);
const SERVER: End = ([198, 51, 100, 1], 8080);
const SYN: u8 = 2;
const ACK: u8 = 16;
/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const FUNCTIONS: &str = r#"
[[chain]]
name = "gateway"
functions = ["firewall", "nat", "load_balancer"]

[[function.firewall.rules]]
name = "web"
destination_ports = [80, 53]
action = "allow"

[function.nat]
pool = ["203.0.113.0/30"]

[[function.load_balancer.services]]
name = "web"
addresses = ["192.0.2.1"]
ports = 80
protocol = "tcp"
backends = [{ name = "one", endpoint = "198.51.100.1:8080" }]
"#;

struct Rig {
    running: Running,
    lines: Lines,
    lan: MemoryEnd,
    world: MemoryEnd,
}

impl Rig {
    fn new(shape: Shape, clock: &str, sides: [&str; 2], functions: &str) -> Self {
        let port = |name: &str, side: &str| {
            let uri = format!("memory:{name}");
            format!("[[port]]\nname = \"{name}\"\nside = \"{side}\"\ninput = \"{uri}\"\noutput = \"{uri}\"\n")
        };
        let toml = format!(
            "clock = \"{clock}\"\n{}{}{}{functions}",
            shape.toml(4096),
            port("lan", sides[0]),
            port("world", sides[1]),
        );
        let mut ports = Ports::new();
        let (lan, world) = (ports.memory("lan"), ports.memory("world"));
        let (running, lines) = start(&toml, ports);
        Rig {
            running,
            lines,
            lan,
            world,
        }
    }

    fn gateway(shape: Shape) -> Self {
        Rig::new(shape, "machine", ["inside", "outside"], FUNCTIONS)
    }

    #[track_caller]
    fn take(from: &MemoryEnd) -> Vec<u8> {
        let began = Instant::now();
        loop {
            if let Some(Frame { bytes, .. }) = from.take() {
                return bytes;
            }
            assert!(began.elapsed() < PATIENCE, "nothing comes");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn stop(self, what: &str) -> Ran {
        self.lan.close();
        self.world.close();
        finish(self.running.wait(|_| {}), &self.lines, what)
    }
}

fn tcp(from: End, to: End, flags: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    let packet = etherparse::PacketBuilder::ipv4(from.0, to.0, 64);
    let mut packet = packet.tcp(from.1, to.1, if flags & SYN != 0 { 100 } else { 101 }, 1000);
    if flags & SYN != 0 {
        packet = packet.syn();
    }
    if flags & ACK != 0 {
        packet = packet.ack(101);
    }
    packet.write(&mut frame, &[]).expect("a vector grows");
    frame
}

/// Source and destination of a TCP or UDP packet without options.
fn ends(packet: &[u8]) -> (End, End) {
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let addr = |at: usize| [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]];
    ((addr(12), port(20)), (addr(16), port(22)))
}

fn text((addr, port): End) -> String {
    Endpoint::new(Addr::v4(addr), port).to_string()
}

fn key(protocol: u8, from: End, to: End) -> FlowKey {
    let end = |(addr, port): End| Endpoint::new(Addr::v4(addr), port);
    FlowKey::new(end(from), end(to), protocol, 0).0
}

/// Fetches steps until so many packets are out or dropped; by packet.
#[track_caller]
fn steps(watching: &mut dyn Watching, packets: usize) -> BTreeMap<u64, Vec<Step>> {
    let began = Instant::now();
    let mut all: BTreeMap<u64, Vec<Step>> = BTreeMap::new();
    loop {
        let observed = watching.take();
        assert_eq!(observed.steps_lost, 0);
        for step in observed.steps {
            all.entry(step.packet).or_default().push(step);
        }
        let done = all
            .values()
            .filter(|steps| steps.last().is_some_and(|step| step.event.is_last()));
        if done.count() >= packets {
            return all;
        }
        assert!(began.elapsed() < PATIENCE, "{all:#?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Checks the trace of a packet that came in with one pair of ends and left with another: each
/// function begins with the ends that the one before left, and the last ends with those that left.
#[track_caller]
fn check(steps: &[Step], came: (End, End), went: (End, End), functions: [&str; 3], ports: [&str; 2]) {
    let Event::In { port, ends, .. } = &steps[0].event else {
        panic!("{steps:#?}")
    };
    assert_eq!(
        (port.as_str(), &ends.source, &ends.destination),
        (ports[0], &text(came.0), &text(came.1))
    );
    let mut now = ends.clone();
    let mut passed = Vec::new();
    for step in steps {
        if let Event::Function {
            function,
            verdict,
            changed,
            ..
        } = &step.event
        {
            assert_eq!(verdict, "forward", "{steps:#?}");
            assert!(step.worker.starts_with("runtime "), "{steps:#?}");
            passed.push(function.as_str());
            if let Some(change) = changed {
                assert_eq!(change.before, now, "{steps:#?}");
                now = change.after.clone();
            }
        }
    }
    assert_eq!(passed, functions, "{steps:#?}");
    let Some(Event::Out { port, ends }) = steps.last().map(|step| &step.event) else {
        panic!("{steps:#?}")
    };
    assert_eq!(*ends, now, "{steps:#?}");
    assert_eq!(
        (port.as_str(), &ends.source, &ends.destination),
        (ports[1], &text(went.0), &text(went.1)),
        "{steps:#?}"
    );
    let routed = steps
        .iter()
        .filter(|step| matches!(step.event, Event::Routed { .. }));
    assert_eq!(routed.count(), 1, "{steps:#?}");
}

fn flow_is<'a>(steps: &'a [Step]) -> Vec<&'a str> {
    let is = |step: &'a Step| match &step.event {
        Event::Flow { is } => Some(is.as_str()),
        _ => None,
    };
    steps.iter().filter_map(is).collect()
}

const THERE: [&str; 3] = ["firewall", "nat", "load_balancer"];
const BACK: [&str; 3] = ["load_balancer", "nat", "firewall"];

fn a_connection_is_traced(shape: Shape) {
    let rig = Rig::gateway(shape);
    let cluster = rig.running.cluster();
    let subject = |key, packets| Subject::Flow { key, packets };
    let mut watching = cluster
        .watch(&subject(key(protocol::TCP, HOST, SERVICE), 1000))
        .unwrap();
    // There is no flow yet. Other flows pass as well, and are not watched.
    let others = |number: u16| ([10, 0, 1, number as u8], 7000 + number);
    for number in 0..50 {
        rig.lan.push(&tcp(others(number), SERVICE, SYN), LinkType::Raw);
        Rig::take(&rig.world);
    }
    rig.lan.push(&tcp(HOST, SERVICE, SYN), LinkType::Raw);
    let out = ends(&Rig::take(&rig.world));
    assert_eq!(out.1, SERVER);
    let seen = steps(&mut *watching, 1);
    assert_eq!(seen.len(), 1, "{seen:#?}");
    check(&seen[&1], (HOST, SERVICE), out, THERE, ["lan", "world"]);
    assert_eq!(flow_is(&seen[&1]), ["launched"]);
    let second = seen[&1].iter().find_map(|step| match &step.event {
        Event::ReplyKey { ends } => Some(ends.clone()),
        _ => None,
    });
    let second = second.expect("it is translated");
    assert_eq!((second.source, second.destination), (text(out.0), text(out.1)));
    // The reply, whose key the watch did not name.
    rig.world.push(&tcp(SERVER, out.0, SYN | ACK), LinkType::Raw);
    let back = ends(&Rig::take(&rig.lan));
    assert_eq!(back, (SERVICE, HOST));
    let seen = steps(&mut *watching, 1);
    assert_eq!(seen.len(), 1, "{seen:#?}");
    check(&seen[&2], (SERVER, out.0), back, BACK, ["world", "lan"]);
    assert_eq!(flow_is(&seen[&2]), ["found"]);
    // By the key outside, a flow that is there.
    drop(watching);
    let mut watching = cluster
        .watch(&subject(key(protocol::TCP, SERVER, out.0), 2))
        .unwrap();
    for _ in 0..5 {
        rig.lan.push(&tcp(HOST, SERVICE, ACK), LinkType::Raw);
        Rig::take(&rig.world);
    }
    let seen = steps(&mut *watching, 2);
    assert_eq!(seen.len(), 2, "as many as were asked for: {seen:#?}");
    for steps in seen.values() {
        check(steps, (HOST, SERVICE), out, THERE, ["lan", "world"]);
    }
    drop(watching);
    rig.stop("trace");
}

#[test]
fn a_trace_says_what_the_functions_did() {
    for (switches, runtimes) in [(1, 1), (1, 3), (2, 2), (3, 2)] {
        a_connection_is_traced(Shape::of(runtimes).with_switches(switches));
    }
    a_connection_is_traced(Shape::of(2).with_switches(2).on_one_thread());
}

#[test]
fn a_trace_shows_who_refuses_a_packet_and_why() {
    let rig = Rig::gateway(Shape::of(2).with_switches(2));
    let to = (SERVICE.0, 22);
    let cluster = rig.running.cluster();
    let mut watching = cluster
        .watch(&Subject::Flow {
            key: key(protocol::TCP, HOST, to),
            packets: 10,
        })
        .unwrap();
    for number in 1..=3 {
        rig.lan.push(&tcp(HOST, to, SYN), LinkType::Raw);
        let seen = steps(&mut *watching, 1);
        let steps = &seen[&number];
        assert_eq!(flow_is(steps), ["launched"], "{steps:#?}");
        let told: Vec<&Event> = steps.iter().map(|step| &step.event).rev().take(2).collect();
        let dropped = Event::Dropped {
            function: Some("firewall".into()),
            reason: "not_allowed".into(),
        };
        assert_eq!(*told[0], dropped);
        let Event::Function {
            function, verdict, ..
        } = told[1]
        else {
            panic!("{steps:#?}")
        };
        assert_eq!((function.as_str(), verdict.as_str()), ("firewall", "drop"));
    }
    drop(watching);
    let ran = rig.stop("refused");
    assert_eq!(ran.dropped()[&("firewall", "not_allowed")], 3);
}

#[test]
fn an_answer_is_traced_back_to_who_asked() {
    let functions = FUNCTIONS.replace(
        "destination_ports = [80, 53]\naction = \"allow\"",
        "action = \"reject\"",
    );
    let functions = functions.replace(
        "[\"firewall\", \"nat\", \"load_balancer\"]",
        "[\"nat\", \"firewall\"]",
    );
    let rig = Rig::new(
        Shape::of(2).with_switches(2),
        "machine",
        ["inside", "outside"],
        &functions,
    );
    let cluster = rig.running.cluster();
    let mut watching = cluster
        .watch(&Subject::Flow {
            key: key(protocol::TCP, HOST, SERVICE),
            packets: 10,
        })
        .unwrap();
    rig.lan.push(&tcp(HOST, SERVICE, SYN), LinkType::Raw);
    let answer = ends(&Rig::take(&rig.lan));
    assert_eq!(answer, (SERVICE, HOST));
    let seen = steps(&mut *watching, 1);
    let said: Vec<(&str, &str)> = (seen[&1].iter())
        .filter_map(|step| match &step.event {
            Event::Function {
                function, verdict, ..
            } => Some((function.as_str(), verdict.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(
        said,
        [("nat", "forward"), ("firewall", "answer"), ("nat", "forward")]
    );
    let Some(Event::Out { port, ends }) = seen[&1].last().map(|step| &step.event) else {
        panic!("{seen:#?}")
    };
    let expected = ("lan", &text(answer.0), &text(answer.1));
    assert_eq!((port.as_str(), &ends.source, &ends.destination), expected);
    drop(watching);
    rig.stop("answer");
}

#[test]
fn a_trace_follows_a_hairpin() {
    let functions = "[[chain]]\nname = \"gateway\"\nfunctions = [\"nat\"]\n\
                     [function.nat]\npool = [\"203.0.113.0/30\"]\nfiltering = \"endpoint-independent\"\n";
    let udp = |from: End, to: End| {
        let mut frame = Vec::new();
        let packet = etherparse::PacketBuilder::ipv4(from.0, to.0, 64).udp(from.1, to.1);
        packet.write(&mut frame, b"hello").expect("a vector grows");
        frame
    };
    for switches in [1, 2] {
        let shape = Shape::of(2).with_switches(switches);
        let rig = Rig::new(shape, "machine", ["inside", "outside"], functions);
        let other = ([10, 0, 0, 2], 6000);
        let world = ([198, 51, 100, 9], 53);
        rig.lan.push(&udp(other, world), LinkType::Raw);
        let outside = ends(&Rig::take(&rig.world)).0;
        let cluster = rig.running.cluster();
        let mut watching = cluster
            .watch(&Subject::Flow {
                key: key(protocol::UDP, HOST, outside),
                packets: 10,
            })
            .unwrap();
        rig.lan.push(&udp(HOST, outside), LinkType::Raw);
        let came = ends(&Rig::take(&rig.lan));
        assert_eq!(came.1, other);
        let seen = steps(&mut *watching, 1);
        let steps = &seen[&1];
        assert_eq!(seen.len(), 1, "{seen:#?}");
        let turns = steps.iter().filter(|step| step.event == Event::Turned);
        assert_eq!(turns.count(), 1, "{steps:#?}");
        assert_eq!(
            flow_is(steps).len(),
            2,
            "once on each side of the turn: {steps:#?}"
        );
        let Some(Event::Out { ends, .. }) = steps.last().map(|step| &step.event) else {
            panic!("{steps:#?}")
        };
        assert_eq!((&ends.source, &ends.destination), (&text(came.0), &text(came.1)));
        drop(watching);
        rig.stop("hairpin");
    }
}

#[test]
fn an_error_that_quotes_the_flow_is_traced_with_it() {
    let rig = Rig::gateway(Shape::of(2).with_switches(2));
    rig.lan.push(&tcp(HOST, SERVICE, SYN), LinkType::Raw);
    let sent = Rig::take(&rig.world);
    let mapped = ends(&sent).0;
    let cluster = rig.running.cluster();
    let mut watching = cluster
        .watch(&Subject::Flow {
            key: key(protocol::TCP, HOST, SERVICE),
            packets: 10,
        })
        .unwrap();
    let mut error = Vec::new();
    let unreachable =
        etherparse::Icmpv4Type::DestinationUnreachable(etherparse::icmpv4::DestUnreachableHeader::Host);
    etherparse::PacketBuilder::ipv4([198, 51, 100, 254], mapped.0, 64)
        .icmpv4(unreachable)
        .write(&mut error, &sent[..28])
        .unwrap();
    rig.world.push(&error, LinkType::Raw);
    Rig::take(&rig.lan);
    let seen = steps(&mut *watching, 1);
    let Event::In {
        is_error, protocol, ..
    } = &seen[&1][0].event
    else {
        panic!("{seen:#?}")
    };
    assert_eq!((*is_error, protocol.as_str()), (true, "icmp"));
    assert_eq!(flow_is(&seen[&1]), ["found"]);
    drop(watching);
    rig.stop("error");
}

fn everything() -> Wanted {
    Wanted {
        incoming: true,
        outgoing: true,
        dropped: true,
        filter: None,
        snap_length: 262_144,
        buffer_bytes: Some(512 << 20),
    }
}

/// Fetches until the cluster has ended.
fn watch_to_the_end(mut watching: Box<dyn Watching>) -> std::thread::JoinHandle<Vec<Observed>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        loop {
            let observed = watching.take();
            let is_over = observed.is_over;
            all.push(observed);
            if is_over {
                return all;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    })
}

/// Valid packets and broken ones, into both ports.
fn feed(rig: &Rig, seed: u64, packets: usize) -> FlowKey {
    let (mut time, mut random) = (1_000_000_000_u64, hostile::Random::new(seed));
    let frames = hostile::valid(seed, packets / 2).chain(hostile::packets(!seed, packets / 2));
    let ports = [&rig.lan, &rig.world];
    for (link, bytes) in frames {
        time += random.below(1_000_000) as u64;
        let frame = Frame {
            timestamp: time,
            ..Frame::new(&bytes, link)
        };
        ports[random.below(2)].push_frame(frame);
        if random.once_in(4) {
            let host = ([10, 0, 0, random.below(8) as u8], 5000);
            let frame = Frame {
                timestamp: time,
                ..Frame::new(&tcp(host, SERVICE, SYN), LinkType::Raw)
            };
            rig.lan.push_frame(frame);
        }
    }
    key(protocol::TCP, ([10, 0, 0, 1], 5000), SERVICE)
}

fn a_capture_adds_up(shape: Shape, seed: u64) {
    let rig = Rig::new(shape, "capture", ["by-address", "outside"], FUNCTIONS);
    let cluster = rig.running.cluster();
    let capture = watch_to_the_end(cluster.watch(&Subject::Packets(everything())).unwrap());
    let subject = Subject::Flow {
        key: key(protocol::TCP, ([10, 0, 0, 1], 5000), SERVICE),
        packets: 100_000,
    };
    let trace = watch_to_the_end(cluster.watch(&subject).unwrap());
    feed(&rig, seed, 4000);
    let what = format!("{shape:?}, seed {seed}");
    let ran = rig.stop(&what);
    let (mut came, mut went) = (0, 0);
    let mut dropped = BTreeMap::<String, u64>::new();
    for observed in capture.join().unwrap() {
        assert!(observed.lost.is_empty(), "{what}: {:?}", observed.lost);
        for frame in observed.frames {
            match frame.place {
                CapturePoint::In => came += 1,
                CapturePoint::Out => went += 1,
                CapturePoint::Drop => *dropped.entry(frame.reason.expect("a reason")).or_default() += 1,
            }
        }
    }
    assert_eq!((came, went), (ran.packets.received, ran.packets.sent), "{what}");
    let counted: BTreeMap<String, u64> = (ran.dropped().into_iter())
        .map(|((function, reason), count)| match function {
            "" => (reason.to_owned(), count),
            function => (format!("{function}: {reason}"), count),
        })
        .collect();
    assert!(counted.len() > 2, "{what}: {counted:?}");
    assert_eq!(dropped, counted, "{what}");
    // Each packet of the trace came in once, and ended once.
    let (mut begun, mut over) = (0, 0);
    for observed in trace.join().unwrap() {
        assert_eq!(observed.steps_lost, 0, "{what}");
        begun += observed
            .steps
            .iter()
            .filter(|step| matches!(step.event, Event::In { .. } | Event::Made { .. }))
            .count();
        over += observed.steps.iter().filter(|step| step.event.is_last()).count();
    }
    assert!(begun > 10, "{what}: {begun}");
    assert_eq!(begun, over, "{what}");
}

#[test]
fn a_capture_has_every_packet_and_every_drop_with_its_reason() {
    for (seed, (switches, runtimes)) in [(1, 1), (1, 2), (2, 2), (3, 3)].into_iter().enumerate() {
        a_capture_adds_up(Shape::of(runtimes).with_switches(switches), seed as u64);
    }
    a_capture_adds_up(Shape::of(2).with_switches(2).on_one_thread(), 9);
}

#[test]
fn what_there_is_no_room_for_is_counted_and_holds_nobody_up() {
    let rig = Rig::new(Shape::of(2), "capture", ["by-address", "outside"], FUNCTIONS);
    let cluster = rig.running.cluster();
    let tiny = Wanted {
        buffer_bytes: Some(1),
        dropped: false,
        outgoing: false,
        ..everything()
    };
    // The watcher fetches nothing before the end.
    let mut watching = cluster.watch(&Subject::Packets(tiny)).unwrap();
    feed(&rig, 3, 8000);
    let began = Instant::now();
    while cluster.snapshot().packets().received < 8000 {
        assert!(began.elapsed() < PATIENCE, "it waits for its watcher");
        std::thread::sleep(Duration::from_millis(2));
    }
    let (lan, world) = (rig.lan.clone(), rig.world.clone());
    let waits = std::thread::spawn(move || rig.stop("no room"));
    let (mut kept, mut lost) = (0, 0);
    loop {
        let observed = watching.take();
        kept += observed.frames.len() as u64;
        lost += observed.lost.values().sum::<u64>();
        if observed.is_over {
            break;
        }
    }
    let ran = waits.join().unwrap();
    assert!(kept > 0 && lost > 1000, "{kept} kept, {lost} lost");
    assert_eq!(kept + lost, ran.packets.received);
    drop((lan, world));
}

#[test]
fn a_watch_ends_with_its_connection() {
    let rig = Rig::gateway(Shape::of(2));
    let directory = std::env::temp_dir().join(format!("flowkeep-watch-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let server = Server::start(&directory.join("s.sock"), rig.running.cluster()).unwrap();
    let begin = || {
        let mut client = Client::connect(server.path()).unwrap();
        let wanted = Wanted {
            incoming: true,
            ..Wanted::default()
        };
        let answer = client.ask(&Request::Watch(Box::new(Observe::Packets(wanted))));
        answer.map(|_| client)
    };
    let mut first = begin().unwrap();
    assert!(matches!(first.ask(&Request::Observed), Ok(Answer::Observed(_))));
    let second = begin().unwrap();
    let refused = begin().unwrap_err();
    assert!(refused.contains("end one of those first"), "{refused}");
    drop(first);
    let began = Instant::now();
    let third = loop {
        match begin() {
            Ok(client) => break client,
            Err(_) => assert!(began.elapsed() < PATIENCE, "the place does not get free"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let nothing = Client::connect(server.path()).unwrap().ask(&Request::Observed);
    assert!(nothing.unwrap_err().contains("ask for a watch first"));
    drop((second, third, server));
    std::fs::remove_dir_all(&directory).unwrap();
    rig.stop("connections");
}

#[test]
fn a_filter_that_cannot_be_is_refused() {
    use flowkeep::capture::Instruction;
    let rig = Rig::gateway(Shape::of(1));
    let cluster: Arc<dyn Cluster> = rig.running.cluster();
    let watch = |link: u32, program: Vec<Instruction>| {
        let wanted = Wanted {
            filter: Some(vec![(link, program)]),
            ..everything()
        };
        cluster.watch(&Subject::Packets(wanted)).map(drop)
    };
    let end = Instruction(6, 0, 0, 1);
    assert_eq!(watch(1, vec![end]), Ok(()));
    assert!(watch(1, vec![]).unwrap_err().contains("without instructions"));
    assert!(
        watch(1, vec![Instruction(5, 0, 0, 7), end])
            .unwrap_err()
            .contains("jumps out of it")
    );
    assert!(watch(7777, vec![end]).unwrap_err().contains("link type 7777"));
    // No watch of them is still there.
    assert_eq!(watch(1, vec![end]), Ok(()));
    rig.stop("filters");
}
