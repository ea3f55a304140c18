//! Checks over several settings: names that must exist, chains that must be able to run.

use super::document::Document;
use super::problem::{Problem, write_instead};
use super::values::Uri;
use super::{Config, Function, ReplicationPolicy};
use crate::registry::Registry;
use functions::forward::Forward;
use nf::objects::WorkerObjects;
use nf::{Affinity, NetworkFunction, WorkerInfo};
use runtime::chain::{CHAINS_MAX, COPIED_MAX, FUNCTIONS_MAX, check_copied};
use runtime::replication::{STORED_AS, STORED_MAX};
use runtime::rules::{Unreached, unreached};
use std::collections::BTreeSet;

/// Checks a configuration as a whole, and gives default settings to functions that chains name and
/// that have no table.
pub fn check(config: &mut Config, registry: &Registry, document: &mut Document<'_, '_>) {
    ports(config, document);
    runtimes(config, document);
    super::cluster::check(config, document);
    names(config, document);
    chains(config, registry, document);
    last(config, document);
    interfaces(config, document);
    affinities(config, document);
    copies(config, document);
    stored(config, document);
    instances(config, document);
    super::store::check(config, document);
    super::scaling::check(config, document);
}

/// There may be no fewer runtimes than there are. Of members the sum counts
/// ([`cluster`](super::cluster)).
fn runtimes(config: &Config, document: &mut Document<'_, '_>) {
    let most = config.runtimes_max.unwrap_or(config.runtimes);
    if config.member.is_empty() && most < config.runtimes {
        let problem = format!(
            "is {most}, and there are {} runtimes from the start",
            config.runtimes
        );
        let remedy = format!("write runtimes_max = {}, or more", config.runtimes);
        document.problem_at("runtimes_max", &problem, &remedy);
    }
}

/// Functions have names that can be shown.
fn names(config: &Config, document: &mut Document<'_, '_>) {
    for name in config.functions.keys() {
        if let Some((problem, _)) = super::values::unnamed_parts(name) {
            let remedy = "write another name, of letters that can be shown";
            document.problem_at("function", &problem, remedy);
        }
    }
}

fn ports(config: &Config, document: &mut Document<'_, '_>) {
    let mut names = BTreeSet::new();
    for (index, port) in config.port.iter().enumerate() {
        if !names.insert(port.name.as_str()) {
            let remedy = "give each port a name of its own";
            let problem = format!("there is another port `{}` before", port.name);
            document.problem_at(&format!("port[{index}].name"), &problem, remedy);
        }
        same_interface(config, index, document);
        super::ports::halves(port, index, document);
        if port.input.is_none() && port.output.is_none() {
            let remedy = "add a line input = \"pcap:in.pcap\", or output = …";
            document.problem_at(&format!("port[{index}]"), "has neither input nor output", remedy);
        }
    }
}

/// A port reads an interface that one before it reads in the same way: both would have each packet,
/// or one of them would have none.
fn same_interface(config: &Config, index: usize, document: &mut Document<'_, '_>) {
    let port = &config.port[index];
    let Some(uri) = port.input.as_ref().map(super::Uri::as_str) else {
        return;
    };
    // Several sockets that share out an interface's packets say so.
    if !(uri.starts_with("afpacket:") || uri.starts_with("afxdp:")) || uri.contains("fanout=") {
        return;
    }
    let host = |port: &super::Port| {
        let named = port.member.as_ref();
        let only = || config.member.iter().find(|member| member.switches.is_some());
        let member = named.and_then(|name| config.member.iter().find(|member| member.name == *name));
        member.or_else(only).map(|member| member.host.clone())
    };
    let same = |other: &&super::Port| {
        other.input.as_ref().map(super::Uri::as_str) == Some(uri) && host(other) == host(port)
    };
    if let Some(other) = config.port[..index].iter().find(same) {
        let problem = format!("`{uri}` is read by port `{}` already", other.name);
        let remedy =
            "name another interface, or another queue of it (afxdp:…?queue=1), or take this port out";
        document.problem_at(&format!("port[{index}].input"), &problem, remedy);
    }
}

