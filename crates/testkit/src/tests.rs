//! The kit tried on functions made for it.

use crate::Fate::*;
use crate::*;
use nf::cx::Way;
use nf::{
    Arrival, ConfigError, Cx, Departure, Direction, Endpoint, FlowState, NetworkFunction, NoConfig, Packet,
    Side, Verdict, WorkerInfo, network_function,
};
use std::sync::Arc;
use std::time::Duration;
use wire::packet::flag;
use wire::tcp::flags;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Obeys the first byte of the payload, or forwards.
struct Puppet {
    mapped: Option<Endpoint>,
}

#[derive(Clone, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PuppetConfig {
    /// Source addresses and ports become this one.
    map_to: Option<String>,
    broken: bool,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Strings {
    packets: u64,
    last: u8,
    reserved: [u8; 7],
}

#[network_function]
impl NetworkFunction for Puppet {
    const NAME: &'static str = "puppet";
    const COUNTERS: &'static [&'static str] = &["packets", "arrived", "departed"];
    const REASONS: &'static [&'static str] = &["told_to", "discarded"];
    type Config = PuppetConfig;
    type Flow = Strings;
    type Group = ();

    fn new(config: &Arc<PuppetConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        if config.broken {
            return Err(ConfigError::new(
                "broken",
                "it is broken",
                "write `broken = false`",
            ));
        }
        let mapped = config
            .map_to
            .as_ref()
            .map(|end| end.parse().expect("an address and port"));
        Ok(Puppet { mapped })
    }

    async fn process(&self, packet: &mut Packet, flow: &mut Strings, cx: &mut Cx<Self>) -> Verdict {
        cx.count("packets");
        flow.packets += 1;
        flow.last = packet.payload().first().copied().unwrap_or(b'-');
        match flow.last {
            b'd' => return cx.drop("told_to"),
            b'a' => return turned_back(packet),
            b'c' => return Verdict::Consume,
            b'r' => cx.release(),
            b'x' => cx.discard("discarded"),
            b's' => cx.sleep(Duration::from_millis(10)).await,
            b'e' => {
                let copy: Vec<u8> = packet.frame().to_vec();
                let emitted = cx.emit(Way::Back, |spare| {
                    spare.set_frame(&copy, wire::LinkType::Ethernet)
                });
                assert!(emitted);
            }
            b'E' => cx.end_flow(),
            _ => {}
        }
        self.translate(packet, cx);
        Verdict::Forward
    }

    fn arrived(&self, _: &mut Strings, _: Arrival, cx: &mut Cx<Self>) {
        cx.count("arrived");
    }

    fn departed(&self, flow: &Strings, _: Departure, cx: &mut Cx<Self>) {
        cx.count("departed");
        cx.event("ended", format_args!("\"packets\":{}", flow.packets));
    }

    fn timeout(&self, _: &Strings) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }
}

impl Puppet {
    fn translate(&self, packet: &mut Packet, cx: &Cx<Self>) {
        let Some(mapped) = self.mapped else { return };
        let error = packet.has(flag::ICMP_ERROR);
        match cx.direction() {
            Direction::Opening => assert!(packet.set_source(mapped)),
            Direction::Reply if error => {
                assert!(packet.rewrite_quoted(
                    wire::rewrite::End::Source,
                    cx.opened_by().0,
                    Some(cx.opened_by().0)
                ));
            }
            Direction::Reply => assert!(packet.set_destination(cx.opened_by().0)),
        }
    }
}

/// Makes an answer by writing a frame of its own, which forgets all that was noted of the packet.
fn turned_back(packet: &mut Packet) -> Verdict {
    let (source, destination) = (packet.source(), packet.destination());
    let (link, frame) = (packet.link(), packet.frame().to_vec());
    let side = packet.side();
    assert!(packet.set_frame(&frame, link));
    packet.set_side(side);
    assert!(wire::parse(packet).is_ok());
    assert!(packet.set_source(destination) && packet.set_destination(source));
    Verdict::Answer
}

const CLIENT: &str = "10.0.0.1:1000";
const SERVER: &str = "192.0.2.1:80";

fn puppet(script: impl IntoIterator<Item = Step>) -> Outcome {
    run::<Puppet>(PuppetConfig::default(), script)
}

fn said(word: &str) -> Step {
    udp(CLIENT, SERVER).payload(word)
}

