//! Once a link between processes is made, packets and messages on it allocate nothing: sent,
//! waiting, lost, sent again, received.

use flowkeep_testkit as testkit;
use runtime::message::Message;
use runtime::peer::{FrameLink, Peer, PeerSettings, Protection};
use runtime::{Burst, Port, PortCounters};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use wire::memory::Region;
use wire::{LinkType, Pool};

#[global_allocator]
static ALLOCATOR: testkit::CountingAllocator = testkit::CountingAllocator;

const FRAME: usize = 1400;
const BUFFERS: usize = 256;

type Frame = (usize, [u8; FRAME]);

/// Frames on their way, in memory made once; every fiftieth is lost.
struct Wire {
    out: SyncSender<Frame>,
    incoming: Receiver<Frame>,
    frame: Frame,
    sent: u64,
}

impl FrameLink for Wire {
    fn frame_max(&self) -> usize {
        FRAME
    }
    fn receive(&mut self) -> Option<&mut [u8]> {
        self.frame = self.incoming.try_recv().ok()?;
        Some(&mut self.frame.1[..self.frame.0])
    }
    fn send(&mut self, frame: &[u8]) {
        self.sent += 1;
        if !self.sent.is_multiple_of(50) {
            let mut bytes = [0; FRAME];
            bytes[..frame.len()].copy_from_slice(frame);
            let _ = self.out.try_send((frame.len(), bytes));
        }
    }
    fn flush(&mut self) {}
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let ((to_b, from_a), (to_a, from_b)) = (sync_channel(2048), sync_channel(2048));
    let end = |worker: u16, out, incoming| {
        let wire = Wire {
            out,
            incoming,
            frame: (0, [0; FRAME]),
            sent: 0,
        };
        let settings = PeerSettings::new(worker, 1 - worker, 1, Protection::DamageOnly);
        let region = Region::heap(Pool::region_length(BUFFERS, 4096));
        let pool = Pool::new(region, BUFFERS, 4096, worker as u8);
        (Peer::new(wire, settings, 0).unwrap(), pool)
    };
    let (mut a, mut pool_a) = end(0, to_b, from_b);
    let (mut b, mut pool_b) = end(1, to_a, from_a);
    let (mut now, mut sent, mut received) = (0, 0, 0);
    let allocations = testkit::allocations(|| {
        while received < 50_000 {
            now += 20_000;
            let mut burst = Burst::new();
            while a.session() != 0 && sent < 50_000 && !burst.is_full() && pool_a.free() > 100 {
                let Some(mut packet) = pool_a.take() else { break };
                if sent % 9 == 0 {
                    Message::begin(&mut packet);
                    assert!(packet.set_length(2000));
                } else {
                    assert!(packet.set_frame(&[sent as u8; 200], LinkType::Ethernet));
                }
                burst.push(packet);
                sent += 1;
            }
            a.transmit(now, &mut pool_a, &mut burst);
            a.receive(now, &mut pool_a, &mut burst);
            b.receive(now, &mut pool_b, &mut burst);
            received += burst.len();
            burst.drain(..).for_each(|packet| pool_b.give(packet));
        }
    });
    assert_eq!(allocations, 0);
    assert_eq!((received, pool_b.free()), (50_000, BUFFERS));
    assert!(a.channel_counters().retransmissions > 100);
}
