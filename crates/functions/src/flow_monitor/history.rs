//! A connection's history: which kinds of packets came in which order, as Zeek's letters in twelve
//! bytes.
//!
//! A letter takes five bits: its kind in four, and in the fifth its direction (upper case: opening;
//! lower case: reply). The first letter sits in the lowest bits. Nineteen fit; one bit more says
//! that there were more than that, and prints as `+`.
//!
//! ```text
//!   client: SYN     server: SYN+ACK     client: ACK, request     server: ACK, answer, FIN
//!           S               h                   A    D                   a    d       f       "ShADadf"
//! ```
//!
//! `^` stands first where the directions are turned ([`Letter::Turned`]), in either case.
//!
//! Invariants: letters are only appended; a full history changes no more.
//!
//! Not here: which packet makes which letter (`connection`).
//!
//! Source: Zeek, `scripts/base/protocols/conn/main.zeek`, field `history`.

use core::fmt::{self, Write};
use nf::{Direction, Plain};

/// A kind of packet in a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Letter {
    /// `s`: SYN without ACK.
    Syn = 1,
    /// `h`: SYN with ACK.
    Handshake = 2,
    /// `a`: ACK without payload.
    Ack = 3,
    /// `d`: payload.
    Payload = 4,
    /// `f`: FIN.
    Fin = 5,
    /// `r`: RST.
    Reset = 6,
    /// `t`: payload that was sent before.
    Repeat = 7,
    /// `w`: a window of zero.
    ZeroWindow = 8,
    /// `i`: FIN and RST in one packet.
    Inconsistent = 9,
    /// `q`: SYN with FIN or RST in one packet.
    Questionable = 10,
    /// `^`: the first packet came from the end that was asked, not from the one that asked.
    Turned = 11,
}

/// The characters by kind; 0 is no letter, and a number that no kind has does not occur.
const CHARACTERS: &[u8; 16] = b".shadfrtwiq^....";
const BITS: u32 = 5;
const REPLY: u8 = 16;
const MORE: u128 = 1 << 95;

/// Up to nineteen letters.
#[derive(Plain, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct History {
    words: [u32; 3],
}

impl History {
    /// How many letters fit.
    pub const LETTERS_MAX: usize = 19;

    fn bits(&self) -> u128 {
        let [low, middle, high] = self.words;
        u128::from(low) | u128::from(middle) << 32 | u128::from(high) << 64
    }

    /// Appends a letter, or notes that there was one more.
    pub fn push(&mut self, letter: Letter, direction: Direction) {
        let before = self.bits();
        let letters = before & !MORE;
        let free = (128 - letters.leading_zeros()).div_ceil(BITS);
        let after = if (free as usize) < Self::LETTERS_MAX {
            let code = letter as u8 | if direction == Direction::Reply { REPLY } else { 0 };
            before | u128::from(code) << (free * BITS)
        } else {
            before | MORE
        };
        self.words = [after as u32, (after >> 32) as u32, (after >> 64) as u32];
    }

    /// Whether letters were left out for want of room.
    pub fn has_more(&self) -> bool {
        self.bits() & MORE != 0
    }

    /// The letters in order, as ASCII: upper case for the opening direction.
    pub fn letters(&self) -> impl Iterator<Item = u8> {
        let bits = self.bits() & !MORE;
        (0..Self::LETTERS_MAX as u32)
            .map(move |n| (bits >> (n * BITS)) as u8 & 31)
            .take_while(|code| *code != 0)
            .map(|code| {
                let character = CHARACTERS[usize::from(code & 15)];
                if code & REPLY == 0 {
                    character.to_ascii_uppercase()
                } else {
                    character
                }
            })
    }

    /// Whether the opener sent a SYN first and a RST later, and before that RST nothing that shows
    /// it had an answer: Zeek's `/S[^HAFGIQ]*R.*/`.
    pub fn opener_gave_up(&self) -> bool {
        let mut letters = self.letters();
        letters.next() == Some(b'S')
            && letters
                .find(|letter| b"HAFGIQR".contains(letter))
                .is_some_and(|letter| letter == b'R')
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.letters() {
            f.write_char(char::from(letter))?;
        }
        if self.has_more() {
            f.write_char('+')?;
        }
        Ok(())
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In quotes: capitals are not those of a variant's name.
        write!(f, "\"{self}\"")
    }
}
