//! `chain`: configurations.

use super::Listing;
use crate::cli::reach::Asking;
use clap::Subcommand;
use nf::Period;
use std::path::PathBuf;

/// A time within which a configuration may be confirmed.
fn trial_time(text: &str) -> Result<Period, String> {
    let time: Period = text
        .parse()
        .map_err(|error: nf::units::UnitError| error.to_string())?;
    let ms = u64::try_from(time.duration().as_millis()).unwrap_or(u64::MAX);
    crate::apply::trial::time_of(ms).map(|_| time)
}

#[derive(Subcommand, Debug)]
pub(in crate::cli) enum ChainVerb {
    /// Check a configuration, and show its chains
    #[command(
        after_help = "Exit codes: 0 it is good; 2 it is not. With --strict 1, too: `flowkeep run` would refuse it here and now.\n\n\
                      Example:\n  flowkeep chain check gateway.toml"
    )]
    Check {
        /// The configuration
        config: PathBuf,
        /// A configuration that `flowkeep run` refuses on this machine, as this user, is an error
        /// rather than a warning
        #[arg(long)]
        strict: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say what another configuration would change in the running cluster, and which live flows it
    /// would cut
    #[command(after_help = "\
Exit codes: 0 nothing differs, or it can be applied without cutting a flow; 1 failed; 2 it cannot be applied while the cluster runs, or is \
wrong; 3 it would cut flows.

Example:
  flowkeep chain diff gateway.toml")]
    Diff {
        /// The configuration
        config: PathBuf,
        #[command(flatten)]
        listing: Listing,
    },
    /// Put another configuration in force in the running cluster, without a restart
    #[command(after_help = "\
It says first what chain diff says. Flows that the new configuration lets go on are kept as they are; if it cut any, nothing is changed \
unless --cut is given.

Exit codes: 0 it is in force; 1 failed; 2 it cannot be applied while the cluster runs, or is wrong; 3 it would cut flows. But for 0, nothing \
has changed.

Examples:
  flowkeep chain apply gateway.toml
  flowkeep chain apply gateway.toml --cut
  flowkeep chain apply --confirm 60s gateway.toml
  flowkeep chain apply --rollback

With --confirm the configuration goes back by itself after that time, unless `flowkeep chain confirm` is said: a mistake that cuts you off \
mends itself. Going back cuts the flows that the configuration before does not allow. Until then no other configuration is applied.

With --cluster, chains and functions change at all members or at none, and all other settings must be those in force; it takes the role \
admin. A member that is away takes the configuration on when it comes back. With --confirm the coordinator has all members go back; the \
command, the coordinator and members may end meanwhile.")]
    Apply {
        /// The configuration
        #[arg(required_unless_present = "rollback")]
        config: Option<PathBuf>,
        /// Cut the flows that the new configuration does not allow
        #[arg(long)]
        cut: bool,
        /// Go back to the configuration before
        #[arg(long, conflicts_with = "config")]
        rollback: bool,
        /// Go back after this time, 1s to 24h, unless `flowkeep chain confirm` is said
        #[arg(long, value_name = "TIME", conflicts_with = "rollback", value_parser = trial_time)]
        confirm: Option<Period>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Keep the configuration that is on trial (chain apply --confirm)
    #[command(after_help = "\
Exit codes: 0 it stays; 1 no configuration is on trial, or it is going back already.

Example:
  flowkeep chain confirm")]
    Confirm(Asking),
    /// Put the configuration before in force again: the same as chain apply --rollback
    #[command(after_help = "Example:\n  flowkeep chain rollback --cut")]
    Rollback {
        /// Cut the flows that the configuration before does not allow
        #[arg(long)]
        cut: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Print the JSON schema of configurations, for editors
    #[command(after_help = "\
Examples:
  flowkeep chain schema > flowkeep.schema.json
  and as the first line of the configuration:  #:schema flowkeep.schema.json
  flowkeep chain schema --page > settings.md")]
    Schema {
        /// Print the reference of all settings instead, as a page (Markdown)
        #[arg(long)]
        page: bool,
    },
}
