//! Names that are said outside of the contract's block, handed on, chosen, and said by a function
//! of any other.

use nf::{Cx, Event, Name, NetworkFunction, Packet, Verdict, counter, event, network_function, reason};

#[derive(Default)]
struct Gate;

#[network_function]
impl NetworkFunction for Gate {
    const NAME: &'static str = "gate";
    const REASONS: &'static [&'static str] = &[
        "closed",
        /// Its time to live
        /// is used up.
        "spent",
    ];
    const COUNTERS: &'static [&'static str] = &[
        /// Packets that passed.
        "opened",
        "other",
    ];
    const EVENTS: &'static [Event] = &[Event::named("refused")];

    fn process(&self, packet: &mut Packet, _flow: &mut (), cx: &mut Cx<Self>) -> Verdict {
        match check(packet) {
            Ok(()) => self.pass(cx),
            Err(why) => cx.drop(why),
        }
    }
}

#[network_function]
impl Gate {
    fn pass(&self, cx: &mut Cx<Self>) -> Verdict {
        cx.count("opened");
        cx.count(if cx.direction() == nf::Direction::Reply { "opened" } else { "other" });
        cx.count(counter!(Gate, "other"));
        refuse(cx)
    }
}

trait Refuse {
    fn again(cx: &mut Cx<Gate>) -> Verdict;
}

#[network_function]
impl Refuse for Gate {
    fn again(cx: &mut Cx<Gate>) -> Verdict {
        cx.drop("closed")
    }
}

#[network_function]
fn refuse(cx: &mut Cx<Gate>) -> Verdict {
    cx.event("refused", format_args!(""));
    cx.event(event!(Gate, "refused"), format_args!(""));
    Gate::again(cx)
}

fn check(packet: &Packet) -> Result<(), Name> {
    match packet.ttl() {
        1 => Err(reason!(Gate, "spent")),
        _ => Ok(()),
    }
}

/// Hands all on to another, in whose lists the names are.
struct Around<F>(F);

#[network_function]
impl<F: NetworkFunction> NetworkFunction for Around<F> {
    const NAME: &'static str = "around";
    const REASONS: &'static [&'static str] = F::REASONS;
    type Flow = F::Flow;
    type Group = F::Group;

    fn new(_: &std::sync::Arc<nf::NoConfig>, _: &nf::WorkerInfo) -> Result<Self, nf::ConfigError> {
        Err(nf::ConfigError::new("", "it is of no use alone", "wrap a function"))
    }

    async fn process(&self, packet: &mut Packet, flow: &mut F::Flow, cx: &mut Cx<Self>) -> Verdict {
        match packet.ttl() {
            0 => cx.drop("spent"),
            _ => self.0.process(packet, flow, cx.lend()).await,
        }
    }
}

fn main() {
    assert_eq!(Gate::COUNTERS, ["opened", "other"]);
    assert_eq!(Gate::COUNTERS_HELP, ["Packets that passed.", ""]);
    assert_eq!(Gate::REASONS, ["closed", "spent"]);
    assert_eq!(Gate::REASONS_HELP, ["", "Its time to live is used up."]);
    let _ = <Around<Gate> as NetworkFunction>::process;
}
