//! Links between threads and processes: order, exactly once, ends that are killed, ends that are
//! mad.

use super::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::LinkType;
use wire::memory::Region;
use wire::packet::Side;

const BUFFERS: usize = 256;
const FRAME: usize = 4000;
const SPARED: usize = 100;
const PATIENCE: Duration = Duration::from_secs(60);

fn pool(origin: u8) -> Pool {
    let region = Region::heap(Pool::region_length(BUFFERS, FRAME));
    Pool::new(region, BUFFERS, FRAME, origin)
}

fn settings(directory: &Path, near: u16) -> ShmSettings {
    ShmSettings {
        directory: directory.join("links"),
        near,
        far: 1 - near,
        bytes: 1 << 17,
        limit: 100,
        frame_max: FRAME,
        spared: SPARED,
        ports: u8::MAX,
        agreed: [0; AGREED],
    }
}

fn open(directory: &Path, near: u16) -> ShmLink {
    ShmLink::open(settings(directory, near), Reports::default()).unwrap()
}

/// An end with its pool, that says numbered packets and checks what it hears: from 0 on in each
/// session.
struct Talker {
    link: ShmLink,
    pool: Pool,
    said: u64,
    heard: u64,
    heard_in_all: u64,
}

/// The bytes of a packet: its number, and as many more as follow from it.
fn bytes(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(
        8 + (number.wrapping_mul(0x9e37_79b9) % 1500) as usize,
        number as u8,
    );
    bytes
}

fn port(number: u64) -> u8 {
    (number % 255) as u8
}

impl Talker {
    fn new(link: ShmLink) -> Talker {
        let pool = pool(link.settings.near as u8);
        Talker {
            link,
            pool,
            said: 0,
            heard: 0,
            heard_in_all: 0,
        }
    }

    fn say(&mut self, number: u64) -> bool {
        let Some(mut packet) = self.pool.take() else {
            return false;
        };
        assert!(packet.set_frame(&bytes(number), LinkType::Raw));
        packet.set_kind(if number.is_multiple_of(3) {
            Kind::Message
        } else {
            Kind::Data
        });
        packet.set_timestamp(number);
        packet.set_side(if number.is_multiple_of(2) {
            Side::Inside
        } else {
            Side::Outside
        });
        packet.set_port(port(number));
        let mut burst = Burst::new();
        burst.push(packet);
        self.link.transmit(monotonic_ns(), &mut self.pool, &mut burst);
        true
    }

    /// Receives and checks, says some packets; whether anything came.
    fn step(&mut self, say: u64) -> bool {
        let mut burst = Burst::new();
        let before = self.link.session();
        self.link.receive(monotonic_ns(), &mut self.pool, &mut burst);
        let came = !burst.is_empty();
        for packet in burst.drain(..) {
            assert_ne!(before, 0, "in a session");
            assert_eq!(packet.frame(), bytes(self.heard));
            assert_eq!(packet.kind() == Kind::Message, self.heard.is_multiple_of(3));
            if packet.kind() == Kind::Data {
                assert_eq!(
                    (packet.timestamp(), packet.port()),
                    (self.heard, port(self.heard))
                );
                assert_eq!(packet.side() == Side::Inside, self.heard.is_multiple_of(2));
            }
            self.heard += 1;
            self.heard_in_all += 1;
            self.pool.give(packet);
        }
        if self.link.session() != before {
            (self.said, self.heard) = (0, 0);
        }
        for _ in 0..say {
            if self.link.session() != 0 && self.link.room() > 0 && self.say(self.said) {
                self.said += 1;
            }
        }
        came
    }

    fn assert_conserved(&self) {
        assert_eq!(self.pool.free() + self.link.waiting(), BUFFERS);
    }
}

/// Steps both until they have met.
fn meet(a: &mut Talker, b: &mut Talker) {
    let began = Instant::now();
    while a.link.session() == 0 || b.link.session() == 0 {
        a.step(0);
        b.step(0);
        assert!(began.elapsed() < PATIENCE, "they do not meet");
    }
}