fn chains(config: &mut Config, registry: &Registry, document: &mut Document<'_, '_>) {
    if config.chain.is_empty() {
        let remedy = "add [[chain]], and below it name = \"default\" and functions = [\"firewall\"]";
        document.problem_at("", "there is no chain", remedy);
    }
    if config.chain.len() > CHAINS_MAX {
        let problem = format!("is one chain too many; there are at most {CHAINS_MAX}");
        document.problem_at(
            &format!("chain[{CHAINS_MAX}]"),
            &problem,
            "join chains that have the same functions",
        );
    }
    let mut names = BTreeSet::new();
    for index in 0..config.chain.len() {
        let chain = config.chain[index].clone();
        let path = format!("chain[{index}]");
        if !names.insert(chain.name.clone()) {
            let problem = format!("there is another chain `{}` before", chain.name);
            document.problem_at(
                &format!("{path}.name"),
                &problem,
                "give each chain a name of its own",
            );
        }
        let count = chain.functions.len();
        if count == 0 || count > FUNCTIONS_MAX {
            let problem = format!("has {count} functions; a chain has 1 to {FUNCTIONS_MAX}");
            let remedy = if count == 0 {
                "name a function"
            } else {
                "take some out"
            };
            document.problem_at(&format!("{path}.functions"), &problem, remedy);
        }
        functions_exist(config, index, registry, document);
    }
}

/// Settings that are no mistake and hardly meant: chains that no flow takes, since others win
/// wherever they match; copies that no other runtime can have.
pub fn warnings(config: &Config) -> Vec<String> {
    let rules: Vec<_> = config.rules().into_iter().map(|rule| rule.matching).collect();
    let name = |index: &usize| format!("`{}`", config.chain[*index].name);
    let warning = |found: Unreached| {
        let takers: Vec<String> = found.taken_by.iter().map(name).collect();
        format!(
            "chain {} is never reached: {} {} all that it matches; make its match more specific, or take it out",
            name(&found.rule),
            takers.join(" and "),
            if takers.len() == 1 { "takes" } else { "take" }
        )
    };
    let mut warnings: Vec<String> = unreached(&rules).into_iter().map(warning).collect();
    let used: Vec<&str> = config.used().map(|(name, _)| name).collect();
    let unused = config
        .functions
        .keys()
        .filter(|name| !used.contains(&name.as_str()));
    warnings.extend(unused.map(|name| {
        format!(
            "no chain has the function `{name}`; add it to the `functions` of a chain, or take its table out"
        )
    }));
    if config.keeps_copies() && config.planned_runtimes() < 2 && config.member.is_empty() {
        warnings.push(
            "flows are to be copied (`replication`), and there is one runtime; write runtimes = 2, or take the policy out"
                .to_owned(),
        );
    }
    if config.log.keep == 0 && (config.log.max_size.is_some() || config.log.max_age.is_some()) {
        warnings.push(
            "the event log is thrown away whenever it is full or old (`keep = 0` in [log]); write keep = 1, or more"
                .to_owned(),
        );
    }
    if config.member.is_empty() && config.cluster != super::Cluster::default() {
        warnings.push(
            "[cluster] says how members reach each other, and there is no [[member]]; add members, or take [cluster] out"
                .to_owned(),
        );
    }
    if config.store != super::store::Store::default() && !config.store.is_any() {
        warnings.push(
            "[store] names no store, so nothing is kept; write uri = \"redb:PATH\" below it, or take it out"
                .to_owned(),
        );
    }
    let routes = config.used().any(|(_, function)| function.kind == Forward::NAME);
    let inputs = config.port.iter().filter(|_| !routes);
    let routed = inputs.filter(|port| port.input.as_ref().is_some_and(Uri::is_of_a_router));
    warnings.extend(routed.map(|port| {
        format!(
            "the input of port `{}` takes frames to this host alone, as a router does, and no chain has `forward`; \
             add `?take=everything` to it for a bridge, or `forward` to the chains",
            port.name
        )
    }));
    warnings.extend(only_reflects(config).map(str::to_owned));
    warnings
}

