//! Invariant 6: no two inside endpoints have one external address and port; and an inside endpoint
//! that has a mapping has one, wherever its flows are, if mapping is independent of the other end.

use super::{Sighting, Violation};
use crate::scenario::POOL;
use wire::Endpoint;

/// Looks at all flows of all runtimes.
pub(crate) fn check(flows: &[Sighting], is_one_each: bool) -> Result<(), Violation> {
    let mut pairs: Vec<(u8, Endpoint, Endpoint)> = flows.iter().filter_map(|(_, flow)| pair(flow)).collect();
    pairs.sort_unstable_by_key(|(protocol, external, inside)| (*protocol, order(external), order(inside)));
    for two in pairs.windows(2) {
        if (two[0].0, two[0].1) == (two[1].0, two[1].1) && two[0].2 != two[1].2 {
            let what = format!(
                "{} stands for {} and for {} (protocol {})",
                two[0].1, two[0].2, two[1].2, two[0].0
            );
            return Err(Violation::new("endpoints", what));
        }
    }
    if is_one_each {
        pairs
            .sort_unstable_by_key(|(protocol, external, inside)| (*protocol, order(inside), order(external)));
        for two in pairs.windows(2) {
            if (two[0].0, two[0].2) == (two[1].0, two[1].2) && two[0].1 != two[1].1 {
                let what = format!(
                    "{} is {} and {} outside (protocol {})",
                    two[0].2, two[0].1, two[1].1, two[0].0
                );
                return Err(Violation::new("endpoints", what));
            }
        }
    }
    Ok(())
}

fn order(end: &Endpoint) -> ([u8; 16], u16) {
    (*end.addr.octets(), end.port)
}

/// Protocol, external endpoint and inside endpoint of a flow that NAT translates.
pub(super) fn pair(flow: &runtime::worker::FlowEnds) -> Option<(u8, Endpoint, Endpoint)> {
    let (source, destination) = flow.translated?;
    let (external, inside) = if flow.is_from_outside {
        (flow.ends.1, destination)
    } else {
        (source, flow.ends.0)
    };
    let is_ours = external.addr.as_v4().is_some_and(|addr| POOL.contains(&addr));
    is_ours.then_some((flow.key.protocol(), external, inside))
}
