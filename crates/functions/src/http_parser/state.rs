//! The state of a connection: where each direction's reader stands, and the requests that have no
//! answer yet.
//!
//! ```text
//!   queue   [ request 1 | request 2 | … up to 16 ]           numbers: method, URI and host lengths, version, body length
//!   texts   [ GET/index.htmlexample.org | POST/formexample.org | …      ]  1,024 bytes for all of them
//! ```
//!
//! Texts of the requests that wait stand one behind another; when the oldest is answered, the
//! others move up. Of a method [`METHOD_MAX`] bytes are kept, of a URI [`URI_MAX`], of a host
//! [`HOST_MAX`], all of them as far as there is room; texts that were cut off are marked.
//!
//! Invariants: whatever the bytes are, nothing panics (`any_state_is_served`); the first request's
//! texts begin at 0.
//!
//! Not here: the grammar (`reader`).

use crate::marks::marks;
use crate::stream::Streams;
use core::fmt;
use nf::{FlowState, Plain, Time};

/// Bytes of a method.
pub const METHOD_MAX: usize = 24;
/// Bytes of a URI.
pub const URI_MAX: usize = 512;
/// Bytes of a host.
pub const HOST_MAX: usize = 128;
/// Bytes of the texts of all requests that wait for an answer.
pub const TEXTS_MAX: usize = 1024;
/// Requests that wait for an answer.
pub const REQUESTS_MAX: usize = 16;
/// Bytes of a header's name and of a value that is looked at.
pub const WORD_MAX: usize = 32;

/// Bits of [`Request::marks`].
pub mod mark {
    /// The URI was cut off.
    pub const URI_CUT: u8 = 1;
    /// The method was cut off.
    pub const METHOD_CUT: u8 = 2;
    /// The host was cut off.
    pub const HOST_CUT: u8 = 4;
}

marks!(
    /// The texts of a request that were cut off: bits of [`mark`].
    pub Marks,
    [
        (mark::URI_CUT, "uri_cut"),
        (mark::METHOD_CUT, "method_cut"),
        (mark::HOST_CUT, "host_cut"),
    ]
);

/// A request.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Request {
    /// Bytes of its body so far.
    pub body: u64,
    /// When its first byte was seen.
    pub time: Time,
    /// Which of the connection's it is, from 1.
    pub number: u32,
    /// Bytes of method and URI.
    pub method: u16,
    /// See above.
    pub uri: u16,
    /// Bytes of host.
    pub host: u16,
    /// Version: 9 for 0.9, 10, 11; 0 for none of them.
    pub version: u8,
    /// Bits of [`mark`].
    pub marks: Marks,
    reserved: [u8; 4],
}

impl Request {
    fn texts(&self) -> usize {
        usize::from(self.method) + usize::from(self.uri) + usize::from(self.host)
    }
}

/// Where a direction's reader stands in the grammar.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum At {
    /// Before a message, where line ends are passed over.
    #[default]
    Start = 0,
    /// In a request's method, or a response's version.
    First,
    /// In a request's URI, or a response's status.
    Second,
    /// In a request's version, or a response's reason.
    Third,
    /// At the beginning of a header's line.
    Line,
    /// In a header's name.
    Name,
    /// In a header's value.
    Value,
    /// In a body of known length.
    Body,
    /// In a body that the connection's end ends.
    Rest,
    /// In a chunk's length.
    ChunkSize,
    /// Behind a chunk's length, to the line's end.
    ChunkExtension,
    /// In a chunk.
    Chunk,
    /// Behind a chunk.
    ChunkEnd,
    /// At the beginning of a trailer's line.
    Trailer,
    /// In a trailer's line.
    TrailerLine,
    /// Behind a client's CONNECT, until it is answered: bytes that come are the tunnel's.
    Asked,
    /// No longer read: not HTTP, or not any more.
    Over,
}

/// The header that is being read.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Header {
    /// Nothing that is asked here.
    #[default]
    Other = 0,
    /// `Content-Length`.
    Length,
    /// `Transfer-Encoding`.
    Encoding,
    /// `Host`.
    Host,
}

/// One direction's reader.
#[derive(Plain, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Reader {
    /// Bytes left of a body or chunk; the number that is being read.
    pub left: u64,
    /// Body length that headers told, plus 1; 0 for none.
    pub length: u64,
    /// Body bytes of the message so far.
    pub body: u64,
    /// Where it stands.
    pub at: At,
    /// The header being read.
    pub header: Header,
    /// The body comes in chunks.
    pub chunked: bool,
    /// Something is wrong with the message's length; behind a CONNECT: bytes of the tunnel have
    /// come.
    pub doubtful: bool,
    /// Bytes in `word`.
    pub word_used: u8,
    /// A response to a request that was not seen.
    pub alone: bool,
    /// Of a response.
    pub status: u16,
    /// The word being read: a name, a version, a coding; in lower case.
    pub word: [u8; WORD_MAX],
}

impl Reader {
    /// The word so far.
    pub fn word(&self) -> &[u8] {
        &self.word[..usize::from(self.word_used).min(WORD_MAX)]
    }

    /// Adds a byte to the word; bytes beyond the longest word that is asked for are counted, not
    /// kept.
    pub fn push(&mut self, byte: u8) {
        if let Some(slot) = self.word.get_mut(usize::from(self.word_used)) {
            *slot = byte.to_ascii_lowercase();
        }
        self.word_used = self.word_used.saturating_add(1).min(WORD_MAX as u8 + 1);
    }

