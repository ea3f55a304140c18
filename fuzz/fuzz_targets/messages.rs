//! Messages between workers: any bytes end somewhere, and a message that was read is written as
//! long, and read again as it was. (Its bytes may differ: unused bytes of a record, and any number
//! but 0 where *yes* is 1.)

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
            assert_eq!(frame.frame().len(), length);
            assert_eq!(Message::read(frame.frame()), Some((message, &[][..])));
        });
        rest = next;
    }
});
