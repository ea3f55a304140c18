//! `#[network_function]`: an ordinary `fn process` becomes the method that the trait's
//! `process_now` calls.
//!
//! # Theory of operation
//! The trait has two ways to process a packet: `process`, which may wait, and `process_now`, which
//! may not and answers `Option<Verdict>`. An author writes one function named `process`. If it is
//! an `async fn`, it is left alone. If not, it becomes the hidden `process_plain`, and the hidden
//! constant `PLAIN` says that `process_now` is to call it:
//!
//! ```text
//! fn process(&self, packet, flow, cx) -> Verdict { BODY }
//!     becomes
//! const PLAIN: bool = true;
//! #[inline(always)] fn process_plain(&self, packet, flow, cx) -> Verdict { BODY }
//! ```
//!
//! It is inlined into the two places that call it: the runtime's entry and a call by hand.
//!
//! A function that has a `group_timeout` gets the hidden constant `OUTLIVES`, and a function that
//! has a `timer_due` the constant `TIMED`: only those functions are asked.
//!
//! Parts that most functions would write alike are written out where the author has not
//! (`filling`): `Config` is `NoConfig`, `Flow` and `Group` are `()`, `new` makes the default, and
//! `REASONS` and `COUNTERS` are the names that the block itself uses.
//!
//! # Invariants
//! Errors in the author's signature are reported here, in terms of `process`: the compiler would
//! speak of `process_plain`, which the author never wrote (it still does for an answer that is no
//! `Verdict`, where it shows the mend).

use crate::{filling, naming, reported};
use proc_macro2::TokenStream as Tokens;
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::{Error, FnArg, ImplItem, ImplItemFn, Item, ItemImpl, ReturnType, Signature, Type};

const SIGNATURE: &str =
    "fn process(&self, packet: &mut Packet, flow: &mut Self::Flow, cx: &mut Cx<Self>) -> Verdict";

