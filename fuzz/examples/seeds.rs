//! Writes the seed corpus of every target: packets from `wire::hostile`, and files of this repository.

use std::fs;
use std::path::Path;

const SEED: u64 = 2026;

fn main() -> std::io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus_of = |target: &str| {
        let corpus = here.join("corpus").join(target);
        fs::create_dir_all(&corpus).map(|()| corpus)
    };
    for target in ["parse", "rewrite"] {
        let corpus = corpus_of(target)?;
        let valid = wire::hostile::valid(SEED, 600);
        let packets = wire::hostile::packets(SEED, 600);
        for (number, (link, frame)) in valid.chain(packets).enumerate() {
            let cut = if number % 8 == 7 { number as u8 } else { 0 };
            fs::write(
                corpus.join(format!("seed-{number:04}")),
                flowkeep_fuzz::join(link, cut, &frame),
            )?;
        }
    }
    // The first byte of an input of `config` says what the rest is: `p` a profile, `c` a configuration.
    let template = "../crates/flowkeep/templates/new";
    for (target, head, file) in [
        ("config", "c", "../examples/demo.toml".to_string()),
        ("config", "c", format!("{template}/chain.toml")),
        ("config", "p", "../examples/demo-traffic.toml".to_string()),
        ("rules", "", "../examples/ids.rules".to_string()),
        ("capture", "", format!("{template}/example.pcap")),
    ] {
        let bytes = [head.as_bytes(), &fs::read(here.join(&file))?].concat();
        let name = Path::new(&file).file_name().expect("a file");
        fs::write(corpus_of(target)?.join(name), bytes)?;
    }
    // A record of each type.
    for (kind, length) in [(1, 61), (2, 21), (3, 41), (4, 45)] {
        fs::write(
            corpus_of("messages")?.join(format!("type-{kind}")),
            vec![kind; length],
        )?;
    }
    Ok(())
}
