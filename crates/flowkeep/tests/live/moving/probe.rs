//! A thousand numbered datagrams a second, each echoed: which are there, twice, late or missing, on
//! the way there and on the way back.
//!
//! ```text
//!   client ── number, time ──► server: [`Track`] of the way there
//!     ▲                           │ as it came
//!     └───────────────────────────┘ [`Track`] of the way back
//! ```
//!
//! Both ends are threads of the test in the namespaces of the hosts, so they have one clock. The
//! kernel counts datagrams that a socket has no room for while its thread has no processor
//! ([`crate::network::udp_overflows`]), and tests take them into account.

use crate::machine::Pauses;
use crate::site::SERVER;
use lab::Namespace;
use std::fmt;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two datagrams.
const PERIOD: Duration = Duration::from_millis(1);
/// A longer run of missing datagrams is no processor that had other things to do, but flows that
/// stood still.
pub const GAP_MAX: u64 = 100;
/// A longer pause of the machine is no excuse for a gap by itself: the run is tried again.
pub const EXCUSE_MAX: Duration = Duration::from_millis(50);
/// In milliseconds: when a failure's gap begins at the latest.
const SOON: u64 = 1500;
/// How long the last ones may be on their way.
const LATE: Duration = Duration::from_secs(3);
const LENGTH: usize = 100;

/// The record of a way.
#[derive(Default)]
pub struct Track {
    seen: Vec<bool>,
    /// Came.
    pub distinct: u64,
    /// Came again.
    pub doubled: u64,
    /// Came behind a datagram that was sent after it.
    pub disordered: Vec<u64>,
    /// Differed from the datagram that was sent.
    pub wrong: u64,
    latencies: Vec<Duration>,
    /// Times without any, before the one of this number came: in milliseconds.
    silences: Vec<(u64, u64)>,
    last: Option<Duration>,
}

impl Track {
    fn note(&mut self, datagram: &[u8], epoch: Instant) {
        let field = |at: usize| -> Option<u64> {
            Some(u64::from_be_bytes(datagram.get(at..at + 8)?.try_into().ok()?))
        };
        let (Some(number), Some(sent)) = (field(0), field(8)) else {
            self.wrong += 1;
            return;
        };
        if datagram != message(number, Duration::from_nanos(sent)) {
            self.wrong += 1;
            return;
        }
        let at = number as usize;
        if self.seen.get(at) == Some(&true) {
            self.doubled += 1;
            return;
        }
        if at < self.seen.len() {
            self.disordered.push(number);
        } else {
            self.seen.resize(at + 1, false);
        }
        self.seen[at] = true;
        self.distinct += 1;
        let now = epoch.elapsed();
        self.note_came(number, now);
        self.latencies
            .push(now.saturating_sub(Duration::from_nanos(sent)));
    }

    fn note_came(&mut self, number: u64, now: Duration) {
        let before = self.last.replace(now).unwrap_or(now);
        let silence = now.saturating_sub(before + PERIOD).as_millis() as u64;
        if silence > 0 {
            self.silences.push((number, silence));
        }
    }

    fn latency(&mut self, of_thousand: usize) -> Duration {
        self.latencies.sort_unstable();
        let last = self.latencies.len().saturating_sub(1);
        self.latencies
            .get(last * of_thousand / 1000)
            .copied()
            .unwrap_or_default()
    }

    /// The longest times without any: which came then, and for how many milliseconds none did.
    fn longest_silences(&self) -> Vec<(u64, u64)> {
        let mut all = self.silences.clone();
        all.sort_unstable_by_key(|(_, length)| std::cmp::Reverse(*length));
        all.truncate(5);
        all
    }

    /// Runs of numbers that are not there, of so many that were sent: where each begins, and how
    /// long it is.
    pub fn gaps(&self, sent: u64) -> Vec<(u64, u64)> {
        let mut gaps: Vec<(u64, u64)> = Vec::new();
        for number in 0..sent {
            if self.seen.get(number as usize) == Some(&true) {
                continue;
            }
            match gaps.last_mut() {
                Some((begin, length)) if *begin + *length == number => *length += 1,
                _ => gaps.push((number, 1)),
            }
        }
        gaps
    }
}

/// The outcome of a probe.
#[derive(Default)]
pub struct Seen {
    pub host: String,
    pub sent: u64,
    /// Were not taken by the sender's own kernel.
    pub unsent: u64,
    pub there: Track,
    pub back: Track,
    /// The machine's longest pause meanwhile.
    pub paused: Duration,
    /// When the first was sent.
    began: Option<Instant>,
}

