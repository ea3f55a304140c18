//! A rule's words: `msg:"…"; flow:established; content:"…"; nocase; sid:1;`
//!
//! The words that are known, all others being refused by name:
//!
//! | word | value |
//! |---|---|
//! | `msg`, `sid`, `gid`, `rev`, `classtype`, `priority` | of the alert; `sid` is required |
//! | `reference`, `metadata` | read and not used |
//! | `flow` | `established`, `not_established`, `stateless`, `to_server`, `to_client`, `from_server`, `from_client` |
//! | `flags` | letters of `FSRPAUEC12`, or `0`; before them `+` (and others), `*` (one of them), `!`; behind a comma what is ignored |
//! | `dsize`, `ttl`, `itype`, `icode`, `icmp_id`, `icmp_seq`, `ip_proto` | `5`, `!5`, `<5`, `>5`, `5<>9` or `5-9` (neither end) |
//! | `content` | `"text\|0d 0a\|"`, `!"text"` |
//! | `nocase`, `offset`, `depth`, `distance`, `within`, `startswith`, `endswith`, `fast_pattern`, `rawbytes` | of the content before |
//! | `flowbits` | `set`, `unset`, `toggle` with a name; `isset`, `isnotset` with names between bars; `noalert` |
//! | `threshold` | `type limit\|threshold\|both, track by_src\|by_dst\|by_both\|by_rule, count N, seconds N` |
//! | `noalert` | – |
//!
//! Not here: the bytes of a content (`content`), what is asked when (`ruleset`).

use super::content;
use super::parse::Fault;
use super::rule::{
    BitWord, Bits, Content, Field, FlagMode, Flags, Numbers, Protocol, Rule, Threshold, ThresholdKind, Track,
};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Contents of one rule.
pub(super) const CONTENTS_MAX: usize = 32;
/// Words of one rule on flow bits, and fields of a packet.
const WORDS_MAX: usize = 32;
/// What places of contents are counted up to.
const PLACE_MAX: i32 = 65_535;

/// Reads the words into a rule.
pub(super) fn read(text: &str, rule: &mut Rule) -> Result<(), Fault> {
    for word in split(text)? {
        let (name, value) = match word.split_once(':') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (word, None),
        };
        one(name, value, rule)?;
    }
    if rule.sid == 0 {
        return Err(Fault::new(
            "the rule has no sid",
            "add sid:NUMBER; with a number of its own",
        ));
    }
    whole(rule)
}

/// What no single word shows.
fn whole(rule: &Rule) -> Result<(), Fault> {
    let tcp = matches!(
        rule.protocol,
        Protocol::Tcp
            | Protocol::TcpPacket
            | Protocol::TcpStream
            | Protocol::Ip
            | Protocol::Ipv4
            | Protocol::Ipv6
    );
    if rule.flags.is_some() && !tcp {
        return Err(Fault::new("only TCP has flags", "write tcp, or take flags out"));
    }
    if rule.protocol == Protocol::TcpStream && rule.is_about_packet() {
        return Err(Fault::new(
            "the rule is about the stream and asks something of a packet",
            "write tcp or tcp-pkt, or take out what is about packets (dsize, ttl, flags, endswith …)",
        ));
    }
    for content in &rule.contents {
        let length = content.bytes.len() as u64;
        let room = [content.depth, content.within].into_iter().flatten().min();
        if room.is_some_and(|room| u64::from(room) < length) {
            return Err(Fault::new(
                format!("a content of {length} bytes is to be found within fewer"),
                "write a depth or within that it fits into",
            ));
        }
        if content.is_relative() && (content.offset.is_some() || content.depth.is_some()) {
            return Err(Fault::new(
                "a content has a place from the beginning and one from the content before",
                "write offset and depth, or distance and within",
            ));
        }
    }
    match rule.contents.first() {
        Some(first) if first.is_relative() => Err(Fault::new(
            "the first content's place is counted from the content before it, and there is none",
            "write offset and depth instead of distance and within",
        )),
        _ => Ok(()),
    }
}

