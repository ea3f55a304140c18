//! A member's watches that commands over the cluster have begun.
//!
//! # Theory of operation
//!
//! ```text
//!   WatchPart(number) ──► begun, if there are fewer than WATCHES_MAX ──┐
//!   ObservedPart(number) ─► a piece of the observations ◄──────────────┤
//!   EndWatch(number), or no ObservedPart for LEASE ─► over ◄───────────┘
//! ```
//!
//! Each request comes by itself, so a watch has a number that its command has chosen by chance, and
//! it lasts as long as the command asks. A thread looks for watches that are not asked for any
//! more; it is there as long as there is a watch.
//!
//! An answer has a bound, so observations go in pieces. Workers are asked for more when the last
//! piece has gone: a slow command has the workers' memory fill, and observations without room there
//! are counted, as at the socket.
//!
//! Invariants: nothing of a watch outlasts its command by more than [`LEASE`] and a look; a watch
//! that is being fetched delays no other.
//!
//! Not here: how the command uses the pieces (`observing`).

use super::{Observe, Reply, Request};
use crate::cluster::{Cluster, Observed, Watching};
use crate::control::Answer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Watches at once at most.
pub const WATCHES_MAX: usize = 8;
/// How long a watch lasts that no client asks for.
pub const LEASE: Duration = Duration::from_secs(5);
/// How often it is looked for watches that are over.
const LOOK: Duration = Duration::from_millis(250);
/// Bytes of observations in one answer, about: less than a relayed answer may have.
const PIECE: usize = 128 << 10;

/// One watch.
struct Watched {
    watching: Box<dyn Watching>,
    /// Observations that were fetched and have not gone yet.
    rest: Observed,
}

struct Entry {
    watched: Arc<Mutex<Watched>>,
    asked: Instant,
}

#[derive(Default)]
struct State {
    all: BTreeMap<u64, Entry>,
    is_looked_after: bool,
}

