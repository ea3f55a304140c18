//! The Wireshark dissector sees in a capture of a link what a peer wrote: every field of a packet's
//! head, and the packet behind it.

use flowkeep_runtime as runtime;
use protocols::channel::Protection;
use runtime::message::Message;
use runtime::peer::{FrameLink, Peer, PeerSettings};
use runtime::{Burst, Port, PortCounters};
use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use wire::memory::Region;
use wire::packet::{Side, flag};
use wire::{LinkType, Packet, Pool};

/// Both directions of a wire, and all that was on it.
#[derive(Default)]
struct Wire {
    ways: [Vec<Vec<u8>>; 2],
    seen: Vec<Vec<u8>>,
}

struct End {
    wire: Rc<RefCell<Wire>>,
    side: usize,
    frame: Vec<u8>,
}

impl FrameLink for End {
    fn frame_max(&self) -> usize {
        1400
    }
    fn receive(&mut self) -> Option<&mut [u8]> {
        let way = &mut self.wire.borrow_mut().ways[1 - self.side];
        (!way.is_empty()).then(|| self.frame = way.remove(0))?;
        Some(&mut self.frame)
    }
    fn send(&mut self, frame: &[u8]) {
        let mut wire = self.wire.borrow_mut();
        wire.ways[self.side].push(frame.to_vec());
        wire.seen.push(frame.to_vec());
    }
    fn flush(&mut self) {}
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

fn fill(packet: &mut Packet, number: u8) {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2([2; 6], [3; 6])
        .ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64)
        .udp(4000 + u16::from(number), 53)
        .write(&mut frame, &[7; 40])
        .unwrap();
    if number == 3 {
        // A fragment that is not the first.
        frame[21] = 2;
    }
    assert!(packet.set_frame(&frame, LinkType::Ethernet));
    wire::parse(packet).unwrap();
    packet.set_timestamp(77_000 + u64::from(number));
    packet.set_hash(0xfedc_ba98_0000_0000 + u64::from(number));
    packet.set_side([Side::Inside, Side::Outside][usize::from(number & 1)]);
    packet.set_exit(Side::Outside);
    packet.set_port(5);
    match number {
        1 => packet.set_egress(6),
        2 => packet.add_hairpin(),
        3 => {
            packet.set_flags(flag::FOLLOWED);
            packet.set_ports(4003, 53);
        }
        _ => packet.set_flags(flag::HAIRPIN | flag::INSIDE_TO_INSIDE | 0x4000),
    }
    packet.set_wire_length(1234);
}

const FIELDS: [&str; 17] = [
    "what",
    "packet.link",
    "packet.side",
    "packet.exit",
    "packet.flags",
    "packet.flags.parsed",
    "packet.flags.inside_to_inside",
    "packet.flags.hairpin",
    "packet.flags.followed",
    "packet.flags.watched",
    "packet.port",
    "packet.egress",
    "packet.hairpins",
    "packet.protocol",
    "packet.wire_length",
    "packet.hash",
    "packet.time",
];

/// The file is removed however the test ends.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn tshark_sees_what_was_written() {
    let wire = Rc::new(RefCell::new(Wire::default()));
    let mut pool = Pool::new(Region::heap(Pool::region_length(128, 4000)), 128, 4000, 0);
    let mut ends = [0, 1].map(|side| {
        let settings = PeerSettings::new(side as u16, 1 - side as u16, 1, Protection::DamageOnly);
        let end = End {
            wire: wire.clone(),
            side,
            frame: Vec::new(),
        };
        Peer::new(end, settings, 0).unwrap()
    });
    let mut burst = Burst::new();
    let mut now = 0;
    while ends.iter().any(|end| end.session() == 0) {
        now += 1000;
        for end in &mut ends {
            end.receive(now, &mut pool, &mut burst);
        }
    }
    assert!(burst.is_empty());
    wire.borrow_mut().seen.clear();
    for number in 0..4 {
        let mut packet = pool.take().unwrap();
        fill(&mut packet, number);
        burst.push(packet);
    }
    let mut words = pool.take().unwrap();
    Message::begin(&mut words);
    assert!(words.set_length(20));
    burst.push(words);
    ends[0].transmit(now, &mut pool, &mut burst);
    ends[0].receive(now, &mut pool, &mut burst);
    let frame = wire.borrow().seen[0].clone();

    // A capture of it on Ethernet.
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    let length = (14 + frame.len()) as u32;
    file.extend([length.to_le_bytes(), length.to_le_bytes()].concat());
    file.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    file.extend(&frame);
    let path = Removed(std::env::temp_dir().join(format!("flowkeep-peer-{}.pcap", std::process::id())));
    std::fs::write(&path.0, file).unwrap();
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
    tshark.args(["-e", "udp.srcport", "-r"]).arg(&path.0);
    let Ok(output) = tshark.output() else {
        println!("not run: needs tshark");
        return;
    };
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problems}");
    let text = String::from_utf8_lossy(&output.stdout);
    let seen: Vec<&str> = text.trim_end_matches('\n').split('\t').collect();
    let expected = [
        "1,1,1,1,2",
        "1,1,1,1",
        "0,1,0,1",
        "1,1,1,1",
        "0x47,0x01,0x01,0x09",
        "1,1,1,1",
        "1,0,0,0",
        "1,0,0,0",
        "0,0,0,1",
        "1,0,0,0",
        "5,5,5,5",
        "0,7,0,0",
        "0,0,1,0",
        "0,0,0,17",
        "1234,1234,1234,1234",
        "0xfedcba9800000000,0xfedcba9800000001,0xfedcba9800000002,0xfedcba9800000003",
        "77000,77001,77002,77003",
        "4000,4001,4002",
    ];
    assert_eq!(seen, expected, "{problems}");
}
