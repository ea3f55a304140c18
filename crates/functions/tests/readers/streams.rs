//! Streams against PcapPlusPlus's reassembly of the same capture: every byte of both directions, in order.

use crate::{capture, data};
use flowkeep_functions::stream::{Piece, Streams};
use std::collections::HashMap;
use wire::memory::Region;
use wire::{FlowKey, LinkType, Orientation, Pool};

struct Connection {
    opening: Orientation,
    streams: Streams,
    /// Both directions as they came, one behind another, and how many bytes each had.
    text: Vec<u8>,
    bytes: [usize; 2],
    gaps: usize,
}

/// Every TCP connection of a capture.
fn connections(path: &std::path::Path) -> HashMap<FlowKey, Connection> {
    let mut pool = Pool::new(Region::heap(Pool::region_length(1, 65_535)), 1, 65_535, 0);
    let mut packet = pool.take().expect("a buffer");
    let mut found: HashMap<FlowKey, Connection> = HashMap::new();
    for frame in capture::frames(path).expect("a capture") {
        let link = LinkType::from_pcap(frame.link).expect("a known link type");
        assert!(packet.set_frame(&frame.bytes, link));
        packet.set_wire_length(frame.wire_length);
        if wire::parse(&mut packet).is_err() || packet.tcp().is_none() {
            continue;
        }
        let (key, way) = FlowKey::of(&packet).expect("TCP has a key");
        let Connection {
            opening,
            streams,
            text,
            bytes,
            gaps,
        } = found.entry(key).or_insert(Connection {
            opening: way,
            streams: Streams::default(),
            text: Vec::new(),
            bytes: [0; 2],
            gaps: 0,
        });
        let half = usize::from(way != *opening);
        streams.accept(&packet, half, true, &mut |piece| match piece {
            Piece::Bytes { bytes: new, .. } => {
                text.extend(new);
                bytes[half] += new.len();
            }
            Piece::Gap { .. } => *gaps += 1,
        });
    }
    pool.give(packet);
    found
}

#[test]
fn streams_equal_pcapplusplus() {
    let Some(root) = data("reassembly/pcapplusplus") else {
        return;
    };
    let found = connections(&root.join("tcp-reassembly.pcap"));
    let name = "172.16.133.54.64370-23.21.118.18.80";
    let folder = root.join("expected_output/tcpreassembly_sanity");
    let expected = std::fs::read(folder.join(format!("{name}.txt"))).expect("the stream reads");
    let ends = ["172.16.133.54:64370", "23.21.118.18:80"].map(|end| end.parse().expect("an endpoint"));
    let (key, _) = FlowKey::new(ends[0], ends[1], wire::protocol::TCP, 0);
    let connection = &found[&key];
    println!(
        "{} bytes there, {} and {} back, {} gaps",
        connection.bytes[0],
        connection.text.len(),
        connection.bytes[1],
        connection.gaps
    );
    assert_eq!(connection.bytes, [9997, 29_480]);
    assert_eq!(connection.gaps, 0);
    assert!(connection.text == expected, "the bytes differ");
}

#[test]
fn four_connections_over_ipv6_are_whole() {
    let Some(root) = data("reassembly/pcapplusplus") else {
        return;
    };
    let found = connections(&root.join("unit/four_ipv6_http_streams.pcap"));
    assert_eq!(found.len(), 4);
    for connection in found.values() {
        assert!(connection.text.starts_with(b"GET ") && connection.bytes[1] > 0);
        assert_eq!((connection.gaps, connection.streams.kept()), (0, 0));
    }
}
