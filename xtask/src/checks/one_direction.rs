//! Methods of one type that lie in several files call each other in one direction.
//!
//! For each type with methods in more than one file there is a graph: its files, and an edge from
//! one to another where a method of the one calls a method of the other. Files on a cycle are one
//! file with a page break: none can be read, or tested, alone.
//!
//! ```text
//!   impl T in a.rs: self.b(), T::b(), t.b() with t: &mut T ─► edge a.rs → the file of `b` ─► largest cycle
//!   one_direction.txt: crate | type | files in its largest cycle | why ────────────────────────┴─► equal, or a violation
//! ```
//!
//! A type that still has a cycle has a line in the list; a number that grows fails the check, and a
//! number that falls is lowered there.
//!
//! A call is found by its name: on `self`, on `Self` or the type, and on a parameter of the type.
//! Types of one name in one crate are told apart by the nearest module above a method's file that
//! defines one.
//!
//! Not covered: calls by way of another type, of a free function, of a macro's own tokens, or of a
//! variable that is no parameter.

use super::Check;
use crate::workspace::{File, Violation, Workspace};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use syn::{FnArg, ImplItem, Item, ItemImpl, Pat, Type};

pub const CHECK: Check = Check {
    name: "one-direction",
    rule: "methods of one type in several files call each other in one direction, or its cycle is in xtask/src/checks/one_direction.txt",
    run,
};

const LIST: &str = "xtask/src/checks/one_direction.txt";

/// Where a type is: its crate's folder, the file that defines it, and its name.
type Place<'a> = (&'a str, &'a str, String);

/// A method, and the calls in it that may be to methods of its type: on what, and of which name.
struct Method {
    name: String,
    calls: Vec<(String, String)>,
    /// Values of the type in it, besides `self`.
    own: BTreeSet<String>,
}

/// The methods of a type, by file.
type Methods<'a> = BTreeMap<Place<'a>, BTreeMap<&'a str, Vec<Method>>>;

fn run(workspace: &Workspace) -> Vec<Violation> {
    let sources = workspace.files.iter().filter_map(|file| {
        let (member, rest) = file.path.split_once("/src/")?;
        (file.is_rust() && !file.is_of_tests() && !rest.is_empty()).then_some((member, file))
    });
    let mut violations = Vec::new();
    let mut parsed = Vec::new();
    for (member, file) in sources {
        match syn::parse_file(&file.text) {
            Ok(source) => parsed.push((member, file, source)),
            Err(error) => violations.push(Violation::of(&file.path, format!("is no Rust: {error}"))),
        }
    }
    // Where types are defined: crate and name, then files.
    let mut defined: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for (member, file, source) in &parsed {
        each_item(&source.items, &mut |item| {
            let name = match item {
                Item::Struct(item) => &item.ident,
                Item::Enum(item) => &item.ident,
                Item::Union(item) => &item.ident,
                _ => return,
            };
            let files = defined.entry((member, name.to_string())).or_default();
            files.push(&file.path);
        });
    }
    let mut methods = Methods::new();
    for (member, file, source) in &parsed {
        each_item(&source.items, &mut |item| {
            let Item::Impl(block) = item else { return };
            let Some(name) = last_of(&block.self_ty) else {
                return;
            };
            let Some(home) = defined
                .get(&(member, name.clone()))
                .and_then(|files| nearest(files, &file.path))
            else {
                return;
            };
            let files = methods.entry((member, home, name.clone())).or_default();
            files
                .entry(&file.path)
                .or_default()
                .extend(methods_of(block, &name));
        });
    }
    let list = workspace.files.iter().find(|file| file.path == LIST);
    let mut listed = list.map_or_else(BTreeMap::new, |list| read(list, &mut violations));
    for ((member, home, name), files) in &methods {
        let (largest, example) = largest_cycle(name, files);
        let may = listed.remove(&(*member, name.as_str())).unwrap_or(1);
        if largest > may {
            violations.push(Violation::of(
                *home,
                format!("`{name}` has methods in {largest} files that call each other in a circle, and {may} may: {example}"),
            ));
        } else if largest < may {
            violations.push(Violation::of(
                LIST,
                format!("`{name}` of {member} has {largest} files in a circle, not {may}: lower the number, or take out the line"),
            ));
        }
    }
    for (member, name) in listed.keys() {
        violations.push(Violation::of(
            LIST,
            format!("there is no `{name}` in {member}: the line goes"),
        ));
    }
    violations
}

