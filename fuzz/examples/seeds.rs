//! Writes the seed corpus of every target: packets from `wire::hostile`, none from captures.

use std::fs;
use std::path::Path;

const SEED: u64 = 2026;

fn main() -> std::io::Result<()> {
    for target in ["parse", "rewrite"] {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        fs::create_dir_all(&corpus)?;
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
    Ok(())
}
