//! The way to a Redis server, or to the nodes of a cluster: addresses, connections, commands and
//! their answers.
//!
//! ```text
//!   one server    commands ═ one go ═► server
//!   cluster       commands ─ by slot of the first key ─► node      MOVED, ASK: the library asks the node that has the slot
//! ```
//!
//! Any failure ends the connection, of a cluster all of them: the next call connects to the first
//! node that answers, of the nodes in the URI and the nodes heard of last, and learns from it which
//! node has which slots. A cluster that has lost slots answers so to each command; the call is
//! tried again until a replica has them.

use crate::driver::Failure;
use crate::uri::without_secret;
use redis::cluster::{ClusterClient, ClusterConnection, cluster_pipe};
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{
    Client, ClientTlsConfig, Cmd, Connection, ConnectionInfo, ConnectionLike, ErrorKind, IntoConnectionInfo,
    RedisError, RedisResult, TlsCertificates, Value,
};
use std::time::Duration;

/// How often a command of a cluster is sent again within a call: to where it was moved to, and from
/// there.
const REDIRECTIONS: u32 = 2;
/// How long between two of those, in milliseconds.
const PAUSE_MS: u64 = 20;

/// The first version that is served: of an earlier one nothing was tried.
const VERSION_MIN: u32 = 7;

/// Host and port of a node.
pub type Node = (String, u16);

enum Way {
    Server(Client),
    Cluster {
        /// Scheme, user and password, as each node's address has them in front.
        before: String,
        /// As the URI names them.
        seeds: Vec<String>,
        certificates: Option<TlsCertificates>,
        /// As the cluster named them last.
        known: Vec<Node>,
    },
}

enum Line {
    Server(Connection),
    Cluster(Box<ClusterConnection>),
}

/// A server, or a cluster, and the connection to it while there is one.
pub struct Link {
    way: Way,
    line: Option<Line>,
    /// Without a password.
    pub name: String,
    patience: Duration,
}

impl Link {
    /// Knows the server; the first call connects.
    pub fn new(uri: &str, patience: Duration) -> Result<Self, Failure> {
        let name = without_secret(uri);
        let (address, settings) = match uri.split_once('?') {
            // Settings of others behind a server's address are the library's.
            Some((address, settings)) if uri.starts_with("rediss:") || names_cluster(settings) => {
                (address, settings)
            }
            _ => (uri, ""),
        };
        let has_tls = uri.starts_with("rediss:");
        if has_tls {
            // Where more than one is built in, rustls wants one to be chosen. A choice that was
            // made before stays.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let way = if names_cluster(settings) {
            cluster(&name, address, settings, has_tls)?
        } else {
            let info = info(&name, address)?;
            let client = match has_tls {
                true => Client::build_with_tls(info, certificates(&name, settings)?),
                false => Client::open(info),
            };
            Way::Server(client.map_err(|error| failure(&name, &error))?)
        };
        Ok(Link {
            way,
            line: None,
            name,
            patience,
        })
    }

    /// Whether it is a cluster.
    pub fn is_cluster(&self) -> bool {
        matches!(self.way, Way::Cluster { .. })
    }

    /// Ends the connection: its answers are worth nothing.
    pub fn cut(&mut self) {
        self.line = None;
    }

