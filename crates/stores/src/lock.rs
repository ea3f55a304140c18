//! Locks: a lease, and a token that fences a holder that lost it.
//!
//! ```text
//!   free ──► held by A, token 1, renewal 0 ─ renewed ─► renewal 1 ─ …  ─ released ─► free, token 1
//!                        │ unchanged for a whole lease, by B's clock
//!                        └──► held by B, token 2
//! ```
//!
//! A lock is a record, changed by comparison. No two processes compare clocks: a process that waits
//! for a lock watches the record, and takes it over when it has not changed for the length of its
//! lease. So a holder that died frees it after one lease of being watched, and a clock that is
//! wrong does no harm.
//!
//! A holder that slept through its lease believes that it still holds it. So the guarded value is
//! written with the lock's token ([`Store::write_guarded`]), and a token that is less than the last
//! one written is refused. Tokens only grow.
//!
//! All of this waits for the store. FlexState VI-B: locks are a last resort.

use crate::agent::{OpenError, Store};
use crate::driver::Swapped;
use std::time::{Duration, Instant};
use variables::Fenced;
use variables::decoded;

/// The store's record of a lock: token, holder, renewals, length of the lease in milliseconds.
type Record = (u64, Option<String>, u64, u64);
/// The store's record of a guarded value: the token it was written with, and the value.
type Guarded = (u64, Vec<u8>);

/// Whether a holder is gone for good, by its name.
pub type Void = Box<dyn Fn(&str) -> bool + Send>;

/// A lock, as a process that may hold it sees it.
pub struct Lock {
    store: Store,
    record: String,
    /// Unlike any other holder's.
    holder: String,
    lease: Duration,
    /// Which holders are gone for good.
    void: Option<Void>,
    /// The record as it was last seen, and since when.
    seen: Option<(Vec<u8>, Instant)>,
    /// The record as this one wrote it, its token, and until when it holds.
    held: Option<(Vec<u8>, u64, Instant)>,
}

impl Store {
    /// A lock by this name. `holder` must be unlike that of any other process or thread, and of
    /// this one before it was started again.
    pub fn lock(&self, name: &str, holder: impl Into<String>, lease: Duration) -> Lock {
        Lock {
            store: self.clone(),
            record: format!("lock/{name}"),
            holder: holder.into(),
            lease,
            void: None,
            seen: None,
            held: None,
        }
    }

    /// Writes a record that a lock guards, unless a later token has written it.
    pub fn write_guarded(
        &self,
        name: &str,
        token: u64,
        bytes: &[u8],
    ) -> Result<Result<(), Fenced>, OpenError> {
        let record = format!("guarded/{name}");
        let new = encoded(&(token, bytes.to_vec()));
        loop {
            let has = self.record(&record)?;
            let last = has.as_deref().and_then(decoded::<Guarded>);
            if last.is_some_and(|(last, _)| last > token) {
                return Ok(Err(Fenced));
            }
            if self.swap(&record, has, Some(new.clone()))? == Swapped::Done {
                return Ok(Ok(()));
            }
        }
    }

    /// Reads a record that a lock guards.
    pub fn read_guarded(&self, name: &str) -> Result<Option<Vec<u8>>, OpenError> {
        let has = self.record(&format!("guarded/{name}"))?;
        Ok(has
            .as_deref()
            .and_then(decoded::<Guarded>)
            .map(|(_, bytes)| bytes))
    }

    pub(crate) fn record(&self, name: &str) -> Result<Option<Vec<u8>>, OpenError> {
        let name = name.to_owned();
        self.with(move |driver| driver.record(&name))
    }

    /// Swaps a record. Where an answer got lost, the repetition finds the new value there, and that
    /// is `Done` too: so no other may write the same new value.
    pub(crate) fn swap(
        &self,
        name: &str,
        expected: Option<Vec<u8>>,
        new: Option<Vec<u8>>,
    ) -> Result<Swapped, OpenError> {
        let name = name.to_owned();
        self.with(move |driver| {
            let swapped = driver.swap(&name, expected.as_deref(), new.as_deref())?;
            Ok(match swapped {
                Swapped::Other(has) if has == new => Swapped::Done,
                other => other,
            })
        })
    }
}

