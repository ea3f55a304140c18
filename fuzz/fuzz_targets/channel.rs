//! Frames from another worker: any bytes end somewhere, in bounded memory, and a delivered message
//! is no longer than it may be.
//!
//! An input is frames, each behind its length in two bytes. The channel asks for no tag, as if the
//! sender had the key, and has met the other end; a frame may also come in Geneve, whose reader is
//! fed with all of them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use protocols::channel::{Channel, ChannelSettings, Handled, Input, Output, Protection};
use protocols::link::geneve::{FRONT, Front};

const MESSAGE_MAX: usize = 2000;

fn end(worker: u16) -> Channel {
    let settings = ChannelSettings {
        frame_max: 600,
        send_frames: 64,
        receive_frames: 64,
        message_max: MESSAGE_MAX,
        ..ChannelSettings::new(worker, 1 - worker, 1, Protection::SharedMemory)
    };
    Channel::new(settings, 0).expect("good settings")
}

fn take(channel: &mut Channel) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(output) = channel.poll() {
        match output {
            Output::Frame(frame) => frames.push(frame.to_vec()),
            Output::Message(message) => assert!(message.len() <= MESSAGE_MAX),
            _ => {}
        }
    }
    frames
}

fuzz_target!(|input: &[u8]| {
    let (mut here, mut there) = (end(0), end(1));
    for _ in 0..3 {
        for mut frame in take(&mut there) {
            let _ = here.handle(0, Input::Frame(&mut frame, 0));
        }
        for mut frame in take(&mut here) {
            let _ = there.handle(0, Input::Frame(&mut frame, 0));
        }
    }
    assert!(here.is_met());
    let (mut rest, mut now) = (input, 0);
    while let Some((&length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(length)).min(behind.len());
        let (frame, behind) = behind.split_at(length);
        rest = behind;
        now += 10_000;
        let kept = here.handle(now, Input::Frame(&mut frame.to_vec(), 7)) == Handled::Kept;
        if let Ok((front, inside)) = Front::read(frame, 0) {
            let mut bytes = [0; FRONT];
            front.write(&mut bytes);
            assert_eq!(Front::read(&bytes, 0).map(|(again, _)| again), Ok(front));
            let _ = here.handle(now, Input::Frame(&mut inside.to_vec(), 8));
        }
        // Something goes the other way, so that there is something to acknowledge.
        let _ = here.handle(now, Input::Message(&[1; 100]));
        let _ = here.handle(now, Input::Flush);
        let _ = here.handle(now, Input::Timeout);
        if kept || length % 2 == 0 {
            take(&mut here);
        }
        let (sending, receiving) = here.in_use();
        assert!(sending <= 64 && receiving <= 64);
    }
});
