//! The command `bench`: the scenario goes to the crate `bench`, and its figures are printed.

use crate::cli;
use crate::registry::Registry;
use crate::shape::{self, Shape};
use ::bench::papers::{self, Figures};
use ::bench::report::Report;
use ::bench::{Options, live, plot};
use adapters::pages::Want;
use std::process::ExitCode;
use std::time::Duration;

impl Shape for Report {
    const NAME: &'static str = "bench";
}

impl Shape for Figures {
    const NAME: &'static str = "bench-papers";
}

/// The command `bench`.
pub fn job(job: cli::jobs::BenchJob, _registry: &Registry) -> ExitCode {
    let scenario = match job.scenario {
        cli::Scenario::Chain => "chain",
        cli::Scenario::Switch => "switch",
        cli::Scenario::Launch => "launch",
        cli::Scenario::Stage => "stage",
        cli::Scenario::Message => "message",
        cli::Scenario::Migrate => "migrate",
        cli::Scenario::Scale => "scale",
        cli::Scenario::Objects => "objects",
        cli::Scenario::Replicate => "replicate",
        cli::Scenario::Recover => "recover",
        cli::Scenario::Store => "store",
        cli::Scenario::Leases => "leases",
        cli::Scenario::System => "system",
        cli::Scenario::Papers => return papers_job(&job),
        cli::Scenario::Live => return live_job(&job),
    };
    if scenario == "message" && ::bench::message::serve()
        || scenario == "recover" && ::bench::recover::serve()
    {
        return ExitCode::SUCCESS;
    }
    let options = Options {
        flows: job.flows.clone(),
        runs: usize::from(job.runs),
        pages: match job.pages {
            cli::PageSize::Large => Want::Huge,
            cli::PageSize::Small => Want::Plain,
        },
        ..Options::default()
    };
    told(&job, || ::bench::run(scenario, &options), Report::table, plot::of)
}

/// Measures, and prints and draws the figures. A file that cannot be written is told before
/// anything is measured, which may take minutes.
fn told<T: Shape>(
    job: &cli::jobs::BenchJob,
    measure: impl FnOnce() -> Result<T, String>,
    table: impl Fn(&T) -> String,
    draw: impl Fn(&T) -> String,
) -> ExitCode {
    let write = |what: &str| {
        let Some(path) = &job.plot else { return Ok(()) };
        std::fs::write(path, what).map_err(|error| {
            format!(
                "{}: cannot be written: {error}; name a file that you may write",
                path.display()
            )
        })
    };
    let measured = write("")
        .and_then(|()| measure())
        .and_then(|figures| write(&draw(&figures)).map(|()| figures));
    match measured {
        Ok(figures) if job.json => println!("{}", shape::object(&figures)),
        Ok(figures) => print!("{}", table(&figures)),
        Err(problem) => return cli::failed::ends(job.json, problem, cli::FAILURE),
    }
    ExitCode::SUCCESS
}

fn papers_job(job: &cli::jobs::BenchJob) -> ExitCode {
    // The first run of some scenarios only warms up.
    let options = Options {
        runs: usize::from(job.runs).max(2),
        ..Options::default()
    };
    let tell = |scenario: &str| eprintln!("flowkeep bench {scenario} …");
    told(
        job,
        || papers::measure(&options, tell),
        Figures::table,
        plot::of_papers,
    )
}

fn live_job(job: &cli::jobs::BenchJob) -> ExitCode {
    let settings = live::LiveSettings {
        runs: usize::from(job.runs),
        flows: job.flows.clone(),
        port: job.port,
        loads: job.loads.clone(),
        moment: Duration::from_millis(u64::from(job.moment_ms)),
    };
    told(job, || live::run(&settings), live::table, plot::of)
}
