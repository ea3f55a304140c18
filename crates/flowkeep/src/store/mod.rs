//! The stores of a process: opened as the configuration says, ended with it, and messages about
//! them.
//!
//! ```text
//!   [store] ──► a driver and an agent's thread for each URI ──► where plans have their variables kept (`Keeper`)
//!                 └─ reports ──► the event log, and failures
//! ```
//!
//! Without `[store]` there is no thread, and variables are gone with the process. A driver whose
//! library could be ended by a server's answer runs in a process of its own ([`apart`]).
//!
//! Not here: how variables get there (`stores`), when a worker's step is (`runtime`).

pub(crate) mod apart;
pub mod copy;
pub mod job;
pub mod stats;

use crate::config;
use crate::events::{self, Declared};
use crate::log::{self, Level};
use adapters::report::Reports;
use nf::variables::Keeper;
use nf::variables::shelf::Said;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stores::mirror::{Told, Watch};
use stores::{
    Agency, Defaults, Driver, Estate, Failure, Locks, Merges, Mirror, Report, Store, Stores, Views,
};

/// How long a start, or a changed configuration, waits for a store.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a worker that ends waits for its stores to take the last changes.
pub(crate) const LAST_CHANGES: Duration = Duration::from_secs(3);

/// A store by its URI without a password, and where it has a mirror, how both do.
pub(crate) type Named = (String, Store, Option<Watch>);

/// A store, and the parts of it for functions.
type There = (Store, Merges, Locks, Option<Arc<Estate>>);

/// The stores of a running cluster, or of a member.
#[derive(Default)]
pub(crate) struct Opened {
    /// Where plans have variables kept.
    pub keeper: Keeper,
    /// By their URIs, which have no password.
    pub stores: Vec<Named>,
    /// Their threads.
    pub agencies: Vec<Agency>,
    /// With a coordinator: where the locks of functions look for the view.
    pub views: Option<Arc<Views>>,
    /// With a coordinator: stores that members have in common.
    pub common: Vec<Common>,
}

/// A store that members have in common.
pub(crate) struct Common {
    /// Its URI, without a password.
    pub uri: String,
    pub estate: Arc<Estate>,
    pub functions: Vec<Kept>,
}

/// A function whose variables are in a store, and the settings of single ones.
pub(crate) struct Kept {
    pub name: String,
    pub said: BTreeMap<String, Said>,
}

/// Opens the stores that a configuration names, for a member of a cluster or without one: its name,
/// and with a coordinator, which has the view, the cluster's name. `has_clock`: workers' time is
/// their packets'.
pub(crate) fn open(
    config: &config::store::Store,
    functions: &[String],
    (member, cluster): (&str, Option<&str>),
    has_clock: bool,
    events: &SyncSender<String>,
    reports: &Reports,
) -> Result<Opened, Failure> {
    let views = cluster.map(|_| Arc::<Views>::default());
    let mut opened = Opened {
        views: views.clone(),
        ..Opened::default()
    };
    let mut by_uri: BTreeMap<(&str, Option<&str>), There> = BTreeMap::new();
    let mut kept = BTreeMap::new();
    for name in functions {
        let Some((uri, consistency)) = config.of(name) else {
            kept.insert(name.clone(), None);
            continue;
        };
        let mirror = config.mirror_of(name);
        let (store, merges, locks, estate) = match by_uri.get(&(uri, mirror)) {
            Some(there) => there.clone(),
            None => {
                let shown = stores::without_secret(uri);
                let tell = teller(shown.clone(), events.clone(), reports.clone());
                let (driver, watch) = driver(uri, mirror, events)?;
                let started = Store::start(driver, PATIENCE, tell);
                let (store, agency) = started.map_err(|error| no_thread(&shown, &error))?;
                opened.stores.push((shown, store.clone(), watch));
                opened.agencies.push(agency);
                let (merges, locks) = (Merges::of(&store), Locks::of(&store, views.clone()));
                let named = cluster.zip(views.as_ref());
                // Of two that mirror each other either may have the truth.
                let named = named.filter(|_| stores::is_common(uri) && mirror.is_none());
                let estate =
                    named.map(|(cluster, views)| Arc::new(Estate::of(&store, (cluster, member), views)));
                if let Some(estate) = &estate {
                    opened.common.push(Common {
                        uri: stores::without_secret(uri),
                        estate: Arc::clone(estate),
                        functions: Vec::new(),
                    });
                }
                let of = (store, merges, locks, estate);
                by_uri.insert((uri, mirror), of.clone());
                of
            }
        };
        let mut all = opened.common.iter_mut();
        if let Some(own) = &estate
            && let Some(common) = all.find(|common| Arc::ptr_eq(&common.estate, own))
        {
            common.functions.push(Kept {
                name: name.clone(),
                said: config.said_of(name),
            });
        }
        let defaults = Defaults {
            estate,
            store,
            consistency,
            said: config.said_of(name),
            merges,
            merge_every: config.merge_of(name),
            locks,
        };
        kept.insert(name.clone(), Some(defaults));
    }
    if !by_uri.is_empty() {
        opened.keeper = Keeper::of(Box::new(Stores {
            member: member.to_owned(),
            has_clock,
            usual: None,
            functions: kept,
        }));
    }
    Ok(opened)
}

