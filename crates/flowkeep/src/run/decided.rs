//! A member and the configurations that its coordinator decides: which one it starts with, and the
//! thread that puts later ones in force.
//!
//! ```text
//!   start   Configuration ─► no text: the file counts │ a text: its chains and functions, the rest of the file
//!   later   Decided(number, digest) ─► held: commit │ missed: Configuration, take it on ─► links meet others by its words
//!           reached ─► switches are told │ each second: a change held too long is taken back
//! ```
//!
//! A configuration that cannot be put in force is said, and `status` shows it; it is tried again
//! every 5 s. The process goes on meanwhile: its flows are worth more than its configuration, and
//! all members say that it lags.
//!
//! Not here: the change itself ([`crate::apply::joined`]).

use super::{Running, Shared, checking, part};
use crate::apply::Source;
use crate::apply::joined::{Behind, Own, same_digest};
use crate::cli::jobs::MemberJob;
use crate::config::chains::{chains_of, with_chains};
use crate::config::{self, Config};
use crate::events;
use crate::member::Membership;
use crate::member::joining::{JoinError, Joining};
use coordinator::agent::Decided;
use coordinator::proto::{Configuration, Decided as Newest};
use std::io::Write as _;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked whether something is held too long.
const LOOK: Duration = Duration::from_secs(1);
/// A configuration that could not be put in force is tried again after this time.
const RETRY: Duration = Duration::from_secs(5);

/// The configuration that this member starts with: its file's, or the one that is in force in the
/// cluster.
pub(super) fn take_on(
    job: &MemberJob,
    joining: &Joining,
    config: &mut Config,
    membership: &mut Membership,
) -> Result<Source, JoinError> {
    let decided = joining.configuration_at_start()?;
    let secrets = &mut membership.secrets;
    let failed = |why: String| JoinError::Configuration {
        number: decided.number,
        why,
    };
    let mut tree = job.tree.clone();
    if !decided.text.is_empty() {
        let text = with_chains(&job.text, &decided.text);
        let text = text.ok_or_else(|| failed("its text cannot be read".to_owned()))?;
        let name = format!("{} with configuration {}", job.path.display(), decided.number);
        let read = config::read_text(&name, &text, &job.registry);
        let (mut taken, of_taken) = read.map_err(|problems| {
            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
            failed(all.join("\n\n"))
        })?;
        let words = secrets.agreement.words(&of_taken, &taken.functions);
        same_digest(&words, &decided).map_err(failed)?;
        if words != secrets.agreed {
            let _ = writeln!(
                std::io::stderr(),
                "configuration {} of the cluster is in force here, and not what {} says of chains and functions: replace the file by what was \
                 applied, or apply the file again: flowkeep chain apply --cluster",
                decided.number,
                job.path.display()
            );
        }
        // The settings of a member are said already.
        std::mem::swap(&mut taken.control, &mut config.control);
        std::mem::swap(&mut taken.metrics, &mut config.metrics);
        std::mem::swap(&mut taken.log, &mut config.log);
        // A member that no file lists is this process's own.
        let own = config
            .member
            .get(membership.place)
            .filter(|member| member.first.is_some());
        taken.member.extend(own.cloned());
        secrets.agreed = words;
        secrets.functions = taken.functions.keys().cloned().collect();
        (*config, tree) = (taken, of_taken);
    }
    let chains = match decided.text.is_empty() {
        true => chains_of(&job.text).unwrap_or_default(),
        false => decided.text,
    };
    Ok(Source {
        registry: job.registry.clone(),
        path: job.path.clone(),
        tree,
        overrides: Box::new(|_| Ok(())),
        own: Some(Own {
            agreement: secrets.agreement.clone(),
            text: job.text.clone(),
            chains,
            words: secrets.agreed,
            number: decided.number,
            decided: joining.decided(),
        }),
    })
}

/// The thread; it ends when this is dropped.
pub(super) struct Following {
    decided: Arc<Decided>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.decided.close();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Puts in force the coordinator's decisions, as long as the returned value lives.
pub(super) fn follow(running: &Running, joining: Joining) -> std::io::Result<Following> {
    let decided = joining.decided();
    let me = running.shared.me.clone();
    let thread = std::thread::Builder::new().name("configuration".into());
    let thread = thread.spawn(move || run(&me, &joining))?;
    Ok(Following {
        decided,
        thread: Some(thread),
    })
}

fn run(me: &Weak<Shared>, joining: &Joining) {
    let decided = joining.decided();
    let (mut known, mut again_at) = (Newest::default(), Instant::now());
    while let Some(newest) = decided.wait(&known, LOOK) {
        let Some(shared) = me.upgrade() else { return };
        shared.live.expire_part(&*shared);
        let is_another = newest != known;
        known = newest;
        // Without a digest files count, and a member that hears of that has one in force.
        if known.number > decided.in_force() && !known.digest.is_empty() {
            if is_another || Instant::now() >= again_at {
                put_in_force(&shared, joining, &known);
                again_at = Instant::now() + RETRY;
            }
        } else if known.reached
            && let Err(problem) = shared.live.follow_part(&*shared)
        {
            let _ = writeln!(std::io::stderr(), "configuration {}: {problem}", known.number);
        }
    }
}

fn put_in_force(shared: &Shared, joining: &Joining, decided: &Newest) {
    let number = decided.number;
    let done = match shared.live.commit_part(number, &decided.digest, shared) {
        Err(Behind::NotHeld) => missed(shared, joining, number),
        Err(Behind::Failed(problem)) => Err(problem),
        Ok(()) => Ok(()),
    };
    checking::begin(shared);
    let mut err = std::io::stderr();
    if done.is_ok()
        && let Some(words) = shared.live.words()
        && let Err(problem) = part::agree(shared, &words)
    {
        let _ = writeln!(err, "{problem}");
    }
    match done {
        Ok(()) => {
            let _ = writeln!(err, "configuration {number} of the cluster is in force");
            let fields = [
                ("configuration", number.into()),
                ("digest", decided.digest.clone().into()),
            ];
            shared.notices.tell(&events::CONFIGURATION_IN_FORCE, &fields);
        }
        Err(problem) => {
            let _ = writeln!(
                err,
                "configuration {number} of the cluster is not in force here: {problem}"
            );
            let fields = [
                ("configuration", number.into()),
                ("problem", problem.as_str().into()),
            ];
            shared.notices.tell(&events::CONFIGURATION_LAGS, &fields);
            if let Some(joined) = shared.live.joined() {
                joined.lags(problem);
            }
        }
    }
}

/// The configuration was decided while this member held no change.
fn missed(shared: &Shared, joining: &Joining, number: u64) -> Result<(), String> {
    let decided: Configuration = joining.configuration().map_err(|why| why.to_string())?;
    if decided.number < number || decided.text.is_empty() {
        return Err(format!("the coordinator has no text of configuration {number}"));
    }
    match shared.live.take_on(&decided, shared) {
        Ok(()) => Ok(()),
        Err(Behind::Failed(problem)) => Err(problem),
        Err(Behind::NotHeld) => Err("it is not held".to_owned()),
    }
}
