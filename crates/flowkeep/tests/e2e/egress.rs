//! The port by which packets leave: a port of their side before a port whose side is told by
//! addresses, one with an output before one without, whatever their order in the configuration.

use crate::cluster::{Shape, finish, start};
use adapters::memory::MemoryEnd;
use adapters::open::Ports;
use wire::LinkType;

fn udp(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut frame = Vec::new();
    let packet = etherparse::PacketBuilder::ipv4(from, to, 64).udp(1000, 53);
    packet.write(&mut frame, b"hello").expect("a vector grows");
    frame
}

const HOST: [u8; 4] = [10, 0, 0, 1];
const OTHER: [u8; 4] = [10, 0, 0, 2];
const REMOTE: [u8; 4] = [198, 51, 100, 7];

/// A port of the configuration: its name, side, and whether it has an output.
type Port = (&'static str, &'static str, bool);

/// The ports by which three packets leave: one to outside, one to inside, one between inside hosts.
#[track_caller]
fn leaves_by(shape: Shape, ports: &[Port]) -> [Option<&'static str>; 3] {
    [(HOST, REMOTE), (REMOTE, HOST), (HOST, OTHER)].map(|(from, to)| {
        let mut opened = Ports::new();
        let mut ends: Vec<(&'static str, MemoryEnd)> = Vec::new();
        let mut toml = shape.toml(64);
        for (name, side, output) in ports {
            ends.push((name, opened.memory(name)));
            toml += &format!("[[port]]\nname = \"{name}\"\nside = \"{side}\"\ninput = \"memory:{name}\"\n");
            if *output {
                toml += &format!("output = \"memory:{name}\"\n");
            }
        }
        toml += "[[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n";
        let (running, lines) = start(&toml, opened);
        // All comes in where the side is told by addresses.
        let (_, both) = ends.iter().find(|(name, _)| *name == "both").expect("one is");
        both.push(&udp(from, to), LinkType::Raw);
        ends.iter().for_each(|(_, end)| end.close());
        let ran = finish(running.wait(|_| {}), &lines, &toml);
        let by: Vec<_> = ends.iter().filter(|(_, end)| end.take().is_some()).collect();
        assert_eq!(by.len() as u64, ran.packets.sent, "{toml}");
        if by.is_empty() {
            assert_eq!(ran.dropped(), [(("", "no_egress"), 1)].into(), "{toml}");
        }
        by.first().map(|(name, _)| *name)
    })
}

#[test]
fn a_port_of_the_side_goes_before_one_of_both_wherever_it_stands() {
    for shape in [Shape::of(1), Shape::of(2).with_switches(2)] {
        let both = ("both", "by-address", true);
        let (lan, world) = (("lan", "inside", true), ("world", "outside", true));
        for ports in [[both, lan, world], [lan, both, world], [world, lan, both]] {
            let by = [Some("world"), Some("lan"), Some("lan")];
            assert_eq!(leaves_by(shape, &ports), by, "{shape:?} {ports:?}");
        }
        let by = [Some("world"), Some("both"), Some("both")];
        assert_eq!(leaves_by(shape, &[both, world]), by, "{shape:?}");
        let by = [Some("both"), Some("lan"), Some("lan")];
        assert_eq!(leaves_by(shape, &[both, lan]), by, "{shape:?}");
        assert_eq!(leaves_by(shape, &[both]), [Some("both"); 3], "{shape:?}");
        // A port that only brings packets takes none, where another does.
        let silent = ("world", "outside", false);
        assert_eq!(leaves_by(shape, &[silent, both]), [Some("both"); 3], "{shape:?}");
    }
}
