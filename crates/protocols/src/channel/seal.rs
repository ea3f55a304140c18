//! Frames of a session, encrypted and authenticated in place: AES-256-GCM (`ring`).
//!
//! # Theory of operation
//!
//! The payload is encrypted. The head and the words of acknowledgement stay readable and are
//! authenticated with it, as GCM's associated data. The tag has 16 bytes. The nonce is the number
//! of the frame, which the head says: 4 zeros, then its 8 bytes.
//!
//! Each direction of a session has a key of its own. BLAKE3 derives it (its `derive_key`, the words
//! [`FRAMES`]) from:
//!
//! ```text
//!   32  the secret of the key that the frame names
//!    2  sender: worker              2  receiver: worker
//!    8  sender: incarnation         8  receiver: incarnation
//!   16  sender: salt               16  receiver: salt
//!    8  span: the frame's number / 2^24
//! ```
//!
//! A *salt* is 16 random bytes that a channel is made with
//! ([`ChannelSettings::salt`](super::ChannelSettings::salt)). Hellos carry it, so both ends know
//! both salts before either is met. A *span* is 2^24 frames. A span bounds how much is encrypted
//! with one key, far below what GCM allows; both ends see in a frame's number that the next has
//! begun.
//!
//! ```text
//!   seal: number ─► span, key in use? ── no ─► derive ─► keep          payload ─► encrypted │ tag
//!   open: number ─► span, one of the two last? ── no ─► derive ─► open ─► kept if the tag is right
//! ```
//!
//! So a key's schedule is made once for a span of a session. Frames of two spans, or of two keys
//! while keys are rotated, pass each other on the way: the two last keys of the receiving direction
//! are kept. A forged frame costs one derivation at most and changes nothing.
//!
//! # No pair of key and nonce comes twice
//!
//! With two frames under one pair, GCM gives both payloads and the means to forge away. Here no
//! pair can come twice:
//!
//! - *Within a channel* all frames take their number from one counter, by which it only grows:
//!   messages, packets, acknowledgements and hellos. Nothing sets it back: no new session, no
//!   given-up one, no other key. It would take 2^64 frames to come round.
//! - *A frame that is sent again* takes the next number. The payload is kept as it was before it
//!   was encrypted.
//! - *Two channels* have two salts, and so two keys: the one before a restart and the one after it,
//!   even where the incarnation is the same because a clock went back and the file was lost; or two
//!   between the same two workers.
//! - *Two directions* have the workers, incarnations and salts in another order, and so two keys.
//! - *Other keys* by rotation give other keys here. Where an old key comes back, the numbers have
//!   gone on.
//! - *Hellos* are sent before the other end's salt is known. They are not encrypted, and their tag
//!   has no nonce (`auth.rs`).
//!
//! These risks are left: two channels whose salts are equal by chance (2^-128 for each two of the
//! same incarnations), and a machine whose memory is copied while it runs and goes on twice.
//!
//! # Invariants
//!
//! | promise | held by |
//! |---|---|
//! | no pair of key and nonce comes twice | `no_key_meets_a_nonce_twice` |
//! | a frame with any bit changed is refused, and one of another session, direction, channel or key | `tests/sealed.rs` |
//! | messages cannot be read on the wire | `nothing_that_is_said_can_be_read_on_the_wire` |
//!
//! Not here: which numbers have been seen (`replay.rs`), which keys there are (`auth.rs`), where
//! randomness comes from.

use super::auth::{BadTag, Key};
use super::wire::{Head, TAG};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Bytes of a salt.
pub const SALT: usize = 16;
/// Frames of a span, as a power of two.
const SPAN_BITS: u32 = 24;
/// The context string of sessions' keys, after BLAKE3's rule: fixed, and used for nothing else.
const FRAMES: &str = "flowkeep 2026-11-23 channel: frames of a session, one direction";

/// An end of a session, as its keys know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    pub(super) worker: u16,
    pub(super) incarnation: u64,
    pub(super) salt: [u8; SALT],
}

/// The key of one span of one direction.
struct Sealing {
    /// Of the key that it was derived from.
    key: u8,
    span: u64,
    cipher: LessSafeKey,
}

/// The keys of a session.
pub(super) struct Seals {
    /// This end and the other.
    ends: Option<(End, End)>,
    sending: Option<Sealing>,
    /// The two last that opened a frame.
    receiving: [Option<Sealing>; 2],
    /// All pairs of key and nonce that were sealed with.
    #[cfg(test)]
    pub(super) used: alloc::vec::Vec<([u8; 32], u64)>,
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    if let Some(place) = bytes.last_chunk_mut() {
        *place = number.to_be_bytes();
    }
    Nonce::assume_unique_for_key(bytes)
}