/// The `impl` block with its `process` in place, and its errors in front.
pub fn expand(arguments: Tokens, item: Tokens) -> Tokens {
    let mut item = match syn::parse2::<Item>(item.clone()) {
        Ok(item) => item,
        Err(error) => return with_errors(vec![error], item),
    };
    let mut errors = Vec::new();
    if !arguments.is_empty() {
        errors.push(Error::new(
            arguments.span(),
            "`#[network_function]` takes no settings: write it alone",
        ));
    }
    let mut beside = Tokens::new();
    match &mut item {
        Item::Impl(block) if filling::is_contract(block) || is_processing(block) => {
            errors.extend(name_error(block));
            errors.extend(processing(block).err());
            errors.extend(outliving(block).err());
            errors.extend(timed(block).err());
            let (problems, checks) = filling::fill_in(block);
            errors.extend(problems);
            beside = checks;
            if filling::is_contract(block) {
                beside.extend(attributed(block));
            }
        }
        Item::Impl(block) => match naming::in_block(block, [false; 3]) {
            Some(checks) => beside = checks,
            None => errors.push(naming::misplaced(head(&item))),
        },
        Item::Fn(function) => match naming::in_function(function) {
            Some(checks) => beside = checks,
            None => errors.push(naming::misplaced(&function.sig)),
        },
        other => errors.push(naming::misplaced(head(other))),
    }
    with_errors(errors, quote!(#item #beside))
}

/// Whether a block of a trait has a `process`: a contract by another name.
fn is_processing(block: &ItemImpl) -> bool {
    block.trait_.is_some() && methods(block).any(|method| method.sig.ident == "process")
}

/// The mark that the contract asks for, so that a block without the attribute hears of it.
fn attributed(block: &ItemImpl) -> Tokens {
    let (generics, _, bounds) = block.generics.split_for_impl();
    let own = &block.self_ty;
    quote! {
        #[automatically_derived]
        impl #generics ::nf::function::Attributed for #own #bounds {}
    }
}

/// The item stays beside its errors, so that its users are not told that it is missing.
fn with_errors(errors: Vec<Error>, item: Tokens) -> Tokens {
    let error = reported(errors).err().map(|error| error.to_compile_error());
    quote!(#error #item)
}

/// Checks `process` and renames it if it does not wait. A wrong one is taken out of the block.
fn processing(block: &mut ItemImpl) -> Result<(), Error> {
    let has_now = methods(block).any(|method| method.sig.ident == "process_now");
    let at = block
        .items
        .iter()
        .position(|item| matches!(item, ImplItem::Fn(m) if m.sig.ident == "process"));
    let Some(at) = at else {
        return if has_now {
            Ok(())
        } else {
            Err(without_process(block))
        };
    };
    let ImplItem::Fn(mut process) = block.items.remove(at) else {
        unreachable!("the position is a method's");
    };
    reported(signature_errors(&process.sig))?;
    if process.sig.asyncness.is_none() {
        if has_now {
            return Err(Error::new(
                process.sig.ident.span(),
                "there is a `process_now` too, and a `process` that does not wait is one: leave one of them out, or \
                 make this one an `async fn`",
            ));
        }
        rename(&mut process);
        block.items.insert(
            at,
            syn::parse_quote!(
                #[doc(hidden)]
                const PLAIN: bool = true;
            ),
        );
    }
    block.items.insert(at, ImplItem::Fn(process));
    Ok(())
}

/// Notes that a function has a `group_timeout`, so that it is asked; one whose groups are its flows
/// has none to outlive them.
fn outliving(block: &mut ItemImpl) -> Result<(), Error> {
    let Some(method) = methods(block).find(|method| method.sig.ident == "group_timeout") else {
        return Ok(());
    };
    let is_flow = |value: &syn::Expr| matches!(value, syn::Expr::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Flow"));
    let has_groups = block.items.iter().any(
        |item| matches!(item, ImplItem::Const(constant) if constant.ident == "AFFINITY" && !is_flow(&constant.expr)),
    );
    if !has_groups {
        return Err(Error::new(
            method.sig.ident.span(),
            "the group of a flow that is by itself ends with it: write `const AFFINITY: Affinity = \
             Affinity::OutsideAddress;`, or another that has flows together, or leave `group_timeout` out",
        ));
    }
    block.items.push(syn::parse_quote!(
        #[doc(hidden)]
        const OUTLIVES: bool = true;
    ));
    Ok(())
}

/// Notes that a function has a `timer_due`, so that it is asked when; one of the two methods is
/// nothing without the other.
fn timed(block: &mut ItemImpl) -> Result<(), Error> {
    let at = |name: &str| {
        let method = methods(block).find(|method| method.sig.ident == name);
        method.map(|method| method.sig.ident.span())
    };
    match (at("timer_due"), at("next_timer")) {
        (None, None) => Ok(()),
        (Some(_), Some(_)) => {
            block.items.push(syn::parse_quote!(
                #[doc(hidden)]
                const TIMED: bool = true;
            ));
            Ok(())
        }
        (Some(at), None) => Err(Error::new(
            at,
            "nothing says when it is called: write `fn next_timer(&self) -> Option<u64> { self.timers.next_at() }` beside it",
        )),
        (None, Some(at)) => Err(Error::new(
            at,
            "nothing is called then: write `fn timer_due(&self, cx: &mut TimerCx<Self>) { … }` beside it",
        )),
    }
}

fn without_process(block: &ItemImpl) -> Error {
    Error::new(
        block.self_ty.span(),
        format!(
            "this function does not say what happens to a packet: write `{SIGNATURE}`, or the same with `async fn` \
             if it must wait"
        ),
    )
}

pub fn methods(block: &ItemImpl) -> impl Iterator<Item = &ImplItemFn> {
    block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(method) => Some(method),
        _ => None,
    })
}

fn rename(process: &mut ImplItemFn) {
    process.sig.ident = format_ident!("process_plain", span = process.sig.ident.span());
    process.attrs.push(syn::parse_quote!(#[inline(always)]));
    process.attrs.push(syn::parse_quote!(#[doc(hidden)]));
}

/// The errors of the signature of `process`, waiting or not.
fn signature_errors(signature: &Signature) -> Vec<Error> {
    let mut errors = Vec::new();
    let inputs = &signature.inputs;
    if inputs.len() != 4 || signature.receiver().is_none() {
        let place = signature.paren_token.span.join();
        errors.push(Error::new(
            place,
            format!(
                "`process` takes `&self`, the packet, the flow's state and the context: write `{SIGNATURE}`"
            ),
        ));
    } else {
        errors.extend(
            inputs
                .iter()
                .zip(SHAPES)
                .filter_map(|(input, shape)| argument_error(input, shape)),
        );
    }
    if matches!(signature.output, ReturnType::Default) {
        errors.push(Error::new(
            signature.ident.span(),
            "`process` answers with a verdict: write `-> Verdict` behind its arguments and, for a packet that goes \
             on, `Verdict::Forward` at its end",
        ));
    }
    errors
}

/// The arguments in order, as they are to be written.
const SHAPES: [&str; 4] = [
    "&self",
    "packet: &mut Packet",
    "flow: &mut Self::Flow",
    "cx: &mut Cx<Self>",
];

fn argument_error(input: &FnArg, shape: &str) -> Option<Error> {
    let fits = match input {
        FnArg::Receiver(receiver) => receiver.reference.is_some() && receiver.mutability.is_none(),
        FnArg::Typed(argument) => {
            matches!(&*argument.ty, Type::Reference(reference) if reference.mutability.is_some())
        }
    };
    let why = match input {
        FnArg::Receiver(_) => "an instance is shared by all its flows, so `process` only looks at it",
        FnArg::Typed(_) => "`process` is lent this to change it",
    };
    (!fits).then(|| Error::new(input.span(), format!("{why}: write `{shape}`")))
}

/// A name that configurations, metrics and messages can hold.
fn name_error(block: &ItemImpl) -> Option<Error> {
    let literal = block.items.iter().find_map(|item| match item {
        ImplItem::Const(constant) if constant.ident == "NAME" => match &constant.expr {
            syn::Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Str(text),
                ..
            }) => Some(text),
            _ => None,
        },
        _ => None,
    })?;
    let name = literal.value();
    let mended = mended(&name);
    (name != mended).then(|| {
        Error::new(
            literal.span(),
            format!(
                "a function's name stands in configurations and metrics: lower case letters, digits and underscores, \
                 a letter first. Write `\"{mended}\"`"
            ),
        )
    })
}

/// The nearest name that is allowed: `Port-Scan` gives `port_scan`, a good name itself.
fn mended(name: &str) -> String {
    let mut mended = String::new();
    for letter in name.chars() {
        if letter.is_ascii_alphanumeric() {
            mended.push(letter.to_ascii_lowercase());
        } else if !mended.is_empty() && (letter == '_' || !mended.ends_with('_')) {
            mended.push('_');
        }
    }
    let first_letter = mended.find(|c: char| c.is_ascii_lowercase());
    match first_letter {
        Some(at) => mended[at..].to_owned(),
        None => "my_function".to_owned(),
    }
}

/// The first line of an item, so that an error does not underline all of it.
fn head(item: &Item) -> Tokens {
    match item {
        Item::Impl(block) => {
            let (word, ty) = (block.impl_token, &block.self_ty);
            quote!(#word #ty)
        }
        other => other.to_token_stream().into_iter().take(2).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_mended() {
        assert_eq!(mended("counter"), "counter");
        assert_eq!(mended("a_2__b"), "a_2__b");
        assert_eq!(mended("Port-Scan"), "port_scan");
        assert_eq!(mended("port  scan"), "port_scan");
        assert_eq!(mended("3com"), "com");
        assert_eq!(mended("_x"), "x");
        assert_eq!(mended("-"), "my_function");
    }

    fn expanded(item: &str) -> String {
        // `parse` and `quote!` print the bars of an argumentless closure apart and together.
        expand(Tokens::new(), item.parse().unwrap())
            .to_string()
            .replace("| |", "||")
    }

    #[test]
    fn an_ordinary_process_is_called_directly() {
        let written = expanded(
            "impl Other for F { fn process(&self, p: &mut P, f: &mut S, c: &mut C) -> Verdict { return V; } }",
        );
        let expected = quote! {
            impl Other for F {
                #[inline(always)]
                #[doc(hidden)]
                fn process_plain(&self, p: &mut P, f: &mut S, c: &mut C) -> Verdict {
                    return V;
                }
                #[doc(hidden)]
                const PLAIN: bool = true;
            }
        };
        assert_eq!(written, expected.to_string());
    }

    #[test]
    fn a_group_timeout_is_noted_and_needs_groups() {
        let function = |affinity: &str| {
            expanded(&format!(
                "impl NetworkFunction for F {{ {affinity} fn process(&self, p: &mut P, f: &mut S, c: &mut C) -> Verdict {{ V }} \
                 fn group_timeout(&self, g: &G) -> Duration {{ D }} }}"
            ))
        };
        let written = function("const AFFINITY: Affinity = Affinity::OutsideAddress;");
        assert!(written.contains("const OUTLIVES : bool = true ;"), "{written}");
        for none in ["", "const AFFINITY: Affinity = nf::Affinity::Flow;"] {
            let written = function(none);
            assert!(written.contains("ends with it"), "{written}");
            assert!(!written.contains("OUTLIVES"), "{written}");
        }
    }

    #[test]
    fn a_function_with_timers_says_when_and_what() {
        let function = |methods: &str| {
            expanded(&format!(
                "impl NetworkFunction for F {{ fn process(&self, p: &mut P, f: &mut S, c: &mut C) -> Verdict {{ V }} {methods} }}"
            ))
        };
        let (when, what) = (
            "fn next_timer(&self) -> Option<u64> { N }",
            "fn timer_due(&self, cx: &mut TimerCx<Self>) {}",
        );
        let written = function(&format!("{when} {what}"));
        assert!(written.contains("const TIMED : bool = true ;"), "{written}");
        assert!(!function("").contains("TIMED"));
        for (one, other) in [(when, "fn timer_due"), (what, "fn next_timer")] {
            let written = function(one);
            assert!(written.contains(&format!("write `{other}")), "{written}");
        }
    }

    #[test]
    fn a_process_that_waits_is_left_alone() {
        let item =
            "impl Other for F { async fn process(&self, p: &mut P, f: &mut S, c: &mut C) -> Verdict { V } }";
        let tokens: Tokens = item.parse().unwrap();
        assert_eq!(expanded(item), tokens.to_string());
    }

    #[test]
    fn a_mutable_self_and_a_borrowed_flow_are_refused() {
        let written =
            expanded("impl N for F { fn process(&mut self, p: &mut P, f: &S, c: &mut C) -> V { V } }");
        assert!(written.contains("write `&self`"), "{written}");
        assert!(written.contains("write `flow: &mut Self::Flow`"), "{written}");
        assert!(!written.contains("write `packet"), "{written}");
    }
}
