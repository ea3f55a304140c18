//! Stateful network functions whose flows move, and survive failures where copies are kept: the
//! tool, and the library behind it.
//!
//! A binary is a registry of functions and one call: see [`mod@registry`]. Everything a person
//! meets is here: the configuration ([`config`]), its changes ([`apply`]), the commands ([`cli`]),
//! the control socket ([`control`]), the figures ([`metrics`], [`report`]).
//!
//! Not here: the way of a packet (`flowkeep-runtime`), and where packets come from
//! (`flowkeep-adapters`).

pub mod apply;
pub mod bench;
pub mod bridge;
pub mod capture;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod control;
pub mod events;
pub mod explain;
pub mod following;
pub mod generate;
pub mod health;
pub mod lab;
pub mod log;
pub mod member;
pub mod metrics;
pub mod moving;
pub mod new;
pub mod registry;
pub mod report;
pub mod run;
pub mod scaling;
pub mod shape;
pub mod signals;
pub mod sim;
pub mod tables;
pub mod top;
pub mod trace;

mod store;
/// The functions that come with Flowkeep, by their types.
pub use ::functions as built_in;
/// Puts functions' tables in 2 MiB pages, and counts memory for `chain check`: a binary's
/// `#[global_allocator]`.
pub use adapters::large::LargePages;
pub use nf;

/// The functions that come with Flowkeep, and the chains of them that are compiled in one piece:
/// the papers', and a gateway's.
pub fn functions() -> registry::Registry {
    use ::functions::counter::Counter;
    use ::functions::firewall::Firewall;
    use ::functions::flow_monitor::FlowMonitor;
    use ::functions::forward::Forward;
    use ::functions::host_limits::HostLimits;
    use ::functions::http_parser::HttpParser;
    use ::functions::ids::Ids;
    use ::functions::load_balancer::LoadBalancer;
    use ::functions::nat::Nat;
    registry![
        Firewall,
        Nat,
        LoadBalancer,
        FlowMonitor,
        Ids,
        HttpParser,
        Forward,
        HostLimits,
        Counter,
    ]
    .fuse::<(Firewall, Nat, LoadBalancer)>()
    .fuse::<(Firewall, Nat, Ids)>()
    .fuse::<(FlowMonitor, Firewall, HttpParser)>()
    .fuse::<(Firewall, Nat, Forward)>()
    .fuse::<(Firewall, Nat, LoadBalancer, Forward)>()
}

/// A binary with these functions: reads the command line and does what it says.
pub fn main(registry: registry::Registry) -> std::process::ExitCode {
    adapters::pages::spare_space();
    if store::apart::is_asked() {
        return store::apart::serve();
    }
    stores::apart::run_apart();
    main_with(registry, std::env::args_os())
}

/// The same with other words than those of the command line; the first is the program's name. All
/// of it runs in this process, drivers of stores too.
pub fn main_with(
    registry: registry::Registry,
    words: impl IntoIterator<Item = std::ffi::OsString>,
) -> std::process::ExitCode {
    let jobs = cli::jobs::Jobs {
        run: run::job::run,
        bench: bench::job,
        new: make,
        bridge: bridge::run,
        lab: lab::run,
        sim: sim::job,
    };
    cli::main(words, &registry, &jobs)
}

/// The command `new`.
fn make(job: cli::jobs::NewJob) -> std::process::ExitCode {
    // Shown as one would type it.
    let folder = match job.directory.as_path() {
        here if here == std::path::Path::new(".") => job.name.clone().into(),
        elsewhere => elsewhere.join(&job.name),
    };
    match new::create(&job.name, job.kind, &folder) {
        Ok(created) => {
            println!("{created}");
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::from(match error {
                new::NewError::Name { .. } => cli::USAGE,
                _ => cli::FAILURE,
            })
        }
    }
}
