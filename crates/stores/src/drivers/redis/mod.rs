//! `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, Redis 7 and Valkey;
//! `rediss://…[?SETTING=FILE&…]` the same over TLS.
//!
//! | setting, of `rediss` | is a file in PEM |
//! |---|---|
//! | `ca` | the authority that signed the server's certificate; without it, those that the system trusts |
//! | `cert`, `key` | our own certificate and its key, for a server that asks for one |
//!
//! With `?cluster`, or `&cluster` behind other settings, the hosts are nodes of a cluster:
//! `redis://HOST[:PORT][,HOST…]?cluster`. One node that answers is enough. The commands go to the
//! node that has the partition's slot ([`link`]).
//!
//! Keys, for a function's instance `nat@edge1@0`; the braces keep a partition in one slot of a
//! cluster:
//!
//! | key | type | what |
//! |---|---|---|
//! | `{nat@edge1@0}` | hash | `epoch` and `sequence` of the partition |
//! | `{nat@edge1@0}@Map@mappings` | hash | the variable's fields |
//! | `flowkeep@partitions@nat` | set | the partitions of the function; none in a cluster |
//! | `flowkeep@record@…` | string | a record |
//!
//! A batch is one run of a script, so it is whole or not at all for its readers; all batches are
//! sent before the first answer is awaited. The script compares versions and writes them last:
//! should it fail in its middle (memory is full, a key has another type), the batch is not stored,
//! and its repetition writes the same.
//!
//! How much the store keeps through its own end depends on its configuration: `appendonly yes` with
//! `appendfsync everysec` loses a second, which the workers write again. `maxmemory-policy` has to
//! be `noeviction`: a server that evicts keys loses variables that nothing notices.
//!
//! An answer that is not the protocol's, or not of the kind that was asked for, ends the
//! connection; the next call makes another.

mod link;

use crate::batch::{Batch, Change};
use crate::driver::{Driver, Failure, Outcome, Swapped, Version};
use crate::name::{Part, PartitionName, VariableName, unescaped};
use link::Link;
use redis::{Cmd, Value};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// How long a call waits for each part of an answer. Neither that nor anything else here bounds how
/// long an answer is: where a server may be hostile, the driver runs apart ([`crate::apart`]).
pub const PATIENCE: Duration = Duration::from_secs(2);

/// KEYS: the version, then variables. ARGV: epoch, sequence, then changes: `P` key field value, `R`
/// key field, `C` key.
const WRITE: &str = r"
local v = redis.call('HMGET', KEYS[1], 'epoch', 'sequence')
local epoch, sequence = tonumber(v[1] or 0), tonumber(v[2] or 0)
local e, s = tonumber(ARGV[1]), tonumber(ARGV[2])
if epoch > e then return 'fenced' end
if epoch == e and sequence >= s then return 'stored' end
if epoch < e or sequence < s - 1 then return 'forgotten' end
local i = 3
while i <= #ARGV do
  local key = KEYS[tonumber(ARGV[i + 1])]
  if ARGV[i] == 'P' then
    redis.call('HSET', key, ARGV[i + 2], ARGV[i + 3])
    i = i + 4
  elseif ARGV[i] == 'R' then
    redis.call('HDEL', key, ARGV[i + 2])
    i = i + 3
  else
    redis.call('DEL', key)
    i = i + 2
  end
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'sequence', ARGV[2])
return 'stored'
";

const CLAIM: &str = r"
local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0)
local new = math.max(epoch + 1, tonumber(ARGV[1]))
redis.call('HSET', KEYS[1], 'epoch', string.format('%.0f', new), 'sequence', '0')
return string.format('%.0f', new)
";

const RESTORE: &str = r"
local v = redis.call('HMGET', KEYS[1], 'epoch', 'sequence')
local epoch, sequence = tonumber(v[1] or 0), tonumber(v[2] or 0)
local e, s = tonumber(ARGV[1]), tonumber(ARGV[2])
if epoch > e then return 'fenced' end
if epoch < e or sequence < s then
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'sequence', ARGV[2])
end
return 'stored'
";

