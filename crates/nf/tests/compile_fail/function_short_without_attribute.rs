//! The short form, without the attribute that fills it in.

use nf::{Cx, NetworkFunction, Packet, Verdict};

#[derive(Default)]
struct Gate;

impl NetworkFunction for Gate {
    const NAME: &'static str = "gate";

    fn process(&self, packet: &mut Packet, _: &mut (), cx: &mut Cx<Self>) -> Verdict {
        match packet.ttl() {
            0 => cx.drop("spent"),
            _ => Verdict::Forward,
        }
    }
}

fn main() {}