/// Items of a file and of the modules in it, tests excepted.
fn each_item<'a>(items: &'a [Item], look: &mut impl FnMut(&'a Item)) {
    for item in items {
        match item {
            Item::Mod(module) if !is_of_tests(&module.attrs) => {
                each_item(module.content.as_ref().map_or(&[], |(_, items)| items), look);
            }
            Item::Mod(_) => {}
            item => look(item),
        }
    }
}

fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    let is_cfg = |attribute: &&syn::Attribute| attribute.path().is_ident("cfg");
    let mut all = attributes.iter().filter(is_cfg);
    all.any(|attribute| attribute.meta.to_token_stream().to_string() == "cfg (test)")
}

/// The last name of a type's path, references left out.
fn last_of(of: &Type) -> Option<String> {
    match of {
        Type::Reference(reference) => last_of(&reference.elem),
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        _ => None,
    }
}

/// Of files that define a type of one name, the file that another means: itself, the nearest module
/// above it, or the only one.
fn nearest<'a>(files: &[&'a str], of: &str) -> Option<&'a str> {
    let module = |path: &str| {
        let path = path.strip_suffix(".rs").unwrap_or(path);
        let is_root = |name: &&str| path.strip_suffix(*name).is_some_and(|rest| rest.ends_with('/'));
        let name = ["mod", "lib", "main"].into_iter().find(is_root);
        let path = name.and_then(|name| path.strip_suffix(name)).unwrap_or(path);
        path.trim_end_matches('/').to_string()
    };
    let of = module(of);
    let is_above = |file: &&&str| of == module(file) || of.starts_with(&format!("{}/", module(file)));
    let above = files
        .iter()
        .filter(is_above)
        .max_by_key(|file| module(file).len());
    match files {
        [only] => Some(only),
        _ => above.copied(),
    }
}

fn methods_of(block: &ItemImpl, name: &str) -> Vec<Method> {
    let mut methods = Vec::new();
    for item in &block.items {
        if let ImplItem::Fn(method) = item
            && !is_of_tests(&method.attrs)
        {
            let mut own = BTreeSet::new();
            for input in &method.sig.inputs {
                if let FnArg::Typed(input) = input
                    && let Pat::Ident(pattern) = &*input.pat
                    && last_of(&input.ty).is_some_and(|of| of == name || of == "Self")
                {
                    own.insert(pattern.ident.to_string());
                }
            }
            let mut calls = Vec::new();
            find_calls(method.block.to_token_stream(), &mut calls);
            methods.push(Method {
                name: method.sig.ident.to_string(),
                calls,
                own,
            });
        }
    }
    methods
}

/// `a.b(…)`, `a.b::<…>(…)` and `A::b` in tokens: `a` and `b`, where nothing stands before them that
/// they belong to.
fn find_calls(tokens: TokenStream, calls: &mut Vec<(String, String)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |at: usize, sign: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == sign);
    let name = |at: usize| match tokens.get(at) {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    };
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            find_calls(group.stream(), calls);
        }
        let Some(of) = name(at) else { continue };
        if at > 0 && is(at - 1, '.') {
            continue;
        }
        // Types may stand between: `Switch::<P, L>::new`.
        let mut next = at + 1;
        if is(next, ':') && is(next + 1, ':') && is(next + 2, '<') {
            while next < tokens.len() && !is(next, '>') {
                next += 1;
            }
            next += 1;
        }
        if is(next, ':') && is(next + 1, ':') {
            calls.extend(name(next + 2).map(|called| (of, called)));
        } else if is(at + 1, '.')
            && let Some(called) = name(at + 2)
            && (matches!(tokens.get(at + 3), Some(TokenTree::Group(_))) || is(at + 3, ':'))
        {
            calls.push((of, called));
        }
    }
}

/// The number of files on a type's largest cycle, 1 if there is none, and calls that make it one.
fn largest_cycle(name: &str, files: &BTreeMap<&str, Vec<Method>>) -> (usize, String) {
    let defines = |file: &str, called: &str| files[file].iter().any(|method| method.name == called);
    let mut edges: BTreeMap<(&str, &str), String> = BTreeMap::new();
    for (from, methods) in files {
        for method in methods {
            for (of, called) in &method.calls {
                let is_own = of == "self" || of == "Self" || of == name || method.own.contains(of);
                if !is_own || defines(from, called) {
                    continue;
                }
                for to in files.keys().filter(|to| defines(to, called)) {
                    let call = || format!("{from} `{}` → {to} `{called}`", method.name);
                    edges.entry((from, to)).or_insert_with(call);
                }
            }
        }
    }
    let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in files.keys() {
        let (mut of_it, mut left) = (BTreeSet::new(), vec![*file]);
        while let Some(at) = left.pop() {
            let next = edges.keys().filter(|(from, _)| *from == at);
            left.extend(next.map(|(_, to)| *to).filter(|to| of_it.insert(*to)));
        }
        reached.insert(file, of_it);
    }
    let cycle_of = |file: &str| -> BTreeSet<&str> {
        let both = reached[file].iter().filter(|to| reached[**to].contains(file));
        both.copied().collect()
    };
    let largest = files.keys().map(|file| cycle_of(file)).max_by_key(BTreeSet::len);
    let cycle = largest.unwrap_or_default();
    let of_it = edges
        .iter()
        .filter(|((from, to), _)| cycle.contains(from) && cycle.contains(to));
    let calls: Vec<&str> = of_it.map(|(_, call)| call.as_str()).collect();
    (cycle.len().max(1), calls.join("; "))
}

