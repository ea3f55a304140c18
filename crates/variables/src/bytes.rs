//! Bytes as a value of a variable: their stored form is a length and the bytes themselves.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// Bytes. Their memory is kept when they are changed ([`crate::Map::change`]).
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Bytes(pub Vec<u8>);

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Bytes;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }
    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes(bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_stored_as_a_length_and_themselves() {
        let bytes = Bytes(alloc::vec![7, 0, 255]);
        let stored = postcard::to_allocvec(&bytes).unwrap();
        assert_eq!(stored, [3, 7, 0, 255]);
        assert_eq!(crate::decoded(&stored), Some(bytes));
        assert_eq!(crate::decoded::<Bytes>(&[3, 7, 0]), None);
    }
}
