//! Which way a packet would take: asks runtimes for its flow, and switches for its route.

use super::Shared;
use crate::cluster::Cluster;
use crate::control::Key;
use crate::explain::{Explain, Explanation, From, Moved, Passed, Route, SideBy, rule_text};
use crate::report::{Ends, Flow};
use protocols::ownership::Epoch;
use runtime::stats::DropReason;
use runtime::switch::explaining::{self, Whither};
use runtime::worker::FlowView;
use std::net::{IpAddr, SocketAddr};
use wire::{Endpoint, FlowKey, LinkType, Pool, protocol};

/// Bytes of a frame, and of a buffer around it.
const ROOM: usize = 2048;

/// A chain, as a switch's plan has it.
struct Chosen {
    name: String,
    rule: String,
    functions: Vec<Passed>,
}

/// The answer of one switch.
type Said = (Result<Whither, DropReason>, Vec<Chosen>);

pub(super) fn explain(shared: &Shared, ask: &Explain) -> Option<Explanation> {
    let frame = frame_of(ask)?;
    // As a worker reads it: an identifier of ICMP is of both ends, and some protocols have no
    // ports.
    let key = key_of(&frame).unwrap_or(ask.key);
    let flow = shared.flow(&key.into());
    let asked_side = ask.side.or_else(|| flow.as_ref().map(|flow| side_of(flow, &key)));
    let side = asked_side.map(|side| match side {
        From::Inside => nf::Side::Inside,
        From::Outside => nf::Side::Outside,
    });
    let mut best: Option<(u16, Said)> = None;
    for (number, switch) in &shared.switches {
        let frame = frame.clone();
        let said = switch.switch(move |switch| {
            let plan = switch.plan();
            let is_only = plan.chains().len() == 1;
            let translates = |name: &str| {
                let mut factories = plan.factories().iter();
                factories.any(|factory| factory.name() == name && factory.translates())
            };
            let chain = |chain: &runtime::chain::ChainRule| Chosen {
                name: chain.name.clone(),
                rule: rule_text(&chain.matching, is_only),
                functions: (chain.functions.iter())
                    .map(|name| Passed {
                        function: name.clone(),
                        translates: translates(name),
                    })
                    .collect(),
            };
            let chains = plan.chains().iter().map(chain).collect();
            (switch.explain(&frame, side), chains)
        });
        let Ok(said) = said else {
            continue;
        };
        let knows = !matches!(
            said.0,
            Ok(Whither {
                route: explaining::Route::AtHome,
                ..
            })
        );
        if knows || best.is_none() {
            best = Some((*number, said));
        }
        if knows {
            break;
        }
    }
    if best.is_none() && flow.is_none() {
        return None;
    }
    let has_switch = best.is_some();
    let (number, (found, mut chains)) = match best {
        Some((number, said)) => (Some(number), said),
        // Only runtimes are here, one of which has the flow.
        None => (None, (Err(DropReason::NoChain), Vec::new())),
    };
    let mut said = Explanation {
        protocol: wire::key::protocol_name(key.protocol).to_string(),
        vlan: key.vlan,
        source: key.source.to_string(),
        destination: key.destination.to_string(),
        side: asked_side.unwrap_or(From::Inside),
        side_by: match (ask.side, &flow) {
            (Some(_), _) => SideBy::Asked,
            (None, Some(_)) => SideBy::Flow,
            (None, None) => SideBy::Assumed,
        },
        inside_to_inside: false,
        switch: number,
        is_flow_known: true,
        runtime: None,
        by: Route::Policy,
        moved: None,
        chain: None,
        rule: None,
        functions: Vec::new(),
        translated: flow.as_ref().and_then(|flow| flow.translated).map(Ends::from),
        dropped: None,
        flow: flow.as_ref().map(Flow::from),
    };
    let mut chosen = None;
    match found {
        Err(_) if !has_switch => {}
        Err(reason) => (said.dropped, said.switch) = (Some(reason.name().to_owned()), None),
        Ok(found) => {
            said.moved = found
                .moved
                .map(|(from, Epoch { view, count })| Moved { from, view, count });
            said.side = match found.side {
                nf::Side::Inside => From::Inside,
                nf::Side::Outside => From::Outside,
            };
            if said.side_by == SideBy::Assumed && !found.is_side_assumed {
                said.side_by = SideBy::Address;
            }
            (said.inside_to_inside, said.switch) = (found.is_inside_to_inside, Some(found.home.into()));
            (said.runtime, said.by) = match found.route {
                explaining::Route::ReplyKey(runtime) => (Some(runtime), Route::ReplyKey),
                explaining::Route::Group(runtime) => (Some(runtime), Route::Group),
                explaining::Route::Policy(runtime) => (Some(runtime), Route::Policy),
                explaining::Route::None => (None, Route::Policy),
                explaining::Route::AtHome => (None, Route::Elsewhere),
            };
            if said.runtime.is_none() && said.by == Route::Policy && flow.is_none() {
                said.dropped = Some(DropReason::NoRuntime.name().to_owned());
            }
            chosen = found.chain.map(usize::from);
            if chosen.is_none() && flow.is_none() {
                said.dropped = Some(DropReason::NoChain.name().to_owned());
            }
        }
    }
    let runtimes = shared.runtimes();
    said.is_flow_known = said.runtime.is_none_or(|runtime| runtimes.contains_key(&runtime));
    if let Some(flow) = &flow {
        said.is_flow_known = true;
        said.chain = Some(flow.chain.clone());
        (said.runtime, said.by) = (Some(flow.runtime), Route::Flow);
        chosen = chains
            .iter()
            .position(|chain| chain.name == flow.chain)
            .or(chosen);
    }
    if let Some(index) = chosen.filter(|index| *index < chains.len()) {
        let chain = chains.swap_remove(index);
        (said.chain, said.rule, said.functions) = (Some(chain.name), Some(chain.rule), chain.functions);
    }
    Some(said)
}

