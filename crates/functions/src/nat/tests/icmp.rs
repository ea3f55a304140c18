//! ICMP errors both ways (RFC 5508 4 and 7.2, RFC 4787 REQ-12), checksums recomputed inside and
//! out.

extern crate std;

use super::frames::{Tcp, V4, assert_checksums, echo, ends, mend_ip, quoted, tcp, udp, unreachable};
use super::rig::{Out, Rig, pool_of};
use crate::nat::{Config, Filtering};
use nf::Side;
use std::vec::Vec;

const X1: V4 = ([10, 0, 0, 1], 5000);
const X2: V4 = ([10, 0, 0, 2], 6001);
const R1: V4 = ([198, 51, 100, 7], 5353);
const ROUTER: [u8; 4] = [198, 18, 0, 1];
const EXT: [u8; 4] = [203, 0, 113, 1];
const WHOLE: usize = 1500;

fn rig() -> Rig {
    Rig::new(pool_of("203.0.113.1/32"))
}

/// Outer addresses, and the quoted packet's ends; all checksums being right.
fn judge(frame: &[u8]) -> ([u8; 4], [u8; 4], V4, V4) {
    assert_checksums(frame);
    let ((from, _), (to, _)) = ends(frame);
    let inner = quoted(frame);
    assert_checksums(&inner);
    let (a, b) = ends(&inner);
    (from, to, a, b)
}

#[test]
fn rfc5508_req4_errors_from_outside_reach_the_inside_host() {
    let packets: [Vec<u8>; 3] = [udp(X1, R1), tcp(X1, R1, Tcp::Syn), echo(X1.0, R1.0, 5000, true)];
    for packet in packets {
        let mut rig = rig();
        let sent = rig.send_inside(&packet).sent();
        let before = rig.timeout();
        let error = rig.send_outside(&unreachable(ROUTER, EXT, &sent, WHOLE)).sent();
        let (from, to, source, destination) = judge(&error);
        assert_eq!((from, to), (ROUTER, X1.0));
        assert_eq!((source, destination), ends(&packet));
        assert_eq!(rig.timeout(), before, "REQ-6: the flow takes no notice");
        assert_eq!(rig.count("icmp_errors_translated"), 1);
        rig.expire_all();
        rig.assert_empty();
    }
}

#[test]
fn rfc5508_req5_errors_from_inside_hide_the_inside_host_and_its_routers() {
    for sender in [X1.0, [10, 9, 9, 9]] {
        let mut rig = rig();
        let (outside, _) = ends(&rig.send_inside(&udp(X1, R1)).sent());
        let delivered = rig.send_outside(&udp(R1, outside)).sent();
        let error = rig
            .send_inside(&unreachable(sender, R1.0, &delivered, WHOLE))
            .sent();
        assert_eq!(judge(&error), (EXT, R1.0, R1, outside));
    }
}

#[test]
fn an_error_that_quotes_eight_bytes_is_enough() {
    for packet in [udp(X1, R1), tcp(X1, R1, Tcp::Syn)] {
        let mut rig = rig();
        let sent = rig.send_inside(&packet).sent();
        let error = rig.send_outside(&unreachable(ROUTER, EXT, &sent, 28)).sent();
        assert_checksums(&error);
        assert_eq!(&error[30..34], &X1.0);
        // The quoted header: its checksum, source address and source port.
        assert_eq!(wire::checksum::checksum(&error[42..62]), 0);
        assert_eq!(&error[54..58], &X1.0);
        assert_eq!(&error[62..64], &X1.1.to_be_bytes());
    }
}

#[test]
fn rfc5508_req3_errors_with_wrong_checksums_are_dropped() {
    let mut rig = rig();
    let sent = rig.send_inside(&udp(X1, R1)).sent();
    let good = unreachable(ROUTER, EXT, &sent, WHOLE);
    let mut outer = good.clone();
    outer[36] ^= 1;
    assert_eq!(rig.send_outside(&outer).reason(), "icmp_malformed");
    // The quoted header's own checksum, with the error's mended.
    let mut broken = sent.clone();
    broken[24] ^= 1;
    let inner = unreachable(ROUTER, EXT, &broken, WHOLE);
    assert_eq!(rig.send_outside(&inner).reason(), "icmp_malformed");
    assert_eq!(rig.send_outside(&good).reason(), "sent");
}

