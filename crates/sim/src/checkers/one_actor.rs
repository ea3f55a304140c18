//! Invariant 1: at any time at most one actor is active for a key, first or second, on whatever runtime.

use super::{Sighting, Violation};

/// Looks at all flows of all runtimes.
pub(crate) fn check(flows: &[Sighting]) -> Result<(), Violation> {
    let mut keys: Vec<([u64; 5], u16, usize)> = Vec::with_capacity(2 * flows.len());
    for (index, (runtime, flow)) in flows.iter().enumerate() {
        keys.push((*flow.key.words(), *runtime, index));
        keys.extend(flow.second_key.map(|key| (*key.words(), *runtime, index)));
    }
    keys.sort_unstable();
    for pair in keys.windows(2) {
        if pair[0].0 == pair[1].0 && pair[0].2 != pair[1].2 {
            let key = wire::FlowKey::from_words(pair[0].0);
            let what = format!("two actors are active for {key}: one at runtime {}, one at runtime {}", pair[0].1, pair[1].1);
            return Err(Violation::new("one_actor", what));
        }
    }
    Ok(())
}