#[test]
fn threads_talk_both_ways() {
    const PACKETS: u64 = 50_000;
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (open(directory.path(), 0), open(directory.path(), 1));
    let talk = |link: ShmLink| {
        move || {
            let mut talker = Talker::new(link);
            let (mut last, mut since) = ((0, 0), Instant::now());
            // An end that has heard all goes on until the memory has taken all that it says.
            while talker.heard < PACKETS || talker.said < PACKETS || talker.link.waiting() > 0 {
                let say = 7.min(PACKETS - talker.said.min(PACKETS));
                if !talker.step(say) {
                    std::thread::yield_now();
                }
                talker.assert_conserved();
                // However long all of it takes where other threads want the processors, too.
                let now = (talker.said, talker.heard);
                if now != last {
                    (last, since) = (now, Instant::now());
                }
                assert!(since.elapsed() < PATIENCE, "{now:?}: said and heard");
            }
            talker
        }
    };
    let other = std::thread::spawn(talk(b));
    let mut a = talk(a)();
    let mut b = other.join().unwrap();
    assert_eq!((a.link.session(), b.link.session()), (1, 1));
    assert_eq!(a.link.counters().sent_packets, b.link.counters().received_packets);
    assert_eq!(a.link.counters().sent_bytes, b.link.counters().received_bytes);
    assert_eq!(a.link.counters().unsent_packets, 0);
    a.step(0);
    b.step(0);
    assert_eq!((a.pool.free(), b.pool.free()), (BUFFERS, BUFFERS));
}

#[test]
fn what_has_no_room_waits_and_comes_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut a = Talker::new(open(directory.path(), 0));
    let mut b = Talker::new(open(directory.path(), 1));
    assert_eq!(a.link.room(), 100);
    meet(&mut a, &mut b);
    // As many as there are buffers for, beyond the limit and the memory.
    let mut said = 0;
    while a.say(said) {
        said += 1;
    }
    assert_eq!((a.link.room(), a.link.waiting(), a.pool.free()), (0, BUFFERS, 0));
    assert!(said > BUFFERS as u64, "the memory takes some");
    assert_eq!(a.link.next_at(), Some(0), "no bell tells it that there is room");
    while b.heard < said {
        a.link.receive(monotonic_ns(), &mut a.pool, &mut Burst::new());
        b.step(0);
    }
    assert_eq!(
        (a.link.waiting(), a.pool.free(), a.link.room()),
        (0, BUFFERS, 100)
    );
    assert_eq!((a.link.session(), a.link.next_at()), (1, None));
}

#[test]
fn some_buffers_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut a = Talker::new(open(directory.path(), 0));
    let mut b = Talker::new(open(directory.path(), 1));
    meet(&mut a, &mut b);
    while a.say(0) {}
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut burst = Burst::new();
        b.link.receive(monotonic_ns(), &mut b.pool, &mut burst);
        held.extend(burst.drain(..));
        a.link.receive(monotonic_ns(), &mut a.pool, &mut Burst::new());
    }
    assert_eq!((held.len(), b.pool.free()), (BUFFERS - SPARED, SPARED));
    held.into_iter().for_each(|packet| b.pool.give(packet));
}

