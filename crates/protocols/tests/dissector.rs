//! The Wireshark dissector sees in a capture what the channel wrote: every kind of frame, every
//! field, on both links.

use flowkeep_protocols::channel::wire::{self, Head, Kind, flag};
use flowkeep_protocols::channel::{
    Channel, ChannelSettings, Handled, Input, Key, Keys, Output, Protection, SALT,
};
use flowkeep_protocols::link::{ether, geneve};
use std::path::PathBuf;
use std::process::Command;

/// Frames of all kinds, as two ends make them over a network that loses some.
fn frames(protection: &Protection) -> Vec<Vec<u8>> {
    let end = |worker: u16| {
        let settings = ChannelSettings {
            send_frames: 128,
            receive_frames: 64,
            first_sequence: u64::from(u32::MAX) - 1,
            first_number: u64::MAX - 4,
            salt: [0xa0 + worker as u8; SALT],
            agreed: std::array::from_fn(|word| (word as u64) << 58),
            ..ChannelSettings::new(
                worker,
                3 - worker,
                1_700_000_000 + u64::from(worker),
                protection.clone(),
            )
        };
        Channel::new(settings, 0).unwrap()
    };
    let mut ends = [end(1), end(2)];
    let mut all = Vec::new();
    let mut lost = 0;
    let mut now = 0;
    let packet = [&[2; 12][..], &[0x08, 0x00], &[0x45; 40]].concat();
    for round in 0..40u64 {
        now += 300_000;
        let sender = &mut ends[0];
        if round < 20 {
            for length in [0, 5, 64] {
                assert_eq!(
                    sender.handle(now, Input::Message(&vec![round as u8; length])),
                    Handled::Done
                );
            }
            if round == 7 {
                assert_eq!(sender.handle(now, Input::Message(&[9; 3000])), Handled::Done);
            }
            if round == 9 {
                assert_eq!(sender.handle(now, Input::Packet(0)), Handled::Done);
            }
        }
        let mut wire: Vec<(usize, Vec<u8>)> = Vec::new();
        for (side, end) in ends.iter_mut().enumerate() {
            let _ = end.handle(now, Input::Flush);
            let _ = end.handle(now, Input::Timeout);
            take(side, end, &packet, &mut wire);
        }
        while !wire.is_empty() {
            for (from, mut frame) in std::mem::take(&mut wire) {
                let is_messages = Head::read(&frame).unwrap().kind == Kind::Messages;
                all.push(frame.clone());
                // Frames of rounds 10 to 12 on their first way.
                if is_messages && (10..13).contains(&round) && lost < 3 {
                    lost += 1;
                    continue;
                }
                let end = &mut ends[1 - from];
                let _ = end.handle(now, Input::Frame(&mut frame, 0));
                take(1 - from, end, &packet, &mut wire);
            }
        }
    }
    all
}

fn take(side: usize, end: &mut Channel, packet: &[u8], wire: &mut Vec<(usize, Vec<u8>)>) {
    loop {
        let back = end.back();
        match end.poll() {
            Some(Output::Frame(frame)) => wire.push((side, frame.to_vec())),
            Some(Output::SendPacket(_)) => {
                let mut frame = [&[0; Channel::FRONT][..], packet, &vec![0; back]].concat();
                assert!(end.wrap(&mut frame));
                wire.push((side, frame));
            }
            Some(_) => {}
            None => return,
        }
    }
}

/// A capture: every other frame on Ethernet, the rest in Geneve over IPv4.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    // pcap, microseconds, Ethernet.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (count, frame) in frames.iter().enumerate() {
        let mut front = vec![0; ether::FRONT];
        ether::write(
            front.first_chunk_mut().unwrap(),
            [2, 0, 0, 0, 0, 2],
            [2, 0, 0, 0, 0, 1],
        );
        if count % 2 == 1 {
            let head = Head::read(frame).unwrap();
            let length = 20 + 8 + geneve::FRONT + frame.len();
            front[12..].copy_from_slice(&[0x08, 0x00]);
            front.extend([0x45, 0]);
            front.extend((length as u16).to_be_bytes());
            front.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
            front.extend(geneve::source_port(head.from, head.to).to_be_bytes());
            front.extend(geneve::PORT.to_be_bytes());
            front.extend((length as u16 - 20).to_be_bytes());
            front.extend([0, 0]);
            let mut before = [0; geneve::FRONT];
            let network = 77;
            geneve::Front {
                network,
                from: head.from,
                to: head.to,
            }
            .write(&mut before);
            front.extend(before);
        }
        let length = (front.len() + frame.len()) as u32;
        for word in [count as u32, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(front);
        file.extend(frame);
    }
    file
}