/// The words between semicolons; a backslash takes a semicolon's meaning away.
fn split(text: &str) -> Result<Vec<&str>, Fault> {
    let (mut words, mut from, mut escaped) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ';' => {
                words.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    let rest = text[from..].trim();
    if !rest.is_empty() {
        return Err(Fault::new(
            format!("`{rest}` does not end in a semicolon"),
            "end each word in a semicolon",
        ));
    }
    words.retain(|word| !word.is_empty());
    Ok(words)
}

fn one(name: &str, value: Option<&str>, rule: &mut Rule) -> Result<(), Fault> {
    let needed =
        || value.ok_or_else(|| Fault::new(format!("`{name}` has no value"), format!("write {name}:VALUE;")));
    match name {
        "msg" => rule.message = quoted(name, needed()?)?,
        "sid" => rule.sid = number(name, needed()?, 1, u32::MAX)?,
        "gid" => rule.gid = number(name, needed()?, 0, u32::MAX)?,
        "rev" => rule.revision = number(name, needed()?, 0, u32::MAX)?,
        "priority" => rule.priority = Some(number(name, needed()?, 1, 255)? as u8),
        "classtype" => rule.class = needed()?.trim_matches('"').to_string(),
        "reference" | "metadata" => {
            needed()?;
        }
        "noalert" => rule.silent = true,
        "flow" => flow(needed()?, rule)?,
        "flags" => rule.flags = Some(flags(needed()?)?),
        "content" => {
            if rule.contents.len() == CONTENTS_MAX {
                let problem = format!("more than {CONTENTS_MAX} contents");
                return Err(Fault::new(problem, "divide the rule"));
            }
            rule.contents.push(content::read(needed()?)?);
        }
        "nocase" | "rawbytes" | "fast_pattern" | "startswith" | "endswith" | "offset" | "depth"
        | "distance" | "within" => modifier(name, value, rule)?,
        "flowbits" => flow_bits(needed()?, rule)?,
        "threshold" => rule.threshold = Some(threshold(needed()?)?),
        _ => match FIELDS.iter().find(|(known, ..)| *known == name) {
            Some((_, field, most)) => {
                room(rule.fields.len())?;
                let numbers = match (field, protocol_number(needed()?)) {
                    (Field::IpProtocol, Some(numbers)) => numbers,
                    _ => numbers(name, needed()?, *most)?,
                };
                rule.fields.push((*field, numbers));
            }
            None => {
                return Err(Fault::unknown(
                    name,
                    "keyword",
                    "take the rule out, or set unsupported = \"skip\" below [function.ids]",
                ));
            }
        },
    }
    Ok(())
}

/// Words that ask a number of a packet, and the largest it can be.
const FIELDS: &[(&str, Field, u32)] = &[
    ("dsize", Field::PayloadLength, 65_535),
    ("ttl", Field::TimeToLive, 255),
    ("itype", Field::IcmpType, 255),
    ("icode", Field::IcmpCode, 255),
    ("icmp_id", Field::IcmpIdentifier, 65_535),
    ("icmp_seq", Field::IcmpSequence, 65_535),
    ("ip_proto", Field::IpProtocol, 255),
];

fn room(used: usize) -> Result<(), Fault> {
    match used < WORDS_MAX {
        true => Ok(()),
        false => Err(Fault::new(
            format!("more than {WORDS_MAX} words of one kind"),
            "divide the rule",
        )),
    }
}

fn not_a(name: &str, value: &str, remedy: impl Into<String>) -> Fault {
    Fault::new(format!("`{value}` is no value of `{name}`"), remedy)
}

/// Digits only: the standard library would take a sign.
fn digits(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn number(name: &str, value: &str, least: u32, most: u32) -> Result<u32, Fault> {
    digits(value)
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| not_a(name, value, format!("write a number from {least} to {most}")))
}

fn numbers(name: &str, value: &str, most: u32) -> Result<Numbers, Fault> {
    let value = value.trim_matches('"').trim();
    let one = |text: &str| digits(text.trim()).filter(|number| *number <= most);
    let between = value.split_once("<>").or_else(|| value.split_once('-'));
    let read = if let Some((low, high)) = between {
        match (one(low), one(high)) {
            // Neither end is in it: at least one number must be.
            (Some(low), Some(high)) if low + 1 < high => Some(Numbers::Between(low, high)),
            _ => None,
        }
    } else if let Some(rest) = value.strip_prefix('<') {
        one(rest).filter(|number| *number > 0).map(Numbers::Below)
    } else if let Some(rest) = value.strip_prefix('>') {
        one(rest).map(Numbers::Above)
    } else if let Some(rest) = value.strip_prefix('!') {
        one(rest).map(Numbers::Not)
    } else {
        one(value).map(Numbers::Equal)
    };
    read.ok_or_else(|| {
        let remedy = format!("write a number up to {most}, as 5, !5, <5, >5, or 5<>9 for those between");
        not_a(name, value, remedy)
    })
}

/// A protocol by its name, as `ip_proto` also takes it.
fn protocol_number(value: &str) -> Option<Numbers> {
    let (name, negated) = match value.strip_prefix('!') {
        Some(rest) => (rest.trim(), true),
        None => (value, false),
    };
    let number = match name.to_ascii_lowercase().as_str() {
        "icmp" => 1,
        "igmp" => 2,
        "tcp" => 6,
        "udp" => 17,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" | "ipv6-icmp" => 58,
        "sctp" => 132,
        _ => return None,
    };
    Some(match negated {
        true => Numbers::Not(number),
        false => Numbers::Equal(number),
    })
}

/// A text in quotes, with `\"`, `\;`, `\:` and `\\` taken for the letter behind the backslash.
fn quoted(name: &str, value: &str) -> Result<String, Fault> {
    let inside = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(inside) = inside.filter(|_| value.len() >= 2) else {
        return Err(not_a(name, value, "write it in quotes"));
    };
    let (mut text, mut escaped) = (String::with_capacity(inside.len()), false);
    for letter in inside.chars() {
        match letter {
            '\\' if !escaped => escaped = true,
            _ => {
                if escaped && !matches!(letter, '\\' | '"' | ';' | ':') {
                    text.push('\\');
                }
                text.push(letter);
                escaped = false;
            }
        }
    }
    Ok(text)
}

fn flow(value: &str, rule: &mut Rule) -> Result<(), Fault> {
    rule.asks_flow = true;
    for word in value.split(',') {
        let twice = match word.trim() {
            "to_server" | "from_client" => rule.to_server.replace(true) == Some(false),
            "to_client" | "from_server" => rule.to_server.replace(false) == Some(true),
            "established" => rule.established.replace(true) == Some(false),
            "not_established" => rule.established.replace(false) == Some(true),
            "stateless" => false,
            other => {
                return Err(Fault::unknown(
                    &format!("flow:{other}"),
                    "keyword",
                    "there are: established, not_established, stateless, to_server, to_client, from_server, \
                     from_client",
                ));
            }
        };
        if twice {
            let problem = format!("`flow:{value}` says both of two that exclude each other");
            return Err(Fault::new(problem, "take one out"));
        }
    }
    Ok(())
}

fn flags(value: &str) -> Result<Flags, Fault> {
    let refuse = || {
        not_a(
            "flags",
            value,
            "write letters of FSRPAUEC, or 0 for none; before them +, * or !; behind a comma those to ignore",
        )
    };
    let (shown, ignored) = value.split_once(',').unwrap_or((value, ""));
    let shown = shown.trim();
    let (mode, letters) = match shown.strip_prefix(['+', '*', '!']) {
        Some(rest) if shown.starts_with('+') => (FlagMode::AtLeast, rest),
        Some(rest) if shown.starts_with('*') => (FlagMode::Any, rest),
        Some(rest) => (FlagMode::Not, rest),
        None => (FlagMode::Exactly, shown),
    };
    let bits = |letters: &str| {
        let mut all = 0u8;
        for letter in letters.trim().chars() {
            all |= match letter.to_ascii_uppercase() {
                'F' => 1,
                'S' => 2,
                'R' => 4,
                'P' => 8,
                'A' => 16,
                'U' => 32,
                'E' | '2' => 64,
                'C' | '1' => 128,
                '0' => 0,
                _ => return None,
            };
        }
        Some(all)
    };
    let flags = bits(letters)
        .filter(|_| !letters.trim().is_empty())
        .ok_or_else(refuse)?;
    let ignored = bits(ignored).ok_or_else(refuse)?;
    match flags & ignored {
        0 => Ok(Flags { mode, flags, ignored }),
        _ => Err(refuse()),
    }
}

fn modifier(name: &str, value: Option<&str>, rule: &mut Rule) -> Result<(), Fault> {
    let Some(content) = rule.contents.last_mut() else {
        let problem = format!("`{name}` stands before any content");
        return Err(Fault::new(
            problem,
            "write it behind the content that it is about",
        ));
    };
    let place = |least: i32| {
        let text = value.unwrap_or_default();
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text),
        };
        digits(rest)
            .filter(|number| *number <= PLACE_MAX as u32)
            .map(|number| sign * number as i32)
            .filter(|number| *number >= least)
            .ok_or_else(|| not_a(name, text, format!("write a number from {least} to {PLACE_MAX}")))
    };
    let was_set = match name {
        "offset" => content.offset.replace(place(0)? as u32).is_some(),
        "depth" => content.depth.replace(place(1)? as u32).is_some(),
        "distance" => content.distance.replace(place(-PLACE_MAX)?).is_some(),
        "within" => content.within.replace(place(1)? as u32).is_some(),
        _ => {
            if let Some(value) = value {
                return Err(Fault::unknown(
                    &format!("{name}:{value}"),
                    "keyword",
                    format!("write {name}; without a value"),
                ));
            }
            simple_modifier(name, content)
        }
    };
    match was_set {
        false => Ok(()),
        true => Err(Fault::new(
            format!("`{name}` says again, or otherwise, where the content is"),
            "take one out",
        )),
    }
}