#[test]
fn a_packet_meets_each_fate() {
    let out = puppet([
        said("forward"),
        said("drop"),
        said("answer"),
        said("forward").reply(),
        said("answer").reply(),
        frame([0xff; 20]),
        wait(Duration::from_millis(1)),
        said("consume"),
    ]);
    out.assert_fates([
        Forwarded,
        Dropped("told_to"),
        Answered,
        Forwarded,
        Answered,
        Dropped("not_ip"),
        Held,
    ]);
    assert_eq!(out.fate(7), Held);
    assert_eq!(out.only_sent(0).exit(), Side::Outside);
    assert_eq!(out.only_sent(2).exit(), Side::Inside);
    assert_eq!(out.only_sent(2).source(), SERVER.parse().unwrap());
    assert_eq!(out.only_sent(3).exit(), Side::Inside);
    assert_eq!(out.only_sent(4).exit(), Side::Outside);
    assert!(out.sent(1).is_empty() && out.sent(5).is_empty());
    assert_eq!(
        (
            out.dropped("told_to"),
            out.dropped("not_ip"),
            out.dropped("no_such")
        ),
        (1, 1, 0)
    );
    assert_eq!(out.counter("packets"), 6);
}

#[test]
fn what_is_consumed_leaves_when_released() {
    let out = puppet([said("consume"), said("consume"), said("release")]);
    out.assert_fates([Forwarded, Forwarded, Forwarded]);
    let out = puppet([said("consume"), said("x: discard")]);
    assert_eq!(out.dropped("discarded"), 1);
    assert_eq!(out.fate(1), Forwarded);
}

#[test]
fn a_call_that_sleeps_goes_on_while_the_script_waits() {
    let script = [
        said("sleep"),
        said("forward"),
        udp("10.0.0.2:1", SERVER),
        wait(Duration::from_millis(20)),
    ];
    let out = puppet(script.clone());
    out.assert_fates([Forwarded, Forwarded, Forwarded]);
    let slept = out.only_sent(0).at;
    assert!(
        slept >= Duration::from_millis(10) && slept < Duration::from_millis(11),
        "{slept:?}"
    );
    assert!(out.only_sent(1).at >= slept, "the flow's order is kept");
    assert!(
        out.only_sent(2).at < Duration::from_millis(1),
        "other flows go on"
    );
    let out = puppet(script.into_iter().take(3));
    out.assert_fates([Held, Held, Forwarded]);
}

#[test]
fn emitted_packets_are_told_from_received_ones() {
    let out = puppet([said("emit")]);
    let [emitted, own] = out.sent(0) else {
        panic!("two packets:\n{out}")
    };
    let (emitted, own) = if emitted.emitted {
        (emitted, own)
    } else {
        (own, emitted)
    };
    assert!(emitted.emitted && !own.emitted);
    assert_eq!((emitted.exit(), own.exit()), (Side::Inside, Side::Outside));
    out.assert_fates([Forwarded]);
}

#[test]
fn flows_are_found_and_shown_by_field() {
    let web = tcp(CLIENT, SERVER);
    let out = puppet([web.syn(), web.reply().syn_ack(), said("E: the flow ends")]);
    assert_eq!(out.flows(), 1);
    assert_eq!(out.flow(&web).field("packets"), "2");
    assert_eq!(out.flow(&web.reply()).field("packets"), "2");
    assert!(out.find_flow(&said("")).is_none());
    // Counters are as at the script's end, the log has later lines, too.
    assert_eq!((out.counter("arrived"), out.counter("departed")), (2, 1));
    assert_eq!(out.events().lines().count(), 2);
    assert!(
        out.events()
            .lines()
            .all(|line| line.contains("\"event\":\"ended\""))
    );
}

#[test]
fn a_wait_lets_flows_expire() {
    let web = udp(CLIENT, SERVER);
    let out = puppet([
        web.clone(),
        wait(Duration::from_secs(9)),
        web.clone(),
        wait(Duration::from_secs(9)),
    ]);
    assert_eq!(out.flows(), 1);
    let out = puppet([web.clone(), wait(Duration::from_secs(11)), web.clone()]);
    assert_eq!((out.counter("arrived"), out.counter("departed")), (2, 1));
    assert_eq!(out.flow(&web).field("packets"), "1");
}

#[test]
fn tcp_numbers_follow_from_the_conversation() {
    let web = tcp(CLIENT, SERVER);
    let out = puppet([
        web.syn(),
        web.reply().syn_ack(),
        web.ack(),
        web.payload("- 5 b"),
        web.reply().payload("- three"),
        web.fin(),
        web.reply().fin(),
        web.ack(),
        web.sequence(7).acknowledgement(9).flags(flags::RST),
    ]);
    let numbers: Vec<(u32, u32, u8)> = (0..9)
        .map(|step| {
            let tcp = out.only_sent(step).tcp().unwrap();
            (tcp.sequence(), tcp.acknowledgement(), tcp.flags())
        })
        .collect();
    use flags::*;
    assert_eq!(
        numbers,
        [
            (1000, 0, SYN),
            (5000, 1001, SYN | ACK),
            (1001, 5001, ACK),
            (1001, 5001, PSH | ACK),
            (5001, 1006, PSH | ACK),
            (1006, 5008, FIN | ACK),
            (5008, 1007, FIN | ACK),
            (1007, 5009, ACK),
            (7, 9, RST),
        ]
    );
}