    /// Sends commands in one go, and reads their answers.
    pub fn ask(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Failure> {
        self.on_line(|line| match line {
            Line::Server(connection) => {
                let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
                connection.req_packed_commands(&packed, 0, commands.len())
            }
            Line::Cluster(connection) => match commands {
                [command] => Ok(vec![connection.req_command(command)?]),
                _ => {
                    let mut all = cluster_pipe();
                    for command in commands {
                        all.add_command(command.clone());
                    }
                    all.query(connection)
                }
            },
        })
        .and_then(|answers| match answers.len() == commands.len() {
            true => Ok(answers),
            false => Err(self.nonsense()),
        })
    }

    /// Sends a command to a node, or where none is named to the server that there is.
    pub fn ask_at(&mut self, node: Option<&Node>, command: &Cmd) -> Result<Value, Failure> {
        let routing = match node {
            Some((host, port)) => SingleNodeRoutingInfo::ByAddress {
                host: host.clone(),
                port: *port,
            },
            None => SingleNodeRoutingInfo::Random,
        };
        self.on_line(|line| match line {
            Line::Server(connection) => connection.req_command(command),
            Line::Cluster(connection) => connection.route_command(command, RoutingInfo::SingleNode(routing)),
        })
    }

    /// Where keys are: each node of a cluster that is no replica, or the one server.
    pub fn places(&mut self) -> Result<Vec<Option<Node>>, Failure> {
        if !self.is_cluster() {
            return Ok(vec![None]);
        }
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        let answer = self.ask_at(None, &slots)?;
        let primaries: Option<Vec<Node>> = ranges(&answer).map(|nodes| {
            nodes
                .into_iter()
                .filter_map(|range| range.into_iter().next())
                .collect()
        });
        let mut primaries = primaries.ok_or_else(|| self.nonsense())?;
        primaries.sort();
        primaries.dedup();
        Ok(primaries.into_iter().map(Some).collect())
    }

    /// Does something with the connection, which is made where there is none, and ended where that
    /// fails.
    fn on_line<T>(&mut self, work: impl FnOnce(&mut Line) -> RedisResult<T>) -> Result<T, Failure> {
        let line = match &mut self.line {
            Some(line) => line,
            none => {
                let made = connect(&mut self.way, self.patience);
                let mut line = made.map_err(|error| failure(&self.name, &error))?;
                check_version(&mut line, &self.name)?;
                none.insert(line)
            }
        };
        work(line).map_err(|error| {
            self.line = None;
            failure(&self.name, &error)
        })
    }

    /// An answer, unless it is an error. An error is the command's and leaves the connection as it
    /// is.
    pub fn good(&self, answer: Value) -> Result<Value, Failure> {
        answer
            .extract_error()
            .map_err(|error| failure(&self.name, &error))
    }

    /// An answer that none of ours can get: the connection is worth nothing.
    pub fn nonsense(&mut self) -> Failure {
        self.line = None;
        no_answer(&self.name)
    }
}

fn no_answer(name: &str) -> Failure {
    Failure::new(
        name,
        "its answer is not one to what was asked",
        "see that the address is that of a Redis or Valkey server",
    )
}

/// Refuses a server that is older than [`VERSION_MIN`]. Any user may ask for the version: `HELLO`
/// needs no right.
fn check_version(line: &mut Line, name: &str) -> Result<(), Failure> {
    let hello = redis::cmd("HELLO");
    let answer = match line {
        Line::Server(connection) => connection.req_command(&hello),
        Line::Cluster(connection) => {
            let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
            connection.route_command(&hello, anywhere)
        }
    };
    let wrong = |has: String| {
        Failure::new(
            name,
            format!("{has}, and Flowkeep needs Redis {VERSION_MIN} or later, or Valkey"),
            "name such a server, or upgrade this one; changes wait meanwhile",
        )
    };
    let facts = match answer.and_then(Value::extract_error) {
        Ok(Value::Array(facts)) => facts,
        Ok(_) => return Err(no_answer(name)),
        Err(error) if error.code() == Some("ERR") => {
            return Err(wrong("its version is older than 6.2".to_owned()));
        }
        Err(error) => return Err(failure(name, &error)),
    };
    let fact = |wanted: &str| {
        facts.chunks_exact(2).find_map(|pair| match pair {
            [Value::BulkString(what), Value::BulkString(is)] if what == wanted.as_bytes() => {
                std::str::from_utf8(is).ok()
            }
            _ => None,
        })
    };
    let version = fact("version").ok_or_else(|| no_answer(name))?;
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major >= VERSION_MIN => Ok(()),
        _ => Err(wrong(format!(
            "it is {} {version}",
            fact("server").unwrap_or("a server of version")
        ))),
    }
}

fn connect(way: &mut Way, patience: Duration) -> RedisResult<Line> {
    match way {
        Way::Server(client) => {
            let connection = client.get_connection_with_timeout(patience)?;
            connection.set_read_timeout(Some(patience))?;
            connection.set_write_timeout(Some(patience))?;
            Ok(Line::Server(connection))
        }
        Way::Cluster {
            before,
            seeds,
            certificates,
            known,
        } => {
            let address = |node: &Node| match node.0.contains(':') {
                true => format!("[{}]:{}", node.0, node.1),
                false => format!("{}:{}", node.0, node.1),
            };
            let mut nodes = seeds.clone();
            nodes.extend(known.iter().map(address).filter(|node| !seeds.contains(node)));
            let nodes: Vec<String> = nodes.iter().map(|node| format!("{before}{node}")).collect();
            let mut builder = ClusterClient::builder(nodes)
                .retries(REDIRECTIONS)
                .min_retry_wait(PAUSE_MS)
                .max_retry_wait(PAUSE_MS + 1)
                .connection_timeout(patience)
                .response_timeout(patience);
            if let Some(certificates) = certificates {
                builder = builder.certs(certificates.clone());
            }
            let mut connection = builder.build()?.get_connection()?;
            connection.set_write_timeout(Some(patience))?;
            let mut slots = redis::cmd("CLUSTER");
            slots.arg("SLOTS");
            let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
            if let Some(ranges) = ranges(&connection.route_command(&slots, anywhere)?) {
                let mut nodes: Vec<Node> = ranges.into_iter().flatten().collect();
                nodes.sort();
                nodes.dedup();
                *known = nodes;
            }
            Ok(Line::Cluster(Box::new(connection)))
        }
    }
}