/// A modifier without a value; whether it contradicts another.
fn simple_modifier(name: &str, content: &mut Content) -> bool {
    match name {
        "nocase" => content.nocase = true,
        "fast_pattern" => content.fast = true,
        "endswith" => content.at_end = true,
        "startswith" => {
            let length = content.bytes.len() as u32;
            let offset = content.offset.replace(0);
            return offset.is_some() | content.depth.replace(length).is_some();
        }
        // Payloads are looked at as they are.
        _ => {}
    }
    false
}

fn flow_bits(value: &str, rule: &mut Rule) -> Result<(), Fault> {
    let (word, names) = match value.split_once(',') {
        Some((word, names)) => (word.trim(), names.trim()),
        None => (value, ""),
    };
    let word = match word {
        "noalert" if names.is_empty() => {
            rule.silent = true;
            return Ok(());
        }
        "set" => BitWord::Set,
        "unset" => BitWord::Unset,
        "toggle" => BitWord::Toggle,
        "isset" => BitWord::IsSet,
        "isnotset" => BitWord::IsNotSet,
        other => {
            return Err(Fault::unknown(
                &format!("flowbits:{other}"),
                "keyword",
                "there are: set, unset, toggle, isset, isnotset, noalert",
            ));
        }
    };
    room(rule.bits.len())?;
    let names: Vec<String> = names.split('|').map(|name| name.trim().to_string()).collect();
    let asks = matches!(word, BitWord::IsSet | BitWord::IsNotSet);
    if names.iter().any(String::is_empty) || (names.len() > 1 && !asks) || names.len() > WORDS_MAX {
        let remedy = "write a name behind the comma; isset and isnotset take several, between bars";
        return Err(not_a("flowbits", value, remedy));
    }
    rule.bits.push(Bits { word, names });
    Ok(())
}