/// Why these functions could not have their stores from here: the setting, and the problem. A file
/// is opened for each of them, as [`open`] does. A server is asked where a function of `using` has
/// need of it; of a store and its mirror both must answer at a start.
pub(crate) fn look(
    config: &config::store::Store,
    functions: &[String],
    using: &[String],
) -> Vec<(String, String)> {
    let mut by_uri = BTreeMap::new();
    for (name, of) in functions
        .iter()
        .flat_map(|name| config.stores_of(name).map(move |of| (name, of)))
    {
        if using.contains(name) || file_of(of.uri).is_some() {
            by_uri.entry(of.uri).or_insert(of.at);
        }
    }
    let looked = by_uri.into_iter().map(|(uri, at)| {
        let absent = file_of(uri).filter(|file| !file.exists());
        let said = match absent {
            Some(file) => config::ports::unwritten(file),
            None => stores::look(uri).err().map(|failure| failure.to_string()),
        };
        Some((at, said?))
    });
    looked.flatten().collect()
}

/// The file that a store is in.
pub(crate) fn file_of(uri: &str) -> Option<&Path> {
    uri.strip_prefix("redb:").map(Path::new)
}

fn no_thread(store: &str, error: &std::io::Error) -> Failure {
    Failure::new(store, format!("no thread can be started for it: {error}"), "")
}

/// A store's driver, over two where it has a mirror.
fn driver(
    uri: &str,
    mirror: Option<&str>,
    events: &SyncSender<String>,
) -> Result<(Box<dyn Driver>, Option<Watch>), Failure> {
    let first = stores::driver_of(uri)?;
    let Some(mirror) = mirror else {
        return Ok((first, None));
    };
    let shown = stores::without_secret;
    let second = (shown(mirror), stores::driver_of(mirror)?);
    let events = events.clone();
    let tell = move |told| {
        let (store, event, more) = match told {
            Told::Behind(store, failure) => {
                log::say(Level::Warn, format_args!("{failure}; its mirror goes on alone"));
                (store, &events::MIRROR_BEHIND, vec![("problem", failure.problem)])
            }
            Told::InStep(store) => {
                log::say(
                    Level::Info,
                    format_args!("store {store}: it has all that its mirror has"),
                );
                (store, &events::MIRROR_IN_STEP, Vec::new())
            }
        };
        let _ = events.try_send(line(&store, event, &more));
    };
    let started = Mirror::start((shown(uri), first), second, tell);
    let (mirror, watch) = started.map_err(|error| no_thread(&shown(uri), &error))?;
    Ok((Box::new(mirror), Some(watch)))
}

