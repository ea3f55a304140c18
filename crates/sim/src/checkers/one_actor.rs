//! Invariant 1: at any time at most one actor is active for a key, first or second, on whatever
//! runtime.
//!
//! Where a load balancer chooses a server for a client that has a flow with that server already,
//! both flows' replies have one key. At one runtime the second flow never comes to be. At two, the
//! switch refuses it as soon as it hears of it, and for so long there are two; nothing of the
//! second leaves by that switch. So there a reply key may be another's while something is on its
//! way, and must not be at rest.
//!
//! A packet from outside for a mapping that is over has no flow: NAT refuses it. Where a call waits
//! before NAT has seen it, it is an actor for so long, and its key may be the second of a flow that
//! NAT gives the same endpoint meanwhile, at a runtime that has begun again. Nothing of it can
//! leave.
//!
//! Where members act by leases, a flow of a runtime without any lease is no actor: it has no
//! effect, and is not among those that are looked at. A switch may have begun again meanwhile and
//! put the flow elsewhere. In the step in which the runtime has a lease again it must have been
//! told so, and is looked at.

use super::{Sighting, Violation};

/// Looks at all flows of all runtimes.
pub(crate) fn check(flows: &[Sighting], is_refusal_under_way: bool) -> Result<(), Violation> {
    let mut keys: Vec<([u64; 5], bool, u16, usize)> = Vec::with_capacity(2 * flows.len());
    for (index, (runtime, flow)) in flows.iter().enumerate() {
        keys.push((*flow.key.words(), false, *runtime, index));
        keys.extend(flow.reply_key.map(|key| (*key.words(), true, *runtime, index)));
    }
    keys.sort_unstable();
    for pair in keys.windows(2) {
        let is_refused = is_refusal_under_way && pair[1].1 && pair[0].2 != pair[1].2;
        let first = &flows[pair[0].3].1;
        let is_nobodys = pair[1].1 && !pair[0].1 && first.is_undecided && first.is_from_outside;
        if pair[0].0 == pair[1].0 && pair[0].3 != pair[1].3 && !is_refused && !is_nobodys {
            let key = wire::FlowKey::from_words(pair[0].0);
            let what = format!(
                "two actors are active for {key}: one at runtime {}, one at runtime {}",
                pair[0].2, pair[1].2
            );
            return Err(Violation::new("one_actor", what));
        }
    }
    Ok(())
}
