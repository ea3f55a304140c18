//! The links between two runtimes are read, record by record: each packet that leaves is one whose
//! change was sent, and acknowledged, before.
//!
//! ```text
//!   0 ── records: flow, runs, … ──► 1     the copies, as of each record
//!   0 ◄── acknowledged: so many ─── 1     read in a step of 0: so much of that is known to be there
//!   0 ── packet, with its stamp ──► switch     not before a copy with that stamp is known to be there
//! ```
//!
//! Of a cluster without copies there is no such record, no runtime has memory for copies, and all
//! packets take the path without them.

use super::failing::Process;
use super::replica::{Stamp, out, reply, stamps_of};
use super::{factory, plan};
use crate::chain::{ChainRule, Plan};
use crate::env::LinkTo;
use crate::mobility::{MoveOrder, Selector};
use crate::parts::BEGUN;
use crate::record::{Copy, Record};
use crate::replica::BROKEN;
use crate::replica::policy::Policy as Copied;
use std::collections::{BTreeMap, HashMap};
use std::vec;
use std::vec::Vec;
use wire::packet::Kind;
use wire::{Orientation, PacketBox};

/// Flows, by their ports.
const PORTS: u16 = 24;

/// One runtime's records to the other about its flows.
#[derive(Default)]
struct Wire {
    base: u32,
    records: u64,
    /// By slot: the port that the flow was opened from, and its state.
    copies: HashMap<u32, (u16, [u8; 8])>,
    /// With which record the other has so many packets of the flow from a port.
    told: Vec<(u64, u16, u32)>,
    /// Of how many records the sender has read that they are there.
    acknowledged: u64,
}

impl Wire {
    fn note(&mut self, copy: &Copy<'_>) {
        if let Copy::Base { number, .. } = copy {
            *self = Wire {
                base: *number,
                ..Wire::default()
            };
            return;
        }
        self.records += 1;
        let slot = match *copy {
            Copy::Flow {
                slot,
                ref flow_header,
                piece,
                ..
            } => {
                let (a, b) = flow_header.key.ends(Orientation::Along);
                let inside = if a.port == 80 { b } else { a };
                let state = piece.try_into().expect("a state is short");
                self.copies.insert(slot, (inside.port, state));
                slot
            }
            Copy::Runs { slot, mut runs, .. } => {
                let (_, state) = self
                    .copies
                    .get_mut(&slot)
                    .expect("a copy is sent before its changes");
                while let [high, low, length, rest @ ..] = runs {
                    let at = usize::from(u16::from_be_bytes([*high, *low]));
                    let (bytes, behind) = rest.split_at((*length).into());
                    state[at..at + bytes.len()].copy_from_slice(bytes);
                    runs = behind;
                }
                slot
            }
            _ => return,
        };
        let (port, state) = self.copies[&slot];
        let (counts, _) = state.as_chunks::<4>();
        let packets = counts.iter().map(|count| u32::from_ne_bytes(*count)).sum();
        self.told.push((self.records, port, packets));
    }

    /// How many packets of a flow are in a copy that is known to be there.
    fn known(&self, port: u16) -> u32 {
        let there = |(record, of, _): &&(u64, u16, u32)| *of == port && *record <= self.acknowledged;
        self.told
            .iter()
            .filter(there)
            .map(|(_, _, packets)| *packets)
            .max()
            .unwrap_or(0)
    }
}

