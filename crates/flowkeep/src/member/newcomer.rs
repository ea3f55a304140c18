//! A member that no configuration lists: its command line, and the numbers that its runtimes get.
//!
//! # Theory of operation
//!
//! ```text
//!   flowkeep node FILE --member d --runtimes 1 --host h --address A --join … --token …
//!     FILE       the members' own, without `d`: chains, functions, keys, sizes; words on it are those of all members
//!     the words  a [`Member`] of this process alone, behind those of FILE
//!   ── certificate by the token ─► Enlist: numbers behind the listed ones ─► workers made ─► Join ─► links to listed members, by FILE
//!                                                                                             └─► links of running members, by the contact
//! ```
//!
//! The key of frames is in FILE's key file, as every member's. The coordinator never has it, so an
//! attacker that takes the coordinator over reads no frame. Chains and functions come from the
//! coordinator, if it has decided a configuration.
//!
//! Invariants: a command line or a contact is checked before a link is made of it; the numbers are
//! behind the listed ones and below `runtimes_max`.
//!
//! Not here: links that are laid while a member runs (`run::laying`), the log of numbers and
//! contacts (`coordinator::decider`).

use super::Membership;
use super::joining::{JoinError, Joining};
use super::secrets::difference;
use crate::config::layout::Layout;
use crate::config::{Config, Member};
use coordinator::proto::{Contact, EnlistRequest, Plan};
use protocols::channel::{AGREED, IN_HEAD};
use std::net::IpAddr;
use std::path::PathBuf;

/// The options of a command line for a member that is not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// How many runtimes it has.
    pub runtimes: u16,
    /// Where it runs: members with the same word share memory.
    pub host: String,
    /// The hosts of one rack fail together.
    pub rack: Option<String>,
    /// For links to other hosts.
    pub address: Option<IpAddr>,
    /// For links on Ethernet, with its address.
    pub interface: Option<String>,
    /// That interface's address.
    pub link_address: Option<[u8; 6]>,
}

impl Words {
    /// The member that they describe, if there can be such a one beside those of the configuration.
    pub fn member(&self, name: &str, config: &Config) -> Result<Member, String> {
        let member = Member {
            name: name.to_owned(),
            switches: None,
            runtimes: Some(self.runtimes),
            host: self.host.clone(),
            rack: self.rack.clone(),
            address: self.address,
            interface: self.interface.clone(),
            link_address: self.link_address,
            socket: None,
            metrics: None,
            events: None,
            first: None,
        };
        let room = config.most_runtimes() - config.runtimes;
        if !(1..=room).contains(&self.runtimes) {
            return Err(format!(
                "--runtimes {}: the configuration has room for {room} runtimes of members that it does not list; ask for fewer, or write a higher \
                 `runtimes_max` into it and start all members again",
                self.runtimes
            ));
        }
        beside(&member, &config.member)?;
        Ok(member)
    }
}

