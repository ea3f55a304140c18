//! A rule's words: `msg:"…"; flow:established; content:"…"; nocase; sid:1;`
//!
//! The words that are known, all others being refused by name:
//!
//! | word | value |
//! |---|---|
//! | `msg`, `sid`, `gid`, `rev`, `classtype`, `priority` | of the alert; `sid` is required |
//! | `reference`, `metadata` | read and not used |
//! | `flow` | `established`, `not_established`, `stateless`, `to_server`, `to_client`, `from_server`, `from_client` |
//! | `flags` | letters of `FSRPAUEC12`, or `0`; among them `+` (and others), `*` (one of them) or `!`; behind a comma the ignored ones |
//! | `dsize`, `ttl`, `seq`, `ack`, `itype`, `icode`, `icmp_id`, `icmp_seq`, `ip_proto` | `5`, `!5`, `<5`, `>5`, `5<>9` or `5-9` (neither end) |
//! | `content` | `"text\|0d 0a\|"`, `!"text"` |
//! | `nocase`, `offset`, `depth`, `distance`, `within`, `startswith`, `endswith`, `fast_pattern`, `rawbytes` | of the content before |
//! | `flowbits` | `set`, `unset`, `toggle` with a name; `isset`, `isnotset` with names between bars; `noalert` |
//! | `detection_filter` | `track by_src\|by_dst\|by_both\|by_rule, count N, seconds N` |
//! | `threshold` | `type limit\|threshold\|both, track by_src\|by_dst\|by_both\|by_rule, count N, seconds N` |
//! | `noalert` | – |
//!
//! Not here: the bytes of a content (`content`), which rule is asked when (`ruleset`).

use super::content;
use super::parse::Fault;
use super::rule::{
    BitWord, Bits, Content, Field, FlagMode, Flags, Numbers, Protocol, Rule, Threshold, ThresholdKind, Track,
};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wire::tcp::flags;

/// Contents of one rule.
pub(super) const CONTENTS_MAX: usize = 32;
/// Words of one rule on flow bits, and fields of a packet.
const WORDS_MAX: usize = 32;
/// The most that places of contents are counted up to.
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
    whole(rule)?;
    count_unanchored(rule)
}

/// Mistakes that no single word shows.
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
        let length = content.bytes.len();
        let room = [content.depth, content.within].into_iter().flatten().min();
        if room.is_some_and(|room| (room as usize) < length) {
            return Err(too_little_room(length));
        }
        if content.is_relative() && content.has_place() {
            return Err(Fault::new(
                "a content has a place from the beginning and one from the content before",
                "write offset and depth, or distance and within",
            ));
        }
        if content.fast_only && (content.negated || content.is_relative() || content.has_place()) {
            return Err(fast_only("has a place, or must not be there"));
        }
    }
    let pairs = rule.contents.windows(2);
    match pairs
        .into_iter()
        .any(|pair| pair[0].fast_only && pair[1].is_relative())
    {
        true => Err(fast_only("has another behind it whose place is counted from it")),
        false => Ok(()),
    }
}

fn fast_only(what: &str) -> Fault {
    Fault::new(
        format!("the content with fast_pattern:only {what}"),
        "write fast_pattern instead of fast_pattern:only",
    )
}

/// Counts the places of contents before which none stands from the beginning, as Suricata does.
fn count_unanchored(rule: &mut Rule) -> Result<(), Fault> {
    for content in &mut rule.contents {
        if content.is_relative() {
            let distance = content.distance.take().unwrap_or(0);
            content.offset = Some(distance.max(0) as u32);
            if let Some(within) = content.within.take() {
                let depth = within.saturating_add_signed(distance.min(0));
                if (depth as usize) < content.bytes.len() {
                    return Err(too_little_room(content.bytes.len()));
                }
                content.depth = Some(depth);
            }
        }
        if !content.negated {
            break;
        }
    }
    Ok(())
}

fn too_little_room(length: usize) -> Fault {
    Fault::new(
        format!("a content of {length} bytes is to be found within fewer"),
        "write a depth or within that it fits into",
    )
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
        "threshold" | "detection_filter" => {
            let read = threshold(name, needed()?)?;
            if rule.threshold.replace(read).is_some() {
                let problem = "the rule has more than one of threshold and detection_filter";
                return Err(Fault::new(problem, "take one out"));
            }
        }
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
                return Err(Fault::unknown(name, "keyword", LEAVE_OUT));
            }
        },
    }
    Ok(())
}

/// The remedy for a rule with a word that has no like here.
pub(super) const LEAVE_OUT: &str = "take the rule out, or set unsupported = \"skip\" below [function.ids]";

