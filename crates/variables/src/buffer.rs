//! Where a worker writes changes on their way to a store. The form is a batch's:
//!
//! ```text
//!   clear   0  variable u32
//!   put     1  variable u32  field length u32  value length u32  field  value
//!   remove  2  variable u32  field length u32                    field
//! ```
//!
//! Numbers are little-endian. `variable` is the variable's number in its partition.
//!
//! Invariant: a change that does not fit leaves no trace
//! (`changes_are_read_as_they_were_written_and_what_does_not_fit_leaves_no_trace`).
//!
//! Not here: reading it (the crate `stores`).

use alloc::boxed::Box;
use serde::Serialize;

/// The most bytes in a batch.
pub const BATCH_BYTES: usize = 256 * 1024;
/// The most bytes of a field and its value together, encoded. So any element fits into an empty
/// batch.
pub const ELEMENT_BYTES_MAX: usize = 64 * 1024;

/// All fields of a variable are gone.
pub const CLEAR: u8 = 0;
/// A field has a value.
pub const PUT: u8 = 1;
/// A field is gone.
pub const REMOVE: u8 = 2;

/// Where a worker writes changes. Its memory is made once.
pub struct Buffer {
    bytes: Box<[u8]>,
    used: usize,
    changes: u32,
}

/// There is no more room in the buffer; the change that did not fit has left no trace in it.
#[derive(Debug, PartialEq, Eq)]
pub struct NoRoom;

impl Default for Buffer {
    fn default() -> Self {
        Buffer::new()
    }
}

impl Buffer {
    /// An empty one, of full size.
    pub fn new() -> Self {
        Buffer {
            bytes: alloc::vec![0; BATCH_BYTES].into_boxed_slice(),
            used: 0,
            changes: 0,
        }
    }

    /// Nothing is in it any more.
    pub fn empty(&mut self) {
        (self.used, self.changes) = (0, 0);
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// How many changes are in it.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// The changes in it.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }

    /// All fields of a variable are gone.
    pub fn clear(&mut self, variable: u32) -> Result<(), NoRoom> {
        let mut end = self.used;
        self.raw(&mut end, &[CLEAR])?;
        self.raw(&mut end, &variable.to_le_bytes())?;
        self.keep(end);
        Ok(())
    }

    /// A field has a value.
    pub fn put<K: Serialize, V: Serialize>(
        &mut self,
        variable: u32,
        field: &K,
        value: &V,
    ) -> Result<(), NoRoom> {
        let mut end = self.used;
        self.raw(&mut end, &[PUT])?;
        self.raw(&mut end, &variable.to_le_bytes())?;
        let lengths = end;
        self.raw(&mut end, &[0; 8])?;
        let field = self.encoded(&mut end, field)?;
        let value = self.encoded(&mut end, value)?;
        let mut at = lengths;
        self.raw(&mut at, &field.to_le_bytes())?;
        self.raw(&mut at, &value.to_le_bytes())?;
        self.keep(end);
        Ok(())
    }

    /// The same, with field and value encoded already.
    pub fn put_encoded(&mut self, variable: u32, field: &[u8], value: &[u8]) -> Result<(), NoRoom> {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| NoRoom);
        let (field_length, value_length) = (length(field)?, length(value)?);
        let mut end = self.used;
        self.raw(&mut end, &[PUT])?;
        self.raw(&mut end, &variable.to_le_bytes())?;
        self.raw(&mut end, &field_length.to_le_bytes())?;
        self.raw(&mut end, &value_length.to_le_bytes())?;
        self.raw(&mut end, field)?;
        self.raw(&mut end, value)?;
        self.keep(end);
        Ok(())
    }

    /// A field is gone.
    pub fn remove<K: Serialize>(&mut self, variable: u32, field: &K) -> Result<(), NoRoom> {
        let mut end = self.used;
        self.raw(&mut end, &[REMOVE])?;
        self.raw(&mut end, &variable.to_le_bytes())?;
        let lengths = end;
        self.raw(&mut end, &[0; 4])?;
        let field = self.encoded(&mut end, field)?;
        let mut at = lengths;
        self.raw(&mut at, &field.to_le_bytes())?;
        self.keep(end);
        Ok(())
    }

    /// The same, with the field encoded already.
    pub fn remove_encoded(&mut self, variable: u32, field: &[u8]) -> Result<(), NoRoom> {
        let length = u32::try_from(field.len()).map_err(|_| NoRoom)?;
        let mut end = self.used;
        self.raw(&mut end, &[REMOVE])?;
        self.raw(&mut end, &variable.to_le_bytes())?;
        self.raw(&mut end, &length.to_le_bytes())?;
        self.raw(&mut end, field)?;
        self.keep(end);
        Ok(())
    }

    fn keep(&mut self, end: usize) {
        self.used = end;
        self.changes = self.changes.saturating_add(1);
    }

    fn raw(&mut self, at: &mut usize, bytes: &[u8]) -> Result<(), NoRoom> {
        let end = at.checked_add(bytes.len()).ok_or(NoRoom)?;
        let place = self.bytes.get_mut(*at..end).ok_or(NoRoom)?;
        place.copy_from_slice(bytes);
        *at = end;
        Ok(())
    }

    fn encoded<T: Serialize>(&mut self, at: &mut usize, value: &T) -> Result<u32, NoRoom> {
        let place = self.bytes.get_mut(*at..).ok_or(NoRoom)?;
        let length = postcard::to_slice(value, place).map_err(|_| NoRoom)?.len();
        *at = at.checked_add(length).ok_or(NoRoom)?;
        u32::try_from(length).map_err(|_| NoRoom)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use alloc::vec::Vec;

    /// Form, variable, field and value of each change.
    pub fn read(mut bytes: &[u8]) -> Vec<(u8, u32, Vec<u8>, Vec<u8>)> {
        fn take<'b>(bytes: &mut &'b [u8], count: usize) -> &'b [u8] {
            let (taken, rest) = bytes.split_at(count);
            *bytes = rest;
            taken
        }
        fn number(bytes: &mut &[u8]) -> u32 {
            u32::from_le_bytes(take(bytes, 4).try_into().unwrap())
        }
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let form = take(&mut bytes, 1)[0];
            let variable = number(&mut bytes);
            let field = if form == super::CLEAR {
                0
            } else {
                number(&mut bytes)
            };
            let value = if form == super::PUT { number(&mut bytes) } else { 0 };
            let field = take(&mut bytes, field as usize).to_vec();
            all.push((form, variable, field, take(&mut bytes, value as usize).to_vec()));
        }
        all
    }
}
