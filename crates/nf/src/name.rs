//! [`Name`]: of a reason, a counter or an event, found in its function's list while the function is compiled.
//!
//! An author writes a literal, as in `cx.drop("late")`. `#[network_function]` makes a [`Name`] of
//! it, above the contract's `impl` and above any other block or function that says names:
//!
//! ```text
//!   cx.drop("late")    with the attribute, in REASONS        Name("late")
//!   cx.drop("lte")     with the attribute, not in REASONS    does not compile
//!   cx.drop("late")    without the attribute                 does not compile: `&str` is not `Listed`
//! ```
//!
//! A name that is handed on before it is said is made by [`reason!`](crate::reason),
//! [`counter!`](crate::counter) or [`event!`](crate::event!).

use crate::Event;
use core::fmt;

/// A name that is in its function's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name(&'static str);

impl Name {
    /// Its text.
    #[inline(always)]
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// A name that the attribute has found in its list.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn listed(name: &'static str) -> Self {
        Name(name)
    }

    /// A name that is in `list`; else it does not compile, for this problem.
    #[doc(hidden)]
    pub const fn of(list: &[&str], name: &'static str, problem: &'static str) -> Self {
        let mut index = 0;
        while index < list.len() {
            if same(list[index], name) {
                return Name(name);
            }
            index += 1;
        }
        panic!("{}", problem)
    }

    /// The same in a list of events.
    #[doc(hidden)]
    pub const fn of_event(list: &[Event], name: &'static str, problem: &'static str) -> Self {
        let mut index = 0;
        while index < list.len() {
            if same(list[index].name, name) {
                return Name(name);
            }
            index += 1;
        }
        panic!("{}", problem)
    }
}

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The argument of [`Cx::drop`](crate::Cx::drop), [`Cx::count`](crate::Cx::count) and their like: a
/// [`Name`].
#[diagnostic::on_unimplemented(
    message = "nothing has looked this name up in the function's list",
    label = "it may be misspelt",
    note = "write `#[network_function]` above the `impl` or the function that this is in, where it has its `cx` as an argument",
    note = "a name that is handed on is `nf::reason!(Function, \"…\")`, `nf::counter!` or `nf::event!`"
)]
pub trait Listed: sealed::Sealed {
    #[doc(hidden)]
    fn name(self) -> &'static str;
}

impl Listed for Name {
    #[inline(always)]
    fn name(self) -> &'static str {
        self.0
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Name {}
}

/// A [`Name`] from the `REASONS` of a function; another one does not compile.
///
/// ```
/// # use nf::{network_function, Cx, NetworkFunction, Packet, Verdict};
/// #[derive(Default)]
/// struct Gate;
///
/// fn check(packet: &Packet) -> Result<(), nf::Name> {
///     match packet.ttl() {
///         0 => Err(nf::reason!(Gate, "spent")),
///         _ => Ok(()),
///     }
/// }
///
/// #[network_function]
/// impl NetworkFunction for Gate {
///     const NAME: &'static str = "gate";
///     const REASONS: &'static [&'static str] = &["spent"];
///     fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
///         match check(packet) {
///             Ok(()) => Verdict::Forward,
///             Err(reason) => cx.drop(reason),
///         }
///     }
/// }
/// ```
#[macro_export]
macro_rules! reason {
    ($function:ty, $name:literal) => {
        const {
            $crate::Name::of(
                <$function as $crate::NetworkFunction>::REASONS,
                $name,
                concat!(
                    "`",
                    $name,
                    "` is no reason in the REASONS of `",
                    stringify!($function),
                    "`: write one that is there, or add it to a list that is written out"
                ),
            )
        }
    };
}

/// A [`Name`] from the `COUNTERS` of a function; another one does not compile.
#[macro_export]
macro_rules! counter {
    ($function:ty, $name:literal) => {
        const {
            $crate::Name::of(
                <$function as $crate::NetworkFunction>::COUNTERS,
                $name,
                concat!(
                    "`",
                    $name,
                    "` is no counter in the COUNTERS of `",
                    stringify!($function),
                    "`: write one that is there, or add it to a list that is written out"
                ),
            )
        }
    };
}

/// A [`Name`] from the `EVENTS` of a function; another one does not compile.
#[macro_export]
macro_rules! event {
    ($function:ty, $name:literal) => {
        const {
            $crate::Name::of_event(
                <$function as $crate::NetworkFunction>::EVENTS,
                $name,
                concat!(
                    "`",
                    $name,
                    "` is no event in the EVENTS of `",
                    stringify!($function),
                    "`: write one that is there, or add it to a list that is written out"
                ),
            )
        }
    };
}
