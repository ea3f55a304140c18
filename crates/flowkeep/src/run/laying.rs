//! Links to members that the configuration does not list: laid when a view has such a member,
//! taken down when it has it no more.
//!
//! # Theory of operation
//!
//! ```text
//!   coordinator ── Notification(contacts) ─► agent ─► this thread ── makes a link for each worker here ─► berth of the worker (`berth.rs`)
//!                                                                 ◄── a link that was taken down ──────── drops it
//! ```
//!
//! Any member of the cluster hears the same contacts, the newcomer itself, too: it has links to
//! listed members from its start, and by this to others like it. A link is kept as long as the
//! contact says the same: a member that begins again is met by its link, as listed ones are.
//!
//! The coordinator has checked a contact, and it is checked again here ([`newcomer::member_of`]). A
//! process at its address shows the cluster's key, or is not met.
//!
//! Workers that a view has, or has no more, are events by the way ([`super::event_lines`]).
//!
//! A link that cannot be made is said on standard error, and tried again each [`LOOK`].
//!
//! Not here: numbers of newcomers (`coordinator::decider`), which runtime is chosen for flows
//! (`runtime::switch`).

use super::berth::Berth;
use super::driver::Worker;
use super::event_lines::Told;
use super::handle::Handle;
use super::links::WorkerLink;
use super::{Running, Shared};
use crate::config::Member;
use crate::config::layout::{Layout, WorkerId};
use crate::member::joining::Joining;
use crate::member::newcomer;
use coordinator::agent::Contacts;
use coordinator::proto::Contact;
use runtime::env::LinkTo;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it is tried again, and how often links that were taken down are dropped.
const LOOK: Duration = Duration::from_millis(200);
/// How long a worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The thread; it ends when this is dropped.
pub(super) struct Laying {
    contacts: Arc<Contacts>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Laying {
    fn drop(&mut self) {
        self.contacts.close();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Lays links as views have members that are not listed, as long as this lives.
pub(super) fn follow(running: &Running, joining: &Joining) -> std::io::Result<Laying> {
    let contacts = joining.contacts();
    let heard = contacts.clone();
    let me = running.shared.me.clone();
    let thread = std::thread::Builder::new().name("links".into());
    let thread = thread.spawn(move || run(&me, &heard))?;
    Ok(Laying {
        contacts,
        thread: Some(thread),
    })
}

fn run(me: &Weak<Shared>, contacts: &Contacts) {
    let (mut known, mut laid) = (Vec::new(), BTreeMap::new());
    let (mut said, mut told) = (BTreeSet::new(), Told::new());
    while let Some(newest) = contacts.wait(&known, LOOK) {
        let Some(shared) = me.upgrade() else { return };
        known = newest;
        told.look(&shared, &known);
        for problem in arrange(&shared, &wanted(&shared, &known), &mut laid) {
            if said.len() < 1000 && said.insert(problem.clone()) {
                let _ = writeln!(std::io::stderr(), "{problem}");
            }
        }
        clear(&shared);
    }
}

/// By runtime, the member that is to be reached there.
fn wanted(shared: &Shared, contacts: &[Contact]) -> BTreeMap<u16, Result<Member, String>> {
    let mut wanted = BTreeMap::new();
    let own = shared.part.as_ref().map_or("", |part| part.name.as_str());
    let listed = shared
        .with_neighbours(|neighbours| neighbours.listed())
        .unwrap_or(0);
    for contact in contacts.iter().filter(|contact| contact.member != own) {
        let numbers = contact.workers.iter().map(|worker| worker.number as usize);
        for number in numbers.filter(|number| (listed..shared.layout.runtimes).contains(number)) {
            if !shared.layout.is_here(WorkerId::Runtime(number)) {
                wanted.insert(number as u16, newcomer::member_of(contact));
            }
        }
    }
    wanted
}

/// Takes down links that are wanted no more, and lays the wanted ones; the problems.
fn arrange(
    shared: &Shared,
    wanted: &BTreeMap<u16, Result<Member, String>>,
    laid: &mut BTreeMap<u16, Member>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let Some(part) = &shared.part else { return problems };
    let is_kept =
        |number: &u16, there: &mut Member| matches!(wanted.get(number), Some(Ok(member)) if member == there);
    let gone: Vec<(u16, Member)> = laid
        .extract_if(.., |number, there| !is_kept(number, there))
        .collect();
    for (number, _) in gone {
        for worker in shared.workers() {
            let _ = at(&worker, number, |berth| drop(berth.set(None)));
        }
        part.set_runtime(number, None);
    }
    for (number, there) in wanted {
        let done = match there {
            Ok(there) if !laid.contains_key(number) => lay(shared, *number, there).map(|()| {
                part.set_runtime(*number, Some(there));
                laid.insert(*number, there.clone());
            }),
            Ok(_) => Ok(()),
            Err(why) => Err(format!("no link to runtime {number} is laid: {why}")),
        };
        problems.extend(done.err());
    }
    problems
}

/// Makes a link of each worker of this process to a runtime.
fn lay(shared: &Shared, number: u16, there: &Member) -> Result<(), String> {
    for worker in shared.workers() {
        let id = worker.call(|worker| Some(worker.id()));
        let id = id
            .and_then(|id| Ok(id.recv_timeout(PATIENCE)?))
            .map_err(|why| why.to_string())?;
        let far = WorkerId::Runtime(number.into());
        let made = shared.with_neighbours(|neighbours| {
            let rank = Layout::replica_rank(neighbours.here(), there);
            neighbours.link(id, far, there).map(|link| (link, rank))
        });
        let Some(made) = made else { return Ok(()) };
        let (link, rank) =
            made.map_err(|error| format!("member `{}` is not reached: {error}", there.name))?;
        let link = Box::new(link);
        at(&worker, number, move |berth| drop(berth.set(Some(link))))?;
        let told = worker.call(move |worker| {
            if let Worker::Runtime(runtime) = worker {
                runtime.relaid(number, Some(rank));
            }
            Some(())
        });
        told.and_then(|told| Ok(told.recv_timeout(PATIENCE)?))
            .map_err(|why| why.to_string())?;
    }
    Ok(())
}

/// Drops links that workers have taken down.
fn clear(shared: &Shared) {
    for worker in shared.workers() {
        let retired = worker.call(|worker| {
            let mut all = Vec::new();
            worker.each_link(|_, _, link| {
                if let WorkerLink::Berth(berth) = link {
                    all.extend(berth.take_retired());
                }
            });
            Some(all)
        });
        drop(retired.and_then(|all| Ok(all.recv_timeout(PATIENCE)?)));
    }
}

/// Does something at a worker's berth for a runtime.
fn at<T: Send + 'static>(
    worker: &Handle,
    number: u16,
    act: impl FnOnce(&mut Berth) -> T + Send + 'static,
) -> Result<Option<T>, String> {
    let asked = worker.call(move |worker| {
        let (mut act, mut done) = (Some(act), None);
        worker.each_link(|_, to, link| {
            if let WorkerLink::Berth(berth) = link
                && to == LinkTo::Runtime(number)
            {
                done = act.take().map(|act| act(berth));
            }
        });
        Some(done)
    });
    asked
        .and_then(|done| Ok(done.recv_timeout(PATIENCE)?))
        .map_err(|why| why.to_string())
}