#[test]
fn what_was_said_before_the_end_is_heard_and_then_there_is_no_peer() {
    let directory = tempfile::tempdir().unwrap();
    let mut a = Talker::new(open(directory.path(), 0));
    for session in 1..=3 {
        let mut b = Talker::new(open(directory.path(), 1));
        meet(&mut a, &mut b);
        assert_eq!(a.link.session(), session);
        for number in 0..40 {
            assert!(b.say(number));
        }
        drop(b);
        // `a` has not looked yet: its messages from now on are lost with the session.
        assert!(a.say(0));
        std::thread::sleep(Duration::from_millis(5));
        while a.link.session() != 0 {
            a.step(0);
        }
        assert_eq!(a.heard_in_all, 40 * session);
        let unsent = a.link.counters().unsent_packets;
        assert!(a.say(1));
        assert_eq!(a.link.counters().unsent_packets, unsent + 1);
        assert_eq!(a.pool.free(), BUFFERS);
    }
    // The end that listens goes and comes back.
    let mut b = Talker::new(open(directory.path(), 1));
    meet(&mut a, &mut b);
    drop(a);
    let mut a = Talker::new(open(directory.path(), 0));
    std::thread::sleep(Duration::from_millis(5));
    while b.link.session() != 2 {
        a.step(0);
        b.step(0);
    }
    meet(&mut a, &mut b);
    drop((a, b));
    let left: Vec<_> = std::fs::read_dir(directory.path().join("links"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn buffers_that_wait_for_a_gone_peer_do_not_keep_it_here() {
    let directory = tempfile::tempdir().unwrap();
    let mut a = Talker::new(open(directory.path(), 0));
    let mut b = Talker::new(open(directory.path(), 1));
    meet(&mut a, &mut b);
    while a.say(0) {}
    for number in 0..20 {
        assert!(b.say(number));
    }
    drop(b);
    let began = Instant::now();
    while a.link.session() != 0 {
        a.step(0);
        assert!(began.elapsed() < PATIENCE, "the session does not end");
    }
    // Records put in before the end were heard, though no buffer was free for them at first.
    assert_eq!(
        (a.heard_in_all, a.pool.free(), a.link.waiting()),
        (20, BUFFERS, 0)
    );
}

#[test]
fn other_pools_buffers_come_back_empty() {
    let directory = tempfile::tempdir().unwrap();
    let mut a = Talker::new(open(directory.path(), 0));
    let mut b = Talker::new(open(directory.path(), 1));
    meet(&mut a, &mut b);
    let mut third = pool(7);
    let mut burst = Burst::new();
    for kind in [Kind::Data, Kind::Empty, Kind::Message] {
        let mut packet = third.take().unwrap();
        assert!(packet.set_frame(&bytes(0), LinkType::Raw));
        packet.set_kind(kind);
        burst.push(packet);
    }
    a.link.transmit(0, &mut a.pool, &mut burst);
    assert!(burst.is_empty());
    a.link.receive(monotonic_ns(), &mut a.pool, &mut burst);
    assert_eq!(burst.len(), 3);
    for packet in burst.drain(..) {
        assert_eq!((packet.kind(), packet.origin()), (Kind::Empty, 7));
        third.give(packet);
    }
    assert_eq!((third.free(), a.pool.free()), (BUFFERS, BUFFERS));
    b.link.receive(monotonic_ns(), &mut b.pool, &mut burst);
    assert_eq!(
        burst.iter().map(|packet| packet.kind()).collect::<Vec<_>>(),
        [Kind::Data, Kind::Message]
    );
    burst.drain(..).for_each(|packet| b.pool.give(packet));
}

#[test]
fn a_frame_longer_than_the_other_end_takes_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let mut a = Talker::new(open(directory.path(), 0));
    // Messages between workers come through everywhere.
    let longest = message::FRAME_MAX;
    let small = ShmSettings {
        frame_max: 100,
        ..settings(directory.path(), 1)
    };
    let mut b = Talker::new(ShmLink::open(small, Reports::default()).unwrap());
    meet(&mut a, &mut b);
    let mut burst = Burst::new();
    for length in [longest, longest + 1, 99] {
        let mut packet = a.pool.take().unwrap();
        assert!(packet.set_frame(&vec![1; length], LinkType::Raw));
        burst.push(packet);
    }
    a.link.transmit(0, &mut a.pool, &mut burst);
    b.link.receive(monotonic_ns(), &mut b.pool, &mut burst);
    assert_eq!(
        burst
            .iter()
            .map(|packet| packet.frame().len())
            .collect::<Vec<_>>(),
        [longest, 99]
    );
    let counters = a.link.counters();
    assert_eq!((counters.sent_packets, counters.unsent_packets), (2, 1));
    burst.drain(..).for_each(|packet| b.pool.give(packet));
    assert_eq!((a.pool.free(), a.link.session()), (BUFFERS, 1));
}

fn is_readable(descriptor: i32, patience: Duration) -> bool {
    // SAFETY: the link that has the descriptor outlives the call.
    let fd = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let limit = Timespec::try_from(patience).unwrap();
    let mut wanted = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut wanted, Some(&limit)).unwrap() > 0
}

#[test]
fn a_sleeper_is_woken_and_who_is_awake_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let mut a = Talker::new(open(directory.path(), 0));
    let mut b = Talker::new(open(directory.path(), 1));
    meet(&mut a, &mut b);
    let descriptor = a.link.wakes_by().unwrap()[0];
    let moment = Duration::from_millis(1);
    for number in 0..50 {
        assert!(!a.step(0));
        std::thread::sleep(Duration::from_micros(10));
        assert!(!a.step(0), "it lies down");
        assert!(a.link.lies && !is_readable(descriptor, moment));
        assert!(b.say(number) && is_readable(descriptor, PATIENCE));
        assert!(a.step(0) && !a.link.lies);
        assert!(!is_readable(descriptor, Duration::ZERO), "the bell is heard");
    }
    // Awake, so far as it says.
    assert!(b.say(50) && !is_readable(descriptor, moment));
    assert!(a.step(0));
    // The other end's death wakes it, too.
    drop(b);
    assert!(is_readable(descriptor, PATIENCE));
    let began = Instant::now();
    while a.link.session() != 0 {
        a.step(0);
        assert!(began.elapsed() < PATIENCE);
    }
    assert!(!is_readable(descriptor, moment), "nothing is left that wakes");
}

