//! Orders of the coordinator itself, as requests that members answer: the same ones that operators
//! relay.

use super::Request;
use crate::config::ReplicationPolicy;
use crate::moving::Order;
use coordinator::relay;

/// For a coordinator: the request to a member.
pub fn say(order: relay::MemberOrder<'_>) -> Result<Vec<u8>, String> {
    let request = match order {
        relay::MemberOrder::Migrate {
            source,
            target,
            flows,
        } => Request::Move(Order {
            from: Some(source),
            to: vec![target],
            count: (flows > 0).then(|| u32::try_from(flows).unwrap_or(u32::MAX)),
            ..Order::default()
        }),
        relay::MemberOrder::Copy { chain, policy } => Request::Replication {
            chain: chain.to_owned(),
            policy: policy_of(policy)?,
        },
        relay::MemberOrder::Replica { runtime, replica } => Request::Replica { runtime, replica },
    };
    serde_json::to_vec(&request).map_err(|error| error.to_string())
}

fn policy_of(word: &str) -> Result<Option<ReplicationPolicy>, String> {
    if word.is_empty() {
        return Ok(None);
    }
    let read = serde_json::from_value(serde_json::Value::from(word));
    read.map(Some).map_err(|_| {
        format!("no policy is called `{word}`: say none, snapshot, commit, store or store_commit, or nothing to go by the configuration")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::rights::judge;
    use coordinator::identity::Right;

    #[test]
    fn each_order_is_a_request_that_an_operator_may_make() {
        let policy = "store_commit";
        let all = [
            relay::MemberOrder::Migrate {
                source: 1,
                target: 2,
                flows: 7,
            },
            relay::MemberOrder::Copy { chain: "all", policy },
            relay::MemberOrder::Replica {
                runtime: 1,
                replica: None,
            },
        ];
        for order in all {
            let said = say(order).expect("it can be said");
            assert_eq!(judge(&said), Ok(Right::Operate), "{order:?}");
        }
        let read = |order| serde_json::from_slice::<Request>(&say(order).expect("it can be said"));
        let copies = read(all[1]).expect("a request");
        let chain = "all".to_owned();
        let policy = Some(ReplicationPolicy::StoreCommit);
        assert_eq!(copies, Request::Replication { chain, policy });
        let all_flows = relay::MemberOrder::Migrate {
            source: 1,
            target: 2,
            flows: 0,
        };
        assert!(matches!(read(all_flows), Ok(Request::Move(order)) if order.count.is_none()));
        let wrong = relay::MemberOrder::Copy {
            chain: "all",
            policy: "some",
        };
        assert!(say(wrong).is_err_and(|why| why.contains("`some`") && why.contains("snapshot")));
    }
}
