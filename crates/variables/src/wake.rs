//! Tokens: how one call that waits is told that its answer has come.
//!
//! # Theory of operation
//!
//! ```text
//!   call ── Cx::token ──► token 7.3 (place 7, third wait there) ── left with ──► a ticket's list, a lock, a merge, a table
//!     │ waits                                                                        │ an answer
//!   worker ◄── take_given: place 7, up to 3 ── marks ◄────────── give ───────────────┘
//!     └─► the call that waits at place 7 for number 3 goes on; of any other number, nothing happens
//! ```
//!
//! A worker has a table of [`Tokens`], a place for each call that may wait. A token is a place and
//! a number, and numbers of a place only grow. So a token of a call that is over does nothing,
//! however late it is given. Each thread may give a token; only the worker makes and takes them.
//!
//! Two kinds of lists keep tokens: [`Waiters`], in order, for answers of the worker's own thread;
//! [`Bell`] for answers of another thread.
//!
//! Invariants: giving neither waits, locks nor allocates; a token that was given is taken once
//! (`a_token_is_taken_once_and_a_dead_one_never`); a list has no token of a call that has left it
//! (`a_list_gives_what_is_reached_in_order_and_forgets_what_leaves`).
//!
//! Not here: calls (`runtime::runner::waiting`), the waits themselves (`nf::Cx`).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use spin::Mutex;

/// No place.
const NONE: u32 = u32::MAX;
/// The most calls of a runtime that a [`Bell`] knows; one more looks by itself.
const BELL_MAX: usize = 64;

/// Of one call that may wait.
struct Place {
    /// The last number that was handed out; the worker's alone.
    number: AtomicU64,
    /// The largest number that was given.
    given: AtomicU64,
    /// Where it is in a list of [`Waiters`], the worker's alone.
    is_listed: AtomicBool,
    next: AtomicU32,
    previous: AtomicU32,
    /// The number that the list has to reach.
    at: AtomicU64,
}

/// The places of a worker.
pub struct Tokens {
    places: Box<[Place]>,
    /// A bit for each place of which a token was given.
    marks: Box<[AtomicU64]>,
    is_marked: AtomicBool,
    /// Calls that found by a look an answer that no token told.
    untold: AtomicU64,
}

impl Tokens {
    /// For so many calls that wait at once.
    pub fn new(places: usize) -> Arc<Self> {
        let place = || Place {
            number: AtomicU64::new(0),
            given: AtomicU64::new(0),
            is_listed: AtomicBool::new(false),
            next: AtomicU32::new(NONE),
            previous: AtomicU32::new(NONE),
            at: AtomicU64::new(0),
        };
        let words = places.div_ceil(64);
        Arc::new(Tokens {
            places: core::iter::repeat_with(place).take(places).collect(),
            marks: core::iter::repeat_with(AtomicU64::default).take(words).collect(),
            is_marked: AtomicBool::new(false),
            untold: AtomicU64::new(0),
        })
    }

    fn place(&self, place: u32) -> Option<&Place> {
        self.places.get(place as usize)
    }

    /// The next token of a place; earlier ones are dead.
    pub fn make(self: &Arc<Self>, place: u32) -> Token {
        let number = self.place(place).map_or(0, |at| {
            let number = at.number.load(Ordering::Relaxed).saturating_add(1);
            at.number.store(number, Ordering::Release);
            number
        });
        Token {
            tokens: Some(Arc::clone(self)),
            place,
            number,
        }
    }

    /// Whether a token was given that the worker has not taken.
    #[inline]
    pub fn is_given(&self) -> bool {
        self.is_marked.load(Ordering::Acquire)
    }

    /// A call found by a look an answer that no token told.
    pub fn note_untold(&self) {
        self.untold.fetch_add(1, Ordering::Relaxed);
    }

    /// How many calls did.
    pub fn untold(&self) -> u64 {
        self.untold.load(Ordering::Relaxed)
    }

