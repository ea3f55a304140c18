//! Messages over the socket between a process and its store's driver, and how they are read.
//!
//! ```text
//!   length u32, little-endian, at most MESSAGE_MAX │ a Request, or an Answer, as `postcard` writes it
//!
//!   Open ──► Opened                     Write ──► Written            each call: Working … Working, then
//!   Claim ─► Epoch                      Load ───► Elements … Done    what it is answered with, or Failed
//!   Version ─► Version                  Swap ───► Done │ Record
//!   Restore ─► Written                  Look ───► Done
//!   Partitions, Variables, Records ─► Names … Done      Record ─► Record
//! ```
//!
//! Partitions and variables go by their keys ([`crate::name`]), which have one reading.
//!
//! Invariants: both ends read as much as has come and no more than [`MESSAGE_MAX`], whatever the
//! length says; no message nests; bytes behind a message in its frame make it none
//! (`whatever_comes_is_read_or_refused`).

use crate::batch::{Batch, KeptBatch};
use crate::driver::{Outcome, Version};
use crate::name::{PartitionName, VariableName};
use serde::{Deserialize, Serialize, Serializer};
use std::io::{self, Read};

/// Of the messages: both ends are one program, and say so.
pub const FORM: u32 = 1;
/// The most bytes of a message.
pub const MESSAGE_MAX: usize = 16 << 20;
/// After so many bytes a message of several elements, names or batches is sent, and another begun.
pub const MESSAGE_GOOD: usize = 1 << 20;

/// Bytes that are copied in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Bytes<'m>(#[serde(borrow)] pub &'m [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// A batch.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent<'m> {
    partition: String,
    version: Version,
    variables: Vec<String>,
    #[serde(borrow)]
    bytes: Bytes<'m>,
}

impl<'m> Sent<'m> {
    pub fn of(batch: &Batch<'m>) -> Self {
        Sent {
            partition: batch.partition.to_string(),
            version: batch.version,
            variables: batch.variables.iter().map(VariableName::to_string).collect(),
            bytes: Bytes(batch.bytes),
        }
    }

    /// The batch, if its names are some and its changes are all of its bytes.
    pub fn batch(&self) -> Option<KeptBatch> {
        let partition: PartitionName = self.partition.parse().ok()?;
        let variables = self.variables.iter().map(|key| key.parse());
        let variables: Vec<VariableName> = variables.collect::<Result<_, _>>().ok()?;
        let bytes = self.bytes.0.to_vec();
        let kept = KeptBatch::new(&partition, self.version, &variables, bytes);
        kept.batch().is_whole().then_some(kept)
    }
}

/// A call for the driver.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request<'m> {
    /// Once, first: which form messages have, and which store.
    Open {
        form: u32,
        uri: &'m str,
    },
    Look,
    Claim {
        partition: String,
        at_least: u64,
    },
    Version {
        partition: String,
    },
    Restore {
        partition: String,
        version: Version,
    },
    Write(#[serde(borrow)] Vec<Sent<'m>>),
    Load {
        variable: String,
    },
    Partitions {
        function: &'m str,
    },
    Variables,
    Record {
        name: &'m str,
    },
    Records,
    Swap {
        name: &'m str,
        #[serde(borrow)]
        expected: Option<Bytes<'m>>,
        #[serde(borrow)]
        new: Option<Bytes<'m>>,
    },
}

/// A store's failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub problem: String,
    pub remedy: String,
}

/// The driver's answer.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriverAnswer<'m> {
    /// The call goes on.
    Working,
    Opened {
        form: u32,
    },
    /// It is done, and there is nothing else to say of it; or the last element, or name, was said.
    Done,
    Epoch(u64),
    Version(Option<Version>),
    /// Outcomes of batches; of the others why there is none.
    Written(Vec<Outcome>, Option<Failed>),
    #[serde(borrow)]
    Elements(Vec<(Bytes<'m>, Bytes<'m>)>),
    Names(Vec<String>),
    Record(Option<Vec<u8>>),
    Failed(Failed),
}

/// A message with its length before it; `None` if it is too long.
pub fn frame(message: &impl Serialize) -> Option<Vec<u8>> {
    let mut bytes = postcard::to_extend(message, vec![0; 4]).ok()?;
    let length = bytes
        .len()
        .checked_sub(4)
        .filter(|length| *length <= MESSAGE_MAX)?;
    *bytes.first_chunk_mut()? = u32::try_from(length).ok()?.to_le_bytes();
    Some(bytes)
}