#[test]
fn an_end_is_there_once_and_in_a_directory_of_ones_own() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let mut a = Talker::new(open(directory.path(), 0));
    let mut b = Talker::new(open(directory.path(), 1));
    meet(&mut a, &mut b);
    let twice = ShmLink::open(settings(directory.path(), 0), Reports::default());
    assert!(matches!(twice, Err(ShmError::Twice { worker: 0, .. })));
    // A second process that connects is sent away, and the session goes on.
    let mut second = Talker::new(open(directory.path(), 1));
    for _ in 0..20 {
        a.step(3);
        b.step(3);
        second.step(3);
        std::thread::sleep(Duration::from_millis(3));
    }
    assert_eq!(
        (a.link.session(), b.link.session(), second.link.session()),
        (1, 1, 0)
    );
    // The second process has its turn.
    drop(b);
    meet(&mut a, &mut second);
    drop((a, second));
    let links = directory.path().join("links");
    std::fs::set_permissions(&links, std::fs::Permissions::from_mode(0o755)).unwrap();
    let open_to_all = ShmLink::open(settings(directory.path(), 0), Reports::default());
    let error = open_to_all.err().unwrap().to_string();
    assert!(error.contains("chmod 700"), "{error}");
    let short = ShmSettings {
        bytes: 1000,
        ..settings(directory.path(), 0)
    };
    assert!(matches!(
        ShmLink::open(short, Reports::default()),
        Err(ShmError::Length { .. })
    ));
}

/// Root could write into another user's directory, and accept that user's process.
#[test]
fn another_users_directory_and_process_are_refused() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown};
    if !rustix::process::geteuid().is_root() {
        return println!("not run: needs root");
    }
    const OTHER: u32 = 4711;
    let directory = tempfile::tempdir().unwrap();
    let reports = Reports::default();
    let mut a = Talker::new(ShmLink::open(settings(directory.path(), 0), reports.clone()).unwrap());
    // The modes let every user connect from here on: the peer's number alone refuses it.
    let links = directory.path().join("links");
    let path = links.join("0-1");
    for (path, mode) in [
        (directory.path(), 0o755),
        (links.as_path(), 0o755),
        (path.as_path(), 0o777),
    ] {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let connecting = || {
        let other = rustix::process::Uid::from_raw(OTHER);
        // Of this thread alone.
        rustix::thread::set_thread_res_uid(other, other, other).unwrap();
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        socket
    };
    let stranger = std::thread::scope(|scope| scope.spawn(connecting).join().unwrap());
    for _ in 0..5 {
        a.step(1);
        std::thread::sleep(Duration::from_millis(3));
    }
    let told = reports.take();
    let is_refused = told
        .iter()
        .any(|told| told.problem.contains("another user (4711)"));
    assert!(is_refused && a.link.session() == 0, "{told:?}");
    drop((a, stranger));
    set_permissions(&links, Permissions::from_mode(0o700)).unwrap();
    chown(&links, Some(OTHER), None).unwrap();
    let refused = ShmLink::open(settings(directory.path(), 0), Reports::default());
    assert!(matches!(refused, Err(ShmError::NotOurs { .. })));
}

/// A process that connects with another hello is reported at most once, and keeps no peer out.
#[test]
fn strangers_are_sent_away() {
    use rustix::net::{
        AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
    };
    let directory = tempfile::tempdir().unwrap();
    let reports = Reports::default();
    let mut a = Talker::new(ShmLink::open(settings(directory.path(), 0), reports.clone()).unwrap());
    for hello in [
        &b"FKLINK\0\x09 of another version ...."[..],
        b"hello",
        b"FKLINK\0\x02\x01\0\0\0",
        &[0; 32],
        &[0xff; 100],
    ] {
        let flags = SocketFlags::CLOEXEC;
        let stranger = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let path = directory.path().join("links/0-1");
        connect(&stranger, &SocketAddrUnix::new(path).unwrap()).unwrap();
        send(&stranger, hello, SendFlags::empty()).unwrap();
        for _ in 0..5 {
            a.step(1);
            std::thread::sleep(Duration::from_millis(3));
        }
        assert_eq!(a.link.session(), 0);
    }
    let told = reports.take();
    assert!(!told.is_empty() && told.len() <= 5, "{told:?}");
    assert!(told[0].problem.contains("another version"), "{told:?}");
    let mut b = Talker::new(open(directory.path(), 1));
    meet(&mut a, &mut b);
    assert_eq!(a.pool.free(), BUFFERS);
}

