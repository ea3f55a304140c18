//! Tags: what makes a frame somebody's who has the key.
//!
//! A tag is the first 16 bytes of keyed BLAKE3 over all of the frame before it. It needs no nonce, so a worker that comes up
//! with an incarnation it had before gives nothing away ([decision 12](../../../../docs/decisions/0012-frame-authentication.md)).
//! Addresses and incarnations of both ends are in the head, so a frame is good in one direction of one session, and its number says
//! that it is new there (`replay.rs`).
//!
//! *Rotation.* Every frame names its key. Whoever has several accepts all of them and sends with one:
//!
//! ```text
//!   all have 1, send 1 ─► all have 1 and 2, send 1 ─► all have 1 and 2, send 2 ─► all have 2, send 2
//! ```
//!
//! Each step may be taken by one worker after another; at none is a frame refused.
//!
//! Not here: secrecy. What workers tell each other can be read on the wire; whoever minds puts a tunnel below.

use super::wire::{Head, TAG, flag};
use arrayvec::ArrayVec;
use core::fmt;

/// The most keys accepted at a time.
pub const KEYS_MAX: usize = 4;

/// A secret that all workers of a cluster share.
#[derive(Clone)]
pub struct Key {
    number: u8,
    secret: [u8; 32],
}

impl Key {
    /// A key by its number, which frames name it by, 1 to 255; `None` for 0.
    pub fn new(number: u8, secret: [u8; 32]) -> Option<Key> {
        (number != 0).then_some(Key { number, secret })
    }
}

impl fmt::Debug for Key {
    /// The number only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}", self.number)
    }
}

/// The keys that frames are accepted with; the first is sent with.
#[derive(Clone, Debug)]
pub struct Keys(ArrayVec<Key, KEYS_MAX>);

impl Keys {
    /// One key, to send with and to accept.
    pub fn new(key: Key) -> Keys {
        Keys(core::iter::once(key).collect())
    }

    /// Accepts one more; `false` if there are [`KEYS_MAX`] or its number is there already.
    #[must_use = "a key that is not accepted refuses what it was meant for"]
    pub fn accept(&mut self, key: Key) -> bool {
        let new = self.find(key.number).is_none();
        new && self.0.try_push(key).is_ok()
    }

    fn find(&self, number: u8) -> Option<&Key> {
        self.0.iter().find(|key| key.number == number)
    }
}

/// How frames are protected. There is no default: going without is asked for by name.
#[derive(Clone, Debug)]
pub enum Protection {
    /// By a secret key: between hosts.
    Keyed(Keys),
    /// Against damage only, by a tag that anybody can make: for a wire that nobody else is on.
    DamageOnly,
    /// Not at all: for memory that the two ends share.
    SharedMemory,
}

/// Why a frame's tag is no good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadTag {
    /// Protected otherwise than asked for.
    Protection,
    /// Made with a key that is not accepted.
    UnknownKey,
    /// Not what its bytes and the key give.
    Tag,
}

/// The key of [`Protection::DamageOnly`].
const NO_SECRET: [u8; 32] = [0; 32];

fn tag(secret: &[u8; 32], bytes: &[u8]) -> [u8; TAG] {
    let hash = blake3::keyed_hash(secret, bytes);
    *hash
        .as_bytes()
        .first_chunk()
        .expect("a hash is longer than a tag")
}

impl Protection {
    /// Flags and key number for a head.
    #[inline]
    pub(super) fn marks(&self) -> (u8, u8) {
        match self {
            Protection::Keyed(keys) => (flag::TAGGED | flag::KEYED, keys.0[0].number),
            Protection::DamageOnly => (flag::TAGGED, 0),
            Protection::SharedMemory => (0, 0),
        }
    }

    /// Bytes of tag.
    #[inline]
    pub(super) fn tag_length(&self) -> usize {
        match self {
            Protection::SharedMemory => 0,
            _ => TAG,
        }
    }

    /// Writes the tag at the end of a frame whose other bytes are there.
    #[inline]
    pub(super) fn seal(&self, frame: &mut [u8]) {
        let secret = match self {
            Protection::Keyed(keys) => &keys.0[0].secret,
            Protection::DamageOnly => &NO_SECRET,
            Protection::SharedMemory => return,
        };
        let (bytes, place) = frame.split_last_chunk_mut::<TAG>().expect("room for a tag");
        *place = tag(secret, bytes);
    }

    /// Whether a frame's tag is what it must be.
    #[inline]
    pub(super) fn check(&self, head: &Head, frame: &[u8]) -> Result<(), BadTag> {
        let marks = head.flags & (flag::TAGGED | flag::KEYED);
        if marks != self.marks().0 {
            return Err(BadTag::Protection);
        }
        let secret = match self {
            Protection::Keyed(keys) => &keys.find(head.key).ok_or(BadTag::UnknownKey)?.secret,
            Protection::DamageOnly => &NO_SECRET,
            Protection::SharedMemory => return Ok(()),
        };
        let (bytes, claimed) = frame.split_last_chunk::<TAG>().ok_or(BadTag::Tag)?;
        // In a time that says nothing of how much of it is right.
        let apart = tag(secret, bytes)
            .iter()
            .zip(claimed)
            .fold(0, |apart, (a, b)| apart | (a ^ b));
        if apart == 0 { Ok(()) } else { Err(BadTag::Tag) }
    }
}