/// ARGV: whether one is expected, it, whether there is a new one, it.
const SWAP: &str = r"
local has = redis.call('GET', KEYS[1])
local same = (ARGV[1] == '1' and has == ARGV[2]) or (ARGV[1] == '0' and not has)
if not same then return {'other', has} end
if ARGV[3] == '1' then redis.call('SET', KEYS[1], ARGV[4]) else redis.call('DEL', KEYS[1]) end
return {'done'}
";

/// A store on a server, or on a cluster.
pub struct Redis {
    link: Link,
}

impl Redis {
    /// Knows the server; the first call connects. Each call waits for `patience` at most, and
    /// connecting does so too; of a cluster a few times that, since a command may be sent on.
    pub fn new(uri: &str, patience: Duration) -> Result<Self, Failure> {
        let link = Link::new(uri, patience)?;
        Ok(Redis { link })
    }

    /// Sends a command, and passes its answer on, unless that is an error.
    fn say(&mut self, command: Cmd) -> Result<Value, Failure> {
        let answer = self.link.ask(&[command])?.pop();
        self.heard(answer).and_then(|answer| self.link.good(answer))
    }

    /// Runs a script once, by its text.
    fn run(&mut self, script: &str, key: &str, arguments: &[&[u8]]) -> Result<Value, Failure> {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg(key);
        for argument in arguments {
            command.arg(*argument);
        }
        self.say(command)
    }

    fn outcome(&mut self, answer: Value) -> Result<Outcome, Failure> {
        let outcome = match text(&self.link.good(answer)?) {
            Some("stored") => Some(Outcome::Stored),
            Some("fenced") => Some(Outcome::Fenced),
            Some("forgotten") => Some(Outcome::Forgotten),
            _ => None,
        };
        self.heard(outcome)
    }

    /// The answer, unless it is nonsense: that ends the connection.
    fn heard<T>(&mut self, heard: Option<T>) -> Result<T, Failure> {
        heard.ok_or_else(|| self.link.nonsense())
    }

    /// Has the function's partitions listed. In a cluster the list would be in another slot than
    /// the partition, and each be lost without the other: there the nodes are asked for their keys.
    fn list(&mut self, partition: &PartitionName) -> Result<(), Failure> {
        if self.link.is_cluster() {
            return Ok(());
        }
        let mut known = redis::cmd("SADD");
        known
            .arg(partitions_key(partition.function()))
            .arg(partition.to_string());
        let known = match self.say(known)? {
            Value::Int(_) => Some(()),
            _ => None,
        };
        self.heard(known)
    }

