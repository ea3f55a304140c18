//! Writes the seed corpus of every target: packets from `wire::hostile`, configurations out of this
//! repository's own files and pages, short inputs that earlier runs came upon
//! (`fuzz/seeds/config.jsonl`), and the configuration's words as a dictionary.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const SEED: u64 = 2026;

fn main() -> io::Result<()> {
    // Where fuzzers put inputs that break something.
    fs::create_dir_all(here().join("artifacts"))?;
    packets()?;
    configurations()?;
    fs::write(here().join("corpus/config.dict"), dictionary())?;
    let capture = fs::read(here().join("../crates/flowkeep/templates/new/example.pcap"))?;
    keep("capture", "example.pcap", &capture)?;
    keep(
        "rules",
        "ids.rules",
        &fs::read(here().join("../examples/ids.rules"))?,
    )?;
    // A record of each type.
    let lengths = [61, 21, 41, 45, 41, 41, 94, 51, 52, 23, 49, 2, 1, 61, 61, 9, 9];
    for (kind, length) in (1..).zip(lengths) {
        let mut record = vec![1; length];
        record[0] = kind;
        keep("messages", &format!("type-{kind}"), &record)?;
    }
    // Frames of a channel that is met: messages, an acknowledgement, a packet; and one in Geneve.
    keep("channel", "frames", &frames())?;
    // Packets as another process says them, and a message.
    for (number, (link, frame)) in wire::hostile::packets(SEED, 200).enumerate() {
        let mut head = [0; 32];
        head[..4].copy_from_slice(&[1, link as u8, number as u8 & 3, number as u8]);
        keep("peer", &format!("packet-{number:03}"), &[&head[..], &frame].concat())?;
    }
    keep("peer", "message", &[2, 5, 1, 2, 3])?;
    // Messages of a switch and runtimes when flows move between these.
    for first in [0, 2, 4, 6] {
        for (number, input) in flowkeep_fuzz::words::real(first).iter().enumerate() {
            keep("words", &format!("real-{first}-{number}"), input)?;
        }
    }
    // A runtime's messages about shared objects.
    for (number, input) in flowkeep_fuzz::objects::real().iter().enumerate() {
        keep("objects", &format!("real-{number}"), input)?;
    }
    // Short inputs that earlier runs found, each a JSON string.
    let found = fs::read_to_string(here().join("seeds/config.jsonl"))?;
    for (number, line) in found.lines().enumerate() {
        let input: String = serde_json::from_str(line).expect("a JSON string a line");
        keep("config", &format!("found-{number:03}"), input.as_bytes())?;
    }
    Ok(())
}

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Frames that one end of the target's channel may hear from the other, each behind its length.
fn frames() -> Vec<u8> {
    use protocols::channel::wire::{HEAD, Head, Kind, record_head};
    let head = |kind, number, sequence, length| Head {
        kind,
        flags: 0,
        key: 0,
        from: 1,
        to: 0,
        from_incarnation: 1,
        to_incarnation: 1,
        number,
        sequence,
        acknowledged: 1,
        seen: 0,
        window: 64,
        length,
        words: 0,
    };
    let mut input = Vec::new();
    let heads = [
        head(Kind::Messages, 20, 1, 6),
        head(Kind::Messages, 21, 3, 6),
        head(Kind::Acknowledgement, 22, 4, 0),
        head(Kind::Packet, 23, 0, 6),
    ];
    for head in heads {
        let mut frame = vec![0; HEAD];
        head.write(&mut frame, &[]);
        if head.length > 0 {
            frame.extend(record_head(true, true, 4));
            frame.extend([1; 4]);
        }
        let mut front = [0; protocols::link::geneve::FRONT];
        protocols::link::geneve::Front {
            network: 0,
            from: 1,
            to: 0,
        }
        .write(&mut front);
        for frame in [frame.clone(), [&front[..], &frame].concat()] {
            input.extend((frame.len() as u16).to_be_bytes());
            input.extend(frame);
        }
    }
    input
}

