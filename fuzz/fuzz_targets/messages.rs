//! Messages between workers: any bytes end somewhere, and what was read is written as it was.

#![no_main]

use libfuzzer_sys::fuzz_target;
use runtime::message::Message;

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    while let Some((message, next)) = Message::read(rest) {
        let length = rest.len() - next.len();
        flowkeep_fuzz::with_packet(wire::LinkType::Raw, 0, &[], |frame, _| {
            Message::begin(frame);
            assert!(message.append(frame));
            assert_eq!(frame.frame(), &rest[..length]);
        });
        rest = next;
    }
});