#[test]
fn errors_about_nothing_we_know_are_dropped_and_leave_nothing() {
    let mut rig = rig();
    let stranger = udp((EXT, 4000), R1);
    assert_eq!(
        rig.send_outside(&unreachable(ROUTER, EXT, &stranger, WHOLE))
            .reason(),
        "icmp_unrelated"
    );
    assert_eq!(
        rig.send_inside(&unreachable(X1.0, R1.0, &udp(R1, X1), WHOLE))
            .reason(),
        "icmp_unrelated"
    );
    assert_eq!(rig.flow_count(), 0);
    // Too short a quotation is no error of any flow.
    assert_eq!(
        rig.send_outside(&unreachable(ROUTER, EXT, &stranger, 24))
            .reason(),
        "icmp_unrelated"
    );
    let sent = rig.send_inside(&udp(X1, R1)).sent();
    let elsewhere = unreachable(ROUTER, [203, 0, 113, 9], &sent, WHOLE);
    assert_eq!(rig.send_outside(&elsewhere).reason(), "icmp_mismatch");
    // Quoting the private packet, from outside: the key is the flow's, the endpoint is not.
    let leaked = unreachable(ROUTER, EXT, &udp(X1, R1), WHOLE);
    assert_eq!(rig.send_outside(&leaked).reason(), "icmp_mismatch");
    assert_eq!(rig.flow_count(), 1);
}

#[test]
fn rfc4787_req12_errors_do_not_end_a_mapping() {
    let mut rig = rig();
    let sent = rig.send_inside(&tcp(X1, R1, Tcp::Syn)).sent();
    for _ in 0..3 {
        rig.send_outside(&unreachable(ROUTER, EXT, &sent, WHOLE)).sent();
    }
    assert_eq!((rig.mappings(), rig.flow_count()), (1, 1));
    assert_eq!(ends(&rig.send_inside(&tcp(X1, R1, Tcp::Syn)).sent()), ends(&sent));
}

#[test]
fn rfc5508_req7_errors_take_the_hairpin_back() {
    let mut rig = Rig::new(Config {
        filtering: Filtering::EndpointIndependent,
        ..pool_of("203.0.113.1/32")
    });
    let (e2, _) = ends(&rig.send_inside(&udp(X2, R1)).sent());
    let delivered = rig.send_inside(&udp(X1, e2)).sent();
    let (e1, _) = ends(&delivered);
    let error = rig.send_inside(&unreachable(X2.0, e1.0, &delivered, WHOLE));
    let Out::Sent(side, frame) = error else {
        panic!("{error:?}")
    };
    assert_eq!(side, Side::Inside);
    assert_eq!(judge(&frame), (e2.0, X1.0, X1, e2));
}

#[test]
fn a_quoted_udp_packet_without_checksum_stays_without() {
    let mut rig = rig();
    let mut packet = udp(X1, R1);
    packet[40..42].fill(0);
    let sent = rig.send_inside(&packet).sent();
    let error = rig.send_outside(&unreachable(ROUTER, EXT, &sent, WHOLE)).sent();
    let (_, _, source, _) = judge(&error);
    assert_eq!(source, X1);
    assert_eq!(&quoted(&error)[40..42], &[0, 0]);
}

#[test]
fn errors_about_untouched_flows_pass() {
    let mut rig = Rig::new(Config {
        inside: std::vec!["10.0.0.0/8".parse().unwrap()],
        ..pool_of("203.0.113.1/32")
    });
    let public = udp(([192, 0, 2, 200], 99), R1);
    let sent = rig.send_inside(&public).sent();
    let mut error = unreachable(ROUTER, [192, 0, 2, 200], &sent, WHOLE);
    mend_ip(&mut error);
    assert_eq!(rig.send_outside(&error).sent(), error);
}