/// The warning for a configuration of one process whose inputs bring no packet by themselves.
pub fn only_reflects(config: &Config) -> Option<&'static str> {
    let inputs: Vec<_> = config
        .port
        .iter()
        .filter_map(|port| port.input.as_ref())
        .collect();
    let is_one_process = config.member.is_empty();
    (is_one_process && !inputs.is_empty() && inputs.iter().all(|input| input.is_reflector())).then_some(
        "every input is a `reflect:`, which has only what is sent to it: a run ends at once; give a port an input of another kind",
    )
}

/// The kind of a function, and words on the settings that a table of that kind must have.
fn needed(config: &Config, registry: &Registry, name: &str) -> Option<(&'static str, String)> {
    let kind = config.functions.get(name).map_or(name, |function| function.kind);
    let entry = registry.entry(kind)?;
    let wrong = match entry.defaults() {
        Ok(factory) => {
            let (mut variables, mut objects) = (nf::variables::Variables::local(), WorkerObjects::default());
            let made = factory.instantiate(&worker(config), &mut variables, &mut objects.of(name));
            made.err().map(|error| error.at)
        }
        // "missing field `pool`"
        Err(error) => Some(error.message().split('`').nth(1).unwrap_or_default().to_owned()),
    };
    let words = match wrong.as_deref() {
        None => String::new(),
        Some("") => " and settings of its own".to_owned(),
        Some(setting) => format!(" and a `{setting}` of its own"),
    };
    Some((entry.name, words))
}

/// A worker for which functions are made to see whether they can be.
fn worker(config: &Config) -> WorkerInfo {
    WorkerInfo {
        runtime: 0,
        runtimes: config.runtimes,
        // The problems of settings do not depend on it, and tables are made to its size.
        flows_max: config.flows_max.min(1024),
        seed: 0,
    }
}

/// Every function of a chain has a table, or is registered and gets its defaults.
fn functions_exist(config: &mut Config, chain: usize, registry: &Registry, document: &mut Document<'_, '_>) {
    let names = config.chain[chain].functions.clone();
    for (index, name) in names.iter().enumerate() {
        let path = format!("chain[{chain}].functions[{index}]");
        if names[..index].contains(name) {
            let remedy = match needed(config, registry, name) {
                Some((kind, needed)) => {
                    format!(
                        "take one out, or name `{name}2` here and write [function.{name}2] with kind = \"{kind}\"{needed}"
                    )
                }
                None => "take one out".to_owned(),
            };
            document.problem_at(&path, &format!("`{name}` is in this chain twice"), &remedy);
            continue;
        }
        // A table that could not be read has its own message.
        if config.functions.contains_key(name) || document.find(&format!("function.{name}")).is_some() {
            continue;
        }
        let Some(entry) = registry.entry(name) else {
            let mut known = registry.names();
            known.extend(config.functions.keys().map(String::as_str));
            known.sort_unstable();
            known.dedup();
            let remedy = write_instead(name, &known);
            document.problem_at(&path, &format!("there is no function `{name}`"), &remedy);
            continue;
        };
        match entry.defaults() {
            Ok(factory) => {
                let function = Function {
                    kind: entry.name,
                    factory,
                };
                config.functions.insert(name.clone(), function);
            }
            Err(error) => {
                let problem = format!("`{name}` has settings without a default: {}", error.message());
                document.problem_at(
                    &path,
                    &problem,
                    &format!("write [function.{name}] with that setting"),
                );
            }
        }
    }
}