    /// All keys of this form, each once.
    fn keys(&mut self, form: &str) -> Result<BTreeSet<String>, Failure> {
        let mut found = BTreeSet::new();
        for place in self.link.places()? {
            let mut cursor = "0".to_owned();
            // A server names each place once, and ends.
            let mut seen = BTreeSet::new();
            loop {
                let mut command = redis::cmd("SCAN");
                command.arg(&cursor).arg("MATCH").arg(form).arg("COUNT").arg(1000);
                let answer = self.link.ask_at(place.as_ref(), &command)?;
                let answer = self.link.good(answer)?;
                let page = match &answer {
                    Value::Array(page) => match page.as_slice() {
                        [next, Value::Array(keys)] => text(next)
                            .filter(|next| seen.insert((*next).to_owned()))
                            .map(|next| (next.to_owned(), keys)),
                        _ => None,
                    },
                    _ => None,
                };
                let (next, keys) = self.heard(page)?;
                found.extend(keys.iter().filter_map(|key| text(key).map(str::to_owned)));
                if next == "0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok(found)
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn bytes(value: &Value) -> Option<Option<&[u8]>> {
    match value {
        Value::Nil => Some(None),
        Value::BulkString(bytes) => Some(Some(bytes)),
        _ => None,
    }
}

fn version_key(partition: &PartitionName) -> String {
    format!("{{{partition}}}")
}

fn variable_key(variable: &VariableName) -> String {
    format!("{{{}}}@{}", variable.partition(), variable.local_key())
}

fn partitions_key(function: &str) -> String {
    format!("flowkeep@partitions@{}", Part(function))
}

fn record_key(name: &str) -> String {
    format!("flowkeep@record@{}", Part(name))
}

/// A batch as a run of the script.
fn command(batch: &Batch<'_>) -> Cmd {
    let mut keys: HashMap<&VariableName, usize> = HashMap::new();
    let mut order = Vec::new();
    for change in batch.changes() {
        let (Change::Clear { variable } | Change::Put { variable, .. } | Change::Remove { variable, .. }) =
            change;
        keys.entry(variable).or_insert_with(|| {
            order.push(variable);
            order.len() + 1
        });
    }
    let mut command = redis::cmd("EVAL");
    command
        .arg(WRITE)
        .arg(order.len() + 1)
        .arg(version_key(batch.partition));
    for variable in order {
        command.arg(variable_key(variable));
    }
    command.arg(batch.version.epoch).arg(batch.version.sequence);
    let key = |variable| keys.get(variable).copied().unwrap_or_default();
    for change in batch.changes() {
        match change {
            Change::Clear { variable } => command.arg("C").arg(key(variable)),
            Change::Put {
                variable,
                field,
                value,
            } => command.arg("P").arg(key(variable)).arg(field).arg(value),
            Change::Remove { variable, field } => command.arg("R").arg(key(variable)).arg(field),
        };
    }
    command
}

impl Driver for Redis {
    fn claim(&mut self, partition: &PartitionName, at_least: u64) -> Result<u64, Failure> {
        self.list(partition)?;
        let at_least = at_least.to_string();
        let answer = self.run(CLAIM, &version_key(partition), &[at_least.as_bytes()])?;
        let epoch = text(&answer).and_then(|text| text.parse().ok());
        self.heard(epoch)
    }

    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure> {
        let mut command = redis::cmd("HMGET");
        command.arg(version_key(partition)).arg("epoch").arg("sequence");
        let version = match self.say(command)? {
            Value::Array(fields) => match fields.as_slice() {
                [Value::Nil, Value::Nil] => Some(None),
                [epoch, sequence] => number(epoch)
                    .zip(number(sequence))
                    .map(|(epoch, sequence)| Some(Version { epoch, sequence })),
                _ => None,
            },
            _ => None,
        };
        self.heard(version)
    }

    fn restore(&mut self, partition: &PartitionName, version: Version) -> Result<Outcome, Failure> {
        // A server that has lost its data has lost the list too.
        self.list(partition)?;
        let (epoch, sequence) = (version.epoch.to_string(), version.sequence.to_string());
        let arguments = [epoch.as_bytes(), sequence.as_bytes()];
        let answer = self.run(RESTORE, &version_key(partition), &arguments)?;
        self.outcome(answer)
    }

    fn write(&mut self, batches: &[Batch<'_>], outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
        if batches.is_empty() {
            return Ok(());
        }
        let commands: Vec<Cmd> = batches.iter().map(command).collect();
        for answer in self.link.ask(&commands)? {
            match self.outcome(answer) {
                Ok(outcome) => outcomes.push(outcome),
                // Outcomes are in the batches' order: those behind wait for the repetition too.
                Err(failure) => {
                    self.link.cut();
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    fn load(
        &mut self,
        variable: &VariableName,
        element: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Failure> {
        let mut command = redis::cmd("HGETALL");
        command.arg(variable_key(variable));
        let fields = match self.say(command)? {
            Value::Array(fields) => pairs(fields),
            _ => None,
        };
        for (field, value) in self.heard(fields)? {
            element(&field, &value);
        }
        Ok(())
    }

    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure> {
        if self.link.is_cluster() {
            let keys = self.keys(&format!("{{{}@*}}", Part(function)))?;
            let name = |key: &String| key.strip_prefix('{')?.strip_suffix('}')?.parse().ok();
            return Ok(keys.iter().filter_map(name).collect());
        }
        let mut command = redis::cmd("SMEMBERS");
        command.arg(partitions_key(function));
        let names = match self.say(command)? {
            Value::Array(names) | Value::Set(names) => names
                .iter()
                .map(|name| bytes(name).flatten().map(|_| text(name)))
                .collect::<Option<Vec<Option<&str>>>>()
                .map(|names| names.iter().filter_map(|name| (*name)?.parse().ok()).collect()),
            _ => None,
        };
        self.heard(names)
    }

    fn variables(&mut self) -> Result<Vec<VariableName>, Failure> {
        // Other keys of the server are none of ours.
        let name = |key: &String| {
            let (partition, rest) = key.strip_prefix('{')?.split_once('}')?;
            format!("{partition}{rest}").parse::<VariableName>().ok()
        };
        let found: BTreeSet<_> = self.keys("{*}@*")?.iter().filter_map(name).collect();
        Ok(found.into_iter().collect())
    }

    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let mut command = redis::cmd("GET");
        command.arg(record_key(name));
        let answer = self.say(command)?;
        let record = bytes(&answer).map(|record| record.map(<[u8]>::to_vec));
        self.heard(record)
    }

    fn records(&mut self) -> Result<Vec<String>, Failure> {
        let prefix = record_key("");
        let name = |key: &String| unescaped(key.strip_prefix(&prefix)?);
        let found: BTreeSet<_> = self
            .keys(&format!("{prefix}*"))?
            .iter()
            .filter_map(name)
            .collect();
        Ok(found.into_iter().collect())
    }

    fn swap(&mut self, name: &str, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swapped, Failure> {
        let flag = |value: Option<&[u8]>| if value.is_some() { &b"1"[..] } else { b"0" };
        let arguments = [
            flag(expected),
            expected.unwrap_or_default(),
            flag(new),
            new.unwrap_or_default(),
        ];
        let answer = self.run(SWAP, &record_key(name), &arguments)?;
        let swapped = match &answer {
            Value::Array(parts) => match parts.as_slice() {
                [said] if text(said) == Some("done") => Some(Swapped::Done),
                // A script's `false` ends an array early, or is nil.
                [said] if text(said) == Some("other") => Some(Swapped::Other(None)),
                [said, has] if text(said) == Some("other") => {
                    bytes(has).map(|has| Swapped::Other(has.map(<[u8]>::to_vec)))
                }
                _ => None,
            },
            _ => None,
        };
        self.heard(swapped)
    }
}

fn number(value: &Value) -> Option<u64> {
    text(value)?.parse().ok()
}

/// Fields and their values, without a copy of them; `None` if it is something else.
fn pairs(fields: Vec<Value>) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    if !fields.len().is_multiple_of(2) {
        return None;
    }
    let owned = |value| match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    };
    let mut pairs = Vec::with_capacity(fields.len() / 2);
    let mut fields = fields.into_iter();
    while let (Some(field), Some(value)) = (fields.next(), fields.next()) {
        pairs.push((owned(field)?, owned(value)?));
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uri::without_secret;

    #[test]
    fn a_password_is_not_shown() {
        for uri in ["redis://me:se@cret@host:1/2", "redis://:secret@host:1/2"] {
            assert_eq!(without_secret(uri), "redis://…@host:1/2");
        }
        assert_eq!(without_secret("redis://host"), "redis://host");
        let failure = Redis::new("redis://me:secret@host:99999/x", PATIENCE)
            .err()
            .unwrap()
            .to_string();
        assert!(
            !failure.contains("secret") && failure.contains("redis://USER"),
            "{failure}"
        );
    }
}
