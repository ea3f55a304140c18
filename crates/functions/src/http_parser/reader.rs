//! The grammar, a byte at a time: request lines, status lines, headers, bodies and chunks.
//!
//! ```text
//!            ┌──────────────────────────────── next message ────────────────────────────────────┐
//!            ▼                                                                                   │
//!   Start ─► First ─► Second ─► Third ─► Line ─► Name ─► Value ─► Line … ─► (empty line) ─┬─► whole
//!            method   URI       version                                                    ├─► Body ──┘
//!            version  status    reason                                                     ├─► ChunkSize ─► Chunk ─► ChunkEnd …
//!                                                                                          └─► Rest, to the connection's end
//! ```
//!
//! It takes what real clients send: lines that end in LF alone, blanks in URIs (the version is the
//! last word), request lines without a version (HTTP/0.9, and broken ones). A direction that cannot
//! be HTTP is no longer read (`Over`).
//!
//! Invariant: of a message nothing is held but what `state` says; how the bytes are divided makes
//! no difference (`dividing_anywhere_changes_nothing`).
//!
//! Not here: which request a response answers (the parent module).
//!
//! Sources: RFC 9112, RFC 1945.

use super::state::{At, Header, Part, Reader, Talk, mark};
use nf::Time;

/// An event in a direction's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A request was begun that there is no room for.
    TooMany,
    /// A response is whole.
    Answered,
    /// A response is whole whose request was not seen.
    Alone,
    /// The connection goes on in another protocol, with a response that was whole.
    Switched,
    /// It is not HTTP, or not any more.
    NotHttp,
}

