//! Flow tables of the shared captures, read by the flow monitor while all flows move at every k-th
//! packet, or while runtimes are killed there, against nDPI's, Arkime's and Zeek's.
//!
//! A runtime is killed in each of the ways that the kit has, in turn over the values of k; the
//! monitor's state is copied as committed fields are, as `commit_lazy` has it.

use crate::captures::{Script, data, every_capture, files, script};
use crate::planted_bugs::{Bug, Forgetful, ForgetfulConfig};
use crate::tables::{arkime, ndpi, records, zeek};
use flowkeep_functions::flow_monitor::{Config, Flow, FlowMonitor, Timeout};
use std::path::Path;
use testkit::{Migration, Survived, Way, migration};

/// At every so many packets.
const EVERY: [usize; 5] = [1, 2, 3, 7, 50];
/// A runtime is made for each kill. Buffers that others have of one that is killed are lost, and
/// the memory of their pool with them: with ten times as many, all captures took more than 24 GB.
const KILLS: usize = 300;
/// Moving all flows of a capture at each packet takes packets times flows: longer captures are for
/// larger k.
const FRAMES: usize = 60_000;

fn monitor(config: Config) -> Migration {
    migration().function::<FlowMonitor>(config).flows_max(4096)
}

/// That a table would be another one: nDPI's of a capture, if records ended with the move, or
/// forgot what was before it.
#[test]
fn records_that_do_not_come_through_are_noticed() {
    let Some(folder) = data("flow/ndpi") else { return };
    let name = "http_auth.pcap";
    let text = std::fs::read_to_string(folder.join(format!("expected/{name}.tsv"))).expect("readable");
    let script = script(&folder.join("pcap").join(name));
    let differs = |bug: Bug| {
        let survived = migration()
            .function::<Forgetful<FlowMonitor>>(ForgetfulConfig::new(Config::default(), bug))
            .begins_at(script.begins_at)
            .ways([Way::Over])
            .every(7)
            .replay(script.steps.clone());
        !ndpi::compare(&records::read(survived.events()), &text).is_empty()
    };
    assert!(!differs(Bug::None));
    assert!(differs(Bug::EndsWithTheMove));
    // Packets of the opening direction.
    assert!(
        (0..size_of::<Flow>())
            .step_by(8)
            .any(|at| differs(Bug::Flow(at..at + 8)))
    );
}

/// Replays a capture while flows move: before the packet or with it, through one switch or two, in
/// turn over the values of k.
fn replay_moving(script: &Script, config: Config, every: usize) -> Survived {
    let way = Way::MOVES[every % 3];
    monitor(config)
        .begins_at(script.begins_at)
        .ways([way])
        .switches(1 + (every % 2) as u8)
        .every(every)
        .replay(script.steps.clone())
}

/// Replays a capture while runtimes are killed.
fn replay_killing(script: &Script, config: Config, every: usize) -> Survived {
    let kills = script.steps.len() / every;
    migration()
        .function::<FlowMonitor>(config)
        .committing_lazy()
        .flows_max(script.steps.len().clamp(64, 4096) as u32)
        .begins_at(script.begins_at)
        .ways([Way::FAILURES[(every + kills) % 4]])
        .switches(1 + (every % 2) as u8)
        .every(every)
        .replay(script.steps.clone())
}

/// Of the files of a folder some, or all.
fn some(folder: &Path, extension: &str, first: usize, of: usize) -> Vec<std::path::PathBuf> {
    let of = if every_capture() { 1 } else { of };
    files(folder, extension)
        .into_iter()
        .skip(first % of)
        .step_by(of)
        .collect()
}

fn name(path: &Path) -> String {
    path.file_stem().expect("a name").to_string_lossy().into_owned()
}

struct Sum {
    kills: bool,
    captures: usize,
    replays: usize,
    packets: usize,
    moved: u64,
}

impl Sum {
    fn new(kills: bool) -> Self {
        Sum {
            kills,
            captures: 0,
            replays: 0,
            packets: 0,
            moved: 0,
        }
    }

