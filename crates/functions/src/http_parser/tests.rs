use super::state::{Exchange, REQUESTS_MAX, TEXTS_MAX, URI_MAX};
use super::{Config, HttpParser};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use nf::Time;
use proptest::prelude::*;
use testkit::{Fate, Outcome, Step, tcp};
use wire::tcp::flags;

fn web() -> Step {
    tcp("10.0.0.1:1000", "192.0.2.1:80")
}

fn opened(more: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let mut script = Vec::from([web().syn(), web().reply().syn_ack(), web().ack()]);
    script.extend(more);
    script
}

/// The records' inner objects, by order.
fn records(outcome: &Outcome) -> Vec<serde_json::Value> {
    let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON");
    outcome.events().lines().map(line).collect()
}

/// Method, URI, status (0 for none), request's and response's body lengths.
fn told(outcome: &Outcome) -> Vec<(String, String, u64, u64, u64)> {
    let each = |record: &serde_json::Value| {
        let http = &record["http"];
        let text = |name: &str| http[name].as_str().expect("a text").to_string();
        let number = |name: &str| http[name].as_u64().unwrap_or(0);
        (
            text("http_method"),
            text("url"),
            number("status"),
            number("request_length"),
            number("length"),
        )
    };
    records(outcome).iter().map(each).collect()
}

fn run(script: Vec<Step>) -> Outcome {
    let outcome = testkit::run::<HttpParser>(Config::default(), script);
    assert!(outcome.fates().iter().all(|fate| *fate == Fate::Forwarded));
    outcome
}

/// A conversation: the client's bytes, then the server's, each in segments of so many bytes.
fn conversation(asks: &[u8], answers: &[u8], size: usize) -> Vec<Step> {
    let asked = asks.chunks(size).map(|part| web().payload(part));
    let answered = answers.chunks(size).map(|part| web().reply().payload(part));
    opened(asked.chain(answered))
}

const ASKS: &[u8] = b"GET /a?x=1 HTTP/1.1\r\nHost: example.org\r\n\r\n\
    POST /form HTTP/1.1\r\nHOST:  b.example  \r\nContent-Length: 5\r\n\r\nhello\
    PUT /chunks HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5;x=y\r\nGET /\r\n3\r\nabc\r\n0\r\nTrailer: x\r\n\r\n\
    HEAD /h HTTP/1.0\r\n\r\n\
    GET /last one HTTP/1.1\nHost: n\n\n";
const ANSWERS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody\
    HTTP/1.1 100 Continue\r\n\r\n\
    HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n\
    HTTP/1.1 204 No Content\r\n\r\n\
    HTTP/1.1 200\r\nContent-Length: 1000\r\n\r\n\
    HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n";

fn all() -> Vec<(String, String, u64, u64, u64)> {
    [
        ("GET", "/a?x=1", 200, 0, 4),
        ("POST", "/form", 404, 5, 10),
        ("PUT", "/chunks", 204, 8, 0),
        ("HEAD", "/h", 200, 0, 0),
        ("GET", "/last one", 302, 0, 0),
    ]
    .map(|(method, uri, status, sent, got)| (method.to_string(), uri.to_string(), status, sent, got))
    .to_vec()
}

#[test]
fn dividing_anywhere_changes_nothing() {
    for size in [1, 2, 3, 5, 7, 11, 64, 1400] {
        assert_eq!(
            told(&run(conversation(ASKS, ANSWERS, size))),
            all(),
            "segments of {size}"
        );
    }
    for cut in 0..=ASKS.len() {
        let parts = [&ASKS[..cut], &ASKS[cut..]];
        let asked = parts
            .iter()
            .filter(|part| !part.is_empty())
            .map(|part| web().payload(part));
        let script = opened(asked.chain([web().reply().payload(ANSWERS)]));
        assert_eq!(told(&run(script)), all(), "divided at {cut}");
    }
}

