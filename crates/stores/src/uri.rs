//! Which store a URI names, and whether its driver runs in a process of its own ([`crate::apart`]):
//! those of servers do, where the program has said so.

#[cfg(any(feature = "redis", feature = "cassandra"))]
use crate::apart::{self, Apart};
use crate::driver::{Driver, Failure};
#[cfg(feature = "cassandra")]
use crate::drivers::cassandra::{self, Cassandra};
use crate::drivers::memory::Memory;
#[cfg(feature = "redb")]
use crate::drivers::redb::Redb;
#[cfg(feature = "redis")]
use crate::drivers::redis::{PATIENCE, Redis};
#[cfg(feature = "redis")]
use crate::name::PartitionName;

const REMEDY: &str = "write memory:, redb:PATH, redis://HOST:PORT or cassandra://HOST:PORT/KEYSPACE";

/// The driver of the store that a URI names.
///
/// | URI | store |
/// |---|---|
/// | `memory:` | this process |
/// | `redb:PATH` | a file |
/// | `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]` | Redis or Valkey |
/// | `rediss://…[?ca=FILE&cert=FILE&key=FILE]` | the same, over TLS |
/// | `cassandra://[USER:PASSWORD@]HOST[:PORT][,HOST…][/KEYSPACE][?consistency=…&replication=…]` | Cassandra or ScyllaDB |
/// | `cassandras://…[?ca=FILE&cert=FILE&key=FILE&name=NAME]` | the same, over TLS |
pub fn driver(uri: &str) -> Result<Box<dyn Driver>, Failure> {
    let shown = || uri.chars().take(80).collect::<String>();
    let Some((scheme, rest)) = uri.split_once(':') else {
        return Err(Failure::new(&shown(), "it names no kind of store", REMEDY));
    };
    match scheme {
        "memory" if rest.is_empty() => Ok(Box::<Memory>::default()),
        "memory" => Err(Failure::new(
            &shown(),
            "a store in memory has no name",
            "write memory: and nothing behind it",
        )),
        #[cfg(feature = "redb")]
        "redb" if !rest.is_empty() => Ok(Box::new(Redb::open(rest.as_ref())?)),
        #[cfg(feature = "redb")]
        "redb" => Err(Failure::new(&shown(), "it names no file", "write redb:PATH")),
        // Errors of URI and files are said here, at once.
        #[cfg(feature = "redis")]
        "redis" | "rediss" => Ok(of_a_server(uri, Redis::new(uri, PATIENCE)?)),
        #[cfg(feature = "cassandra")]
        "cassandra" | "cassandras" => Ok(of_a_server(uri, Cassandra::new(uri, cassandra::PATIENCE)?)),
        #[cfg(not(feature = "redb"))]
        "redb" => Err(absent(&shown(), "redb")),
        #[cfg(not(feature = "redis"))]
        "redis" | "rediss" => Err(absent(&shown(), "redis")),
        #[cfg(not(feature = "cassandra"))]
        "cassandra" | "cassandras" => Err(absent(&shown(), "cassandra")),
        // The rest behind an unknown scheme may be a secret.
        other => Err(Failure::new(
            &other.chars().take(20).collect::<String>(),
            "there is no such kind of store",
            REMEDY,
        )),
    }
}

/// The driver of a server, whose answers could end its process: in one of its own, where the
/// program has said so.
#[cfg(any(feature = "redis", feature = "cassandra"))]
fn of_a_server(uri: &str, driver: impl Driver + 'static) -> Box<dyn Driver> {
    match apart::program() {
        Some(program) => Box::new(Apart::new(program.clone(), uri)),
        None => Box::new(driver),
    }
}

#[cfg(not(all(feature = "redb", feature = "redis", feature = "cassandra")))]
fn absent(shown: &str, feature: &str) -> Failure {
    Failure::new(
        shown,
        format!("this program was built without its driver, the cargo feature `{feature}`"),
        "build it with `--features` and that name, or write memory:",
    )
}

