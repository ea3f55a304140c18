//! A rule's head: addresses and ports, with lists, negation and variables.
//!
//! ```text
//!   any   10.0.0.0/8   10.0.0.1-10.0.0.9   !192.0.2.1   [$HOME_NET, !10.0.0.1]   $EXTERNAL_NET
//!   any   80           1024:   :1023   80:90   !22   [80, 8000:8100, !$ODD_PORTS]
//! ```
//!
//! A list is what one of its items has, less what one of its negated items has; a list of negated
//! items only is everything less those. Variables stand for text of the same kind.
//!
//! Invariants: no text takes more than [`ITEMS_MAX`] items or [`DEPTH_MAX`] lists and variables
//! inside each other, so that none takes long.
//!
//! Not here: the words behind (`options`).

use super::parse::Fault;
use super::spans::Spans;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wire::{Addr, Prefix};

/// Items of one list, with all lists and variables in it.
const ITEMS_MAX: usize = 16_384;
/// Lists and variables inside each other.
const DEPTH_MAX: usize = 16;

/// Variables by name, without `$`.
pub type Variables = BTreeMap<String, String>;

/// The kinds of lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Addresses.
    Addresses,
    /// Ports.
    Ports,
}

impl Kind {
    fn example(self) -> &'static str {
        match self {
            Kind::Addresses => {
                "write an address, a prefix (10.0.0.0/8), a range (10.0.0.1-10.0.0.9), a list in brackets, a \
                 variable ($HOME_NET) or any"
            }
            Kind::Ports => {
                "write a port, a range (1024:2048), a list in brackets, a variable ($HTTP_PORTS) or any"
            }
        }
    }
}

/// Reads addresses or ports.
pub fn read(text: &str, kind: Kind, variables: &Variables) -> Result<Spans, Fault> {
    let mut left = ITEMS_MAX;
    let spans = item(text, kind, variables, 0, &mut left)?;
    match spans.is_empty() {
        true => Err(Fault::new(
            format!("`{text}` leaves nothing: it takes away all that it names"),
            "take one of the two out",
        )),
        false => Ok(spans),
    }
}

fn item(
    text: &str,
    kind: Kind,
    variables: &Variables,
    depth: usize,
    left: &mut usize,
) -> Result<Spans, Fault> {
    let text = text.trim();
    if depth > DEPTH_MAX {
        let problem = format!("more than {DEPTH_MAX} lists or variables are inside each other at `{text}`");
        return Err(Fault::new(
            problem,
            "write it flatter; a variable must not name itself",
        ));
    }
    *left = left
        .checked_sub(1)
        .ok_or_else(|| Fault::new(format!("more than {ITEMS_MAX} items"), "divide the rule"))?;
    if let Some(rest) = text.strip_prefix('!') {
        return Ok(item(rest, kind, variables, depth + 1, left)?.complement());
    }
    if let Some(inside) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return list(inside, kind, variables, depth, left);
    }
    if let Some(name) = text.strip_prefix('$') {
        let Some(value) = variables.get(name) else {
            let known: Vec<&str> = variables.keys().map(String::as_str).collect();
            return Err(Fault::new(
                format!("there is no variable `${name}`"),
                format!(
                    "add it to [function.ids.variables]; there are: {}",
                    known.join(", ")
                ),
            ));
        };
        return item(value, kind, variables, depth + 1, left);
    }
    if text == "any" {
        return Ok(Spans::all());
    }
    let read = match kind {
        Kind::Addresses => addresses(text),
        Kind::Ports => ports(text),
    };
    read.ok_or_else(|| {
        let what = match kind {
            Kind::Addresses => "address",
            Kind::Ports => "port",
        };
        Fault::new(format!("`{text}` is no {what}"), kind.example())
    })
}

fn list(
    inside: &str,
    kind: Kind,
    variables: &Variables,
    depth: usize,
    left: &mut usize,
) -> Result<Spans, Fault> {
    let (mut named, mut taken) = (Vec::new(), Vec::new());
    for part in split(inside) {
        let part = part.trim();
        match part.strip_prefix('!') {
            Some(rest) => taken.push(item(rest, kind, variables, depth + 1, left)?),
            None => named.push(item(part, kind, variables, depth + 1, left)?),
        }
    }
    let named = match named.is_empty() {
        true => Spans::all(),
        false => Spans::union(&named),
    };
    Ok(named.without(&Spans::union(&taken)))
}

/// The parts between commas that are in no brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0usize, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

