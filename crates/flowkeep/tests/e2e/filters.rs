//! Filters judge as tcpdump does, packet for packet, over the shared captures.

use crate::cluster::{data, every_capture, files, name};
use runtime::watch::bpf::Program;
use std::path::Path;
use std::process::{Command, Stdio};

const EXPRESSIONS: &[&str] = &[
    "tcp",
    "udp port 53",
    "icmp or icmp6 or arp",
    "ip6 and not tcp",
    "net 192.168.0.0/16 and not port 443",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
    "ip[6:2] & 0x1fff != 0 or ip[6] & 0x20 != 0",
    "tcp portrange 1-1024 and ip[2:2] > 100",
    "greater 500 or less 70",
    "vlan and ip",
    "udp[8:2] & 0x8000 != 0 and len % 3 = 1",
    "ip[8] * 2 / 3 > 60 or ip6[7] - 1 < 64",
    "src port 80 or dst port 80 or sctp or ip proto 2",
];

/// tcpdump's standard output, or `None` if it fails.
fn tcpdump(words: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("tcpdump");
    let output = command.args(words).stdin(Stdio::null()).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// Link type and packets of a pcap file in this machine's byte order: bytes on the wire, and the
/// bytes that are there.
fn packets(pcap: &[u8]) -> (u32, Vec<(u32, &[u8])>) {
    let word = |at: usize| u32::from_le_bytes(pcap[at..at + 4].try_into().unwrap());
    let mut all = Vec::new();
    let mut at = 24;
    while at + 16 <= pcap.len() {
        let (held, length) = (word(at + 8) as usize, word(at + 12));
        all.push((length, &pcap[at + 16..at + 16 + held]));
        at += 16 + held;
    }
    (word(20), all)
}

/// How many packets an expression was asked about, and how many it wanted.
fn compare(path: &Path, expression: &str, programs: &[(u32, Program)]) -> Option<(usize, usize)> {
    let file = path.to_str()?;
    let whole = tcpdump(&["-r", file, "-w", "-"])?;
    let (link, all) = packets(&whole);
    let (_, program) = programs.iter().find(|(number, _)| *number == link)?;
    let theirs = tcpdump(&["-r", file, "-w", "-", "--", expression])?;
    let (_, theirs) = packets(&theirs);
    let ours: Vec<_> = (all.iter())
        .filter(|(length, bytes)| program.run(bytes, *length) > 0)
        .copied()
        .collect();
    assert!(
        ours == theirs,
        "{}: {expression}: {} of {} packets, tcpdump: {}",
        name(path),
        ours.len(),
        all.len(),
        theirs.len()
    );
    Some((all.len(), ours.len()))
}

#[test]
fn filters_judge_as_tcpdump_does() {
    let Some(data) = data() else { return };
    if tcpdump(&["--version"]).is_none() {
        println!("not run: needs tcpdump (apt install tcpdump)");
        return;
    }
    let mut captures = files(&data.join("flow/ndpi/pcap"), "pcap");
    captures.extend(files(&data.join("flow/arkime"), "pcap"));
    if !every_capture() {
        captures.retain(|path| std::fs::metadata(path).is_ok_and(|file| file.len() < 400_000));
        let every = (captures.len() / 25).max(1);
        captures = captures.into_iter().step_by(every).collect();
    }
    let (mut asked, mut wanted, mut files) = (0, 0, 0);
    for expression in EXPRESSIONS {
        let programs = flowkeep::capture::compile(expression).unwrap_or_else(|error| panic!("{error}"));
        let programs: Vec<(u32, Program)> = (programs.into_iter())
            .map(|(link, program)| {
                let program = Program::new(program.into_iter().map(Into::into).collect());
                (
                    link,
                    program.unwrap_or_else(|error| panic!("{expression}: {error}")),
                )
            })
            .collect();
        let found: Vec<_> = captures
            .iter()
            .filter_map(|path| compare(path, expression, &programs))
            .collect();
        files = files.max(found.len());
        asked += found.iter().map(|(all, _)| all).sum::<usize>();
        wanted += found.iter().map(|(_, wanted)| wanted).sum::<usize>();
    }
    println!("{files} captures, {asked} verdicts, {wanted} packets wanted");
    assert!(
        files >= 10 && wanted > 1000,
        "{files} captures, {wanted} packets wanted"
    );
}

#[test]
fn what_is_no_expression_is_told_in_tcpdumps_words() {
    if tcpdump(&["--version"]).is_none() {
        println!("not run: needs tcpdump (apt install tcpdump)");
        return;
    }
    let error = flowkeep::capture::compile("tcp port").unwrap_err();
    assert!(error.starts_with("--filter 'tcp port': "), "{error}");
    // No link layer but Ethernet has such addresses.
    let programs = flowkeep::capture::compile("ether host 02:00:00:00:00:01").unwrap();
    assert!(programs.iter().any(|(link, _)| *link == 1));
    assert!(programs.iter().all(|(link, _)| *link != 101));
}
