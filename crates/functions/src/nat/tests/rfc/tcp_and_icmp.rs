//! Differences for TCP, ICMP queries and other protocols: RFC 5382 and 5508.

use super::*;

#[test]
fn rfc5382_req1_tcp_mapping_is_endpoint_independent() {
    let mut rig = Rig::new(one_address());
    let seen: HashSet<_> = (0..100)
        .map(|n| ends(&rig.send_inside(&tcp(X1, (R1.0, 1000 + n), Tcp::Syn)).sent()).0)
        .collect();
    assert_eq!((seen.len(), rig.mappings()), (1, 1));
}

fn tcp_open(rig: &mut Rig) -> ([u8; 4], u16) {
    let sent = rig.send_inside(&tcp(X1, R1, Tcp::Syn)).sent();
    assert_checksums(&sent);
    ends(&sent).0
}

fn from_r1(rig: &mut Rig, outside: ([u8; 4], u16), kind: Tcp) {
    let sent = rig.send_outside(&tcp(R1, outside, kind)).sent();
    assert_checksums(&sent);
    assert_eq!(ends(&sent), (R1, X1));
}

#[test]
fn rfc5382_req2_simultaneous_open() {
    let mut rig = Rig::new(one_address());
    let outside = tcp_open(&mut rig);
    from_r1(&mut rig, outside, Tcp::Syn);
    rig.send_inside(&tcp(X1, R1, Tcp::SynAck)).sent();
    from_r1(&mut rig, outside, Tcp::SynAck);
    assert_eq!((rig.flow_count(), rig.timeout()), (1, Some(HOURS_2_04)));
}

#[test]
fn rfc5382_req3_req4_unsolicited_syns_are_filtered_in_silence() {
    let mut rig = Rig::new(one_address());
    let outside = tcp_open(&mut rig);
    assert_eq!(rig.send_outside(&tcp(R2, outside, Tcp::Syn)).reason(), "filtered");
    assert_eq!(
        rig.send_outside(&tcp((R1.0, 1), outside, Tcp::Ack)).reason(),
        "tcp_not_opening"
    );
    assert_eq!(
        rig.send_outside(&tcp((R1.0, 1), outside, Tcp::Syn)).reason(),
        "sent"
    );
    let mut rig = with_filtering(Filtering::EndpointIndependent);
    let outside = tcp_open(&mut rig);
    assert_eq!(rig.send_outside(&tcp(R2, outside, Tcp::Syn)).reason(), "sent");
}

#[test]
fn rfc5382_req5_tcp_timeouts_by_phase() {
    let transitory = Some(Duration::from_secs(240));
    let mut rig = Rig::new(one_address());
    let outside = tcp_open(&mut rig);
    assert_eq!(rig.timeout(), transitory);
    from_r1(&mut rig, outside, Tcp::SynAck);
    rig.send_inside(&tcp(X1, R1, Tcp::Ack)).sent();
    assert_eq!(rig.timeout(), Some(HOURS_2_04));
    rig.send_inside(&tcp(X1, R1, Tcp::Fin)).sent();
    assert_eq!(
        rig.timeout(),
        Some(HOURS_2_04),
        "half closed, the other half may still send"
    );
    from_r1(&mut rig, outside, Tcp::Fin);
    assert_eq!(rig.timeout(), transitory);
    rig.send_inside(&tcp(X1, R1, Tcp::Ack)).sent();
    assert_eq!(rig.timeout(), transitory);
    // The same endpoints again.
    assert_eq!(tcp_open(&mut rig), outside);
    from_r1(&mut rig, outside, Tcp::SynAck);
    assert_eq!(rig.timeout(), Some(HOURS_2_04));
    // A reset may be forged: a packet behind it takes it back (RFC 6146 3.5.2.2).
    from_r1(&mut rig, outside, Tcp::Rst);
    assert_eq!(rig.timeout(), transitory);
    rig.send_inside(&tcp(X1, R1, Tcp::Ack)).sent();
    assert_eq!(rig.timeout(), Some(HOURS_2_04));
}

#[test]
fn rfc7857_2_1_opening_and_closing_have_timeouts_of_their_own() {
    let mut rig = Rig::new(Config {
        timeouts: crate::nat::Timeouts {
            tcp_opening: Duration::from_secs(30),
            tcp_closing: Duration::from_secs(300),
            ..Default::default()
        },
        ..one_address()
    });
    let outside = tcp_open(&mut rig);
    assert_eq!(rig.timeout(), Some(Duration::from_secs(30)));
    from_r1(&mut rig, outside, Tcp::SynAck);
    from_r1(&mut rig, outside, Tcp::Rst);
    assert_eq!(rig.timeout(), Some(Duration::from_secs(300)));
}

#[test]
fn tcp_can_be_picked_up_in_the_middle_from_inside() {
    let mut rig = Rig::new(one_address());
    let sent = rig.send_inside(&tcp(X1, R1, Tcp::Ack)).sent();
    assert_eq!(rig.timeout(), Some(Duration::from_secs(240)));
    from_r1(&mut rig, ends(&sent).0, Tcp::Ack);
    assert_eq!(rig.timeout(), Some(HOURS_2_04));
}

#[test]
fn rfc5508_req1_queries_are_mapped_by_identifier() {
    let mut rig = Rig::new(one_address());
    let first = rig.send_inside(&echo(X1.0, R1.0, 700, true)).sent();
    assert_checksums(&first);
    let (a, _) = ends(&first);
    let (b, _) = ends(&rig.send_inside(&echo(X2.0, R1.0, 700, true)).sent());
    assert_ne!(a, b, "two hosts with one identifier");
    let (again, _) = ends(&rig.send_inside(&echo(X1.0, R2.0, 700, true)).sent());
    assert_eq!(a, again, "endpoint-independent, too");
    let answer = rig.send_outside(&echo(R1.0, EXT, a.1, false)).sent();
    assert_checksums(&answer);
    assert_eq!(ends(&answer), ((R1.0, 700), (X1.0, 700)));
    assert_eq!(
        rig.send_inside(&echo(X1.0, R2.0, 701, false)).reason(),
        "icmp_unrelated"
    );
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn rfc5508_req2_query_timeout() {
    let mut rig = Rig::new(one_address());
    rig.send_inside(&echo(X1.0, R1.0, 700, true)).sent();
    assert_eq!(rig.timeout(), Some(Duration::from_secs(60)));
}

#[test]
fn protocols_have_ports_of_their_own() {
    let mut rig = Rig::new(one_address());
    assert_eq!(open(&mut rig, X1, R1).1, X1.1);
    assert_eq!(ends(&rig.send_inside(&tcp(X1, R1, Tcp::Syn)).sent()).0.1, X1.1);
    assert_eq!(
        ends(&rig.send_inside(&echo(X1.0, R1.0, X1.1, true)).sent()).0.1,
        X1.1
    );
    assert_eq!((rig.blocks.len(), rig.mappings()), (1, 3));
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn other_protocols_are_dropped_or_passed() {
    let mut rig = Rig::new(one_address());
    assert_eq!(
        rig.send_inside(&other(X1.0, R1.0, 47)).reason(),
        "protocol_not_translated"
    );
    let mut rig = Rig::new(Config {
        other_protocols: OtherProtocols::Pass,
        ..one_address()
    });
    let frame = other(X1.0, R1.0, 47);
    assert_eq!(rig.send_inside(&frame).sent(), frame);
    assert_eq!(rig.count("flows_untouched"), 1);
}
