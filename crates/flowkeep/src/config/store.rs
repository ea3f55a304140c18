//! Where functions' variables are kept: the table `[store]`.
//!
//! ```toml
//! [store]
//! uri = "redis://127.0.0.1"
//! interval = "1ms"
//!
//! [store.function.counter]
//! interval = "100ms"
//! ```
//!
//! Invariant: a URI that came out of here names a store that this binary has a driver for, and is
//! shown without its password.
//!
//! Not here: opening the store (`crate::store`).

use super::Config;
use super::document::Document;
use super::problem::write_instead;
use nf::Period;
use nf::variables::Consistency;
use nf::variables::shelf::{BOUND_NS, INTERVAL_NS};
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
    /// What is otherwise for one function, by the name that chains use.
    pub function: BTreeMap<String, FunctionStore>,
}

/// What is otherwise for one function.
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
        let consistency = match interval_ns {
            0 => Consistency::Through,
            _ => Consistency::Behind {
                interval_ns,
                bound_ns,
            },
        };
        Some((uri.secret()?, consistency))
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

/// What no single setting shows.
pub(super) fn check(config: &Config, document: &mut Document<'_, '_>) {
    let store = &config.store;
    mirrors(store, document);
    let mut late = |at: &str, own: Option<&FunctionStore>| {
        let (interval, bound) = store.times(own);
        if bound < interval {
            let problem = "changes are late before the store is told: the interval is longer than the bound";
            let at = match own {
                Some(own) if own.bound.is_none() => format!("{at}.interval"),
                None if store.bound.is_none() => format!("{at}.interval"),
                _ => format!("{at}.bound"),
            };
            document.problem_at(&at, problem, "write a shorter interval, or a longer bound");
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