/// The key of a frame, as a worker reads it.
fn key_of(frame: &[u8]) -> Option<Key> {
    let region = wire::memory::Region::heap(Pool::region_length(1, ROOM));
    let mut packet = Pool::new(region, 1, ROOM, 0).take()?;
    if !packet.set_frame(frame, LinkType::Ethernet) || wire::parse(&mut packet).is_err() {
        return None;
    }
    let (key, way) = FlowKey::of(&packet)?;
    let (source, destination) = key.ends(way);
    Some(Key {
        protocol: packet.protocol(),
        source: socket(source),
        destination: socket(destination),
        vlan: packet.vlan(),
    })
}

fn socket(end: Endpoint) -> SocketAddr {
    SocketAddr::new(end.addr.to_ip(), end.port)
}

/// From which side a packet of a flow comes, by its sender.
fn side_of(flow: &FlowView, key: &Key) -> From {
    let opens = key.source == socket(flow.source) && key.destination == socket(flow.destination);
    match flow.is_from_outside == opens {
        true => From::Outside,
        false => From::Inside,
    }
}

/// A frame of such a packet: a SYN, an echo request, or ports and nothing. `None` if its ends are
/// of two families.
fn frame_of(ask: &Explain) -> Option<Vec<u8>> {
    let key = ask.key;
    let (from, to) = (
        key.source.port().to_be_bytes(),
        key.destination.port().to_be_bytes(),
    );
    let mut transport = match key.protocol {
        protocol::TCP => [&from[..], &to, &[0; 8], &[5 << 4, 2, 4, 0, 0, 0, 0, 0]].concat(),
        protocol::UDP => [&from[..], &to, &[0, 8, 0, 0]].concat(),
        protocol::ICMP => [&[8, 0, 0, 0][..], &from, &[0; 2]].concat(),
        protocol::ICMPV6 => [&[128, 0, 0, 0][..], &from, &[0; 2]].concat(),
        // SCTP's and DCCP's ports are where UDP's are.
        _ => [&from[..], &to, &[0; 28]].concat(),
    };
    let length = u16::try_from(transport.len()).ok()?;
    let (ethertype, mut ip) = match (key.source.ip(), key.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let [high, low] = (20 + length).to_be_bytes();
            let head = [0x45, 0, high, low, 0, 0, 0, 0, 64, key.protocol, 0, 0];
            let mut ip = [&head[..], &source.octets(), &destination.octets()].concat();
            let words = ip
                .chunks_exact(2)
                .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
            let sum: u32 = words.sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
            ([8, 0], ip)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let [high, low] = length.to_be_bytes();
            let head = [0x60, 0, 0, 0, high, low, key.protocol, 64];
            (
                [0x86, 0xdd],
                [&head[..], &source.octets(), &destination.octets()].concat(),
            )
        }
        _ => return None,
    };
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if key.vlan != 0 {
        frame.extend([0x81, 0]);
        frame.extend(key.vlan.to_be_bytes());
    }
    frame.extend(ethertype);
    frame.append(&mut ip);
    frame.append(&mut transport);
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_key_that_is_asked_about() {
        let region = wire::memory::Region::heap(Pool::region_length(1, 2048));
        let mut packet = Pool::new(region, 1, 2048, 0).take().unwrap();
        for protocol in [1, 6, 17, 47, 58, 132] {
            for (source, destination) in [
                ("10.0.0.1:77", "192.0.2.1:77"),
                ("[2001:db8::1]:77", "[2001:db8::2]:77"),
            ] {
                for vlan in [0, 7] {
                    let key = Key {
                        protocol,
                        source: source.parse().unwrap(),
                        destination: destination.parse().unwrap(),
                        vlan,
                    };
                    if protocol == if key.source.is_ipv4() { 58 } else { 1 } {
                        continue;
                    }
                    let frame = frame_of(&Explain { key, side: None }).unwrap();
                    assert!(packet.set_frame(&frame, LinkType::Ethernet));
                    wire::parse(&mut packet).unwrap();
                    let (of, _) = FlowKey::of(&packet).unwrap();
                    // A protocol without ports has none in its key.
                    if protocol != 47 {
                        assert_eq!(of, FlowKey::from(key), "{protocol} {source} {vlan}");
                    }
                }
            }
        }
    }
}
