//! Fields of states as JSON, from the text in which functions show them.
//!
//! A state's field is plain data: numbers, truth values, enums without fields, and structs and
//! arrays of these. The text that the derive of `Debug` writes of these is unambiguous, so it is
//! read back:
//!
//! ```text
//!   Window { next: 7, phase: Open, sent: [1, 2] }   {"next": 7, "phase": "open", "sent": [1, 2]}
//!   Some(Side(3))                                   3
//!   None                                            null
//!   10.0.0.1:80                                     "10.0.0.1:80"
//! ```
//!
//! A struct's own name is left out: a field has always the same. A variant's name is a word as
//! settings have it: `TcpClosed` is `tcp_closed`. A type with a format of its own, an address for
//! example, is text; so is the whole field where a part of it cannot be read.
//!
//! Invariant: every text has a value, and reading it ends: it goes forward only, [`DEPTH_MAX`] deep
//! at most.

use serde_json::{Map, Number, Value};
use std::borrow::Cow;

/// How deep values may be in each other.
const DEPTH_MAX: usize = 16;

/// The value of a field.
pub(super) fn value(text: &str) -> Value {
    let mut reader = Reader { rest: text };
    match reader.value(DEPTH_MAX) {
        Some(value) if reader.rest.is_empty() => value,
        _ => Value::String(text.to_owned()),
    }
}

/// A variant's name, as settings write words: `TcpClosed` is `tcp_closed`. Capitals alone are an
/// abbreviation, and stay.
pub(super) fn word(name: &str) -> String {
    if !name.chars().any(char::is_lowercase) {
        return name.to_owned();
    }
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !word.is_empty() && !word.ends_with('_') {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

/// A value, as people read it.
pub(super) fn shown(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Null => Cow::Borrowed("null"),
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(shown).collect();
            Cow::Owned(format!("[{}]", values.join(", ")))
        }
        Value::Object(fields) => {
            let each = fields
                .iter()
                .map(|(name, value)| format!("{name}: {}", shown(value)));
            Cow::Owned(format!("{{ {} }}", each.collect::<Vec<_>>().join(", ")))
        }
        other => Cow::Owned(other.to_string()),
    }
}

/// The rest of a text.
#[derive(Clone, Copy)]
struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        let mut inside = *self;
        if let Some(value) = inside.structured(depth)
            && inside.is_at_end()
        {
            *self = inside;
            return Some(value);
        }
        self.leaf()
    }

    /// Whether a value may end here.
    fn is_at_end(&self) -> bool {
        let ends = [", ", " }", ")", "]"];
        self.rest.is_empty() || ends.iter().any(|end| self.rest.starts_with(end))
    }

    fn takes(&mut self, word: &str) -> bool {
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn structured(&mut self, depth: usize) -> Option<Value> {
        match self.rest.bytes().next()? {
            b'"' => self.text().map(Value::String),
            b'[' => self.list("[", "]", depth).map(Value::Array),
            b'(' => self.list("(", ")", depth).map(Value::Array),
            _ => self.named(depth),
        }
    }

    /// A value that begins with a name: a struct, or a name only.
    fn named(&mut self, depth: usize) -> Option<Value> {
        let name = self.name()?;
        if self.takes(" { ") {
            return self.fields(depth).map(Value::Object);
        }
        if self.rest.starts_with('(') {
            let mut values = self.list("(", ")", depth)?;
            return match values.len() {
                1 => values.pop(),
                _ => Some(Value::Array(values)),
            };
        }
        Some(match name {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "None" => Value::Null,
            name => Value::String(word(name)),
        })
    }

    fn fields(&mut self, depth: usize) -> Option<Map<String, Value>> {
        let mut fields = Map::new();
        loop {
            let name = self.name()?.to_owned();
            if !self.takes(": ") {
                return None;
            }
            fields.insert(name, self.value(depth)?);
            if self.takes(" }") {
                return Some(fields);
            }
            if !self.takes(", ") {
                return None;
            }
        }
    }

    fn list(&mut self, begin: &str, end: &str, depth: usize) -> Option<Vec<Value>> {
        let mut values = Vec::new();
        if !self.takes(begin) {
            return None;
        }
        if self.takes(end) {
            return Some(values);
        }
        loop {
            values.push(self.value(depth)?);
            if self.takes(end) {
                return Some(values);
            }
            if !self.takes(", ") {
                return None;
            }
        }
    }
}

