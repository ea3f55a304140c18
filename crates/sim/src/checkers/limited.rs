//! A limit per host holds wherever the host's flows are: no host has more flows that it opened than
//! the configuration lets it, over all runtimes.

use super::{Sighting, Violation};
use crate::scenario::FLOWS_PER_HOST;
use std::collections::BTreeMap;

/// Looks at all flows of all runtimes.
pub(crate) fn check(flows: &[Sighting]) -> Result<(), Violation> {
    let mut counts: BTreeMap<[u8; 16], u32> = BTreeMap::new();
    for (_, flow) in flows.iter().filter(|(_, flow)| !flow.is_from_outside) {
        let count = counts.entry(*flow.ends.0.addr.octets()).or_default();
        *count += 1;
        if *count > FLOWS_PER_HOST {
            let what = format!("{} has more than {FLOWS_PER_HOST} flows", flow.ends.0.addr);
            return Err(Violation::new("limited", what));
        }
    }
    Ok(())
}