/// Methods by which a line without a version is known.
const METHODS: &[&[u8]] = &[
    b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH",
];

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Talk {
    /// Reads bytes of a direction, the client's (0) or the server's (1).
    pub(super) fn read(
        &mut self,
        speaker: usize,
        mut bytes: &[u8],
        time: Time,
        on: &mut impl FnMut(&mut Talk, Event),
    ) {
        while let Some((&byte, rest)) = bytes.split_first() {
            let reader = &mut self.readers[speaker];
            let room = bytes.len() as u64;
            match reader.at {
                At::Over => return,
                At::Asked => {
                    reader.doubtful = true;
                    return;
                }
                At::Rest => {
                    self.count_body(speaker, room);
                    return;
                }
                At::Body | At::Chunk => {
                    let taken = reader.left.min(room);
                    reader.left -= taken;
                    let left = reader.left;
                    self.count_body(speaker, taken);
                    bytes = &bytes[taken as usize..];
                    if left == 0 {
                        self.end_body(speaker, on);
                    }
                    continue;
                }
                _ => {}
            }
            bytes = rest;
            match speaker {
                CLIENT => self.request_byte(byte, time, on),
                _ => self.response_byte(byte, on),
            }
        }
    }

    /// Bytes that the function did not see.
    pub(super) fn pass_over(&mut self, speaker: usize, length: u64, on: &mut impl FnMut(&mut Talk, Event)) {
        let reader = &mut self.readers[speaker];
        match reader.at {
            At::Over => {}
            At::Asked => reader.doubtful = true,
            At::Rest => self.count_body(speaker, length),
            At::Body | At::Chunk if reader.left >= length => {
                reader.left -= length;
                let left = reader.left;
                self.count_body(speaker, length);
                if left == 0 {
                    self.end_body(speaker, on);
                }
            }
            _ => self.give_up(on),
        }
    }

    /// A body of known length, or a chunk, is whole.
    fn end_body(&mut self, speaker: usize, on: &mut impl FnMut(&mut Talk, Event)) {
        match self.readers[speaker].at {
            At::Chunk => self.readers[speaker].at = At::ChunkEnd,
            _ => self.finish(speaker, on),
        }
    }

    /// The server has sent all it will: a body without a length is whole.
    pub(super) fn server_ended(&mut self, on: &mut impl FnMut(&mut Talk, Event)) {
        if self.readers[SERVER].at == At::Rest {
            self.finish(SERVER, on);
            self.readers[SERVER].at = At::Over;
        }
    }

    fn count_body(&mut self, speaker: usize, bytes: u64) {
        let body = &mut self.readers[speaker].body;
        *body = body.saturating_add(bytes);
        if speaker == CLIENT
            && let Some(request) = self.newest()
        {
            request.body = request.body.saturating_add(bytes);
        }
    }

    fn give_up(&mut self, on: &mut impl FnMut(&mut Talk, Event)) {
        if matches!(self.readers[CLIENT].at, At::First | At::Second) {
            // Its line did not come to its end: it is no request.
            self.drop_newest();
        }
        for reader in &mut self.readers {
            reader.at = At::Over;
        }
        on(self, Event::NotHttp);
    }

    fn request_byte(&mut self, byte: u8, time: Time, on: &mut impl FnMut(&mut Talk, Event)) {
        let reader = &mut self.readers[CLIENT];
        match reader.at {
            At::Start => match byte {
                b'\r' | b'\n' => {}
                b'A'..=b'Z' => {
                    if self.open(time) {
                        self.readers[CLIENT] = Reader {
                            at: At::First,
                            ..Reader::default()
                        };
                        self.push(byte, Part::Method);
                    } else {
                        on(self, Event::TooMany);
                        self.give_up(on);
                    }
                }
                _ => self.give_up(on),
            },
            At::First => match byte {
                b' ' | b'\t' => reader.at = At::Second,
                b'\r' => {}
                b'\n' => self.end_request_line(on),
                b'!'..=b'~' => self.push(byte, Part::Method),
                _ => self.give_up(on),
            },
            // `body` counts the URI's bytes, `left` those before its last blank.
            At::Second => match byte {
                b'\n' => self.end_request_line(on),
                b'\r' => {}
                b' ' | b'\t' if reader.body == 0 => {}
                b' ' | b'\t' => {
                    if reader.word_used > 0 || reader.left == 0 {
                        reader.left = reader.body;
                    }
                    reader.word_used = 0;
                    reader.body = reader.body.saturating_add(1);
                    self.push(byte, Part::Uri);
                }
                _ => {
                    if reader.left > 0 {
                        reader.push(byte);
                    }
                    reader.body = reader.body.saturating_add(1);
                    self.push(byte, Part::Uri);
                }
            },
            _ => self.message_byte(CLIENT, byte, on),
        }
    }

    /// The request line is whole: takes the version off the URI's end.
    fn end_request_line(&mut self, on: &mut impl FnMut(&mut Talk, Event)) {
        let reader = self.readers[CLIENT];
        let has_version = reader.left > 0 && reader.word().starts_with(b"http/");
        let length = match has_version || (reader.left > 0 && reader.word_used == 0) {
            true => reader.left,
            false => reader.body,
        };
        self.shorten_uri(usize::try_from(length).unwrap_or(usize::MAX));
        let length = self.shorten_target().unwrap_or(length);
        let says_http = has_version || contains(self.newest_uri(), b"HTTP/");
        let method = self.newest_method();
        let known = METHODS.iter().any(|known| method.starts_with(known)) || contains(method, b"HTTP/");
        if !says_http && !known {
            // Some other protocol of lines.
            self.give_up(on);
            return;
        }
        if let Some(request) = self.newest() {
            if u64::from(request.uri) == length {
                request.marks &= !mark::URI_CUT;
            }
            request.version = match (has_version, reader.word()) {
                (true, b"http/1.1") => 11,
                (true, b"http/1.0") => 10,
                (true, _) => 0,
                (false, _) => 9,
            };
        }
        self.readers[CLIENT] = Reader {
            at: At::Line,
            ..Reader::default()
        };
    }

    /// CONNECT asks for a host and a port, which have no blanks (RFC 9112 3.2.3). The bytes that
    /// are left, if there was one.
    fn shorten_target(&mut self) -> Option<u64> {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let blank = self.newest_uri().iter().position(is_blank);
        let blank = blank.filter(|_| self.newest_method() == b"CONNECT")?;
        self.shorten_uri(blank);
        Some(blank as u64)
    }

    fn response_byte(&mut self, byte: u8, on: &mut impl FnMut(&mut Talk, Event)) {
        const NAME: &[u8] = b"http/";
        let alone = self.waiting == 0;
        let reader = &mut self.readers[SERVER];
        match reader.at {
            At::Start => match byte {
                b'\r' | b'\n' => {}
                _ => {
                    *reader = Reader {
                        at: At::First,
                        alone,
                        ..Reader::default()
                    };
                    self.response_byte(byte, on);
                }
            },
            At::First => match byte {
                b' ' if usize::from(reader.word_used) >= NAME.len() => reader.at = At::Second,
                _ => {
                    reader.push(byte);
                    let so_far = usize::from(reader.word_used).min(NAME.len());
                    if reader.word()[..so_far] != NAME[..so_far]
                        || usize::from(reader.word_used) > NAME.len() + 4
                    {
                        self.raw_response(on);
                    }
                }
            },
            At::Second => match byte {
                b'0'..=b'9' if reader.status < 100 => {
                    reader.status = reader.status * 10 + u16::from(byte - b'0');
                }
                b'\n' => reader.at = At::Line,
                _ => reader.at = At::Third,
            },
            At::Third => {
                if byte == b'\n' {
                    reader.at = At::Line;
                }
            }
            _ => self.message_byte(SERVER, byte, on),
        }
    }

    /// The answer to a request without a version, or no HTTP at all.
    fn raw_response(&mut self, on: &mut impl FnMut(&mut Talk, Event)) {
        let asked_so = self.oldest().is_some_and(|(request, _)| request.version == 9);
        if asked_so {
            let reader = &mut self.readers[SERVER];
            (reader.at, reader.body) = (At::Rest, u64::from(reader.word_used));
        } else {
            self.give_up(on);
        }
    }

    /// A byte of headers, chunk lengths and trailers, which requests and responses have alike.
    fn message_byte(&mut self, speaker: usize, byte: u8, on: &mut impl FnMut(&mut Talk, Event)) {
        let reader = &mut self.readers[speaker];
        match reader.at {
            At::Line => match byte {
                b'\r' => {}
                b'\n' => self.end_headers(speaker, on),
                // A folded line belongs to the header before it, and no header that is asked for is
                // folded.
                b' ' | b'\t' => (reader.at, reader.header) = (At::Value, Header::Other),
                _ => {
                    (reader.at, reader.word_used) = (At::Name, 0);
                    reader.push(byte);
                }
            },
            At::Name => match byte {
                b'\n' => reader.at = At::Line,
                b':' => {
                    reader.header = match () {
                        () if reader.is(b"content-length") => Header::Length,
                        () if reader.is(b"transfer-encoding") => Header::Encoding,
                        () if reader.is(b"host") && speaker == CLIENT => Header::Host,
                        () => Header::Other,
                    };
                    (reader.at, reader.word_used, reader.left) = (At::Value, 0, 0);
                    if reader.header == Header::Host && self.newest().is_none_or(|request| request.host > 0) {
                        self.readers[speaker].header = Header::Other;
                    }
                }
                _ => reader.push(byte),
            },
            At::Value => match byte {
                b'\n' => {
                    reader.at = At::Line;
                    reader.end_value();
                }
                b' ' | b'\t' | b'\r' => {}
                _ => match reader.header {
                    Header::Other => {}
                    Header::Host => self.push(byte, Part::Host),
                    Header::Length => reader.digit(byte, 10),
                    Header::Encoding if byte == b',' => reader.word_used = 0,
                    Header::Encoding => reader.push(byte),
                },
            },
            At::ChunkSize => match byte {
                b'\r' | b' ' => {}
                b'\n' => self.begin_chunk(speaker, on),
                b';' => reader.at = At::ChunkExtension,
                _ => {
                    reader.word_used = 1;
                    reader.digit(byte, 16);
                }
            },
            At::ChunkExtension => {
                if byte == b'\n' {
                    self.begin_chunk(speaker, on);
                }
            }
            At::ChunkEnd => match byte {
                b'\r' => {}
                b'\n' => (reader.at, reader.left, reader.word_used) = (At::ChunkSize, 0, 0),
                _ => self.give_up(on),
            },
            At::Trailer => match byte {
                b'\r' => {}
                b'\n' => self.finish(speaker, on),
                _ => reader.at = At::TrailerLine,
            },
            At::TrailerLine => {
                if byte == b'\n' {
                    reader.at = At::Trailer;
                }
            }
            // The others are dealt with before; foreign state may say that they are not.
            _ => self.give_up(on),
        }
    }

    fn begin_chunk(&mut self, speaker: usize, on: &mut impl FnMut(&mut Talk, Event)) {
        let reader = &mut self.readers[speaker];
        if reader.doubtful || reader.word_used == 0 {
            self.give_up(on);
        } else {
            reader.at = if reader.left == 0 { At::Trailer } else { At::Chunk };
        }
    }

    /// Behind the headers: is there a body, and how long?
    fn end_headers(&mut self, speaker: usize, on: &mut impl FnMut(&mut Talk, Event)) {
        let asked = match self.asked() {
            b"HEAD" => b'H',
            b"CONNECT" => b'C',
            _ => 0,
        };
        let reader = &mut self.readers[speaker];
        let status = reader.status;
        if reader.doubtful {
            self.give_up(on);
            return;
        }
        let without_body = speaker == SERVER
            && (asked == b'H'
                || (asked == b'C' && status / 100 == 2)
                || status / 100 == 1
                || matches!(status, 204 | 304));
        if !without_body && reader.chunked {
            (reader.at, reader.left, reader.word_used) = (At::ChunkSize, 0, 0);
        } else if !without_body && reader.length > 1 {
            (reader.at, reader.left) = (At::Body, reader.length - 1);
        } else if !without_body && reader.length == 0 && speaker == SERVER {
            reader.at = At::Rest;
        } else {
            self.finish(speaker, on);
        }
    }

    /// The method of the request that the response at hand answers; empty if that was not seen.
    fn asked(&self) -> &[u8] {
        let oldest = self.oldest().filter(|_| !self.readers[SERVER].alone);
        oldest.map_or(&[], |(_, texts)| texts.method)
    }

    /// A message is whole.
    fn finish(&mut self, speaker: usize, on: &mut impl FnMut(&mut Talk, Event)) {
        self.readers[speaker].at = At::Start;
        if speaker == CLIENT {
            if self.newest_method() == b"CONNECT" {
                (self.readers[CLIENT].at, self.readers[CLIENT].doubtful) = (At::Asked, false);
            }
            return;
        }
        let Reader { status, alone, .. } = self.readers[SERVER];
        if status / 100 == 1 && status != 101 {
            // Another response to the same request follows.
            return;
        }
        let connect = self.asked() == b"CONNECT";
        let answered = if alone { Event::Alone } else { Event::Answered };
        on(self, answered);
        let client = &mut self.readers[CLIENT];
        if connect && status / 100 == 2 || status == 101 {
            for reader in &mut self.readers {
                reader.at = At::Over;
            }
            on(self, Event::Switched);
        } else if connect && client.at == At::Asked && client.doubtful {
            // Refused: bytes meant for the tunnel came to an HTTP server.
            self.give_up(on);
        } else if connect && client.at == At::Asked {
            client.at = At::Start;
        }
    }
}

impl Reader {
    /// A digit of a length.
    fn digit(&mut self, byte: u8, base: u32) {
        let digit = (byte as char).to_digit(base).map(u64::from);
        let more = digit.and_then(|digit| self.left.checked_mul(u64::from(base))?.checked_add(digit));
        match more {
            // So that one can be added.
            Some(more) if more < u64::MAX / 2 => {
                self.left = more;
                self.word_used = 1;
            }
            _ => self.doubtful = true,
        }
    }

    fn end_value(&mut self) {
        match self.header {
            Header::Length => {
                let length = self.left.saturating_add(1);
                // Two lengths that differ are an attack (RFC 9112 6.3).
                self.doubtful |= self.word_used == 0 || (self.length != 0 && self.length != length);
                self.length = length;
            }
            Header::Encoding => self.chunked |= self.is(b"chunked"),
            Header::Host | Header::Other => {}
        }
        self.left = 0;
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}
