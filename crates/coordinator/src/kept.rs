//! The counts of members, as they said them last: they stay when the members are gone.
//!
//! ```text
//!   each LOOK, and before a member leaves ── Keeper::question ─► member (Serve)
//!                                         ◄─ what it has counted ─┘
//!   kept = Keeper::add(kept, said)              an operator asks for it by `Counted`
//! ```
//!
//! Answers are bytes here, which the [`Keeper`] reads and adds up: of one incarnation of a member
//! the newest answer counts, earlier incarnations in sum. The counts are in the memory of this
//! process, so a coordinator that begins again knows the counts of live members, and not those of
//! earlier ones.
//!
//! Invariants: each member has [`ANSWER_MAX`] bytes at most, and [`MEMBERS_MAX`] members have any.
//! An answer that the keeper cannot read changes nothing.
//!
//! Not here: the counts themselves (`flowkeep::control::counted`).

use crate::relay::{ANSWER_MAX, Relay};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// How often members are asked.
const LOOK: Duration = Duration::from_secs(1);
/// How long a member that leaves may take to say its counts.
const LAST_LOOK: Duration = Duration::from_millis(500);
/// Members whose counts are kept, at most.
const MEMBERS_MAX: usize = 128;

/// Asks members for their counts, and adds them up.
#[derive(Clone, Copy)]
pub struct Keeper {
    /// The request.
    pub question: fn() -> Vec<u8>,
    /// The kept counts once a member has said this; `None` if that is no such answer.
    pub add: fn(kept: &[u8], said: &[u8]) -> Option<Vec<u8>>,
}

/// The kept counts, by member.
#[derive(Default)]
pub struct Kept(Mutex<BTreeMap<String, Vec<u8>>>);

impl Kept {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Members of which something is kept.
    pub fn members(&self) -> Vec<String> {
        self.all().keys().cloned().collect()
    }

    /// The kept counts of a member.
    pub fn of(&self, member: &str) -> Vec<u8> {
        self.all().get(member).cloned().unwrap_or_default()
    }

    /// A member has said this. Where there are too many, the first that answers no more goes.
    fn note(&self, member: &str, said: &[u8], serving: &[String], keeper: Keeper) {
        let mut all = self.all();
        let before = all.get(member).map_or(&[][..], Vec::as_slice);
        let Some(kept) = (keeper.add)(before, said).filter(|kept| kept.len() <= ANSWER_MAX) else {
            return;
        };
        if all.len() >= MEMBERS_MAX && !all.contains_key(member) {
            let Some(gone) = all.keys().find(|name| !serving.contains(name)).cloned() else {
                return;
            };
            all.remove(&gone);
        }
        all.insert(member.to_owned(), kept);
    }

    async fn look(&self, relay: &Relay, member: &str, keeper: Keeper) {
        if let Ok(said) = relay.ask(member, (keeper.question)()).await {
            self.note(member, &said, &relay.serving(), keeper);
        }
    }

    /// A member leaves: it is asked once more.
    pub(crate) async fn look_last(&self, relay: &Relay, member: &str, keeper: Option<Keeper>) {
        if let Some(keeper) = keeper {
            let _ = tokio::time::timeout(LAST_LOOK, self.look(relay, member, keeper)).await;
        }
    }

    /// Asks all members again and again.
    pub(crate) async fn follow(self: Arc<Self>, relay: Arc<Relay>, keeper: Keeper) {
        loop {
            let mut asked = JoinSet::new();
            for member in relay.serving() {
                let (kept, relay) = (self.clone(), relay.clone());
                asked.spawn(async move { kept.look(&relay, &member, keeper).await });
            }
            while asked.join_next().await.is_some() {}
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: Keeper = Keeper {
        question: Vec::new,
        add: |kept, said| (said != b"no").then(|| [kept, said].concat()),
    };

    #[test]
    fn what_was_said_stays_within_its_bounds() {
        let kept = Kept::default();
        let serving: Vec<String> = (1..MEMBERS_MAX).map(|number| format!("m{number}")).collect();
        kept.note("m0", b"1", &serving, SUM);
        kept.note("m0", b"no", &serving, SUM);
        kept.note("m0", b"2", &serving, SUM);
        assert_eq!(kept.of("m0"), b"12");
        kept.note("m0", &[0; ANSWER_MAX], &serving, SUM);
        assert_eq!(kept.of("m0"), b"12", "it would be too long");
        for member in &serving {
            kept.note(member, b"1", &serving, SUM);
        }
        assert_eq!(kept.members().len(), MEMBERS_MAX);
        kept.note("other", b"1", &serving, SUM);
        assert_eq!((kept.members().len(), kept.of("m0")), (MEMBERS_MAX, Vec::new()));
        // All that are kept answer: there is no room.
        let serving = kept.members();
        kept.note("one-more", b"1", &serving, SUM);
        assert!(kept.of("one-more").is_empty());
    }
}