/// Ends that differ in what both must have alike do not meet. Both, the listening and the
/// connecting end, know in what they differ. When one has mended it they meet.
#[test]
fn who_disagrees_is_not_met() {
    let directory = tempfile::tempdir().unwrap();
    let reports = Reports::default();
    let of = |near, agreed| {
        let settings = ShmSettings {
            agreed,
            ..settings(directory.path(), near)
        };
        Talker::new(ShmLink::open(settings, reports.clone()).unwrap())
    };
    let words = |last: u64| {
        let mut words = [5; AGREED];
        words[AGREED - 1] = last;
        words
    };
    let mut differs = [0; AGREED];
    differs[AGREED - 1] = 7;
    let mut a = of(0, words(3));
    let mut b = of(1, words(4));
    let began = Instant::now();
    while [a.link.differs(), b.link.differs()] != [differs; 2] {
        assert!(
            began.elapsed() < PATIENCE,
            "{:?} {:?}",
            a.link.differs(),
            b.link.differs()
        );
        a.step(0);
        b.step(0);
        assert_eq!((a.link.session(), b.link.session()), (0, 0));
    }
    drop(b);
    let mut b = of(1, words(3));
    meet(&mut a, &mut b);
    assert_eq!([a.link.differs(), b.link.differs()], [[0; AGREED]; 2]);
    assert_eq!(reports.take(), [], "status says it");
}

/// One end writes anything anywhere in both memories, again and again: the other ends the session,
/// keeps its buffers, and meets the next.
#[test]
fn a_mad_end_costs_its_session_only() {
    let directory = tempfile::tempdir().unwrap();
    let mut a = Talker::new(open(directory.path(), 0));
    let mut random = 1_u64;
    let mut draw = move |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for _ in 0..200 {
        let mut b = Talker::new(open(directory.path(), 1));
        meet(&mut a, &mut b);
        for number in 0..draw(60) {
            assert!(b.say(number));
        }
        for _ in 0..10 {
            let way = b.link.way.as_ref().unwrap();
            let memory = if draw(2) == 0 { &way._theirs } else { &way._ours };
            let words = memory.length() as u64 / 8;
            let word = [0, 16, 17, 32, draw(words), 64 + draw(100)][draw(6) as usize];
            let value = [
                draw(1 << 16),
                draw(1 << 13) * 16,
                u64::MAX,
                draw(1 << 30) << 33,
                u64::from(u32::MAX),
            ][draw(5) as usize];
            // SAFETY: a word inside the mapping.
            unsafe {
                memory
                    .start()
                    .cast::<u64>()
                    .add(word as usize)
                    .write_volatile(value)
            };
            for _ in 0..4 {
                let mut burst = Burst::new();
                a.link.receive(monotonic_ns(), &mut a.pool, &mut burst);
                // Bytes are whatever they are.
                burst.drain(..).for_each(|packet| a.pool.give(packet));
                if a.link.session() != 0 && a.link.room() > 0 {
                    a.say(0);
                }
                a.assert_conserved();
            }
        }
        drop(b);
        let began = Instant::now();
        while a.link.session() != 0 {
            let mut burst = Burst::new();
            a.link.receive(monotonic_ns(), &mut a.pool, &mut burst);
            burst.drain(..).for_each(|packet| a.pool.give(packet));
            assert!(began.elapsed() < PATIENCE);
        }
        (a.said, a.heard) = (0, 0);
        assert_eq!(a.pool.free(), BUFFERS);
    }
    let broken = a.link.broken_sessions();
    assert!(
        (50..200).contains(&broken),
        "{broken} sessions ended by what cannot be"
    );
    assert!(a.link.counters().refused_packets > 0);
}

/// Says in which directory, and as which end, [`the_process_that_is_killed`] talks.
const VICTIM: &str = "FLOWKEEP_TEST_SHM_VICTIM";

