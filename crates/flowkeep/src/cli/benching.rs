//! `bench`: measures, and prints figures.

use super::{Bench, Failure, print};
use crate::bench::{self, Options};
use adapters::pages::Want;
use serde_json::json;
use std::io::Write;

pub fn run(asked: Bench, out: &mut dyn Write) -> Result<(), Failure> {
    let options = Options {
        runs: usize::from(asked.runs),
        packets: asked.packets as usize,
        flows: asked.flows,
        seed: asked.seed,
        pages: if asked.small_pages {
            Want::Plain
        } else {
            Want::Huge
        },
        cpu: asked.cpu,
    };
    let report = bench::run(&asked.scenario, &options).map_err(Failure::usage)?;
    if asked.json {
        print(out, json!(report))
    } else {
        print(out, report.table().trim_end())
    }
}
