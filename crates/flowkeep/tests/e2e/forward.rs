//! The tool with a chain that forwards, by the tables of a real kernel: in a network namespace of
//! its own, with `ip` for the kernel's tables and captures for the packets in and out.
//!
//! The test runs itself again under `unshare --net`. It needs root; without, it says so.

use crate::cluster::{Shape, run_to_end};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const INSIDE: &str = "FLOWKEEP_TEST_IN_NAMESPACE";

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().expect("ip");
    assert!(status.success(), "ip {words}");
}

/// Waits until the kernel has seen that the interfaces have a carrier, which it does behind `ip`:
/// until then their routes lead nowhere.
fn wait_for_carriers() {
    let said = |words: &str| {
        let said = Command::new("ip").args(words.split(' ')).output().expect("ip");
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let has_carrier = |name: &str| said(&format!("link show {name}")).contains("state UP");
    let is_told = || !said("route show").contains("linkdown");
    let began = Instant::now();
    while !(is_told() && has_carrier("fk0") && has_carrier("fk2")) {
        assert!(began.elapsed() < Duration::from_secs(30), "no carrier");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn udp(to: [u8; 4], hops: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 9, 9], [2, 0, 0, 0, 0, 1])
        .ipv4([10, 77, 0, 5], to, hops)
        .udp(4000, 53)
        .write(&mut frame, b"hello")
        .unwrap();
    frame
}

fn write(path: &Path, frames: &[Vec<u8>]) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for (n, frame) in frames.iter().enumerate() {
        for word in [1_600_000_000, n as u32, frame.len() as u32, frame.len() as u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(frame);
    }
    std::fs::write(path, bytes).expect("a folder of our own");
}

fn read(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).expect("just written");
    let mut frames = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        frames.push(bytes[at + 16..at + 16 + length].to_vec());
        at += 16 + length;
    }
    frames
}

#[test]
fn packets_leave_as_the_kernels_tables_say() {
    if std::env::var_os(INSIDE).is_some() {
        return forward();
    }
    let me = std::env::current_exe().expect("a test");
    let ran = Command::new("timeout")
        .args(["-k", "5", "900", "unshare", "--net"])
        .arg(me)
        .args([
            "--exact",
            "forward::packets_leave_as_the_kernels_tables_say",
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

fn forward() {
    ip("link add fk0 type veth peer name fk1");
    ip("link add fk2 type veth peer name fk3");
    ip("link set fk1 up");
    ip("link set fk3 up");
    ip("link set fk0 address 02:00:00:00:00:01 up");
    ip("link set fk2 address 02:00:00:00:00:02 up");
    ip("addr add 10.77.0.1/24 dev fk0");
    ip("addr add 203.0.113.1/24 dev fk2");
    ip("route add default via 203.0.113.254");
    ip("route add unreachable 198.18.0.0/15");
    ip("neigh add 203.0.113.254 lladdr 02:00:00:00:fe:fe dev fk2 nud permanent");
    ip("neigh add 10.77.0.5 lladdr 02:00:00:00:00:55 dev fk0 nud permanent");
    wait_for_carriers();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = |name: &str| folder.join(format!("forward-{name}-{}.pcap", std::process::id()));
    let (input, lan, wan) = (file("in"), file("lan"), file("wan"));
    let through = [
        udp([192, 0, 2, 9], 64),
        udp([192, 0, 2, 9], 1),
        udp([198, 18, 0, 1], 64),
    ];
    write(&input, &through);
    for shape in [Shape::of(1).on_one_thread(), Shape::of(2).with_switches(2)] {
        let toml = format!(
            "{}[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"pcap:{}\"\noutput = \"pcap:{}\"\n\
             [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:{}\"\n\
             [[chain]]\nname = \"c\"\nfunctions = [\"firewall\", \"forward\"]\n\
             [[function.firewall.rules]]\nname = \"all\"\naction = \"allow\"\n\
             [function.forward]\ninterfaces = {{ lan = \"fk0\", wan = \"fk2\" }}\n",
            shape.toml(1024),
            input.display(),
            lan.display(),
            wan.display()
        );
        let ran = run_to_end(&toml, &format!("forward {shape:?}"));
        let (told, sent) = (read(&lan), read(&wan));
        assert_eq!((told.len(), sent.len()), (2, 1), "{:?}", ran.dropped());
        assert_eq!(sent[0][..12], [2, 0, 0, 0, 0xfe, 0xfe, 2, 0, 0, 0, 0, 2]);
        let Some(NetSlice::Ipv4(out)) = SlicedPacket::from_ethernet(&sent[0]).unwrap().net else {
            panic!("IPv4")
        };
        assert_eq!(out.header().ttl(), 63);
        let mut kinds = Vec::new();
        for frame in &told {
            assert_eq!(frame[..12], [2, 0, 0, 0, 0, 0x55, 2, 0, 0, 0, 0, 1]);
            let packet = SlicedPacket::from_ethernet(frame).unwrap();
            let (Some(NetSlice::Ipv4(v4)), Some(TransportSlice::Icmpv4(icmp))) =
                (packet.net, packet.transport)
            else {
                panic!("ICMP")
            };
            assert_eq!(v4.header().source(), [10, 77, 0, 1]);
            kinds.push((icmp.type_u8(), icmp.code_u8()));
        }
        kinds.sort();
        assert_eq!(kinds, [(3, 0), (11, 0)]);
    }
    for path in [input, lan, wan] {
        let _ = std::fs::remove_file(path);
    }
}
