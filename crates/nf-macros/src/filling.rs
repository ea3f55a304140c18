//! Parts of a network function that an author need not write, since they follow from the rest.
//!
//! ```text
//!   not written            written out
//!   type Config            NoConfig
//!   type Flow, Group       ()
//!   fn new                 the default; or the settings, where `Config` is the function itself; or `with_variables`, `with_objects`
//!   const REASONS          the names in `drop("…")`, `cut("…")` and `discard("…")` of the block
//!   const COUNTERS         the names in `count("…")` and `count_by("…", …)` of the block
//!   const EVENTS           the names in `event("…", …)` of the block, of which nothing else is declared
//! ```
//!
//! The comments in the lists of counters and reasons say what each counts, and of which packet;
//! they are taken out, into the lists `COUNTERS_HELP` and `REASONS_HELP`:
//!
//! ```text
//!   const COUNTERS = &[            const COUNTERS = &["packets"];
//!       /// Packets seen.    ►     const COUNTERS_HELP = &["Packets seen."];
//!       "packets",
//!   ];
//! ```
//!
//! Invariant: a list that the author wrote stays as it is, and a name in the block that it lacks is
//! an error. So is a name that is no literal, where no list is written.
//!
//! Not here: names that functions outside of the block say (`naming`). Their author writes the
//! list.

use crate::function::methods;
use crate::naming;
use proc_macro2::{Span, TokenStream as Tokens};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Error, Expr, ExprMethodCall, Ident, ImplItem, ItemImpl, Lit, Path};

/// A list of names, and the methods of the context that take one.
pub struct List {
    pub constant: &'static str,
    pub methods: &'static [&'static str],
    pub what: &'static str,
    /// The function of `nf::Name` that looks a name up in it.
    pub looked_up: &'static str,
    /// How a list is written that has names of which nothing is known.
    written: &'static str,
    entry: fn(&str) -> Expr,
    entries: fn() -> syn::Type,
}

fn name_entry(name: &str) -> Expr {
    syn::parse_quote!(#name)
}

fn name_entries() -> syn::Type {
    syn::parse_quote!(&'static [&'static str])
}

const NAMES: &str = "&'static [&'static str] = &[…]";

