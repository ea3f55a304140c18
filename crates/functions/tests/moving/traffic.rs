//! Conversations of several hosts, interleaved: TCP from its handshake to its end, questions and
//! answers over UDP, pings, errors about them, and strangers.

use std::time::Duration;
use testkit::{Step, answer, ping, tcp, udp, wait};

/// The ends that talk: inside hosts, their ports, the servers outside.
pub fn conversations() -> Vec<Step> {
    script(true)
}

/// The same without what windows decide: resets that are long over, and connections that are opened
/// again behind their end.
pub fn conversations_in_window() -> Vec<Step> {
    script(false)
}

fn script(is_whole: bool) -> Vec<Step> {
    let mut script = Vec::new();
    for round in 0..6 {
        for number in 0..12u16 {
            let is_late_reset = round == 3 && number % 4 == 1;
            let is_again = round == 5 && number % 4 < 2;
            if is_whole || !is_late_reset && !is_again {
                script.extend(round_of(round, number));
            }
        }
        if round % 2 == 1 {
            script.push(wait(Duration::from_millis(700)));
        }
    }
    script
}

fn round_of(round: u8, number: u16) -> Vec<Step> {
    let host = format!("10.0.0.{}", 1 + number % 4);
    let server = format!("192.0.2.{}", 1 + number % 3);
    if number % 4 == 3 {
        let echo = ping(&host, &server, 70 + number);
        return vec![echo, answer()];
    }
    if number % 4 == 2 {
        let query = udp(&format!("{host}:{}", 5000 + number), &format!("{server}:53"));
        return match round {
            2 => vec![query.payload("what?"), answer().unreachable("198.51.100.254")],
            _ => vec![query.payload("what?"), answer().payload("that")],
        };
    }
    let web = tcp(&format!("{host}:{}", 40_000 + number), &format!("{server}:80"));
    match round {
        0 => vec![web.syn(), answer().syn_ack()],
        1 => vec![
            web.ack(),
            web.payload("GET /index.html HTTP/1.1\r\nHo"),
            udp("203.0.113.99:53", &format!("{host}:9")).from_outside(),
        ],
        2 => vec![
            web.payload("st: www.example.org\r\n\r\n"),
            answer().payload("HTTP/1.1 200 OK\r\nContent-Le"),
        ],
        // A reset that is long over.
        3 if number % 4 == 1 => vec![web.reply().sequence(4321).rst()],
        3 => vec![
            answer().payload("ngth: 4\r\n\r\nab"),
            web.ack(),
            answer().payload("cd"),
        ],
        4 if number.is_multiple_of(3) => vec![web.rst()],
        4 if number % 3 == 1 => vec![web.ack(), answer().rst()],
        4 => vec![web.fin(), answer().fin(), web.ack()],
        // The port again.
        _ => vec![web.syn(), answer().syn_ack()],
    }
}
