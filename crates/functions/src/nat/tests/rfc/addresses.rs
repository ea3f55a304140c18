//! Which packets are translated at all: inside prefixes, versions, static mappings, VLANs.

use super::*;

#[test]
fn only_inside_prefixes_are_translated_and_no_outside_host_reaches_them_directly() {
    let mut rig = Rig::new(Config {
        inside: vec!["10.0.0.0/8".parse().unwrap()],
        ..one_address()
    });
    let public = udp(([192, 0, 2, 200], 99), R1);
    assert_eq!(rig.send_inside(&public).sent(), public);
    let back = udp(R1, ([192, 0, 2, 200], 99));
    assert_eq!(rig.send_outside(&back).sent(), back);
    assert_eq!(rig.send_outside(&udp(R2, X1)).reason(), "no_mapping");
    assert_eq!(rig.send_inside(&udp((EXT, 5000), R1)).reason(), "spoofed");
    // Not by the key of an existing flow either, neither from the wrong side nor to the
    // untranslated address.
    open(&mut rig, X1, R1);
    assert_eq!(rig.send_outside(&udp(X1, R1)).reason(), "wrong_endpoint");
    assert_eq!(rig.send_outside(&udp(R1, X1)).reason(), "wrong_endpoint");
    assert_eq!(rig.send_inside(&udp(R1, X1)).reason(), "wrong_endpoint");
}

#[test]
fn no_inside_host_speaks_as_an_external_address_even_where_all_are_inside() {
    let mut rig = Rig::new(one_address());
    assert_eq!(rig.send_inside(&udp((EXT, 5000), R1)).reason(), "spoofed");
    rig.assert_empty();
}

#[test]
fn ipv6_passes_untouched_and_is_counted() {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv6([0x20; 16], [0x30; 16], 9)
        .udp(1, 2)
        .write(&mut frame, b"six")
        .unwrap();
    let mut rig = Rig::new(one_address());
    assert_eq!(rig.send_inside(&frame).sent(), frame);
    assert_eq!(rig.send_inside(&frame).sent(), frame);
    assert_eq!(rig.count("flows_untouched_ipv6"), 1);
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn static_mappings_are_open_to_all_both_ways() {
    let to = |inside: &str, outside: &str, protocol| StaticMapping {
        inside: inside.parse().unwrap(),
        outside: outside.parse().unwrap(),
        protocol,
    };
    let mut rig = Rig::new(Config {
        static_mappings: vec![
            to("10.0.0.5:80", "203.0.113.1:8080", StaticProtocol::Tcp),
            to("10.0.0.5:53", "192.0.2.77:53", StaticProtocol::Udp),
        ]
        .into(),
        ..one_address()
    });
    let sent = rig.send_outside(&tcp(R2, (EXT, 8080), Tcp::Syn)).sent();
    assert_checksums(&sent);
    assert_eq!(ends(&sent), (R2, ([10, 0, 0, 5], 80)));
    let back = rig.send_inside(&tcp(([10, 0, 0, 5], 80), R2, Tcp::SynAck)).sent();
    assert_eq!(ends(&back), ((EXT, 8080), R2));
    // Outward, too, and on an address that is not in the pool; from inside by hairpin.
    assert_eq!(open(&mut rig, ([10, 0, 0, 5], 53), R1), ([192, 0, 2, 77], 53));
    let hairpin = rig.send_inside(&udp(X1, ([192, 0, 2, 77], 53))).sent();
    assert_eq!(ends(&hairpin), ((EXT, X1.1), ([10, 0, 0, 5], 53)));
    assert_eq!(
        rig.send_outside(&udp(R2, (EXT, 8080))).reason(),
        "no_mapping",
        "another protocol"
    );
    // No host gets its block.
    for n in 0..200 {
        open(&mut rig, ([10, 0, 1, n], 8081), R1);
    }
    let reserved = rig.blocks.keys().any(|b| b.first == 8080 & !255);
    assert!(!reserved);
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn vlans_have_mappings_of_their_own() {
    let tagged = |vlan: u16, frame: &[u8]| {
        let mut tagged = frame[..12].to_vec();
        tagged.extend_from_slice(&[0x81, 0]);
        tagged.extend_from_slice(&vlan.to_be_bytes());
        tagged.extend_from_slice(&frame[12..]);
        tagged
    };
    let mut rig = with_filtering(Filtering::EndpointIndependent);
    let a = ends(&rig.send_inside(&tagged(10, &udp(X1, R1))).sent()).0;
    let b = ends(&rig.send_inside(&tagged(20, &udp(X1, R1))).sent()).0;
    assert_ne!(a, b);
    assert_eq!(rig.send_outside(&tagged(20, &udp(R2, a))).reason(), "no_mapping");
    assert_eq!(rig.send_outside(&tagged(10, &udp(R2, a))).reason(), "sent");
}
