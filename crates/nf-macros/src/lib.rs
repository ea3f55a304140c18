//! The derives of `flowkeep-nf`. Their errors are written for somebody who sees them for the first time.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, ItemImpl, LitInt, parse_macro_input};

/// Makes a struct flow state or group state: plain data that can be replicated and moved.
///
/// ```ignore
/// #[derive(FlowState, Default, Clone, Copy, Debug)]
/// #[flow_state(version = 1)]
/// #[repr(C)]
/// struct Connection {
///     phase: Phase,                 // replicated before the packet leaves
///     pad: [u8; 7],
///     #[flow_state(lazy)]
///     packets: u64,                 // replicated within a bound
/// }
/// ```
#[proc_macro_derive(FlowState, attributes(flow_state))]
pub fn flow_state(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let plain = plain_impl(&input);
    let state = state_impl(&input);
    match (plain, state) {
        (Ok(plain), Ok(state)) => quote!(#plain #state).into(),
        (Err(error), Ok(_)) | (_, Err(error)) => error.to_compile_error().into(),
    }
}

/// Makes a struct or a field-less enum usable as a field of flow state.
#[proc_macro_derive(Plain)]
pub fn plain(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    plain_impl(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

/// On `impl NetworkFunction for …`: lets `process` be an ordinary function. It is then called directly, without a
/// future, as `process_now`.
#[proc_macro_attribute]
pub fn network_function(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    let block = parse_macro_input!(item as ItemImpl);
    function_impl(block)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

fn function_impl(mut block: ItemImpl) -> Result<Tokens, Error> {
    let mut found = false;
    for item in &mut block.items {
        let syn::ImplItem::Fn(method) = item else { continue };
        if method.sig.ident != "process" {
            continue;
        }
        found = true;
        if method.sig.asyncness.is_some() {
            continue;
        }
        if method.sig.inputs.len() != 4 {
            return Err(Error::new(
                method.sig.span(),
                "`process` takes four arguments: (&self, packet: &mut Packet, flow: &mut Self::Flow, cx: &mut Cx<Self>)",
            ));
        }
        method.sig.ident = syn::Ident::new("process_now", method.sig.ident.span());
        let body = &method.block;
        let output = match &method.sig.output {
            syn::ReturnType::Type(_, output) => output.clone(),
            syn::ReturnType::Default => {
                return Err(Error::new(method.sig.span(), "`process` must return a `Verdict`"));
            }
        };
        method.block = syn::parse_quote!({
            ::core::option::Option::Some((move || -> #output #body)())
        });
        method.sig.output = syn::parse_quote!(-> ::core::option::Option<#output>);
        method.attrs.push(syn::parse_quote!(#[inline]));
    }
    if !found {
        return Err(Error::new(
            block.self_ty.span(),
            "this function has no `process`: write `fn process(&self, packet: &mut Packet, flow: &mut Self::Flow, cx: &mut Cx<Self>) -> Verdict`, or the same with `async fn` if it must wait",
        ));
    }
    Ok(quote!(#block))
}

fn has_repr(input: &DeriveInput, wanted: &[&str]) -> bool {
    let mut found = false;
    for attribute in &input.attrs {
        if attribute.path().is_ident("repr") {
            let _ = attribute.parse_nested_meta(|meta| {
                found |= wanted.iter().any(|w| meta.path.is_ident(w));
                // `align(n)` has an argument to step over.
                if meta.input.peek(syn::token::Paren) {
                    let content;
                    syn::parenthesized!(content in meta.input);
                    let _: Tokens = content.parse()?;
                }
                Ok(())
            });
        }
    }
    found
}

fn plain_impl(input: &DeriveInput) -> Result<Tokens, Error> {
    let name = &input.ident;
    if !input.generics.params.is_empty() {
        return Err(Error::new(
            input.generics.span(),
            "flow state cannot be generic: its layout is its schema, so every worker must see the same one",
        ));
    }
    match &input.data {
        Data::Struct(data) => {
            if !has_repr(input, &["C"]) {
                return Err(Error::new(
                    name.span(),
                    format!(
                        "flow state is copied between workers as bytes, so its layout must be fixed: write `#[repr(C)]` above `struct {name}`"
                    ),
                ));
            }
            let types: Vec<_> = data.fields.iter().map(|f| &f.ty).collect();
            let members: Vec<_> = members(&data.fields);
            let checks = data.fields.iter().map(|field| {
                let ty = &field.ty;
                quote_spanned!(ty.span()=> ::nf::plain::assert_plain::<#ty>();)
            });
            let padding = format!(
                "`{name}` has padding between or behind its fields, whose bytes would be undefined: order the fields from large to small and fill the rest with a field like `reserved: [u8; 4]`"
            );
            Ok(quote! {
                // SAFETY: `repr(C)`, no padding (asserted), and every field is plain, so the bytes are a value whenever
                // each field's bytes are.
                unsafe impl ::nf::plain::Plain for #name {
                    fn is_valid(bytes: &[u8]) -> bool {
                        bytes.len() == ::core::mem::size_of::<Self>()
                            #( && bytes
                                .get(::core::mem::offset_of!(Self, #members)..)
                                .and_then(|rest| rest.get(..::core::mem::size_of::<#types>()))
                                .is_some_and(<#types as ::nf::plain::Plain>::is_valid) )*
                    }
                }
                const _: () = {
                    const fn check() { #(#checks)* }
                    check();
                    ::core::assert!(
                        ::core::mem::size_of::<#name>() == 0 #( + ::core::mem::size_of::<#types>() )*,
                        #padding
                    );
                };
            })
        }
        Data::Enum(data) => {
            if !has_repr(input, &["u8", "u16", "u32"]) {
                return Err(Error::new(
                    name.span(),
                    format!(
                        "an enum in flow state needs a fixed size: write `#[repr(u8)]` above `enum {name}`"
                    ),
                ));
            }
            let mut values = Vec::new();
            for variant in &data.variants {
                if !matches!(variant.fields, Fields::Unit) {
                    return Err(Error::new(
                        variant.span(),
                        "an enum in flow state has no fields in its variants: keep the data beside it, in the struct",
                    ));
                }
                values.push(&variant.ident);
            }
            Ok(quote! {
                // SAFETY: a field-less enum with a fixed representation has no padding, and `is_valid` lets only the
                // bytes of a variant pass.
                unsafe impl ::nf::plain::Plain for #name {
                    fn is_valid(bytes: &[u8]) -> bool {
                        bytes.len() == ::core::mem::size_of::<Self>()
                            && (false #( || bytes == ::nf::plain::bytes_of(&#name::#values) )*)
                    }
                }
            })
        }
        Data::Union(_) => Err(Error::new(
            name.span(),
            "flow state cannot be a union: nobody could check its bytes",
        )),
    }
}

fn members(fields: &Fields) -> Vec<syn::Member> {
    fields
        .iter()
        .enumerate()
        .map(|(index, field)| match &field.ident {
            Some(ident) => syn::Member::Named(ident.clone()),
            None => syn::Member::Unnamed(index.into()),
        })
        .collect()
}

fn state_impl(input: &DeriveInput) -> Result<Tokens, Error> {
    let name = &input.ident;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(
            name.span(),
            "`FlowState` is for structs; for an enum inside one use `#[derive(Plain)]`",
        ));
    };
    let mut version: Option<u32> = None;
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("flow_state")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("version") {
                version = Some(meta.value()?.parse::<LitInt>()?.base10_parse()?);
                Ok(())
            } else {
                Err(meta.error("the only setting here is `version = N`"))
            }
        })?;
    }
    let version = version.unwrap_or(1);
    let mut lazy_began = false;
    let mut commit_types = Vec::new();
    for field in &data.fields {
        let mut lazy = false;
        for attribute in field.attrs.iter().filter(|a| a.path().is_ident("flow_state")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("lazy") {
                    lazy = true;
                    Ok(())
                } else {
                    Err(meta.error("the only setting of a field is `lazy`"))
                }
            })?;
        }
        if lazy {
            lazy_began = true;
        } else if lazy_began {
            return Err(Error::new(
                field.span(),
                "fields that are committed come first: move this one above the first `#[flow_state(lazy)]` field",
            ));
        } else {
            commit_types.push(&field.ty);
        }
    }
    let members = members(&data.fields);
    let names = members.iter().map(|m| match m {
        syn::Member::Named(ident) => ident.to_string(),
        syn::Member::Unnamed(index) => index.index.to_string(),
    });
    Ok(quote! {
        impl ::nf::FlowState for #name {
            const VERSION: u32 = #version;
            const COMMITTED: usize = 0 #( + ::core::mem::size_of::<#commit_types>() )*;
            fn each_field(&self, see: &mut dyn FnMut(&'static str, &dyn ::core::fmt::Debug)) {
                #( see(#names, &self.#members); )*
            }
        }
    })
}