const FIELDS: [&str; 23] = [
    "version",
    "kind",
    "flags",
    "flags.ask",
    "flags.again",
    "key",
    "from",
    "to",
    "from_incarnation",
    "to_incarnation",
    "number",
    "sequence",
    "acknowledged",
    "seen",
    "agreed",
    "window",
    "length",
    "words",
    "arrived",
    "record.length",
    "salt",
    "encrypted",
    "tag",
];

/// The fields that tshark is to say of a frame.
fn expected(frame: &[u8]) -> Vec<String> {
    let head = Head::read(frame).unwrap();
    let bit = |bit| u8::from(head.flags & bit != 0).to_string();
    let is_hello = head.kind == Kind::Hello;
    let words = head.arrived(frame).filter(|_| !is_hello);
    let arrived: Vec<String> = words.map(|word| format!("0x{word:016x}")).collect();
    let mut records = Vec::new();
    let is_encrypted = head.flags & flag::KEYED != 0 && !is_hello;
    if head.kind == Kind::Messages && !is_encrypted {
        let mut at = 0;
        while let Some(record) = wire::record(head.payload(frame), at) {
            records.push((record.end - record.start).to_string());
            at = record.end;
        }
    }
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let salts = match is_hello {
        true => head.salts(frame).map(|salt| hex(&salt)).join(","),
        false => String::new(),
    };
    let encrypted = match is_encrypted {
        true => hex(head.payload(frame)),
        false => String::new(),
    };
    let unless_hello = |number: u64| {
        if is_hello {
            String::new()
        } else {
            number.to_string()
        }
    };
    let agreed = match is_hello {
        true => head.agreed(frame).map(|word| format!("0x{word:016x}")).join(","),
        false => String::new(),
    };
    vec![
        wire::VERSION.to_string(),
        (head.kind as u8).to_string(),
        format!("0x{:02x}", head.flags),
        bit(flag::ASK),
        bit(flag::AGAIN),
        head.key.to_string(),
        head.from.to_string(),
        head.to.to_string(),
        head.from_incarnation.to_string(),
        head.to_incarnation.to_string(),
        head.number.to_string(),
        unless_hello(head.sequence),
        unless_hello(head.acknowledged),
        unless_hello(head.seen),
        agreed,
        head.window.to_string(),
        head.length.to_string(),
        head.words.to_string(),
        arrived.join(","),
        records.join(","),
        salts,
        encrypted,
        hex(&frame[frame.len() - wire::TAG..]),
    ]
}

/// The file is removed however the test ends.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn tshark_sees_what_was_written() {
    check("plain", &Protection::DamageOnly);
}

/// Encrypted bytes are shown as that, and the heads are read.
#[test]
fn tshark_sees_what_is_encrypted() {
    let key = Key::new(7, [7; 32]).unwrap();
    check("encrypted", &Protection::Keyed(Keys::new(key)));
}

fn check(name: &str, protection: &Protection) {
    let frames = frames(protection);
    let has = |wanted: &dyn Fn(&Head) -> bool| frames.iter().any(|frame| wanted(&Head::read(frame).unwrap()));
    for kind in [Kind::Hello, Kind::Messages, Kind::Acknowledgement, Kind::Packet] {
        assert!(has(&|head| head.kind == kind), "a frame of kind {kind:?}");
    }
    assert!(has(&|head| head.words > 0) && has(&|head| head.flags & flag::AGAIN != 0));
    let path = std::env::temp_dir().join(format!("flowkeep-dissector-{name}-{}.pcap", std::process::id()));
    let file = Removed(path);
    std::fs::write(&file.0, capture(&frames)).unwrap();
    let script = concat!(
        "lua_script:",
        env!("CARGO_MANIFEST_DIR"),
        "/../../tools/wireshark/flowkeep.lua"
    );
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-X", script, "-T", "fields", "-E", "occurrence=a"]);
    for field in FIELDS {
        tshark.arg("-e").arg(format!("flowkeep.{field}"));
    }
    tshark.args(["-e", "geneve.vni", "-r"]).arg(&file.0);
    let Ok(output) = tshark.output() else {
        println!("not run: needs tshark");
        return;
    };
    let (text, problems) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{problems}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), frames.len(), "{problems}");
    for (count, (line, frame)) in lines.iter().zip(&frames).enumerate() {
        let mut seen: Vec<&str> = line.split('\t').collect();
        let network = seen.pop().unwrap_or_default();
        assert_eq!(seen, expected(frame), "frame {count}");
        assert_eq!(
            network,
            if count % 2 == 1 { "0x00004d" } else { "" },
            "frame {count}"
        );
    }
}