/// An event about a store, as a line of the event log.
pub(crate) fn line(store: &str, event: &Declared, more: &[(&str, String)]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut fields = serde_json::Map::new();
    fields.insert("store".into(), store.into());
    fields.insert("event".into(), event.event().name.into());
    for (name, value) in more {
        event.hold(name);
        fields.insert((*name).into(), value.as_str().into());
    }
    let rest = serde_json::Value::Object(fields).to_string();
    let (seconds, nanoseconds) = (now.as_secs(), now.subsec_nanos());
    format!(
        "{{\"time\":{seconds}.{nanoseconds:09},{}\n",
        rest.trim_start_matches('{')
    )
}

/// The text of a failure while it lasts: many remedies end with the fate of changes.
fn failing(failure: &Failure) -> String {
    const MEANWHILE: &str = "changes wait meanwhile";
    match failure.remedy.contains(MEANWHILE) {
        true => failure.to_string(),
        false => format!("{failure}; {MEANWHILE}"),
    }
}

/// Writes down an agent's reports. A full event log loses a line; the figures have it all the same.
fn teller(
    store: String,
    events: SyncSender<String>,
    reports: Reports,
) -> impl FnMut(Report) + Send + 'static {
    move |report| {
        let (event, more) = match &report {
            Report::Failing(failure) => {
                // At once, and not among the failures that the run is judged by: it may be over
                // soon.
                log::say(Level::Warn, format_args!("{}", failing(failure)));
                let remedy = ("remedy", failure.remedy.clone());
                (
                    &events::STORE_FAILING,
                    vec![("problem", failure.problem.clone()), remedy],
                )
            }
            Report::Again(after) => {
                log::say(
                    Level::Info,
                    format_args!("store {store}: it works again, after {after:.1?}"),
                );
                (&events::STORE_AGAIN, vec![("after", format!("{after:?}"))])
            }
            Report::Late {
                partition,
                age,
                bound,
            } => {
                eprintln!(
                    "store {store}: it has not had changes of {partition} for {age:.1?}, and the bound is {bound:.1?}; \
                     see that it keeps up, or set a longer `bound`"
                );
                let age = ("age", format!("{age:?}"));
                let of = ("partition", partition.to_string());
                (
                    &events::VARIABLES_LATE,
                    vec![of, age, ("bound", format!("{bound:?}"))],
                )
            }
            Report::InTime(partition, after) => {
                eprintln!(
                    "store {store}: it has the changes of {partition} in time again, after {after:.1?}"
                );
                let of = ("partition", partition.to_string());
                (
                    &events::VARIABLES_IN_TIME,
                    vec![of, ("after", format!("{after:?}"))],
                )
            }
            Report::Forgotten(partition) => {
                (&events::STORE_FORGOT, vec![("partition", partition.to_string())])
            }
            Report::Fenced(partition) => {
                let problem = format!("another process has claimed the variables {partition}");
                reports.tell(
                    &store,
                    problem,
                    "end one of the two, or give each a member's name of its own",
                );
                (&events::STORE_FENCED, vec![("partition", partition.to_string())])
            }
        };
        let _ = events.try_send(line(&store, event, &more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nf::ConfigError;

    #[test]
    fn a_failure_says_once_that_changes_wait() {
        let said = |remedy: &str| failing(&Failure::new("redis://h", "it is away", remedy));
        let whole = "store redis://h: it is away; see to it; changes wait meanwhile";
        assert_eq!(said("see to it"), whole);
        assert_eq!(said("see to it; changes wait meanwhile"), whole);
    }

    #[test]
    fn a_store_that_cannot_be_opened_is_named_once_with_its_remedy() {
        let failure = Failure::new("redb:f", "another process has it", "end that");
        let opened = nf::variables::OpenError::Store(failure.to_string());
        assert_eq!(
            ConfigError::from(opened).to_string(),
            "variables: store redb:f: another process has it; end that"
        );
        let without = ConfigError::new("", "it is wrong", "");
        assert_eq!(without.to_string(), "it is wrong");
    }
}
