//! Messages to switches for which no buffer is free: a runtime whose switch is played by hand, and
//! is slow.
//!
//! Not here: buffers that are on their way home behind packets (`spread`).

use super::spread::link;
use super::*;
use crate::message::Message;
use nf::{Block, Cx, Departure, Packet, Verdict, WorkerInfo, network_function};
use std::collections::HashSet;
use std::sync::Arc;
use std::vec;
use wire::packet::Kind;

/// Claims as many blocks as a call may for each flow, and gives them back with it. A chain has
/// several of them.
struct Greedy<const N: u16>;

const EACH: u16 = 4;

fn claims(flow: u16, function: u16) -> impl Iterator<Item = Block> {
    (0..EACH).map(move |n| Block {
        addr: nf::Addr::v4([203, 0, (flow - 1000) as u8, function as u8]),
        first: 64 * n,
        ports: 64,
    })
}

#[network_function]
impl<const N: u16> NetworkFunction for Greedy<N> {
    const NAME: &'static str = ["a", "b", "c", "d", "e", "f", "g", "h"][N as usize];
    type Config = NoConfig;
    type Flow = ();
    type Group = ();
    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Greedy)
    }
    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        assert!(claims(packet.source_port(), N).all(|block| cx.claim_block(block)));
        // No more has room in one call, and nothing comes of it.
        assert!(cx.blocks_room() == 0 && !cx.claim_block(Block::default()));
        Verdict::Forward
    }
    fn departed(&self, _: &(), _: Departure, cx: &mut Cx<Self>) {
        let (source, _) = cx.opened_by();
        assert!(claims(source.port, N).all(|block| cx.release_block(block)));
    }
}

/// A step may have more to say than there are buffers: unsaid messages are said later, in order,
/// and packets wait for them.
#[test]
fn what_a_runtime_has_no_buffers_to_say_is_said_later_and_packets_wait_for_it() {
    let (mut near, far) = link(usize::MAX);
    let settings = Settings {
        switches: 1,
        ..Settings::alone(4096)
    };
    let plan = plan(vec![
        factory::<Greedy<0>>(),
        factory::<Greedy<1>>(),
        factory::<Greedy<2>>(),
        factory::<Greedy<3>>(),
        factory::<Greedy<4>>(),
        factory::<Greedy<5>>(),
        factory::<Greedy<6>>(),
        factory::<Greedy<7>>(),
    ]);
    let mut runtime = Runtime::new(settings, plan, vec![far], pool(24, 1), Region::heap).unwrap();
    let mut buffers = pool(512, 0);
    const FLOWS: u16 = 64;
    for n in 0..FLOWS {
        let mut packet = buffers.take().unwrap();
        let (side, frame) = udp(1, 1000 + n, 1, 80, false, b"");
        assert!(packet.set_frame(&frame, wire::LinkType::Raw));
        packet.set_side(side);
        near.outgoing.borrow_mut().push_back(packet);
    }
    let (mut known, mut idle, mut passed) = (HashSet::new(), 0, 0);
    let mut unused = pool(1, 9);
    for now in 0..600_u64 {
        runtime.step(if now < 300 { now } else { now << 40 });
        // The switch takes its time, so message frames come home late.
        let mut burst = Burst::new();
        if now % 3 == 0 {
            near.receive(0, &mut unused, &mut burst);
        }
        for mut packet in burst {
            match packet.kind() {
                Kind::Data => {
                    wire::parse(&mut packet).unwrap();
                    let flow = packet.source_port();
                    let is_known = |function| claims(flow, function).all(|block| known.contains(&block));
                    assert!(
                        (0..8).all(is_known),
                        "a packet leaves before its blocks are claimed"
                    );
                    passed += 1;
                }
                Kind::Message => {
                    let mut bytes = packet.frame();
                    while let Some((message, rest)) = Message::read(bytes) {
                        bytes = rest;
                        match message {
                            Message::BlockClaimed(block, _) => assert!(known.insert(block)),
                            Message::BlockReleased(block) => assert!(known.remove(&block)),
                            Message::GroupEmpty(_, consumed) => {
                                assert_eq!(consumed, u64::from(FLOWS));
                                idle += 1;
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                }
                Kind::Empty => {}
            }
            if packet.origin() == 1 {
                packet.set_kind(Kind::Empty);
                near.outgoing.borrow_mut().push_back(packet);
            }
        }
        if now == 299 {
            let blocks = usize::from(8 * EACH * FLOWS);
            assert_eq!((passed, known.len()), (FLOWS, blocks));
            assert!(runtime.finished());
        }
    }
    assert_eq!((idle, known.len(), runtime.stats().flows), (FLOWS, 0, 0));
    assert!(runtime.is_empty());
    assert_conserved(&runtime);
}