    /// Hands out places of which a token was given, and the largest number of each.
    pub fn take_given(&self, mut given: impl FnMut(u32, u64)) {
        if !self.is_marked.swap(false, Ordering::AcqRel) {
            return;
        }
        for (at, word) in self.marks.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                let place = (at as u32) * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                if let Some(of) = self.place(place) {
                    given(place, of.given.load(Ordering::Acquire));
                }
            }
        }
    }
}

/// One wait of one call. Given, the call goes on; of a call that is over, or waits for something
/// else, it does nothing.
#[derive(Clone)]
pub struct Token {
    /// `None`: of a call that cannot wait.
    tokens: Option<Arc<Tokens>>,
    place: u32,
    number: u64,
}

impl Token {
    /// Of a call that cannot wait: it may be given, and nothing happens.
    pub fn none() -> Self {
        Token {
            tokens: None,
            place: NONE,
            number: 0,
        }
    }

    /// Its number, larger than that of each earlier one of its place.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn at(&self) -> Option<(&Arc<Tokens>, &Place)> {
        let tokens = self.tokens.as_ref()?;
        Some((tokens, tokens.place(self.place)?))
    }

    /// Has the call go on. Any thread may; it neither waits nor allocates.
    pub fn give(&self) {
        let Some((tokens, at)) = self.at() else {
            return;
        };
        at.given.fetch_max(self.number, Ordering::AcqRel);
        if let Some(word) = tokens.marks.get(self.place as usize / 64) {
            word.fetch_or(1 << (self.place % 64), Ordering::AcqRel);
            tokens.is_marked.store(true, Ordering::Release);
        }
    }

    /// Whether it was given.
    pub fn is_given(&self) -> bool {
        self.at()
            .is_some_and(|(_, at)| at.given.load(Ordering::Acquire) >= self.number)
    }

    /// Whether its call has neither asked for another since nor ended this one.
    pub fn is_live(&self) -> bool {
        self.at()
            .is_some_and(|(_, at)| at.number.load(Ordering::Acquire) == self.number)
    }

    /// The token is dead from now on: for its call, which waits no more.
    pub fn end(&self) {
        if self.is_live()
            && let Some((_, at)) = self.at()
        {
            at.number.store(self.number.saturating_add(1), Ordering::Release);
        }
    }
}

/// Calls that wait until something counts up to a number, in its order: of one worker, whose thread
/// also answers.
#[derive(Default)]
pub(crate) struct Waiters {
    ends: Cell<Option<(u32, u32)>>,
    /// Of the calls that are in the list; none while it is empty.
    tokens: RefCell<Option<Arc<Tokens>>>,
}

impl Waiters {
    /// Adds a call until `number` is reached, or it leaves. `false`: it is not added, and has to
    /// look by itself.
    pub fn join(&self, token: &Token, number: u64) -> bool {
        let (Some((tokens, at)), Ok(mut ours)) = (token.at(), self.tokens.try_borrow_mut()) else {
            return false;
        };
        let is_same = ours.as_ref().is_none_or(|ours| Arc::ptr_eq(ours, tokens));
        if !is_same || at.is_listed.load(Ordering::Relaxed) {
            return false;
        }
        let (mut before, mut behind) = (self.ends.get().map_or(NONE, |(_, last)| last), NONE);
        while let Some(other) = tokens.place(before)
            && other.at.load(Ordering::Relaxed) > number
        {
            behind = before;
            before = other.previous.load(Ordering::Relaxed);
        }
        at.at.store(number, Ordering::Relaxed);
        at.is_listed.store(true, Ordering::Relaxed);
        at.previous.store(before, Ordering::Relaxed);
        at.next.store(behind, Ordering::Relaxed);
        let (first, last) = self.ends.get().unwrap_or((NONE, NONE));
        if let Some(other) = tokens.place(before) {
            other.next.store(token.place, Ordering::Relaxed);
        }
        if let Some(other) = tokens.place(behind) {
            other.previous.store(token.place, Ordering::Relaxed);
        }
        self.ends.set(Some((
            if before == NONE { token.place } else { first },
            if behind == NONE { token.place } else { last },
        )));
        *ours = Some(Arc::clone(tokens));
        true
    }