#[test]
fn a_record_says_who_asked_whom_what() {
    let outcome = run(conversation(ASKS, ANSWERS, 1400));
    let records = records(&outcome);
    let first = &records[0];
    assert_eq!(first["event_type"], "http");
    assert_eq!(
        (&first["src_ip"], &first["src_port"]),
        (&"10.0.0.1".into(), &1000.into())
    );
    assert_eq!(
        (&first["dest_ip"], &first["dest_port"]),
        (&"192.0.2.1".into(), &80.into())
    );
    assert_eq!(
        (&first["http"]["hostname"], &first["http"]["protocol"]),
        (&"example.org".into(), &"HTTP/1.1".into())
    );
    assert_eq!(records[1]["http"]["hostname"], "b.example");
    assert_eq!(
        (&records[3]["tx_id"], &records[3]["http"]["protocol"]),
        (&3.into(), &"HTTP/1.0".into())
    );
    assert_eq!(outcome.counter("records"), 5);
}

#[test]
fn repeated_and_early_segments_change_nothing() {
    let at = |place: usize, bytes: &[u8]| web().payload(bytes).sequence(1001 + place as u32);
    let script = opened([
        at(30, &ASKS[30..90]),
        at(0, &ASKS[..30]),
        at(10, &ASKS[10..50]),
        at(90, &ASKS[90..]),
        at(0, &ASKS[..30]),
        web().reply().payload(ANSWERS),
    ]);
    assert_eq!(told(&run(script)), all());
}

#[test]
fn bodies_without_a_length_end_with_the_connection() {
    let answer = "HTTP/1.1 200 OK\r\n\r\nto the end";
    let script = opened([
        web().payload("GET / HTTP/1.1\r\n\r\n"),
        web().reply().payload(answer),
        web().reply().fin(),
    ]);
    assert_eq!(told(&run(script)), [("GET".into(), "/".into(), 200, 0, 10)]);
    let script = opened([
        web().payload("GET /old\r\n"),
        web().reply().payload("<html>"),
        web().reply().fin(),
    ]);
    let outcome = run(script);
    assert_eq!(told(&outcome), [("GET".into(), "/old".into(), 0, 0, 6)]);
    assert!(records(&outcome)[0]["http"].get("protocol").is_none());
}

#[test]
fn a_body_ends_with_the_fin_whenever_that_comes() {
    let (head, body) = ("HTTP/1.1 200 OK\r\n\r\n", "to the end");
    let behind = 5001 + head.len() as u32;
    let (body, length) = (web().reply().payload(body).sequence(behind), body.len() as u32);
    let part = web().reply().payload("the end").sequence(behind + 3);
    for ends in [
        // Before the body, behind it, ahead of it with some of it; and a FIN before the next byte
        // is none.
        Vec::from([web().reply().fin().sequence(behind + length), body.clone()]),
        Vec::from([body.clone(), web().reply().fin().sequence(behind + length)]),
        Vec::from([part.flags(flags::FIN | flags::ACK), body.clone()]),
        Vec::from([
            web().reply().fin().sequence(behind - 1),
            body.clone(),
            web().reply().fin().sequence(behind + length),
        ]),
    ] {
        let mut script = opened([
            web().payload("GET / HTTP/1.1\r\n\r\n"),
            web().reply().payload(head),
        ]);
        script.extend(ends);
        assert_eq!(told(&run(script)), [("GET".into(), "/".into(), 200, 0, 10)]);
    }
}

#[test]
fn tunnels_are_not_read() {
    for (ask, answer) in [
        (
            "CONNECT example.org:443 HTTP/1.1\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
        ),
        (
            "GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
            "HTTP/1.1 101 Switching\r\n\r\n",
        ),
    ] {
        let script = opened([
            web().payload(ask),
            web().reply().payload(answer),
            web().payload("GET /inside HTTP/1.1\r\n\r\n"),
        ]);
        let outcome = run(script);
        assert_eq!((told(&outcome).len(), outcome.counter("switched")), (1, 1));
    }
}