impl<'t> Reader<'t> {
    /// A name as Rust has them.
    fn name(&mut self) -> Option<&'t str> {
        let is_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        let length = self.rest.find(|letter| !is_of_name(letter));
        let (name, rest) = self.rest.split_at(length.unwrap_or(self.rest.len()));
        let first = name.chars().next()?;
        if first.is_numeric() {
            return None;
        }
        self.rest = rest;
        Some(name)
    }

    /// Text in quotes; with an escape that is no letter's it is left as a whole.
    fn text(&mut self) -> Option<String> {
        let inside = self.rest.strip_prefix('"')?;
        let (mut text, mut letters) = (String::new(), inside.char_indices());
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.rest = &inside[at + 1..];
                    return Some(text);
                }
                '\\' => text.push(match letters.next()?.1 {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    '0' => '\0',
                    same @ ('"' | '\\' | '\'') => same,
                    _ => return None,
                }),
                letter => text.push(letter),
            }
        }
        None
    }

    /// A number, or the text of a type with a format of its own.
    fn leaf(&mut self) -> Option<Value> {
        let mut open = 0_usize;
        let ends = |at: usize| {
            Reader {
                rest: &self.rest[at..],
            }
            .is_at_end()
        };
        let end = self.rest.char_indices().find_map(|(at, letter)| {
            if open == 0 && ends(at) {
                return Some(at);
            }
            match letter {
                '(' | '[' | '{' => open += 1,
                ')' | ']' | '}' => open = open.saturating_sub(1),
                _ => {}
            }
            None
        });
        let (leaf, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        (!leaf.is_empty()).then(|| match leaf.parse::<Number>() {
            Ok(number) => Value::Number(number),
            Err(_) => Value::String(leaf.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, PartialEq)]
    struct Window {
        next: u32,
        phase: Phase,
        sent: [u8; 2],
        peer: Option<Side>,
        by: Option<Phase>,
        address: std::net::SocketAddr,
        inner: Inner,
    }

    #[derive(Debug, PartialEq)]
    struct Inner {
        good: bool,
        share: f32,
        pair: (i8, &'static str),
    }

    #[derive(Debug, PartialEq)]
    struct Side(u16);

    #[derive(Debug, PartialEq)]
    enum Phase {
        Open,
    }

    fn window(address: &str) -> Window {
        Window {
            next: 7,
            phase: Phase::Open,
            sent: [1, 2],
            peer: Some(Side(3)),
            by: None,
            address: address.parse().unwrap(),
            inner: Inner {
                good: true,
                share: 0.5,
                pair: (-1, "a, \"b\" }\n"),
            },
        }
    }

    #[test]
    fn bits_are_words_and_letters_keep_their_case() {
        use ::functions::{firewall, flow_monitor};
        let mut flow = firewall::state::Connection::default();
        flow.marks |= firewall::state::mark::REPLIED | firewall::state::mark::ASSURED;
        let read = value(&format!("{flow:?}"));
        assert_eq!(read["marks"], json!(["replied", "assured"]), "{read}");
        assert_eq!(read["options"], json!([]));
        let mut history = flow_monitor::history::History::default();
        for direction in [nf::Direction::Opening, nf::Direction::Reply] {
            history.push(flow_monitor::history::Letter::Payload, direction);
        }
        assert_eq!(value(&format!("{history:?}")), json!("Dd"));
        assert_eq!(
            value(&format!("{:?}", flow_monitor::history::History::default())),
            json!("")
        );
    }

    #[test]
    fn nested_states_are_values() {
        for address in ["10.0.0.1:80", "[2001:db8::1]:80"] {
            let read = value(&format!("{:?}", window(address)));
            let expected = json!({
                "next": 7, "phase": "open", "sent": [1, 2], "peer": 3, "by": null, "address": address,
                "inner": { "good": true, "share": 0.5, "pair": [-1, "a, \"b\" }\n"] },
            });
            assert_eq!(read, expected);
        }
        assert_eq!(value(&format!("{:?}", [Some(Side(1)), None])), json!([1, null]));
        let same = value("Window { next: 7, sent: [1, 2], by: None }");
        assert_eq!(shown(&same), "{ by: null, next: 7, sent: [1, 2] }");
    }

    #[test]
    fn what_a_type_writes_in_a_way_of_its_own_is_text() {
        for (text, expected) in [
            ("17", json!(17)),
            ("-1.5", json!(-1.5)),
            ("true", json!(true)),
            ("None", json!(null)),
            ("Established", json!("established")),
            ("TcpClosed", json!("tcp_closed")),
            ("SYN", json!("SYN")),
            ("\"TcpClosed\"", json!("TcpClosed")),
            ("10.0.0.1:80", json!("10.0.0.1:80")),
            ("[2001:db8::1]:53", json!("[2001:db8::1]:53")),
            ("2001:db8::/32", json!("2001:db8::/32")),
            ("1.5s", json!("1.5s")),
            ("two words, and more", json!("two words, and more")),
            ("Flags(SYN | ACK)", json!("SYN | ACK")),
            ("Wide { a: 1, .. }", json!("Wide { a: 1, .. }")),
            ("", json!("")),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn every_text_has_a_value_and_none_is_too_deep() {
        let deep = "[".repeat(100_000);
        assert_eq!(value(&deep), Value::String(deep.clone()));
        let letters = [
            "a", "(", ")", "[", "]", " { ", " }", ": ", ", ", "1", "\"", "\\", "ü",
        ];
        let mut number = 1_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(letters[(number >> 33) as usize % letters.len()]);
            }
            let _ = shown(&value(&text));
        }
    }
}
