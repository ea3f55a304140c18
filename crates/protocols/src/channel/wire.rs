//! The frame on the wire: a fixed head, acknowledgement words, a payload, a tag.
//!
//! Version 2. Numbers are in network order.
//!
//! | at | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 1 | version | 2 |
//! | 1 | 1 | kind | 1 hello, 2 messages, 3 acknowledgement, 4 packet |
//! | 2 | 1 | flags | 1 tagged, 2 with a secret key, 4 answer at once, 8 sent before |
//! | 3 | 1 | key | number of the secret key; 0 without one |
//! | 4 | 2 | from | worker that sends |
//! | 6 | 2 | to | worker that it is for |
//! | 8 | 8 | from incarnation | of the sender; never 0 |
//! | 16 | 8 | to incarnation | of the receiver as the sender knows it; 0 in a hello to a peer not met |
//! | 24 | 8 | number | of this frame: each transmission has the next one, whatever the kind |
//! | 32 | 8 | sequence | messages: of this frame; other kinds: the one the next frame of messages will have |
//! | 40 | 8 | acknowledged | all frames of messages before this sequence are here |
//! | 48 | 8 | seen | the highest number received in this session |
//! | 56 | 2 | window | so many frames from `acknowledged` on have a place here |
//! | 58 | 2 | length | of the payload, in bytes |
//! | 60 | 1 | words | of selective acknowledgement, at most 16 |
//! | 61 | 3 | zero | |
//! | 64 | 8 each | arrived | bit b of word w: sequence `acknowledged + 1 + 64w + b` is here |
//! | … | length | payload | hello: two salts; messages: records; packet: the packet; otherwise none |
//! | … | 0 or 16 | tag | if tagged |
//!
//! With a secret key, the payload of all frames but hellos is encrypted, and the tag is GCM's over
//! all of the frame (`seal.rs`). Of hellos, and without a secret key, it is the first 16 bytes of
//! keyed BLAKE3 over all before it (`auth.rs`).
//!
//! A *record* is a head of two bytes, `first` (bit 15), `last` (bit 14) and the length (14 bits),
//! and as many bytes: a message is one record that is first and last, or several, none of them
//! empty, that follow each other. Frames are as long as they say, to the byte.
//!
//! Acknowledgements stand in frames of kind 2 and 3. In the others `window` is 0 and not read. A
//! hello has the words on what both ends must have alike in `sequence`, `acknowledged` and `seen`,
//! and 16 more behind its head ([`Head::agreed`]); words that it does not have count as 0. A packet
//! has 0 there, and no words. The payload of a hello is the salt of its sender and the receiver's,
//! 16 bytes each, as far as its sender knows it; else zeros.
//!
//! Not here: which frame may be sent when (the module above).

use super::seal::SALT;
use super::settings::{AGREED, IN_HEAD};

/// The version that is spoken.
pub const VERSION: u8 = 2;
/// Bytes of the head without acknowledgement words.
pub const HEAD: usize = 64;
/// The most acknowledgement words.
pub const WORDS_MAX: usize = 16;
/// Bytes of a tag.
pub const TAG: usize = 16;
/// Bytes of a hello's payload.
pub const SALTS: usize = 2 * SALT;
/// Bytes of a record's head.
pub const RECORD_HEAD: usize = 2;
/// The longest record without its head.
pub const RECORD_MAX: usize = (1 << 14) - 1;
/// Bit of a record's head: a message begins.
pub const FIRST: u16 = 1 << 15;
/// Bit of a record's head: the message ends.
pub const LAST: u16 = 1 << 14;

/// Bits of the flags.
pub mod flag {
    /// The frame ends in a tag.
    pub const TAGGED: u8 = 1;
    /// The tag is made with a secret key, and all frames but hellos are encrypted with it.
    pub const KEYED: u8 = 2;
    /// The receiver is to acknowledge at once.
    pub const ASK: u8 = 4;
    /// These messages have been sent before.
    pub const AGAIN: u8 = 8;
    /// All that are known.
    pub const ALL: u8 = 15;
}

