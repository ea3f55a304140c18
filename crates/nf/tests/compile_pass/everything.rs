//! All that the macros take, in a crate that forbids unsafe code of its own.

#![forbid(unsafe_code)]

use nf::{
    Addr, ConfigError, Cx, Endpoint, FlowState, NetworkFunction, NoConfig, Packet, Plain, Verdict, WorkerInfo,
    network_function,
};
use std::sync::Arc;

#[derive(Plain, Default, Clone, Copy, Debug)]
#[repr(u8)]
enum Phase {
    #[default]
    Opening,
    Established = 7,
}

#[derive(Plain, Default, Clone, Copy, Debug)]
#[repr(transparent)]
struct Port(u16);

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[flow_state(version = 3)]
#[repr(C)]
struct Connection {
    server: Endpoint,
    ports: [Port; 2],
    seen_reply: bool,
    phase: Phase,
    client: Addr,
    #[flow_state(lazy)]
    packets: u64,
}

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C)]
struct Pair(u32, #[flow_state(lazy)] u32);

#[derive(FlowState, Default, Clone, Copy, Debug)]
#[repr(C, align(16))]
struct Nothing {}

struct Direct;

#[network_function]
impl NetworkFunction for Direct {
    const NAME: &'static str = "direct";
    const REASONS: &'static [&'static str] = &["spent"];
    type Config = NoConfig;
    type Flow = Connection;
    type Group = Pair;

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Direct)
    }

    fn process(&self, packet: &mut Packet, flow: &mut Connection, cx: &mut Cx<Self>) -> Verdict {
        if packet.ttl() <= 1 {
            return cx.drop("spent");
        }
        flow.packets += 1;
        cx.group().0 += 1;
        Verdict::Forward
    }
}

struct Waiting;

#[network_function]
impl NetworkFunction for Waiting {
    const NAME: &'static str = "waiting";
    type Config = NoConfig;
    type Flow = Nothing;
    type Group = ();

    fn new(_: &Arc<NoConfig>, _: &WorkerInfo) -> Result<Self, ConfigError> {
        Ok(Waiting)
    }

    async fn process(&self, _packet: &mut Packet, _flow: &mut Nothing, cx: &mut Cx<Self>) -> Verdict {
        cx.sleep(std::time::Duration::from_millis(1)).await;
        Verdict::Forward
    }
}

fn main() {
    assert_eq!(<Connection as FlowState>::VERSION, 3);
    assert_eq!(<Connection as FlowState>::COMMITTED, 18 + 4 + 2 + 16);
    assert_eq!(<Pair as FlowState>::COMMITTED, 4);
}
