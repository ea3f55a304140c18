//! Which remote ends may send to a mapping from outside, and hairpinning: RFC 4787 REQ-8 and REQ-9.

use super::*;

#[test]
fn rfc4787_req8_filtering_address_dependent_is_the_default() {
    let mut rig = Rig::new(one_address());
    let outside = open(&mut rig, X1, R1);
    // The same address, another port: in. Another address: out, with a count and no trace.
    let sent = rig.send_outside(&udp((R1.0, 9), outside)).sent();
    assert_eq!(ends(&sent), ((R1.0, 9), X1));
    assert_eq!(rig.send_outside(&udp(R2, outside)).reason(), "filtered");
    assert_eq!(rig.flow_count(), 2);
    open(&mut rig, X1, R2);
    assert_eq!(rig.send_outside(&udp((R2.0, 9), outside)).reason(), "sent");
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn filtering_closes_when_the_flows_with_an_address_are_gone() {
    let mut rig = Rig::new(one_address());
    let outside = open(&mut rig, X1, R1);
    open(&mut rig, X1, R2);
    open(&mut rig, X1, (R2.0, 8));
    rig.expire(2);
    assert_eq!(rig.send_outside(&udp((R2.0, 9), outside)).reason(), "sent");
    let ids: Vec<_> = rig.actors.keys().copied().filter(|id| *id != 1).collect();
    ids.into_iter().for_each(|id| rig.expire(id));
    assert_eq!(rig.send_outside(&udp((R2.0, 9), outside)).reason(), "filtered");
    assert_eq!(rig.send_outside(&udp((R1.0, 9), outside)).reason(), "sent");
}

#[test]
fn filtering_forgets_the_first_remote_address_as_any_other() {
    let mut rig = Rig::new(one_address());
    let outside = open(&mut rig, X1, R1);
    open(&mut rig, X1, R2);
    open(&mut rig, X1, (R1.0, 8));
    rig.expire(1);
    assert_eq!(
        rig.send_outside(&udp((R1.0, 9), outside)).reason(),
        "sent",
        "another flow with it"
    );
    rig.expire(3);
    rig.expire(4);
    assert_eq!(rig.send_outside(&udp((R1.0, 9), outside)).reason(), "filtered");
    open(&mut rig, X1, R1);
    assert_eq!(rig.send_outside(&udp((R1.0, 9), outside)).reason(), "sent");
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn filtering_endpoint_independent_lets_all_in() {
    let mut rig = with_filtering(Filtering::EndpointIndependent);
    let outside = open(&mut rig, X1, R1);
    let sent = rig.send_outside(&udp(R2, outside)).sent();
    assert_checksums(&sent);
    assert_eq!(ends(&sent), (R2, X1));
    // And the answer goes out by the same external endpoint.
    assert_eq!(open(&mut rig, X1, R2), outside);
    assert_eq!(rig.flow_count(), 2);
    assert_eq!(
        rig.send_outside(&udp(R2, (EXT, outside.1 ^ 1))).reason(),
        "no_mapping"
    );
    rig.expire(1);
    assert_eq!(rig.mappings(), 1, "the flow from outside still uses it");
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn filtering_address_and_port_dependent_lets_only_the_remote_end_in() {
    let mut rig = with_filtering(Filtering::AddressAndPortDependent);
    let outside = open(&mut rig, X1, R1);
    assert_eq!(rig.send_outside(&udp(R1, outside)).reason(), "sent");
    assert_eq!(rig.send_outside(&udp((R1.0, 9), outside)).reason(), "filtered");
    assert_eq!(rig.send_outside(&udp(R2, outside)).reason(), "filtered");
}

#[test]
fn rfc4787_req9_hairpinning_with_external_source() {
    for filtering in [Filtering::EndpointIndependent, Filtering::AddressDependent] {
        let mut rig = with_filtering(filtering);
        let e2 = open(&mut rig, X2, R1);
        let e1 = open(&mut rig, X1, R1);
        if filtering == Filtering::AddressDependent {
            assert_eq!(rig.send_inside(&udp(X1, e2)).reason(), "filtered");
            // X2 sends to the first address, too: then both may.
            open_hairpin(&mut rig, X2, (EXT, 1024));
        }
        let there = rig.send_inside(&udp(X1, e2));
        let Out::Sent(side, frame) = there else {
            panic!("{there:?}")
        };
        assert_eq!(side, Side::Inside);
        assert_checksums(&frame);
        assert_eq!(ends(&frame), (e1, X2), "{filtering:?}");
        let back = rig.send_inside(&udp(X2, e1)).sent();
        assert_checksums(&back);
        assert_eq!(ends(&back), (e2, X1));
        // And again, established.
        assert_eq!(ends(&rig.send_inside(&udp(X1, e2)).sent()), (e1, X2));
        assert_eq!(ends(&rig.send_inside(&udp(X2, e1)).sent()), (e2, X1));
        rig.expire_all();
        rig.assert_empty();
    }
}

/// Sends to an external endpoint that no host has: refused behind the turn, but the sender's flow
/// is there.
fn open_hairpin(rig: &mut Rig, from: ([u8; 4], u16), to: ([u8; 4], u16)) {
    assert_eq!(rig.send_inside(&udp(from, to)).reason(), "no_mapping");
}

#[test]
fn hairpinned_flows_that_both_ends_open_are_one_pair() {
    let mut rig = with_filtering(Filtering::AddressAndPortDependent);
    let (e1, e2) = (open(&mut rig, X1, R1), open(&mut rig, X2, R1));
    // The first is filtered, as by any NAT in the way of a hole punch; the second meets the first's
    // flow.
    assert_eq!(rig.send_inside(&udp(X1, e2)).reason(), "filtered");
    assert_eq!(ends(&rig.send_inside(&udp(X2, e1)).sent()), (e2, X1));
    assert_eq!(ends(&rig.send_inside(&udp(X1, e2)).sent()), (e1, X2));
    assert_eq!(rig.flow_count(), 4);
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn hairpinning_can_be_off_and_never_reaches_itself() {
    let mut rig = Rig::new(Config {
        hairpinning: false,
        ..one_address()
    });
    let e2 = open(&mut rig, X2, R1);
    assert_eq!(rig.send_inside(&udp(X1, e2)).reason(), "hairpin_off");
    let mut rig = with_filtering(Filtering::EndpointIndependent);
    let e1 = open(&mut rig, X1, R1);
    assert_eq!(rig.send_inside(&udp(X1, e1)).reason(), "hairpin_to_itself");
    // Also with the port that is about to be given out.
    assert_eq!(
        rig.send_inside(&udp((X2.0, 9000), (EXT, 9000))).reason(),
        "hairpin_to_itself"
    );
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn a_query_to_an_external_address_from_inside_goes_to_no_host() {
    let mut rig = with_filtering(Filtering::EndpointIndependent);
    rig.send_inside(&echo(X2.0, R1.0, 700, true)).sent();
    for identifier in [700, 701] {
        let hairpin = rig.send_inside(&echo(X1.0, EXT, identifier, true));
        assert_eq!(hairpin.reason(), "hairpin_to_itself");
    }
    rig.expire_all();
    rig.assert_empty();
}

#[test]
fn an_external_source_from_outside_is_forged() {
    let mut rig = with_filtering(Filtering::EndpointIndependent);
    let e1 = open(&mut rig, X1, R1);
    assert_eq!(rig.send_outside(&udp((EXT, 4444), e1)).reason(), "spoofed");
}
