//! Recorded connections to play again, and the list that says which and how often.
//!
//! The list is TRex's (`cap_info` of a traffic profile), of which two settings are read for each
//! template: `name`, a capture beside the list, and `cps`, its connections per second. The list is
//! YAML, but read line by line: other settings are skipped.
//!
//! ```text
//!   cap_info :
//!      - name: avl/delay_10_dns_0.pcap      the folder is left out: the capture lies beside the list
//!        cps : 498.0
//! ```
//!
//! A capture's client is the sender of its first packet; a packet from another address is a
//! server's.
//!
//! Not here: playing ([`super`]).

use super::super::profile::ProfileError;
use crate::pcap::Reader;
use std::ops::Range;
use std::path::Path;
use wire::memory::Region;
use wire::{Addr, LinkType, Packet, Pool};

/// A recorded connection.
pub struct Template {
    /// The capture's name.
    pub name: String,
    /// Connections per second.
    pub rate: f64,
    /// Its packets, in order of time.
    pub packets: Vec<Recorded>,
    /// All frames, one behind the other.
    bytes: Vec<u8>,
    /// The client's port in its first packet.
    pub client_port: u16,
}

/// A packet of a template.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Nanoseconds from the first packet.
    pub after: u64,
    /// Whether the client sends it.
    pub from_client: bool,
    /// Its length on the wire.
    pub wire_length: u32,
    bytes: Range<usize>,
}

impl Template {
    /// The frame of a packet.
    pub fn frame(&self, packet: &Recorded) -> &[u8] {
        &self.bytes[packet.bytes.clone()]
    }

    /// Reads a capture. Ethernet and IPv4 only; other frames (ARP, for example) are left out.
    fn read(path: &Path, rate: f64) -> Result<Template, ProfileError> {
        let name = path.display().to_string();
        let refuse = |problem: String| ProfileError::new("mix", problem, "put the captures beside the list");
        let mut reader = Reader::open(path).map_err(|e| refuse(e.to_string()))?;
        let mut pool = Pool::new(Region::heap(Pool::region_length(1, 65_535)), 1, 65_535, 0);
        let mut packet = pool.take().ok_or_else(|| refuse("no memory".into()))?;
        let mut template = Template {
            name,
            rate,
            packets: Vec::new(),
            bytes: Vec::new(),
            client_port: 0,
        };
        let mut first: Option<(u64, Addr)> = None;
        while let Some(record) = reader.next().map_err(|e| refuse(e.to_string()))? {
            let frame = reader.frame(&record);
            if record.link != Ok(LinkType::Ethernet) || !is_ipv4(&mut packet, frame, record.wire_length) {
                continue;
            }
            let (start, client) = *first.get_or_insert_with(|| {
                template.client_port = packet.source_port();
                (record.nanoseconds, packet.source_addr())
            });
            let from = template.bytes.len();
            template.bytes.extend_from_slice(frame);
            template.packets.push(Recorded {
                after: record.nanoseconds.saturating_sub(start),
                from_client: packet.source_addr() == client,
                wire_length: record.wire_length,
                bytes: from..template.bytes.len(),
            });
        }
        pool.give(packet);
        if template.packets.is_empty() {
            return Err(refuse(format!(
                "{} has no IPv4 packet on Ethernet",
                template.name
            )));
        }
        template.packets.sort_by_key(|p| p.after);
        Ok(template)
    }
}

fn is_ipv4(packet: &mut Packet, frame: &[u8], wire_length: u32) -> bool {
    if !packet.set_frame(frame, LinkType::Ethernet) {
        return false;
    }
    packet.set_wire_length(wire_length);
    wire::parse(packet).is_ok() && packet.version() == 4
}

/// Reads a list and its captures.
pub fn read_list(list: &Path) -> Result<Vec<Template>, ProfileError> {
    let text = std::fs::read_to_string(list).map_err(|error| {
        ProfileError::new(
            "mix",
            format!("{} cannot be read ({error})", list.display()),
            "name a TRex traffic profile",
        )
    })?;
    let folder = list.parent().unwrap_or(Path::new("."));
    let mut templates = Vec::new();
    for (name, rate) in entries(&text)? {
        let file = Path::new(&name).file_name().unwrap_or_default();
        templates.push(Template::read(&folder.join(file), rate)?);
    }
    Ok(templates)
}

/// Names and rates of a list.
pub fn entries(text: &str) -> Result<Vec<(String, f64)>, ProfileError> {
    let mut found: Vec<(String, Option<f64>)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some((key, value)) = line.trim_start_matches('-').split_once(':') else {
            continue;
        };
        let value = value.trim();
        match (key.trim(), found.last_mut()) {
            ("name", _) => found.push((value.trim_matches('"').to_string(), None)),
            ("cps", Some((_, rate))) => match value.parse::<f64>() {
                Ok(cps) if cps > 0.0 && cps <= 1e9 => *rate = Some(cps),
                _ => {
                    return Err(ProfileError::new(
                        "mix",
                        format!("`{value}` in line {} are no connections per second", number + 1),
                        "write a number above 0",
                    ));
                }
            },
            _ => {}
        }
    }
    let whole: Option<Vec<(String, f64)>> = found
        .into_iter()
        .map(|(name, rate)| Some((name, rate?)))
        .collect();
    match whole {
        Some(entries) if !entries.is_empty() => Ok(entries),
        _ => Err(ProfileError::new(
            "mix",
            "the list has no template, or one without `cps`",
            "write `- name: FILE.pcap` and `cps : NUMBER` for each",
        )),
    }
}
