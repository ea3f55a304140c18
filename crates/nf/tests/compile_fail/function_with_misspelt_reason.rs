//! A reason that is not in the list, and settings that nothing takes.

use nf::{Cx, NetworkFunction, Packet, Verdict, network_function};

struct Limiter;

#[derive(serde::Deserialize)]
struct Settings {}

#[network_function]
impl NetworkFunction for Limiter {
    const NAME: &'static str = "limiter";
    const REASONS: &'static [&'static str] = &["too_many"];
    type Config = Settings;

    fn process(&self, _packet: &mut Packet, _flow: &mut (), cx: &mut Cx<Self>) -> Verdict {
        cx.drop("to_many")
    }
}

fn main() {}
