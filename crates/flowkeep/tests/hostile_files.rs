//! Files that lie: configurations, generator profiles and captures that are random, cut off or
//! changed here and there. Their readers answer with success or with words, in bounded time, and
//! never panic.

use adapters::open::BoxPort;
use adapters::pcap::{InputSettings, PcapInput, Reader};
use adapters::report::Reports;
use adapters::uri::GenerateUri;
use flowkeep::config;
use flowkeep::registry::Registry;
use runtime::env::{Burst, Port};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use wire::Pool;
use wire::hostile::Random;
use wire::memory::Region;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(root().join(name)).unwrap()
}

/// Numbers, words and signs that readers stumble over.
const PIECES: &[&str] = &[
    "18446744073709551616",
    "-1",
    "4294967296",
    "1e400",
    "nan",
    "-inf",
    "0xffffffffffffffff",
    "''",
    "\"\\u0000\"",
    "[",
    "]",
    "[[",
    "{",
    "}",
    "=",
    ".",
    "\"\"\"",
    "\n",
    "#",
    "255.255.255.255/33",
    "::/129",
    "65536-0",
    "9999999999d",
    "1979-05-27T07:32:00Z",
    "true",
];

/// A text with one to four changes: cut, a line twice or away, a piece put in, a number or word
/// replaced, a byte changed.
fn changed(random: &mut Random, good: &str) -> String {
    let mut text = good.as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(text.len() + 1);
        let line = |text: &[u8]| {
            let from = text[..at].iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
            let to = text[at..]
                .iter()
                .position(|b| *b == b'\n')
                .map_or(text.len(), |n| at + n + 1);
            from..to
        };
        match random.below(6) {
            0 if random.once_in(4) => text.truncate(at),
            0 | 1 => {
                let range = line(&text);
                let again = text[range.clone()].to_vec();
                text.splice(range.end..range.end, again);
            }
            2 => {
                text.drain(line(&text));
            }
            3 => {
                text.splice(at..at, random.of(PIECES).bytes());
            }
            4 => {
                // The text behind the next sign of equality.
                let Some(from) = text[at..].iter().position(|b| *b == b'=').map(|n| at + n + 1) else {
                    continue;
                };
                let to = text[from..]
                    .iter()
                    .position(|b| b",}\n".contains(b))
                    .map_or(text.len(), |n| from + n);
                text.splice(from..to, random.of(PIECES).bytes());
            }
            _ => {
                if let Some(byte) = text.get_mut(at) {
                    *byte = random.byte();
                }
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Texts that are deep or long where others are not.
fn extreme() -> Vec<String> {
    let deep = 100_000;
    vec![
        format!("a = {}", "[".repeat(deep)),
        format!("a = {}{}", "[".repeat(deep), "]".repeat(deep)),
        format!("a = {}1{}", "{a=".repeat(deep), "}".repeat(deep)),
        format!("{}a = 1", "a.".repeat(deep)),
        format!("[{}a]\nb = 1", "a.".repeat(deep)),
        format!("[[{}a]]\nb = 1", "a.".repeat(deep)),
        format!("[function.{}a]\nb = 1", "a.".repeat(deep)),
        format!("runtimes = {}", "9".repeat(deep)),
        format!("{} = 1", "x".repeat(deep)),
        format!("runtimes = \"{}\"", "é".repeat(deep)),
        "[[port]]\n".repeat(10_000),
        "[[chain]]\nname = 'x'\nfunctions = ['x']\n".repeat(1_000),
        "\n".repeat(deep),
        "\u{feff}\u{0}\r\r\r".to_string(),
        String::new(),
    ]
}

fn parse(text: &str, registry: &Registry) -> bool {
    match config::parse("hostile.toml", text, registry) {
        Ok(_) => true,
        Err(problems) => {
            assert!(!problems.is_empty(), "a refusal says why: {text}");
            for problem in problems {
                assert!(!problem.to_string().is_empty());
            }
            false
        }
    }
}

#[test]
fn configurations_that_lie() {
    let registry = flowkeep::functions();
    let good = ["examples/demo.toml", "crates/flowkeep/templates/new/chain.toml"]
        .map(|name| String::from_utf8(read(name)).unwrap());
    let mut random = Random::new(1);
    let mut taken = 0;
    for n in 0..1500 {
        taken += usize::from(parse(&changed(&mut random, &good[n % good.len()]), &registry));
        if n % 10 == 0 {
            let length = random.below(300);
            let noise = random.bytes(length);
            parse(&String::from_utf8_lossy(&noise), &registry);
        }
    }
    println!("{taken} of 1500 changed configurations are still good");
    assert!(
        taken > 0,
        "the changes are so small that some are of no consequence"
    );
    for text in extreme() {
        parse(&text, &registry);
    }
}

/// A folder that goes away at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowkeep-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn pool() -> Pool {
    Pool::new(Region::heap(Pool::region_length(64, 2048)), 64, 2048, 0)
}

/// Receives a while; answers how many packets there were.
fn receive(port: &mut impl Port, pool: &mut Pool, rounds: usize) -> usize {
    let mut count = 0;
    for round in 0..rounds {
        let mut burst = Burst::new();
        port.receive(round as u64 * 1_000_000_000, pool, &mut burst);
        count += burst.len();
        for mut packet in burst.drain(..) {
            let _ = wire::parse(&mut packet);
            pool.give(packet);
        }
    }
    assert_eq!(pool.free(), pool.total());
    count
}

#[test]
fn profiles_that_lie() {
    let folder = Folder::new("profiles");
    let path = folder.0.join("profile.toml");
    let good = String::from_utf8(read("examples/demo-traffic.toml")).unwrap();
    let uri = GenerateUri {
        profile: path.clone(),
        // Whatever the file says: these many flows have room here.
        parameters: vec![("flows".into(), "1000".into())],
    };
    let mut pool = pool();
    let mut open = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let opened: Result<BoxPort, String> = flowkeep::generate::open(&uri, &Reports::default());
        match opened {
            Ok(mut port) => receive(&mut port, &mut pool, 4),
            Err(problem) => {
                assert!(!problem.is_empty());
                0
            }
        }
    };
    assert!(open(&good) > 0);
    let mut random = Random::new(2);
    for _ in 0..1500 {
        open(&changed(&mut random, &good));
    }
    for text in extreme() {
        open(&text);
    }
}

/// The packets of a capture as pcapng: a section, an interface, and a packet block each.
fn pcapng(capture: &[u8]) -> Vec<u8> {
    fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
        let length = (12 + body.len().next_multiple_of(4)) as u32;
        out.extend(kind.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend(body);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(length.to_le_bytes());
    }
    let mut out = Vec::new();
    let mut section = vec![0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
    section.extend([0xff; 8]);
    block(&mut out, 0x0a0d_0d0a, &section);
    // Ethernet, no limit, time in nanoseconds.
    block(
        &mut out,
        1,
        &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0],
    );
    let mut reader = Reader::new(Cursor::new(capture), PathBuf::from("good")).unwrap();
    while let Some(record) = reader.next().unwrap() {
        let frame = reader.frame(&record);
        let length = (frame.len() as u32).to_le_bytes();
        let mut body = vec![0; 12];
        body.extend(length);
        body.extend(length);
        body.extend(frame);
        block(&mut out, 6, &body);
    }
    out
}

#[test]
fn captures_that_lie() {
    let classic = read("crates/flowkeep/templates/new/example.pcap");
    let good = [pcapng(&classic), classic];
    let mut pool = pool();
    let mut open = |bytes: &[u8]| match Reader::new(Cursor::new(bytes), PathBuf::from("hostile.pcap")) {
        Ok(reader) => {
            let mut port = PcapInput::new(reader, InputSettings::default(), Reports::default());
            receive(&mut port, &mut pool, 4)
        }
        Err(problem) => {
            assert!(!problem.to_string().is_empty());
            0
        }
    };
    let mut random = Random::new(3);
    for good in &good {
        let all = open(good);
        assert!(all > 3, "{all}");
        for length in 0..good.len() {
            assert!(open(&good[..length]) <= all);
        }
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                match random.below(4) {
                    0 => bytes[at] = random.of(&[0, 1, 0x7f, 0x80, 0xff]),
                    1 => bytes[at] ^= 1 << random.below(8),
                    2 => {
                        let noise = random.array::<4>();
                        let end = (at + 4).min(bytes.len());
                        bytes[at..end].copy_from_slice(&noise[..end - at]);
                    }
                    _ => {
                        let end = (at + random.below(40)).min(bytes.len());
                        bytes.drain(at..end);
                    }
                }
                if bytes.is_empty() {
                    break;
                }
            }
            open(&bytes);
        }
        for _ in 0..2_000 {
            let (head, length) = (random.below(40), random.below(500));
            let noise = random.bytes(length);
            open(&[&good[..head], &noise].concat());
        }
    }
}
