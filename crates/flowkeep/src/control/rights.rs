//! Which right of an operator a request needs where a coordinator relays it, and which requests are of one process.
//!
//! | right | requests |
//! |---|---|
//! | read | `Status`, `Flows`, `Flow`, `Receipt`, `Orders`, `Threads` |
//! | operate | `Function`, `Move`, `Delete`, `Leaving`, `Cancel`, `Add`, `Remove`, `Replication` |
//! | admin | `Stop`, `Kill` |
//! | none will do | `Change`, `Confirm`, `Watch`, `Observed` |
//!
//! [`Request::reach`] is that table. The coordinator looks at it for operators ([`judge`]), a member for what is of one process.
//! Words to a function may change what it does, so they are more than looking.

use super::Request;
use coordinator::identity::Right;
use coordinator::relay::Unfit;

/// How far a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// To members, with this right.
    Members(Right),
    /// Not beyond a process's socket; what to do.
    OneProcess(&'static str),
}

const CHANGE: &str = "a change of the configuration is not asked for over the cluster, since it must be in force in all members or in none: stop all members, change \
                      the file, and start them again";
const WATCH: &str = "packets are watched at one process, by its socket: on the member's host, say --socket (without --cluster, and without \
                     FLOWKEEP_CLUSTER)";

impl Request {
    /// How far it goes.
    pub fn reach(&self) -> Reach {
        let right = match self {
            Request::Status
            | Request::Flows { .. }
            | Request::Flow(_)
            | Request::Receipt { .. }
            | Request::Orders
            | Request::Threads => Right::Read,
            Request::Function { .. }
            | Request::Move(_)
            | Request::Delete(_)
            | Request::Leaving { .. }
            | Request::Cancel { .. }
            | Request::Add { .. }
            | Request::Remove { .. }
            | Request::Replication { .. } => Right::Operate,
            Request::Stop | Request::Kill { .. } => Right::Admin,
            Request::Change(_) | Request::Confirm => return Reach::OneProcess(CHANGE),
            Request::Watch(_) | Request::Observed => return Reach::OneProcess(WATCH),
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
        assert!(matches!(
            right(r#"{"ask":"observed"}"#),
            Err(Unfit::OneProcess(_))
        ));
        for wrong in ["", "{}", "\u{0}\u{1}", r#"{"ask":"all"}"#] {
            assert!(matches!(right(wrong), Err(Unfit::Unknown(_))), "{wrong}");
        }
    }
}