    fn unlink(&self, tokens: &Tokens, place: u32) {
        let (Some(at), Some((first, last))) = (tokens.place(place), self.ends.get()) else {
            return;
        };
        at.is_listed.store(false, Ordering::Relaxed);
        let (before, behind) = (
            at.previous.load(Ordering::Relaxed),
            at.next.load(Ordering::Relaxed),
        );
        if let Some(other) = tokens.place(before) {
            other.next.store(behind, Ordering::Relaxed);
        }
        if let Some(other) = tokens.place(behind) {
            other.previous.store(before, Ordering::Relaxed);
        }
        let first = if first == place { behind } else { first };
        let last = if last == place { before } else { last };
        self.ends.set((first != NONE).then_some((first, last)));
    }

    /// A call waits no more. It is in this list, or in none.
    pub fn leave(&self, token: &Token) {
        if let Some((tokens, at)) = token.at() {
            if at.is_listed.load(Ordering::Relaxed) {
                self.unlink(tokens, token.place);
                self.forget();
            }
            token.end();
        }
    }

    /// Nothing is kept of a worker while no call of it is here: the variable may go on at another.
    fn forget(&self) {
        if self.ends.get().is_none()
            && let Ok(mut tokens) = self.tokens.try_borrow_mut()
        {
            *tokens = None;
        }
    }

    /// Gives the tokens of calls that wait for this number, or for an earlier one.
    pub fn reach(&self, number: u64) {
        let Some((mut place, _)) = self.ends.get() else {
            return;
        };
        if let Ok(tokens) = self.tokens.try_borrow()
            && let Some(tokens) = tokens.as_ref()
        {
            while let Some(at) = tokens.place(place)
                && at.at.load(Ordering::Relaxed) <= number
            {
                let next = at.next.load(Ordering::Relaxed);
                self.unlink(tokens, place);
                let token = Token {
                    tokens: Some(Arc::clone(tokens)),
                    place,
                    number: at.number.load(Ordering::Relaxed),
                };
                token.give();
                place = next;
            }
        }
        self.forget();
    }
}

/// Calls of one worker that wait for another thread's answer.
pub(crate) struct Bell {
    /// Held for as long as a few tokens are looked at. The worker only tries.
    waiters: Mutex<Vec<(u32, Token)>>,
    /// The worker wanted to give the first token while the thread had the list.
    is_wanted: AtomicBool,
}

impl Default for Bell {
    fn default() -> Self {
        Bell {
            waiters: Mutex::new(Vec::with_capacity(BELL_MAX)),
            is_wanted: AtomicBool::new(false),
        }
    }
}

impl Bell {
    /// Adds a call that waits for `number`. `false`: it is not added, and has to look by itself.
    pub fn join(&self, token: &Token, number: u32) -> bool {
        let Some(mut waiters) = self.waiters.try_lock() else {
            return false;
        };
        if waiters.len() >= BELL_MAX {
            waiters.retain(|(_, token)| token.is_live());
        }
        let has_room = waiters.len() < BELL_MAX;
        if has_room {
            waiters.push((number, token.clone()));
        }
        has_room
    }

    /// Gives the tokens of the calls that wait for a number that is reached: for the thread.
    pub fn reach(&self, is_reached: impl Fn(u32) -> bool) {
        let mut waiters = self.waiters.lock();
        waiters.retain(|(number, token)| {
            let is_over = is_reached(*number);
            if is_over {
                token.give();
            }
            !is_over && token.is_live()
        });
    }

    fn first(waiters: &mut Vec<(u32, Token)>) {
        while !waiters.is_empty() {
            let (_, token) = waiters.remove(0);
            if token.is_live() {
                return token.give();
            }
        }
    }

