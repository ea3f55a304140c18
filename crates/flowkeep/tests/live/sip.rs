//! SIP and symmetric RTP through the chain: sipp calls from inside, sipp outside answers, plays the
//! echo, and hangs up.
//!
//! NAT does not rewrite addresses in messages (no application gateway): the caller's Via, Contact
//! and session description say 10.0.1.1 all the way. It works since the other end answers where it
//! was spoken to from: messages by `rport` (RFC 3581), media because its RTP is symmetric (RFC
//! 4961). The callee's BYE comes unasked, seconds after the caller's last word, by the mapping that
//! the caller's port has.
//!
//! sipp echoes media and does not count echoes, so the caller's media are this test's: a socket for
//! each call at the port that the call announced, 50 packets a second with sequence numbers, each
//! of which must come back once, from the address it went to.
//!
//! A callee that sends where a message says (`Via`, without `rport`) does not reach a caller behind
//! NAT: that is shown too, with the reason for which the cluster drops it.

use crate::network::{PATIENCE, wait_for_listeners};
use crate::site::{SERVER, Site, end_of, site};
use lab::process::Process;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

pub const PROGRAMS: &[(&str, &str)] = &[("sipp", "sip-tester")];

const CALLS: usize = 20;
/// Of each call, one every 20 ms.
const PACKETS: u16 = 150;
const MEDIA_PORT: u16 = 7000;
/// The first call's: sipp counts on from its `-mp` in steps of four, the scenario puts a digit in
/// front.
const CALLERS_PORT: u16 = 6000;
/// RTP header (RFC 3550, 5.1), and 20 ms of PCMU.
const RTP: usize = 12 + 160;

fn calls(scheme: &'static str) {
    let Some(mut site) = site(scheme, PROGRAMS) else {
        return;
    };
    site.start("");
    let missing = with_symmetric_answers(&site);
    site.log.expect("no media missing", missing == 0, missing);
    with_answers_by_via(&site);
    site.end();
}

fn scenario(site: &Site, name: &str, text: &str) -> String {
    let file = site.network.folder.path(name);
    fs::write(&file, text).unwrap();
    file
}

/// sipp outside, for so many calls.
fn callee(site: &Site, calls: usize, how: &str) -> Process {
    let scenario = scenario(site, "callee.xml", include_str!("sip/callee.xml"));
    let words = format!(
        "sipp -sf {scenario} -i {SERVER} -p 5060 -mi {SERVER} -mp {MEDIA_PORT} -rtp_echo -m {calls} -nostdin {} {how}",
        figures(site, "callee"),
    );
    let sipp = site.network.server.start(&words).unwrap();
    // sipp listens for calls first, and for media a moment later. Until then a sender of media is
    // told that the port is unreachable.
    for port in [5060, MEDIA_PORT] {
        wait_for_listeners(&site.network.server, "udp", port, 1);
    }
    sipp
}

fn caller(site: &Site, calls: usize, how: &str) -> Process {
    let scenario = scenario(site, "caller.xml", include_str!("sip/caller.xml"));
    let words = format!(
        "sipp {SERVER}:5060 -sf {scenario} -i 10.0.1.1 -p 5060 -mi 10.0.1.1 -mp {CALLERS_PORT} -m {calls} -r 10 -nostdin {} {how}",
        figures(site, "caller"),
    );
    site.network.client.start(&words).unwrap()
}

fn figures(site: &Site, name: &str) -> String {
    let path = |end: &str| site.network.folder.path(&format!("{name}.{end}"));
    format!(
        "-trace_stat -stf {} -fd 1 -trace_err -error_file {}",
        path("csv"),
        path("errors")
    )
}

/// A figure of the last line that sipp wrote with `-trace_stat`.
fn figure(site: &Site, name: &str, column: &str) -> Option<u64> {
    let text = fs::read_to_string(site.network.folder.path(&format!("{name}.csv"))).ok()?;
    let at = text.lines().next()?.split(';').position(|name| name == column)?;
    text.lines().last()?.split(';').nth(at)?.parse().ok()
}

