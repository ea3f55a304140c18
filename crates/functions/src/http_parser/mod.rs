//! The HTTP parser: a line of JSON for each request and its response.
//!
//! **Theory of operation.** Each direction of a TCP connection is read as a stream
//! ([`crate::stream`]) by a reader that goes from byte to byte ([`reader`]) and holds nothing but
//! what a record needs ([`state`]). Requests wait in a queue until they are answered, in their
//! order (RFC 9112 9.3.2); so pipelined ones meet their responses. All of it is the flow's state: a
//! connection that moves to another worker in the middle of a header goes on there.
//!
//! ```text
//!   > GET /a HTTP/1.1 …        queue: /a
//!   > GET /b HTTP/1.1 …        queue: /a /b
//!   < HTTP/1.1 200 OK …        record: GET /a 200         queue: /b
//!   < HTTP/1.1 404 Not Found   record: GET /b 404         queue: –
//! ```
//!
//! A record has the names of Suricata's EVE:
//!
//! ```text
//!   "timestamp":"2026-11-20T18:46:04.000000+0000","event_type":"http","src_ip":"10.0.0.1","src_port":1000,
//!   "dest_ip":"192.0.2.1","dest_port":80,"proto":"TCP","tx_id":0,"http":{"hostname":"example.org","url":"/a",
//!   "http_method":"GET","protocol":"HTTP/1.1","status":200,"request_length":0,"length":1256}
//! ```
//!
//! (one line; broken here to be read). `timestamp` is when the request began; `request_length` and
//! `length` are body bytes as they were sent (content-length or the chunks' sum). `hostname` is the
//! host without its port, which is `http_port`, where the request names one. A field that is not
//! known is left out: `hostname` without one, `protocol` without a version, `status` and `length`
//! of a request that was never answered. `"truncated":true` says that method, URI or host were
//! longer than what is kept ([`state::URI_MAX`] and its neighbours).
//!
//! An answer to a request that was not seen makes a record too, of its status and length alone: a
//! server gave up waiting (408), or the capture began later. It is never taken for the answer to a
//! request that came meanwhile.
//!
//! **When it stops reading** a connection, each counted: its first line is no HTTP; it becomes a
//! tunnel (`CONNECT`, 101; a client's bytes behind `CONNECT` before the answer are the tunnel's);
//! bytes are missing outside of a body; the lengths of a message contradict each other; more
//! requests wait than the queue has room for. Requests that wait are then recorded without an
//! answer when the flow ends.
//!
//! **Invariants.** Every packet is forwarded as it is. How packets divide the bytes makes no
//! difference (`dividing_anywhere_changes_nothing`); each request makes one record; packets
//! allocate nothing.
//!
//! Not here: HTTP/2 and 3, the content of bodies, decoding of URIs.
//!
//! Sources: RFC 9110, 9112; NFActor's HTTP parser.

pub mod config;
mod reader;
pub mod state;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use state::Exchange;

use crate::json::{Text, Timestamp};
use crate::stream::{Accepted, Follow, Piece, Taken};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter};
use core::time::Duration;
use nf::{
    ConfigError, Cx, Departure, Endpoint, Field, NetworkFunction, Packet, Time, Verdict, WorkerInfo,
    network_function,
};
use reader::Event;
use state::{At, Reader, Request, Talk, Texts, mark, whole};
use wire::packet::flag;

/// How long a closed connection may still bring stragglers.
const CLOSED: Duration = Duration::from_secs(5);

/// The HTTP parser of one runtime.
#[derive(Debug)]
pub struct HttpParser {
    ports: Vec<u16>,
    follow: Follow,
}

#[network_function]
impl NetworkFunction for HttpParser {
    const NAME: &'static str = "http_parser";
    const COUNTERS: &'static [&'static str] = &[
        /// Records that were written, one per request.
        "records",
        /// Responses without a request.
        "answers_alone",
        /// Connections on these ports that speak something else.
        "not_http",
        /// Connections that went over to another protocol (101, CONNECT).
        "switched",
        /// Connections with more requests under way than are remembered.
        "requests_too_many",
        /// Gaps in streams: bytes that never came and were passed over.
        "gaps",
        /// Early segments that were kept until the segments before them came.
        "segments_kept",
        /// Early segments that were not read: too far ahead, or no room to keep them.
        "segments_beyond",
        /// Early segments for which there was no room.
        "stream_room_full",
    ];
    const ICMP_ERRORS: bool = false;
    const EVENTS: &'static [nf::Event] = &[nf::Event::new(
        "http",
        "A request and its response were read, or a connection ended with one of them.",
        FIELDS,
    )];
    type Config = Config;
    type Flow = Exchange;
    type Group = ();

    fn new(config: &Arc<Config>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        if let Some(at) = config.ports.iter().position(|port| *port == 0) {
            let problem = "no connection has port 0";
            return Err(ConfigError::new(
                format!("ports[{at}]"),
                problem,
                "write 1 to 65535",
            ));
        }
        Ok(HttpParser {
            ports: config.ports.clone(),
            follow: Follow {
                pick_up: true,
                early_max: config.early_max.into(),
                hold: false,
            },
        })
    }

    fn process(&self, packet: &mut Packet, flow: &mut Exchange, cx: &mut Cx<Self>) -> Verdict {
        if packet.tcp().is_some() && !packet.has(flag::ICMP_ERROR) && self.is_read(packet) {
            self.read(packet, flow, cx);
        }
        Verdict::Forward
    }

    fn departed(&self, flow: &Exchange, why: Departure, cx: &mut Cx<Self>) {
        if why == Departure::Expired {
            let mut talk = flow.talk;
            report_rest(&mut talk, cx);
        }
    }

    fn timeout(&self, flow: &Exchange) -> Option<Duration> {
        flow.streams.is_closed().then_some(CLOSED)
    }
}