    /// Whether the word is this one.
    pub fn is(&self, word: &[u8]) -> bool {
        usize::from(self.word_used) == word.len() && self.word() == word
    }
}

/// The state of a flow.
#[derive(FlowState, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[flow_state(version = 4)]
#[repr(C)]
pub struct Exchange {
    /// The talk.
    pub talk: Talk,
    /// TCP.
    pub streams: Streams,
}

/// The talk on a connection.
#[derive(Plain, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Talk {
    /// Of the client, and of the server.
    pub readers: [Reader; 2],
    /// Requests seen so far.
    pub requests: u32,
    /// How many wait for an answer.
    pub waiting: u8,
    /// Bits of [`whole`].
    pub marks: u8,
    reserved: [u8; 2],
    /// They, the oldest first.
    pub queue: [Request; REQUESTS_MAX],
    texts: [u8; TEXTS_MAX],
}

/// Bits of [`Talk::marks`].
pub mod whole {
    /// The client's direction is known by its first bytes.
    pub const KNOWN: u8 = 1;
    /// The flow's replies are the client's.
    pub const REVERSED: u8 = 2;
}

impl Default for Talk {
    fn default() -> Self {
        Talk {
            readers: Default::default(),
            requests: 0,
            waiting: 0,
            marks: 0,
            reserved: [0; 2],
            queue: Default::default(),
            texts: [0; TEXTS_MAX],
        }
    }
}

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.readers.map(|reader| reader.at);
        write!(f, "{} requests, {} waiting, {at:?}", self.requests, self.waiting)
    }
}

/// A request's texts.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    /// Its method.
    pub method: &'a [u8],
    /// Its URI.
    pub uri: &'a [u8],
    /// Its host.
    pub host: &'a [u8],
}

impl Talk {
    fn queued(&self) -> usize {
        usize::from(self.waiting).min(REQUESTS_MAX)
    }

    /// The oldest request that waits, with its texts.
    pub fn oldest(&self) -> Option<(&Request, Texts<'_>)> {
        let request = self.queue[..self.queued()].first()?;
        let text = |from: usize, length: u16| {
            self.texts
                .get(from..from + usize::from(length))
                .unwrap_or_default()
        };
        let (method, uri) = (usize::from(request.method), usize::from(request.uri));
        let texts = Texts {
            method: text(0, request.method),
            uri: text(method, request.uri),
            host: text(method + uri, request.host),
        };
        Some((request, texts))
    }

    /// The newest request, which is being read.
    pub fn newest(&mut self) -> Option<&mut Request> {
        let queued = self.queued();
        self.queue[..queued].last_mut()
    }

    /// Takes a new request in; `false` if too many wait.
    pub fn open(&mut self, time: Time) -> bool {
        let queued = self.queued();
        let Some(slot) = self.queue.get_mut(queued) else {
            return false;
        };
        self.requests = self.requests.wrapping_add(1);
        *slot = Request {
            time,
            number: self.requests,
            ..Request::default()
        };
        self.waiting = queued as u8 + 1;
        true
    }

    /// The oldest request is answered.
    pub fn close(&mut self) {
        let queued = self.queued();
        if queued > 0 {
            let texts = self.queue[0].texts().min(TEXTS_MAX);
            self.texts.copy_within(texts.., 0);
            self.queue.copy_within(1..queued, 0);
            self.waiting = queued as u8 - 1;
        }
    }

    /// Adds a byte to one of the newest request's texts, the last that it has so far.
    pub fn push(&mut self, byte: u8, part: Part) {
        let queued = self.queued();
        let used: usize = self.queue[..queued].iter().map(Request::texts).sum();
        let Some(request) = self.queue[..queued].last_mut() else {
            return;
        };
        let (length, most, cut) = match part {
            Part::Method => (&mut request.method, METHOD_MAX, mark::METHOD_CUT),
            Part::Uri => (&mut request.uri, URI_MAX, mark::URI_CUT),
            Part::Host => (&mut request.host, HOST_MAX, mark::HOST_CUT),
        };
        match self.texts.get_mut(used) {
            Some(slot) if usize::from(*length) < most => {
                *slot = byte;
                *length += 1;
            }
            _ => request.marks |= cut,
        }
    }

    /// Forgets the end of the newest request's last text.
    pub fn shorten_uri(&mut self, length: usize) {
        if let Some(request) = self.newest()
            && request.host == 0
        {
            request.uri = request.uri.min(length as u16);
        }
    }

    /// The newest request's method.
    pub fn newest_method(&self) -> &[u8] {
        let queued = self.queued();
        let Some(request) = self.queue[..queued].last() else {
            return &[];
        };
        let from: usize = self.queue[..queued - 1].iter().map(Request::texts).sum();
        self.texts
            .get(from..from + usize::from(request.method))
            .unwrap_or_default()
    }

    /// The newest request was none.
    pub fn drop_newest(&mut self) {
        self.waiting = self.queued().saturating_sub(1) as u8;
        self.requests = self.requests.wrapping_sub(1);
    }

    /// The newest request's URI.
    pub fn newest_uri(&self) -> &[u8] {
        let queued = self.queued();
        let Some(request) = self.queue[..queued].last() else {
            return &[];
        };
        let before: usize = self.queue[..queued - 1].iter().map(Request::texts).sum();
        let from = before + usize::from(request.method);
        self.texts
            .get(from..from + usize::from(request.uri))
            .unwrap_or_default()
    }
}

/// A text of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Its method.
    Method,
    /// Its URI.
    Uri,
    /// Its host.
    Host,
}
