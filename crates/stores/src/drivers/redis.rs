//! `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, Redis 7 and Valkey; `rediss://…[?SETTING=FILE&…]` the same over TLS.
//!
//! | setting, of `rediss` | is a file in PEM |
//! |---|---|
//! | `ca` | who signed the server's certificate; without it, the authorities that the system trusts |
//! | `cert`, `key` | our own certificate and its key, for a server that asks for one |
//!
//! Keys, for a function's instance `nat@edge1@0`; the braces keep a partition in one slot of a cluster:
//!
//! | key | type | what |
//! |---|---|---|
//! | `{nat@edge1@0}` | hash | `epoch` and `sequence` of the partition |
//! | `{nat@edge1@0}@Map@mappings` | hash | the variable's fields |
//! | `flowkeep@partitions@nat` | set | the partitions of the function |
//! | `flowkeep@record@…` | string | a record |
//!
//! A batch is one run of a script, so it is whole or not at all for whoever reads; all batches are sent before the first answer is awaited. The script
//! compares versions and writes them last: should it fail in its middle (memory is full, a key has another type), the batch is not
//! stored, and its repetition writes the same.
//!
//! What the store keeps through its own end is its configuration: `appendonly yes` with `appendfsync everysec` loses a second, which
//! the workers write again. `maxmemory-policy` has to be `noeviction`: a server that evicts keys loses variables that nothing
//! notices.
//!
//! An answer that is not the protocol's, or not of the kind that was asked for, ends the connection; the next call makes another.

use crate::batch::{Batch, Change};
use crate::driver::{Driver, Failure, Outcome, Swapped, Version};
use crate::name::{Part, PartitionName, VariableName};
use crate::uri::without_secret;
use redis::{
    Client, ClientTlsConfig, Cmd, Connection, ConnectionLike, ErrorKind, IntoConnectionInfo, RedisError,
    TlsCertificates, Value,
};
use std::collections::HashMap;
use std::time::Duration;

/// How long a call waits for the server.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// KEYS: the version, then variables. ARGV: epoch, sequence, then changes: `P` key field value, `R` key field, `C` key.
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

/// A store on a server.
pub struct Redis {
    client: Client,
    connection: Option<Connection>,
    /// Without a password.
    name: String,
    patience: Duration,
}

impl Redis {
    /// Knows the server; the first call connects. Each call waits for `patience` at most, and connecting does so too.
    pub fn new(uri: &str, patience: Duration) -> Result<Self, Failure> {
        let name = without_secret(uri);
        let (address, settings) = match uri.strip_prefix("rediss:").and_then(|_| uri.split_once('?')) {
            Some((address, settings)) => (address, settings),
            None => (uri, ""),
        };
        let info = address.into_connection_info().map_err(|error| {
            Failure::new(
                &name,
                format!("it is no address of a server ({error})"),
                "write redis://USER:PASSWORD@HOST:PORT/DATABASE, where all but the host may be left out",
            )
        })?;
        let client = if uri.starts_with("rediss:") {
            // Where more than one is built in, rustls wants one to be chosen. A choice that was made before stays.
            let _ = rustls::crypto::ring::default_provider().install_default();
            Client::build_with_tls(info, certificates(&name, settings)?)
        } else {
            Client::open(info)
        };
        let client = client.map_err(|error| failure(&name, &error))?;
        Ok(Redis {
            client,
            connection: None,
            name,
            patience,
        })
    }

    /// Sends commands in one go, and reads their answers. Any failure ends the connection.
    fn ask(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Failure> {
        let asked = self.try_ask(commands);
        if asked.is_err() {
            self.connection = None;
        }
        asked
    }

    fn try_ask(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Failure> {
        let failed = |error: RedisError| failure(&self.name, &error);
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let connection = self
                    .client
                    .get_connection_with_timeout(self.patience)
                    .map_err(failed)?;
                connection.set_read_timeout(Some(self.patience)).map_err(failed)?;
                connection
                    .set_write_timeout(Some(self.patience))
                    .map_err(failed)?;
                none.insert(connection)
            }
        };
        let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
        let answers = connection
            .req_packed_commands(&packed, 0, commands.len())
            .map_err(failed)?;
        if answers.len() != commands.len() {
            return Err(self.nonsense());
        }
        Ok(answers)
    }

