//! The range of external ports as it is written.
//!
//! Not here: the use of the range ([`super::config`]).

use super::alloc::format;
use super::alloc::string::String;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serializer};

/// First and last port, as text; a list of both is answered with the text to write.
struct Range;

impl<'de> Visitor<'de> for Range {
    type Value = (u16, u16);

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a range of ports, like \"1024-65535\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(u16, u16), E> {
        let ends = text
            .split_once('-')
            .and_then(|(first, last)| Some((first.trim().parse().ok()?, last.trim().parse().ok()?)));
        ends.ok_or_else(|| {
            E::custom(format!(
                "`{text}` is no range of ports; write the first and the last, like `1024-65535`"
            ))
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(u16, u16), A::Error> {
        let mut ends: Option<(u16, u16)> = None;
        while let Some(Listed(first, last)) = list.next_element().unwrap_or_default() {
            ends = Some(ends.map_or((first, last), |(least, most)| (least.min(first), most.max(last))));
        }
        let (first, last) = ends.unwrap_or((1024, u16::MAX));
        Err(A::Error::custom(format!(
            "a range of ports is no list; write \"{first}-{last}\""
        )))
    }
}

/// A port or a range of them in a list.
struct Listed(u16, u16);

impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Port(u16),
            Text(String),
        }
        let text = match Either::deserialize(from)? {
            Either::Port(port) => return Ok(Listed(port, port)),
            Either::Text(text) => text,
        };
        match text.trim().parse() {
            Ok(port) => Ok(Listed(port, port)),
            Err(_) => Range.visit_str(&text).map(|(first, last)| Listed(first, last)),
        }
    }
}

/// Reads a range.
pub(super) fn range<'de, D: Deserializer<'de>>(from: D) -> Result<(u16, u16), D::Error> {
    from.deserialize_any(Range)
}

/// A range as the schema shows it: as it is read.
pub(super) fn as_range<S: Serializer>(&(first, last): &(u16, u16), to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{first}-{last}"))
}