#[test]
fn what_is_no_http_is_not_read() {
    for text in [
        "SSH-2.0-x\r\n",
        "EHLO example.org\r\n",
        "\x16\x03\x01",
        "220 ready\r\n",
        "USER anonymous\r\nPASS x\r\n",
    ] {
        let outcome = run(opened([
            web().payload(text),
            web().payload("GET / HTTP/1.1\r\n\r\n"),
        ]));
        assert_eq!(
            (told(&outcome).len(), outcome.counter("not_http")),
            (0, 1),
            "{text:?}"
        );
    }
    let doubtful = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n";
    let outcome = run(opened([
        web().payload("GET / HTTP/1.1\r\n\r\n"),
        web().reply().payload(doubtful),
    ]));
    assert_eq!((told(&outcome)[0].2, outcome.counter("not_http")), (0, 1));
}

#[test]
fn missing_bytes_of_a_body_are_passed_over() {
    let gone = web().reply().payload("later").sequence(5001 + 66);
    let script = opened([
        web().payload("GET / HTTP/1.1\r\n\r\n"),
        web()
            .reply()
            .payload("HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n0123"),
        web().ack().acknowledgement(5001 + 66),
        gone,
    ]);
    let outcome = run(script);
    assert_eq!(outcome.counter("gaps"), 1);
    assert_eq!(told(&outcome), [("GET".into(), "/".into(), 200, 0, 30)]);
}

/// A response whose last `lost` body bytes are not seen, and a second request with its response
/// behind that.
fn lost_at_the_end(answer: &str, lost: u32) -> Outcome {
    let behind = 5001 + answer.len() as u32 + lost;
    run(opened([
        web().payload("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n"),
        web().reply().payload(answer),
        web().ack().acknowledgement(behind),
        web()
            .reply()
            .payload("HTTP/1.1 204 No Content\r\n\r\n")
            .sequence(behind),
    ]))
}

#[test]
fn bytes_lost_up_to_a_bodys_end_end_it() {
    let outcome = lost_at_the_end("HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n0123", 26);
    let all = [
        ("GET".into(), "/1".into(), 200, 0, 30),
        ("GET".into(), "/2".into(), 204, 0, 0),
    ];
    assert_eq!(outcome.counter("not_http"), 0);
    assert_eq!(told(&outcome), all);
    // Beyond the end is the next message's beginning.
    let outcome = lost_at_the_end("HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n0123", 27);
    assert_eq!(outcome.counter("not_http"), 1);
}

#[test]
fn bytes_lost_up_to_a_chunks_end_end_it() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123";
    let behind = 5001 + head.len() as u32 + 6;
    let outcome = run(opened([
        web().payload("GET / HTTP/1.1\r\n\r\n"),
        web().reply().payload(head),
        web().ack().acknowledgement(behind),
        web().reply().payload("\r\n0\r\n\r\n").sequence(behind),
    ]));
    assert_eq!(told(&outcome), [("GET".into(), "/".into(), 200, 0, 10)]);
}

#[test]
fn an_answer_without_a_request_is_no_other_requests() {
    // The request to the first answer was not seen; the second comes while that answer is being
    // read.
    let outcome = run(opened([
        web()
            .reply()
            .payload("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nfir"),
        web().payload("GET /second HTTP/1.1\r\n\r\n"),
        web()
            .reply()
            .payload("st.HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"),
    ]));
    let records = records(&outcome);
    assert_eq!(records.len(), 2, "{}", outcome.events());
    let first = &records[0];
    assert_eq!(first["http"], serde_json::json!({"status": 200, "length": 6}));
    assert_eq!(
        (&first["src_port"], &first["dest_port"]),
        (&1000.into(), &80.into())
    );
    assert_eq!(
        (&records[1]["http"]["url"], &records[1]["http"]["status"]),
        (&"/second".into(), &404.into())
    );
    assert_eq!(outcome.counter("answers_alone"), 1);
    // An answer with which a server gives up waiting (RFC 9110 15.5.9), and an answer whose end is
    // the connection's.
    let outcome = run(opened([
        web().reply().payload("HTTP/1.1 408 Request Timeout\r\n\r\nslow"),
        web().reply().fin(),
    ]));
    assert_eq!(
        self::records(&outcome)[0]["http"],
        serde_json::json!({"status": 408, "length": 4})
    );
}

