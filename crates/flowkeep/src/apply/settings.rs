//! Two configurations, compared setting by setting as they are written.
//!
//! ```text
//!   [[function.firewall.rules]]              [[function.firewall.rules]]
//!   name = "web"                             name = "web"
//!   action = "allow"                         action = "drop"
//!
//!   function.firewall.rules[web].action: "allow" -> "drop"
//! ```
//!
//! Tables of a list that have a `name` are known by it, wherever they stand; if the tables that are
//! in both stand in another order, that is a difference of its own (`order`). Other lists differ as
//! a whole. A file that a setting names counts with its content.
//!
//! A setting that is written out with its default differs from one that is not written: that makes
//! no other configuration, and is harmless.
//!
//! Not here: whether a difference may be applied ([`super`]).

use super::report::Fixed;
use crate::config::Config;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::fmt;
use toml::{Table, Value};

/// One setting that differs.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The function whose it is, as chains name it.
    pub function: Option<String>,
    /// The whole path.
    pub setting: String,
    /// Its value as it was; none if it was not there.
    pub old: Option<Json>,
    /// Its value as it is to be.
    pub new: Option<Json>,
}

impl Difference {
    /// Whether it lies below a setting of the top.
    pub fn is_of(&self, top: &str) -> bool {
        match self.setting.strip_prefix(top) {
            Some(rest) => rest.is_empty() || rest.starts_with(['.', '[']),
            None => false,
        }
    }
}

/// The most characters of a value that a table shows.
const SHOWN: usize = 60;

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |value: &Option<Json>| match value.as_ref().map(Json::to_string) {
            None => "-".to_owned(),
            Some(text) if text.chars().count() > SHOWN => {
                let start: String = text.chars().take(SHOWN).collect();
                format!("{start}…")
            }
            Some(text) => text,
        };
        write!(
            f,
            "{}: {} -> {}",
            self.setting,
            short(&self.old),
            short(&self.new)
        )
    }
}

/// All differences, in the order of the settings' names.
pub fn differences(old: &Table, new: &Table) -> Vec<Difference> {
    let mut found = Vec::new();
    tables(old, new, "", &mut found);
    found
}

fn tables(old: &Table, new: &Table, path: &str, found: &mut Vec<Difference>) {
    let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        values(old.get(key), new.get(key), &path, found);
    }
}

fn values(old: Option<&Value>, new: Option<&Value>, path: &str, found: &mut Vec<Difference>) {
    match (old, new) {
        (old, new) if old == new => {}
        (Some(Value::Table(old)), Some(Value::Table(new))) => tables(old, new, path, found),
        (None, Some(Value::Table(new))) if !new.is_empty() => tables(&Table::new(), new, path, found),
        (Some(Value::Table(old)), None) if !old.is_empty() => tables(old, &Table::new(), path, found),
        (old, new) => match (old.map(named), new.map(named)) {
            (Some(Some(old)), Some(Some(new))) => lists(&old, &new, path, found),
            _ => found.push(Difference {
                function: function_of(path),
                setting: path.to_owned(),
                old: old.map(json),
                new: new.map(json),
            }),
        },
    }
}

/// A value as JSON has it.
fn json(value: &Value) -> Json {
    serde_json::to_value(value).unwrap_or_default()
}

/// The tables of a list by their names, if all have one and no two the same.
fn named(value: &Value) -> Option<Vec<(&str, &Table)>> {
    let list = value.as_array()?;
    let mut all: Vec<(&str, &Table)> = Vec::new();
    for entry in list {
        let table = entry.as_table()?;
        let name = table.get("name")?.as_str()?;
        if all.iter().any(|(other, _)| *other == name) {
            return None;
        }
        all.push((name, table));
    }
    Some(all)
}

fn lists(old: &[(&str, &Table)], new: &[(&str, &Table)], path: &str, found: &mut Vec<Difference>) {
    let find = |list: &[(&str, &Table)], name: &str| -> Option<Table> {
        list.iter()
            .find(|(other, _)| *other == name)
            .map(|(_, table)| (*table).clone())
    };
    let only_new = new.iter().filter(|(name, _)| find(old, name).is_none());
    for (name, _) in old.iter().chain(only_new) {
        let path = format!("{path}[{name}]");
        match (find(old, name), find(new, name)) {
            (Some(old), Some(new)) => tables(&old, &new, &path, found),
            (old, new) => found.push(Difference {
                function: function_of(&path),
                setting: path,
                old: old.map(|table| json(&Value::Table(table))),
                new: new.map(|table| json(&Value::Table(table))),
            }),
        }
    }
    let order = |list: &[(&str, &Table)], other: &[(&str, &Table)]| -> Vec<String> {
        let both = list
            .iter()
            .filter(|(name, _)| other.iter().any(|(known, _)| known == name));
        both.map(|(name, _)| (*name).to_owned()).collect()
    };
    let (before, now) = (order(old, new), order(new, old));
    // A new table in between leaves the order of the others as it is, but it may stand before a
    // table whose packets it takes.
    if before != now {
        found.push(Difference {
            function: function_of(path),
            setting: format!("{path} order"),
            old: Some(Json::from(before)),
            new: Some(Json::from(now)),
        });
    }
}

