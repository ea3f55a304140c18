//! Static mappings of whole addresses: protocols without ports.

use super::packets::{Ip, error};
use super::rig::{POOL, R, S, X, Y, rig_of};

const GRE: u8 = 47;

fn gre(source: [u8; 4], destination: [u8; 4], key: u8) -> Ip {
    // With a key (RFC 2890), and PPTP's kind (RFC 2637) with an odd length.
    let payload = match key {
        0 => vec![0x30, 0x01, 0x88, 0x0b, 0, 3, 0, 9, 0, 0, 0, 1, b'p', b'p', b'p'],
        _ => vec![0x20, 0, 8, 0, 0, 0, 0, key, b'i', b'p'],
    };
    Ip::new(source, destination, GRE, payload)
}

#[test]
fn gre_goes_through_a_static_mapping_both_ways() {
    for protocol in ["", ", protocol = \"gre\""] {
        let statics = format!("static = [{{ inside = \"10.0.1.1\", outside = \"203.0.113.64\"{protocol} }}]");
        let Some(mut rig) = rig_of("[\"203.0.113.64/31\"]", &statics) else {
            return;
        };
        for key in [0, 7, 8] {
            let sent = gre(X, R, key);
            let seen = rig.sent(&sent);
            assert_eq!(
                (seen.source, seen.destination, &seen.payload),
                (POOL, R, &sent.payload)
            );
            let back = gre(R, POOL, key);
            let seen = rig.arrived(&back);
            assert_eq!(
                (seen.source, seen.destination, &seen.payload),
                (R, X, &back.payload)
            );
        }
        // From outside first, and an error about the packet that left.
        let seen = rig.arrived(&gre(S, POOL, 9));
        assert_eq!((seen.source, seen.destination), (S, X));
        let left = rig.sent(&gre(X, S, 9));
        let told = rig.arrived(&error(R, POOL, (3, 2), 0, &left));
        assert_eq!((told.destination, told.quoted().source), (X, X));
        // Another host has no address for it.
        rig.inside.send(&gre(Y, R, 7));
        rig.outside.silent();
        rig.end(&[("nat/protocol_not_translated", 1)]);
    }
}