#[nf::network_function]
impl HttpParser {
    fn is_read(&self, packet: &Packet) -> bool {
        self.ports.is_empty()
            || self.ports.contains(&packet.source_port())
            || self.ports.contains(&packet.destination_port())
    }

    fn read(&self, packet: &Packet, flow: &mut Exchange, cx: &mut Cx<Self>) {
        let half = cx.direction() as usize;
        let Exchange { talk, streams } = flow;
        if streams.begins(packet) {
            // The ports may be used again.
            report_rest(talk, cx);
            *talk = Talk::default();
        }
        let time = Time::from_nanoseconds(packet.timestamp());
        let accepted = streams.accept(packet, half, self.follow, cx, &mut |cx, piece| {
            match piece {
                Piece::Bytes { bytes, .. } => {
                    if talk.marks & whole::KNOWN == 0 {
                        // The end that speaks first is the client, unless these are an answer.
                        let answers = bytes.starts_with(b"HTTP/") == (half == 0);
                        talk.marks = whole::KNOWN | if answers { whole::REVERSED } else { 0 };
                    }
                    let speaker = speaker(talk, half);
                    talk.read(speaker, bytes, time, &mut |talk, event| on_event(talk, event, cx));
                }
                Piece::Gap { length } => {
                    cx.count("gaps");
                    let speaker = speaker(talk, half);
                    talk.pass_over(speaker, u64::from(length), &mut |talk, event| {
                        on_event(talk, event, cx)
                    });
                }
            }
        });
        let Accepted {
            renumbered,
            refused,
            taken,
            ..
        } = accepted;
        if refused {
            // The server did not take the data of the SYN: the client sends them again.
            *talk = Talk::default();
        }
        match taken {
            _ if renumbered => cx.release_some(|_| true),
            Taken::New | Taken::Old => cx.release_some(|held| streams.has_read(half, held)),
            Taken::Kept => {
                cx.count("segments_kept");
                if !cx.hold_copy(packet) {
                    cx.count("stream_room_full");
                }
            }
            Taken::Beyond | Taken::Full => {
                cx.count("segments_beyond");
                cx.count_by("stream_room_full", u64::from(taken == Taken::Full));
            }
            Taken::Nothing | Taken::Outside => {}
        }
        if streams.half(half).has_ended() && speaker(talk, half) == 1 {
            talk.server_ended(&mut |talk, event| on_event(talk, event, cx));
        }
    }
}

/// The client (0) or the server (1) of a direction.
fn speaker(talk: &Talk, half: usize) -> usize {
    half ^ usize::from(talk.marks & whole::REVERSED != 0)
}

#[nf::network_function]
fn on_event(talk: &mut Talk, event: Event, cx: &mut Cx<HttpParser>) {
    match event {
        Event::Answered => report(talk, true, cx),
        Event::Alone => report_alone(talk, cx),
        Event::Switched => cx.count("switched"),
        Event::TooMany => cx.count("requests_too_many"),
        Event::NotHttp => cx.count("not_http"),
    }
}

/// The fields of a record, with the names of Suricata's EVE.
const FIELDS: &[Field] = &[
    Field::text("timestamp", "When the request came, in UTC."),
    Field::text("event_type", "`http`, as Suricata's EVE has it."),
    Field::text("src_ip", "Address of the client."),
    Field::number("src_port", "", "Its port."),
    Field::text("dest_ip", "Address of the server."),
    Field::number("dest_port", "", "Its port."),
    Field::text("proto", "`TCP`."),
    Field::number("tx_id", "", "Number of the request in its connection, from 0."),
    Field::text(
        "http",
        "An object: method, host, URL, agent, status, length of the response.",
    ),
];

/// Client and server.
fn ends(talk: &Talk, cx: &Cx<HttpParser>) -> (Endpoint, Endpoint) {
    let (first, second) = cx.opened_by();
    match talk.marks & whole::REVERSED != 0 {
        true => (second, first),
        false => (first, second),
    }
}

