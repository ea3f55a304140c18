//! Senders through the chain: clients that behave, each of which notes its failures, and floods.
//!
//! Frames are prepared and put on the wire as a driver forwards them
//! ([`adapters::interface::offer`]), so that a flood costs its sender little. Kinds of floods take
//! turns, a second each, with a pause behind all of them; one round is [`ROUND`].

use super::{SERVER, VIRTUAL};
use crate::log::Log;
use crate::network::{Network, PATIENCE};
use adapters::interface::Interface;
use adapters::interface::offer::{OFFERED, Offer};
use lab::process::Run;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::checksum::checksum;

/// A turn of each kind of flood, and a pause.
pub const ROUND: Duration = Duration::from_secs(8);
/// Frames per second of a flood, and of new flows.
const FLOOD: u32 = 20_000;
const NEW_FLOWS: u32 = 2_000;
/// Frames of a kind, sent round and round.
const KINDS: usize = 4096;
const DOWNLOADS: usize = 10;

/// Bytes of the download that takes all of the time.
pub fn long_download(duration: Duration) -> usize {
    // Its last tenth is left for it to be late in.
    (duration.as_secs() as usize * 20_000).min(16 << 20)
}

/// One connection from the beginning to the end.
pub fn long(network: &Network, content: &[u8], duration: Duration, log: &Log) {
    let file = network.folder.path("got-long");
    let rate = content.len() as u64 * 10 / (duration.as_secs() * 9);
    let limit = duration * 2 + PATIENCE;
    let words = format!(
        "curl --silent --show-error --fail --limit-rate {rate} --max-time {} --output {file} http://{VIRTUAL}/long",
        limit.as_secs()
    );
    let ended = network
        .client
        .finish(&words, Run::within(limit + PATIENCE))
        .unwrap();
    let equal = fs::read(&file).is_ok_and(|got| got == content);
    log.note("the long download", ended.status.success() && equal, || {
        format!("{ended:?}")
    });
}

