//! Tests of the applications' port: on a mix made here, and on SFR where it is.

use super::template::entries;
use super::*;
use etherparse::{NetHeaders, PacketBuilder, PacketHeaders, TransportHeader};
use runtime::env::{BURST, Burst, Port};
use std::collections::{BTreeMap, HashMap};
use wire::memory::Region;
use wire::{FlowKey, Pool};

/// A pcap file of frames and their times in microseconds.
fn capture(frames: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (at, frame) in frames {
        let length = frame.len() as u32;
        for word in [1000 + at / 1_000_000, at % 1_000_000, length, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}

fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), data: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4(from.0, to.0, 64)
        .udp(from.1, to.1)
        .write(&mut frame, data)
        .unwrap();
    frame
}

const CLIENT: [u8; 4] = [21, 0, 0, 2];
const SERVER: [u8; 4] = [22, 0, 0, 12];

/// A folder with a mix of two: question and answer at 100 a second, a connection with a side
/// channel at 10 a second.
fn mix() -> (tempfile::TempDir, ApplicationsProfile) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: Vec<u8>| std::fs::write(folder.path().join(name), bytes).unwrap();
    let question = udp((CLIENT, 1030), (SERVER, 53), b"question");
    let answer = udp((SERVER, 53), (CLIENT, 1030), b"answer");
    write("dns.pcap", capture(&[(0, question), (10_000, answer)]));
    let call = udp((CLIENT, 5060), (SERVER, 5060), b"call");
    let media = udp((SERVER, 7000), (CLIENT, 7002), b"media");
    let arp = [vec![2; 12], vec![8, 6], vec![0; 46]].concat();
    write(
        "sip.pcap",
        capture(&[(0, arp), (0, call), (50_000, media.clone()), (70_000, media)]),
    );
    let list = "- duration : 1\n  cap_info :\n     - name: avl/dns.pcap\n       cps : 100.0 # a comment\n       ipg : 10000\n     - name: \"sip.pcap\"\n       cps : 10\n";
    write("mix.yaml", list.into());
    let profile = ApplicationsProfile {
        mix: folder.path().join("mix.yaml").display().to_string(),
        factor: 1.0,
        traffic: Profile {
            seconds_max: Some(10.0),
            ..Profile::default()
        },
    };
    (folder, profile)
}

type Made = (u64, Side, Vec<u8>);

fn run(applications: &mut Applications, burst_max: usize) -> Vec<Made> {
    let mut pool = Pool::new(
        Region::heap(Pool::region_length(burst_max, 2048)),
        burst_max,
        2048,
        0,
    );
    let mut made = Vec::new();
    while !applications.finished() {
        let mut burst = Burst::new();
        applications.receive(u64::MAX, &mut pool, &mut burst);
        for packet in burst.drain(..) {
            made.push((packet.timestamp(), packet.side(), packet.frame().to_vec()));
            pool.give(packet);
        }
    }
    assert_eq!(pool.free(), burst_max);
    assert_eq!(applications.counters().received_packets, made.len() as u64);
    made
}

/// The flow's key, the packet's data, and whether its transport checksum holds.
fn look(frame: &[u8]) -> (FlowKey, Vec<u8>, bool) {
    let headers = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let data = headers.payload.slice();
    let Some(NetHeaders::Ipv4(ip, _)) = headers.net else {
        panic!("no IPv4")
    };
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    let (from, to, sound) = match headers.transport.unwrap() {
        TransportHeader::Udp(u) => {
            let sum = u.calc_checksum_ipv4(&ip, data).unwrap();
            (
                u.source_port,
                u.destination_port,
                u.checksum == sum || u.checksum == 0,
            )
        }
        TransportHeader::Tcp(t) => {
            let sum = t.calc_checksum_ipv4(&ip, data).unwrap();
            (t.source_port, t.destination_port, t.checksum == sum)
        }
        other => panic!("{other:?}"),
    };
    let end = |addr, port| Endpoint::new(wire::Addr::v4(addr), port);
    let (key, _) = FlowKey::new(end(ip.source, from), end(ip.destination, to), ip.protocol.0, 0);
    (key, data.to_vec(), sound)
}

