//! Segments that came before their turn: a ring of bytes addressed by sequence number, and which of them are there.
//!
//! ```text
//!   next = 1000, EARLY_BYTES = 2048     spans: 1460..2920  (ring bytes 1460..2048, 0..872)
//! ```
//!
//! A byte of sequence number `s` stands at `s % EARLY_BYTES`. Since nothing ends further than `EARLY_BYTES` behind the next
//! byte, no two bytes want one place.
//!
//! Not here: when a gap is filled or given up (the parent module).

use super::{Taken, distance};
use core::fmt;
use nf::Plain;

/// Room for bytes that come early, of both directions together. A power of two; a full-sized segment and some more: one
/// segment overtaken by the next, which is what reordering in networks mostly is, and what costs 2 KiB of each flow.
pub const EARLY_BYTES: usize = 2048;
/// Separate runs of bytes that can be kept.
pub const SPANS_MAX: usize = 4;

const _: () = assert!(EARLY_BYTES.is_power_of_two());

/// A run of kept bytes.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
struct Span {
    /// Sequence number of its first byte.
    start: u32,
    length: u32,
}

impl Span {
    fn end(self) -> u32 {
        self.start.wrapping_add(self.length)
    }
}

/// The runs, sorted, not touching each other.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(super) struct Spans {
    list: [Span; SPANS_MAX],
    used: u8,
    /// Whose they are, if there are any.
    half: u8,
    reserved: [u8; 2],
}

/// The ring.
#[derive(Plain, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Early {
    spans: Spans,
    reserved: [u8; 4],
    bytes: [u8; EARLY_BYTES],
}

impl Default for Early {
    fn default() -> Self {
        Early {
            spans: Spans::default(),
            reserved: [0; 4],
            bytes: [0; EARLY_BYTES],
        }
    }
}

impl fmt::Debug for Early {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes kept", self.kept())
    }
}

impl Spans {
    fn list(&self) -> &[Span] {
        &self.list[..usize::from(self.used).min(SPANS_MAX)]
    }
}

impl Early {
    pub fn spans(&self) -> Spans {
        self.spans
    }

    pub fn set_spans(&mut self, spans: Spans) {
        self.spans = spans;
    }

    pub fn kept(&self) -> usize {
        self.spans.list().iter().map(|span| span.length as usize).sum()
    }

    /// Where the first run of a direction begins.
    pub fn first(&self, half: usize) -> Option<u32> {
        match self.spans.list() {
            [first, ..] if usize::from(self.spans.half) == half => Some(first.start),
            _ => None,
        }
    }

    /// Keeps the bytes of a segment that begins behind `next`, but for those that are there already.
    pub fn keep(&mut self, half: usize, next: u32, start: u32, bytes: &[u8]) -> Taken {
        let ahead = start.wrapping_sub(next) as usize;
        if bytes.is_empty() {
            return Taken::Beyond;
        }
        if self.spans.used > 0 && usize::from(self.spans.half) != half {
            return Taken::Beyond;
        }
        if ahead.saturating_add(bytes.len()) > EARLY_BYTES {
            return Taken::Beyond;
        }
        let Some((spans, grows)) = self.with(half, start, bytes.len() as u32) else {
            return Taken::Beyond;
        };
        if !grows {
            return Taken::Old;
        }
        for (offset, byte) in bytes.iter().enumerate() {
            let at = start.wrapping_add(offset as u32);
            if !self.holds(at) {
                self.bytes[at as usize % EARLY_BYTES] = *byte;
            }
        }
        self.spans = spans;
        Taken::Kept
    }

    fn holds(&self, at: u32) -> bool {
        let inside = |span: &Span| at.wrapping_sub(span.start) < span.length;
        self.spans.list().iter().any(inside)
    }

    /// The runs with one more, joined where they touch, and whether that is more than before; `None` if they are too many.
    fn with(&self, half: usize, start: u32, length: u32) -> Option<(Spans, bool)> {
        let mut new = Span { start, length };
        let mut spans = Spans {
            half: half as u8,
            ..Spans::default()
        };
        let mut placed = false;
        let mut push = |span: Span| {
            let slot = spans.list.get_mut(usize::from(spans.used))?;
            *slot = span;
            spans.used += 1;
            Some(())
        };
        for &span in self.spans.list() {
            if distance(span.end(), new.start) < 0 {
                push(span)?;
            } else if distance(new.end(), span.start) < 0 {
                if !placed {
                    push(new)?;
                    placed = true;
                }
                push(span)?;
            } else {
                let end = if distance(span.end(), new.end()) > 0 {
                    span.end()
                } else {
                    new.end()
                };
                if distance(span.start, new.start) < 0 {
                    new.start = span.start;
                }
                new.length = end.wrapping_sub(new.start);
            }
        }
        if !placed {
            push(new)?;
        }
        let kept: u32 = spans.list().iter().map(|span| span.length).sum();
        Some((spans, kept as usize > self.kept()))
    }

    /// Hands out the runs that `next` has reached, and moves it.
    pub fn release(&mut self, half: usize, next: &mut u32, on: &mut impl FnMut(&[u8])) {
        while let Some(start) = self.first(half) {
            let span = self.spans.list[0];
            let known = distance(*next, start);
            if known < 0 {
                return;
            }
            self.spans.list.copy_within(1.., 0);
            self.spans.used -= 1;
            // Foreign state may say anything; no run is longer than the ring.
            let length = (span.length as usize).min(EARLY_BYTES);
            let mut from = (known as usize).min(length);
            while from < length {
                let at = start.wrapping_add(from as u32) as usize % EARLY_BYTES;
                let run = (length - from).min(EARLY_BYTES - at);
                *next = next.wrapping_add(run as u32);
                on(&self.bytes[at..at + run]);
                from += run;
            }
        }
    }
}
