//! Where functions' variables are kept: the table `[store]`.
//!
//! ```toml
//! [store]
//! uri = "redis://127.0.0.1"
//! interval = "1ms"
//!
//! [store.function.counter]
//! interval = "100ms"
//!
//! [store.function.counter.variable.bytes_by_protocol]
//! consistency = "local"
//! ```
//!
//! Invariant: a URI that came out of here names a store that this binary has a driver for, and is
//! shown without its password.
//!
//! Not here: opening the store (`crate::store`).

use super::Config;
use super::document::{Document, quoted};
use super::problem::write_instead;
use nf::Period;
use nf::variables::Consistency;
use nf::variables::shelf::{BOUND_NS, INTERVAL_NS, Said};
use schemars::JsonSchema;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use stores::merge::EVERY;

/// Where functions' variables are kept beyond the process. Without a `uri` they are not.
#[derive(Deserialize, JsonSchema, Clone, Debug, PartialEq, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// The store: `memory:`, `redb:PATH`, `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`
    /// (`rediss://` with TLS), or `cassandra://HOST[:PORT][/KEYSPACE]`. Default: none.
    #[schemars(with = "Option<String>", example = &"redis://127.0.0.1")]
    pub uri: Option<StoreUri>,
    /// A second store that gets everything, too. Functions read from the first. Default: none.
    #[schemars(with = "Option<String>", example = &"redb:/var/lib/flowkeep/store")]
    pub mirror: Option<StoreUri>,
    /// How long changes are collected before the store is told, up to `"1h"`. `"0s"`: it is told at
    /// once. Default `"1ms"`.
    #[schemars(with = "Option<String>", example = &"1ms")]
    pub interval: Option<Interval>,
    /// How old a change may become before it is told as late, up to `"1h"`. Default `"1s"`.
    #[schemars(with = "Option<String>", example = &"1s")]
    pub bound: Option<Interval>,
    /// How often merged views of functions' variables are made, up to `"1h"`. `"0s"`: only when a
    /// function asks. Default `"1s"`.
    #[schemars(with = "Option<String>", example = &"10s")]
    pub merge: Option<Interval>,
    /// Settings of single functions, by the name that chains use.
    pub function: BTreeMap<String, FunctionStore>,
}

impl Store {
    /// Whether it names a store, be it one function's own.
    pub fn is_any(&self) -> bool {
        self.uri.is_some() || self.function.values().any(|own| own.uri.is_some())
    }
}

/// Settings of one function.
#[derive(Deserialize, JsonSchema, Clone, Debug, PartialEq, Default)]
#[serde(deny_unknown_fields, default)]
pub struct FunctionStore {
    /// Its own store; `"none"` for none. Default: that of `[store]`.
    #[schemars(with = "Option<String>", example = &"none")]
    pub uri: Option<StoreUri>,
    /// The mirror of its own store. Default: that of `[store]`, where the store is, too.
    #[schemars(with = "Option<String>", example = &"none")]
    pub mirror: Option<StoreUri>,
    /// Its own interval.
    #[schemars(with = "Option<String>", example = &"100ms")]
    pub interval: Option<Interval>,
    /// Its own bound.
    #[schemars(with = "Option<String>", example = &"5s")]
    pub bound: Option<Interval>,
    /// How often its merged views are made.
    #[schemars(with = "Option<String>", example = &"1m")]
    pub merge: Option<Interval>,
    /// Settings of single variables, by the variable's name, which `flowkeep store inspect` shows.
    /// They prevail over the function's own.
    pub variable: BTreeMap<String, VariableStore>,
}

/// Settings of one variable of a function.
#[derive(Deserialize, JsonSchema, Clone, Debug, PartialEq, Default)]
#[serde(deny_unknown_fields, default)]
pub struct VariableStore {
    /// `"write_behind"`: the store is told at the interval. `"write_through"`: it is told at once,
    /// and a packet that changes the variable waits until the store has that.
    /// `"local"`: the variable is in no store, and is gone with the process. Default: as its
    /// function says, else `"write_behind"`.
    #[schemars(example = &"local")]
    pub consistency: Option<Kept>,
    /// Its own interval.
    #[schemars(with = "Option<String>", example = &"10ms")]
    pub interval: Option<Interval>,
    /// Its own bound.
    #[schemars(with = "Option<String>", example = &"5s")]
    pub bound: Option<Interval>,
}

