//! The flow monitor in a runtime, from capture to event log, against the independent flow tables of
//! nDPI and Arkime.

#[path = "../../functions/tests/flow_monitor/tables/arkime.rs"]
mod arkime;
#[path = "../../functions/tests/flow_monitor/manifest.rs"]
mod manifest;
#[path = "../../functions/tests/flow_monitor/tables/ndpi.rs"]
mod ndpi;
#[path = "../../functions/tests/flow_monitor/tables/records.rs"]
mod records;

use adapters::pcap::{InputSettings, PcapInput};
use functions::firewall::Firewall;
use functions::flow_monitor::{Config, FlowMonitor};
use runtime::chain::{ChainRule, Match, Plan};
use runtime::stage::{Configured, Factory};
use runtime::worker::{Runtime, Settings};
use std::path::{Path, PathBuf};
use wire::Pool;
use wire::memory::Region;

/// Where the shared captures are, or `None` (and a word about it) where they are not.
fn data() -> Option<PathBuf> {
    let root = std::env::var_os("FLOWKEEP_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    if root.join("flow").is_dir() {
        Some(root)
    } else {
        println!("not run: needs the shared captures (FLOWKEEP_DATA)");
        None
    }
}

/// The event log of a run over a capture, behind these functions.
fn run(capture: &Path, before: Vec<(&str, Box<dyn Factory>)>) -> String {
    let monitor = Configured::<FlowMonitor>::new("flow_monitor", Config::default());
    let (mut functions, mut factories): (Vec<String>, Vec<Box<dyn Factory>>) = before
        .into_iter()
        .map(|(name, factory)| (name.to_string(), factory))
        .unzip();
    functions.push("flow_monitor".to_string());
    factories.push(Box::new(monitor));
    let rule = ChainRule {
        name: "watched".to_string(),
        matching: Match::default(),
        functions,
        replication: None,
    };
    let plan = Plan::new(vec![rule], factories).expect("a plan");
    let port = PcapInput::open(capture, InputSettings::default(), Default::default()).expect("a capture");
    let (buffers, frame_max) = (128, 65_535);
    let region = Region::heap(Pool::region_length(buffers, frame_max));
    let settings = Settings {
        // So small that the end of the run has to wait for its reader.
        events_max: 1 << 14,
        ..Settings::alone(4096)
    };
    let pool = Pool::new(region, buffers, frame_max, 0);
    let Ok(mut runtime) = Runtime::new(settings, plan, vec![port], pool, Region::heap) else {
        panic!("the settings are the defaults");
    };
    let mut lines = String::new();
    while !runtime.finished() {
        runtime.step(0);
    }
    while !runtime.finish(64) {
        runtime.take_events(&mut lines);
    }
    runtime.take_events(&mut lines);
    lines
}

/// The records of a run over a capture, each of which makes sense by itself.
fn recorded(capture: &Path) -> Vec<records::Record> {
    let found = records::read(&run(capture, Vec::new()));
    for record in &found {
        assert!(record.start <= record.end, "{record:?}");
        assert!(
            (0..2).all(|side| record.ip_bytes[side] <= record.bytes[side]),
            "{record:?}"
        );
        assert!(
            record.history.len() <= 20 && !record.state.is_empty(),
            "{record:?}"
        );
        assert_eq!(record.icmp_errors, 0, "a packet of its own here: {record:?}");
    }
    found
}

fn files(folder: PathBuf, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("part of the data");
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect()
}

#[test]
fn records_equal_ndpis_flows() {
    let Some(data) = data() else { return };
    let folder = data.join("flow/ndpi");
    let expected = files(folder.join("expected"), "tsv");
    assert_eq!(
        expected.len(),
        manifest::count(&data, "flow/ndpi/expected", "tsv")
    );
    for expected in expected {
        let name = expected
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&expected).expect("readable");
        let differences = ndpi::compare(&recorded(&folder.join("pcap").join(&name)), &text);
        assert!(differences.is_empty(), "{name}: {differences:#?}");
    }
}

#[test]
fn records_equal_arkimes_sessions() {
    let Some(data) = data() else { return };
    let expected = files(data.join("flow/arkime"), "test");
    assert_eq!(expected.len(), manifest::count(&data, "flow/arkime", "test"));
    for expected in expected {
        let name = expected
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&expected).expect("readable");
        let verdict = arkime::judge(&name, recorded(&expected.with_extension("pcap")), &text);
        assert!(verdict.is_ok(), "{name}: {verdict:?}");
    }
    println!("{} of them are excepted", arkime::EXCEPT.len());
}

/// A capture of IP packets, with the seconds of each.
fn written(name: &str, packets: &[(u32, Vec<u8>)]) -> PathBuf {
    let header: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101];
    let mut file: Vec<u8> = header.into_iter().flat_map(u32::to_le_bytes).collect();
    for (time, packet) in packets {
        let length = packet.len() as u32;
        file.extend([*time, 0, length, length].into_iter().flat_map(u32::to_le_bytes));
        file.extend(packet);
    }
    let name = format!("{name}-{}.pcap", std::process::id());
    let capture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&capture, file).expect("a folder of the build's");
    capture
}

/// The firewall lets names be asked for, and nothing else; an error comes about a packet that it
/// dropped.
#[test]
fn a_flow_that_the_firewall_drops_has_no_record() {
    let (client, server, router) = ([10, 0, 0, 1], [192, 0, 2, 1], [198, 51, 100, 1]);
    let datagram = |ports: (u16, u16)| {
        let mut packet = Vec::new();
        etherparse::PacketBuilder::ipv4(client, server, 64)
            .udp(ports.0, ports.1)
            .write(&mut packet, b"hello")
            .expect("a vector grows");
        packet
    };
    let (allowed, dropped) = (datagram((1000, 53)), datagram((1001, 22)));
    let mut error = Vec::new();
    etherparse::PacketBuilder::ipv4(router, client, 64)
        .icmpv4_raw(3, 1, [0; 4])
        .write(&mut error, &dropped)
        .expect("a vector grows");
    let packets = [(1, allowed), (2, dropped.clone()), (3, dropped), (4, error)];
    let capture = written("dropped", &packets);
    let rules = serde_json::json!({
        "rules": [{ "name": "names", "destination_ports": [53], "action": "allow" }]
    });
    let firewall = serde_json::from_value(rules).expect("settings of a firewall");
    let firewall = Configured::<Firewall>::new("firewall", firewall);
    let lines = run(&capture, vec![("firewall", Box::new(firewall))]);
    std::fs::remove_file(&capture).expect("just written");
    let found = records::read(&lines);
    let packets: Vec<_> = found.iter().map(|record| record.packets).collect();
    assert_eq!(packets, [[1, 0]], "{lines}");
}

/// A capture whose records are out of order, by decades.
#[test]
fn records_have_the_packets_own_times() {
    let times: [u32; 4] = [1_600_000_000, 5, 1_700_000_000, 1_500_000_000];
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64)
        .udp(1000, 53)
        .write(&mut frame, b"hello")
        .expect("a vector grows");
    let packets = times.map(|time| (time, frame.clone()));
    let capture = written("out-of-order", &packets);
    let found = recorded(&capture);
    std::fs::remove_file(&capture).expect("just written");
    let [record] = &found[..] else {
        panic!("one flow: {found:?}")
    };
    assert_eq!((record.start, record.end), (5.0, 1_700_000_000.0));
}