/// Records the response that was read, whose request was not seen.
#[nf::network_function]
fn report_alone(talk: &Talk, cx: &mut Cx<HttpParser>) {
    let (client, server) = ends(talk, cx);
    let Reader { status, body, .. } = talk.readers[1];
    let time = Timestamp(cx.now().nanoseconds());
    cx.event(
        "http",
        format_args!(
            "\"timestamp\":\"{time}\",\"event_type\":\"http\",\"src_ip\":\"{}\",\"src_port\":{},\"dest_ip\":\"{}\",\
             \"dest_port\":{},\"proto\":\"TCP\",\"http\":{{\"status\":{status},\"length\":{body}}}",
            client.addr, client.port, server.addr, server.port,
        ),
    );
    cx.count("records");
    cx.count("answers_alone");
}

/// Records the oldest request, with the response that was read or without one.
#[nf::network_function]
fn report(talk: &mut Talk, answered: bool, cx: &mut Cx<HttpParser>) {
    let (client, server) = ends(talk, cx);
    let response = &talk.readers[1];
    let answer = answered.then_some((response.status, response.body));
    if let Some((request, texts)) = talk.oldest() {
        let record = Record {
            ends: (client, server),
            request,
            texts,
            answer,
        };
        cx.event("http", format_args!("{record}"));
        cx.count("records");
    }
    talk.close();
}

/// Records the requests that still wait when the connection is over: the oldest perhaps with the
/// part of its response that was read.
fn report_rest(talk: &mut Talk, cx: &mut Cx<HttpParser>) {
    let reader = &talk.readers[1];
    let begun = matches!(
        reader.at,
        At::Body
            | At::Rest
            | At::Chunk
            | At::ChunkSize
            | At::ChunkExtension
            | At::ChunkEnd
            | At::Trailer
            | At::TrailerLine
    );
    if begun && reader.alone {
        report_alone(talk, cx);
    }
    let mut answered = begun && !reader.alone;
    while talk.waiting > 0 {
        // A request whose line did not come to its end is none.
        if talk.waiting == 1 && matches!(talk.readers[0].at, At::First | At::Second) {
            return;
        }
        report(talk, answered, cx);
        answered = false;
    }
}

/// A request with its response.
/// The name and the port of a `Host` header (RFC 9110 7.2). An invalid port stays in the name.
fn host_and_port(host: &[u8]) -> (&[u8], Option<u16>) {
    let whole = (host, None);
    let Some(colon) = host.iter().rposition(|byte| *byte == b':') else {
        return whole;
    };
    let (name, digits) = (&host[..colon], &host[colon + 1..]);
    // An IPv6 address has colons of its own, and stands in brackets.
    if name.is_empty() || (name.contains(&b':') && !name.ends_with(b"]")) {
        return whole;
    }
    let number = |port: u32, digit: &u8| match digit {
        b'0'..=b'9' => port.checked_mul(10)?.checked_add(u32::from(digit - b'0')),
        _ => None,
    };
    match digits.iter().try_fold(0, number).map(u16::try_from) {
        Some(Ok(_)) if digits.is_empty() => (name, None),
        Some(Ok(port)) => (name, Some(port)),
        _ => whole,
    }
}

struct Record<'a> {
    /// Client and server.
    ends: (Endpoint, Endpoint),
    request: &'a Request,
    texts: Texts<'a>,
    /// Status and body length.
    answer: Option<(u16, u64)>,
}

impl Display for Record<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Record {
            ends: (client, server),
            request,
            texts,
            answer,
        } = self;
        write!(
            f,
            "\"timestamp\":\"{}\",\"event_type\":\"http\",\"src_ip\":\"{}\",\"src_port\":{},\"dest_ip\":\"{}\",\
             \"dest_port\":{},\"proto\":\"TCP\",\"tx_id\":{},\"http\":{{",
            Timestamp(request.time.nanoseconds()),
            client.addr,
            client.port,
            server.addr,
            server.port,
            request.number.wrapping_sub(1),
        )?;
        if !texts.host.is_empty() {
            let (name, port) = host_and_port(texts.host);
            write!(f, "\"hostname\":\"{}\",", Text(name))?;
            if let Some(port) = port {
                write!(f, "\"http_port\":{port},")?;
            }
        }
        write!(
            f,
            "\"url\":\"{}\",\"http_method\":\"{}\"",
            Text(texts.uri),
            Text(texts.method)
        )?;
        match request.version {
            10 => f.write_str(",\"protocol\":\"HTTP/1.0\"")?,
            11 => f.write_str(",\"protocol\":\"HTTP/1.1\"")?,
            _ => {}
        }
        if let Some((status, _)) = answer
            && *status != 0
        {
            write!(f, ",\"status\":{status}")?;
        }
        write!(f, ",\"request_length\":{}", request.body)?;
        if let Some((_, length)) = answer {
            write!(f, ",\"length\":{length}")?;
        }
        if request.marks & (mark::URI_CUT | mark::METHOD_CUT | mark::HOST_CUT) != 0 {
            f.write_str(",\"truncated\":true")?;
        }
        f.write_str("}")
    }
}
