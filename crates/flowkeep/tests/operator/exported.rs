//! Collectors get the same of a NAT that translates as its event log has: IPFIX records and syslog
//! messages, decoded here by RFC 7011, 8158, 3339 and 5424 and by nothing of the program.

use crate::running::text;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Few enough that a socket holds all datagrams until they are read.
const PROFILE: &str = "flows = 10\nrate = { total = 1000.0 }\npackets_max = 200\nsources = [\"10.0.0.0/24\"]\n\
                       destinations = [\"192.0.2.1/32\"]\ndestination_ports = [443]\n\
                       [[classes]]\nshare = 0.5\nlife = { packets = { fixed = 8 } }\n\
                       [[classes]]\nshare = 0.5\ntcp = 0.0\nlife = { packets = { fixed = 8 } }\n";

/// A record: its elements' values, by their numbers in IANA's registry.
type Record = BTreeMap<u16, u64>;

/// The datagrams of a run to its end, and the lines of its log.
struct Sent {
    process: u32,
    lines: Vec<String>,
    ipfix: Vec<Vec<u8>>,
    syslog: Vec<Vec<u8>>,
}

/// A NAT's configuration in a folder of its own, with these collectors.
fn site(log: &str, ipfix: SocketAddr, syslog: SocketAddr) -> PathBuf {
    let name = format!("exported-{}-{log}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let config = format!(
        "clock = \"machine\"\nruntimes = 2\nflows_max = 1024\n\
         [[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:profile.toml\"\n\
         [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
         [[chain]]\nname = \"out\"\nfunctions = [\"nat\"]\n\
         [function.nat]\npool = [\"203.0.113.0/29\"]\nlog = \"{log}\"\n\
         [log]\nevents = \"events.jsonl\"\nipfix = \"{ipfix}\"\nsyslog = \"{syslog}\"\n"
    );
    std::fs::write(folder.join("profile.toml"), PROFILE).unwrap();
    std::fs::write(folder.join("c.toml"), config).unwrap();
    folder
}