impl Lock {
    /// Tries to take it, or to renew it where it is held; answers its token if it is held then.
    pub fn acquire(&mut self) -> Result<Option<u64>, OpenError> {
        // The lease begins before the store is asked, so it ends here before it ends for others.
        let now = Instant::now();
        let has = self.store.record(&self.record)?;
        let lease_ms = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let record = has.as_deref().and_then(decoded::<Record>);
        let new: Record = match (&has, record) {
            (None, _) => (1, Some(self.holder.clone()), 0, lease_ms),
            (Some(_), Some((token, Some(holder), renewals, _))) if holder == self.holder => {
                (token, Some(holder), renewals.saturating_add(1), lease_ms)
            }
            (Some(_), Some((token, None, renewals, _))) => (
                token.saturating_add(1),
                Some(self.holder.clone()),
                renewals,
                lease_ms,
            ),
            (Some(bytes), Some((token, Some(holder), renewals, lease))) => {
                self.held = None;
                match &self.seen {
                    _ if self.void.as_ref().is_some_and(|void| void(&holder)) => {}
                    Some((seen, since)) if seen == bytes => {
                        if since.elapsed() < Duration::from_millis(lease) {
                            return Ok(None);
                        }
                    }
                    _ => {
                        self.seen = Some((bytes.clone(), now));
                        return Ok(None);
                    }
                }
                (
                    token.saturating_add(1),
                    Some(self.holder.clone()),
                    renewals,
                    lease_ms,
                )
            }
            // A record that is no lock has no holder.
            (Some(_), None) => {
                return Err(OpenError::Lock(self.record.clone()));
            }
        };
        let bytes = encoded(&new);
        if self.store.swap(&self.record, has, Some(bytes.clone()))? != Swapped::Done {
            self.held = None;
            return Ok(None);
        }
        self.seen = None;
        self.held = Some((bytes, new.0, now + self.lease));
        Ok(Some(new.0))
    }

    /// The token, while the lease lasts by this process' clock.
    pub fn token(&self) -> Option<u64> {
        let (_, token, until) = self.held.as_ref()?;
        (Instant::now() < *until).then_some(*token)
    }

    /// Until when it is held, by this process' clock.
    pub fn until(&self) -> Option<Instant> {
        self.held.as_ref().map(|(_, _, until)| *until)
    }

    /// From now on a holder that `void` names has it no more: it is taken over at once.
    #[must_use]
    pub fn void_where(mut self, void: impl Fn(&str) -> bool + Send + 'static) -> Self {
        self.void = Some(Box::new(void));
        self
    }

    /// From the next time that it is taken on, its holder has this name.
    pub fn hold_as(&mut self, holder: String) {
        if self.held.is_none() {
            self.holder = holder;
        }
    }

    /// The guarded value, which from now on no earlier token writes; empty where nothing was
    /// written. `Err`: a later token has written.
    pub fn seal(&self, token: u64) -> Result<Result<Vec<u8>, Fenced>, OpenError> {
        let record = self.guarded();
        loop {
            let has = self.store.record(&record)?;
            let last = has.as_deref().and_then(decoded::<Guarded>);
            let (last, value) = last.unwrap_or_default();
            if last > token {
                return Ok(Err(Fenced));
            }
            let new = encoded(&(token, value.clone()));
            if last == token || self.store.swap(&record, has, Some(new))? == Swapped::Done {
                return Ok(Ok(value));
            }
        }
    }

    /// Writes the guarded value, unless a later token has written.
    pub fn put(&self, token: u64, value: &[u8]) -> Result<Result<(), Fenced>, OpenError> {
        let name = self.record.strip_prefix("lock/").unwrap_or_default();
        self.store.write_guarded(name, token, value)
    }

    fn guarded(&self) -> String {
        format!(
            "guarded/{}",
            self.record.strip_prefix("lock/").unwrap_or_default()
        )
    }

    /// Frees it, if it is still this one's; its token is never given again.
    pub fn release(&mut self) -> Result<(), OpenError> {
        let Some((bytes, token, _)) = self.held.take() else {
            return Ok(());
        };
        let Some((_, _, renewals, lease)) = decoded::<Record>(&bytes) else {
            return Ok(());
        };
        let free: Record = (token, None, renewals, lease);
        // Where another has it by now, it is that one's.
        self.store.swap(&self.record, Some(bytes), Some(encoded(&free)))?;
        Ok(())
    }
}

fn encoded<T: serde::Serialize>(value: &T) -> Vec<u8> {
    // Numbers, texts and bytes always encode.
    postcard::to_stdvec(value).unwrap_or_default()
}
