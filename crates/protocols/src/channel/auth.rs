//! Keys, their rotation, and the tags of frames that are not encrypted.
//!
//! | frame | with keys | `DamageOnly` | `SharedMemory` |
//! |---|---|---|---|
//! | hello | tag: keyed BLAKE3, a key derived from the secret | tag: keyed BLAKE3, a key of zeros | nothing |
//! | all others | encrypted and authenticated (`seal.rs`) | the same | nothing |
//!
//! A tag is the first 16 bytes of keyed BLAKE3 over all of the frame before it. It takes no nonce,
//! so a hello may be sent before anything of the other end is known, and any number of times
//! ([decision 21](../../../../docs/decisions/0021-frames-are-encrypted.md)). A hello has no secret
//! in it.
//!
//! *Rotation.* Every frame names its key. An end that has several accepts all of them and sends
//! with one:
//!
//! ```text
//!   all have 1, send 1 ─► all have 1 and 2, send 1 ─► all have 1 and 2, send 2 ─► all have 2, send 2
//! ```
//!
//! Each step may be taken by one worker after another; at none is a frame refused.
//!
//! Invariant: the secret itself is no key of any cipher or tag. A key that is derived from it for
//! one purpose is used for no other.
//!
//! Not here: how frames of a session are encrypted (`seal.rs`), which numbers have been seen
//! (`replay.rs`).

use super::seal::Seals;
use super::wire::{Head, Kind, TAG, flag};
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

/// The context string of the key of hellos' tags, after BLAKE3's rule: fixed, and used for nothing
/// else.
const HELLO: &str = "flowkeep 2026-11-23 channel: tags of hellos";

impl Key {
    /// A key by its number, which frames name it by, 1 to 255; `None` for 0.
    pub fn new(number: u8, secret: [u8; 32]) -> Option<Key> {
        (number != 0).then_some(Key { number, secret })
    }

    /// Which one it is.
    #[inline]
    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// The key of the tags of hellos.
    fn of_hellos(&self) -> [u8; 32] {
        blake3::derive_key(HELLO, &self.secret)
    }

    /// The secret that keys of sessions are derived from.
    pub(super) fn secret(&self) -> &[u8; 32] {
        &self.secret
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
    /// Encrypted and authenticated with a secret key: between hosts.
    Keyed(Keys),
    /// Against damage only, by a tag that takes no secret, and not encrypted: for a wire that only
    /// this cluster is on.
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

/// The key of the tags of [`Protection::DamageOnly`].
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

    /// Whether what a frame carries is encrypted.
    #[inline]
    pub(super) fn encrypts(&self) -> bool {
        matches!(self, Protection::Keyed(_))
    }

    /// Protects a frame that is complete but for its tag, in place. `false`: it must not be sent.
    #[inline]
    #[must_use = "a frame that is not protected must not be sent"]
    pub(super) fn seal(&self, seals: &mut Seals, head: &Head, frame: &mut [u8]) -> bool {
        let secret = match self {
            Protection::Keyed(keys) => match head.kind {
                Kind::Hello => keys.0[0].of_hellos(),
                _ => return seals.seal(&keys.0[0], head, frame),
            },
            Protection::DamageOnly => NO_SECRET,
            Protection::SharedMemory => return true,
        };
        let Some((bytes, place)) = frame.split_last_chunk_mut::<TAG>() else {
            return false;
        };
        *place = tag(&secret, bytes);
        true
    }

    /// Checks a frame, and decrypts in place what it carries. A refused frame may be left as
    /// anything.
    #[inline]
    pub(super) fn open(&self, seals: &mut Seals, head: &Head, frame: &mut [u8]) -> Result<(), BadTag> {
        let marks = head.flags & (flag::TAGGED | flag::KEYED);
        if marks != self.marks().0 {
            return Err(BadTag::Protection);
        }
        let secret = match self {
            Protection::Keyed(keys) => {
                let key = keys.find(head.key).ok_or(BadTag::UnknownKey)?;
                match head.kind {
                    Kind::Hello => key.of_hellos(),
                    _ => return seals.open(key, head, frame),
                }
            }
            Protection::DamageOnly => NO_SECRET,
            Protection::SharedMemory => return Ok(()),
        };
        let (bytes, claimed) = frame.split_last_chunk::<TAG>().ok_or(BadTag::Tag)?;
        // In a time that says nothing of how much of it is right.
        let apart = tag(&secret, bytes)
            .iter()
            .zip(claimed)
            .fold(0, |apart, (a, b)| apart | (a ^ b));
        if apart == 0 { Ok(()) } else { Err(BadTag::Tag) }
    }
}