fn function_of(path: &str) -> Option<String> {
    let rest = path.strip_prefix("function.")?;
    Some(rest.split(['.', '[']).next().unwrap_or(rest).to_owned())
}

/// Whether packets of a chain wait for copies in one and for the store in the other: they could
/// leave before others that wait.
fn changes_what_is_waited_for(before: &Config, now: &Config) -> bool {
    use crate::config::ReplicationPolicy::{Commit, StoreCommit};
    let policy = |config: &Config, name: &str| {
        let chain = config.chain.iter().find(|chain| chain.name == name)?;
        let policy = chain.replication.unwrap_or(config.replication.policy);
        matches!(policy, Commit | StoreCommit).then_some(policy)
    };
    let mut names = before.chain.iter().map(|chain| &*chain.name);
    names.any(|name| match (policy(before, name), policy(now, name)) {
        (Some(was), Some(is)) => was != is,
        _ => false,
    })
}

/// Whether policies of chains want another kind of copies than the cluster was started with.
pub(super) fn changes_copies(before: &Config, now: &Config) -> bool {
    before.keeps_copies() != now.keeps_copies()
        || before.keeps_stored() != now.keeps_stored()
        || changes_what_is_waited_for(before, now)
}

/// Differences of settings that are fixed when a cluster starts.
pub(super) fn fixed(before: &Config, now: &Config, differences: &[Difference]) -> Vec<Fixed> {
    let same = [
        ("runtimes", before.runtimes == now.runtimes),
        ("switches", before.switches == now.switches),
        ("threads", before.threads == now.threads),
        ("idle", before.idle == now.idle),
        ("clock", before.clock == now.clock),
        ("flows_max", before.flows_max == now.flows_max),
        ("waiting_max", before.waiting_max == now.waiting_max),
        ("held_max", before.held_max == now.held_max),
        ("policy", before.policy == now.policy),
        ("inside", before.inside == now.inside),
        ("port", before.port == now.port),
        ("migration", before.migration == now.migration),
        (
            "replication",
            before.replication == now.replication && !changes_copies(before, now),
        ),
        ("user", before.user == now.user),
        ("control", before.control == now.control),
        ("metrics", before.metrics == now.metrics),
        ("log", before.log == now.log),
        ("store", before.store == now.store),
    ];
    let mut all = Vec::new();
    for (setting, _) in same.iter().filter(|(_, same)| !same) {
        let parts = differences.iter().filter(|difference| difference.is_of(setting));
        let before = all.len();
        all.extend(parts.map(|difference| Fixed {
            setting: difference.setting.clone(),
            remedy: "restart".to_owned(),
        }));
        if all.len() == before {
            all.push(Fixed {
                setting: (*setting).to_owned(),
                remedy: "restart".to_owned(),
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(old: &str, new: &str) -> Vec<String> {
        let (old, new) = (old.parse().unwrap(), new.parse().unwrap());
        differences(&old, &new).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_setting_that_differs_is_named_with_both_values() {
        let old = "runtimes = 2\n[[function.firewall.rules]]\nname = \"web\"\naction = \"allow\"\n[[function.firewall.rules]]\nname = \"dns\"\naction = \"allow\"\n";
        let new = "runtimes = 2\n[function.nat]\npool = [\"203.0.113.0/28\"]\n[[function.firewall.rules]]\nname = \"dns\"\naction = \"allow\"\n[[function.firewall.rules]]\nname = \"web\"\naction = \"drop\"\n[[function.firewall.rules]]\nname = \"ssh\"\naction = \"allow\"\n";
        let found = of(old, new);
        assert_eq!(
            found,
            [
                "function.firewall.rules[web].action: \"allow\" -> \"drop\"",
                "function.firewall.rules[ssh]: - -> {\"action\":\"allow\",\"name\":\"ssh\"}",
                "function.firewall.rules order: [\"web\",\"dns\"] -> [\"dns\",\"web\"]",
                "function.nat.pool: - -> [\"203.0.113.0/28\"]",
            ]
        );
        assert!(of(new, new).is_empty());
    }

    #[test]
    fn lists_without_names_differ_as_a_whole() {
        assert_eq!(of("a = [1, 2]", "a = [1, 3]"), ["a: [1,2] -> [1,3]"]);
        let twice = "a = [{ name = \"x\", b = 1 }, { name = \"x\", b = 2 }]";
        assert_eq!(of(twice, "a = []").len(), 1);
    }
}