#[test]
fn answers_go_where_the_packet_went() {
    let config = config::<Puppet>("map_to = \"203.0.113.1:4000\"");
    let web = tcp(CLIENT, SERVER);
    let out = run::<Puppet>(
        config.clone(),
        [
            web.syn(),
            answer().syn_ack(),
            web.payload("- GET"),
            answer().payload("- OK"),
            answer().unreachable("198.51.100.9"),
        ],
    );
    out.assert_fates([Forwarded; 5]);
    assert_eq!(out.only_sent(0).source(), "203.0.113.1:4000".parse().unwrap());
    let syn_ack = out.only_sent(1);
    assert_eq!(
        (syn_ack.source(), syn_ack.destination()),
        (SERVER.parse().unwrap(), CLIENT.parse().unwrap())
    );
    assert_eq!(syn_ack.exit(), Side::Inside);
    let numbers = |step: usize| {
        out.only_sent(step)
            .tcp()
            .map(|tcp| (tcp.sequence(), tcp.acknowledgement()))
    };
    assert_eq!(numbers(1), Some((5000, 1001)));
    assert_eq!(numbers(2), Some((1001, 5001)));
    // An answer to the answer's own packet comes from inside again.
    assert_eq!(out.only_sent(3).exit(), Side::Inside);
    assert_eq!(out.only_sent(4).exit(), Side::Outside);

    let ping = ping("10.0.0.1", "192.0.2.1", 77);
    let out = run::<Puppet>(
        config,
        [
            ping.clone(),
            answer(),
            udp(CLIENT, SERVER),
            answer().unreachable("198.51.100.9"),
        ],
    );
    out.assert_fates([Forwarded; 4]);
    assert_eq!(out.only_sent(1).destination(), "10.0.0.1:77".parse().unwrap());
    let quoted = wire::parse::quoted(out.only_sent(3)).unwrap();
    assert_eq!(quoted.source, CLIENT.parse().unwrap());
    assert_eq!(out.flow(&ping).field("packets"), "2");
}

#[test]
fn frames_are_as_independent_code_reads_them() {
    let six = tcp("[2001:db8::1]:1000", "[2001:db8::9]:80");
    let steps = [
        tcp(CLIENT, SERVER)
            .syn()
            .options(&[2, 4, 5, 180])
            .window(7)
            .vlan(12)
            .ttl(3),
        six.payload("- abc"),
        udp(CLIENT, SERVER).payload([1, 2, 3]).times(2),
        ping("2001:db8::1", "2001:db8::9", 5).reply(),
        udp("[2001:db8::1]:1", "[2001:db8::9]:2").unreachable("2001:db8::ffff"),
        tcp(CLIENT, SERVER).unreachable("192.0.2.254"),
    ];
    let out = puppet(steps);
    assert_eq!(out.fates().len(), 7);
    for step in 0..7 {
        let sent = out.only_sent(step);
        let sliced = etherparse::SlicedPacket::from_ethernet(sent.frame()).unwrap();
        let net = sliced.net.as_ref().unwrap();
        if let etherparse::NetSlice::Ipv4(ip) = net {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
        }
        assert!(sliced.transport.is_some(), "{out}");
    }
    let first = out.only_sent(0);
    assert_eq!((first.vlan(), first.ttl()), (12, 3));
    let tcp = first.tcp().unwrap();
    assert_eq!((tcp.window(), tcp.options()), (7, &[2, 4, 5, 180][..]));
    assert_eq!(out.only_sent(1).payload(), b"- abc");
    // An error about a packet from inside comes in from outside.
    assert_eq!(out.only_sent(5).exit(), Side::Inside);
    assert_eq!(out.only_sent(6).destination_addr(), "10.0.0.1".parse().unwrap());
}

#[test]
fn established_flows_allocate_nothing() {
    let web = tcp(CLIENT, SERVER);
    let out = puppet([
        web.syn(),
        web.reply().syn_ack(),
        web.ack(),
        web.payload("- data").times(1000),
    ]);
    assert_eq!(out.allocations(1..), 0);
    assert_eq!(allocations(|| ()), 0);
    assert_eq!(allocations(|| vec![1, 2, 3]), 1);
}

