//! Once a channel is made, messages allocate nothing: sent, lost, sent again, delivered.

use flowkeep_protocols::channel::{
    Channel, ChannelSettings, Handled, Input, Key, Keys, Output, Protection, SALT,
};

#[global_allocator]
static ALLOCATOR: testkit::CountingAllocator = testkit::CountingAllocator;

const FRAME: usize = 1400;

/// Frames on their way, in memory made once.
struct Wire {
    frames: Vec<(usize, [u8; FRAME])>,
    count: usize,
}

impl Wire {
    fn new() -> Wire {
        Wire {
            frames: vec![(0, [0; FRAME]); 1024],
            count: 0,
        }
    }

    fn push(&mut self, frame: &[u8]) {
        let place = &mut self.frames[self.count];
        place.0 = frame.len();
        place.1[..frame.len()].copy_from_slice(frame);
        self.count += 1;
    }
}

fn carry_out(channel: &mut Channel, wire: &mut Wire, heard: &mut u64) {
    while let Some(output) = channel.poll() {
        match output {
            Output::Frame(frame) => wire.push(frame),
            Output::Message(_) => *heard += 1,
            _ => {}
        }
    }
}

/// Gives the frames on a wire to an end, but every fiftieth frame, of either way.
fn carry(from: &mut Wire, end: &mut Channel, back: &mut Wire, now: u64, carried: &mut u64, heard: &mut u64) {
    for (length, frame) in &mut from.frames[..from.count] {
        *carried += 1;
        if !carried.is_multiple_of(50) {
            let _ = end.handle(now, Input::Frame(&mut frame[..*length], 0));
            carry_out(end, back, heard);
        }
    }
    from.count = 0;
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let key = Key::new(1, [1; 32]).unwrap();
    run(&Protection::Keyed(Keys::new(key)));
    run(&Protection::DamageOnly);
}

fn run(protection: &Protection) {
    let end = |worker: u16| {
        let settings = ChannelSettings {
            salt: [1 + worker as u8; SALT],
            // Two spans of keys.
            first_number: (1 << 24) - 1000,
            ..ChannelSettings::new(worker, 1 - worker, 1 + u64::from(worker), protection.clone())
        };
        Channel::new(settings, 0).unwrap()
    };
    let (mut a, mut b) = (end(0), end(1));
    let (mut to_b, mut to_a) = (Wire::new(), Wire::new());
    let (mut heard, mut said, mut carried, mut now) = (0, 0u64, 0u64, 0);
    let allocations = testkit::allocations(|| {
        while heard < 100_000 {
            now += 5_000;
            for length in [64, 64, 64, 300, 2000] {
                let message = [9; 2000];
                if said < 100_000 && a.handle(now, Input::Message(&message[..length])) == Handled::Done {
                    said += 1;
                }
            }
            for (end, wire) in [(&mut a, &mut to_b), (&mut b, &mut to_a)] {
                let _ = end.handle(now, Input::Flush);
                let _ = end.handle(now, Input::Timeout);
                carry_out(end, wire, &mut heard);
            }
            carry(&mut to_b, &mut b, &mut to_a, now, &mut carried, &mut heard);
            carry(&mut to_a, &mut a, &mut to_b, now, &mut carried, &mut heard);
        }
    });
    assert_eq!(allocations, 0);
    assert_eq!(heard, said);
    assert!(a.counters().retransmissions > 100);
}
