//! `#[derive(Plain)]`: a type whose bytes can be copied to another worker and checked there.
//!
//! # Theory of operation
//! For a struct, three things are asked. Its layout is declared (`repr(C)`), which the attribute
//! shows. Each field is plain, which the compiler checks where the written-out `is_valid` calls the
//! field's. And there is no padding, which constant evaluation checks: `struct S { a: u8, b: u32 }`
//! has `b` at offset 4 though `a` ends at 1, so `assert_no_gap("before `b`", 4 - 1)` fails to
//! compile and says to put `reserved: [u8; 3]` there.
//!
//! Well-known types that are not plain are refused by name already, with what to use instead; for
//! all others the compiler says what `nf::plain::Plain` wants it to.
//!
//! For an enum: a declared size (`repr(u8)` and the like) and no fields; `is_valid` compares with
//! each variant's bytes.
//!
//! Not here: versions, committed and lazy fields (`state`).

use crate::reported;
use proc_macro2::{Ident, Span, TokenStream as Tokens};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DataStruct, DeriveInput, Error, Fields, Member, Type};

/// The implementation of `Plain`, or the errors of the type.
pub fn expand(input: &DeriveInput) -> Result<Tokens, Error> {
    let mut errors = Vec::new();
    if !input.generics.params.is_empty() {
        errors.push(Error::new(
            input.generics.span(),
            "flow state cannot be generic: its layout is its schema, so every worker must see the same one. \
             Write the type itself instead of the parameter",
        ));
    }
    let body = match &input.data {
        Data::Struct(data) => {
            errors.extend(struct_repr(input));
            errors.extend(data.fields.iter().filter_map(|field| advice(&field.ty)));
            of_struct(input, data)
        }
        Data::Enum(data) => {
            errors.extend(enum_repr(input));
            errors.extend(data.variants.iter().filter_map(variant_with_fields));
            of_enum(input, data)
        }
        Data::Union(_) => {
            errors.push(Error::new(
                input.ident.span(),
                "flow state cannot be a union: a worker could not tell which of its fields the bytes are. \
                 Write a struct with all the fields, and an enum that says which one counts",
            ));
            Tokens::new()
        }
    };
    reported(errors).map(|()| body)
}

/// An implementation that says no to everything, beside an error.
pub fn stand_in(input: &DeriveInput) -> Tokens {
    if !can_stand_in(input) {
        return Tokens::new();
    }
    let name = &input.ident;
    quote! {
        // SAFETY: it stands beside an error, so the crate it is in does not compile.
        unsafe impl ::nf::plain::Plain for #name {
            fn is_valid(_: &[u8]) -> bool { false }
        }
    }
}

/// Whether a stand-in would not itself be refused: the traits ask for `Copy`, `Default` and no
/// borrowing.
pub fn can_stand_in(input: &DeriveInput) -> bool {
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(_) => return input.generics.params.is_empty(),
        Data::Union(_) => return false,
    };
    let owns = |ty: &Type| last_name(ty).is_some_and(|name| OWNERS.iter().any(|owner| name == owner));
    input.generics.params.is_empty() && !fields.iter().any(|field| owns(&field.ty))
}

/// `Vec` of `std::vec::Vec<u8>`.
fn last_name(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
        _ => None,
    }
}

/// Types that own memory elsewhere, so that whatever holds one is not `Copy`.
const OWNERS: [&str; 10] = [
    "String", "Vec", "VecDeque", "Box", "Rc", "Arc", "HashMap", "HashSet", "BTreeMap", "BTreeSet",
];

/// Names of the fields, numbers in a tuple struct.
pub fn members(fields: &Fields) -> Vec<Member> {
    fields.members().collect()
}