/// Words that ask a number of a packet, and the largest it can be.
const FIELDS: &[(&str, Field, u32)] = &[
    ("dsize", Field::PayloadLength, 65_535),
    ("ttl", Field::TimeToLive, 255),
    ("seq", Field::Sequence, u32::MAX),
    ("ack", Field::Acknowledgement, u32::MAX),
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
            (Some(low), Some(high)) if low.saturating_add(1) < high => Some(Numbers::Between(low, high)),
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

/// Flags with at most one modifier before, behind or between them; behind a comma flags to ignore.
/// As in Suricata a `0` takes back the flags before it.
fn flags(value: &str) -> Result<Flags, Fault> {
    let refuse = || {
        not_a(
            "flags",
            value,
            "write letters of FSRPAUEC, or 0 for none; with them +, * or !; behind a comma those to ignore",
        )
    };
    let (shown, ignored) = match value.split_once(',') {
        Some((shown, ignored)) => (shown.trim(), Some(ignored.trim())),
        None => (value.trim(), None),
    };
    let (mut mode, mut flags) = (None, None);
    for letter in shown.chars() {
        let modifier = match letter {
            '+' => FlagMode::AtLeast,
            '*' => FlagMode::Any,
            '!' => FlagMode::Not,
            '0' => {
                flags = Some(0);
                continue;
            }
            letter => {
                flags = Some(flags.unwrap_or(0) | flag(letter).ok_or_else(refuse)?);
                continue;
            }
        };
        if mode.replace(modifier).is_some() {
            return Err(refuse());
        }
    }
    let ignored = match ignored {
        Some("") => return Err(refuse()),
        Some(letters) => letters
            .chars()
            .try_fold(0, |all, letter| Some(all | flag(letter)?)),
        None => Some(0),
    };
    Ok(Flags {
        mode: mode.unwrap_or(FlagMode::Exactly),
        flags: flags.ok_or_else(refuse)?,
        ignored: ignored.ok_or_else(refuse)?,
    })
}

/// A flag by its letter.
fn flag(letter: char) -> Option<u8> {
    Some(match letter.to_ascii_uppercase() {
        'F' => flags::FIN,
        'S' => flags::SYN,
        'R' => flags::RST,
        'P' => flags::PSH,
        'A' => flags::ACK,
        'U' => flags::URG,
        'E' | '2' => flags::ECE,
        'C' | '1' => flags::CWR,
        _ => return None,
    })
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
        "fast_pattern" => {
            content.fast = true;
            match value {
                Some("only") => content.fast_only = true,
                Some(part) => fast_part(part, content)?,
                None => {}
            }
            false
        }
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

/// `fast_pattern:2,5`: the part of a content by which Suricata finds the rule. Here the whole
/// content finds it, so the part changes nothing, but must lie inside of the content.
fn fast_part(value: &str, content: &Content) -> Result<(), Fault> {
    let (offset, length) = value.split_once(',').unwrap_or((value, ""));
    let part = digits(offset.trim()).zip(digits(length.trim()));
    let is_inside = |(offset, length): (u32, u32)| {
        length > 0 && u64::from(offset) + u64::from(length) <= content.bytes.len() as u64
    };
    match part.is_some_and(is_inside) {
        true => Ok(()),
        false => Err(not_a(
            "fast_pattern",
            value,
            "write fast_pattern; or fast_pattern:only; or an offset and a length inside of the content",
        )),
    }
}

/// A modifier without a value; whether it contradicts another.
fn simple_modifier(name: &str, content: &mut Content) -> bool {
    match name {
        "nocase" => content.nocase = true,
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

/// `threshold`, and `detection_filter`, which has no type.
fn threshold(name: &str, value: &str) -> Result<Threshold, Fault> {
    let is_filter = name == "detection_filter";
    let mut kind = is_filter.then_some(ThresholdKind::Filter);
    let (mut track, mut count, mut seconds) = (None, None, None);
    for part in value.split(',') {
        let mut words = part.split_whitespace();
        let (word, what) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let unknown = || {
            Fault::unknown(
                &format!("{name}:{}", part.trim()),
                "keyword",
                "write type limit|threshold|both (of a threshold), track by_src|by_dst|by_both|by_rule, count N, \
                 seconds N",
            )
        };
        if words.next().is_some() {
            return Err(unknown());
        }
        match (word, what) {
            ("type", "limit") if !is_filter => kind = Some(ThresholdKind::Limit),
            ("type", "threshold") if !is_filter => kind = Some(ThresholdKind::Threshold),
            ("type", "both") if !is_filter => kind = Some(ThresholdKind::Both),
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
            name,
            value,
            match is_filter {
                true => "write all three: track, count and seconds",
                false => "write all four: type, track, count and seconds",
            },
        )),
    }
}