    /// Runs a script once, by its text.
    fn run(&mut self, script: &str, key: &str, arguments: &[&[u8]]) -> Result<Value, Failure> {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg(key);
        for argument in arguments {
            command.arg(*argument);
        }
        let answer = self.ask(&[command])?.pop();
        answer
            .ok_or_else(|| self.nonsense())
            .and_then(|answer| self.good(answer))
    }

    /// An answer, unless it is an error. An error is the command's and leaves the connection as it is.
    fn good(&self, answer: Value) -> Result<Value, Failure> {
        answer
            .extract_error()
            .map_err(|error| failure(&self.name, &error))
    }

    /// An answer that none of ours can get: the connection is worth nothing.
    fn nonsense(&self) -> Failure {
        Failure::new(
            &self.name,
            "its answer is not one to what was asked",
            "see that the address is that of a Redis or Valkey server",
        )
    }

    fn outcome(&self, answer: Value) -> Result<Outcome, Failure> {
        match text(&self.good(answer)?) {
            Some("stored") => Ok(Outcome::Stored),
            Some("fenced") => Ok(Outcome::Fenced),
            Some("forgotten") => Ok(Outcome::Forgotten),
            _ => Err(self.nonsense()),
        }
    }

    /// As [`Self::outcome`], and ends the connection where it is nonsense.
    fn heard<T>(&mut self, heard: Option<T>) -> Result<T, Failure> {
        heard.ok_or_else(|| {
            self.connection = None;
            self.nonsense()
        })
    }
}

/// The files that the settings of a `rediss` URI name.
fn certificates(name: &str, settings: &str) -> Result<TlsCertificates, Failure> {
    let (mut ca, mut cert, mut key) = (None, None, None);
    for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
        let (what, path) = setting.split_once('=').unwrap_or((setting, ""));
        let place = match what {
            "ca" => &mut ca,
            "cert" => &mut cert,
            "key" => &mut key,
            _ => {
                let problem = format!("there is no setting `{what}`");
                return Err(Failure::new(
                    name,
                    problem,
                    "write ?ca=FILE&cert=FILE&key=FILE, or fewer",
                ));
            }
        };
        let pem = std::fs::read(path).map_err(|error| {
            let remedy = "name a file in PEM that this process may read";
            Failure::new(name, format!("`{what}` is {path}: {error}"), remedy)
        })?;
        *place = Some(pem);
    }
    let client_tls = match (cert, key) {
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig {
            client_cert,
            client_key,
        }),
        (None, None) => None,
        _ => {
            return Err(Failure::new(
                name,
                "it has one of `cert` and `key`",
                "write both, or neither",
            ));
        }
    };
    Ok(TlsCertificates {
        client_tls,
        root_cert: ca,
    })
}