fn number(addr: Addr) -> u128 {
    u128::from_be_bytes(*addr.octets())
}

fn addresses(text: &str) -> Option<Spans> {
    if let Some((first, last)) = text.split_once('-') {
        let (first, last): (Addr, Addr) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        return (first.is_v4() == last.is_v4() && number(first) <= number(last))
            .then(|| Spans::run(number(first), number(last)));
    }
    // Suricata takes prefixes with bits behind their length and clears them.
    let prefix = match text.parse::<Prefix>() {
        Ok(prefix) => prefix,
        Err(wire::addr::PrefixError::HostBits(prefix)) => prefix,
        Err(_) => return None,
    };
    let host_bits = match prefix.is_v4() {
        true => 32 - u32::from(prefix.length()),
        false => 128 - u32::from(prefix.length()),
    };
    let mask = 1u128.checked_shl(host_bits).map_or(u128::MAX, |bit| bit - 1);
    let first = number(prefix.addr());
    Some(Spans::run(first, first | mask))
}

fn ports(text: &str) -> Option<Spans> {
    let port = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u16>().ok()).flatten().map(u128::from)
    };
    let Some((first, last)) = text.split_once(':') else {
        return port(text).map(|port| Spans::run(port, port));
    };
    let first = if first.is_empty() { 0 } else { port(first)? };
    let last = if last.is_empty() { 65_535 } else { port(last)? };
    (first <= last).then(|| Spans::run(first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        [
            ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8]"),
            ("EXTERNAL_NET", "!$HOME_NET"),
            ("LOOP", "[$LOOP]"),
            ("WEB", "[80,8000:8100,!8080]"),
        ]
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
    }

    fn has(text: &str, addr: &str) -> bool {
        let spans = read(text, Kind::Addresses, &variables()).unwrap();
        spans.contains(number(addr.parse().unwrap()))
    }

    #[test]
    fn addresses_lists_and_variables() {
        assert!(has("any", "192.0.2.1") && has("any", "2001:db8::1"));
        assert!(has("$HOME_NET", "10.9.9.9") && !has("$HOME_NET", "11.0.0.1"));
        assert!(has("$EXTERNAL_NET", "11.0.0.1") && !has("$EXTERNAL_NET", "192.168.3.4"));
        assert!(has("!$EXTERNAL_NET", "192.168.3.4"));
        assert!(has("[10.0.0.0/8, ![10.1.0.0/16, 10.2.0.1]]", "10.2.0.2"));
        assert!(!has("[10.0.0.0/8, ![10.1.0.0/16, 10.2.0.1]]", "10.2.0.1"));
        assert!(has("10.0.0.1-10.0.0.9", "10.0.0.9") && !has("10.0.0.1-10.0.0.9", "10.0.0.10"));
        assert!(has("2001:db8::/32", "2001:db8:1::1") && !has("2001:db8::/32", "10.0.0.1"));
        assert!(has("[!10.0.0.0/8]", "2001:db8::1"));
        // As Suricata, bits behind the length are cleared.
        assert!(has("10.1.2.3/8", "10.9.9.9"));
    }

    #[test]
    fn ports_and_their_ranges() {
        let has = |text: &str, port: u16| {
            read(text, Kind::Ports, &variables())
                .unwrap()
                .contains(u128::from(port))
        };
        assert!(has("1024:", 65_535) && !has("1024:", 1023) && has(":1023", 0) && has("80:90", 90));
        assert!(has("$WEB", 8081) && !has("$WEB", 8080) && has("!$WEB", 8080) && has("!22", 23));
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_remedy() {
        for (text, kind, says) in [
            ("$MISSING", Kind::Addresses, "there is no variable `$MISSING`"),
            ("$LOOP", Kind::Addresses, "inside each other"),
            ("10.0.0.256", Kind::Addresses, "`10.0.0.256` is no address"),
            ("[10.0.0.1,!10.0.0.0/8]", Kind::Addresses, "leaves nothing"),
            ("!any", Kind::Ports, "leaves nothing"),
            ("90:80", Kind::Ports, "`90:80` is no port"),
            ("+80", Kind::Ports, "`+80` is no port"),
            ("65536", Kind::Ports, "is no port"),
            ("", Kind::Ports, "is no port"),
        ] {
            let fault = read(text, kind, &variables()).unwrap_err();
            assert!(fault.problem.contains(says), "{text}: {}", fault.problem);
            assert!(!fault.remedy.is_empty());
        }
    }
}
