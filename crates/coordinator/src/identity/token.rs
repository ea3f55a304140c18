//! A word by which one process becomes a member, once.
//!
//! ```text
//!   fk1 . name . end, seconds since 1970 . id . authority's fingerprint . tag
//! ```
//!
//! The tag is keyed BLAKE3 over what is before it, with a key that follows from the authority's. So
//! the coordinator keeps no list of tokens that are good, only of those that were used. By the
//! fingerprint the process knows its coordinator before it has a certificate.

use super::{Authority, is_name};
use crate::refusal::Refusal;
use std::fmt::Write;
use std::time::Duration;

/// The content of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// The member's name.
    pub member: String,
    /// Seconds since 1970, by the clock of the authority's host.
    pub expires: u64,
    /// No other token has it.
    pub id: [u8; 16],
    /// Of the authority's certificate.
    pub fingerprint: [u8; 32],
    tag: [u8; 16],
}

/// A word that is no token.
#[derive(Debug, thiserror::Error)]
#[error("this is no token: a token is `fk1.` and five more parts, as `flowkeep cluster token` prints it")]
pub struct Unreadable;

impl Token {
    /// A new one for a member, good until `expires`.
    pub fn make(authority: &Authority, member: &str, now: Duration, valid: Duration) -> Option<String> {
        let mut id = [0; 16];
        let random = ring_random(&mut id);
        (random && is_name(member)).then_some(())?;
        let mut token = Token {
            member: member.to_owned(),
            expires: now.saturating_add(valid).as_secs(),
            id,
            fingerprint: authority.fingerprint(),
            tag: [0; 16],
        };
        token.tag = token.tag_by(authority);
        Some(token.text())
    }

    /// Reads one; `judge` says whether the authority made it.
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        let parts: Vec<&str> = text.trim().split('.').collect();
        let ["fk1", member, expires, id, fingerprint, tag] = parts[..] else {
            return Err(Unreadable);
        };
        let token = Token {
            member: member.to_owned(),
            expires: expires.parse().map_err(|_| Unreadable)?,
            id: from_hex(id).ok_or(Unreadable)?,
            fingerprint: from_hex(fingerprint).ok_or(Unreadable)?,
            tag: from_hex(tag).ok_or(Unreadable)?,
        };
        match is_name(member) && token.text() == text.trim() {
            true => Ok(token),
            false => Err(Unreadable),
        }
    }

    /// Whether the authority has made it, and its time is not over.
    pub fn judge(&self, authority: &Authority, now: Duration) -> Result<(), Refusal> {
        // Compared in constant time.
        if blake3::Hash::from(widened(self.tag)) != blake3::Hash::from(widened(self.tag_by(authority))) {
            return Err(Refusal::TokenForged);
        }
        match now.as_secs() < self.expires {
            true => Ok(()),
            false => Err(Refusal::TokenExpired),
        }
    }

    fn tag_by(&self, authority: &Authority) -> [u8; 16] {
        let hash = blake3::keyed_hash(&authority.token_key(), self.text_before_tag().as_bytes());
        let mut tag = [0; 16];
        tag.copy_from_slice(&hash.as_bytes()[..16]);
        tag
    }

    fn text_before_tag(&self) -> String {
        let (id, fingerprint) = (hex(&self.id), hex(&self.fingerprint));
        format!("fk1.{}.{}.{id}.{fingerprint}", self.member, self.expires)
    }

    fn text(&self) -> String {
        format!("{}.{}", self.text_before_tag(), hex(&self.tag))
    }
}

fn widened(tag: [u8; 16]) -> [u8; 32] {
    let mut wide = [0; 32];
    wide[..16].copy_from_slice(&tag);
    wide
}

fn ring_random(bytes: &mut [u8]) -> bool {
    let provider = rustls::crypto::ring::default_provider();
    provider.secure_random.fill(bytes).is_ok()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_token_is_good_until_its_end_and_at_its_authority_only() {
        let authority = Authority::create(MINUTE).unwrap();
        let text = Token::make(&authority, "a", NOW, MINUTE).unwrap();
        let token = Token::read(&text).unwrap();
        assert_eq!((token.member.as_str(), token.expires), ("a", 1060));
        assert_eq!(token.judge(&authority, NOW), Ok(()));
        assert_eq!(token.judge(&authority, NOW + MINUTE), Err(Refusal::TokenExpired));
        let other = Authority::create(MINUTE).unwrap();
        assert_eq!(token.judge(&other, NOW), Err(Refusal::TokenForged));
    }

    #[test]
    fn a_changed_token_is_forged_or_none() {
        let authority = Authority::create(MINUTE).unwrap();
        let text = Token::make(&authority, "a", NOW, MINUTE).unwrap();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'1' { b'2' } else { b'1' };
            let changed = String::from_utf8(changed).unwrap();
            if let Ok(token) = Token::read(&changed) {
                let judged = token.judge(&authority, NOW);
                assert_eq!(judged, Err(Refusal::TokenForged), "{changed}");
            }
        }
        for wrong in ["", "fk1", "fk1.a.1.2.3.4", "fk1......", &text[..text.len() - 1]] {
            assert!(Token::read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Token::make(&authority, "A", NOW, MINUTE), None);
    }
}
