//! Chains that are known when the binary is built: all of their functions in one piece of code.
//!
//! # Theory of operation
//!
//! A chain calls each of its functions through a pointer ([`crate::stage`]). A [`Fused`] names the
//! functions of a chain by their types, so the compiler sees all of their calls at once.
//!
//! ```text
//!   runner ── whole ─► A ─forward─► B ─forward─► C ─forward─► Stop { at: 3 }: the packet has passed
//!                      └─ drop, answer, wait, an effect ────► Stop { at: 0, code }: the runner goes on from there
//! ```
//!
//! The steps are those of the chain: instances, places of states, counters. A fused chain adds no
//! state, and takes none of the rare ways: any answer but a plain *forward* stops it, and the
//! runner goes on as behind any call. So both ways of a chain have the same results, packet for
//! packet.
//!
//! Invariants: a fused entry runs steps of exactly its functions' types, in its order
//! ([`Fused::entries_of`] compares them when a chain is made).
//!
//! Not here: flows with held packets, packets that are traced, and packets that go on behind a
//! wait. The runner takes those function by function.

use crate::chain::Step;
use crate::microthread::Frame;
use crate::stage::{CallAnswer, Code, Configured, Factory, run, run_watched};
use core::any::TypeId;
use core::fmt;
use core::ptr::NonNull;
use nf::{NetworkFunction, Packet};

/// Where a fused chain has stopped, and why.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// The timeout that the functions that have run ask for ([`CallAnswer::timeout`]).
    pub timeout: u64,
    /// The last of their answers; of watched calls with the changes by any of them.
    pub code: Code,
    /// Its place in the way; as many as there are functions if the packet has passed them all.
    pub at: u32,
}

/// Runs all functions of a way, until one stops it.
///
/// # Safety
/// As for [`Step::run`] of each step; the steps are of the functions' types; `state` is an actor's
/// state and `group` its group's, laid out for these steps.
pub type Whole = unsafe fn(&[Step], &mut Packet, NonNull<u8>, NonNull<u8>, NonNull<Frame>) -> Stop;

/// One way of a chain: without, and with a look at changes by its functions
/// ([`crate::stage::Watched`]).
pub type Wholes = [Whole; 2];

/// Functions whose types are known, in the order in which a flow's opening direction passes them.
#[derive(Clone, Copy)]
pub struct Fused {
    kinds: fn() -> [Option<TypeId>; FUSED_MAX],
    entries: [Wholes; 2],
}

/// So many functions a fused chain has at most.
pub const FUSED_MAX: usize = 4;

impl PartialEq for Fused {
    /// Whether both are of the same functions.
    fn eq(&self, other: &Self) -> bool {
        (self.kinds)() == (other.kinds)()
    }
}

impl fmt::Debug for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fused({} functions)", (self.kinds)().iter().flatten().count())
    }
}

impl Fused {
    /// Of a tuple of functions.
    pub fn of<S: Sequence>() -> Self {
        Fused {
            kinds: S::kinds,
            entries: [S::OPENING, S::REPLY],
        }
    }

    /// The entries of a chain of these functions, by direction, if they are this one's.
    pub(crate) fn entries_of<'a>(
        &self,
        functions: impl Iterator<Item = &'a dyn Factory>,
    ) -> Option<[Wholes; 2]> {
        let kinds = (self.kinds)();
        let is_alike = functions
            .map(|factory| factory.as_any().type_id())
            .eq(kinds.into_iter().flatten());
        is_alike.then_some(self.entries)
    }
}

/// A tuple of two to four functions.
pub trait Sequence {
    /// The types of their factories.
    fn kinds() -> [Option<TypeId>; FUSED_MAX];
    /// Whether one of them is always the last of its chain.
    const ENDS_IN_LAST: bool;
    /// In this order.
    const OPENING: Wholes;
    /// In the order in which replies pass them: backward, but for a function that is always the
    /// last.
    const REPLY: Wholes;
}

/// One function of a way. Answers whether the next one follows.
///
/// # Safety
/// As for [`Whole`], of this one step.
#[inline(always)]
unsafe fn pass<const WATCHED: bool, F: NetworkFunction>(
    (at, step): (usize, &Step),
    packet: &mut Packet,
    state: NonNull<u8>,
    group: NonNull<u8>,
    frame: NonNull<Frame>,
    stop: &mut Stop,
) -> bool {
    // SAFETY: the caller's promise: nothing else uses the frame's cx, and the states are as long as
    // all of their functions' parts.
    let CallAnswer { timeout, code } = unsafe {
        let cx = core::ptr::addr_of_mut!((*frame.as_ptr()).cx);
        (*cx).group = group.add(step.group as usize);
        (*cx).counters = step.counters;
        let flow = state.add(step.flow as usize);
        match WATCHED {
            true => run_watched::<F>(step.instance(), packet, flow, frame, step.shadow),
            false => run::<F>(step.instance(), packet, flow, frame),
        }
    };
    // SAFETY: the call is over, or waits, and does not use `cx` now.
    let effects = unsafe { (*frame.as_ptr()).cx.effects };
    stop.timeout = stop.timeout.max(timeout);
    let (code, is_other) = if WATCHED { code.split() } else { (code, false) };
    let was_other = WATCHED && stop.code.split().1;
    (stop.code, stop.at) = (code.with(is_other || was_other), at as u32);
    code.number() | u32::from(effects) == 0
}

macro_rules! sequence {
    ($name:ident: $($function:ident)*; back: $($turned:ident)*; to the last: $($behind:ident)*) => {
        /// # Safety
        /// As for [`Whole`].
        unsafe fn $name<const WATCHED: bool, $($function: NetworkFunction),*>(
            steps: &[Step],
            packet: &mut Packet,
            state: NonNull<u8>,
            group: NonNull<u8>,
            frame: NonNull<Frame>,
        ) -> Stop {
            let mut stop = Stop { timeout: 0, code: Code::FORWARD, at: 0 };
            let mut steps = steps.iter().enumerate();
            $(
                let goes_on = match steps.next() {
                    // SAFETY: the caller's promise.
                    Some(step) => unsafe {
                        pass::<WATCHED, $function>(step, packet, state, group, frame, &mut stop)
                    },
                    None => false,
                };
                if !goes_on {
                    return stop;
                }
            )*
            stop.at += 1;
            stop
        }

        impl<$($function: NetworkFunction),*> Sequence for ($($function,)*) {
            fn kinds() -> [Option<TypeId>; FUSED_MAX] {
                let mut kinds = [None; FUSED_MAX];
                let known = [$(TypeId::of::<Configured<$function>>()),*];
                for (kind, known) in kinds.iter_mut().zip(known) {
                    *kind = Some(known);
                }
                kinds
            }
            const ENDS_IN_LAST: bool = false $(|| $function::LAST)*;
            const OPENING: Wholes = [$name::<false, $($function),*>, $name::<true, $($function),*>];
            const REPLY: Wholes = if Self::ENDS_IN_LAST {
                [$name::<false, $($behind),*>, $name::<true, $($behind),*>]
            } else {
                [$name::<false, $($turned),*>, $name::<true, $($turned),*>]
            };
        }
    };
}

sequence!(two: A B; back: B A; to the last: A B);
sequence!(three: A B C; back: C B A; to the last: B A C);
sequence!(four: A B C D; back: D C B A; to the last: C B A D);
