//! Frames to a port that routes: those to its own station come in, those to others and to groups
//! do not, and a station that changes is followed.
//!
//! The test runs itself again under `unshare --net`, so all it makes is gone with it. It needs
//! root; without, it says so.

use flowkeep_adapters::buffers;
use flowkeep_adapters::open::{BoxPort, Ports};
use runtime::env::{Burst, Port};
use std::process::Command;
use std::time::{Duration, Instant};
use wire::{LinkType, Pool};

const INSIDE: &str = "FLOWKEEP_TEST_IN_NAMESPACE";
const PATIENCE: Duration = Duration::from_secs(60);

type Station = [u8; 6];
const OWN: Station = [2, 0, 0, 0, 0x77, 1];
const LATER: Station = [2, 0, 0, 0, 0x77, 2];
const UPPER: Station = [2, 0, 0, 0, 0x77, 3];
const VIRTUAL_ROUTER: Station = [0, 0, 0x5e, 0, 1, 7];
const ELSEWHERE: Station = [2, 0, 0, 0, 0x77, 9];
const ALL: Station = [0xff; 6];
const GROUP: Station = [1, 0, 0x5e, 1, 2, 3];

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().expect("ip");
    assert!(status.success(), "ip {words}");
}

#[test]
fn a_port_that_routes_takes_frames_to_its_own_station_only() {
    if std::env::var_os(INSIDE).is_some() {
        return frames();
    }
    let me = std::env::current_exe().expect("a test");
    let ran = Command::new("timeout")
        .args(["-k", "5", "900", "unshare", "--net"])
        .arg(me)
        .args([
            "--exact",
            "a_port_that_routes_takes_frames_to_its_own_station_only",
            "--nocapture",
        ])
        .env(INSIDE, "1")
        .output()
        .expect("`timeout` and `unshare`, which every Debian has");
    let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    if said.contains("Operation not permitted") {
        return println!("not run: needs root (unshare --net)");
    }
    assert!(ran.status.success(), "{said}");
}

/// A packet for another network in a frame to a station; its source port is its number.
fn packet(to: Station, number: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 7], to)
        .ipv4([10, 77, 0, 2], [198, 51, 100, 9], 64)
        .udp(number, 53)
        .write(&mut frame, &[0; 20])
        .expect("a vector takes all");
    frame
}

struct Cable {
    pool: Pool,
    near: BoxPort,
    far: BoxPort,
    _opener: Ports,
}

impl Cable {
    /// A port of this kind at one end of the cable, and another at the other end, which sends.
    fn with(scheme: &str, mode: &str) -> Cable {
        let mut opener = Ports::new();
        let near = format!("{scheme}:fk0{mode}");
        let mut near = opener.open(&near, &near).expect("a port");
        let far = "afpacket:fk1?take=everything";
        let mut far = opener.open(far, far).expect("a port");
        opener.complete().expect("all queues");
        opener.follow_addresses().expect("a thread");
        let frame_max = near.frame_max().max(far.frame_max());
        let mut pool = buffers::pool(4096, frame_max, 0).expect("memory");
        near.attach(&mut pool).expect("room");
        far.attach(&mut pool).expect("room");
        Cable {
            pool,
            near,
            far,
            _opener: opener,
        }
    }

    /// Which of these stations' packets the port takes. Each is sent once, and behind them one that
    /// the port takes by all means, to `marker`.
    fn taken(&mut self, stations: &[Station], marker: Station) -> Vec<usize> {
        let last = stations.len() as u16;
        let mut taken = Vec::new();
        let mut burst = Burst::new();
        for (number, to) in (0..).zip(stations.iter().chain([&marker])) {
            let mut buffer = self.pool.take().expect("a buffer");
            assert!(buffer.set_frame(&packet(*to, number), LinkType::Ethernet));
            burst.push(buffer);
        }
        self.far.transmit(0, &mut self.pool, &mut burst);
        let began = Instant::now();
        loop {
            self.near.receive(0, &mut self.pool, &mut burst);
            for got in burst.drain(..) {
                let port = got
                    .frame()
                    .get(34..36)
                    .map(|port| u16::from_be_bytes([port[0], port[1]]));
                self.pool.give(got);
                match port {
                    Some(port) if port == last => return taken,
                    Some(port) => taken.push(usize::from(port)),
                    None => {}
                }
            }
            if began.elapsed() > Duration::from_secs(5) {
                taken.push(usize::MAX);
                return taken;
            }
        }
    }
}

fn frames() {
    // The kernel says nothing of its own on the cable.
    for name in ["all", "default"] {
        let file = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        std::fs::write(file, "1").expect("root");
    }
    ip("link add fk0 type veth peer name fk1");
    ip("link set fk1 up");
    ip("link set fk0 address 02:00:00:00:77:01 up");
    ip("link add link fk0 name upper type macvlan mode private");
    ip("link set upper address 02:00:00:00:77:03 up");
    for (scheme, mode) in [("afpacket", ""), ("afxdp", ""), ("afxdp", "?mode=generic")] {
        let mut cable = Cable::with(scheme, mode);
        let stations = [OWN, ALL, GROUP, ELSEWHERE, UPPER, LATER, VIRTUAL_ROUTER];
        assert_eq!(cable.taken(&stations, OWN), [0, 4], "{scheme}{mode}");
        // A virtual router comes, and the interface's own station changes.
        ip("link add link fk0 name router type macvlan mode private");
        ip("link set router address 00:00:5e:00:01:07 up");
        ip("link set fk0 address 02:00:00:00:77:02");
        let began = Instant::now();
        loop {
            let taken = cable.taken(&stations, UPPER);
            if taken == [4, 5, 6] {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{scheme}{mode}: {taken:?}");
        }
        ip("link del router");
        ip("link set fk0 address 02:00:00:00:77:01");
    }
    let mut bridge = Cable::with("afpacket", "?take=everything");
    let stations = [OWN, ALL, GROUP, ELSEWHERE];
    assert_eq!(bridge.taken(&stations, OWN), [0, 1, 2, 3]);
}