    /// Gives the token of the first call that waits: for the thread.
    pub fn ring(&self) {
        loop {
            Self::first(&mut self.waiters.lock());
            if !self.is_wanted.swap(false, Ordering::AcqRel) {
                return;
            }
        }
    }

    /// The same, for the worker: where the thread has the list, the thread does it.
    pub fn try_ring(&self) {
        if let Some(mut waiters) = self.waiters.try_lock() {
            return Self::first(&mut waiters);
        }
        self.is_wanted.store(true, Ordering::Release);
        if let Some(mut waiters) = self.waiters.try_lock()
            && self.is_wanted.swap(false, Ordering::AcqRel)
        {
            Self::first(&mut waiters);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn taken(tokens: &Tokens) -> Vec<(u32, u64)> {
        let mut taken = Vec::new();
        tokens.take_given(|place, number| taken.push((place, number)));
        taken
    }

    #[test]
    fn a_token_is_taken_once_and_a_dead_one_never() {
        let tokens = Tokens::new(130);
        let first = tokens.make(129);
        assert!(!tokens.is_given() && !first.is_given() && first.is_live());
        first.give();
        assert!(tokens.is_given() && first.is_given());
        assert_eq!(taken(&tokens), [(129, 1)]);
        assert_eq!(taken(&tokens), []);
        // The next call has the place: its number is another, so a token given late is not its own.
        let second = tokens.make(129);
        assert!(!second.is_given() && !first.is_live());
        first.give();
        assert_eq!(taken(&tokens), [(129, 1)]);
        second.give();
        first.give();
        assert_eq!(taken(&tokens), [(129, 2)]);
        Token::none().give();
        // Given by another thread.
        let third = tokens.make(3);
        std::thread::spawn(move || third.give()).join().unwrap();
        assert_eq!(taken(&tokens), [(3, 1)]);
    }

    #[test]
    fn a_list_gives_what_is_reached_in_order_and_forgets_what_leaves() {
        let tokens = Tokens::new(8);
        let waiters = Waiters::default();
        let all: Vec<Token> = (0..6).map(|place| tokens.make(place)).collect();
        for (token, number) in all.iter().zip([5, 9, 7, 5, 20, 1]) {
            assert!(waiters.join(token, number));
        }
        assert!(!waiters.join(&all[0], 3), "it is in a list");
        assert!(!waiters.join(&Tokens::new(1).make(0), 3), "of another worker");
        waiters.reach(0);
        assert!(!tokens.is_given());
        waiters.leave(&all[2]);
        waiters.reach(7);
        assert_eq!(taken(&tokens), [(0, 1), (3, 1), (5, 1)]);
        // A waiter whose token was given leaves, and that changes nothing.
        waiters.leave(&all[0]);
        waiters.reach(u64::MAX);
        assert_eq!(taken(&tokens), [(1, 1), (4, 1)]);
        assert!(waiters.tokens.borrow().is_none() && waiters.ends.get().is_none());
        assert!(waiters.join(&Tokens::new(1).make(0), 3), "another worker's turn");
    }

    #[test]
    fn a_bell_gives_the_first_call_that_still_waits() {
        let tokens = Tokens::new(BELL_MAX + 2);
        let bell = Bell::default();
        let all: Vec<Token> = (0..BELL_MAX as u32 + 1).map(|place| tokens.make(place)).collect();
        let joined: Vec<bool> = all.iter().map(|token| bell.join(token, token.place)).collect();
        assert_eq!(joined.iter().filter(|joined| **joined).count(), BELL_MAX);
        all[0].end();
        assert!(bell.join(&all[BELL_MAX], 90), "the dead one makes room");
        all[1].end();
        bell.ring();
        assert_eq!(taken(&tokens), [(2, 1)]);
        bell.try_ring();
        assert_eq!(taken(&tokens), [(3, 1)]);
        bell.reach(|number| number < 6);
        assert_eq!(taken(&tokens), vec![(4, 1), (5, 1)]);
        bell.reach(|_| true);
        assert_eq!(taken(&tokens).len(), BELL_MAX - 5);
    }
}