/// Runs it to its end: its process's number, and its output.
fn ended(folder: &Path) -> (u32, Output) {
    let process = Command::new(env!("CARGO_BIN_EXE_flowkeep"))
        .args(["run", "c.toml", "--socket", "s"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = process.id();
    (id, process.wait_with_output().unwrap())
}

fn run(log: &str) -> Sent {
    let collector = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let (ipfix, syslog) = (collector(), collector());
    let folder = site(log, ipfix.local_addr().unwrap(), syslog.local_addr().unwrap());
    let (id, ended) = ended(&folder);
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let lines = std::fs::read_to_string(folder.join("events.jsonl")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    Sent {
        process: id,
        lines: lines.lines().map(str::to_owned).collect(),
        ipfix: waiting(&ipfix),
        syslog: waiting(&syslog),
    }
}

#[test]
fn a_collector_that_is_away_is_said_and_is_no_failure() {
    // A port that was taken a moment ago, and that no process has now.
    let away = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = site("mappings", away, away);
    let (_, ended) = ended(&folder);
    let said = text(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    assert!(
        said.contains("a datagram was not sent: Connection refused"),
        "{said}"
    );
    assert!(said.contains("datagrams were not sent"), "{said}");
    let lines = std::fs::read_to_string(folder.join("events.jsonl")).unwrap();
    assert!(lines.lines().count() > 5, "the file has all of them: {lines}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// All datagrams that wait at a socket: loopback has delivered those that were sent.
fn waiting(socket: &UdpSocket) -> Vec<Vec<u8>> {
    socket.set_nonblocking(true).unwrap();
    let mut all = Vec::new();
    let mut datagram = [0; 65_536];
    while let Ok(length) = socket.recv(&mut datagram) {
        all.push(datagram[..length].to_vec());
    }
    all
}

/// Milliseconds since 1970 of a time by RFC 3339 in UTC, with a part of a second.
fn milliseconds(time: &str) -> u64 {
    let (date, clock) = time.strip_suffix('Z').unwrap().split_once('T').unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap();
    let [year, month, day]: [u64; 3] = Vec::from_iter(date.split('-').map(number)).try_into().unwrap();
    let (clock, fraction) = clock.split_once('.').unwrap();
    let [hour, minute, second]: [u64; 3] = Vec::from_iter(clock.split(':').map(number)).try_into().unwrap();
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let february = 28 + u64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let days = (1970..year)
        .map(|year| 365 + u64::from(is_leap(year)))
        .sum::<u64>()
        + months[..month as usize - 1].iter().sum::<u64>()
        + day
        - 1;
    (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + number(&fraction[..3])
}

/// A collector that knows RFC 7011: it learns templates, and reads sets by them.
#[derive(Default)]
struct Decoder {
    templates: BTreeMap<u16, Vec<(u16, usize)>>,
    records: Vec<Record>,
}

impl Decoder {
    fn message(&mut self, message: &[u8]) {
        let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        let long = |at: usize| u64::from(word(at)) << 16 | u64::from(word(at + 2));
        assert_eq!(
            (word(0), usize::from(word(2))),
            (10, message.len()),
            "version and length"
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(
            (now - 3600..=now).contains(&long(4)),
            "time of export: {}",
            long(4)
        );
        assert_eq!(long(8), self.records.len() as u64, "records before this message");
        let mut at = 16;
        while at < message.len() {
            let (id, end) = (word(at), at + usize::from(word(at + 2)));
            let set = &message[at + 4..end];
            match id {
                2 => self.templates(set),
                256.. => self.data(id, set),
                other => panic!("set {other}"),
            }
            at = end;
        }
        assert_eq!(at, message.len(), "sets fill the message");
    }

    fn templates(&mut self, mut set: &[u8]) {
        let word = |set: &[u8], at: usize| u16::from_be_bytes([set[at], set[at + 1]]);
        while !set.is_empty() {
            let (id, count) = (word(set, 0), usize::from(word(set, 2)));
            let fields = (0..count).map(|field| {
                let (element, length) = (word(set, 4 + 4 * field), word(set, 6 + 4 * field));
                assert!(
                    element < 0x8000 && length <= 8,
                    "element {element}: {length} bytes"
                );
                (element, usize::from(length))
            });
            self.templates.insert(id, fields.collect());
            set = &set[4 + 4 * count..];
        }
    }

    fn data(&mut self, id: u16, mut set: &[u8]) {
        let template = self.templates.get(&id).expect("the template came before");
        let length: usize = template.iter().map(|(_, length)| length).sum();
        // A rest that is shorter than a record is padding.
        while set.len() >= length {
            let mut record = Record::new();
            for (element, length) in template {
                let (value, rest) = set.split_at(*length);
                let value = value.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
                assert!(
                    record.insert(*element, value).is_none(),
                    "element {element} twice"
                );
                set = rest;
            }
            self.records.push(record);
        }
        assert!(set.iter().all(|byte| *byte == 0), "padding is zeros: {set:?}");
    }
}

/// The record that RFC 8158 has for a line of the log.
fn record_of(line: &Value) -> Record {
    let word = |name: &str| line[name].as_str().unwrap_or_else(|| panic!("{name}: {line}"));
    let address = |name: &str| u64::from(u32::from(word(name).parse::<Ipv4Addr>().unwrap()));
    let end = |name: &str| {
        let end: SocketAddrV4 = word(name).parse().unwrap();
        (u64::from(u32::from(*end.ip())), u64::from(end.port()))
    };
    // natEvent, by IANA's registry.
    let event = match word("event") {
        "mapping_created" => 8,
        "mapping_released" => 9,
        "block_claimed" => 16,
        "block_released" => 17,
        other => panic!("{other}: {line}"),
    };
    // observationTimeMilliseconds, natEvent.
    let mut record = Record::from([(323, milliseconds(word("time"))), (230, event)]);
    if event < 10 {
        let (inside, outside) = (end("inside"), end("outside"));
        let protocol = match word("protocol") {
            "tcp" => 6,
            "udp" => 17,
            other => panic!("{other}: {line}"),
        };
        record.extend([
            (4, protocol),                            // protocolIdentifier
            (58, line["vlan"].as_u64().unwrap_or(0)), // vlanId
            (8, inside.0),                            // sourceIPv4Address
            (7, inside.1),                            // sourceTransportPort
            (225, outside.0),                         // postNATSourceIPv4Address
            (227, outside.1),                         // postNAPTSourceTransportPort
        ]);
    } else {
        let (first, last) = word("ports").split_once('-').unwrap();
        record.extend([
            (8, address("host")),
            (225, address("outside")),
            (361, first.parse().unwrap()), // portRangeStart
            (362, last.parse().unwrap()),  // portRangeEnd
        ]);
    }
    record
}

/// A message by RFC 5424: its words in order, and the line behind them.
fn is_message(message: &[u8], line: &str, process: u32) {
    let message = str::from_utf8(message).unwrap();
    let words: Vec<&str> = message.splitn(8, ' ').collect();
    let [head, time, host, name, id, kind, data, said] = words[..] else {
        panic!("{message}");
    };
    let said_of: Value = serde_json::from_str(line).unwrap();
    // Facility local0, severity informational, version 1.
    assert_eq!(head, format!("<{}>1", 16 * 8 + 6));
    assert!(
        time.len() == "2026-11-20T18:46:04.500000Z".len(),
        "six places at most: {time}"
    );
    assert_eq!(
        milliseconds(time),
        milliseconds(said_of["time"].as_str().unwrap())
    );
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!((host, name), (own.trim(), "flowkeep"));
    assert_eq!(id, process.to_string());
    assert_eq!(kind, said_of["event"]);
    assert_eq!((data, said), ("-", line));
}

#[test]
fn collectors_get_what_the_log_of_a_nat_has() {
    for (log, events) in [
        ("mappings", ["mapping_created", "mapping_released"]),
        ("blocks", ["block_claimed", "block_released"]),
    ] {
        let sent = run(log);
        let lines: Vec<Value> = sent
            .lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for event in events {
            let count = lines.iter().filter(|line| line["event"] == event).count();
            assert!(count >= 5, "{count} of {event}: {:#?}", sent.lines);
        }
        let mut decoder = Decoder::default();
        sent.ipfix.iter().for_each(|message| decoder.message(message));
        let expected: Vec<Record> = lines.iter().map(record_of).collect();
        assert_eq!(decoder.records, expected, "{log}");
        assert_eq!(sent.syslog.len(), lines.len(), "{log}");
        for (message, line) in sent.syslog.iter().zip(&sent.lines) {
            is_message(message, line, sent.process);
        }
        println!(
            "{log}: {} lines, {} records in {} messages, {} syslog messages",
            lines.len(),
            decoder.records.len(),
            sent.ipfix.len(),
            sent.syslog.len()
        );
    }
}
