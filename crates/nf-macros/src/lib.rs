//! The derives and the attribute of `flowkeep-nf`. Their errors are written for an author that sees
//! them for the first time: the problem, and the text to write instead.
//!
//! # Theory of operation
//! `#[derive(Plain)]` (`plain.rs`) proves that a type's bytes can be copied to another worker and
//! checked there: fixed layout, no padding, plain fields. `#[derive(FlowState)]` (`state.rs`) adds
//! the schema version, how many bytes are committed, and the fields by name. `#[network_function]`
//! (`function.rs`) turns an ordinary `fn process` into the trait's `process_now`, which the runtime
//! calls without a future.
//!
//! Everything written out names the contract's crate as `::nf`, so it holds wherever that crate is
//! a dependency.
//!
//! # Invariants
//! - A type for which `Plain` is written out without an error has no byte that is not some field's.
//! - An error comes with as few others as can be: where one is reported, a stand-in implementation
//!   is written out too, if one would hold, so that the rest of the author's crate does not
//!   complain about the missing one. The compile-fail tests in `crates/nf/tests` show each error as
//!   its reader sees it.
//!
//! Not here: the traits themselves and what the written-out code calls (`flowkeep-nf`).

use proc_macro::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, parse_macro_input};

mod filling;
mod function;
mod naming;
mod plain;
mod state;

/// Makes a struct flow state or group state: plain data that can be replicated and moved.
///
/// ```
/// use nf::{FlowState, Plain};
/// # #[derive(Plain, Default, Clone, Copy, Debug)]
/// # #[repr(u8)]
/// # enum Phase { #[default] Opening }
///
/// #[derive(FlowState, Default, Clone, Copy, Debug)]
/// #[flow_state(version = 1)]
/// #[repr(C)]
/// struct Connection {
///     phase: Phase,                 // replicated before the packet leaves
///     reserved: [u8; 7],
///     #[flow_state(lazy)]
///     packets: u64,                 // replicated within a bound
/// }
/// ```
///
/// `version` is 1 where it is not written.
#[proc_macro_derive(FlowState, attributes(flow_state))]
pub fn flow_state(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    match (plain::expand(&input), state::expand(&input)) {
        (Ok(plain), Ok(state)) => quote!(#plain #state).into(),
        (plain, state) => {
            let errors = [plain.err(), state.err()].into_iter().flatten();
            let error = errors.reduce(joined).map(|error| error.to_compile_error());
            let (plain, state) = (plain::stand_in(&input), state::stand_in(&input));
            quote!(#error #plain #state).into()
        }
    }
}

/// Makes a struct or a field-less enum usable as a field of flow state.
///
/// ```
/// # use nf::Plain;
/// #[derive(Plain, Default, Clone, Copy, Debug)]
/// #[repr(u8)]
/// enum Phase { #[default] Opening, Established, Closing }
/// ```
#[proc_macro_derive(Plain)]
pub fn plain(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    plain::expand(&input)
        .unwrap_or_else(|error| {
            let (error, stand_in) = (error.to_compile_error(), plain::stand_in(&input));
            quote!(#error #stand_in)
        })
        .into()
}

/// On `impl NetworkFunction for …`: lets `process` be an ordinary function. It is then called
/// directly, without a future, as `process_now`. An `async fn process` is left as it is.
///
/// Parts that are not written follow from the rest: `Config` is `NoConfig`; `Flow` and `Group` are
/// `()`; `new` gives the default, or the settings where they are the function itself; `REASONS`,
/// `COUNTERS` and `EVENTS` are the names that this block calls `cx.drop`, `cx.cut`, `cx.discard`,
/// `cx.count`, `cx.count_by` and `cx.event` with. A written list must have all of them, so a
/// misspelt name does not compile.
///
/// Functions outside of the block that say names need lists that are written, and the attribute
/// too, above their `impl` or above each: there, too, a misspelt name does not compile, and a name
/// without the attribute is no [`Name`](../nf/struct.Name.html). Comments in the list of counters
/// (`/// Packets seen.`) say what each counts, in metrics' reference.
///
/// ```
/// use nf::{Cx, NetworkFunction, Packet, Verdict, network_function};
///
/// #[derive(Default)]
/// struct NoFragments;
///
/// #[network_function]
/// impl NetworkFunction for NoFragments {
///     const NAME: &'static str = "no_fragments";
///
///     fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
///         cx.count("packets");
///         match packet.has(nf::flag::LATER_FRAGMENT) {
///             true => cx.drop("fragment"),
///             false => Verdict::Forward,
///         }
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn network_function(arguments: TokenStream, item: TokenStream) -> TokenStream {
    function::expand(arguments.into(), item.into()).into()
}

/// Both errors, the first one first.
fn joined(mut first: Error, second: Error) -> Error {
    first.combine(second);
    first
}

/// `Ok` where nothing was reported.
fn reported(errors: Vec<Error>) -> Result<(), Error> {
    errors.into_iter().reduce(joined).map_or(Ok(()), Err)
}
