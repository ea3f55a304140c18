//! Rules as text, in Suricata's language, taken apart one by one.
//!
//! ```text
//!   drop tcp $EXTERNAL_NET any -> $HOME_NET 80 (msg:"passwd"; flow:to_server,established; content:"/etc/passwd"; sid:1;)
//!   └┬─┘ └┬┘ └─────┬─────┘ └┬┘ ├┘ └───┬───┘ └┤ └──────────────────────────────┬────────────────────────────────────┘
//!   action protocol source ports direction …      words, each ended by a semicolon (`options`)
//! ```
//!
//! A line that ends in a backslash goes on in the next; lines that begin with `#` and empty ones
//! are passed over. Each mistake in a rule is a [`RuleError`] with its line; the other rules are
//! read all the same.
//!
//! Invariants: no text makes this panic or take long (`any_text_is_read_or_refused`, and a fuzz
//! target); a rule that is read means what is written, since a word that is not known is refused,
//! never passed over.
//!
//! Not here: the meaning of words (`options`), addresses and ports (`header`).

use super::header::{self, Kind, Variables};
use super::options;
use super::rule::{Action, PROTOCOLS, Protocol, Rule};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The longest rule, in bytes.
const RULE_BYTES_MAX: usize = 65_536;

/// A mistake in a part of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The problem.
    pub problem: String,
    /// The text to write instead.
    pub remedy: String,
    /// The word that is not known, if that is it: a keyword, an option of one, a protocol.
    pub unknown: Option<String>,
}

impl Fault {
    pub(super) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Fault {
            problem: problem.into(),
            remedy: remedy.into(),
            unknown: None,
        }
    }

    pub(super) fn unknown(word: &str, what: &str, remedy: impl Into<String>) -> Self {
        Fault {
            problem: format!(
                "the {what} `{word}` is not in the subset of Suricata's rules that is known here"
            ),
            remedy: remedy.into(),
            unknown: Some(word.into()),
        }
    }
}

/// A rule that is not one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleError {
    /// Line on which the rule begins, from 1.
    pub line: usize,
    /// That line.
    pub text: String,
    /// The mistake.
    pub fault: Fault,
}

/// Reads all rules of a text.
pub fn rules(text: &str, variables: &Variables) -> Vec<Result<Rule, RuleError>> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, first)) = lines.next() {
        let trimmed = first.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let mut whole = Cow::Borrowed(trimmed);
        while let Some(before) = whole.strip_suffix('\\') {
            let mut longer = String::from(before);
            match lines.next() {
                Some((_, more)) if longer.len() <= RULE_BYTES_MAX => longer.push_str(more.trim_end()),
                _ => {
                    whole = Cow::Owned(longer);
                    break;
                }
            }
            whole = Cow::Owned(longer);
        }
        let line = index + 1;
        found.push(rule(&whole, line, variables).map_err(|fault| RuleError {
            line,
            text: trimmed.into(),
            fault,
        }));
    }
    found
}

/// Reads one rule.
fn rule(text: &str, line: usize, variables: &Variables) -> Result<Rule, Fault> {
    if text.len() > RULE_BYTES_MAX {
        let problem = format!("the rule is longer than {RULE_BYTES_MAX} bytes");
        return Err(Fault::new(problem, "divide it"));
    }
    let Some((head, rest)) = text.split_once('(') else {
        return Err(Fault::new(
            "the rule has no words in parentheses",
            "write (sid:1;) or more behind the addresses",
        ));
    };
    let Some(words) = rest.trim_end().strip_suffix(')') else {
        return Err(Fault::new(
            "the rule does not end in a closing parenthesis",
            "close it, or end the line in a backslash if the rule goes on in the next",
        ));
    };
    let mut rule = read_head(head, line, variables)?;
    options::read(words, &mut rule)?;
    Ok(rule)
}

fn read_head(head: &str, line: usize, variables: &Variables) -> Result<Rule, Fault> {
    let parts = split(head);
    let [
        action,
        protocol,
        source,
        source_ports,
        way,
        destination,
        destination_ports,
    ] = parts[..]
    else {
        return Err(Fault::new(
            format!("the rule's head has {} parts", parts.len()),
            "write seven: action protocol addresses ports -> addresses ports",
        ));
    };
    let action = match action {
        "pass" => Action::Pass,
        "drop" => Action::Drop,
        "reject" => Action::Reject,
        "alert" => Action::Alert,
        other => {
            return Err(Fault::unknown(
                other,
                "action",
                "write alert, drop, reject or pass",
            ));
        }
    };
    let lower = protocol.to_ascii_lowercase();
    let Some((_, protocol)) = PROTOCOLS.iter().find(|(name, _)| *name == lower) else {
        let known: Vec<&str> = PROTOCOLS.iter().map(|(name, _)| *name).collect();
        let remedy = format!("there are: {}", known.join(", "));
        return Err(Fault::unknown(protocol, "protocol", remedy));
    };
    let both_ways = match way {
        "->" => false,
        "<>" => true,
        other => {
            let problem = format!("`{other}` stands where the direction belongs");
            return Err(Fault::new(problem, "write -> or <>"));
        }
    };
    let read = |text, kind| header::read(text, kind, variables);
    let (source, source_ports) = (read(source, Kind::Addresses)?, read(source_ports, Kind::Ports)?);
    let (destination, destination_ports) = (
        read(destination, Kind::Addresses)?,
        read(destination_ports, Kind::Ports)?,
    );
    let has_ports = !source_ports.is_all() || !destination_ports.is_all();
    if has_ports && matches!(protocol, Protocol::Icmp | Protocol::Icmpv4 | Protocol::Icmpv6) {
        return Err(Fault::new("ICMP has no ports", "write any for both"));
    }
    Ok(Rule {
        line,
        action,
        protocol: *protocol,
        source: (source, source_ports),
        destination: (destination, destination_ports),
        both_ways,
        message: String::new(),
        sid: 0,
        gid: 1,
        revision: 0,
        class: String::new(),
        priority: None,
        to_server: None,
        established: None,
        asks_flow: false,
        flags: None,
        fields: Vec::new(),
        contents: Vec::new(),
        bits: Vec::new(),
        silent: false,
        threshold: None,
    })
}

/// The head's parts: between blanks that are in no brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0usize, None);
    for (at, letter) in text.char_indices() {
        if letter.is_whitespace() && depth == 0 {
            if let Some(from) = from.take() {
                parts.push(&text[from..at]);
            }
            continue;
        }
        from.get_or_insert(at);
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    if let Some(from) = from {
        parts.push(text[from..].trim_end());
    }
    parts
}
