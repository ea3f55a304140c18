//! The firewall's verdicts against a Linux kernel's, while runtimes are killed at every k-th packet
//! of a capture.
//!
//! The oracle is that of `tests/firewall_conntrack.rs`: the word of `nf_conntrack` of Linux 6.18 on
//! each packet. Here real runtimes have the flows; the firewall's counts with a packet tell its
//! class. Lazy fields are committed: TCP's windows, which say what is invalid. All frames come at
//! once, since no flow expired in the kernel's replay. A runtime is killed in each of the ways that
//! the kit has, in turn over the values of k.
//!
//! Not compared: packets that the kernel did not forward (`-`), FRAG and UNTRACKED.

use crate::captures::{Script, at_once, data, every_capture, files};
use crate::firewall::firewall;
use std::path::{Path, PathBuf};
use testkit::{Survived, Way};

/// At every so many packets.
const EVERY: [usize; 5] = [1, 2, 3, 7, 50];
/// Longer captures are for [`every_capture`]: a runtime is made for each kill.
const FRAMES: usize = 60;
const ALLOW_ALL: &str = "[[rules]]\nname = \"everything\"\naction = \"allow\"\n";

/// The kernel's verdicts, by packet number from 1.
fn verdicts(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("the verdicts read");
    let mut verdicts = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split('\t');
        let number: usize = fields.next().expect("a number").parse().expect("a number");
        if verdicts.len() < number {
            verdicts.resize(number, String::from("-"));
        }
        verdicts[number - 1] = fields.next().expect("a verdict").into();
    }
    verdicts
}

/// The class of a step's packet, by the counts made with it.
fn class(survived: &Survived, step: usize) -> &'static str {
    let has = |name: &str| survived.counted_at(step).any(|counter| counter == name);
    match () {
        () if has("invalid_packets") => "INVALID",
        () if has("new_packets") => "NEW",
        () if has("related_packets") => "RELATED",
        () if has("untracked_packets") => "UNTRACKED",
        // The firewall never saw it: it is malformed.
        () if survived.dropped_at(step).next().is_some() => "INVALID",
        () => "ESTABLISHED",
    }
}

/// A capture with the kernel's verdict on each step's packet.
fn judged(capture: &Path, oracle: &Path) -> (Script, Vec<String>) {
    let verdicts = verdicts(oracle);
    let mut script = at_once(capture);
    let of = |number: usize| verdicts.get(number - 1).map_or("-", String::as_str);
    // The kernel drops a packet with such a header before it tracks anything.
    let goes = |(number, is_spoilt): (usize, bool)| !is_spoilt || of(number) != "-";
    let mut kept = script.frames.iter().map(|frame| goes(*frame));
    script.steps.retain(|_| kept.next().unwrap_or(false));
    script.frames.retain(|frame| goes(*frame));
    let expected = script.frames.iter().map(|(number, _)| of(*number).to_owned());
    let expected = expected.collect();
    (script, expected)
}

fn replay(script: &Script, every: usize, commits_lazy: bool) -> Survived {
    let kills = script.steps.len() / every;
    let mut guarded = firewall(ALLOW_ALL)
        .flows_max(script.steps.len().clamp(64, 4096) as u32)
        .begins_at(script.begins_at)
        .ways([Way::FAILURES[(every + kills) % 4]])
        .every(every);
    if commits_lazy {
        guarded = guarded.committing_lazy();
    }
    guarded.replay(script.steps.clone())
}

/// The differences from the kernel's verdicts, and how many packets were compared.
fn differing(script: &Script, expected: &[String], survived: &Survived) -> (Vec<String>, usize) {
    let (mut found, mut compared) = (Vec::new(), 0);
    for (step, kernel) in expected.iter().enumerate() {
        if ["-", "FRAG", "UNTRACKED"].contains(&kernel.as_str()) {
            continue;
        }
        compared += 1;
        let here = class(survived, step);
        if here != kernel {
            let (number, _) = script.frames[step];
            found.push(format!("packet {number}: kernel {kernel}, here {here}"));
        }
    }
    (found, compared)
}

/// Pairs of capture and verdicts.
fn pairs() -> Option<Vec<(PathBuf, PathBuf)>> {
    let conntrack = data("flow/linux-conntrack")?;
    let (flow, nat) = (data("flow")?, data("nat/ct-scenarios")?);
    let folders = [
        (flow.join("ndpi/pcap"), conntrack.join("ndpi")),
        (flow.join("zeek-conn/traces"), conntrack.join("zeek")),
        (nat.clone(), nat.join("expected")),
    ];
    let of = |(captures, verdicts): &(PathBuf, PathBuf)| -> Vec<(PathBuf, PathBuf)> {
        let pair = |oracle: PathBuf| {
            let name = oracle.file_name()?.to_str()?.strip_suffix(".ct.tsv")?;
            let capture = captures.join(name);
            capture.is_file().then_some((capture, oracle))
        };
        files(verdicts, "tsv").into_iter().filter_map(pair).collect()
    };
    Some(folders.iter().flat_map(of).collect())
}

#[test]
fn verdicts_equal_the_kernels_while_a_runtime_is_killed_at_every_kth_packet() {
    let Some(pairs) = pairs() else { return };
    let (mut captures, mut replays, mut packets, mut recovered) = (0, 0, 0, 0);
    let mut wrong = Vec::new();
    for (capture, oracle) in &pairs {
        let (script, expected) = judged(capture, oracle);
        if script.steps.len() > FRAMES && !every_capture() {
            continue;
        }
        captures += 1;
        for every in EVERY.into_iter().filter(|every| *every <= script.steps.len()) {
            let survived = replay(&script, every, true);
            let (found, compared) = differing(&script, &expected, &survived);
            (replays, packets) = (replays + 1, packets + compared);
            recovered += survived.moved();
            if !found.is_empty() {
                wrong.push(format!("{}, k = {every}: {found:#?}", script.name));
            }
        }
    }
    println!(
        "Linux: {captures} of {} captures, {replays} replays, {packets} verdicts with k of {EVERY:?}; flows were \
         recovered {recovered} times; {} replays differ",
        pairs.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(packets > 1000 && recovered > 1000, "{packets} {recovered}");
}

/// That verdicts would be others: where windows are learned again, packets out of them pass.
#[test]
fn windows_that_are_learned_again_are_noticed() {
    let Some(pairs) = pairs() else { return };
    let differs = |(capture, oracle): &(PathBuf, PathBuf)| {
        let (script, expected) = judged(capture, oracle);
        script.steps.len() <= FRAMES && expected.iter().any(|kernel| kernel == "INVALID") && {
            let survived = replay(&script, 1, false);
            !differing(&script, &expected, &survived).0.is_empty()
        }
    };
    assert!(pairs.iter().any(differs));
}