#[test]
fn connections_are_played_whole_with_addresses_of_their_own() {
    let (_folder, profile) = mix();
    let mut applications = Applications::new(&profile).unwrap();
    let made = run(&mut applications, BURST);
    let begun: Vec<u64> = applications.begun().map(|b| b.1).collect();
    assert_eq!(begun, [1000, 100]);
    assert!(made.windows(2).all(|w| w[0].0 <= w[1].0));
    let mut flows: HashMap<FlowKey, Vec<(u64, Side, Vec<u8>)>> = HashMap::new();
    for (at, side, frame) in &made {
        let (key, data, sound) = look(frame);
        assert!(sound);
        flows.entry(key).or_default().push((*at, *side, data));
    }
    let mut kinds: BTreeMap<&[u8], usize> = BTreeMap::new();
    for packets in flows.values() {
        *kinds.entry(&packets[0].2).or_default() += 1;
        if packets[0].2 == b"question" && packets[0].0 < 9_900_000_000 {
            assert_eq!(packets.len(), 2);
            assert_eq!(
                (packets[1].0 - packets[0].0, &packets[1].2[..]),
                (10_000_000, &b"answer"[..])
            );
            assert_eq!((packets[0].1, packets[1].1), (Side::Inside, Side::Outside));
        }
        if packets[0].2 == b"media" && packets[0].0 < 9_900_000_000 {
            assert_eq!(packets.len(), 2);
            assert_eq!(packets[1].0 - packets[0].0, 20_000_000);
        }
    }
    assert_eq!(
        (kinds[&b"question"[..]], kinds[&b"call"[..]]),
        (1000, 100),
        "each is a flow of its own"
    );
}

#[test]
fn the_same_settings_give_the_same_packets() {
    let (_folder, mut profile) = mix();
    profile.traffic.spacing = Spacing::Poisson;
    profile.factor = 2.0;
    let both = run(&mut Applications::new(&profile).unwrap(), BURST);
    assert!((3500..5500).contains(&both.len()), "{}", both.len());
    assert_eq!(run(&mut Applications::new(&profile).unwrap(), 1), both);
    for (emit, side) in [(Emit::Client, Side::Inside), (Emit::Server, Side::Outside)] {
        profile.traffic.emit = emit;
        let one = run(&mut Applications::new(&profile).unwrap(), BURST);
        assert!(one.iter().eq(both.iter().filter(|m| m.1 == side)));
    }
}

#[test]
fn lists_and_settings_are_checked() {
    assert_eq!(
        entries("- name: a/b.pcap\n  cps : 1.5\n# cps: 9\n- name : c.pcap\n  cps: 2").unwrap(),
        [("a/b.pcap".to_string(), 1.5), ("c.pcap".to_string(), 2.0)]
    );
    for text in [
        "",
        "cps : 1",
        "- name: a.pcap",
        "- name: a.pcap\n  cps : 0",
        "- name: a.pcap\n  cps : x",
    ] {
        assert!(entries(text).is_err(), "{text}");
    }
    let (folder, profile) = mix();
    let refused = |spoil: &dyn Fn(&mut ApplicationsProfile)| {
        let mut profile = profile.clone();
        spoil(&mut profile);
        Applications::new(&profile).err().map(|e| e.at)
    };
    assert_eq!(refused(&|_| ()), None);
    assert_eq!(refused(&|p| p.factor = 0.0).as_deref(), Some("factor"));
    assert_eq!(
        refused(&|p| p.mix = "no-such-list".into()).as_deref(),
        Some("mix")
    );
    assert_eq!(
        refused(&|p| p.traffic.sources = vec!["2001:db8::/64".into()]).as_deref(),
        Some("traffic.sources")
    );
    std::fs::write(folder.path().join("dns.pcap"), capture(&[])).unwrap();
    assert_eq!(refused(&|_| ()).as_deref(), Some("mix"));
    std::fs::remove_file(folder.path().join("dns.pcap")).unwrap();
    assert_eq!(refused(&|_| ()).as_deref(), Some("mix"));
}

#[test]
fn sfr_is_played_at_its_rates() {
    let Some(data) = crate::generate::tests::shared_data("workload/trex") else {
        return;
    };
    let list = data.join("sfr_delay_10.yaml");
    let rates = entries(&std::fs::read_to_string(&list).unwrap()).unwrap();
    assert_eq!(rates.len(), 18);
    let profile = ApplicationsProfile {
        mix: list.display().to_string(),
        factor: 1.0,
        traffic: Profile {
            seconds_max: Some(5.0),
            ..Profile::default()
        },
    };
    let mut applications = Applications::new(&profile).unwrap();
    let made = run(&mut applications, BURST);
    for ((name, begun), (_, rate)) in applications.begun().zip(&rates) {
        assert!(
            (begun as f64 - rate * 5.0).abs() <= 1.0,
            "{name}: {begun} in 5 s at {rate}"
        );
    }
    // The recorded checksums are not all right; right ones stay right.
    let mut wrong = Vec::new();
    for template in &applications.source.templates {
        let looks = template.packets.iter().map(|p| look(template.frame(p)));
        wrong.extend(looks.filter(|l| !l.2).map(|l| l.1));
    }
    for (_, _, frame) in &made {
        let (_, contents, sound) = look(frame);
        assert!(sound || wrong.contains(&contents));
    }
    assert!(made.len() > 50_000, "{}", made.len());
}
