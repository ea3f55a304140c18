//! Calls that wait: for a time, for a change, for a token ([`Cx::token`]), and for givers of
//! tokens: a store's acknowledgement, a merge, a lock.
//!
//! ```text
//!   sleep ──────────── until a time
//!   changed ────────── until the function's generation is another: all its calls look
//!   given ──────────── until this call's token is given: by another packet's call, or any thread
//!   stored, merged, locked, put ── until the store answers this call, by its token
//! ```
//!
//! A call that could leave its token nowhere, since more calls wait there than are known, looks
//! every 10 ms. A call whose token is left looks each second all the same; a call that so finds a
//! change that no token told is counted (`untold`).
//!
//! Not here: tokens (`variables::wake`), when a call that waits is polled
//! (`runtime::runner::waiting`).

use crate::NetworkFunction;
use crate::cx::{Cx, RawCx};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use variables::merged::{Answer, Unmerged};
use variables::{Fenced, Held, Lock, NotHeld, Ticket, Token};

/// How often a call looks whose token is left nowhere.
const LOOK: Duration = Duration::from_millis(10);
/// How often one looks whose token is left somewhere.
const NET: Duration = Duration::from_secs(1);

impl<F: NetworkFunction> Cx<F> {
    /// Waits; other flows go on meanwhile, later packets of this flow queue behind.
    pub fn sleep(&mut self, time: Duration) -> Sleep<'_> {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Sleep {
            raw: self.raw_mut(),
            time: nanoseconds,
            waits_for: 0,
            waiting: false,
        }
    }

    /// Waits like [`Cx::sleep`] until [`NetworkFunction::generation`] changes, `nanoseconds` at
    /// most. The change need not be the one that the caller waits for: it looks, and waits again.
    ///
    /// `what` names the thing that is waited for, by a number of the function's own. Calls that
    /// wait for the same thing, with the packets behind them, share a bound; a packet beyond it is
    /// a counted drop. So a thing that never comes does not take the room of others. Different
    /// things may have one number: they share the bound, and no more.
    pub fn changed(&mut self, what: u64, nanoseconds: u64) -> Sleep<'_> {
        Sleep {
            raw: self.raw_mut(),
            time: nanoseconds,
            waits_for: what.max(1),
            waiting: false,
        }
    }

    /// A token of this call's next wait: left with the giver of the answer, it has this call go on,
    /// and no other. It is dead as soon as the call asks for another, or is over.
    ///
    /// ```text
    /// let token = cx.token();
    /// self.asked.borrow_mut().insert(host, token.clone());        // another packet answers: asked.remove(host) … give()
    /// if !cx.given(&token, Duration::from_secs(1)).await {        // nothing answered in time
    ///     return cx.drop("unanswered");
    /// }
    /// ```
    pub fn token(&mut self) -> Token {
        let raw = self.raw_mut();
        let tokens = raw.tokens.as_ref();
        tokens.map_or_else(Token::none, |tokens| tokens.make(raw.place))
    }

    /// Waits until the token is given (`Token::give`), `patience` at most; answers whether it was.
    /// Each flow's calls have a bound of their own, as with [`Cx::changed`].
    pub fn given<'a>(&'a mut self, token: &'a Token, patience: Duration) -> Given<'a> {
        Given {
            raw: self.raw_mut(),
            token,
            time: u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX),
            waiting: false,
        }
    }

    /// Until the token is given; or until a look is due, where `false` is answered only of a token
    /// that was left somewhere.
    async fn until_given(&mut self, token: &Token, is_left: bool) -> bool {
        self.given(token, look_in(is_left)).await || !is_left
    }

    /// Counts a call that found a change that its token should have told.
    fn note_untold(&mut self) {
        if let Some(tokens) = &self.raw_mut().tokens {
            tokens.note_untold();
        }
    }

    /// Waits until the store has all that these tickets of variables stand for: a packet that goes
    /// on behind it has its changes kept. Each flow's calls have a bound of their own, as with
    /// [`Cx::changed`].
    ///
    /// The store's acknowledgement gives the call's token, so this call goes on with it and no
    /// other.
    ///
    /// # Errors
    /// Another process has claimed the variables: changes made here are not kept.
    pub async fn stored(&mut self, tickets: &[Ticket]) -> Result<(), Fenced> {
        for ticket in tickets {
            while ticket.state().is_none() {
                let token = self.token();
                let waiter = ticket.wait(token.clone());
                let is_told = self.until_given(&token, waiter.is_some()).await;
                if !is_told && ticket.state().is_some() {
                    self.note_untold();
                }
            }
        }
        match tickets.iter().all(|ticket| ticket.state() == Some(Ok(()))) {
            true => Ok(()),
            false => Err(Fenced),
        }
    }

    /// Waits until the store has made a merge that was asked for (`Merged::ask`): the answer gives
    /// the call's token.
    ///
    /// # Errors
    /// The store made none; the view stays as it was.
    pub async fn merged(&mut self, asked: &impl Answer) -> Result<(), Unmerged> {
        loop {
            let token = Ending(self.token());
            let is_left = asked.until(&token.0);
            // The answer may have come before the token was left.
            if let Some(answer) = asked.state() {
                return answer;
            }
            let is_told = self.until_given(&token.0, is_left).await;
            if !is_told && asked.state().is_some() {
                self.note_untold();
            }
        }
    }
}