/// A server's error, and what a person may do.
fn failure(name: &str, error: &RedisError) -> Failure {
    let code = error.code().unwrap_or_default();
    let remedy = match (code, error.kind()) {
        ("WRONGPASS" | "NOAUTH", _) | (_, ErrorKind::AuthenticationFailed) => {
            "set the user and the password that the server knows: redis://USER:PASSWORD@HOST"
        }
        ("NOPERM", _) => {
            "give the user the commands EVAL, HSET, HDEL, DEL, HGETALL, HMGET, HGET, SADD, SMEMBERS, GET, SET \
             and the keys that begin with `{` or `flowkeep@`"
        }
        ("OOM", _) => "raise the server's `maxmemory`, or remove what it has besides; changes wait meanwhile",
        ("READONLY", _) => "it is a replica: name the primary; changes wait meanwhile",
        ("MISCONF", _) => "the server cannot write to its disk: see its log; changes wait meanwhile",
        ("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "BUSY", _) => {
            "it is tried again until the server is ready"
        }
        ("WRONGTYPE", _) => "something else has written a key of ours: remove it, or set another database",
        ("MOVED" | "ASK" | "CROSSSLOT", _) => {
            "clusters of Redis are not supported yet: name a server that is by itself"
        }
        (_, ErrorKind::InvalidClientConfig) => "see that `ca`, `cert` and `key` are files in PEM",
        _ if error.to_string().contains("certificate") => {
            "name who signed the server's certificate, for this very host: rediss://HOST?ca=FILE; \
             and a certificate of our own where the server asks for one: &cert=FILE&key=FILE"
        }
        (_, ErrorKind::Parse) => "see that the address is that of a Redis or Valkey server",
        (_, ErrorKind::Io) => {
            "see that the server runs and that nothing is in the way; changes wait meanwhile"
        }
        _ => "see the server's log; it is tried again",
    };
    Failure::new(name, error.to_string(), remedy)
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
        let mut known = redis::cmd("SADD");
        known
            .arg(partitions_key(partition.function()))
            .arg(partition.to_string());
        for answer in self.ask(&[known])? {
            self.good(answer)?;
        }
        let at_least = at_least.to_string();
        let answer = self.run(CLAIM, &version_key(partition), &[at_least.as_bytes()])?;
        let epoch = text(&answer).and_then(|text| text.parse().ok());
        self.heard(epoch)
    }

    fn version(&mut self, partition: &PartitionName) -> Result<Option<Version>, Failure> {
        let mut command = redis::cmd("HMGET");
        command.arg(version_key(partition)).arg("epoch").arg("sequence");
        let answer = self.ask(&[command])?.pop().unwrap_or(Value::Nil);
        let version = match self.good(answer)? {
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
        for answer in self.ask(&commands)? {
            match self.outcome(answer) {
                Ok(outcome) => outcomes.push(outcome),
                // Outcomes are in the batches' order: those behind wait for the repetition too.
                Err(failure) => {
                    self.connection = None;
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
        let answer = self.ask(&[command])?.pop().unwrap_or(Value::Nil);
        let fields = match self.good(answer)? {
            Value::Array(fields) => pairs(&fields),
            _ => None,
        };
        for (field, value) in self.heard(fields)? {
            element(&field, &value);
        }
        Ok(())
    }

    fn partitions(&mut self, function: &str) -> Result<Vec<PartitionName>, Failure> {
        let mut command = redis::cmd("SMEMBERS");
        command.arg(partitions_key(function));
        let answer = self.ask(&[command])?.pop().unwrap_or(Value::Nil);
        let names = match self.good(answer)? {
            Value::Array(names) | Value::Set(names) => {
                Some(names.iter().filter_map(|name| text(name)?.parse().ok()).collect())
            }
            _ => None,
        };
        self.heard(names)
    }

    fn variables(&mut self) -> Result<Vec<VariableName>, Failure> {
        let mut found = std::collections::BTreeSet::new();
        let mut cursor = "0".to_owned();
        loop {
            let mut command = redis::cmd("SCAN");
            command
                .arg(&cursor)
                .arg("MATCH")
                .arg("{*}@*")
                .arg("COUNT")
                .arg(1000);
            let answer = self.ask(&[command])?.pop().unwrap_or(Value::Nil);
            let answer = self.good(answer)?;
            let page = match &answer {
                Value::Array(page) => match page.as_slice() {
                    [next, Value::Array(keys)] => text(next).map(|next| (next.to_owned(), keys)),
                    _ => None,
                },
                _ => None,
            };
            let (next, keys) = self.heard(page)?;
            // What else the server has is none of ours.
            let names = keys.iter().filter_map(|key| {
                let (partition, rest) = text(key)?.strip_prefix('{')?.split_once('}')?;
                format!("{partition}{rest}").parse::<VariableName>().ok()
            });
            found.extend(names);
            if next == "0" {
                return Ok(found.into_iter().collect());
            }
            cursor = next;
        }
    }

    fn record(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let mut command = redis::cmd("GET");
        command.arg(record_key(name));
        let answer = self.ask(&[command])?.pop().unwrap_or(Value::Nil);
        let answer = self.good(answer)?;
        let record = bytes(&answer).map(|record| record.map(<[u8]>::to_vec));
        self.heard(record)
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

/// Fields and their values; `None` if it is something else.
fn pairs(fields: &[Value]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let (pairs, []) = fields.as_chunks::<2>() else {
        return None;
    };
    let owned = |value: &Value| bytes(value).flatten().map(<[u8]>::to_vec);
    pairs
        .iter()
        .map(|[field, value]| Some((owned(field)?, owned(value)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