/// The changes of a variable that may be lost.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Changes of this interval that the store has not been told of.
    WriteBehind,
    /// Changes on their way.
    WriteThrough,
    /// All of it, with the process.
    Local,
}

/// The URI of a store, or `none`.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUri(String);

impl StoreUri {
    /// With the password, to open the store; `None` for no store.
    pub fn secret(&self) -> Option<&str> {
        (self.0 != "none").then_some(&self.0)
    }
}

impl fmt::Display for StoreUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&stores::without_secret(&self.0))
    }
}

impl fmt::Debug for StoreUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'de> Deserialize<'de> for StoreUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text != "none"
            && let Err(failure) = stores::check(&text)
        {
            return Err(D::Error::custom(format!(
                "{}; {}",
                failure.problem, failure.remedy
            )));
        }
        Ok(StoreUri(text))
    }
}

/// A store, and the setting that names it.
pub struct Named<'s> {
    /// The setting.
    pub at: String,
    /// The store, with the password.
    pub uri: &'s str,
}

/// A time of an hour at most.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval(u64);

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let time = Period::deserialize(deserializer)?.duration();
        if time > std::time::Duration::from_secs(3600) {
            return Err(D::Error::custom(
                "it is longer than an hour; write for example \"1ms\"",
            ));
        }
        Ok(Interval(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Store {
    /// Where a function's variables are kept and how; `None` for nowhere.
    pub fn of(&self, function: &str) -> Option<(&str, Consistency)> {
        let own = self.function.get(function);
        let uri = own.and_then(|own| own.uri.as_ref()).or(self.uri.as_ref())?;
        let (interval_ns, bound_ns) = self.times(own);
        let consistency = Consistency::Behind {
            interval_ns,
            bound_ns,
        };
        Some((uri.secret()?, consistency))
    }

    /// The settings of single variables of a function, by their names.
    pub fn said_of(&self, function: &str) -> BTreeMap<String, Said> {
        let own = self.function.get(function);
        let usual = self.times(own).0;
        let said = |of: &VariableStore| {
            let interval_ns = of.interval.map(|interval| interval.0);
            let kept = |interval_ns| Said::Kept {
                interval_ns,
                bound_ns: of.bound.map(|bound| bound.0),
            };
            match of.consistency {
                Some(Kept::Local) => Said::Local,
                Some(Kept::WriteThrough) => Said::Through {
                    bound_ns: of.bound.map(|bound| bound.0),
                },
                Some(Kept::WriteBehind) => kept(interval_ns.or(Some(usual))),
                None => kept(interval_ns),
            }
        };
        let variables = own.into_iter().flat_map(|own| &own.variable);
        variables.map(|(name, of)| (name.clone(), said(of))).collect()
    }

    /// The store that mirrors a function's; `None` for none.
    pub fn mirror_of(&self, function: &str) -> Option<&str> {
        let own = self.function.get(function);
        let usual = match own.and_then(|own| own.uri.as_ref()) {
            Some(_) => None,
            None => self.mirror.as_ref(),
        };
        own.and_then(|own| own.mirror.as_ref()).or(usual)?.secret()
    }

    /// The stores that a function's variables are kept in: its own, and that one's mirror.
    pub fn stores_of(&self, function: &str) -> impl Iterator<Item = Named<'_>> {
        let own = self.function.get(function);
        let at = |setting: &str, is_own: bool| match is_own {
            true => format!("store.function.{function}.{setting}"),
            false => format!("store.{setting}"),
        };
        let has_own = own.is_some_and(|own| own.uri.is_some());
        let store = self.of(function).map(|(uri, _)| Named {
            at: at("uri", has_own),
            uri,
        });
        let has_own = own.is_some_and(|own| own.mirror.is_some());
        let mirror = self.mirror_of(function).map(|uri| Named {
            at: at("mirror", has_own),
            uri,
        });
        let mirror = mirror.filter(|_| store.is_some());
        store.into_iter().chain(mirror)
    }

    /// How often a function's merged views are made; `None`: when it asks.
    pub fn merge_of(&self, function: &str) -> Option<Duration> {
        let own = self.function.get(function).and_then(|own| own.merge);
        let every = own.or(self.merge);
        let every = every.map_or(EVERY, |every| Duration::from_nanos(every.0));
        (!every.is_zero()).then_some(every)
    }

    fn times(&self, own: Option<&FunctionStore>) -> (u64, u64) {
        let interval = own.and_then(|own| own.interval).or(self.interval);
        let bound = own.and_then(|own| own.bound).or(self.bound);
        (
            interval.map_or(INTERVAL_NS, |interval| interval.0),
            bound.map_or(BOUND_NS, |bound| bound.0),
        )
    }
}

const LATE: &str = "changes are late before the store is told: the interval is longer than the bound";
const LATE_REMEDY: &str = "write a shorter interval, or a longer bound";
const NOT_KEPT: &str = "a variable that is in no store has none";
const NOT_KEPT_REMEDY: &str = "take it out, or write another consistency";

/// Checks over several settings.
pub(super) fn check(config: &Config, document: &mut Document<'_, '_>) {
    let store = &config.store;
    mirrors(store, document);
    variables(store, document);
    let mut late = |at: &str, own: Option<&FunctionStore>| {
        let (interval, bound) = store.times(own);
        if bound < interval {
            let at = match own {
                Some(own) if own.bound.is_none() => format!("{at}.interval"),
                None if store.bound.is_none() => format!("{at}.interval"),
                _ => format!("{at}.bound"),
            };
            document.problem_at(&at, LATE, LATE_REMEDY);
        }
    };
    late("store", None);
    for (name, own) in &store.function {
        late(&format!("store.function.{name}"), Some(own));
    }
    let mut known: Vec<&str> = config.functions.keys().map(String::as_str).collect();
    if config.keeps_stored() {
        known.push(runtime::replication::STORED_AS);
    }
    for name in store
        .function
        .keys()
        .filter(|name| !known.contains(&name.as_str()))
    {
        let problem = format!("there is no function `{name}` in a chain");
        document.problem_at(
            &format!("store.function.{name}"),
            &problem,
            &write_instead(name, &known),
        );
    }
    // The runtime's own: flows, which a whole runtime loses or has.
    let flows = store.function.get(runtime::replication::STORED_AS);
    if let Some((variable, _)) = flows.and_then(|own| own.variable.first_key_value())
        && !config.functions.contains_key(runtime::replication::STORED_AS)
    {
        document.problem_at(
            &variable_at(runtime::replication::STORED_AS, variable),
            "flows are kept as one",
            "write interval and bound below [store.function.replication]",
        );
    }
}

/// Checks that the settings of one variable have an effect, and that its times go together.
fn variables(store: &Store, document: &mut Document<'_, '_>) {
    for (function, own) in &store.function {
        let (usual_interval, usual_bound) = store.times(Some(own));
        for (name, said) in &own.variable {
            let at = variable_at(function, name);
            let interval = said.interval.map_or(usual_interval, |interval| interval.0);
            let bound = said.bound.map_or(usual_bound, |bound| bound.0);
            let (setting, problem, remedy) = match (said.consistency, said.interval, said.bound) {
                (Some(Kept::Local), Some(_), _) => (".interval", NOT_KEPT, NOT_KEPT_REMEDY),
                (Some(Kept::Local), None, Some(_)) => (".bound", NOT_KEPT, NOT_KEPT_REMEDY),
                (Some(Kept::WriteThrough), Some(Interval(1..)), _) => (
                    ".interval",
                    "the store is told at once with \"write_through\"",
                    "take it out, or write consistency = \"write_behind\"",
                ),
                (Some(Kept::WriteBehind), own, _) if interval == 0 => (
                    if own.is_some() {
                        ".interval"
                    } else {
                        ".consistency"
                    },
                    "with an interval of \"0s\" the store is told at once",
                    "write an interval, for example \"1ms\", or consistency = \"write_through\"",
                ),
                (Some(Kept::Local | Kept::WriteThrough), ..) => continue,
                (_, own, other) if bound < interval && (own.is_some() || other.is_some()) => (
                    if other.is_some() { ".bound" } else { ".interval" },
                    LATE,
                    LATE_REMEDY,
                ),
                _ => continue,
            };
            document.problem_at(&format!("{at}{setting}"), problem, remedy);
        }
    }
}

/// The setting for one variable.
fn variable_at(function: &str, variable: &str) -> String {
    format!(
        "store.function.{}.variable.{}",
        quoted(function),
        quoted(variable)
    )
}

/// Variables of which something is said are variables of the function. `opened`: the names of those
/// that its instance at a runtime opens.
pub(super) fn are_opened(
    config: &Config,
    function: &str,
    document: &mut Document<'_, '_>,
    opened: impl Fn(u16) -> Vec<String>,
) {
    let said = config.store.function.get(function).into_iter();
    let said: Vec<&String> = said.flat_map(|own| own.variable.keys()).collect();
    let mut known = Vec::new();
    for runtime in 0..config.runtimes.max(1) {
        if said.iter().all(|name| known.contains(*name)) {
            return;
        }
        // A function may open others at another runtime.
        known.extend(opened(runtime));
    }
    known.sort_unstable();
    known.dedup();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    for name in said.into_iter().filter(|name| !known.contains(&name.as_str())) {
        let problem = format!("function `{function}`, as it is set, has no variable `{name}`");
        let remedy = match known.is_empty() {
            true => "take it out".to_owned(),
            false => write_instead(name, &known),
        };
        document.problem_at(&variable_at(function, name), &problem, &remedy);
    }
}

/// A mirror is of a store, and is another one.
fn mirrors(store: &Store, document: &mut Document<'_, '_>) {
    let own = store.function.iter();
    let own = own.map(|(name, own)| {
        (
            format!("store.function.{name}"),
            own.uri.as_ref(),
            own.mirror.as_ref(),
        )
    });
    let usual = ("store".to_owned(), store.uri.as_ref(), store.mirror.as_ref());
    for (at, uri, mirror) in std::iter::once(usual).chain(own) {
        let (uri, Some(mirror)) = (uri.or(store.uri.as_ref()), mirror.and_then(StoreUri::secret)) else {
            continue;
        };
        let problem = match uri.and_then(StoreUri::secret) {
            None => "there is no store that it mirrors",
            Some(uri) if uri == mirror => "it is the store itself",
            Some(_) => continue,
        };
        document.problem_at(
            &format!("{at}.mirror"),
            problem,
            "name two stores: `uri` and `mirror`",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn read(text: &str) -> Store {
        toml::from_str(text).expect("a table")
    }

    #[test]
    fn a_store_that_is_told_at_once_has_its_bound() {
        let store = read("uri = \"memory:\"\ninterval = \"0s\"\nbound = \"5s\"");
        let (_, consistency) = store.of("f").expect("a store");
        assert_eq!(
            (consistency.interval_ns(), consistency.bound_ns()),
            (0, 5000 * MS)
        );
    }

    #[test]
    fn what_is_said_of_one_variable_is_stronger_than_what_is_said_of_its_function() {
        let store = read(
            "uri = \"memory:\"\n[function.f]\ninterval = \"50ms\"\n\
             [function.f.variable.a]\nconsistency = \"local\"\n\
             [function.f.variable.b]\nconsistency = \"write_through\"\nbound = \"2s\"\n\
             [function.f.variable.c]\nconsistency = \"write_behind\"\n\
             [function.f.variable.\"d e\"]\nbound = \"3s\"\n",
        );
        let (_, configured) = store.of("f").expect("a store");
        let said = store.said_of("f");
        let told = |name: &str, own: Consistency| {
            let told = own.told(said.get(name).copied(), configured);
            (told != Consistency::Local).then(|| (told.interval_ns() / MS, told.bound_ns() / MS))
        };
        let own = Consistency::Behind {
            interval_ns: 7 * MS,
            bound_ns: 9 * MS,
        };
        let all = ["a", "b", "c", "d e", "other"];
        let of = |own| all.map(|name| told(name, own));
        let (configured, through) = (Consistency::Configured, Consistency::THROUGH);
        let [b, c] = [(0, 2000), (50, 1000)].map(Some);
        assert_eq!(of(configured), [None, b, c, Some((50, 3000)), Some((50, 1000))]);
        assert_eq!(of(own), [None, b, Some((50, 9)), Some((7, 3000)), Some((7, 9))]);
        assert_eq!(of(through), [None, b, c, Some((0, 3000)), Some((0, 1000))]);
        assert_eq!(of(Consistency::Local), [None, b, c, Some((50, 3000)), None]);
        assert!(store.said_of("g").is_empty());
    }
}
