//! Options of a member that the configuration does not list.

use crate::config::values::link_address_of;
use crate::member::newcomer::Words;
use clap::Args;
use std::net::IpAddr;

#[derive(Args, Debug)]
#[command(
    next_help_heading = "Of a node that the configuration does not list, which joins while the others run"
)]
pub(super) struct NewcomerWords {
    /// How many runtimes it has; the coordinator gives them numbers below `runtimes_max`
    #[arg(long, value_name = "COUNT", requires = "join", value_parser = clap::value_parser!(u16).range(1..=64))]
    runtimes: Option<u16>,
    /// Where it runs: members with the same word share memory
    #[arg(long, value_name = "WORD", requires = "runtimes", default_value = "here")]
    host: String,
    /// The hosts of one rack fail together
    #[arg(long, value_name = "WORD", requires = "runtimes")]
    rack: Option<String>,
    /// The host's address, for links to members of other hosts
    #[arg(long, value_name = "ADDRESS", requires = "runtimes")]
    address: Option<IpAddr>,
    /// The host's interface for links on Ethernet
    #[arg(long, value_name = "NAME", requires = "link_address")]
    interface: Option<String>,
    /// The link address of --interface
    #[arg(long, value_name = "BYTES", requires = "interface", value_parser = link_address_of)]
    link_address: Option<[u8; 6]>,
}

impl NewcomerWords {
    /// Nothing, where the configuration is to list the member.
    pub fn words(self) -> Option<Words> {
        Some(Words {
            runtimes: self.runtimes?,
            host: self.host,
            rack: self.rack,
            address: self.address,
            interface: self.interface,
            link_address: self.link_address,
        })
    }
}
