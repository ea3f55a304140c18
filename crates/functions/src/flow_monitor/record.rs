//! The record of a flow as the inside of a JSON object; the module's page says what each field is.
//!
//! Not here: the braces and the event's own fields (`nf::cx::EventLog`).

use super::state::Flow;
use core::fmt::{self, Display, Formatter};
use nf::{Field, FlowKey};
use wire::Endpoint;
use wire::key::protocol_name;

/// The fields of a record.
pub(super) const FIELDS: &[Field] = &[
    Field::text("protocol", "Transport protocol's name."),
    Field::number("protocol_number", "", "Its IP protocol number."),
    Field::text("orig", "Address of the end that asked."),
    Field::number("orig_port", "", "Its port."),
    Field::text("resp", "Address of the end that answered."),
    Field::number("resp_port", "", "Its port."),
    Field::number("vlan", "", "VLAN identifier, or 0."),
    Field::number(
        "start",
        "s",
        "Time of the first packet; of day, or in a replay the capture's.",
    ),
    Field::number("end", "s", "Time of the last packet."),
    Field::number("orig_packets", "packets", "Packets from `orig`."),
    Field::number("orig_bytes", "bytes", "Payload from `orig`."),
    Field::number(
        "orig_ip_bytes",
        "bytes",
        "IP packets from `orig`, headers included.",
    ),
    Field::text(
        "orig_flags",
        "TCP flags seen from `orig`, by their first letters.",
    ),
    Field::number("resp_packets", "packets", "Packets from `resp`."),
    Field::number("resp_bytes", "bytes", "Payload from `resp`."),
    Field::number(
        "resp_ip_bytes",
        "bytes",
        "IP packets from `resp`, headers included.",
    ),
    Field::text("resp_flags", "TCP flags seen from `resp`."),
    Field::text(
        "history",
        "A letter for each thing that happened, as Zeek has them.",
    ),
    Field::text("state", "State of the connection at its end."),
    Field::number("icmp_errors", "packets", "ICMP errors about the flow."),
];

/// Prints a flow's record.
pub struct Record<'a> {
    /// The flow's key.
    pub key: &'a FlowKey,
    /// The end that opened the flow, and the other.
    pub ends: (Endpoint, Endpoint),
    /// The flow's counts.
    pub flow: &'a Flow,
}

impl Display for Record<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Record { key, ends, flow } = self;
        let protocol = key.protocol();
        let connection = &flow.connection;
        // The flow counts by the end that sent first, the record by the end that asked.
        let (orig, resp, counted) = match connection.is_turned() {
            true => (ends.1, ends.0, [1, 0]),
            false => (ends.0, ends.1, [0, 1]),
        };
        write!(
            f,
            "\"protocol\":\"{}\",\"protocol_number\":{protocol},\"orig\":\"{}\",\"orig_port\":{},\"resp\":\"{}\",\
             \"resp_port\":{},\"vlan\":{},\"start\":{},\"end\":{}",
            protocol_name(protocol),
            orig.addr,
            orig.port,
            resp.addr,
            resp.port,
            key.vlan(),
            flow.start,
            flow.end,
        )?;
        for (me, name) in ["orig", "resp"].into_iter().enumerate() {
            let from = counted[me];
            write!(
                f,
                ",\"{name}_packets\":{},\"{name}_bytes\":{},\"{name}_ip_bytes\":{},\"{name}_flags\":\"{}\"",
                flow.packets[from],
                flow.bytes[from],
                flow.ip_bytes[from],
                Flags(connection.flags[me].into()),
            )?;
        }
        write!(
            f,
            ",\"history\":\"{}\",\"state\":\"{}\",\"icmp_errors\":{}",
            connection.history,
            flow.state(protocol).name(),
            connection.icmp_errors,
        )
    }
}

/// TCP flags by their first letters, from FIN to CWR.
struct Flags(u8);

impl Display for Flags {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (bit, letter) in "FSRPAUEC".char_indices() {
            if self.0 & (1 << bit) != 0 {
                fmt::Write::write_char(f, letter)?;
            }
        }
        Ok(())
    }
}