/// Calls and their media, each of which must come back once and as it was sent; answers how many
/// packets did not come back, other than those that hosts had no room for.
pub fn with_symmetric_answers(site: &Site) -> usize {
    let callee = callee(site, CALLS, "");
    let caller = caller(site, CALLS, "-timeout 50 -timeout_error");
    let before = site.network.udp_overflows();
    let media = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            site.network.client.enter().unwrap();
            Media::new().talk()
        });
        thread.join().unwrap()
    });
    // A program that had no processor for a while has lost packets by itself.
    let overflows = (site.network.udp_overflows() - before) as usize;
    for (name, process) in [("caller", caller), ("callee", callee)] {
        let end = end_of(process, PATIENCE);
        let good = end.as_ref().is_ok_and(|end| end.status.code() == Some(0));
        let errors = fs::read_to_string(site.network.folder.path(&format!("{name}.errors")));
        site.log.expect(
            &format!("the {name} ends well"),
            good,
            format!("{end:?} {errors:?}"),
        );
        let succeeded = figure(site, name, "SuccessfulCall(C)");
        let failed = figure(site, name, "FailedCall(C)");
        println!("SIP {name}: {succeeded:?} calls, {failed:?} failed");
        let good = (succeeded, failed) == (Some(CALLS as u64), Some(0));
        let said = format!("{succeeded:?} succeeded, {failed:?} failed");
        site.log.expect(&format!("the {name}'s calls"), good, said);
    }
    println!("RTP: {media:?}, {overflows} overflows");
    let wanted = CALLS * usize::from(PACKETS);
    let good = media.sent == wanted && media.others == 0;
    site.log.expect("media", good, format!("{media:?}"));
    wanted.saturating_sub(media.echoed + overflows)
}

/// The outcome of the media.
#[derive(Debug, Default)]
struct Media {
    sockets: Vec<UdpSocket>,
    sent: usize,
    /// Came back, as they were sent.
    echoed: usize,
    /// Came twice, or otherwise than they were sent.
    others: usize,
}

impl Media {
    fn new() -> Self {
        let sockets = (0..CALLS as u16).map(|call| {
            let socket = UdpSocket::bind(("10.0.1.1", 30_000 + CALLERS_PORT + 4 * call)).unwrap();
            // Connected, it takes packets of its peer only.
            socket.connect((SERVER, MEDIA_PORT)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        Media {
            sockets: sockets.collect(),
            ..Media::default()
        }
    }

    fn talk(mut self) -> Self {
        let mut seen = BTreeSet::new();
        let began = Instant::now();
        for number in 0..PACKETS {
            let due = began + Duration::from_millis(20) * u32::from(number);
            while Instant::now() < due {
                self.listen(&mut seen);
                std::thread::sleep(Duration::from_millis(2));
            }
            for (call, socket) in self.sockets.iter().enumerate() {
                self.sent += usize::from(socket.send(&packet(call, number)).is_ok_and(|sent| sent == RTP));
            }
        }
        let end = Instant::now() + Duration::from_secs(2);
        while self.echoed < self.sent && Instant::now() < end {
            self.listen(&mut seen);
            std::thread::sleep(Duration::from_millis(2));
        }
        self.sockets.clear();
        self
    }

    fn listen(&mut self, seen: &mut BTreeSet<(usize, u16)>) {
        let mut buffer = [0; 2048];
        for (call, socket) in self.sockets.iter().enumerate() {
            loop {
                match socket.recv(&mut buffer) {
                    Ok(length) => {
                        let number = u16::from_be_bytes([buffer[2], buffer[3]]);
                        let good = buffer[..length] == packet(call, number) && seen.insert((call, number));
                        self.echoed += usize::from(good);
                        self.others += usize::from(!good);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // A port unreachable: the callee does not listen there yet, or no more.
                    Err(_) => self.others += 1,
                }
            }
        }
    }
}

/// RTP version 2, payload type 0; the call is its source.
fn packet(call: usize, number: u16) -> [u8; RTP] {
    let mut packet = [call as u8 ^ number as u8; RTP];
    packet[..2].copy_from_slice(&[0x80, 0]);
    packet[2..4].copy_from_slice(&number.to_be_bytes());
    packet[4..8].copy_from_slice(&(u32::from(number) * 160).to_be_bytes());
    packet[8..12].copy_from_slice(&(call as u32).to_be_bytes());
    packet
}

/// A callee that sends to 10.0.1.1, as the message says, instead of where it came from.
fn with_answers_by_via(site: &Site) {
    const REASON: &str = "firewall/not_allowed";
    let before = site.dropped(REASON);
    let callee = callee(site, 1, "-rsa 10.0.1.1:5060");
    let caller = caller(site, 1, "-recv_timeout 2000 -timeout 20");
    let end = end_of(caller, PATIENCE);
    let failed = figure(site, "caller", "FailedCall(C)");
    let dropped = site.dropped(REASON) - before;
    println!("SIP without rport: {failed:?} failed, {dropped} answers refused");
    let good = end.as_ref().is_ok_and(|end| end.status.code() == Some(1)) && failed == Some(1);
    site.log
        .expect("a call without rport fails", good, format!("{end:?} {failed:?}"));
    site.log.expect(
        "its answers are counted",
        dropped >= 2,
        format!("{dropped} of {REASON}"),
    );
    drop(callee);
}

#[test]
fn sip_over_packet_sockets() {
    calls("afpacket");
}

#[test]
fn sip_over_xdp() {
    calls("afxdp");
}