/// A function that decides how packets leave has no function behind it.
fn last(config: &Config, document: &mut Document<'_, '_>) {
    for (chain, rule) in config.chain.iter().enumerate() {
        let before_last = rule.functions.len().saturating_sub(1);
        for (index, name) in rule.functions[..before_last].iter().enumerate() {
            let function = config.functions.get(name);
            if function.is_some_and(|function| function.factory.is_last()) {
                let problem =
                    format!("`{name}` has functions behind it, and it decides how packets leave its chain");
                let at = format!("chain[{chain}].functions[{index}]");
                document.problem_at(&at, &problem, "put it at the end of the chain");
            }
        }
    }
}

/// A function that says by which interface a port goes names ports that are there.
fn interfaces(config: &Config, document: &mut Document<'_, '_>) {
    let known: Vec<&str> = config.port.iter().map(|port| port.name.as_str()).collect();
    for (name, function) in config.used() {
        let feed = function.factory.feed();
        let Some(Ok(supply)) = feed.map(|feed| feed.downcast::<functions::forward::Supply>()) else {
            continue;
        };
        for port in supply
            .interfaces
            .keys()
            .filter(|port| !known.contains(&port.as_str()))
        {
            let at = format!("function.{name}.interfaces.{port}");
            let problem = format!("there is no port `{port}`");
            document.problem_at(&at, &problem, &write_instead(port, &known));
        }
    }
}

/// There is a way to group flows that serves all functions of all chains: runtimes and switches
/// have one for everything.
fn affinities(config: &Config, document: &mut Document<'_, '_>) {
    let mut joined = (Affinity::Flow, "");
    for (chain, index, name) in config.chain.iter().enumerate().flat_map(|(chain, rule)| {
        rule.functions
            .iter()
            .enumerate()
            .map(move |(index, name)| (chain, index, name))
    }) {
        let Some(function) = config.functions.get(name) else {
            continue;
        };
        let own = function.factory.affinity();
        match joined.0.join(own) {
            Some(affinity) if affinity != joined.0 => joined = (affinity, name),
            Some(_) => {}
            None => {
                let problem = format!(
                    "`{name}` needs all flows of an {} on one runtime, `{}` those of an {}",
                    describe(own),
                    joined.1,
                    describe(joined.0)
                );
                let remedy = "run them in configurations of their own";
                document.problem_at(&format!("chain[{chain}].functions[{index}]"), &problem, remedy);
                return;
            }
        }
    }
}

/// Where flows are to be in a store there is one, and all processes that have runtimes can have it.
fn stored(config: &Config, document: &mut Document<'_, '_>) {
    let own = |chain: &super::Chain| chain.replication.is_some_and(ReplicationPolicy::is_stored);
    let at = match config.chain.iter().position(own) {
        Some(chain) => format!("chain[{chain}].replication"),
        None if config.keeps_stored() => "replication.policy".to_owned(),
        None => return,
    };
    if config.store.of(STORED_AS).is_none() {
        let remedy = "write [store] with uri = \"redis://HOST\" or \"redb:PATH\", or another policy";
        document.problem_at(&at, "there is no store for the flows", remedy);
    }
    let uri = config.store.of(STORED_AS).map_or("", |(uri, _)| uri);
    if !config.member.is_empty() && uri == "memory:" {
        let problem = "`memory:` is gone with its process, and no member comes back with its flows";
        document.problem_at(&at, problem, "write uri = \"redis://HOST\" below [store]");
    }
    if uri.starts_with("redb:")
        && let Some((one, other)) = sharing(&config.member)
    {
        let problem = format!(
            "members `{one}` and `{other}` of one host would have one file, which one process may open"
        );
        document.problem_at(&at, &problem, "write uri = \"redis://HOST\" below [store]");
    }
    if config.functions.contains_key(STORED_AS) {
        let problem = format!("the store has flows under the name `{STORED_AS}`, which a function has");
        document.problem_at(&at, &problem, "give the function another name");
    }
}