/// Of `CLUSTER SLOTS`: the nodes of each range that have a name, its primary first.
fn ranges(answer: &Value) -> Option<Vec<Vec<Node>>> {
    let Value::Array(ranges) = answer else {
        return None;
    };
    let node = |node: &Value| match node {
        Value::Array(facts) => match facts.as_slice() {
            [Value::BulkString(host), Value::Int(port), ..] => {
                let host = std::str::from_utf8(host).ok()?;
                let port = u16::try_from(*port).ok()?;
                (!host.is_empty() && host != "?").then(|| (host.to_owned(), port))
            }
            _ => None,
        },
        _ => None,
    };
    let nodes = |range: &Value| match range {
        Value::Array(parts) => Some(parts.iter().skip(2).filter_map(node).collect()),
        _ => None,
    };
    ranges.iter().map(nodes).collect()
}

fn names_cluster(settings: &str) -> bool {
    settings.split('&').any(|setting| setting == "cluster")
}

fn info(name: &str, address: &str) -> Result<ConnectionInfo, Failure> {
    address.into_connection_info().map_err(|error| {
        Failure::new(
            name,
            format!("it is no address of a server ({error})"),
            "write redis://USER:PASSWORD@HOST:PORT/DATABASE, where all but the host may be left out",
        )
    })
}

/// A cluster by its URI: several nodes may be named, one is enough.
fn cluster(name: &str, address: &str, settings: &str, has_tls: bool) -> Result<Way, Failure> {
    let wrong = |problem: &str| {
        let remedy =
            "write redis://USER:PASSWORD@HOST:PORT,HOST:PORT?cluster, where all but one host may be left out";
        Failure::new(name, problem, remedy)
    };
    let behind = address
        .split_once("://")
        .ok_or_else(|| wrong("it names no node"))?
        .1;
    let hosts = behind
        .rfind('@')
        .map_or(behind, |at| behind.get(at + 1..).unwrap_or_default());
    let before = address.strip_suffix(hosts).unwrap_or_default();
    if hosts.contains('/') {
        return Err(wrong("a cluster has one database, which has no number"));
    }
    let with_port = |host: &str| match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:6379"),
    };
    let seeds: Vec<String> = hosts.split(',').map(with_port).collect();
    for seed in &seeds {
        info(name, &format!("{before}{seed}"))?;
    }
    let files = settings.split('&').filter(|setting| *setting != "cluster");
    let files: Vec<&str> = files.collect();
    let certificates = match has_tls {
        true => Some(certificates(name, &files.join("&"))?),
        false if files.is_empty() => None,
        false => {
            return Err(wrong(
                "it has settings besides `cluster`, which are those of rediss",
            ));
        }
    };
    Ok(Way::Cluster {
        before: before.to_owned(),
        seeds,
        certificates,
        known: Vec::new(),
    })
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

/// A server's error, and the remedy.
fn failure(name: &str, error: &RedisError) -> Failure {
    let code = error.code().unwrap_or_default();
    let remedy = match (code, error.kind()) {
        ("WRONGPASS" | "NOAUTH", _) | (_, ErrorKind::AuthenticationFailed) => {
            "set the user and the password that the server knows: redis://USER:PASSWORD@HOST"
        }
        ("NOPERM", _) => {
            "give the user the commands EVAL, HSET, HDEL, DEL, HGETALL, HMGET, HGET, SADD, SMEMBERS, GET, SET, \
             of a cluster SCAN, CLUSTER, PING and ASKING too, and the keys that begin with `{` or `flowkeep@`"
        }
        ("OOM", _) => "raise the server's `maxmemory`, or remove what it has besides; changes wait meanwhile",
        ("READONLY", _) => "it is a replica: name the primary; changes wait meanwhile",
        ("MISCONF", _) => "the server cannot write to its disk: see its log; changes wait meanwhile",
        ("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "BUSY", _) => {
            "it is tried again until the server is ready"
        }
        ("WRONGTYPE", _) => "something else has written a key of ours: remove it, or set another database",
        ("MOVED" | "ASK" | "CROSSSLOT", _) => "it is a node of a cluster: write ?cluster behind its address",
        (_, ErrorKind::InvalidClientConfig) => "see that `ca`, `cert` and `key` are files in PEM",
        _ if error.to_string().contains("certificate") => {
            "name the authority that signed the server's certificate, for this very host: rediss://HOST?ca=FILE; \
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