/// The panic's words.
fn panics(work: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(work).unwrap_err();
    match panic.downcast::<String>() {
        Ok(words) => *words,
        Err(panic) => panic.downcast_ref::<&str>().unwrap().to_string(),
    }
}

#[test]
fn failures_show_the_step_and_the_packet() {
    let words = panics(|| puppet([said("forward"), said("drop")]).assert_fates([Forwarded, Forwarded]));
    assert!(
        words.starts_with("the packet of step 1 was to be forwarded, but it was dropped: told_to:\n"),
        "{words}"
    );
    assert!(
        words.contains(">    1  +2ns         inside  udp 10.0.0.1:1000 > 192.0.2.1:80, 4 bytes"),
        "{words}"
    );
    assert!(
        words.contains("left to outside udp 10.0.0.1:1000 > 192.0.2.1:80, 7 bytes"),
        "{words}"
    );
    let words = panics(|| puppet([said("forward")]).assert_fates([]));
    assert!(
        words.starts_with("the script has 1 packets, but 0 fates are given"),
        "{words}"
    );
    let words = panics(|| assert_eq!(puppet([]).counter("packet"), 0));
    assert!(
        words.contains("no counter `packet`; its COUNTERS are [\"packets\""),
        "{words}"
    );
    let words = panics(|| assert_eq!(puppet([said("-")]).flow(&said("-")).field("packet"), "1"));
    assert!(
        words.contains("no field `packet`; it has [\"packets\", \"last\""),
        "{words}"
    );
    let words = panics(|| drop(puppet([said("-")]).flow(&tcp(CLIENT, SERVER))));
    assert!(
        words.contains("there are [\"udp 10.0.0.1:1000 192.0.2.1:80\"]"),
        "{words}"
    );
    let words = panics(|| drop(puppet([answer()])));
    assert!(
        words.starts_with("step 0 cannot be: it answers the packet that left last, but none has left"),
        "{words}"
    );
}

#[test]
fn mistakes_in_a_script_say_what_to_write() {
    assert!(panics(|| drop(tcp("10.0.0.1", SERVER))).contains("write it like `10.0.0.1:1000`"));
    assert!(panics(|| drop(udp("[2001:db8::1]:1", SERVER))).contains("different IP versions"));
    assert!(panics(|| drop(ping(CLIENT, "192.0.2.1", 1))).contains("write it like `10.0.0.1` or"));
    assert!(panics(|| drop(wait(Duration::ZERO).syn())).contains("a wait has no packet"));
    assert!(panics(|| drop(udp(CLIENT, SERVER).syn())).contains("begin with `tcp(…)`"));
    assert!(panics(|| drop(config::<Puppet>("brokn = true"))).contains("unknown field `brokn`"));
    let words = panics(|| drop(run::<Puppet>(config::<Puppet>("broken = true"), [])));
    assert_eq!(
        words,
        "the configuration of `puppet` is refused: broken: it is broken; write `broken = false`"
    );
}

#[test]
fn bounds_can_be_set() {
    let flood = (0..4).map(|port| udp(&format!("10.0.0.1:{}", 1000 + port), SERVER));
    let out = setup::<Puppet>(PuppetConfig::default()).flows_max(2).run(flood);
    out.assert_fates([Forwarded, Forwarded, Dropped("flows_full"), Dropped("flows_full")]);
}

/// Breaks the contract: `process_now` changes the state and declines.
struct Hasty;

#[network_function]
impl NetworkFunction for Hasty {
    const NAME: &'static str = "hasty";
    type Config = NoConfig;
    type Flow = Strings;
    type Group = ();

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Hasty)
    }

    fn process_now(&self, _: &mut Packet, flow: &mut Strings, _: &mut Cx<Self>) -> Option<Verdict> {
        flow.packets += 1;
        None
    }
}

#[test]
fn a_side_effect_before_declining_is_found() {
    let words = panics(|| drop(run::<Hasty>(NoConfig {}, [said("-")])));
    assert!(
        words.contains("declined a packet after it had changed"),
        "{words}"
    );
}

/// Never comes to rest.
struct Restless;

#[network_function]
impl NetworkFunction for Restless {
    const NAME: &'static str = "restless";
    type Config = NoConfig;
    type Flow = ();
    type Group = ();

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Restless)
    }

    async fn process(&self, _: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        loop {
            cx.sleep(Duration::ZERO).await;
        }
    }
}