/// Two members of one host that have runtimes.
fn sharing(members: &[super::cluster::Member]) -> Option<(&str, &str)> {
    let nodes: Vec<_> = members
        .iter()
        .filter(|member| member.runtimes.is_some())
        .collect();
    let pairs = nodes.iter().enumerate().flat_map(|(at, one)| {
        let others = nodes.iter().skip(at + 1);
        others.map(move |other| (one, other))
    });
    let mut shared = pairs.filter(|(one, other)| one.host == other.host);
    shared.next().map(|(one, other)| (&*one.name, &*other.name))
}

/// Checks that a copy has room for the state of a copied chain's flow, and of its group.
fn copies(config: &Config, document: &mut Document<'_, '_>) {
    let all: Vec<_> = config.functions.values().map(|known| &*known.factory).collect();
    let mut each = all.iter().map(|factory| factory.affinity());
    let Some(affinity) = each.try_fold(Affinity::Flow, Affinity::join) else {
        return;
    };
    for (index, chain) in config.chain.iter().enumerate() {
        let policy = chain.replication.unwrap_or(config.replication.policy);
        let known = |name: &String| config.functions.get(name).map(|known| &*known.factory);
        let own: Vec<_> = chain.functions.iter().filter_map(known).collect();
        let most = match policy {
            ReplicationPolicy::None => continue,
            ReplicationPolicy::Store | ReplicationPolicy::StoreCommit => STORED_MAX,
            ReplicationPolicy::Snapshot | ReplicationPolicy::Commit => COPIED_MAX,
        };
        if let Err(error) = check_copied(&own, &all, affinity, most) {
            let at = chain.functions.iter().position(|name| *name == error.function);
            let place = at.map_or("functions".into(), |at| format!("functions[{at}]"));
            let remedy = "write replication = \"none\" in this chain, or have the function keep less";
            document.problem_at(&format!("chain[{index}].{place}"), &error.to_string(), remedy);
        }
    }
}

fn describe(affinity: Affinity) -> &'static str {
    match affinity {
        Affinity::Flow => "flow",
        Affinity::InsideEndpoint => "inside address and port",
        Affinity::InsideAddress => "inside address",
        Affinity::OutsideAddress => "outside address",
    }
}

/// Each function takes its settings: an instance can be made.
fn instances(config: &Config, document: &mut Document<'_, '_>) {
    let worker = worker(config);
    for (name, function) in &config.functions {
        let opened = |runtime| {
            let (mut variables, mut objects) = (nf::variables::Variables::local(), WorkerObjects::default());
            let worker = WorkerInfo { runtime, ..worker };
            let made = function
                .factory
                .instantiate(&worker, &mut variables, &mut objects.of(name));
            made.map(|_| variables.names())
        };
        let made = opened(0);
        if let Ok(names) = &made {
            super::store::are_opened(config, name, document, |runtime| match runtime {
                0 => names.clone(),
                _ => opened(runtime).unwrap_or_default(),
            });
        }
        if let Err(error) = made {
            if let Some(place) = &error.place {
                let setting = format!("function.{name}.{}", error.at);
                let problem = Problem::on_line(place).saying(setting, &*error.problem, &*error.remedy);
                document.problems.push(problem);
                continue;
            }
            let path = if error.at.is_empty() {
                format!("function.{name}")
            } else {
                format!("function.{name}.{}", error.at)
            };
            match document.find(&format!("function.{name}")) {
                Some(_) => document.problem_at(&path, &error.problem, &error.remedy),
                // Without a table of its own, the chain that names it is the place to look at.
                None => document.problem_at(
                    &named_at(config, name),
                    &error.problem,
                    &format!("below [function.{name}], {}", error.remedy),
                ),
            }
        }
    }
}

/// Where the first chain names a function.
fn named_at(config: &Config, name: &str) -> String {
    let mut chains = config.chain.iter().enumerate();
    chains
        .find_map(|(chain, rule)| {
            let index = rule.functions.iter().position(|function| function == name)?;
            Some(format!("chain[{chain}].functions[{index}]"))
        })
        .unwrap_or_default()
}
