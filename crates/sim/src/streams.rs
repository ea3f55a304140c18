//! The bytes of TCP talks where functions read streams: HTTP, with a needle in it for the IDS.
//!
//! # Theory of operation
//!
//! A talk's segments are all of one length, and are slices of two streams, one each way, which are
//! the talk's number and nothing else. Requests are [`MESSAGE`] bytes each, whatever a segment's
//! length is, so heads and bodies begin and end anywhere in segments. The first answer is longer
//! than its request by [`LATER`], so that the answer to a request never begins before that has been
//! read as far as its body.
//!
//! ```text
//!   segments      │ 0            │ 1            │ 2            │ 3            │
//!   requests      │POST /t3/0 … body       │POST /t3/1 … body       │POST /t3/2 …
//!   answers       │HTTP/1.1 200 OK … body                │HTTP/1.1 200 OK … body
//!   needle                        ▲ in a body, its two halves in two segments, if a body is there
//! ```
//!
//! The lines that a run must then have in its event log are for `checkers/read`.
//!
//! Not here: frames ([`crate::frame`]); when segments are sent ([`crate::world`]).

use crate::script::Talk;

/// Bytes of a request, and of an answer but the first.
pub(crate) const MESSAGE: usize = 180;
/// By how many bytes the first answer is longer.
const LATER: usize = 128;
/// The shortest segment: a request's line and fields are read when it is.
pub(crate) const SEGMENT_MIN: u16 = 100;

/// The needles that the IDS looks for, each way.
pub(crate) const NEEDLES: [&str; 2] = ["needle-asked", "needle-given"];

/// The bytes of a segment: a slice of the talk's stream of requests, or of answers.
pub(crate) fn segment(index: u16, talk: &Talk, number: u16, is_answer: bool) -> Vec<u8> {
    let size = usize::from(talk.size);
    let (from, to) = (usize::from(number) * size, (usize::from(number) + 1) * size);
    let mut bytes = Vec::with_capacity(size);
    let mut message = message_at(from, is_answer);
    while start_of(message, is_answer) < to {
        let start = start_of(message, is_answer);
        let text = text_of(index, message, is_answer);
        bytes.extend_from_slice(&text[from.saturating_sub(start)..(to - start).min(text.len())]);
        message += 1;
    }
    if let Some(at) = needle_at(talk, is_answer) {
        for (offset, byte) in NEEDLES[usize::from(is_answer)].bytes().enumerate() {
            if (from..to).contains(&(at + offset)) {
                bytes[at + offset - from] = byte;
            }
        }
    }
    bytes
}

/// How many requests of a talk are read to the ends of their fields, whatever comes behind.
pub(crate) fn requests_of(talk: &Talk) -> u16 {
    let length = usize::from(talk.size) * usize::from(talk.burst * talk.rounds);
    (length.saturating_sub(SEGMENT_MIN.into()) / MESSAGE + 1) as u16
}

/// Where in the stream the needle is; nowhere if no body has a segment's end in it.
pub(crate) fn needle_at(talk: &Talk, is_answer: bool) -> Option<usize> {
    let size = usize::from(talk.size);
    let length = NEEDLES[0].len();
    let ends = (1..usize::from(talk.burst * talk.rounds)).map(|segments| segments * size);
    ends.map(|end| end - length / 2).find(|at| {
        let message = message_at(*at, is_answer);
        let next = start_of(message + 1, is_answer);
        *at > start_of(message, is_answer) + usize::from(SEGMENT_MIN) && at + length < next
    })
}

fn start_of(message: usize, is_answer: bool) -> usize {
    match (message, is_answer) {
        (0, _) | (_, false) => message * MESSAGE,
        (_, true) => message * MESSAGE + LATER,
    }
}

fn message_at(offset: usize, is_answer: bool) -> usize {
    match is_answer {
        false => offset / MESSAGE,
        true => offset.saturating_sub(LATER) / MESSAGE,
    }
}

fn text_of(index: u16, message: usize, is_answer: bool) -> Vec<u8> {
    let length = start_of(message + 1, is_answer) - start_of(message, is_answer);
    let first = match is_answer {
        false => format!("POST /t{index:03}/{message:03} HTTP/1.1\r\nHost: sim\r\n"),
        true => "HTTP/1.1 200 OK\r\nServer: sim\r\n".to_owned(),
    };
    let head = first.len() + "Content-Length: 000\r\n\r\n".len();
    let mut text = format!("{first}Content-Length: {:03}\r\n\r\n", length - head).into_bytes();
    let mut state = u32::from(index) << 16 | (message as u32) << 1 | u32::from(is_answer);
    while text.len() < length {
        state = state.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
        text.push(b'a' + (state >> 24) as u8 % 26);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::End;
    use crate::script::{Fate, Manner, Part};

    #[test]
    fn segments_are_slices_of_messages_that_say_how_long_they_are() {
        let end = End::new([10, 0, 0, 1], 1);
        let talk = |size| Talk {
            part: Part::Faults,
            start: 0,
            manner: Manner::Tcp,
            is_v6: false,
            client: end,
            to: end,
            burst: 3,
            rounds: 4,
            gap: 0,
            size,
            fate: Fate::Answered,
        };
        for (size, is_answer) in [(100, false), (177, true), (180, false), (211, true)] {
            let talk = talk(size);
            let segments = (0..12).map(|number| segment(2, &talk, number, is_answer));
            let segments: Vec<Vec<u8>> = segments.collect();
            assert!(segments.iter().all(|segment| segment.len() == usize::from(size)));
            let stream = String::from_utf8(segments.concat()).unwrap();
            let head = if is_answer { "HTTP/1.1 200" } else { "POST /t002/" };
            let mut at = 0;
            let mut count = 0;
            while let Some((fields, _)) = stream[at..].split_once("\r\n\r\n") {
                assert!(fields.starts_with(head), "{fields}");
                let (_, length) = fields.split_once("Content-Length: ").unwrap();
                at += fields.len() + 4 + length.parse::<usize>().unwrap();
                count += 1;
                if at > stream.len() {
                    break;
                }
            }
            assert!(is_answer || count >= usize::from(requests_of(&talk)));
            let needle = needle_at(&talk, is_answer);
            assert_eq!(stream.find(NEEDLES[usize::from(is_answer)]), needle);
        }
    }
}