#[test]
fn a_function_that_sleeps_for_no_time_is_found() {
    let words = panics(|| drop(run::<Restless>(NoConfig {}, [said("-")])));
    assert!(words.contains("does not come to rest"), "{words}");
}

/// Counts packets of outside hosts, and drops them; a count is kept for a minute.
pub(crate) struct Tally;

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Tallied {
    packets: u64,
}

#[network_function]
impl NetworkFunction for Tally {
    const NAME: &'static str = "tally";
    const AFFINITY: nf::Affinity = nf::Affinity::OutsideAddress;
    const REASONS: &'static [&'static str] = &["odd", "even"];
    type Flow = ();
    type Group = Tallied;

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Tally)
    }

    fn process(&self, _: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        cx.group().packets += 1;
        match cx.group().packets % 2 {
            1 => cx.drop("odd"),
            _ => cx.drop("even"),
        }
    }

    fn group_timeout(&self, _: &Tallied) -> Duration {
        Duration::from_secs(60)
    }
}

/// The same without a time: its count of a host goes with the host's last flow.
struct Forgetful;

#[network_function]
impl NetworkFunction for Forgetful {
    const NAME: &'static str = "forgetful";
    const AFFINITY: nf::Affinity = nf::Affinity::OutsideAddress;
    const REASONS: &'static [&'static str] = &["closed"];
    type Flow = ();
    type Group = Tallied;

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Forgetful)
    }

    fn process(&self, _: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        cx.group().packets += 1;
        cx.drop("closed")
    }
}

/// The test below reads the output of this test: the warning of a script that is played.
#[test]
fn a_forgetful_function_is_played() {
    run::<Forgetful>(NoConfig {}, [hit(1), hit(1), hit(1)]);
    run::<Tally>(NoConfig {}, [hit(1), hit(1)]);
}

#[test]
fn a_group_without_a_time_whose_state_is_gone_is_a_warning() {
    let mut played = std::process::Command::new(std::env::current_exe().unwrap());
    played.args(["--exact", "tests::a_forgetful_function_is_played"]);
    // Without `--nocapture`: the warning of a test that passes is to be seen.
    let played = played.output().unwrap();
    let said = String::from_utf8(played.stderr).unwrap();
    assert!(played.status.success(), "{said}");
    // Once, of a function that says no time.
    let warnings: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("warning: "))
        .collect();
    assert_eq!(warnings.len(), 1, "{said}");
    assert!(
        warnings[0].starts_with("warning: the group of 198.51.100.1 began again")
            && warnings[0].contains("`forgetful` says no `group_timeout`"),
        "{said}"
    );
    let mut life = crate::life::Life::default();
    life.is_on = true;
    let key = ("198.51.100.1".parse().unwrap(), 0);
    life.end(key, 0, &Tallied { packets: 1 }, Duration::ZERO);
    life.begin::<Forgetful>(key, 1_000, &Tallied { packets: 1 });
    assert_eq!(life.warned, None);
    life.begin::<Forgetful>(key, 1_000, &Tallied::default());
    let words = life.warned.unwrap();
    assert!(
        words.starts_with("the group of 198.51.100.1 began again 1µs") && words.contains("`group_timeout`"),
        "{words}"
    );
    assert_eq!(life.forgotten, None);
}

pub(crate) fn hit(host: u8) -> Step {
    udp(&format!("198.51.100.{host}:1000"), "10.0.0.1:80").from_outside()
}

#[test]
fn a_group_that_is_forgotten_before_its_time_is_told() {
    let (odd, even) = (Dropped("odd"), Dropped("even"));
    let minute = || wait(Duration::from_secs(59));
    let out = run::<Tally>(NoConfig {}, [hit(1), minute(), hit(1), hit(2), hit(1)]);
    out.assert_fates([odd, even, odd, odd]);
    // There is room for two: the first was forgotten for the third. That its time was over would be
    // no fault.
    let few = || setup::<Tally>(NoConfig {}).flows_max(2);
    let late = || wait(Duration::from_secs(61));
    few().run([hit(1), hit(2), hit(3), late(), hit(1)]);
    let words = panics(|| drop(few().run([hit(1), hit(2), hit(3), minute(), hit(1)])));
    assert!(
        words.starts_with("the group of 198.51.100.1 began again 59.0")
            && words.contains("`tally` says that it lives for 60s"),
        "{words}"
    );
    let words = panics(|| {
        let few = migration().function::<Tally>(NoConfig {}).flows_max(2);
        drop(few.check([hit(1), hit(2), hit(3), hit(1)]));
    });
    assert!(words.contains("the group of 198.51.100.1 began again"), "{words}");
}