/// New connections, again and again, each file compared with the expected content.
pub fn downloads(network: &Network, content: &[u8], on: &AtomicBool, log: &Log) {
    while on.load(Ordering::Relaxed) {
        let words = format!(
            "curl --silent --show-error --fail --parallel --parallel-immediate --max-time 50 \
             --output {} http://{VIRTUAL}/file?[1-{DOWNLOADS}]",
            network.folder.path("got-#1")
        );
        let ended = network.client.finish(&words, Run::within(PATIENCE)).unwrap();
        for number in 1..=DOWNLOADS {
            let file = network.folder.path(&format!("got-{number}"));
            let equal = fs::read(&file).is_ok_and(|got| got == content);
            let _ = fs::remove_file(&file);
            log.note("downloads", equal, || format!("{ended:?}"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Names asked for, from ten ports that change. dnsperf asks for each once, and floods may fill a
/// queue: up to half may be lost before it is a failure, and how many were is told.
pub fn names(network: &Network, duration: Duration, log: &Log) {
    let file = network.folder.path("names");
    fs::write(&file, "example.test A\n").unwrap();
    let began = Instant::now();
    while began.elapsed() + Duration::from_secs(5) < duration {
        let words = format!("dnsperf -s {SERVER} -d {file} -l 4 -Q 100 -c 10 -t 4");
        let ended = network.client.finish(&words, Run::within(PATIENCE)).unwrap();
        let count = |what: &str| -> Option<f64> {
            let line = ended
                .out
                .lines()
                .find_map(|line| line.trim().strip_prefix(what))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let (sent, answered) = (count("Queries sent:"), count("Queries completed:"));
        let good =
            matches!((sent, answered), (Some(sent), Some(answered)) if sent > 0.0 && answered >= sent * 0.5);
        if let (Some(sent), Some(answered)) = (sent, answered) {
            println!("names: {answered} of {sent} answered");
        }
        log.note("names", good, || format!("{ended:?}"));
    }
}

/// New flows without end, and floods in turn.
pub fn frames(network: &Network, on: &AtomicBool, log: &Log) {
    std::thread::scope(|scope| {
        for (host, inside) in [(&network.client, true), (&network.server, false)] {
            scope.spawn(move || {
                host.enter().unwrap();
                let interface = Interface::find("eth0").unwrap().index;
                let gateway = network
                    .gateway
                    .run(
                        &format!(
                            "cat /sys/class/net/{}/address",
                            if inside { "left" } else { "right" }
                        ),
                        Run::within(PATIENCE),
                    )
                    .unwrap();
                let mut maker = Maker::new(inside, &gateway);
                let kinds = maker.kinds();
                let offers = kinds.map(|frames| Offer::new(interface, None, &frames).unwrap());
                let flows = inside.then(|| {
                    let frames: Vec<_> = (0..60_000).map(|number| maker.flow(number)).collect();
                    Offer::new(interface, None, &frames).unwrap()
                });
                let began = Instant::now();
                while on.load(Ordering::Relaxed) {
                    let second = began.elapsed().as_secs() % ROUND.as_secs();
                    // The two sides are at different kinds at a time.
                    let kind = (second as usize + 2 * usize::from(inside)) % 6;
                    let step = Duration::from_millis(100);
                    if let Some(offer) = offers.get(kind) {
                        offer.send(FLOOD / 10).unwrap();
                        log.note("floods", true, String::new);
                    }
                    if let Some(flows) = &flows {
                        flows.send(NEW_FLOWS / 10).unwrap();
                        log.note("new flows", true, String::new);
                    }
                    std::thread::sleep(step);
                }
            });
        }
    });
}

type Frame = [u8; OFFERED];

/// Makes frames for one side.
struct Maker {
    inside: bool,
    gateway: [u8; 6],
    random: StdRng,
}

impl Maker {
    fn new(inside: bool, gateway: &str) -> Self {
        let mut octets = gateway
            .trim()
            .split(':')
            .map(|octet| u8::from_str_radix(octet, 16).unwrap());
        Maker {
            inside,
            gateway: std::array::from_fn(|_| octets.next().unwrap()),
            random: StdRng::seed_from_u64(u64::from(inside)),
        }
    }

    /// SYNs, fragments, packets with nonsense in them, and nonsense.
    fn kinds(&mut self) -> [Vec<Frame>; 4] {
        let all = [Self::syn, Self::fragment, Self::crooked, Self::garbage];
        all.map(|make| (0..KINDS).map(|_| make(self)).collect())
    }

    /// Ends that no host has: inside ones of the inside network, outside ones that ask the
    /// addresses of NAT. There are fewer inside ones than NAT has blocks of ports: a sender with
    /// more addresses than that has all of them, and keeps others from new flows.
    fn ends(&mut self) -> ([u8; 4], [u8; 4]) {
        let (a, b): (u8, u8) = (self.random.random(), self.random.random());
        match self.inside {
            true => ([10, 0, 100 + a % 10, b], [198, 51, 100, a]),
            false => ([198, 51, a, b], [203, 0, 113, 64 + b % 8]),
        }
    }

    fn frame(&mut self, protocol: u8, fragment: u16, (source, destination): ([u8; 4], [u8; 4])) -> Frame {
        let mut frame = [0; OFFERED];
        frame[..6].copy_from_slice(&self.gateway);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 9, 9]);
        frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        frame[16..18].copy_from_slice(&(OFFERED as u16 - 14).to_be_bytes());
        frame[18..20].copy_from_slice(&self.random.random::<u16>().to_be_bytes());
        frame[20..22].copy_from_slice(&fragment.to_be_bytes());
        frame[22..24].copy_from_slice(&[64, protocol]);
        frame[26..30].copy_from_slice(&source);
        frame[30..34].copy_from_slice(&destination);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    fn with_ports(&mut self, mut frame: Frame, source: u16, destination: u16) -> Frame {
        frame[34..36].copy_from_slice(&source.to_be_bytes());
        frame[36..38].copy_from_slice(&destination.to_be_bytes());
        frame
    }

    /// Its checksum is right: a wrong one is the receiver's business.
    fn summed(frame: &mut Frame, at: usize) {
        let mut over = frame[26..34].to_vec();
        over.extend([0, frame[23], 0, (OFFERED - 34) as u8]);
        over.extend(&frame[34..]);
        let sum = checksum(&over);
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }

    fn syn(&mut self) -> Frame {
        let ends = self.ends();
        let frame = self.frame(6, 0, ends);
        let (source, sequence): (u16, u32) = (self.random.random(), self.random.random());
        let destination = [80, 443, 22, 8080][self.random.random_range(0..4)];
        let mut frame = self.with_ports(frame, source.max(1), destination);
        frame[38..42].copy_from_slice(&sequence.to_be_bytes());
        frame[46..50].copy_from_slice(&[0x60, 2, 0xff, 0xff]);
        frame[54..58].copy_from_slice(&[2, 4, 5, 0xb4]);
        Self::summed(&mut frame, 50);
        frame
    }

    /// Of datagrams that never become whole: first ones, later ones, overlapping ones.
    fn fragment(&mut self) -> Frame {
        let ends = self.ends();
        let more = u16::from(self.random.random::<bool>()) << 13;
        let offset = self.random.random_range(0..4_u16) * self.random.random_range(0..8);
        let frame = self.frame(17, more | offset, ends);
        let (source, destination) = (self.random.random(), self.random.random());
        self.with_ports(frame, source, destination)
    }

    /// IPv4 with some of its bytes changed, lengths and protocols among them.
    fn crooked(&mut self) -> Frame {
        let ends = self.ends();
        let protocol = self.random.random();
        let mut frame = self.frame(protocol, 0, ends);
        for _ in 0..self.random.random_range(1..4) {
            let at = self.random.random_range(14..OFFERED);
            frame[at] = self.random.random();
        }
        frame
    }

    /// Random bytes behind the gateway's address, as IP or as another protocol.
    fn garbage(&mut self) -> Frame {
        let mut frame: Frame = std::array::from_fn(|_| self.random.random());
        frame[..6].copy_from_slice(&self.gateway);
        let kinds = [[8, 0], [0x86, 0xdd], [0x81, 0], [8, 6], [0x88, 0xcc]];
        frame[12..14].copy_from_slice(&kinds[self.random.random_range(0..kinds.len())]);
        frame
    }

    /// A flow that is one datagram long.
    fn flow(&mut self, number: u32) -> Frame {
        let host = number % 200;
        let frame = self.frame(17, 0, ([10, 0, 2, host as u8], [203, 0, 113, 1]));
        let mut frame = self.with_ports(frame, 10_000 + (number / 200) as u16, 4433);
        frame[39] = (OFFERED - 34) as u8;
        Self::summed(&mut frame, 40);
        frame
    }
}
