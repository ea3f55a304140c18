//! Events: which lines a function writes to the event log, when, and with which fields.
//!
//! A function declares its events ([`NetworkFunction::EVENTS`]); the reference of events is made of
//! that. [`Cx::event`] writes no other, and a debug build holds the fields of each line against
//! those declared.
//!
//! ```text
//!   EVENTS: pool_low {free_blocks, blocks, lasts_seconds}
//!   cx.event("pool_low", "free_blocks":126,…)      a line
//!   cx.event("pool_lwo", …)                        does not compile
//! ```
//!
//! Not here: the lines ([`EventLog`](crate::cx::EventLog)).
//!
//! [`NetworkFunction::EVENTS`]: crate::NetworkFunction::EVENTS
//! [`Cx::event`]: crate::Cx::event

use core::fmt;

/// An event that may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its name: lower case, underscores.
    pub name: &'static str,
    /// When it is written, a sentence.
    pub when: &'static str,
    /// The fields of its line, behind those that each line has.
    pub fields: &'static [Field],
}

/// A field of an event's line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name: lower case, underscores.
    pub name: &'static str,
    /// The unit of a number, like `s` or `packets`; empty for a text.
    pub unit: &'static str,
    /// Its meaning.
    pub what: &'static str,
}

impl Event {
    /// An event.
    pub const fn new(name: &'static str, when: &'static str, fields: &'static [Field]) -> Self {
        Event { name, when, fields }
    }

    /// An event of which nothing but the name is declared: its fields are held against nothing.
    pub const fn named(name: &'static str) -> Self {
        Event::new(name, "", &[])
    }

    /// Whether a line may have a field.
    fn has(&self, name: &[u8]) -> bool {
        self.fields.iter().any(|field| field.name.as_bytes() == name)
    }

    /// Holds a line's fields against the declared ones: the first undeclared field.
    pub(crate) fn undeclared(&self, fields: fmt::Arguments<'_>) -> Option<Name> {
        if self.fields.is_empty() && self.when.is_empty() {
            return None;
        }
        let mut names = Names {
            event: self,
            place: Place::Name,
            depth: 0,
            name: Name::default(),
            found: None,
        };
        // The reader takes any text.
        let _ = fmt::write(&mut names, fields);
        names.found
    }
}

impl Field {
    /// A text.
    pub const fn text(name: &'static str, what: &'static str) -> Self {
        Field { name, unit: "", what }
    }

    /// A number in a unit.
    pub const fn number(name: &'static str, unit: &'static str, what: &'static str) -> Self {
        Field { name, unit, what }
    }
}

/// A field's name, as far as there is room for it.
#[derive(Default, Clone, Copy)]
pub(crate) struct Name {
    bytes: [u8; 32],
    length: usize,
}

impl Name {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(core::str::from_utf8(self.as_bytes()).unwrap_or("?"))
    }
}

/// Where in the inside of a JSON object a reader is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a name, or behind it.
    Name,
    /// In a name.
    InName,
    /// In a value, outside of its texts.
    Value,
    /// In a text of a value.
    InText,
    /// Behind a backslash there.
    Escaped,
}

/// Reads names of fields, and looks each one up. It takes no memory, since functions whose calls
/// take none write events.
struct Names<'e> {
    event: &'e Event,
    place: Place,
    /// Braces and brackets that are open.
    depth: u32,
    name: Name,
    found: Option<Name>,
}

impl fmt::Write for Names<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.place = match (self.place, byte) {
                (Place::Name, b'"') => {
                    self.name = Name::default();
                    Place::InName
                }
                (Place::Name, b':') => Place::Value,
                (Place::Name, _) => Place::Name,
                (Place::InName, b'"') => {
                    if self.found.is_none() && !self.event.has(self.name.as_bytes()) {
                        self.found = Some(self.name);
                    }
                    Place::Name
                }
                (Place::InName, byte) => {
                    self.name.push(byte);
                    Place::InName
                }
                (Place::Value, b'"') => Place::InText,
                (Place::Value, b',') if self.depth == 0 => Place::Name,
                (Place::Value, byte) => {
                    match byte {
                        b'{' | b'[' => self.depth += 1,
                        b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                        _ => {}
                    }
                    Place::Value
                }
                (Place::InText, b'"') => Place::Value,
                (Place::InText, b'\\') => Place::Escaped,
                (Place::InText | Place::Escaped, _) => Place::InText,
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const EVENT: Event = Event::new(
        "flow",
        "Now and then.",
        &[
            Field::text("from", "An end."),
            Field::number("packets", "packets", "Packets."),
        ],
    );

    fn undeclared(line: &str) -> Option<alloc::string::String> {
        EVENT
            .undeclared(format_args!("{line}"))
            .map(|name| name.to_string())
    }

    #[test]
    fn fields_are_those_declared() {
        for right in [
            "",
            r#""from":"10.0.0.1:1","packets":[1,2]"#,
            r#""packets":{"to":1,"x":["a",{"y":2}]},"from":"a\",\"b\":\"c""#,
        ] {
            assert_eq!(undeclared(right), None, "{right}");
        }
        assert_eq!(undeclared(r#""from":"a","to":"b","of":1"#).as_deref(), Some("to"));
        assert_eq!(undeclared(r#""packets":[1],"froms":1"#).as_deref(), Some("froms"));
        assert!(Event::named("a").undeclared(format_args!("\"x\":1")).is_none());
    }
}