impl Seen {
    /// Datagrams that did not come back.
    pub fn missing(&self) -> u64 {
        self.sent - self.back.distinct
    }

    /// Whether no datagram came for longer than this at a time, be it that they were missing or
    /// that they waited, besides the machine's own pause: a millisecond each.
    pub fn stood_still(&self, gap_max: u64) -> bool {
        let most = gap_max + self.paused.as_millis() as u64;
        let mut silences = self.back.silences.iter();
        silences.any(|(_, length)| *length > most) || self.times_missing(gap_max) > 0
    }

    /// Whether a condition holds of this outcome, and whether it would if the machine had paused
    /// for [`EXCUSE_MAX`] at most.
    pub fn judged(&mut self, is_so: impl Fn(&Self) -> bool) -> [bool; 2] {
        let (good, paused) = (is_so(self), self.paused);
        self.paused = paused.min(EXCUSE_MAX);
        let is_unexcused = is_so(self);
        self.paused = paused;
        [good, is_unexcused]
    }

    /// How often datagrams were missing for longer than this.
    pub fn times_missing(&self, gap_max: u64) -> usize {
        let most = gap_max + self.paused.as_millis() as u64;
        let gaps = self.back.gaps(self.sent);
        gaps.iter().filter(|(_, length)| *length > most).count()
    }

    /// The longest time without a datagram, in milliseconds, that begins when something happened or
    /// soon behind that.
    pub fn gap_behind(&self, at: Instant) -> u64 {
        let since = |began: Instant| at.saturating_duration_since(began).as_millis() as u64;
        let from = self.began.map_or(0, since).saturating_sub(SOON / 10);
        let gaps = self.back.gaps(self.sent).into_iter();
        // The first that came behind a silence was sent at its end, or waited since its begin.
        let silences = self.back.silences.iter().copied();
        let silences = silences.filter(|(first, length)| (from..from + SOON + length).contains(first));
        let of_it = gaps.filter(|(begin, _)| (from..from + SOON).contains(begin));
        of_it.chain(silences).map(|(_, length)| length).max().unwrap_or(0)
    }

    /// The longest that a datagram was on its way, there and back.
    pub fn longest(&mut self) -> Duration {
        self.back.latency(1000)
    }

    /// Datagrams that are neither there in order nor missing.
    pub fn crooked(&self) -> u64 {
        let of = |track: &Track| track.doubled + track.disordered.len() as u64 + track.wrong;
        of(&self.there) + of(&self.back)
    }

    /// In a line for people.
    pub fn told(&mut self) -> String {
        let (there, back) = (self.there.latency(1000), self.back.latency(1000));
        let median = self.back.latency(500);
        let paused = self.paused;
        format!(
            "{self}; longest way there {there:?}, and back {back:?}, median {median:?}; \
             the machine paused for {paused:?}"
        )
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "probe {}: {} sent, {} unsent",
            self.host, self.sent, self.unsent
        )?;
        for (way, track) in [("there", &self.there), ("back", &self.back)] {
            let gaps = track.gaps(self.sent);
            write!(
                f,
                "; {way}: {} came, {} doubled, {} disordered {:?}, {} wrong, {} gaps {:?}, none came for {:?}",
                track.distinct,
                track.doubled,
                track.disordered.len(),
                &track.disordered[..track.disordered.len().min(10)],
                track.wrong,
                gaps.len(),
                &gaps[..gaps.len().min(10)],
                track.longest_silences()
            )?;
        }
        Ok(())
    }
}

fn message(number: u64, sent: Duration) -> [u8; LENGTH] {
    let mut message = [number as u8; LENGTH];
    message[..8].copy_from_slice(&number.to_be_bytes());
    message[8..16].copy_from_slice(&(sent.as_nanos() as u64).to_be_bytes());
    message
}

/// Probes from an inside address to a port of the server, as long as it is on.
pub fn probe(client: &Namespace, server: &Namespace, host: &str, port: u16, on: &AtomicBool) -> Seen {
    let epoch = Instant::now();
    let (is_over, pauses) = (AtomicBool::new(false), Pauses::watch());
    std::thread::scope(|scope| {
        let (begun, begins) = std::sync::mpsc::channel();
        let is_over = &is_over;
        let echo = scope.spawn(move || {
            server.enter().unwrap();
            let socket = UdpSocket::bind((SERVER, port)).unwrap();
            begun.send(()).unwrap();
            echo(&socket, epoch, is_over)
        });
        let sender = scope.spawn(move || {
            client.enter().unwrap();
            begins.recv().unwrap();
            let socket = UdpSocket::bind((host, 0)).unwrap();
            socket.connect((SERVER, port)).unwrap();
            send(&socket, epoch, on)
        });
        let mut seen = sender.join().unwrap();
        is_over.store(true, Ordering::Release);
        seen.there = echo.join().unwrap();
        seen.host = host.to_owned();
        seen.paused = pauses.longest();
        seen
    })
}

