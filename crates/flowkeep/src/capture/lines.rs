//! Captured packets as lines, as tcpdump prints them by and large.

use super::{CapturePoint, Frame};
use crate::trace::time_of_day;
use wire::memory::Region;
use wire::{LinkType, PacketBox, Pool};

/// Bytes of the longest frame that is read.
const FRAME: usize = 65_535;

/// Turns packets into lines.
pub struct Lines {
    ports: Vec<String>,
    width: usize,
    pool: Pool,
}

impl Lines {
    /// Of ports with these names.
    pub fn new(ports: Vec<String>) -> Self {
        let width = ports.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let region = Region::heap(Pool::region_length(1, FRAME));
        Lines {
            ports,
            width,
            pool: Pool::new(region, 1, FRAME, 0),
        }
    }

    /// A packet's line.
    pub fn line(&mut self, frame: &Frame) -> String {
        let port = self
            .ports
            .get(usize::from(frame.port))
            .map_or("?", String::as_str);
        let place = match frame.place {
            CapturePoint::In => "In",
            CapturePoint::Out => "Out",
            CapturePoint::Drop => "Drop",
        };
        let width = self.width;
        let mut head = format!("{} {port:width$} {place:<4}", time_of_day(frame.time_ns));
        if let Some(member) = &frame.member {
            head = format!("{head} ({member})");
        }
        let what = self.what(frame);
        match &frame.reason {
            Some(reason) => format!("{head} {what}, dropped: {reason}"),
            None => format!("{head} {what}"),
        }
    }

    fn what(&mut self, frame: &Frame) -> String {
        let length = frame.length;
        let Some(mut packet) = self.pool.take() else {
            return format!("{length} bytes");
        };
        let said = read(&mut packet, frame).unwrap_or_else(|| format!("no IP, {length} bytes"));
        self.pool.give(packet);
        said
    }
}

fn read(packet: &mut PacketBox, frame: &Frame) -> Option<String> {
    let link = LinkType::from_pcap(frame.link)?;
    if !packet.set_frame(&frame.bytes.0, link) {
        return None;
    }
    packet.set_wire_length(frame.length);
    wire::parse(packet).ok()?;
    let protocol = wire::key::protocol_name(packet.protocol());
    let vlan = match packet.vlan() {
        0 => String::new(),
        vlan => format!("vlan {vlan} "),
    };
    let flags = match packet.protocol() {
        wire::protocol::TCP => packet.transport().get(13).map_or(String::new(), |flags| {
            format!(" [{}]", crate::run::flag_letters(*flags))
        }),
        _ => String::new(),
    };
    let later = packet.has(wire::packet::flag::LATER_FRAGMENT);
    let ends = |addr: wire::Addr, port: u16| match port {
        0 => addr.to_string(),
        port => wire::Endpoint::new(addr, port).to_string(),
    };
    Some(format!(
        "{vlan}{protocol} {} > {}{flags}{}, {} bytes",
        ends(packet.source_addr(), packet.source_port()),
        ends(packet.destination_addr(), packet.destination_port()),
        if later { " fragment" } else { "" },
        frame.length
    ))
}
