//! An alert as the inside of a line of JSON, with the names of Suricata's EVE.
//!
//! ```text
//!   "timestamp":"2026-11-20T18:46:04.000000+0000","event_type":"alert","src_ip":"10.0.0.1","src_port":1000,
//!   "dest_ip":"192.0.2.1","dest_port":80,"proto":"TCP","alert":{"action":"blocked","gid":1,"signature_id":1,"rev":7,
//!   "signature":"passwd","category":"Attempted Information Leak","severity":2}
//! ```
//!
//! (one line; broken here to be read). Before it stand the event log's own fields: `time`, `runtime`, `function`, `event`. ICMP
//! has `icmp_type` and `icmp_code` instead of ports. Times are the packet's, in UTC.
//!
//! Not here: EVE's other events (flows are the flow monitor's, requests the HTTP parser's).

use super::ruleset::Compiled;
use crate::json::Text;
use core::fmt::{self, Display, Formatter};
use nf::Packet;
use wire::protocol;

/// An alert about a packet.
pub(super) struct Alert<'a> {
    pub packet: &'a Packet,
    pub rule: &'a Compiled,
    pub blocked: bool,
    pub icmp: Option<(u8, u8)>,
}

impl Display for Alert<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (packet, rule) = (self.packet, &self.rule.rule);
        write!(
            f,
            "\"timestamp\":\"{}\",\"event_type\":\"alert\",\"src_ip\":\"{}\"",
            Timestamp(packet.timestamp()),
            packet.source_addr(),
        )?;
        let protocol = packet.protocol();
        let has_ports = matches!(
            protocol,
            protocol::TCP | protocol::UDP | protocol::SCTP | protocol::UDPLITE
        );
        if has_ports {
            write!(f, ",\"src_port\":{}", packet.source_port())?;
        }
        write!(f, ",\"dest_ip\":\"{}\"", packet.destination_addr())?;
        if has_ports {
            write!(f, ",\"dest_port\":{}", packet.destination_port())?;
        }
        match protocol {
            protocol::TCP => f.write_str(",\"proto\":\"TCP\"")?,
            protocol::UDP => f.write_str(",\"proto\":\"UDP\"")?,
            protocol::ICMP => f.write_str(",\"proto\":\"ICMP\"")?,
            protocol::ICMPV6 => f.write_str(",\"proto\":\"IPv6-ICMP\"")?,
            protocol::SCTP => f.write_str(",\"proto\":\"SCTP\"")?,
            other => write!(f, ",\"proto\":\"{other:03}\"")?,
        }
        if let Some((kind, code)) = self.icmp {
            write!(f, ",\"icmp_type\":{kind},\"icmp_code\":{code}")?;
        }
        write!(
            f,
            ",\"alert\":{{\"action\":\"{}\",\"gid\":{},\"signature_id\":{},\"rev\":{},\"signature\":\"{}\",\
             \"category\":\"{}\",\"severity\":{}}}",
            if self.blocked { "blocked" } else { "allowed" },
            rule.gid,
            rule.sid,
            rule.revision,
            Text(rule.message.as_bytes()),
            self.rule.category,
            self.rule.severity,
        )
    }
}

/// Nanoseconds since 1970 as EVE writes times.
struct Timestamp(u64);

impl Display for Timestamp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / 1_000_000_000, self.0 / 1000 % 1_000_000);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Years begin in March here, so that the leap day comes last; an era is 400 years.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let year = 400 * era + year_of_era + u64::from(month <= 2);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{micros:06}+0000",
            second / 3600,
            second / 60 % 60,
            second % 60,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn times_are_calendar_times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000+0000"),
            (951_782_399, "2000-02-28T23:59:59.000000+0000"),
            (951_827_696, "2000-02-29T12:34:56.000000+0000"),
            (4_107_542_400, "2100-03-01T00:00:00.000000+0000"),
            (1_795_200_364, "2026-11-20T18:46:04.000000+0000"),
        ] {
            assert_eq!(Timestamp(seconds * 1_000_000_000).to_string(), text);
        }
        assert_eq!(Timestamp(1_234_567_891).to_string(), "1970-01-01T00:00:01.234567+0000");
    }
}