/// Puts an input into a target's corpus.
fn keep(target: &str, name: &str, input: &[u8]) -> io::Result<()> {
    let corpus = here().join("corpus").join(target);
    fs::create_dir_all(&corpus)?;
    fs::write(corpus.join(name), input)
}

fn packets() -> io::Result<()> {
    for target in ["parse", "rewrite"] {
        let valid = wire::hostile::valid(SEED, 600);
        let packets = wire::hostile::packets(SEED, 600);
        for (number, (link, frame)) in valid.chain(packets).enumerate() {
            let cut = if number % 8 == 7 { number as u8 } else { 0 };
            let input = flowkeep_fuzz::join(link, cut, &frame);
            keep(target, &format!("seed-{number:04}"), &input)?;
        }
    }
    Ok(())
}

/// The first byte of an input of `config` says what the rest is: `p` a profile, `c` a
/// configuration.
fn configurations() -> io::Result<()> {
    let template = "../crates/flowkeep/templates/new/chain.toml";
    for (head, file) in [
        ("c", "../examples/demo.toml"),
        ("c", template),
        ("p", "../examples/demo-traffic.toml"),
    ] {
        let name = Path::new(file).file_name().expect("a file");
        let text = fs::read_to_string(here().join(file))?;
        keep(
            "config",
            &name.to_string_lossy(),
            (head.to_owned() + &text).as_bytes(),
        )?;
    }
    let folders = ["..", "../docs", "../docs/guide"];
    let mut number = 0;
    for folder in folders {
        for page in fs::read_dir(here().join(folder))? {
            let page = page?.path();
            if page.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            for block in fs::read_to_string(&page)?.split("```toml\n").skip(1) {
                let text = block.split("```").next().unwrap_or_default();
                for head in ["c", "p"] {
                    number += 1;
                    let name = format!("page-{number:03}");
                    keep("config", &name, (head.to_owned() + text).as_bytes())?;
                }
            }
        }
    }
    Ok(())
}

/// All names of settings, their values' names and their examples, as libFuzzer reads them.
fn dictionary() -> String {
    let functions = flowkeep::functions();
    let mut words = BTreeSet::from(
        [
            "[[",
            "]]\n",
            "[function.",
            "]\n",
            " = ",
            "{ ",
            " }",
            "\"\"\"",
            "'''",
            "\n",
            "#",
            "+inf",
            "nan",
            "0x",
            "1e9",
            "1979-05-27",
            "\"10.0.0.0/8\"",
            "\"2001:db8::/32\"",
            "flows",
            "packets",
            "seconds",
            "classes",
            "share",
            "size",
            "incarnation",
            "rate",
            "per_flow",
            "total",
            "popularity",
            "zipf",
            "uniform",
            "turns",
            "imix",
            "endless",
            "exponential",
            "pareto",
            "shape",
            "least",
            "cdf",
            "table",
            "fixed",
            "sources",
            "destinations",
            "replies",
            "round_trip",
        ]
        .map(str::to_owned),
    );
    collect(flowkeep::config::schema::of(&functions), &mut words);
    let mut text = String::new();
    for word in words.iter().filter(|word| (1..=64).contains(&word.len())) {
        text.push('"');
        for byte in word.bytes() {
            let _ = match byte {
                b'"' | b'\\' => write!(text, "\\{}", char::from(byte)),
                b' '..=b'~' => write!(text, "{}", char::from(byte)),
                other => write!(text, "\\x{other:02x}"),
            };
        }
        text.push_str("\"\n");
    }
    text
}

fn collect(schema: &Value, words: &mut BTreeSet<String>) {
    match schema {
        Value::Object(table) => {
            for (key, value) in table {
                match (key.as_str(), value) {
                    ("properties", Value::Object(properties)) => words.extend(properties.keys().cloned()),
                    ("enum" | "examples", Value::Array(values)) => {
                        words.extend(values.iter().map(Value::to_string));
                    }
                    ("const", value) => drop(words.insert(value.to_string())),
                    _ => {}
                }
                collect(value, words);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, words)),
        _ => {}
    }
}
