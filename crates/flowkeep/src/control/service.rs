//! Answers requests, by whichever way they come: the control socket ([`super::server`]), or a
//! coordinator that relays them ([`relayed`]).
//!
//! Not here: which caller may ask what ([`super::rights`]).

use super::rights::Reach;
use super::watches::Watches;
use super::{Answer, FLOWS_MAX, REQUEST_MAX, Reply, Request};
use crate::cluster::{Cluster, Watching};
use crate::log::{self, Level};
use crate::report::{Flow, FlowList, Status};
use std::sync::Arc;

/// Answers a request that a coordinator relays. Nothing of it outlasts the answer but a watch
/// ([`super::watches`]), so requests of one process's socket are refused.
pub fn relayed(request: &[u8], cluster: &dyn Cluster, watches: &Arc<Watches>) -> Vec<u8> {
    let reply = match serde_json::from_slice::<Request>(request) {
        _ if request.len() as u64 > REQUEST_MAX => {
            Reply::Error(format!("a request has at most {REQUEST_MAX} bytes"))
        }
        Err(error) => Reply::Error(format!("this is no request: {error}")),
        Ok(request) => match request.reach() {
            Reach::OneProcess(why) => Reply::Error(why.to_owned()),
            Reach::Members(_) => match watches.answer(&request, cluster) {
                Some(reply) => reply,
                None => answer(request, cluster, &mut None),
            },
        },
    };
    // An answer that is none stays empty, which no reader takes for one.
    serde_json::to_vec(&reply).unwrap_or_default()
}

/// Answers a request of this process itself.
pub fn asked(request: Request, cluster: &dyn Cluster) -> Result<Answer, String> {
    match answer(request, cluster, &mut None) {
        Reply::Ok(answer) => Ok(answer),
        Reply::Error(problem) => Err(problem),
    }
}

/// The name of a request in the protocol.
fn name_of(request: &Request) -> String {
    let ask = serde_json::to_value(request).unwrap_or_default();
    ask["ask"].as_str().unwrap_or("something").to_owned()
}