pub const LISTS: [List; 3] = [
    List {
        constant: "REASONS",
        methods: &["drop", "cut", "discard"],
        what: "reason",
        looked_up: "of",
        written: NAMES,
        entry: name_entry,
        entries: name_entries,
    },
    List {
        constant: "COUNTERS",
        methods: &["count", "count_by"],
        what: "counter",
        looked_up: "of",
        written: NAMES,
        entry: name_entry,
        entries: name_entries,
    },
    List {
        constant: "EVENTS",
        methods: &["event"],
        what: "event",
        looked_up: "of_event",
        written: "&'static [nf::Event] = &[nf::Event::named(\"…\")]",
        entry: |name| syn::parse_quote!(::nf::Event::named(#name)),
        entries: || syn::parse_quote!(&'static [::nf::Event]),
    },
];

/// Whether a block is the contract's.
pub fn is_contract(block: &ItemImpl) -> bool {
    let is_its = |path: &Path| {
        let last = path.segments.last();
        last.is_some_and(|segment| segment.ident == "NetworkFunction")
    };
    block.trait_.as_ref().is_some_and(|(_, path, _)| is_its(path))
}

/// Writes out the missing parts of the contract's block; answers its errors, and the lists that the
/// compiler is to compare. Leaves another trait's block alone.
pub fn fill_in(block: &mut ItemImpl) -> (Vec<Error>, Tokens) {
    if !is_contract(block) {
        return (Vec::new(), Tokens::new());
    }
    take_help(block, "COUNTERS", "COUNTERS_HELP");
    take_help(block, "REASONS", "REASONS_HELP");
    let mut errors = Vec::new();
    let compared = LISTS.each_ref().map(|list| {
        let (found, is_compared) = fill_names(block, list);
        errors.extend(found);
        is_compared
    });
    let checks = naming::in_block(block, compared).unwrap_or_default();
    errors.extend(fill_new(block).err());
    fill_types(block);
    (errors, checks)
}

/// Takes the comments out of a list of names, into a list of their own.
fn take_help(block: &mut ItemImpl, list: &str, into: &str) {
    let entries = block.items.iter_mut().find_map(|item| match item {
        ImplItem::Const(constant) if constant.ident == list => match &mut constant.expr {
            Expr::Reference(reference) => match &mut *reference.expr {
                Expr::Array(array) => Some(&mut array.elems),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let Some(entries) = entries else {
        return;
    };
    let help: Vec<String> = entries.iter_mut().map(comment_of).collect();
    if help.iter().any(|line| !line.is_empty()) {
        let into = Ident::new(into, Span::call_site());
        block.items.push(syn::parse_quote!(
            const #into: &'static [&'static str] = &[#(#help),*];
        ));
    }
}

/// The comment above an entry, which the compiler would not take there.
fn comment_of(entry: &mut Expr) -> String {
    let Expr::Lit(entry) = entry else {
        return String::new();
    };
    let lines = std::mem::take(&mut entry.attrs);
    let lines = lines.iter().filter_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(of) if of.path.is_ident("doc") => literal(&of.value),
        _ => None,
    });
    let lines: Vec<String> = lines.map(|(line, _)| line.trim().to_owned()).collect();
    lines.join(" ")
}

fn fill_types(block: &mut ItemImpl) {
    let has = |name: &str| {
        let mut items = block.items.iter();
        items.any(|item| matches!(item, ImplItem::Type(ty) if ty.ident == name))
    };
    let missing: Vec<ImplItem> = [
        (
            has("Config"),
            syn::parse_quote!(
                type Config = ::nf::NoConfig;
            ),
        ),
        (
            has("Flow"),
            syn::parse_quote!(
                type Flow = ();
            ),
        ),
        (
            has("Group"),
            syn::parse_quote!(
                type Group = ();
            ),
        ),
    ]
    .into_iter()
    .filter_map(|(has, item)| (!has).then_some(item))
    .collect();
    block.items.extend(missing);
}

/// How an instance is made, if that follows from the settings' type.
fn fill_new(block: &mut ItemImpl) -> Result<(), Error> {
    if methods(block).any(|method| method.sig.ident == "new") {
        return Ok(());
    }
    let has_variables = methods(block).any(|method| method.sig.ident == "with_variables");
    let config = block.items.iter().find_map(|item| match item {
        ImplItem::Type(ty) if ty.ident == "Config" => Some(&ty.ty),
        _ => None,
    });
    let text = |ty: &syn::Type| ty.to_token_stream().to_string();
    let own = text(&block.self_ty);
    let mut problem = Ok(());
    let has_objects = methods(block).any(|method| method.sig.ident == "with_objects");
    let body: Expr = if has_objects {
        syn::parse_quote!(Self::with_objects(
            config,
            worker,
            &mut ::nf::variables::Variables::local(),
            &mut ::nf::objects::WorkerObjects::default().of("")
        ))
    } else if has_variables {
        syn::parse_quote!(Self::with_variables(
            config,
            worker,
            &mut ::nf::variables::Variables::local()
        ))
    } else {
        match config {
            None => syn::parse_quote!(::core::result::Result::Ok(
                <Self as ::core::default::Default>::default()
            )),
            Some(ty)
                if matches!(
                    text(ty).as_str(),
                    "NoConfig" | "nf :: NoConfig" | ":: nf :: NoConfig"
                ) =>
            {
                syn::parse_quote!(::core::result::Result::Ok(
                    <Self as ::core::default::Default>::default()
                ))
            }
            Some(ty) if text(ty) == own || text(ty) == "Self" => {
                syn::parse_quote!(::core::result::Result::Ok(<Self as ::core::clone::Clone>::clone(
                    config
                )))
            }
            Some(ty) => {
                problem = Err(Error::new_spanned(
                    ty,
                    "nothing takes these settings: write `fn new(config: &Arc<Self::Config>, worker: &WorkerInfo) -> \
                     Result<Self, ConfigError>`, or make the function itself its settings",
                ));
                // `new` is not missing as well.
                syn::parse_quote!(loop {})
            }
        }
    };
    block.items.push(syn::parse_quote!(
        fn new(
            config: &::nf::by_hand::Arc<Self::Config>,
            worker: &::nf::WorkerInfo,
        ) -> ::core::result::Result<Self, ::nf::ConfigError> {
            let _ = (config, worker);
            #body
        }
    ));
    problem
}

/// Writes a list of names out, or holds the names that the block uses against the list that is
/// written; and whether all were.
fn fill_names(block: &mut ItemImpl, list: &List) -> (Vec<Error>, bool) {
    let mut used = Used {
        methods: list.methods,
        names: Vec::new(),
        others: Vec::new(),
    };
    used.visit_item_impl(block);
    let written = block.items.iter().find_map(|item| match item {
        ImplItem::Const(constant) if constant.ident == list.constant => Some(literals(&constant.expr)),
        _ => None,
    });
    let List { constant, what, .. } = list;
    match written {
        // A list from elsewhere.
        Some(None) => (Vec::new(), false),
        Some(Some(known)) => {
            let missing = used.names.iter().filter(|(name, _)| !known.contains(name));
            let all = known.iter().map(|name| format!("`\"{name}\"`"));
            let all = all.collect::<Vec<_>>().join(", ");
            let missing = missing.map(|(name, at)| {
                let problem =
                    format!("`{name}` is no {what} in {constant}: write one of {all}, or add it there");
                Error::new(*at, problem)
            });
            (missing.collect(), true)
        }
        None if !used.others.is_empty() => {
            let problem = format!(
                "a {what} that is no literal: write `const {constant}: {};` with all names that it can be",
                list.written
            );
            let errors = used.others.iter().map(|at| Error::new(*at, &problem));
            (errors.collect(), true)
        }
        None if used.names.is_empty() => (Vec::new(), true),
        None => {
            let mut names: Vec<String> = Vec::new();
            for (name, _) in used.names {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            let constant = syn::Ident::new(constant, Span::call_site());
            let (entries, of) = (names.iter().map(|name| (list.entry)(name)), (list.entries)());
            block.items.push(syn::parse_quote!(
                const #constant: #of = &[#(#entries),*];
            ));
            (Vec::new(), true)
        }
    }
}

/// The names in `&["…", "…"]`, or of events in `&[Event::new("…", …)]`; `None` for any other
/// expression.
fn literals(expression: &Expr) -> Option<Vec<String>> {
    let Expr::Reference(reference) = expression else {
        return None;
    };
    let Expr::Array(array) = &*reference.expr else {
        return None;
    };
    array
        .elems
        .iter()
        .map(|entry| match entry {
            Expr::Call(call) => literal(call.args.first()?),
            name => literal(name),
        })
        .map(|name| name.map(|(name, _)| name))
        .collect()
}

pub fn literal(expression: &Expr) -> Option<(String, Span)> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some((text.value(), text.span())),
            _ => None,
        },
        _ => None,
    }
}

/// The names that some methods are called with.
struct Used {
    methods: &'static [&'static str],
    names: Vec<(String, Span)>,
    /// Where such a method is called with anything but a literal.
    others: Vec<Span>,
}

impl<'ast> Visit<'ast> for Used {
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        let is_one = self.methods.iter().any(|method| call.method == method) && is_context(&call.receiver);
        let Some(argument) = call.args.first().filter(|_| is_one) else {
            return;
        };
        let mut argument = argument.clone();
        let (literals, is_all) = literals_of(&mut argument);
        self.names
            .extend(literals.into_iter().filter_map(|one| literal(one)));
        if !is_all {
            self.others.push(syn::spanned::Spanned::span(&argument));
        }
    }
}

/// The literals that an expression may be, through `if`, `match` and blocks; and whether it can be
/// nothing else.
pub fn literals_of(expression: &mut Expr) -> (Vec<&mut Expr>, bool) {
    match expression {
        expression if literal(expression).is_some() => (vec![expression], true),
        Expr::Paren(inner) => literals_of(&mut inner.expr),
        Expr::Group(inner) => literals_of(&mut inner.expr),
        Expr::Block(inner) => literal_at_end(&mut inner.block),
        Expr::If(choice) => {
            let mut parts = vec![literal_at_end(&mut choice.then_branch)];
            if let Some((_, other)) = &mut choice.else_branch {
                parts.push(literals_of(other));
            }
            joined(parts)
        }
        Expr::Match(choice) => {
            let arms = choice.arms.iter_mut();
            joined(arms.map(|arm| literals_of(&mut arm.body)).collect())
        }
        _ => (Vec::new(), false),
    }
}

fn joined(parts: Vec<(Vec<&mut Expr>, bool)>) -> (Vec<&mut Expr>, bool) {
    let is_all = parts.iter().all(|(_, is_all)| *is_all);
    let literals = parts.into_iter().flat_map(|(literals, _)| literals);
    (literals.collect(), is_all)
}

fn literal_at_end(block: &mut syn::Block) -> (Vec<&mut Expr>, bool) {
    match block.stmts.last_mut() {
        Some(syn::Stmt::Expr(end, None)) => literals_of(end),
        _ => (Vec::new(), false),
    }
}

/// Whether a method is called of a context: an argument, which has a plain name.
pub fn is_context(receiver: &Expr) -> bool {
    matches!(receiver, Expr::Path(path) if path.path.get_ident().is_some_and(|name| name == "cx"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: &str = "async fn process(&self, p: &mut P, f: &mut S, cx: &mut C) -> Verdict";

    fn filled(items: &str) -> (String, Vec<String>) {
        let mut block: ItemImpl =
            syn::parse_str(&format!("impl nf::NetworkFunction for F {{ {items} }}")).unwrap();
        let (errors, _) = fill_in(&mut block);
        let errors = errors.iter().map(ToString::to_string).collect();
        (block.to_token_stream().to_string(), errors)
    }

    #[test]
    fn types_that_are_written_stay_and_others_are_filled_in() {
        let (written, _) = filled(&format!("type Group = G; type Config = F; {PROCESS} {{ V }}"));
        assert!(!written.contains("NoConfig"), "{written}");
        assert_eq!(written.matches("type Group").count(), 1, "{written}");
        assert!(written.contains("type Flow = () ;"), "{written}");
        let (written, _) = filled(&format!("{PROCESS} {{ V }}"));
        assert!(written.contains("type Config = :: nf :: NoConfig ;"), "{written}");
        let mut other: ItemImpl =
            syn::parse_str(&format!("impl Other for F {{ {PROCESS} {{ V }} }}")).unwrap();
        assert!(fill_in(&mut other).0.is_empty());
        assert_eq!(other.items.len(), 1);
    }

    #[test]
    fn names_are_collected_once_each() {
        let body = r#"{ cx.count("b"); cx.count_by("a", 2); cx.count("b"); items.iter().count();
            if x { return cx.drop("late"); } cx.discard("over"); cx.cut("late") }"#;
        let (written, errors) = filled(&format!("{PROCESS} {body}"));
        assert!(written.contains(r#"& ["b" , "a"]"#), "{written}");
        assert!(written.contains(r#"& ["late" , "over"]"#), "{written}");
        assert_eq!(errors, [""; 0]);
    }

    #[test]
    fn a_name_that_the_list_lacks_is_refused() {
        let list = r#"const REASONS: &'static [&'static str] = &["too_many"];"#;
        let (_, errors) = filled(&format!("{list} {PROCESS} {{ cx.drop(\"to_many\") }}"));
        assert_eq!(
            errors,
            ["`to_many` is no reason in REASONS: write one of `\"too_many\"`, or add it there"]
        );
        let (_, errors) = filled(&format!("{list} {PROCESS} {{ cx.drop(\"too_many\") }}"));
        assert_eq!(errors, [""; 0]);
        // A list from elsewhere is not looked into.
        let list = "const REASONS: &'static [&'static str] = ALL;";
        let (_, errors) = filled(&format!("{list} {PROCESS} {{ cx.drop(\"to_many\") }}"));
        assert_eq!(errors, [""; 0]);
    }

    #[test]
    fn events_are_named_too() {
        let (written, errors) = filled(&format!("{PROCESS} {{ cx.event(\"ended\", x) }}"));
        assert!(
            written.contains("& [:: nf :: Event :: named (\"ended\")]"),
            "{written}"
        );
        assert_eq!(errors, [""; 0]);
        let list = r#"const EVENTS: &'static [Event] = &[Event::new("ended", "At its end.", &[])];"#;
        let (_, errors) = filled(&format!("{list} {PROCESS} {{ cx.event(\"ended\", x) }}"));
        assert_eq!(errors, [""; 0]);
        let (_, errors) = filled(&format!("{list} {PROCESS} {{ cx.event(\"endet\", x) }}"));
        assert_eq!(
            errors,
            ["`endet` is no event in EVENTS: write one of `\"ended\"`, or add it there"]
        );
    }

    #[test]
    fn a_name_that_is_no_literal_needs_a_list() {
        let (written, errors) = filled(&format!("{PROCESS} {{ cx.drop(reason) }}"));
        assert!(
            errors[0].starts_with("a reason that is no literal: write `const REASONS"),
            "{errors:?}"
        );
        assert!(!written.contains("REASONS"), "{written}");
    }

    #[test]
    fn an_instance_is_made_as_the_settings_say() {
        let new = |items: &str| filled(&format!("{items} {PROCESS} {{ V }}"));
        assert!(new("").0.contains("Default > :: default ()"));
        assert!(new("type Config = F;").0.contains("Clone > :: clone (config)"));
        assert!(
            new("fn with_variables() {}")
                .0
                .contains("Self :: with_variables (config , worker")
        );
        let (written, errors) = new("type Config = Settings;");
        assert!(written.contains("loop { }"), "{written}");
        assert!(
            errors[0].starts_with("nothing takes these settings"),
            "{errors:?}"
        );
        assert_eq!(new("fn new() {}").0.matches("fn new").count(), 1);
    }
}
