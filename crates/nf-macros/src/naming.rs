//! Names of reasons, counters and events, held against a function's lists where they are said.
//!
//! A context takes no text but a `nf::Name`. Each literal in `cx.drop("…")` and its like becomes
//! one, so a literal that no attribute has seen does not compile, and a literal that the attribute
//! has seen is in the list:
//!
//! ```text
//!   in the contract's block, list in sight     compared here (`filling`)     Name::listed("late")
//!   elsewhere                                  compared by the compiler      const _: Name = Name::of(<F>::REASONS, "late", …);
//!   elsewhere, with generics                   the same, in its place        const { Name::of(<F>::REASONS, "late", …) }
//! ```
//!
//! `F` follows from the function's argument `cx: &mut Cx<F>`.
//!
//! Not here: names inside of other macros' words, which stay text and do not compile; `nf::reason!`
//! and its like say those.

use crate::filling::{LISTS, List, is_context, literals_of};
use proc_macro2::{Span, TokenStream as Tokens};
use quote::{ToTokens, quote, quote_spanned};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Expr, ExprMethodCall, FnArg, GenericArgument, GenericParam, Generics, ImplItemFn, ItemFn, ItemImpl, Pat,
    PathArguments, Signature, Type,
};

/// Which lists were compared already, in the order of [`LISTS`].
pub type Compared = [bool; 3];

/// Makes names of the literals in a block; the constants that the compiler is to compare stand
/// behind it.
pub fn in_block(block: &mut ItemImpl, compared: Compared) -> Option<Tokens> {
    let mut naming = Naming::new(
        compared,
        Some((*block.self_ty).clone()),
        has_generics(&block.generics),
    );
    naming.visit_item_impl_mut(block);
    naming.done()
}

/// The same in a function by itself.
pub fn in_function(function: &mut ItemFn) -> Option<Tokens> {
    let mut naming = Naming::new([false; 3], None, false);
    naming.visit_item_fn_mut(function);
    naming.done()
}

fn has_generics(generics: &Generics) -> bool {
    let lifetime = |of: &GenericParam| matches!(of, GenericParam::Lifetime(_));
    !generics.params.iter().all(lifetime)
}

struct Naming {
    compared: Compared,
    /// The type of `Self`.
    own: Option<Type>,
    is_generic: bool,
    /// The function whose names are said: as its context has it.
    function: Option<(Type, bool)>,
    checks: Tokens,
    found: bool,
}

impl Naming {
    fn new(compared: Compared, own: Option<Type>, is_generic: bool) -> Self {
        Naming {
            compared,
            own,
            is_generic,
            function: None,
            checks: Tokens::new(),
            found: false,
        }
    }

    /// Nothing if no name was said.
    fn done(self) -> Option<Tokens> {
        self.found.then_some(self.checks)
    }

    /// The network function whose context a function has, and whether that depends on parameters.
    fn function_of(&self, signature: &Signature) -> Option<(Type, bool)> {
        let is_generic = self.is_generic || has_generics(&signature.generics);
        let said = signature.inputs.iter().find_map(|input| match input {
            FnArg::Typed(argument) if matches!(&*argument.pat, Pat::Ident(name) if name.ident == "cx") => {
                function_in(&argument.ty)
            }
            _ => None,
        });
        let said = said.or_else(|| self.own.clone())?;
        let is_self = matches!(&said, Type::Path(path) if path.path.is_ident("Self"));
        match (&self.own, is_self && !is_generic) {
            (Some(own), true) => Some((own.clone(), false)),
            _ => Some((said, is_generic)),
        }
    }

    /// The name that a literal is, compared if it has not been.
    fn name(&mut self, which: usize, list: &List, name: &str, at: Span) -> Option<Expr> {
        let literal = syn::LitStr::new(name, at);
        let seen = quote_spanned!(at=> ::nf::Name::listed(#literal));
        if self.compared.get(which) == Some(&true) {
            return syn::parse2(seen).ok();
        }
        let (function, is_generic) = self.function.clone()?;
        let constant = syn::Ident::new(list.constant, at);
        let shown = function.to_token_stream().to_string().replace(' ', "");
        let problem = format!(
            "`{name}` is no {} in the {} of `{shown}`: write one that is there, or add it to a list that is written out",
            list.what, list.constant
        );
        let of = syn::Ident::new(list.looked_up, at);
        let lookup = quote_spanned! {at=>
            ::nf::Name::#of(<#function as ::nf::NetworkFunction>::#constant, #literal, #problem)
        };
        match is_generic {
            true => syn::parse2(quote_spanned!(at=> const { #lookup })).ok(),
            false => {
                self.checks
                    .extend(quote_spanned!(at=> const _: ::nf::Name = #lookup;));
                syn::parse2(seen).ok()
            }
        }
    }
}

/// The function in `&mut Cx<F>` or `&mut TimerCx<'_, F>`.
fn function_in(ty: &Type) -> Option<Type> {
    let Type::Reference(reference) = ty else {
        return None;
    };
    let Type::Path(path) = &*reference.elem else {
        return None;
    };
    let last = path.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    arguments.args.iter().rev().find_map(|argument| match argument {
        GenericArgument::Type(function) => Some(function.clone()),
        _ => None,
    })
}

impl VisitMut for Naming {
    fn visit_impl_item_fn_mut(&mut self, method: &mut ImplItemFn) {
        let before = self.function.take();
        self.function = self.function_of(&method.sig);
        visit_mut::visit_impl_item_fn_mut(self, method);
        self.function = before;
    }

    fn visit_item_fn_mut(&mut self, function: &mut ItemFn) {
        let before = self.function.take();
        self.function = self.function_of(&function.sig);
        visit_mut::visit_item_fn_mut(self, function);
        self.function = before;
    }

    fn visit_expr_method_call_mut(&mut self, call: &mut ExprMethodCall) {
        visit_mut::visit_expr_method_call_mut(self, call);
        if !is_context(&call.receiver) {
            return;
        }
        let of = |list: &&List| list.methods.iter().any(|method| call.method == method);
        let Some((which, list)) = LISTS.iter().enumerate().find(|(_, list)| of(list)) else {
            return;
        };
        let Some(argument) = call.args.first_mut() else {
            return;
        };
        self.found = true;
        for literal in literals_of(argument).0 {
            let Some((name, at)) = crate::filling::literal(literal) else {
                continue;
            };
            if let Some(named) = self.name(which, list, &name, at) {
                *literal = named;
            }
        }
    }
}

/// The error for an attribute above something else.
pub fn misplaced(at: impl ToTokens) -> syn::Error {
    syn::Error::new_spanned(
        quote!(#at),
        "`#[network_function]` goes above `impl NetworkFunction for …`, or above functions that say names, as in `cx.drop(\"late\")`",
    )
}