/// Whether a member can be beside these.
fn beside(member: &Member, others: &[Member]) -> Result<(), String> {
    if member.interface.is_some() != member.link_address.is_some() {
        return Err(
            "--interface and --link-address belong together; say both: `ip link` shows the address"
                .to_owned(),
        );
    }
    if let Some(address) = member.link_address
        && (address[0] & 1 != 0 || address == [0; 6])
    {
        return Err(
            "--link-address is no address of one interface; say what `ip link` shows for it".to_owned(),
        );
    }
    if let Some(address) = member.address
        && (address.is_unspecified() || address.is_multicast())
    {
        return Err(format!(
            "--address {address} is no address that others can send to; say the host's own"
        ));
    }
    for other in others.iter().filter(|other| other.host != member.host) {
        let name = &other.name;
        if member.address.is_some() && member.address == other.address
            || member.link_address.is_some() && member.link_address == other.link_address
        {
            return Err(format!(
                "an address of this host is that of member `{name}`, on host `{}`; say this host's own, or --host {}",
                other.host, other.host
            ));
        }
        if member.segment().is_some() && other.segment().is_some() {
            continue;
        }
        match (member.address, other.address) {
            (None, _) => {
                return Err(format!(
                    "member `{name}` is on host `{}`, and this one on `{}` without an address; say --address, or --host {}",
                    other.host, member.host, other.host
                ));
            }
            (Some(_), None) => {
                return Err(format!(
                    "member `{name}` has no address for links to other hosts; write one into the configuration of all members, or say --host {}",
                    other.host
                ));
            }
            (Some(own), Some(there)) if own.is_ipv4() != there.is_ipv4() => {
                return Err(format!(
                    "--address {own} is of another family than {there}, of member `{name}`; say one of the same"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The contact that the coordinator hands to others.
fn contact(member: &Member) -> Contact {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Contact {
        host: member.host.clone(),
        rack: text(&member.rack),
        address: member
            .address
            .map(|address| address.to_string())
            .unwrap_or_default(),
        interface: text(&member.interface),
        link_address: member.link_address.map(Vec::from).unwrap_or_default(),
        socket: member
            .socket
            .as_ref()
            .map(|path| path.display().to_string())
            .unwrap_or_default(),
        ..Contact::default()
    }
}

/// A member as a contact has it. Whatever is in it, it is no more than a member of a configuration
/// may be.
pub fn member_of(contact: &Contact) -> Result<Member, String> {
    let name = &contact.member;
    if !crate::config::cluster::is_good_name(name) || contact.host.is_empty() {
        return Err(format!("{name:?} at host {:?} is no member", contact.host));
    }
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    let address = some(&contact.address).map(|text| text.parse::<IpAddr>());
    let link_address = match &contact.link_address[..] {
        [] => None,
        bytes => Some(
            <[u8; 6]>::try_from(bytes)
                .map_err(|_| format!("the link address of `{name}` has not 6 bytes"))?,
        ),
    };
    let member = Member {
        name: name.clone(),
        switches: None,
        runtimes: Some(1),
        host: contact.host.clone(),
        rack: some(&contact.rack),
        address: address
            .transpose()
            .map_err(|_| format!("`{name}` has the address {:?}, which is none", contact.address))?,
        interface: some(&contact.interface),
        link_address,
        socket: some(&contact.socket).map(PathBuf::from),
        metrics: None,
        events: None,
        first: None,
    };
    beside(&member, &[]).map_err(|why| format!("member `{name}`: {why}"))?;
    Ok(member)
}

/// The plan of the cluster by a member's configuration.
pub fn plan(config: &Config, agreed: &[u64; AGREED]) -> Plan {
    Plan {
        listed: config.runtimes.into(),
        most: config.most_runtimes().into(),
        words: agreed.to_vec(),
    }
}

/// Has the newcomer get its numbers. Answers with a listed member's plan of the cluster.
pub fn enlist(
    joining: &Joining,
    membership: &mut Membership,
    config: &mut Config,
) -> Result<Plan, JoinError> {
    let own = plan(config, &membership.secrets.agreed);
    let bounds = config.runtimes..config.most_runtimes();
    let member = &mut config.member[membership.place];
    let wanted = member.runtimes.unwrap_or(1);
    let answer = joining.enlist(&EnlistRequest {
        contact: Some(contact(member)),
        runtimes: wanted.into(),
        plan: Some(own),
    })?;
    let numbers: Vec<u16> = answer
        .numbers
        .iter()
        .filter_map(|number| u16::try_from(*number).ok())
        .collect();
    let first = numbers.first().copied().unwrap_or(0);
    let follow = numbers.iter().zip(first..).all(|(number, next)| *number == next);
    let is_good =
        numbers.len() == usize::from(wanted) && numbers.iter().all(|number| bounds.contains(number));
    if !(follow && is_good) {
        return Err(JoinError::Numbers {
            given: format!("{:?}", answer.numbers),
            planned: format!("{wanted} that follow each other in {bounds:?}"),
        });
    }
    member.first = Some(first);
    membership.layout = Layout::of_member(config, membership.place);
    let raised = membership.incarnation.raise_above(answer.incarnation);
    raised.map_err(|error| JoinError::Other(format!("{error}; {}", error.remedy())))?;
    Ok(answer.plan.unwrap_or_default())
}

/// Whether this member has the others' version, settings and layouts. `is_decided`: chains and
/// functions are those that the coordinator has decided, whatever the other member began with.
pub fn compare(there: &Plan, membership: &Membership, is_decided: bool) -> Result<(), JoinError> {
    let own = &membership.secrets.agreed;
    let mut differs: [u64; AGREED] =
        std::array::from_fn(|at| there.words.get(at).map_or(0, |word| word ^ own[at]));
    if is_decided {
        differs[1..2].fill(0);
        differs[IN_HEAD..].fill(0);
    }
    match difference(&differs, &membership.secrets.functions) {
        None => Ok(()),
        Some(what) => Err(JoinError::Differs(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let text = "[cluster]\nname = \"edge\"\nkeys = [\"edge.key\"]\n\
             [[member]]\nname = \"front\"\nswitches = 1\nhost = \"a\"\naddress = \"10.0.0.1\"\n\
             [[member]]\nname = \"left\"\nruntimes = 2\nhost = \"b\"\naddress = \"10.0.0.2\"\n\
             [[chain]]\nname = \"all\"\nfunctions = [\"flow_monitor\"]\n";
        crate::config::parse("f.toml", text, &crate::functions()).unwrap()
    }

    fn words(host: &str, address: Option<&str>) -> Words {
        Words {
            runtimes: 1,
            host: host.to_owned(),
            address: address.map(|address| address.parse().unwrap()),
            ..Words::default()
        }
    }

    #[test]
    fn what_a_command_line_says_fits_beside_the_members() {
        let config = config();
        let wrong = |words: Words, says: &[&str]| {
            let why = words.member("d", &config).unwrap_err();
            assert!(says.iter().all(|part| why.contains(part)), "{why}");
        };
        let good = words("c", Some("10.0.0.3")).member("d", &config).unwrap();
        assert_eq!((good.name.as_str(), good.runtimes), ("d", Some(1)));
        assert!(
            words("b", Some("10.0.0.2")).member("d", &config).is_ok(),
            "beside `left`"
        );
        wrong(words("c", None), &["`front`", "--address"]);
        wrong(words("c", Some("10.0.0.2")), &["`left`", "--host b"]);
        wrong(words("c", Some("0.0.0.0")), &["0.0.0.0"]);
        wrong(words("c", Some("fd00::1")), &["another family"]);
        let many = Words {
            runtimes: 9,
            ..words("c", Some("10.0.0.3"))
        };
        wrong(many, &["--runtimes 9", "room for 8", "runtimes_max"]);
        let half = Words {
            interface: Some("eth1".to_owned()),
            ..words("c", Some("10.0.0.3"))
        };
        wrong(half, &["--link-address"]);
    }

    #[test]
    fn contacts_read_back_and_others_are_refused() {
        let member = words("c", Some("10.0.0.3")).member("d", &config()).unwrap();
        let good = Contact {
            member: "d".to_owned(),
            ..contact(&member)
        };
        assert_eq!(member_of(&good), Ok(member));
        for wrong in [
            Contact {
                member: "../d".to_owned(),
                ..good.clone()
            },
            Contact {
                host: String::new(),
                ..good.clone()
            },
            Contact {
                address: "here".to_owned(),
                ..good.clone()
            },
            Contact {
                address: "224.0.0.1".to_owned(),
                ..good.clone()
            },
            Contact {
                interface: "eth1".to_owned(),
                link_address: vec![2; 5],
                ..good.clone()
            },
            Contact {
                interface: "eth1".to_owned(),
                link_address: vec![1; 6],
                ..good.clone()
            },
            Contact {
                link_address: vec![2; 6],
                ..good.clone()
            },
        ] {
            assert!(member_of(&wrong).is_err(), "{wrong:?}");
        }
    }
}
