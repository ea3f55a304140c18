//! Metrics of a running NAT's ports: how many blocks it has, how many are free, and how long those
//! last while hosts take more of them.

use crate::running::{PATIENCE, Running};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Five new hosts a second, of which each takes a block and keeps it for minutes.
const PROFILE: &str = "flows = 4\nrate = { total = 10.0 }\npace = \"clock\"\nsources = [\"10.0.0.0/16\"]\n\
                       destinations = [\"192.0.2.1/32\"]\n[[classes]]\nshare = 1.0\ntcp = 0.0\n\
                       life = { packets = { fixed = 2 } }\n";
/// An address has as many blocks as its ports from 1024 on allow.
const BLOCKS: f64 = ((65_536 - 1024) / 256) as f64;

/// The figures of a text for Prometheus that are named so.
fn figures(at: &str, name: &str) -> Vec<f64> {
    let Ok(mut stream) = TcpStream::connect(at) else {
        return Vec::new();
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    let of_name = |line: &str| {
        let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
        assert_eq!(labels, "{runtime=\"0\",function=\"nat\"}", "{line}");
        value.parse().ok()
    };
    all.lines().filter_map(of_name).collect()
}

#[test]
fn metrics_say_how_full_the_pool_is_and_how_long_it_lasts() {
    let free_port = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free_port.local_addr().unwrap().to_string();
    drop(free_port);
    let running = Running::start("pool", PROFILE, |profile| {
        format!(
            "[[port]]\nname = \"lan\"\nside = \"inside\"\ninput = \"generate:{profile}\"\n\
             [[port]]\nname = \"wan\"\nside = \"outside\"\noutput = \"pcap:/dev/null\"\n\
             [[chain]]\nname = \"out\"\nfunctions = [\"nat\"]\n\
             [function.nat]\npool = [\"203.0.113.1\"]\n[metrics]\nlisten = \"{at}\"\n"
        )
    });
    let one = |name: &str| figures(&at, name).first().copied();
    let began = Instant::now();
    let mut first = None;
    // The metric goes by the last two seconds, and this by all since its first look: they agree
    // but for moments in which the machine did other things.
    let (free, lasts) = loop {
        let [free, lasts] = ["flowkeep_pool_free_blocks", "flowkeep_pool_lasts_seconds"].map(one);
        if let (Some(free), Some(lasts)) = (free, lasts) {
            let (at_first, since) = *first.get_or_insert((free, Instant::now()));
            let rate = (at_first - free) / since.elapsed().as_secs_f64();
            let is_so = at_first - free >= 20.0 && (0.3..3.0).contains(&(lasts * rate / free));
            if is_so {
                println!(
                    "{free} of {BLOCKS} are free; at {rate:.1} a second they last {:.1} s",
                    free / rate
                );
                break (free, lasts);
            }
        }
        assert!(began.elapsed() < PATIENCE, "{free:?} last {lasts:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    println!("by the metrics {lasts} s");
    assert!(free < BLOCKS - 19.0, "{free}");
    assert_eq!(figures(&at, "flowkeep_pool_blocks"), [BLOCKS]);
    // The blocks that are not free are those that hosts have, by the function itself.
    let has = || -> Option<(f64, f64)> {
        let said = running.ask(&["function", "nat", "pool", "--json"]).stdout;
        let said: Value = serde_json::from_slice(&said).unwrap();
        let row = &said["rows"][0];
        Some((row["blocks"].as_f64()?, row["free"].as_f64()?))
    };
    let before = one("flowkeep_pool_free_blocks").unwrap();
    let (blocks, between) = has().expect("it says so");
    let after = one("flowkeep_pool_free_blocks").unwrap();
    assert_eq!(blocks, BLOCKS);
    assert!(
        before >= between && between >= after,
        "{before} {between} {after}"
    );
}
