//! A driver's throughput: additions, changes and bytes in a second, and how old changes are when
//! the store has them.
//!
//! ```text
//! cargo run --profile quick -p flowkeep-stores --example bench_stores -- [SECONDS [KEYS [URI…]]]
//! ```
//!
//! One thread adds to a counter and to one of KEYS counters of a map, in bursts of 32 with a step
//! after each: like a worker with no other work. `local` is the same without a store, for
//! comparison. Without a URI: memory, a file in a temporary folder, and redis://127.0.0.1 where a
//! server answers there.

use flowkeep_stores::{Consistency, Options, Partition, PartitionName, Store, driver_of};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(5.0), |word| word.parse())?;
    let keys: u32 = arguments.next().map_or(Ok(50_000), |word| word.parse())?;
    let folder = std::env::temp_dir().join(format!("flowkeep-stores-{}", std::process::id()));
    let mut uris: Vec<String> = arguments.collect();
    if uris.is_empty() {
        uris.push("memory:".into());
        uris.push(format!("redb:{}", folder.display()));
        uris.push("redis://127.0.0.1".into());
    }
    println!("{keys} keys, {seconds} s each; ages in ms");
    println!(
        "{:>24}  {:>12} {:>5}  {:>10} {:>8} {:>9}  {:>8} {:>8} {:>8}",
        "store", "additions/s", "%", "changes/s", "batches/s", "MB/s", "p50", "p99", "max"
    );
    let local = run("memory:", Consistency::Local, seconds, keys)?;
    print("local", &local, &local, seconds);
    for uri in uris {
        match run(&uri, Consistency::default(), seconds, keys) {
            Ok(run) => print(
                uri.split('@').next_back().unwrap_or_default(),
                &run,
                &local,
                seconds,
            ),
            Err(error) => println!("not run: {error}"),
        }
    }
    let _ = std::fs::remove_file(folder);
    Ok(())
}

struct Run {
    additions: u64,
    figures: flowkeep_stores::PartitionStats,
}

fn run(
    uri: &str,
    consistency: Consistency,
    seconds: f64,
    keys: u32,
) -> Result<Run, Box<dyn std::error::Error>> {
    let (store, agency) = Store::start(driver_of(uri)?, Duration::from_secs(3), |report| {
        eprintln!("{report:?}")
    })?;
    let name = PartitionName::new("bench", "", 0)?;
    let mut partition = Partition::open(&store, name)?;
    let options = Options {
        capacity: keys as usize,
        consistency,
    };
    let total = partition.counter("total", options)?;
    let each = partition.counter_map::<u32>(&format!("each {keys}"), options)?;
    each.clear()?;
    let (mut additions, mut key) = (0, 0u32);
    let began = Instant::now();
    while began.elapsed().as_secs_f64() < seconds {
        for _ in 0..32 {
            // Every key, in an order that no cache foresees.
            key = key.wrapping_add(2_654_435_761);
            total.add(1);
            each.add(&(key % keys), 1)?;
            additions += 2;
        }
        partition.step(u64::try_from(began.elapsed().as_nanos())?);
    }
    let figures = partition.figures();
    if !partition.finish(Duration::from_secs(20)) {
        return Err(format!("{uri}: not all was stored: {:?}", store.health()).into());
    }
    drop(partition);
    agency.end();
    Ok(Run { additions, figures })
}

fn print(store: &str, run: &Run, local: &Run, seconds: f64) {
    let rate = |count: u64| count as f64 / seconds;
    let ms = |ns: u64| ns as f64 / 1e6;
    let ages = &run.figures.ages;
    println!(
        "{:>24}  {:>12.0} {:>5.0}  {:>10.0} {:>8.0} {:>9.2}  {:>8.2} {:>8.2} {:>8.2}",
        store.get(store.len().saturating_sub(24)..).unwrap_or(store),
        rate(run.additions),
        run.additions as f64 / local.additions as f64 * 100.0,
        rate(run.figures.changes),
        rate(run.figures.batches),
        rate(run.figures.bytes) / 1e6,
        ms(ages.percentile_ns(50)),
        ms(ages.percentile_ns(99)),
        ms(ages.max_ns()),
    );
}