/// The records of frames of messages.
fn each_copy(frames: &[PacketBox], mut see: impl FnMut(&Copy<'_>)) {
    for frame in frames.iter().filter(|frame| frame.kind() == Kind::Message) {
        let mut rest = frame.frame();
        while let Some((record, behind)) = Record::read(rest) {
            if let Record::Copy(copy) = &record {
                see(copy);
            }
            rest = behind;
        }
    }
}

/// Packets that left, and those of them whose changes no acknowledged copy has.
#[derive(Default, Debug)]
struct Seen {
    left: usize,
    too_early: usize,
    acknowledgements: usize,
    /// Records of copies, of either side.
    records: usize,
}

/// Both runtimes, and the links between them.
struct Reader {
    process: Process,
    wires: [Wire; 2],
    seen: Seen,
}

impl Reader {
    fn new(is_replicated: bool, plan: Plan) -> Self {
        Reader {
            process: Process::new(1, 2, is_replicated, plan),
            wires: Default::default(),
            seen: Seen::default(),
        }
    }

    /// Shows the frames that wait at one worker's end of a link, `of` being at the other.
    fn waiting<T>(&mut self, at: LinkTo, of: LinkTo, read: impl FnOnce(&mut [PacketBox]) -> T) -> T {
        let mut read = Some(read);
        let mut found = None;
        let mut show = |to: LinkTo, end: &mut super::failing::Ring| {
            if to == of
                && let Some(read) = read.take()
            {
                found = Some(read(end.incoming.borrow_mut().make_contiguous()));
            }
        };
        match at {
            LinkTo::Switch(number) => self.process.switches[usize::from(number)].each_link(&mut show),
            LinkTo::Runtime(number) => {
                let runtime = self.process.runtimes[usize::from(number)].as_mut();
                runtime.expect("none fails").each_link(&mut show);
            }
        }
        found.expect("there is such a link")
    }

    /// One step of a runtime: the frames that it reads and sends, and packets that leave.
    fn step_runtime(&mut self, number: usize) {
        let (me, other) = (LinkTo::Runtime(number as u16), LinkTo::Runtime(1 - number as u16));
        let mut acknowledged = Vec::new();
        let coming = self.waiting(me, other, |frames| {
            for (place, frame) in frames.iter().enumerate() {
                each_copy(std::slice::from_ref(frame), |copy| {
                    if let Copy::Acknowledged { number, count } = copy {
                        acknowledged.push((place, *number, *count));
                    }
                });
            }
            frames.len()
        });
        let told = self.waiting(other, me, |frames| frames.len());
        let left = self.waiting(LinkTo::Switch(0), me, |frames| frames.len());
        self.process.step(1 + number);
        let read = coming - self.waiting(me, other, |frames| frames.len());
        let wire = &mut self.wires[number];
        for (_, base, count) in acknowledged.iter().filter(|(place, ..)| *place < read) {
            self.seen.acknowledgements += 1;
            if *base == wire.base {
                wire.acknowledged = *count;
            }
        }
        let mut wire = core::mem::take(wire);
        let mut records = 0;
        self.waiting(other, me, |frames| {
            each_copy(&frames[told..], |copy| {
                records += 1;
                if !matches!(copy, Copy::Acknowledged { .. } | Copy::Refused { .. }) {
                    wire.note(copy);
                }
            });
        });
        self.wires[number] = wire;
        self.seen.records += records;
        let packets = self.waiting(LinkTo::Switch(0), me, |frames| {
            let packets = frames[left..].iter().filter(|frame| frame.kind() == Kind::Data);
            let sent = packets.map(|packet| (packet.exit(), packet.frame().to_vec()));
            sent.collect()
        });
        for (port, stamps) in stamps_of(packets) {
            let known = self.wires.iter().map(|wire| wire.known(port)).max();
            self.seen.left += stamps.len();
            let early = |stamp: &&u32| **stamp > known.unwrap_or(0);
            self.seen.too_early += stamps.iter().filter(early).count();
        }
    }

    /// So many single steps of workers in an order drawn from a seed, packets of both directions in
    /// between; flows move at times.
    fn play(&mut self, seed: u64, steps: usize) {
        let mut random = seed;
        let mut draw = |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for step in 0..steps {
            let process = &mut self.process;
            process.now += 1000;
            if step % 3 == 0 {
                let port = match step / 3 {
                    first if first < usize::from(PORTS) => first,
                    _ => draw(PORTS.into()),
                };
                let port = 3000 + port as u16;
                // Replies are for flows that there are.
                let is_reply = step > 600 && draw(2) == 0;
                let packet = if is_reply { reply(port) } else { out(port) };
                process.switches[0].port_mut(0).input.push_back(packet);
            }
            if step % 400 == 399 {
                let from = draw(2);
                let order = MoveOrder {
                    selector: Selector::All,
                    to: vec![1 - from as u16],
                };
                let runtime = process.runtimes[from].as_mut().expect("none fails");
                // An order that is under way goes on.
                let _ = runtime.order(order);
            }
            match draw(3) {
                0 => drop(process.step(0)),
                runtime => self.step_runtime(runtime - 1),
            }
        }
    }
}

/// Plays that traffic where copies are kept; answers the packets seen.
fn read(seed: u64, steps: usize) -> Seen {
    let mut reader = Reader::new(true, plan(vec![factory::<Stamp>()]));
    reader.play(seed, steps);
    reader.seen
}

#[test]
fn each_packet_that_leaves_has_its_change_acknowledged_before() {
    for seed in 0..20 {
        let seen = read(seed, 3000);
        assert_eq!(seen.too_early, 0, "seed {seed}: {seen:?}");
        assert!(
            seen.left > 300 && seen.acknowledgements > 300,
            "seed {seed}: {seen:?}"
        );
    }
    BROKEN.set("copies are waited for");
    let seen = read(0, 3000);
    BROKEN.set("");
    assert!(seen.too_early > 100, "{seen:?}");
}

/// The price of copies for two runtimes.
#[derive(Debug)]
struct Price {
    /// Records on the links between them.
    records: usize,
    /// Bytes that they hold.
    bytes: usize,
    /// Whether a flow's bytes were noted before a function's call.
    has_noted: bool,
    /// Instances of the packet path that had packets: whether they follow, and watch, calls.
    instances: Vec<(bool, bool)>,
}

/// The same traffic by a chain of this policy.
fn price(is_replicated: bool, policy: Copied) -> Price {
    let chain = ChainRule {
        name: "test".into(),
        functions: vec!["stamp".into()],
        replication: Some(policy),
        ..ChainRule::default()
    };
    let plan = Plan::new(vec![chain], vec![factory::<Stamp>()]).unwrap();
    BEGUN.set(BTreeMap::new());
    let mut reader = Reader::new(is_replicated, plan);
    reader.play(0, 3000);
    let seen = &reader.seen;
    assert!(seen.left > 300, "{policy:?}: {seen:?}");
    let runtimes = || reader.process.runtimes.iter().flatten();
    Price {
        records: seen.records,
        bytes: runtimes().map(|runtime| runtime.copy_bytes()).sum(),
        has_noted: runtimes().any(|runtime| runtime.shadow().iter().any(|byte| *byte != 0)),
        instances: BEGUN.take().into_keys().collect(),
    }
}

/// As the program makes it where all chains have the policy `none`: no runtime is to keep copies.
#[test]
fn a_cluster_without_copies_pays_nothing_for_them() {
    let none = price(false, Copied::None);
    assert_eq!(
        (none.records, none.bytes, none.has_noted),
        (0, 0, false),
        "{none:?}"
    );
    assert_eq!(none.instances, [(false, false)]);
    // Each of these is seen where copies are kept.
    let commit = price(true, Copied::Commit);
    assert!(
        commit.records > 300 && commit.bytes > 0 && commit.has_noted,
        "{commit:?}"
    );
    assert!(commit.instances.contains(&(true, true)), "{commit:?}");
    assert!(!commit.instances.contains(&(false, false)), "{commit:?}");
}