    /// For each k, a capture's records while flows move at every k-th packet.
    fn replay(&mut self, path: &Path, config: Config, mut judge: impl FnMut(usize, &Survived)) {
        let script = script(path);
        self.captures += 1;
        for every in EVERY {
            if script.steps.len() * 10 / every > FRAMES && !every_capture() {
                continue;
            }
            if self.kills && (script.steps.len() / every > KILLS || every > script.steps.len()) {
                continue;
            }
            let survived = match self.kills {
                false => replay_moving(&script, config, every),
                true => replay_killing(&script, config, every),
            };
            self.replays += 1;
            self.packets += survived.left();
            self.moved += survived.moved();
            judge(every, &survived);
        }
    }

    fn tell(&self, whose: &str) {
        println!(
            "{whose}: {} captures, {} replays of {} packets with k of {EVERY:?}: equal; flows {} {} times",
            self.captures,
            self.replays,
            self.packets,
            if self.kills { "were recovered" } else { "moved" },
            self.moved
        );
        assert!(self.replays > 0 && self.moved > 0);
    }
}

#[test]
fn tables_equal_ndpis_while_flows_move_at_every_kth_packet() {
    ndpis(Sum::new(false));
}

#[test]
fn tables_equal_ndpis_while_a_runtime_is_killed_at_every_kth_packet() {
    ndpis(Sum::new(true));
}

fn ndpis(mut sum: Sum) {
    let Some(folder) = data("flow/ndpi") else { return };
    for expected in some(&folder.join("expected"), "tsv", 4, 9) {
        let text = std::fs::read_to_string(&expected).expect("readable");
        let path = folder.join("pcap").join(name(&expected));
        sum.replay(&path, Config::default(), |every, survived| {
            let found = records::read(survived.events());
            let differences = ndpi::compare(&found, &text);
            assert!(differences.is_empty(), "{path:?}, k = {every}: {differences:#?}");
            let counted: u64 = found.iter().map(|r| r.packets[0] + r.packets[1]).sum();
            assert_eq!(counted as usize, survived.left(), "{path:?}, k = {every}");
        });
    }
    sum.tell("nDPI");
}

#[test]
fn tables_equal_arkimes_while_flows_move_at_every_kth_packet() {
    arkimes(Sum::new(false));
}

#[test]
fn tables_equal_arkimes_while_a_runtime_is_killed_at_every_kth_packet() {
    arkimes(Sum::new(true));
}

fn arkimes(mut sum: Sum) {
    let Some(folder) = data("flow/arkime") else { return };
    for expected in some(&folder, "test", 2, 6) {
        let text = std::fs::read_to_string(&expected).expect("readable");
        let name = name(&expected);
        sum.replay(
            &expected.with_extension("pcap"),
            Config::default(),
            |every, survived| {
                let verdict = arkime::judge(&name, records::read(survived.events()), &text);
                assert!(verdict.is_ok(), "{name}, k = {every}: {verdict:?}");
            },
        );
    }
    sum.tell("Arkime");
}

#[test]
fn tables_equal_zeeks_while_flows_move_at_every_kth_packet() {
    zeeks(Sum::new(false));
}

#[test]
fn tables_equal_zeeks_while_a_runtime_is_killed_at_every_kth_packet() {
    zeeks(Sum::new(true));
}

fn zeeks(mut sum: Sum) {
    let Some(folder) = data("flow/zeek-conn") else {
        return;
    };
    // Zeek's own timeouts.
    let config = Config {
        idle_timeout: Timeout::seconds(300),
        closed_timeout: Timeout::seconds(5),
    };
    let (mut equal, mut all) = (0, 0);
    for expected in some(&folder.join("conn-baseline"), "log", 0, 2) {
        let text = std::fs::read_to_string(&expected).expect("readable");
        let file = expected.file_name().expect("a name").to_string_lossy();
        let path = folder.join("traces").join(file.replace(".conn.log", ""));
        sum.replay(&path, config, |every, survived| {
            let comparison = zeek::compare(&records::read(survived.events()), &text);
            let different = comparison.different;
            assert!(different.is_empty(), "{path:?}, k = {every}: {different:#?}");
            equal += comparison.equal;
            all += comparison.expected;
        });
    }
    println!("{equal} of {all} connections equal");
    sum.tell("Zeek");
}