fn echo(socket: &UdpSocket, epoch: Instant, is_over: &AtomicBool) -> Track {
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let (mut track, mut buffer) = (Track::default(), [0; 2048]);
    while !is_over.load(Ordering::Acquire) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            track.note(&buffer[..length], epoch);
            // A datagram that the kernel does not take is missing on the way back.
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
    track
}

fn send(socket: &UdpSocket, epoch: Instant, on: &AtomicBool) -> Seen {
    socket.set_nonblocking(true).unwrap();
    let (mut seen, mut buffer) = (Seen::default(), [0; 2048]);
    let mut listen = |track: &mut Track| {
        loop {
            match socket.recv(&mut buffer) {
                Ok(length) => track.note(&buffer[..length], epoch),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                // A port that is unreachable, say.
                Err(_) => track.wrong += 1,
            }
        }
    };
    let began = Instant::now();
    seen.began = Some(began);
    while on.load(Ordering::Acquire) {
        let due = began + PERIOD * seen.sent as u32;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if !matches!(socket.send(&message(seen.sent, epoch.elapsed())), Ok(LENGTH)) {
            seen.unsent += 1;
        }
        seen.sent += 1;
        listen(&mut seen.back);
    }
    let end = Instant::now() + LATE;
    while seen.back.distinct < seen.sent && Instant::now() < end {
        std::thread::sleep(PERIOD);
        listen(&mut seen.back);
    }
    seen
}

#[test]
fn flows_that_stand_still_are_told_from_a_machine_that_does() {
    let mut seen = Seen::default();
    (seen.sent, seen.paused) = (200, Duration::from_millis(30));
    for number in (0..50).chain(170..200) {
        seen.back.note(&message(number, Duration::ZERO), Instant::now());
    }
    assert!(seen.stood_still(80) && !seen.stood_still(90));
    assert_eq!(seen.times_missing(80), 1);
    // A longer pause excuses more, and is not taken for less.
    let moves_on = |seen: &Seen| !seen.stood_still(60);
    assert_eq!(seen.judged(moves_on), [false; 2]);
    seen.paused = Duration::from_millis(70);
    assert_eq!(seen.judged(moves_on), [true, false]);
    assert_eq!(seen.judged(|seen| !seen.stood_still(70)), [true; 2]);
    assert_eq!(seen.paused, Duration::from_millis(70));
}

#[test]
fn a_track_notices_what_is_missing_doubled_late_or_wrong() {
    let epoch = Instant::now();
    let mut track = Track::default();
    for number in [0, 1, 4, 3, 3, 7] {
        track.note(&message(number, Duration::ZERO), epoch);
    }
    track.note(&[0; 3], epoch);
    let mut other = message(8, Duration::ZERO);
    other[50] ^= 1;
    track.note(&other, epoch);
    assert_eq!((track.distinct, track.doubled, track.wrong), (5, 1, 2));
    assert_eq!(track.disordered, [3]);
    assert_eq!(track.gaps(10), [(2, 1), (5, 2), (8, 2)]);
}

#[test]
fn datagrams_that_wait_are_a_gap_as_those_that_are_missing() {
    let mut seen = Seen {
        sent: 200,
        began: Some(Instant::now()),
        ..Seen::default()
    };
    for number in 0..200 {
        // All of a recovery come at once.
        let came = if (50..170).contains(&number) { 170 } else { number };
        seen.back.seen.push(true);
        seen.back.note_came(number, Duration::from_millis(came));
    }
    assert!(seen.stood_still(110) && !seen.stood_still(125));
    assert_eq!(
        seen.gap_behind(seen.began.unwrap() + Duration::from_millis(50)),
        120
    );
}

#[test]
fn a_gap_belongs_to_what_happened_before_it() {
    let epoch = Instant::now();
    let mut seen = Seen {
        sent: 5000,
        began: Some(epoch),
        ..Seen::default()
    };
    for number in (0..1000).chain(1080..5000) {
        seen.back.note(&message(number, Duration::ZERO), epoch);
    }
    let behind = |after: u64| seen.gap_behind(epoch + Duration::from_millis(after));
    assert_eq!([995, 1001, 3000].map(behind), [80, 80, 0]);
}
