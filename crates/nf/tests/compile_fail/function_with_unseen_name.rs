//! Names in a block and in a function without the attribute: nothing holds them against the lists.

use nf::{Cx, NetworkFunction, Packet, Verdict, network_function};

#[derive(Default)]
struct Gate;

#[network_function]
impl NetworkFunction for Gate {
    const NAME: &'static str = "gate";
    const REASONS: &'static [&'static str] = &["closed"];

    fn process(&self, _packet: &mut Packet, _flow: &mut (), cx: &mut Cx<Self>) -> Verdict {
        self.refuse(cx)
    }
}

impl Gate {
    fn refuse(&self, cx: &mut Cx<Self>) -> Verdict {
        cx.drop("closed")
    }
}

fn main() {}
