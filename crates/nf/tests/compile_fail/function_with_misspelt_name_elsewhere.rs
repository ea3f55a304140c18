//! Names outside of the contract's block that are not in the lists: in methods, in a function, and
//! handed on.

use nf::{Cx, Name, NetworkFunction, Packet, Verdict, network_function, reason};

#[derive(Default)]
struct Gate;

#[network_function]
impl NetworkFunction for Gate {
    const NAME: &'static str = "gate";
    const REASONS: &'static [&'static str] = &["closed"];
    const COUNTERS: &'static [&'static str] = &["opened"];

    fn process(&self, packet: &mut Packet, _flow: &mut (), cx: &mut Cx<Self>) -> Verdict {
        match check(packet) {
            Ok(()) => self.pass(packet, cx),
            Err(why) => cx.drop(why),
        }
    }
}

#[network_function]
impl Gate {
    fn pass(&self, packet: &Packet, cx: &mut Cx<Self>) -> Verdict {
        cx.count("opend");
        match packet.ttl() {
            0 => refuse(cx),
            _ => Verdict::Forward,
        }
    }
}

#[network_function]
fn refuse(cx: &mut Cx<Gate>) -> Verdict {
    cx.event("refused", format_args!(""));
    cx.drop("clsed")
}

fn check(packet: &Packet) -> Result<(), Name> {
    match packet.ttl() {
        1 => Err(reason!(Gate, "closd")),
        _ => Ok(()),
    }
}

fn main() {}
