//! `#[derive(FlowState)]`: schema version, committed and lazy fields, and the fields by name.
//!
//! # Theory of operation
//! Committed fields come first, lazy ones last, so one number divides them: in
//! `struct S { phase: u64, #[flow_state(lazy)] packets: u64 }` it is `COMMITTED = 8`, the sum of
//! the committed fields' sizes. As there is no padding (`plain`), that is also the offset of the
//! first lazy field.
//!
//! Not here: whether the bytes may be copied at all (`plain`).

use crate::{plain, reported};
use proc_macro2::TokenStream as Tokens;
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Field, LitInt, Meta};

/// The implementation of `FlowState`, or the errors of the type.
pub fn expand(input: &DeriveInput) -> Result<Tokens, Error> {
    let name = &input.ident;
    let data = match &input.data {
        Data::Struct(data) => data,
        Data::Enum(_) => {
            return Err(Error::new(
                name.span(),
                format!(
                    "flow state is a struct: write `#[derive(Plain)]` above `enum {name}`, and a struct with a field \
                     of this type that derives `FlowState`"
                ),
            ));
        }
        // `plain` reports it.
        Data::Union(_) => return Ok(Tokens::new()),
    };
    let mut errors = Vec::new();
    let version = version(input).unwrap_or_else(|error| {
        errors.push(error);
        1
    });
    let mut first_lazy: Option<String> = None;
    let mut committed = Vec::new();
    for (field, member) in data.fields.iter().zip(plain::members(&data.fields)) {
        match (is_lazy(field), &first_lazy) {
            (Err(error), _) => errors.push(error),
            (Ok(true), None) => first_lazy = Some(member.to_token_stream().to_string()),
            (Ok(true), Some(_)) => {}
            (Ok(false), None) => committed.push(&field.ty),
            (Ok(false), Some(lazy)) => errors.push(Error::new(
                field.span(),
                format!(
                    "committed fields come first: move this one above `{lazy}`, the first `#[flow_state(lazy)]` \
                     field, or make it lazy too"
                ),
            )),
        }
    }
    reported(errors)?;
    let members = plain::members(&data.fields);
    let names = members.iter().map(|member| member.to_token_stream().to_string());
    Ok(quote! {
        impl ::nf::FlowState for #name {
            const VERSION: u32 = #version;
            const COMMITTED: usize = 0 #( + ::core::mem::size_of::<#committed>() )*;
            fn each_field(&self, see: &mut dyn FnMut(&'static str, &dyn ::core::fmt::Debug)) {
                #( see(#names, &self.#members); )*
            }
        }
    })
}

/// An implementation without fields, beside an error.
pub fn stand_in(input: &DeriveInput) -> Tokens {
    if !plain::can_stand_in(input) {
        return Tokens::new();
    }
    let name = &input.ident;
    quote! {
        impl ::nf::FlowState for #name {
            const VERSION: u32 = 0;
            const COMMITTED: usize = 0;
            fn each_field(&self, _: &mut dyn FnMut(&'static str, &dyn ::core::fmt::Debug)) {}
        }
    }
}

fn settings(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|a| a.path().is_ident("flow_state"))
}

fn version(input: &DeriveInput) -> Result<u32, Error> {
    let mut version = 1;
    for attribute in settings(&input.attrs) {
        if matches!(attribute.meta, Meta::Path(_)) {
            return Err(Error::new(attribute.span(), "write `#[flow_state(version = 1)]`"));
        }
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("version") {
                let number = meta.value().and_then(|value| value.parse::<LitInt>()?.base10_parse());
                version = number.map_err(|error| {
                    Error::new(error.span(), "the version is a number: write `#[flow_state(version = 1)]`")
                })?;
                Ok(())
            } else if meta.path.is_ident("lazy") {
                Err(meta.error(
                    "`lazy` is said of single fields: write `#[flow_state(lazy)]` above each lazy field, the last \
                     ones of the struct",
                ))
            } else {
                Err(meta.error("the only setting of a struct is its version: write `#[flow_state(version = 1)]`"))
            }
        })?;
    }
    Ok(version)
}

fn is_lazy(field: &Field) -> Result<bool, Error> {
    let mut lazy = false;
    for attribute in settings(&field.attrs) {
        if matches!(attribute.meta, Meta::Path(_)) {
            return Err(Error::new(
                attribute.span(),
                "write `#[flow_state(lazy)]`, or nothing for a committed field",
            ));
        }
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("lazy") {
                lazy = true;
                Ok(())
            } else if meta.path.is_ident("version") {
                Err(meta.error(
                    "the version is the whole struct's: write `#[flow_state(version = 1)]` above the struct",
                ))
            } else if meta.path.is_ident("commit") || meta.path.is_ident("committed") {
                Err(meta.error("a field is committed unless it is lazy: leave the attribute out"))
            } else {
                Err(meta
                    .error("the only setting of a field is `lazy`: write `#[flow_state(lazy)]` or nothing"))
            }
        })?;
    }
    Ok(lazy)
}