/// Reads the bytes of a message.
pub fn read(from: &mut impl Read, into: &mut Vec<u8>) -> io::Result<()> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length as usize > MESSAGE_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    into.clear();
    match from.take(length.into()).read_to_end(into)? == length as usize {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The content of a message, if it is one.
pub fn parsed<'m, M: Deserialize<'m>>(bytes: &'m [u8]) -> Option<M> {
    let (message, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Change;
    use crate::name::Kind;
    use proptest::prelude::*;

    fn answers() -> Vec<Vec<u8>> {
        let failed = || Failed {
            problem: "it is away".to_owned(),
            remedy: "wait".to_owned(),
        };
        let version = Version {
            epoch: 7,
            sequence: 3,
        };
        let outcomes = vec![Outcome::Stored, Outcome::Fenced, Outcome::Forgotten];
        let elements = vec![
            (Bytes(b"field"), Bytes(b"value")),
            (Bytes(b""), Bytes(&[0xff; 200])),
        ];
        [
            DriverAnswer::Working,
            DriverAnswer::Opened { form: FORM },
            DriverAnswer::Done,
            DriverAnswer::Epoch(1 << 63),
            DriverAnswer::Version(Some(version)),
            DriverAnswer::Written(outcomes, Some(failed())),
            DriverAnswer::Elements(elements),
            DriverAnswer::Names(vec!["nat@m@0".to_owned(), String::new()]),
            DriverAnswer::Record(Some(b"record".to_vec())),
            DriverAnswer::Failed(failed()),
        ]
        .iter()
        .map(|answer| frame(answer).unwrap())
        .collect()
    }

    proptest! {
        /// Bytes of true answers, of which some are others, and any bytes at all: they are read as
        /// an answer that can be said again, or not at all. Memory is as much as there are bytes.
        #[test]
        fn whatever_comes_is_read_or_refused(
            which in 0..10usize,
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
            any in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut bytes = answers()[which].clone();
            for (at, other) in &flips {
                let at = at.index(bytes.len());
                bytes[at] = *other;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            let mut message = Vec::new();
            for bytes in [bytes.as_slice(), &any, bytes.get(4..).unwrap_or_default()] {
                if read(&mut &bytes[..], &mut message).is_ok() {
                    prop_assert!(message.len() + 4 <= bytes.len() && message.capacity() <= 1024);
                }
                if let Some(answer) = parsed::<DriverAnswer<'_>>(bytes) {
                    let again = frame(&answer).unwrap();
                    prop_assert_eq!(parsed::<DriverAnswer<'_>>(&again[4..]), Some(answer));
                }
                let _ = parsed::<Request<'_>>(bytes).map(|request| match request {
                    Request::Write(batches) => batches.iter().filter_map(Sent::batch).count(),
                    _ => 0,
                });
            }
        }
    }

    #[test]
    fn a_length_that_is_a_lie_takes_no_memory() {
        let mut message = Vec::new();
        let mut read = |bytes: &[u8]| read(&mut &bytes[..], &mut message).map_err(|error| error.kind());
        assert_eq!(read(&[0xff; 8]), Err(io::ErrorKind::InvalidData));
        let long = (MESSAGE_MAX as u32).to_le_bytes();
        assert_eq!(read(&long), Err(io::ErrorKind::UnexpectedEof));
        assert!(message.capacity() < 1024);
        // A list that claims to have 2^32 names.
        let lie = [7, 0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(parsed::<DriverAnswer<'_>>(&lie), None);
        let mut more = answers()[2][4..].to_vec();
        assert_eq!(parsed(&more), Some(DriverAnswer::Done));
        more.extend([0]);
        assert_eq!(parsed::<DriverAnswer<'_>>(&more), None);
        assert_eq!(frame(&DriverAnswer::Record(Some(vec![0; MESSAGE_MAX]))), None);
    }

    #[test]
    fn a_batch_is_the_same_on_the_other_side() {
        let partition = PartitionName::new("n@t", "m%", 3).unwrap();
        let variables = [partition.variable(Kind::Map, "a b").unwrap()];
        let mut buffer = variables::buffer::Buffer::new();
        buffer.put(0, &1u8, &"xy").unwrap();
        buffer.remove(0, &2u8).unwrap();
        let version = Version {
            epoch: 1,
            sequence: 2,
        };
        let kept = KeptBatch::new(&partition, version, &variables, buffer.bytes().to_vec());
        let framed = frame(&Request::Write(vec![Sent::of(&kept.batch())])).unwrap();
        let Some(Request::Write(sent)) = parsed(&framed[4..]) else {
            panic!("no batch")
        };
        let there = sent[0].batch().unwrap();
        let there = there.batch();
        assert_eq!((there.partition, there.version), (&partition, version));
        let all: Vec<Change<'_>> = there.changes().collect();
        assert_eq!(all, kept.batch().changes().collect::<Vec<_>>());
        assert_eq!(all.len(), 2);
    }
}