#[test]
fn what_follows_a_connect_is_the_tunnels() {
    // Clients may begin before they are answered.
    for first in ["\x16\x03\x01 hello", "GET /inside HTTP/1.1\r\n\r\n"] {
        let outcome = run(opened([
            web().payload(format!("CONNECT example.org:443 HTTP/1.1\r\n\r\n{first}")),
            web().payload(first),
            web().reply().payload("HTTP/1.1 200 OK\r\n\r\n\x16\x03\x01 hello"),
            web().payload("GET /inside HTTP/1.1\r\n\r\n"),
        ]));
        let all = [("CONNECT".into(), "example.org:443".into(), 200, 0, 0)];
        assert_eq!(told(&outcome), all, "{first:?}");
        assert_eq!((outcome.counter("switched"), outcome.counter("not_http")), (1, 0));
    }
    // A refused one changes nothing.
    let outcome = run(opened([
        web().payload("CONNECT example.org:443 HTTP/1.1\r\n\r\n"),
        web()
            .reply()
            .payload("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
        web().payload("GET / HTTP/1.1\r\n\r\n"),
        web().reply().payload("HTTP/1.1 204 No Content\r\n\r\n"),
    ]));
    assert_eq!(told(&outcome).len(), 2);
    assert_eq!(told(&outcome)[1].2, 204);
    // But bytes sent into it cannot be told from a request.
    let outcome = run(opened([
        web().payload("CONNECT example.org:443 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
        web()
            .reply()
            .payload("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
    ]));
    assert_eq!((told(&outcome).len(), outcome.counter("not_http")), (1, 1));
}

#[test]
fn a_connects_target_ends_at_its_first_blank() {
    for line in ["CONNECT example.org:443 / HTTP/1.1", "CONNECT example.org:443 /"] {
        let outcome = run(opened([
            web().payload(format!("{line}\r\nHost: example.org\r\n\r\n")),
            web().reply().payload("HTTP/1.1 200 OK\r\n\r\n"),
        ]));
        assert_eq!(told(&outcome)[0].1, "example.org:443", "{line}");
    }
}

#[test]
fn what_is_kept_is_bounded() {
    let long = "/".to_string() + &"u".repeat(3000);
    let ask = format!("GET {long} HTTP/1.1\r\nHost: {}\r\n\r\n", "h".repeat(300));
    let outcome = run(conversation(
        ask.as_bytes(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        1000,
    ));
    let http = &records(&outcome)[0]["http"];
    assert_eq!(http["url"], long[..URI_MAX]);
    assert_eq!((&http["truncated"], &http["status"]), (&true.into(), &200.into()));
    // All that wait share the room.
    let ask = format!("GET {} HTTP/1.1\r\n\r\n", &long[..400]).repeat(4);
    let outcome = run(conversation(
        ask.as_bytes(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
            .repeat(4)
            .as_slice(),
        1000,
    ));
    let kept: usize = told(&outcome)
        .iter()
        .map(|record| record.0.len() + record.1.len())
        .sum();
    assert_eq!((told(&outcome).len(), kept), (4, TEXTS_MAX));
    let ask = "GET / HTTP/1.1\r\n\r\n".repeat(REQUESTS_MAX + 1);
    let outcome = run(conversation(ask.as_bytes(), b"", 1000));
    assert_eq!(
        (told(&outcome).len(), outcome.counter("requests_too_many")),
        (REQUESTS_MAX, 1)
    );
}

#[test]
fn packets_allocate_nothing() {
    let mut script = opened([]);
    for _ in 0..20 {
        script.push(web().payload(ASKS));
        script.push(web().reply().payload(ANSWERS));
    }
    let outcome = run(script);
    assert_eq!(told(&outcome).len(), 100);
    assert_eq!(outcome.allocations(8..), 0);
}

proptest! {
    #[test]
    fn any_bytes_are_served(parts in prop::collection::vec((any::<bool>(), prop_oneof![
        prop::collection::vec(any::<u8>(), 1..40),
        prop::sample::select(Vec::from([
            &b"GET / HTTP/1.1\r\n"[..], b"\r\n\r\n", b"Host: x\r\n", b"Content-Length: 7\r\n", b"Transfer-Encoding: chunked\r\n",
            b"HTTP/1.1 200 OK\r\n", b"ffffffffffffffff\r\n", b"0\r\n", b"Content-Length: 99999999999999999999\r\n",
        ])).prop_map(<[u8]>::to_vec),
    ]), 1..30)) {
        let steps = parts.iter().map(|(reply, bytes)| match reply {
            true => web().reply().payload(bytes),
            false => web().payload(bytes),
        });
        // The kit's own checks, and that each line is JSON.
        records(&run(opened(steps)));
    }

    #[test]
    fn any_state_is_served(bytes in prop::collection::vec(any::<u8>(), size_of::<Exchange>()), said in prop::collection::vec(any::<u8>(), 1..80)) {
        // Phases are checked when a state arrives; all else may be anything.
        if let Some(mut exchange) = nf::plain::from_bytes::<Exchange>(&bytes) {
            exchange.talk.read(0, &said, Time::default(), &mut |talk, _| talk.close());
        }
        let mut numbers = bytes;
        let reader = |which: usize| which * size_of::<super::state::Reader>() + 24;
        for which in 0..2 {
            for (byte, most) in [(0, 17), (1, 4), (2, 2), (3, 2), (5, 2)] {
                numbers[reader(which) + byte] %= most;
            }
        }
        let mut exchange = nf::plain::from_bytes::<Exchange>(&numbers).expect("now a state");
        for speaker in [0, 1, 0] {
            exchange.talk.read(speaker, &said, Time::default(), &mut |talk, _| talk.close());
            exchange.talk.pass_over(speaker, 9, &mut |talk, _| talk.close());
        }
        exchange.talk.server_ended(&mut |_, _| {});
    }
}

#[test]
fn numbers_at_their_end_are_served() {
    let reader = |which: usize| which * size_of::<super::state::Reader>() + 24;
    for (at, header) in (0..17).flat_map(|at| (0..4).map(move |header| (at, header))) {
        let mut bytes = std::vec![0xff; size_of::<Exchange>()];
        for which in 0..2 {
            for (byte, value) in [(0, at), (1, header), (2, 1), (3, 1), (5, 1)] {
                bytes[reader(which) + byte] = value;
            }
        }
        for speaker in 0..2 {
            let mut exchange = nf::plain::from_bytes::<Exchange>(&bytes).expect("a state");
            let said = b" 1\n\r\nGET / HTTP/1.1\nhost: x\ncontent-length: 1\n\nab";
            let talk = &mut exchange.talk;
            talk.read(speaker, said, Time::default(), &mut |talk, _| talk.close());
            talk.pass_over(speaker, 9, &mut |talk, _| talk.close());
            talk.server_ended(&mut |_, _| {});
        }
    }
}

#[test]
fn a_host_and_its_port_are_told_apart() {
    for (host, name, port) in [
        ("example.org:8080", "example.org", Some(8080)),
        ("example.org", "example.org", None),
        ("[2001:db8::1]:80", "[2001:db8::1]", Some(80)),
        ("[2001:db8::1]", "[2001:db8::1]", None),
        ("2001:db8::1", "2001:db8::1", None),
        ("example.org:", "example.org", None),
        ("example.org:http", "example.org:http", None),
        ("example.org:65536", "example.org:65536", None),
        (":80", ":80", None),
    ] {
        let asks = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answers = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let outcome = run(opened([web().payload(asks), web().reply().payload(answers)]));
        let http = &records(&outcome)[0]["http"];
        assert_eq!(http["hostname"], name, "{host}");
        assert_eq!(
            http.get("http_port").and_then(|port| port.as_u64()),
            port,
            "{host}"
        );
    }
}