/// Answers a request. A watch is the asker's connection's, and ends with it.
pub(super) fn answer(
    request: Request,
    cluster: &dyn Cluster,
    watching: &mut Option<Box<dyn Watching>>,
) -> Reply {
    if log::is_said(Level::Debug) {
        log::say(Level::Debug, format_args!("asked for {}", name_of(&request)));
    }
    Reply::Ok(match request {
        Request::Status => Answer::Status(Box::new(Status::from(&cluster.snapshot()))),
        Request::Flows { from, limit } => {
            let (views, next) = match cluster.flows(from, limit.min(FLOWS_MAX)) {
                Ok(listed) => listed,
                Err(problem) => return Reply::Error(problem),
            };
            Answer::Flows(FlowList {
                flows: views.iter().map(Flow::from).collect(),
                next,
                ..FlowList::default()
            })
        }
        Request::Flow(key) => Answer::Flow(cluster.flow(&key.into()).as_ref().map(Flow::from)),
        Request::Explain(ask) => Answer::Explained(cluster.explain(&ask).map(Box::new)),
        Request::Function { name, words } => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match cluster.command(&name, &words) {
                Ok(answers) => Answer::Function(answers),
                Err(problem) => return Reply::Error(problem),
            }
        }
        Request::Counted => Answer::Counted(cluster.counted()),
        Request::Change(ask) => match cluster.change(&ask) {
            Ok(change) => Answer::Change(Box::new(change)),
            Err(problem) => return Reply::Error(problem),
        },
        Request::Prepare(part) => match cluster.prepare_part(&part) {
            Ok(prepared) => Answer::Prepared(Box::new(prepared)),
            Err(problem) => return Reply::Error(problem),
        },
        Request::TakeBack { number, by } => {
            cluster.take_back_part(number, by);
            Answer::TakenBack
        }
        Request::PartDone { number } => match cluster.part_done(number) {
            Ok(done) => Answer::PartDone(Box::new(done)),
            Err(problem) => return Reply::Error(problem),
        },
        Request::Chains => match cluster.chains() {
            Ok(chains) => Answer::Chains(chains),
            Err(problem) => return Reply::Error(problem),
        },
        Request::Confirm => match cluster.confirm() {
            Ok(generation) => Answer::Confirmed(generation),
            Err(problem) => return Reply::Error(problem),
        },
        Request::Move(order) => match cluster.order(&order) {
            Ok(parts) => Answer::Ordered(parts),
            Err(problem) => return Reply::Error(problem),
        },
        Request::Delete(order) => match cluster.delete(&order) {
            Ok(done) => Answer::Deleted(done),
            Err(problem) => return Reply::Error(problem),
        },
        Request::Receipt { parts } => match cluster.receipt(&parts) {
            Ok(receipt) => Answer::Receipt(receipt),
            Err(problem) => return Reply::Error(problem),
        },
        Request::Leaving { runtime, leaving } => match cluster.set_leaving(runtime, leaving) {
            Ok(parts) => Answer::Leaving(parts),
            Err(problem) => return Reply::Error(problem),
        },
        Request::Orders => Answer::Orders(cluster.orders()),
        Request::Cancel { number } => match cluster.cancel(number) {
            Ok(parts) => Answer::Ordered(parts),
            Err(problem) => return Reply::Error(problem),
        },
        Request::Add { runtime } => match cluster.add_runtime(runtime) {
            Ok(runtime) => Answer::Added(runtime),
            Err(problem) => return Reply::Error(problem),
        },
        Request::Remove { runtime } => match cluster.remove_runtime(runtime) {
            Ok(removal) => Answer::Removed(removal),
            Err(problem) => return Reply::Error(problem),
        },
        Request::Kill { runtime } => match cluster.kill_runtime(runtime) {
            Ok(killed) => Answer::Killed(killed),
            Err(problem) => return Reply::Error(problem),
        },
        Request::Fail { runtime } => match cluster.fail(runtime) {
            Ok(()) => Answer::Stopping,
            Err(problem) => return Reply::Error(problem),
        },
        Request::Replication { chain, policy } => match cluster.set_replication(&chain, policy) {
            Ok(()) => Answer::Replication,
            Err(problem) => return Reply::Error(problem),
        },
        Request::Replica { runtime, replica } => match cluster.set_replica(runtime, replica) {
            Ok(()) => Answer::Replication,
            Err(problem) => return Reply::Error(problem),
        },
        Request::Stop => {
            cluster.stop();
            Answer::Stopping
        }
        Request::Watch(observe) => {
            // The connection's watch so far ends first, and makes room.
            *watching = None;
            match cluster.watch(&observe.subject(None)) {
                Ok(begun) => Answer::Watching {
                    ports: watching.insert(begun).ports(),
                },
                Err(problem) => return Reply::Error(problem),
            }
        }
        Request::Observed => match watching {
            Some(watching) => Answer::Observed(Box::new(watching.take())),
            None => return Reply::Error("this connection watches nothing; ask for a watch first".into()),
        },
        Request::WatchPart { .. } | Request::ObservedPart { .. } | Request::EndWatch { .. } => {
            return Reply::Error("this is asked by a coordinator: at a socket, ask for a watch".into());
        }
        Request::Threads => Answer::Threads(cluster.threads()),
        Request::CopyStore { store, to } => match cluster.copy_store(&store, &to) {
            Ok(()) => Answer::StoreCopied,
            Err(problem) => return Reply::Error(problem),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake::Fake;

    fn asked(request: &[u8]) -> Reply {
        serde_json::from_slice(&relayed(request, &Fake::default(), &Arc::default())).unwrap()
    }

    #[test]
    fn what_a_coordinator_relays_is_answered_as_at_the_socket_and_what_is_no_request_is_refused() {
        let Reply::Ok(Answer::Status(status)) = asked(br#"{"ask":"status"}"#) else {
            panic!("no status");
        };
        assert_eq!(status.packets.r#in, 100);
        let long = vec![b' '; REQUEST_MAX as usize + 1];
        let wrong = [&b"\xff\x00"[..], b"", b"{\"ask\":\"everything\"}", &long];
        for request in wrong {
            assert!(matches!(asked(request), Reply::Error(_)));
        }
        let watch = br#"{"ask":"watch","flow":{"key":{"protocol":6,"source":"10.0.0.1:1","destination":"10.0.0.2:1"},"packets":1}}"#;
        for request in [&br#"{"ask":"observed"}"#[..], watch] {
            let Reply::Error(why) = asked(request) else {
                panic!("it is answered");
            };
            assert!(why.contains("--socket"), "{why}");
        }
    }
}