/// The bytes of a key.
fn derive(key: &Key, span: u64, from: &End, to: &End) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(FRAMES);
    hasher.update(key.secret());
    hasher.update(&from.worker.to_be_bytes());
    hasher.update(&to.worker.to_be_bytes());
    hasher.update(&from.incarnation.to_be_bytes());
    hasher.update(&to.incarnation.to_be_bytes());
    hasher.update(&from.salt);
    hasher.update(&to.salt);
    hasher.update(&span.to_be_bytes());
    *hasher.finalize().as_bytes()
}

impl Sealing {
    fn new(key: &Key, span: u64, from: &End, to: &End) -> Option<Sealing> {
        let unbound = UnboundKey::new(&AES_256_GCM, &derive(key, span, from, to)).ok()?;
        Some(Sealing {
            key: key.number(),
            span,
            cipher: LessSafeKey::new(unbound),
        })
    }

    #[inline]
    fn is(&self, key: &Key, span: u64) -> bool {
        self.key == key.number() && self.span == span
    }

    #[inline]
    fn open(&self, head: &Head, frame: &mut [u8]) -> Result<(), BadTag> {
        let (front, rest) = frame.split_at_mut_checked(head.payload_at()).ok_or(BadTag::Tag)?;
        let opened = self
            .cipher
            .open_in_place(nonce(head.number), Aad::from(&*front), rest);
        opened.map(|_| ()).map_err(|_| BadTag::Tag)
    }
}

impl Seals {
    /// Of no session.
    pub(super) fn new() -> Seals {
        Seals {
            ends: None,
            sending: None,
            receiving: [None, None],
            #[cfg(test)]
            used: alloc::vec::Vec::new(),
        }
    }

    /// A session begins between these two.
    pub(super) fn begin(&mut self, here: End, there: End) {
        self.ends = Some((here, there));
        self.forget();
    }

    /// Other keys, perhaps under the same numbers: all are derived again.
    pub(super) fn forget(&mut self) {
        self.sending = None;
        self.receiving = [None, None];
    }

    #[cold]
    fn derive_sending(&mut self, key: &Key, span: u64) {
        self.sending = self
            .ends
            .as_ref()
            .and_then(|(here, there)| Sealing::new(key, span, here, there));
    }

    /// Encrypts the payload and writes the tag; `false` if there is no session.
    #[inline]
    pub(super) fn seal(&mut self, key: &Key, head: &Head, frame: &mut [u8]) -> bool {
        let span = head.number >> SPAN_BITS;
        if !self.sending.as_ref().is_some_and(|sealing| sealing.is(key, span)) {
            self.derive_sending(key, span);
        }
        let Some(sealing) = &self.sending else {
            return false;
        };
        #[cfg(test)]
        if let Some((here, there)) = &self.ends {
            self.used.push((derive(key, span, here, there), head.number));
        }
        let Some((front, rest)) = frame.split_at_mut_checked(head.payload_at()) else {
            return false;
        };
        let Some((payload, place)) = rest.split_last_chunk_mut::<TAG>() else {
            return false;
        };
        let sealed =
            sealing
                .cipher
                .seal_in_place_separate_tag(nonce(head.number), Aad::from(&*front), payload);
        let tag = sealed.ok().and_then(|tag| tag.as_ref().first_chunk().copied());
        tag.map(|tag| *place = tag).is_some()
    }

    /// Checks the tag and decrypts the payload.
    #[inline]
    pub(super) fn open(&mut self, key: &Key, head: &Head, frame: &mut [u8]) -> Result<(), BadTag> {
        let span = head.number >> SPAN_BITS;
        let mut kept = self.receiving.iter().flatten();
        match kept.find(|sealing| sealing.is(key, span)) {
            Some(sealing) => sealing.open(head, frame),
            None => self.open_newly(key, span, head, frame),
        }
    }

    /// The same with a key that is not here; it is kept if it was right.
    #[cold]
    fn open_newly(&mut self, key: &Key, span: u64, head: &Head, frame: &mut [u8]) -> Result<(), BadTag> {
        let ends = self.ends.as_ref();
        let sealing = ends.and_then(|(here, there)| Sealing::new(key, span, there, here));
        let sealing = sealing.ok_or(BadTag::Tag)?;
        sealing.open(head, frame)?;
        let [last, before] = &mut self.receiving;
        *before = last.replace(sealing);
        Ok(())
    }
}