/// The lines of the list: `crate | type | files | why`.
fn read<'a>(list: &'a File, violations: &mut Vec<Violation>) -> BTreeMap<(&'a str, &'a str), usize> {
    let mut listed = BTreeMap::new();
    for (number, line) in list.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let entry = match parts[..] {
            [member, name, count, why] if why.len() >= 10 => {
                count.parse().ok().map(|count| (member, name, count))
            }
            _ => None,
        };
        match entry {
            Some((member, name, count)) if count > 1 && listed.insert((member, name), count).is_none() => {}
            _ => violations.push(Violation::at(
                list,
                number,
                "is no `crate | type | files, 2 or more | why`, or there twice",
            )),
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "pub struct Switch<P>(P);\n\
        impl<P> Switch<P> {\n    fn step(&mut self) { self.read(); }\n    fn drop(&mut self) {}\n}\n";

    fn found(ports: &str, list: &str) -> Vec<String> {
        let files = [
            ("crates/a/src/switch/mod.rs", ROOT),
            ("crates/a/src/switch/ports.rs", ports),
            ("xtask/src/checks/one_direction.txt", list),
        ];
        let files = files.map(|(path, text)| File {
            path: path.into(),
            text: text.into(),
        });
        let workspace = Workspace {
            files: files.into(),
            ..Workspace::default()
        };
        run(&workspace)
            .into_iter()
            .map(|violation| violation.problem)
            .collect()
    }

    #[test]
    fn a_cycle_is_found_in_each_form_of_a_call() {
        for call in [
            "self.drop();",
            "if a { b.map(|c| self.drop()); }",
            "debug_assert!(self.drop());",
            "a.for_each(Self::drop);",
            "Switch::drop(self);",
            "Switch::<P>::drop(self);",
            "other.drop();",
        ] {
            let ports =
                format!("impl<P> Switch<P> {{\n    fn read(&mut self, other: &mut Self) {{ {call} }}\n}}\n");
            let problems = found(&ports, "");
            assert_eq!(problems.len(), 1, "{call}: {problems:?}");
            assert!(
                problems[0].contains("ports.rs `read` → crates/a/src/switch/mod.rs `drop`"),
                "{problems:?}"
            );
        }
    }

    #[test]
    fn one_direction_passes_and_so_do_methods_of_others() {
        for ports in [
            "impl<P> Switch<P> {\n    fn read(&mut self) { self.look(); self.port.drop(); }\n    fn look(&self) {}\n}\n",
            "struct Switch;\nimpl Switch {\n    fn read(&mut self) { self.drop(); }\n}\n",
            "impl<P> Switch<P> {\n    fn read(&mut self) {}\n    #[cfg(test)]\n    fn a(&mut self) { self.drop(); }\n}\n",
            "impl<P> Switch<P> {\n    fn read(&mut self) {}\n}\n#[cfg(test)]\nmod tests {\n    impl Switch<u8> {\n        fn a(&mut self) { self.drop(); }\n    }\n}\n",
        ] {
            assert_eq!(found(ports, ""), Vec::<String>::new(), "{ports}");
        }
    }

    #[test]
    fn the_list_has_each_cycle_with_its_size_and_no_other() {
        let ports = "impl<P> Switch<P> {\n    fn read(&mut self) { self.drop(); }\n}\n";
        let line = |count: &str, why: &str| format!("# of the list\ncrates/a | Switch | {count} | {why}\n");
        let why = "parts are being made of it";
        assert_eq!(found(ports, &line("2", why)), Vec::<String>::new());
        assert_eq!(found(ports, &line("3", why)).len(), 1);
        // Without a reason the line is none.
        assert_eq!(found(ports, &line("2", "")).len(), 2);
        assert_eq!(found("", &line("2", why)).len(), 1);
        assert_eq!(found("", "crates/a | Runtime | 2 | it was one once\n").len(), 1);
    }
}