/// Not a test but a process of one: it talks until it is killed, or the other end is gone.
#[test]
fn the_process_that_is_killed() {
    let Ok(words) = std::env::var(VICTIM) else { return };
    let (near, directory) = words.split_once(' ').unwrap();
    let mut talker = Talker::new(open(Path::new(directory), near.parse().unwrap()));
    let began = Instant::now();
    while began.elapsed() < PATIENCE && (talker.heard == 0 || talker.link.session() != 0) {
        talker.step(9);
        talker.assert_conserved();
    }
}

fn victim(directory: &Path, near: u16) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shm::tests::the_process_that_is_killed"])
        .env(VICTIM, format!("{near} {}", directory.display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// When the other process is killed, in turn. The last three leave something on its way for
/// certain, however fast it is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// Some time after its start, before the two met or after.
    Early,
    /// Some packets after they met.
    Talking,
    /// When it has said something that is not heard yet: it is heard.
    Unheard,
    /// When it has been stopped, anywhere, and as much waits for it as may.
    Full,
    /// When it has been stopped, and all buffers wait for it.
    Exhausted,
}

const MOMENTS: [Moment; 5] = [
    Moment::Early,
    Moment::Talking,
    Moment::Unheard,
    Moment::Full,
    Moment::Exhausted,
];

impl Talker {
    /// Whether something has come that is not received yet.
    fn is_something_there(&mut self) -> bool {
        let way = self.link.way.as_mut();
        way.is_some_and(|way| matches!(way.reader.next(), Ok(Some(_))))
    }

    /// Brings about what a moment says, once the two talk.
    fn await_moment(&mut self, moment: Moment, child: &Child) {
        let began = Instant::now();
        let in_time = || assert!(began.elapsed() < PATIENCE, "{moment:?}: it does not come");
        match moment {
            Moment::Early | Moment::Talking => {}
            Moment::Unheard => {
                while !self.is_something_there() {
                    in_time();
                    std::thread::yield_now();
                }
            }
            Moment::Full | Moment::Exhausted => {
                kill_process(Pid::from_child(child), Signal::STOP).unwrap();
                while self.link.room() > 0 {
                    self.step(9);
                    in_time();
                }
                while moment == Moment::Exhausted && self.say(self.said) {
                    self.said += 1;
                }
            }
        }
    }
}

/// Kills the other process again and again, at moments drawn from before the two meet to long
/// after. Records of a session came in order and once, those put in before the end were heard, and
/// this end has all of its buffers.
fn survive(near: u16) {
    const KILLS: u64 = 100;
    let directory = tempfile::tempdir().unwrap();
    let mut survivor = Talker::new(open(directory.path(), near));
    let mut sessions = 0;
    for kill in 0..KILLS {
        let mut child = victim(directory.path(), 1 - near);
        let moment = MOMENTS[(kill % 5) as usize];
        let began = Instant::now();
        let until = survivor.heard_in_all + kill * 0x9e37 % 2003;
        let after = Duration::from_micros(kill * 0x9e37 % 30_000);
        loop {
            survivor.step(9);
            let is_over = match moment {
                Moment::Early => began.elapsed() > after,
                _ => survivor.heard_in_all > until,
            };
            if is_over {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{kill}: nothing comes");
        }
        survivor.await_moment(moment, &child);
        assert!(
            child.try_wait().unwrap().is_none(),
            "{kill}: it found something wrong and ended"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        let heard = survivor.heard_in_all;
        let began = Instant::now();
        // The child may have been killed between its hello and the first look.
        let mut quiet = 0;
        while quiet < 4 {
            survivor.step(9);
            quiet = if survivor.link.session() == 0 {
                quiet + 1
            } else {
                0
            };
            std::thread::sleep(Duration::from_millis(1));
            assert!(
                began.elapsed() < PATIENCE,
                "{kill}, {moment:?}: its death is not noticed"
            );
        }
        assert!(
            moment != Moment::Unheard || survivor.heard_in_all > heard,
            "{kill}: what it said before its end is not heard"
        );
        assert_eq!((survivor.pool.free(), survivor.link.waiting()), (BUFFERS, 0));
        sessions = sessions.max(survivor.link.sessions);
    }
    assert!(sessions >= KILLS * 4 / 5, "{sessions} sessions");
    assert_eq!(
        (
            survivor.link.counters().refused_packets,
            survivor.link.broken_sessions()
        ),
        (0, 0)
    );
    println!("{sessions} sessions, {} packets heard", survivor.heard_in_all);
}

#[test]
fn who_listens_survives_those_that_are_killed() {
    survive(0);
}

#[test]
fn who_connects_survives_those_that_are_killed() {
    survive(1);
}