fn of_struct(input: &DeriveInput, data: &DataStruct) -> Tokens {
    let name = &input.ident;
    let members = members(&data.fields);
    let valid = data.fields.iter().zip(&members).map(|(field, member)| {
        let ty = &field.ty;
        // At the type's place, so that a type that is not plain is underlined itself.
        quote_spanned! {ty.span()=>
            && bytes
                .get(::core::mem::offset_of!(#name, #member)..)
                .and_then(|rest| rest.get(..::core::mem::size_of::<#ty>()))
                .is_some_and(<#ty as ::nf::plain::Plain>::is_valid)
        }
    });
    let (times, rebased): (Vec<_>, Vec<_>) = data
        .fields
        .iter()
        .zip(&members)
        .map(|(field, member)| {
            let ty = &field.ty;
            (
                quote_spanned!(ty.span()=> || <#ty as ::nf::plain::Plain>::HAS_TIMES),
                quote_spanned!(ty.span()=> <#ty as ::nf::plain::Plain>::rebase(&mut self.#member, by);),
            )
        })
        .unzip();
    let gaps = gaps(input, data, &members);
    let parts = data.fields.iter().zip(&members).map(|(field, member)| {
        let (ty, text) = (&field.ty, member.to_token_stream().to_string());
        quote! {
            (
                #text,
                ::core::mem::offset_of!(#name, #member),
                ::core::mem::size_of::<#ty>(),
                <#ty as ::nf::plain::Plain>::LAYOUT,
            )
        }
    });
    quote! {
        // SAFETY: `repr(C)`, no padding (asserted), and every field is plain, so the bytes are a
        // value whenever each field's bytes are.
        unsafe impl ::nf::plain::Plain for #name {
            const LAYOUT: u64 = ::nf::plain::layout(&[#(#parts),*], ::core::mem::size_of::<Self>());
            fn is_valid(bytes: &[u8]) -> bool {
                bytes.len() == ::core::mem::size_of::<Self>() #(#valid)*
            }
            const HAS_TIMES: bool = false #(#times)*;
            #[inline]
            fn rebase(&mut self, by: i64) {
                let _ = by;
                #(#rebased)*
            }
        }
        #(#gaps)*
    }
}

/// One assertion in front of each field and one behind the last.
fn gaps(input: &DeriveInput, data: &DataStruct, members: &[Member]) -> Vec<Tokens> {
    let name = &input.ident;
    let mut end = quote!(0);
    let mut gaps = Vec::new();
    for (field, member) in data.fields.iter().zip(members) {
        let (ty, place) = (&field.ty, format!("in front of `{}`", member.to_token_stream()));
        gaps.push(quote_spanned! {member.span()=>
            const _: () = ::nf::plain::assert_no_gap(#place, ::core::mem::offset_of!(#name, #member) - (#end));
        });
        end = quote!(::core::mem::offset_of!(#name, #member) + ::core::mem::size_of::<#ty>());
    }
    if let Some(last) = members.last() {
        let place = format!("behind `{}`, the last field", last.to_token_stream());
        gaps.push(quote_spanned! {last.span()=>
            const _: () = ::nf::plain::assert_no_gap(#place, ::core::mem::size_of::<#name>() - (#end));
        });
    }
    gaps
}

fn of_enum(input: &DeriveInput, data: &DataEnum) -> Tokens {
    let name = &input.ident;
    let values: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let names = values.iter().map(ToString::to_string);
    quote! {
        // SAFETY: a field-less enum with a declared size has no padding, and `is_valid` lets only
        // the bytes of a variant pass.
        unsafe impl ::nf::plain::Plain for #name {
            const LAYOUT: u64 = ::nf::plain::layout(
                &[#((#names, #name::#values as usize, 0, 0)),*],
                ::core::mem::size_of::<Self>(),
            );
            fn is_valid(bytes: &[u8]) -> bool {
                bytes.len() == ::core::mem::size_of::<Self>()
                    && (false #( || bytes == ::nf::plain::bytes_of(&#name::#values) )*)
            }
        }
    }
}

/// The replacement for a well-known type that is not plain.
fn advice(ty: &Type) -> Option<Error> {
    let instead = match ty {
        Type::Reference(_) | Type::Ptr(_) => {
            "a reference means nothing on another worker: hold the value itself"
        }
        Type::Tuple(tuple) if !tuple.elems.is_empty() => {
            "a tuple's layout is not fixed: write its parts as fields, or a struct that derives `Plain`"
        }
        Type::Array(array) => return advice(&array.elem),
        _ => instead_of(&last_name(ty)?.to_string(), ty)?,
    };
    Some(Error::new_spanned(
        ty,
        format!("flow state is copied between workers as bytes, and {instead}"),
    ))
}

fn instead_of(name: &str, ty: &Type) -> Option<&'static str> {
    Some(match name {
        "String" => {
            "a `String` is a pointer to memory of this worker. Use an array of fixed length and a count: \
             `host: [u8; 32]` and `host_length: u8`"
        }
        owner if OWNERS.contains(&owner) => {
            "this is a pointer to memory of this worker. Use an array of fixed length and a count: \
             `servers: [u16; 8]` and `servers_used: u16`"
        }
        "Option" if ty.to_token_stream().to_string().contains("SocketAddr") => {
            "an `Option` has no fixed layout. Use `nf::Endpoint`, whose `Default`, all zero, means \"none\""
        }
        "Option" if ty.to_token_stream().to_string().contains("Addr") => {
            "an `Option` has no fixed layout. Use `nf::Addr`, whose `Default`, all zero, means \"none\""
        }
        "Option" => {
            "an `Option` has no fixed layout. Use the value and a `bool` beside it, or a value that means \"none\""
        }
        "SocketAddr" | "SocketAddrV4" | "SocketAddrV6" => {
            "an address of the standard library has no fixed layout. Use `nf::Endpoint`, IPv4 and IPv6 in one"
        }
        "IpAddr" | "Ipv4Addr" | "Ipv6Addr" => {
            "an address of the standard library has no fixed layout. Use `nf::Addr`, IPv4 and IPv6 in one"
        }
        "Duration" => "this type has no fixed layout. Use nanoseconds in a `u64`",
        "Instant" | "SystemTime" => "this type has no fixed layout. Use `nf::Time`, as `cx.now()` gives it",
        "usize" | "isize" => "the size of this number depends on the machine. Use `u32` or `u64`",
        "char" => "not every number is a `char`. Use `u32`, or `u8` for ASCII",
        _ => return None,
    })
}

fn struct_repr(input: &DeriveInput) -> Option<Error> {
    let words = repr_words(input);
    let name = &input.ident;
    if let Some((_, span)) = words.iter().find(|(word, _)| word == "packed") {
        return Some(Error::new(
            *span,
            "flow state is not packed, as references to its fields must be aligned: write `#[repr(C)]` and order the \
             fields from large to small",
        ));
    }
    let declared = words
        .iter()
        .any(|(word, _)| matches!(word.as_str(), "C" | "transparent"));
    (!declared).then(|| {
        Error::new(
            name.span(),
            format!(
                "flow state is copied between workers as bytes, so its layout must be fixed: write `#[repr(C)]` above \
                 `struct {name}`"
            ),
        )
    })
}

fn enum_repr(input: &DeriveInput) -> Option<Error> {
    const SIZES: [&str; 8] = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"];
    let name = &input.ident;
    let declared = repr_words(input)
        .iter()
        .any(|(word, _)| SIZES.contains(&word.as_str()));
    (!declared).then(|| {
        Error::new(
            name.span(),
            format!("an enum in flow state needs a fixed size: write `#[repr(u8)]` above `enum {name}`"),
        )
    })
}

fn variant_with_fields(variant: &syn::Variant) -> Option<Error> {
    let name = &variant.ident;
    (!matches!(variant.fields, Fields::Unit)).then(|| {
        Error::new(
            variant.span(),
            format!(
                "an enum in flow state has no fields in its variants: write `{name}` alone and keep the data beside \
                 the enum, as fields of the struct"
            ),
        )
    })
}

/// The words of all `#[repr(…)]` attributes and where they stand. The compiler reports attributes
/// that do not parse.
fn repr_words(input: &DeriveInput) -> Vec<(String, Span)> {
    let mut words = Vec::new();
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("repr")) {
        let _ = attribute.parse_nested_meta(|meta| {
            if let Some(word) = meta.path.get_ident() {
                words.push((word.to_string(), word.span()));
            }
            // `align(n)` and `packed(n)` have an argument to step over.
            if meta.input.peek(syn::token::Paren) {
                let content;
                syn::parenthesized!(content in meta.input);
                let _: Tokens = content.parse()?;
            }
            Ok(())
        });
    }
    words
}