/// All of a member.
#[derive(Default)]
pub struct Watches {
    state: Mutex<State>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watches {
    /// Answers requests about watches; no others.
    pub(super) fn answer(self: &Arc<Self>, request: &Request, cluster: &dyn Cluster) -> Option<Reply> {
        match request {
            Request::WatchPart { watch, observe, slot } => {
                Some(self.begin(*watch, (**observe).clone(), *slot, cluster))
            }
            Request::ObservedPart { watch } => Some(self.observed(*watch)),
            Request::EndWatch { watch } => {
                self.end(*watch);
                Some(Reply::Ok(Answer::WatchEnded))
            }
            _ => None,
        }
    }

    fn begin(
        self: &Arc<Self>,
        watch: u64,
        observe: Observe,
        slot: Option<u8>,
        cluster: &dyn Cluster,
    ) -> Reply {
        // This number's watch so far ends first, and makes room.
        self.end(watch);
        if lock(&self.state).all.len() >= WATCHES_MAX {
            return Reply::Error(format!(
                "{WATCHES_MAX} commands over the cluster watch this member already; end one of those first"
            ));
        }
        let watching = match cluster.watch(&observe.subject(slot)) {
            Ok(watching) => watching,
            Err(problem) => return Reply::Error(problem),
        };
        let ports = watching.ports();
        let watched = Watched {
            watching,
            rest: Observed::default(),
        };
        let entry = Entry {
            watched: Arc::new(Mutex::new(watched)),
            asked: Instant::now(),
        };
        let mut state = lock(&self.state);
        if state.all.len() >= WATCHES_MAX {
            return Reply::Error("others have begun to watch meanwhile; ask again".to_owned());
        }
        state.all.insert(watch, entry);
        drop(state);
        if let Err(why) = self.look_after() {
            self.end(watch);
            return Reply::Error(why);
        }
        Reply::Ok(Answer::Watching { ports })
    }

    fn observed(&self, watch: u64) -> Reply {
        let watched = {
            let mut state = lock(&self.state);
            let Some(entry) = state.all.get_mut(&watch) else {
                return Reply::Error(NOT_WATCHED.to_owned());
            };
            entry.asked = Instant::now();
            entry.watched.clone()
        };
        let piece = {
            let mut watched = lock(&watched);
            if is_empty(&watched.rest) && !watched.rest.is_over {
                watched.rest = watched.watching.take();
            }
            piece(&mut watched.rest)
        };
        if piece.is_over {
            self.end(watch);
        }
        Reply::Ok(Answer::Observed(Box::new(piece)))
    }

    fn end(&self, watch: u64) {
        let ended = lock(&self.state).all.remove(&watch);
        // Workers are told where the table is not locked.
        drop(ended);
    }

    /// Ends watches that no client asks for any more; whether to look again.
    fn look(&self, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let is_late = |entry: &Entry| now.saturating_duration_since(entry.asked) >= LEASE;
        let late: Vec<Entry> = state
            .all
            .extract_if(.., |_, entry| is_late(entry))
            .map(|(_, entry)| entry)
            .collect();
        state.is_looked_after = !(state.all.is_empty() && late.is_empty());
        let is_there = state.is_looked_after;
        drop(state);
        drop(late);
        is_there
    }

    fn look_after(self: &Arc<Self>) -> Result<(), String> {
        let mut state = lock(&self.state);
        if state.is_looked_after {
            return Ok(());
        }
        let me = Arc::downgrade(self);
        let look_after = move || {
            loop {
                std::thread::sleep(LOOK);
                if !me.upgrade().is_some_and(|me| me.look(Instant::now())) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("watches".to_owned());
        thread
            .spawn(look_after)
            .map_err(|error| format!("no thread can be started to end a watch: {error}"))?;
        state.is_looked_after = true;
        Ok(())
    }
}

/// The answer on a watch that is over, or was never there.
pub(super) const NOT_WATCHED: &str =
    "this watch is over here: it was not asked for in time, or the member has begun again";

fn is_empty(observed: &Observed) -> bool {
    observed.steps.is_empty() && observed.frames.is_empty() && observed.flows.is_empty()
}

/// Takes as many from the front as there is room for.
fn front<T>(all: &mut Vec<T>, room: &mut usize, length: impl Fn(&T) -> usize) -> Vec<T> {
    let mut count = 0;
    for one in all.iter() {
        let length = length(one);
        // An element by itself always goes: it is no longer than an answer may be.
        if length > *room && *room < PIECE {
            *room = 0;
            break;
        }
        *room = room.saturating_sub(length);
        count += 1;
    }
    all.drain(..count).collect()
}

fn length_of(one: &impl serde::Serialize) -> usize {
    serde_json::to_vec(one).map_or(0, |bytes| bytes.len() + 1)
}

/// The next piece of the fetched observations. Counts go with the first; the end is said with the
/// last.
fn piece(rest: &mut Observed) -> Observed {
    let mut room = PIECE;
    let steps = front(&mut rest.steps, &mut room, length_of);
    let frames = front(&mut rest.frames, &mut room, |frame| {
        2 * frame.bytes.0.len() + 256 + frame.reason.as_ref().map_or(0, String::len)
    });
    let flows = front(&mut rest.flows, &mut room, length_of);
    Observed {
        steps,
        frames,
        flows,
        steps_lost: std::mem::take(&mut rest.steps_lost),
        lost: std::mem::take(&mut rest.lost),
        flows_lost: std::mem::take(&mut rest.flows_lost),
        left: rest.left,
        is_over: rest.is_over && is_empty(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{CapturePoint, Frame, Hex};
    use crate::cluster::fake::Fake;
    use crate::cluster::{Cursor, Subject};
    use runtime::worker::FlowView;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Sees so many frames each time, and says when it is dropped.
    struct Observer(usize, Arc<AtomicUsize>);

    fn frame(number: u64) -> Frame {
        Frame {
            time_ns: number,
            port: 0,
            link: 1,
            place: CapturePoint::In,
            reason: None,
            length: 1500,
            bytes: Hex(vec![7; 1500]),
            member: None,
        }
    }

    impl Watching for Observer {
        fn ports(&self) -> Vec<String> {
            vec!["lan".to_owned()]
        }
        fn take(&mut self) -> Observed {
            let frames = (0..self.0 as u64).map(frame).collect();
            Observed {
                frames,
                lost: BTreeMap::from([(0, 3)]),
                is_over: true,
                ..Observed::default()
            }
        }
    }

    impl Drop for Observer {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Seen(Arc<AtomicUsize>);

    impl Cluster for Seen {
        fn snapshot(&self) -> crate::cluster::Snapshot {
            Fake::default().snapshot()
        }
        fn flows(&self, _: Cursor, _: usize) -> Result<(Vec<FlowView>, Option<Cursor>), String> {
            Ok((Vec::new(), None))
        }
        fn flow(&self, _: &wire::FlowKey) -> Option<FlowView> {
            None
        }
        fn command(&self, _: &str, _: &[&str]) -> Result<Vec<crate::tables::Told>, String> {
            Ok(Vec::new())
        }
        fn watch(&self, _: &Subject) -> Result<Box<dyn Watching>, String> {
            Ok(Box::new(Observer(200, self.0.clone())))
        }
        fn stop(&self) {}
    }

    fn watch(number: u64) -> Request {
        Request::WatchPart {
            watch: number,
            observe: Box::new(Observe::Packets(crate::capture::Wanted::default())),
            slot: None,
        }
    }

    fn asked(watches: &Arc<Watches>, request: Request, cluster: &dyn Cluster) -> Reply {
        watches.answer(&request, cluster).expect("it is about watches")
    }

    #[test]
    fn what_is_seen_goes_in_pieces_that_an_answer_has_room_for_and_the_end_is_said_last() {
        let ended = Arc::new(AtomicUsize::new(0));
        let cluster = Seen(ended.clone());
        let watches = Arc::new(Watches::default());
        asked(&watches, watch(7), &cluster);
        let (mut times, mut lost, mut pieces) = (Vec::new(), 0, 0);
        loop {
            let reply = asked(&watches, Request::ObservedPart { watch: 7 }, &cluster);
            let length = serde_json::to_vec(&reply).expect("JSON").len();
            assert!(length <= coordinator::relay::ANSWER_MAX, "{length} bytes");
            let Reply::Ok(Answer::Observed(piece)) = reply else {
                panic!("{reply:?}");
            };
            pieces += 1;
            times.extend(piece.frames.iter().map(|frame| frame.time_ns));
            lost += piece.lost.get(&0).copied().unwrap_or(0);
            if piece.is_over {
                break;
            }
        }
        assert!(pieces > 2, "{pieces} pieces");
        assert_eq!((times, lost), ((0..200).collect::<Vec<_>>(), 3));
        assert_eq!(ended.load(Ordering::SeqCst), 1, "it is over with its last piece");
        let gone = asked(&watches, Request::ObservedPart { watch: 7 }, &cluster);
        assert_eq!(gone, Reply::Error(NOT_WATCHED.to_owned()));
    }

    #[test]
    fn a_watch_ends_when_its_command_does_and_there_are_so_many_at_most() {
        let ended = Arc::new(AtomicUsize::new(0));
        let cluster = Seen(ended.clone());
        let watches = Arc::new(Watches::default());
        for number in 0..WATCHES_MAX as u64 {
            assert!(matches!(
                asked(&watches, watch(number), &cluster),
                Reply::Ok(Answer::Watching { .. })
            ));
        }
        assert!(matches!(asked(&watches, watch(99), &cluster), Reply::Error(_)));
        asked(&watches, Request::EndWatch { watch: 0 }, &cluster);
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        // Watches that are asked for go on, others are over.
        let later = Instant::now() + LEASE;
        lock(&watches.state).all.get_mut(&1).expect("it is there").asked = later;
        assert!(watches.look(later));
        assert_eq!(ended.load(Ordering::SeqCst), WATCHES_MAX - 1);
        watches.look(later + LEASE);
        assert_eq!(ended.load(Ordering::SeqCst), WATCHES_MAX);
    }
}
