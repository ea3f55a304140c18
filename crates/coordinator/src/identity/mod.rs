//! Callers: certificates of one cluster, the meaning of their names, and the rights that follow.
//!
//! ```text
//!   authority (ca.key) ─┬─► coordinator        flowkeep://coordinator
//!                       ├─► member a           flowkeep://member/a           by token
//!                       └─► operator alice     flowkeep://operator/alice/read, …/operate, …/admin
//! ```
//!
//! A certificate names its holder by one address of the kind URI. All connections are TLS 1.3,
//! without resumption, so each connection judges the certificate's time. A certificate is good from
//! the year 2000, since hosts' clocks may differ by much; its end is judged by the clock of the end
//! that reads it.
//!
//! Not here: revocation. A certificate is good until its end; a cluster whose key is lost gets a
//! new authority.

mod authority;
pub(crate) mod tls;
mod token;

pub use authority::{Authority, AuthorityError, Identity, write_private};
pub use tls::{SERVER_NAME, Seen, TlsError, client, client_by_token, server, why_refused};
pub use token::{Token, Unreadable};

/// The rights of an operator; each right includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Right {
    /// Look.
    Read,
    /// Move work: drain, migrate, end flows.
    Operate,
    /// Decide which processes may be members; end members.
    Admin,
}

impl Right {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Operate => "operate",
            Right::Admin => "admin",
        }
    }
}

/// The process or operator at the other end of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Caller {
    /// A process without a certificate.
    Anonymous,
    /// The coordinator.
    Coordinator,
    /// A member, by its name.
    Member(String),
    /// A person or a script.
    Operator(String, Right),
}

const SCHEME: &str = "flowkeep://";

impl Caller {
    /// The name that a certificate has for it. A process without a certificate has none.
    fn address(&self) -> String {
        match self {
            Caller::Anonymous => String::new(),
            Caller::Coordinator => format!("{SCHEME}coordinator"),
            Caller::Member(name) => format!("{SCHEME}member/{name}"),
            Caller::Operator(name, right) => format!("{SCHEME}operator/{name}/{}", right.name()),
        }
    }

    /// The caller whose certificate has this name.
    fn from_address(address: &str) -> Option<Self> {
        let parts: Vec<&str> = address.strip_prefix(SCHEME)?.split('/').collect();
        let is_named = parts.get(1).is_none_or(|name| is_name(name));
        let right = |name: &str| {
            let all = [Right::Read, Right::Operate, Right::Admin];
            all.into_iter().find(|right| right.name() == name)
        };
        match parts[..] {
            _ if !is_named => None,
            ["coordinator"] => Some(Caller::Coordinator),
            ["member", name] => Some(Caller::Member(name.to_owned())),
            ["operator", name, with] => Some(Caller::Operator(name.to_owned(), right(with)?)),
            _ => None,
        }
    }
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Caller::Anonymous => f.write_str("a process without a certificate"),
            Caller::Coordinator => f.write_str("the coordinator"),
            Caller::Member(name) => write!(f, "member `{name}`"),
            Caller::Operator(name, right) => write!(f, "operator `{name}` ({})", right.name()),
        }
    }
}

/// Whether a word can name a member or an operator: up to 63 of small letters, digits and `-`.
pub fn is_name(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&word.len()) && word.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_are_refused() {
        let all = [
            Caller::Coordinator,
            Caller::Member("a-1".into()),
            Caller::Operator("alice".into(), Right::Admin),
        ];
        for caller in all {
            assert_eq!(Caller::from_address(&caller.address()), Some(caller));
        }
        for wrong in [
            "",
            "flowkeep://",
            "flowkeep://member",
            "flowkeep://member/",
            "flowkeep://member/A",
            "flowkeep://member/a/b",
            "flowkeep://member/a.b",
            "flowkeep://operator/alice",
            "flowkeep://operator/alice/root",
            "http://member/a",
        ] {
            assert_eq!(Caller::from_address(wrong), None, "{wrong}");
        }
    }
}
