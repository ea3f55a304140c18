//! NAT allocates at the start and never again: not for packets of established flows, not when flows
//! open and end.

use flowkeep_functions::nat::{Config, Filtering, Host, Nat, Translation};
use nf::cx::{EventLog, RawCx};
use nf::{Cx, Departure, Direction, FlowKey, NetworkFunction, Reason, Side, Verdict, WorkerInfo};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use wire::memory::Region;
use wire::{LinkType, PacketBox, Pool};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work; counting touches a thread's own cell.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn frame(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4(from.0, to.0, 64)
        .udp(from.1, to.1)
        .write(&mut frame, b"x")
        .unwrap();
    frame
}

struct Bench {
    nat: Nat,
    host: Host,
    counters: Vec<u64>,
    log: EventLog,
}

impl Bench {
    fn with<R>(&mut self, side: Side, f: impl FnOnce(&Nat, &mut Cx<Nat>) -> R) -> R {
        let mut key = FlowKey::default();
        let mut raw = RawCx {
            now: 1,
            wake_at: RawCx::NO_WAKE,
            waits_for: 0,
            token: 0,
            tokens: None,
            place: 0,
            timeout: 0,
            key: NonNull::from(&mut key),
            flow: 0,
            opening: wire::Orientation::Along,
            side,
            direction: Direction::Opening,
            effects: 0,
            lazy_kept: false,
            group: NonNull::from(&mut self.host).cast(),
            counters: NonNull::new(self.counters.as_mut_ptr()).unwrap(),
            log: NonNull::from(&mut self.log),
            spares: Default::default(),
            held: None,
            held_room: 0,
            copy: None,
            let_go: Default::default(),
            emitted: Default::default(),
            blocks: Default::default(),
            discard: Reason::UNDECLARED,
            pinned: core::marker::PhantomPinned,
        };
        // SAFETY: key, group, counters and log are this bench's own and not referred to otherwise
        // during the call.
        f(&self.nat, unsafe { Cx::of(&mut raw) })
    }

    fn process(&mut self, packet: &mut PacketBox, flow: &mut Translation) -> Verdict {
        self.with(packet.side(), |nat, cx| {
            nat.process_now(packet, flow, cx).unwrap()
        })
    }
}

#[test]
fn nothing_is_allocated_after_the_start() {
    const FLOWS: usize = 2000;
    let config = Config {
        pool: vec!["203.0.113.0/28".parse().unwrap()],
        filtering: Filtering::AddressDependent,
        ..Config::default()
    };
    let worker = WorkerInfo {
        runtime: 0,
        runtimes: 1,
        flows_max: FLOWS as u32,
        seed: 1,
    };
    let mut bench = Bench {
        nat: Nat::new(&Arc::new(config), &worker).unwrap(),
        host: Host::default(),
        counters: vec![0; Nat::COUNTERS.len() + 1],
        log: EventLog::new(1 << 20, 0),
    };
    let mut pool = Pool::new(Region::heap(Pool::region_length(1, 256)), 1, 256, 0);
    let mut packet = pool.take().unwrap();
    let frames: Vec<Vec<u8>> = (0..FLOWS)
        .map(|n| {
            frame(
                ([10, 0, 0, 1], 1024 + n as u16),
                ([198, 51, (n / 250) as u8, (n % 250) as u8], 9),
            )
        })
        .collect();
    let mut flows = vec![Translation::default(); FLOWS];
    let before = ALLOCATIONS.get();
    for round in 0..3 {
        for (frame, flow) in frames.iter().zip(&mut flows) {
            // The first packet opens the flow, the second is an established one's.
            for _ in 0..2 {
                assert!(packet.set_frame(frame, LinkType::Ethernet));
                wire::parse(&mut packet).unwrap();
                assert_eq!(bench.process(&mut packet, flow), Verdict::Forward);
            }
        }
        for flow in &mut flows {
            bench.with(Side::Inside, |nat, cx| nat.departed(flow, Departure::Expired, cx));
            *flow = Translation::default();
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "round {round}");
    }
    let created = Nat::COUNTERS
        .iter()
        .position(|name| *name == "mappings_created")
        .unwrap();
    assert_eq!(bench.counters[created], 3 * FLOWS as u64);
    pool.give(packet);
}
