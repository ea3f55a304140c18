//! Which right of an operator a request needs where a coordinator relays it, and which requests are
//! of one process.
//!
//! | right | requests |
//! |---|---|
//! | read | `Status`, `Flows`, `Flow`, `Receipt`, `Orders`, `Threads`, `Counted`, `PartDone`, `WatchPart`, `ObservedPart`, `EndWatch` |
//! | operate | `Function`, `Move`, `Delete`, `Leaving`, `Cancel`, `Add`, `Remove`, `Fail`, `Replication`, `Replica`, `Prepare` that is dry |
//! | admin | `Stop`, `Kill`, `Prepare`, `TakeBack`, `Chains` |
//! | none will do | `Change`, `Confirm`, `Watch`, `Observed`, `CopyStore` |
//!
//! [`Request::reach`] is that table. The coordinator looks at it for operators ([`judge`]), a
//! member for requests of one process. Words to a function may change its work, so they are more
//! than looking. A configuration decides which traffic the network lets through, for all hosts and
//! for good: it is the admin's. Its effects are shown to operators.

use super::Request;
use coordinator::identity::Right;
use coordinator::relay::Unfit;

/// How far a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// To members, with this right.
    Members(Right),
    /// Not beyond a process's socket; the remedy.
    OneProcess(&'static str),
}

const CHANGE: &str = "one member does not change its configuration alone, since it must be in force in all members or in none: say `flowkeep chain apply FILE \
                      --cluster` without --member; and so with `flowkeep chain confirm` and `flowkeep chain rollback`";
const WATCH: &str = "over the cluster each member has its part of a watch (watch_part), since a watch of one connection is a socket's: on the \
                     member's host, say --socket (without --cluster, and without FLOWKEEP_CLUSTER)";

const COPY: &str = "a store's copy is a file on its process's host: ask there, by --socket";

impl Request {
    /// How far it goes.
    pub fn reach(&self) -> Reach {
        let right = match self {
            Request::Status
            | Request::Flows { .. }
            | Request::Flow(_)
            | Request::Explain(_)
            | Request::Receipt { .. }
            | Request::Orders
            | Request::Threads
            | Request::Counted
            | Request::WatchPart { .. }
            | Request::ObservedPart { .. }
            | Request::EndWatch { .. }
            | Request::PartDone { .. } => Right::Read,
            Request::Prepare(part) if part.dry => Right::Operate,
            Request::Function { .. }
            | Request::Move(_)
            | Request::Delete(_)
            | Request::Leaving { .. }
            | Request::Cancel { .. }
            | Request::Add { .. }
            | Request::Remove { .. }
            | Request::Fail { .. }
            | Request::Replication { .. }
            | Request::Replica { .. } => Right::Operate,
            Request::Stop
            | Request::Kill { .. }
            | Request::Prepare(_)
            | Request::TakeBack { .. }
            | Request::Chains => Right::Admin,
            Request::Change(_) | Request::Confirm => return Reach::OneProcess(CHANGE),
            Request::Watch(_) | Request::Observed => return Reach::OneProcess(WATCH),
            Request::CopyStore { .. } => return Reach::OneProcess(COPY),
        };
        Reach::Members(right)
    }
}

/// For a coordinator: which right these bytes need.
pub fn judge(request: &[u8]) -> Result<Right, Unfit> {
    let request: Request = serde_json::from_slice(request).map_err(|error| {
        Unfit::Unknown(format!(
            "this is no request that this coordinator knows (is it of another version?): {error}"
        ))
    })?;
    match request.reach() {
        Reach::Members(right) => Ok(right),
        Reach::OneProcess(why) => Err(Unfit::OneProcess(why.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_the_right_of_the_table_and_what_is_none_is_refused() {
        let right = |text: &str| judge(text.as_bytes());
        assert_eq!(right(r#"{"ask":"status"}"#), Ok(Right::Read));
        assert_eq!(
            right(r#"{"ask":"leaving","runtime":1,"leaving":"drained"}"#),
            Ok(Right::Operate)
        );
        let words = r#"{"ask":"function","name":"nat","words":["mappings"]}"#;
        assert_eq!(right(words), Ok(Right::Operate));
        assert_eq!(right(r#"{"ask":"stop"}"#), Ok(Right::Admin));
        assert_eq!(right(r#"{"ask":"kill","runtime":0}"#), Ok(Right::Admin));
        let part = |dry: bool| {
            let part = format!(
                r#"{{"ask":"prepare","number":2,"file":"f","text":"","is_chains":false,"dry":{dry},"cut":true,"listed":1}}"#
            );
            judge(part.as_bytes())
        };
        assert_eq!((part(true), part(false)), (Ok(Right::Operate), Ok(Right::Admin)));
        assert_eq!(right(r#"{"ask":"take_back","number":2}"#), Ok(Right::Admin));
        assert_eq!(right(r#"{"ask":"chains"}"#), Ok(Right::Admin));
        assert_eq!(right(r#"{"ask":"part_done","number":2}"#), Ok(Right::Read));
        assert!(matches!(right(r#"{"ask":"confirm"}"#), Err(Unfit::OneProcess(_))));
        assert!(matches!(
            right(r#"{"ask":"observed"}"#),
            Err(Unfit::OneProcess(_))
        ));
        for wrong in ["", "{}", "\u{0}\u{1}", r#"{"ask":"all"}"#] {
            assert!(matches!(right(wrong), Err(Unfit::Unknown(_))), "{wrong}");
        }
    }
}