/// The kinds of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The sender is there, and asks for its peer.
    Hello = 1,
    /// Records.
    Messages = 2,
    /// Nothing but what every head says.
    Acknowledgement = 3,
    /// A data packet, unreliable by itself.
    Packet = 4,
}

/// A head, as it is read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The frame's kind.
    pub kind: Kind,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Number of the secret key.
    pub key: u8,
    /// Worker that sends.
    pub from: u16,
    /// Worker it is for.
    pub to: u16,
    /// Incarnation of the sender.
    pub from_incarnation: u64,
    /// Incarnation of the receiver, 0 if not known.
    pub to_incarnation: u64,
    /// Number of the transmission.
    pub number: u64,
    /// Sequence of the frame of messages, or of the next one.
    pub sequence: u64,
    /// All before it are here.
    pub acknowledged: u64,
    /// Highest number received.
    pub seen: u64,
    /// Frames from `acknowledged` on that have a place.
    pub window: u16,
    /// Bytes of payload.
    pub length: u16,
    /// Words of selective acknowledgement.
    pub words: u8,
}

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Shorter than a head.
    Short,
    /// Another version.
    Version,
    /// A kind, flags or fields that do not exist.
    Field,
    /// Not as long as it says.
    Length,
}

fn field<const N: usize>(bytes: &[u8; HEAD], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

impl Head {
    /// Reads the head of a frame and checks that the frame is as long as it says.
    #[inline]
    pub fn read(frame: &[u8]) -> Result<Head, Malformed> {
        let bytes: &[u8; HEAD] = frame.first_chunk().ok_or(Malformed::Short)?;
        if bytes[0] != VERSION {
            return Err(Malformed::Version);
        }
        let kind = match bytes[1] {
            1 => Kind::Hello,
            2 => Kind::Messages,
            3 => Kind::Acknowledgement,
            4 => Kind::Packet,
            _ => return Err(Malformed::Field),
        };
        let head = Head {
            kind,
            flags: bytes[2],
            key: bytes[3],
            from: u16::from_be_bytes(field(bytes, 4)),
            to: u16::from_be_bytes(field(bytes, 6)),
            from_incarnation: u64::from_be_bytes(field(bytes, 8)),
            to_incarnation: u64::from_be_bytes(field(bytes, 16)),
            number: u64::from_be_bytes(field(bytes, 24)),
            sequence: u64::from_be_bytes(field(bytes, 32)),
            acknowledged: u64::from_be_bytes(field(bytes, 40)),
            seen: u64::from_be_bytes(field(bytes, 48)),
            window: u16::from_be_bytes(field(bytes, 56)),
            length: u16::from_be_bytes(field(bytes, 58)),
            words: bytes[60],
        };
        let tagged = head.flags & flag::TAGGED != 0;
        let keyed = head.flags & flag::KEYED != 0;
        let is_long_enough = match kind {
            Kind::Hello => usize::from(head.length) == SALTS,
            Kind::Messages | Kind::Packet => head.length != 0,
            Kind::Acknowledgement => head.length == 0,
        };
        if head.flags & !flag::ALL != 0
            || bytes[61..64] != [0; 3]
            || usize::from(head.words) > WORDS_MAX
            || (keyed && !tagged)
            || (!keyed && head.key != 0)
            || head.from_incarnation == 0
            || (head.to_incarnation == 0 && kind != Kind::Hello)
            || !is_long_enough
        {
            return Err(Malformed::Field);
        }
        if frame.len() != head.payload_at() + usize::from(head.length) + head.tag_length() {
            return Err(Malformed::Length);
        }
        Ok(head)
    }

    /// The words of a hello on what both ends must have alike.
    pub fn agreed(&self, frame: &[u8]) -> [u64; AGREED] {
        let mut agreed = [0; AGREED];
        let said = [self.sequence, self.acknowledged, self.seen].into_iter();
        for (place, word) in agreed.iter_mut().zip(said.chain(self.arrived(frame))) {
            *place = word;
        }
        agreed
    }

    /// Has a hello say that; answers the words that go behind its head.
    pub fn agree<'w>(&mut self, words: &'w [u64; AGREED]) -> &'w [u64] {
        let [sequence, acknowledged, seen, behind @ ..] = words;
        [self.sequence, self.acknowledged, self.seen] = [*sequence, *acknowledged, *seen];
        self.words = (AGREED - IN_HEAD) as u8;
        behind
    }

    /// The salts that a hello has: of its sender and, as that one knows it, of the receiver.
    pub fn salts(&self, frame: &[u8]) -> [[u8; SALT]; 2] {
        let mut salts = [[0; SALT]; 2];
        let (said, _) = self.payload(frame).as_chunks();
        for (salt, said) in salts.iter_mut().zip(said) {
            *salt = *said;
        }
        salts
    }

    /// Writes the head; `words` are what [`Head::words`] counts.
    #[inline]
    pub fn write(&self, frame: &mut [u8], words: &[u64]) {
        debug_assert_eq!(words.len(), usize::from(self.words));
        let (head, rest) = frame.split_first_chunk_mut::<HEAD>().expect("room for a head");
        head[0] = VERSION;
        head[1] = self.kind as u8;
        head[2] = self.flags;
        head[3] = self.key;
        head[4..6].copy_from_slice(&self.from.to_be_bytes());
        head[6..8].copy_from_slice(&self.to.to_be_bytes());
        head[8..16].copy_from_slice(&self.from_incarnation.to_be_bytes());
        head[16..24].copy_from_slice(&self.to_incarnation.to_be_bytes());
        head[24..32].copy_from_slice(&self.number.to_be_bytes());
        head[32..40].copy_from_slice(&self.sequence.to_be_bytes());
        head[40..48].copy_from_slice(&self.acknowledged.to_be_bytes());
        head[48..56].copy_from_slice(&self.seen.to_be_bytes());
        head[56..58].copy_from_slice(&self.window.to_be_bytes());
        head[58..60].copy_from_slice(&self.length.to_be_bytes());
        head[60..64].copy_from_slice(&[self.words, 0, 0, 0]);
        for (place, word) in rest.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
    }

    /// Where the payload begins.
    #[inline]
    pub fn payload_at(&self) -> usize {
        HEAD + 8 * usize::from(self.words)
    }

    /// Bytes of tag at the end.
    #[inline]
    pub fn tag_length(&self) -> usize {
        if self.flags & flag::TAGGED != 0 { TAG } else { 0 }
    }

    /// The acknowledgement words of a frame with this head.
    #[inline]
    pub fn arrived<'a>(&self, frame: &'a [u8]) -> impl Iterator<Item = u64> + use<'a> {
        let (words, _) = frame[HEAD..self.payload_at()].as_chunks::<8>();
        words.iter().map(|word| u64::from_be_bytes(*word))
    }

    /// The payload of a frame with this head.
    #[inline]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let start = self.payload_at();
        &frame[start..start + usize::from(self.length)]
    }
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// A message begins.
    pub first: bool,
    /// It ends.
    pub last: bool,
    /// Where its bytes are in the payload.
    pub start: usize,
    /// Where they end.
    pub end: usize,
}

/// The record at `at` of a payload that [`well_formed`] accepted.
#[inline]
pub fn record(payload: &[u8], at: usize) -> Option<Record> {
    let head = payload.get(at..)?.first_chunk::<RECORD_HEAD>()?;
    let head = u16::from_be_bytes(*head);
    let start = at + RECORD_HEAD;
    Some(Record {
        first: head & FIRST != 0,
        last: head & LAST != 0,
        start,
        end: start + usize::from(head & RECORD_MAX as u16),
    })
}

/// The head of a record.
#[inline]
pub fn record_head(first: bool, last: bool, length: usize) -> [u8; RECORD_HEAD] {
    debug_assert!(length <= RECORD_MAX);
    let first = if first { FIRST } else { 0 };
    let last = if last { LAST } else { 0 };
    (length as u16 | first | last).to_be_bytes()
}

/// Whether a payload is records to its end.
#[inline]
pub fn well_formed(payload: &[u8]) -> bool {
    let mut at = 0;
    while at < payload.len() {
        let Some(record) = record(payload, at) else {
            return false;
        };
        let piece_of_nothing = record.start == record.end && !(record.first && record.last);
        if record.end > payload.len() || piece_of_nothing {
            return false;
        }
        at = record.end;
    }
    true
}
