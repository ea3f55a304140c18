//! The settings in a URI of the driver.

use super::tls;
use crate::name::unescaped;
use scylla::statement::{Consistency, SerialConsistency};

/// The settings in a URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub nodes: Vec<String>,
    pub user: Option<(String, String)>,
    pub keyspace: String,
    pub consistency: Consistency,
    /// As CQL has it.
    pub replication: String,
    /// Of `cassandras`.
    pub tls: Option<tls::TlsSettings>,
}

impl Address {
    pub fn of(uri: &str) -> Result<Self, String> {
        let (rest, tls) = match (
            uri.strip_prefix("cassandra://"),
            uri.strip_prefix("cassandras://"),
        ) {
            (Some(rest), _) => (rest, None),
            (_, Some(rest)) => (rest, Some(tls::TlsSettings::default())),
            _ => return Err("it begins neither with cassandra:// nor with cassandras://".to_owned()),
        };
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (secret, rest) = rest
            .rsplit_once('@')
            .map_or((None, rest), |(secret, rest)| (Some(secret), rest));
        let (hosts, keyspace) = rest.split_once('/').unwrap_or((rest, ""));
        let user = secret.map(|secret| {
            let (user, password) = secret.split_once(':')?;
            Some((unescaped(user)?, unescaped(password)?))
        });
        let user = match user {
            Some(None) => return Err("user and password are no USER:PASSWORD with %XX".to_owned()),
            user => user.flatten(),
        };
        let mut address = Address {
            nodes: hosts.split(',').map(node).collect::<Result<_, _>>()?,
            user,
            keyspace: checked_keyspace(keyspace)?,
            consistency: Consistency::Quorum,
            replication: replication("1")?,
            tls,
        };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("consistency", name)) => address.consistency = consistency(name)?,
                Some(("replication", copies)) => address.replication = replication(copies)?,
                Some((word, value)) if tls::TlsSettings::default().place(word).is_some() => {
                    let settings = address.tls.as_mut();
                    let settings = settings.ok_or(format!("`{word}` is a setting of cassandras://"))?;
                    if value.is_empty() {
                        return Err(format!("`{word}` is empty"));
                    }
                    if let Some(place) = settings.place(word) {
                        *place = Some(value.to_owned());
                    }
                }
                _ => {
                    return Err(format!(
                        "there is no setting `{}`",
                        setting.chars().take(40).collect::<String>()
                    ));
                }
            }
        }
        Ok(address)
    }

    /// The consistency of conditions, and of reads that have to see writes under way.
    pub fn serial(&self) -> (SerialConsistency, Consistency) {
        match self.consistency {
            Consistency::LocalQuorum | Consistency::LocalOne => {
                (SerialConsistency::LocalSerial, Consistency::LocalSerial)
            }
            _ => (SerialConsistency::Serial, Consistency::Serial),
        }
    }
}

fn node(host: &str) -> Result<String, String> {
    let has_port = match host.strip_prefix('[') {
        Some(rest) => rest.contains("]:"),
        None => host.contains(':'),
    };
    let port = host.rsplit_once(':').filter(|_| has_port).map(|(_, port)| port);
    if host.is_empty() || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err(format!(
            "`{}` is no HOST:PORT",
            host.chars().take(40).collect::<String>()
        ));
    }
    Ok(if has_port {
        host.to_owned()
    } else {
        format!("{host}:9042")
    })
}

fn checked_keyspace(name: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    match name {
        "" => Ok("flowkeep".to_owned()),
        name if name.len() <= 48
            && name.bytes().all(is_plain)
            && !name.starts_with(|c: char| !c.is_ascii_lowercase()) =>
        {
            Ok(name.to_owned())
        }
        _ => Err("a keyspace has up to 48 of a-z, 0-9 and _, a letter first".to_owned()),
    }
}

fn consistency(name: &str) -> Result<Consistency, String> {
    Ok(match name {
        "one" => Consistency::One,
        "quorum" => Consistency::Quorum,
        "all" => Consistency::All,
        "local_one" => Consistency::LocalOne,
        "local_quorum" => Consistency::LocalQuorum,
        _ => return Err("consistency is one, quorum, all, local_one or local_quorum".to_owned()),
    })
}

fn replication(copies: &str) -> Result<String, String> {
    let wrong = || "replication is a number of copies, or DC:COPIES,DC:COPIES".to_owned();
    let number = |copies: &str| match copies.parse::<u8>() {
        Ok(copies @ 1..) => Ok(copies),
        _ => Err(wrong()),
    };
    let mut parts = vec!["'class': 'NetworkTopologyStrategy'".to_owned()];
    for part in copies.split(',') {
        parts.push(match part.split_once(':') {
            None => format!("'replication_factor': {}", number(part)?),
            Some((centre, copies)) => {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
                if centre.is_empty() || !centre.bytes().all(is_plain) {
                    return Err(wrong());
                }
                format!("'{centre}': {}", number(copies)?)
            }
        });
    }
    Ok(format!("{{{}}}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_says_who_where_and_how() {
        let usual = Address::of("cassandra://host").unwrap();
        assert_eq!((usual.nodes, usual.user), (vec!["host:9042".to_owned()], None));
        assert_eq!(
            (usual.keyspace.as_str(), usual.consistency),
            ("flowkeep", Consistency::Quorum)
        );
        assert_eq!(
            usual.replication,
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        );
        let all =
            "cassandra://me:p%40ss@a:1,[::1]:2,[::1]/space_1?consistency=local_quorum&replication=dc-1:3,b:2";
        let all = Address::of(all).unwrap();
        assert_eq!(all.nodes, ["a:1", "[::1]:2", "[::1]:9042"]);
        assert_eq!(all.user, Some(("me".to_owned(), "p@ss".to_owned())));
        assert_eq!(
            all.replication,
            "{'class': 'NetworkTopologyStrategy', 'dc-1': 3, 'b': 2}"
        );
        assert_eq!(all.serial().0, SerialConsistency::LocalSerial);
        assert_eq!(all.tls, None);
        let over_tls = "cassandras://me:p@a/s?ca=/etc/ca&cert=c&key=k&consistency=all&name=b.c";
        let over_tls = Address::of(over_tls).unwrap();
        assert_eq!(over_tls.consistency, Consistency::All);
        let of = |value: &str| Some(value.to_owned());
        assert_eq!(
            over_tls.tls,
            Some(tls::TlsSettings {
                ca: of("/etc/ca"),
                cert: of("c"),
                key: of("k"),
                name: of("b.c"),
            })
        );
    }

    #[test]
    fn what_is_no_uri_is_refused_and_no_setting_gets_into_a_statement() {
        for wrong in [
            "cassandra://",
            "cassandra://a,,b",
            "cassandra://a:99999",
            "cassandra://me@a",
            "cassandra://me:%4@a",
            "cassandra://a/Space",
            "cassandra://a/1space",
            "cassandra://a/x;drop",
            "cassandra://a/s?consistency=any",
            "cassandra://a/s?replication=0",
            "cassandra://a/s?replication='x':1",
            "cassandra://a/s?replication=x':1",
            "cassandra://a/s?tls=yes",
            "cassandra://a/s?ca=FILE",
            "cassandras://a/s?ca=",
            "cassandras://a/s?insecure=yes",
        ] {
            assert!(Address::of(wrong).is_err(), "{wrong}");
        }
    }
}