/// Whether a failure says that another process has a store which one process has at a time.
pub fn is_held(failure: &Failure) -> bool {
    #[cfg(feature = "redb")]
    return crate::drivers::redb::is_held(failure);
    #[cfg(not(feature = "redb"))]
    {
        let _ = failure;
        false
    }
}

/// Whether a URI names a store that this binary has a driver for. Opens nothing.
pub fn check(uri: &str) -> Result<(), Failure> {
    match uri.split_once(':') {
        #[cfg(feature = "redb")]
        Some(("redb", path)) if !path.is_empty() => Ok(()),
        _ => driver(uri).map(drop),
    }
}

/// Why a store could not be had now, as far as that shows without changing anything there. A server
/// is asked for a version; of Cassandra it is the server's, since tables may not be there yet.
pub fn look(uri: &str) -> Result<(), Failure> {
    match uri.split_once(':') {
        #[cfg(feature = "redb")]
        Some(("redb", path)) if !path.is_empty() => crate::drivers::redb::look(path.as_ref()),
        #[cfg(feature = "redis")]
        Some(("redis" | "rediss", _)) => {
            let mut driver = driver(uri)?;
            match PartitionName::new("none", "", 0) {
                Ok(name) => driver.version(&name).map(drop),
                Err(_) => Ok(()),
            }
        }
        #[cfg(feature = "cassandra")]
        Some(("cassandra" | "cassandras", _)) => {
            let driver = Cassandra::new(uri, cassandra::PATIENCE)?;
            match apart::program() {
                Some(program) => Apart::new(program.clone(), uri).look(),
                None => driver.look(),
            }
        }
        _ => Ok(()),
    }
}

/// Whether several processes may have the store of this URI in common: it is a server's.
pub fn is_common(uri: &str) -> bool {
    let scheme = uri.split_once("://").map(|(scheme, _)| scheme);
    matches!(scheme, Some("redis" | "rediss" | "cassandra" | "cassandras"))
}

/// A store's URI as it may be shown: without user and password.
pub fn without_secret(uri: &str) -> String {
    match (uri.split_once("://"), uri.rfind('@')) {
        (Some((scheme, _)), Some(at)) => format!("{scheme}://…{}", uri.get(at..).unwrap_or_default()),
        _ => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_value_and_the_remedy() {
        let said = |uri| driver(uri).err().unwrap().to_string();
        assert!(driver("memory:").is_ok());
        assert!(is_common("rediss://h") && !is_common("memory:") && !is_common("redb:cassandra"));
        assert_eq!(
            said("etcd://x:y@h"),
            "store etcd: there is no such kind of store; write memory:, redb:PATH, redis://HOST:PORT or cassandra://HOST:PORT/KEYSPACE"
        );
        assert!(said("hello").starts_with("store hello: it names no kind of store; write"));
        assert!(said("memory:x").ends_with("write memory: and nothing behind it"));
        #[cfg(feature = "redb")]
        {
            assert!(said("redb:").ends_with("it names no file; write redb:PATH"));
            let said = said("redb:/nowhere/at/all");
            assert!(
                said.contains("/nowhere/at/all") && said.ends_with("may be written to"),
                "{said}"
            );
        }
        #[cfg(feature = "redis")]
        {
            assert!(said("redis://").contains("write redis://USER"));
            assert!(driver("rediss://u:secret@h").is_ok());
            assert!(!said("rediss://u:secret@h?ca=/nowhere/at/all").contains("secret"));
        }
        #[cfg(feature = "cassandra")]
        {
            assert!(said("cassandras://").contains("write cassandra://USER"));
            let said = said("cassandras://u:secret@h?ca=/nowhere/at/all");
            assert!(
                said.contains("`ca` is /nowhere/at/all: No such file") && !said.contains("secret"),
                "{said}"
            );
        }
    }
}
