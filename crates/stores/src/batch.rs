//! A batch: changes of one partition that a store takes whole or not at all.
//!
//! The worker writes changes into a buffer that is made once
//! ([`Buffer`](variables::buffer::Buffer)); the agent hands the buffer back when the store has
//! them. In the buffer, numbers little-endian:
//!
//! ```text
//!   clear   0  variable u32
//!   put     1  variable u32  field length u32  value length u32  field  value
//!   remove  2  variable u32  field length u32                    field
//! ```
//!
//! `variable` is the variable's number in its partition, in the order in which they were opened.

use crate::driver::Version;
use crate::name::{PartitionName, VariableName};

pub use variables::buffer::{BATCH_BYTES, ELEMENT_BYTES_MAX};
use variables::buffer::{CLEAR, PUT, REMOVE};

/// A change of one variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'b> {
    /// All its fields are gone.
    Clear {
        /// Which variable.
        variable: &'b VariableName,
    },
    /// A field has a value.
    Put {
        /// Which variable.
        variable: &'b VariableName,
        /// Its encoded key.
        field: &'b [u8],
        /// Its encoded value.
        value: &'b [u8],
    },
    /// A field is gone.
    Remove {
        /// Which variable.
        variable: &'b VariableName,
        /// Its encoded key.
        field: &'b [u8],
    },
}

/// Changes of one partition, and the version that they make.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'b> {
    /// The partition that it belongs to.
    pub partition: &'b PartitionName,
    /// The version that the store has of the partition afterwards.
    pub version: Version,
    pub(crate) variables: &'b [VariableName],
    pub(crate) bytes: &'b [u8],
}

impl<'b> Batch<'b> {
    /// Changes in the order in which they take effect.
    pub fn changes(&self) -> Changes<'b> {
        Changes {
            variables: self.variables,
            rest: self.bytes,
        }
    }

    /// Whether its changes are all of its bytes. [`Batch::changes`] ends before bytes that are no
    /// change of one of its variables.
    pub(crate) fn is_whole(&self) -> bool {
        let mut changes = self.changes();
        changes.by_ref().for_each(drop);
        changes.rest.is_empty()
    }
}

/// A batch that is kept beyond its buffer: for code that hands batches on later, or once more.
#[derive(Clone, Debug)]
pub struct KeptBatch {
    partition: PartitionName,
    version: Version,
    variables: Vec<VariableName>,
    bytes: Vec<u8>,
}

impl KeptBatch {
    /// A batch of changes as a buffer has them: encoded as at the top of this module; bytes that
    /// are not so encoded end them.
    pub fn new(
        partition: &PartitionName,
        version: Version,
        variables: &[VariableName],
        bytes: Vec<u8>,
    ) -> Self {
        KeptBatch {
            partition: partition.clone(),
            version,
            variables: variables.to_vec(),
            bytes,
        }
    }

    /// The same changes, of another version.
    pub(crate) fn with_version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// A copy of a batch.
    pub fn of(batch: &Batch<'_>) -> Self {
        KeptBatch {
            partition: batch.partition.clone(),
            version: batch.version,
            variables: batch.variables.to_vec(),
            bytes: batch.bytes.to_vec(),
        }
    }

    /// The batch.
    pub fn batch(&self) -> Batch<'_> {
        Batch {
            partition: &self.partition,
            version: self.version,
            variables: &self.variables,
            bytes: &self.bytes,
        }
    }
}

/// The changes of a batch.
#[derive(Clone, Debug)]
pub struct Changes<'b> {
    variables: &'b [VariableName],
    rest: &'b [u8],
}

impl<'b> Changes<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<usize> {
        let bytes = self.take(4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    }

    fn change(&mut self) -> Option<Change<'b>> {
        let form = self.take(1)?.first().copied()?;
        let number = self.number()?;
        let variable = self.variables.get(number)?;
        match form {
            CLEAR => Some(Change::Clear { variable }),
            PUT => {
                let (field, value) = (self.number()?, self.number()?);
                Some(Change::Put {
                    variable,
                    field: self.take(field)?,
                    value: self.take(value)?,
                })
            }
            REMOVE => {
                let field = self.number()?;
                Some(Change::Remove {
                    variable,
                    field: self.take(field)?,
                })
            }
            _ => None,
        }
    }
}

impl<'b> Iterator for Changes<'b> {
    type Item = Change<'b>;

    /// Bytes that are no change stay, and are the end.
    fn next(&mut self) -> Option<Change<'b>> {
        let before = self.rest;
        let change = self.change();
        if change.is_none() {
            self.rest = before;
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Kind;
    use variables::buffer::{Buffer, NoRoom};

    #[test]
    fn changes_are_read_as_they_were_written_and_what_does_not_fit_leaves_no_trace() {
        let partition = PartitionName::new("f", "m", 0).unwrap();
        let variables = [
            partition.variable(Kind::Map, "a").unwrap(),
            partition.variable(Kind::Set, "b").unwrap(),
        ];
        let mut buffer = Buffer::new();
        buffer.clear(1).unwrap();
        buffer.put(0, &7u8, &"xy").unwrap();
        buffer.remove(1, &300u16).unwrap();
        let full = "z".repeat(BATCH_BYTES);
        assert_eq!(buffer.put(0, &1u8, &full), Err(NoRoom));
        assert_eq!(buffer.remove(0, &full), Err(NoRoom));
        let batch = |bytes| Batch {
            partition: &partition,
            version: Version::default(),
            variables: &variables,
            bytes,
        };
        let read = |bytes| batch(bytes).changes().collect::<Vec<_>>();
        let all = read(buffer.bytes());
        assert_eq!(
            all,
            [
                Change::Clear {
                    variable: &variables[1]
                },
                Change::Put {
                    variable: &variables[0],
                    field: &[7],
                    value: b"\x02xy"
                },
                Change::Remove {
                    variable: &variables[1],
                    field: &[0xac, 0x02]
                },
            ]
        );
        assert_eq!(buffer.changes(), 3);
        // However the bytes are cut, the changes read are a beginning of all.
        for end in 0..buffer.bytes().len() {
            let cut = read(&buffer.bytes()[..end]);
            assert_eq!(cut, all[..cut.len()]);
        }
        assert!(batch(buffer.bytes()).is_whole());
        assert!(!batch(&buffer.bytes()[..buffer.bytes().len() - 1]).is_whole());
        // A variable without a number, at the end.
        let mut more = buffer.bytes().to_vec();
        more.extend([CLEAR, 2, 0, 0, 0]);
        assert!(!batch(&more).is_whole() && batch(&more).changes().count() == all.len());
    }
}