fn threshold(value: &str) -> Result<Threshold, Fault> {
    let (mut kind, mut track, mut count, mut seconds) = (None, None, None, None);
    for part in value.split(',') {
        let mut words = part.split_whitespace();
        let (name, what) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let unknown = || {
            Fault::unknown(
                &format!("threshold:{}", part.trim()),
                "keyword",
                "write type limit|threshold|both, track by_src|by_dst|by_both|by_rule, count N, seconds N",
            )
        };
        if words.next().is_some() {
            return Err(unknown());
        }
        match (name, what) {
            ("type", "limit") => kind = Some(ThresholdKind::Limit),
            ("type", "threshold") => kind = Some(ThresholdKind::Threshold),
            ("type", "both") => kind = Some(ThresholdKind::Both),
            ("track", "by_src") => track = Some(Track::Source),
            ("track", "by_dst") => track = Some(Track::Destination),
            ("track", "by_both") => track = Some(Track::Pair),
            ("track", "by_rule") => track = Some(Track::Rule),
            ("count", what) => count = Some(number("count", what, 1, u32::MAX)?),
            ("seconds", what) => seconds = Some(number("seconds", what, 1, u32::MAX)?),
            _ => return Err(unknown()),
        }
    }
    match (kind, track, count, seconds) {
        (Some(kind), Some(track), Some(count), Some(seconds)) => Ok(Threshold {
            kind,
            track,
            count,
            seconds,
        }),
        _ => Err(not_a(
            "threshold",
            value,
            "write all four: type, track, count and seconds",
        )),
    }
}