/// Locks of variables.
impl<F: NetworkFunction> Cx<F> {
    /// Waits for a lock (`Variables::lock`), until `patience` is over. The lock is held until the
    /// returned value is dropped, and by one call of all runtimes and members. Of the calls of a
    /// runtime that wait for it, its grant gives the token of one.
    ///
    /// # Errors
    /// Another had it all the time, the store did not answer, or there is none.
    pub async fn locked(&mut self, lock: &Lock, patience: Duration) -> Result<Held, NotHeld> {
        let wait = lock.wait()?;
        let until = self.now() + patience;
        loop {
            let token = Ending(self.token());
            let is_left = wait.until(&token.0);
            let left = Duration::from_nanos(until.nanoseconds_since(self.now()));
            match wait.take() {
                Some(held) => return Ok(held),
                None if left.is_zero() => return Err(NotHeld::Patience),
                None => self.given(&token.0, look_in(is_left).min(left)).await,
            };
        }
    }

    /// Writes a lock's value, and waits until the store has it.
    ///
    /// # Errors
    /// The lease is over, or a later holder has written: the value is not written, or where the
    /// store did not answer, perhaps.
    pub async fn put(&mut self, held: &Held, value: &[u8]) -> Result<(), NotHeld> {
        let put = held.begin_put(value.to_vec()).ok_or(NotHeld::Lost)?;
        loop {
            let token = Ending(self.token());
            let is_left = held.until(&token.0);
            if let Some(answer) = held.put_state(put) {
                return answer;
            }
            let is_told = self.until_given(&token.0, is_left).await;
            if !is_told && held.put_state(put).is_some() {
                self.note_untold();
            }
        }
    }
}

/// The wait of [`Cx::sleep`] and [`Cx::changed`].
pub struct Sleep<'a> {
    raw: &'a mut RawCx,
    time: u64,
    waits_for: u64,
    waiting: bool,
}

impl Future for Sleep<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.waiting {
            // The runtime polls again when the time has come or the generation has changed, not
            // before.
            return Poll::Ready(());
        }
        this.waiting = true;
        this.raw.wake_at = this.raw.now.saturating_add(this.time);
        this.raw.waits_for = this.waits_for;
        this.raw.token = 0;
        Poll::Pending
    }
}

/// A token that is dead when its call waits no more, however that ends.
struct Ending(Token);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// How long a call waits whose token is left somewhere, or is not.
fn look_in(is_left: bool) -> Duration {
    match is_left {
        true => NET,
        false => LOOK,
    }
}

/// The wait of [`Cx::given`].
pub struct Given<'a> {
    raw: &'a mut RawCx,
    token: &'a Token,
    time: u64,
    waiting: bool,
}

impl Future for Given<'_> {
    type Output = bool;
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        if this.waiting || this.token.is_given() {
            return Poll::Ready(this.token.is_given());
        }
        this.waiting = true;
        this.raw.wake_at = this.raw.now.saturating_add(this.time);
        this.raw.waits_for = u64::from(this.raw.flow) + 1;
        this.raw.token = this.token.number();
        Poll::Pending
    }
}
