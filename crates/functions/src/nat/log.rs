//! NAT's lines in the event log: mappings or blocks, as they come and go (RFC 6888 REQ-12 to 14).
//!
//! ```text
//!   "event":"mapping_created","inside":"10.0.0.1:5000","outside":"203.0.113.1:1733","protocol":"udp"
//!   "event":"block_claimed","host":"10.0.0.1","outside":"203.0.113.1","ports":"1536-1791"
//!   "event":"pool_low","free_blocks":126,"blocks":1008,"lasts_seconds":42
//! ```
//!
//! A mapping is logged for nearly every new flow of many clients, so its line is put together by
//! hand: the formatting machinery would take several times as long as making the mapping.
//!
//! Invariant: a line's fields fit into [`LINE`] bytes; the longest has 102.
//!
//! Not here: the line's time, runtime and function ([`nf::cx::EventLog`] writes them).

use super::Nat;
use super::alarm::Report;
use super::config::Log;
use super::mappings::Mapping;
use super::state::V4Endpoint;
use nf::{Block, Cx, Event, Field, Name};
use wire::protocol;

const LINE: usize = 128;

const MAPPING: &[Field] = &[
    Field::text("inside", "Address and port of the inside host."),
    Field::text("outside", "External address and port."),
    Field::text("protocol", "`tcp`, `udp` or `icmp`."),
    Field::number("vlan", "", "VLAN identifier; absent without one."),
];
const BLOCK: &[Field] = &[
    Field::text("host", "Address of the inside host."),
    Field::text("outside", "External address."),
    Field::text("ports", "First and last port."),
];

/// The events that NAT writes.
pub(super) const EVENTS: &[Event] = &[
    Event::new(
        "mapping_created",
        "With `log = \"mappings\"`: a host got an external port.",
        MAPPING,
    ),
    Event::new(
        "mapping_released",
        "With `log = \"mappings\"`: the port is free again.",
        MAPPING,
    ),
    Event::new(
        "block_claimed",
        "With `log = \"blocks\"`: a host got a block of external ports.",
        BLOCK,
    ),
    Event::new(
        "block_released",
        "With `log = \"blocks\"`: the block is free again.",
        BLOCK,
    ),
    Event::new(
        "pool_low",
        "An eighth of a runtime's blocks or less is free; again only after a while, or when more were free.",
        &[
            Field::number("free_blocks", "blocks", "Blocks that are free at the runtime."),
            Field::number("blocks", "blocks", "Blocks that are the runtime's own."),
            Field::number(
                "lasts_seconds",
                "s",
                "Until no block is free, at the present rate; `null` while no fewer become free.",
            ),
        ],
    ),
];

/// Bytes put together on the stack; a part that does not fit is left out.
struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl Line {
    fn new() -> Self {
        Line {
            bytes: [0; LINE],
            length: 0,
        }
    }

    #[inline]
    fn text(&mut self, text: &str) -> &mut Self {
        let end = self.length + text.len();
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(text.as_bytes());
            self.length = end;
        }
        self
    }

    #[inline]
    fn number(&mut self, number: u16) -> &mut Self {
        let mut digits = [0; 5];
        let (mut rest, mut at) = (number, digits.len());
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.text(core::str::from_utf8(&digits[at..]).unwrap_or_default())
    }

    #[inline]
    fn addr(&mut self, addr: [u8; 4]) -> &mut Self {
        self.number(addr[0].into());
        for byte in &addr[1..] {
            self.text(".").number((*byte).into());
        }
        self
    }

    #[inline]
    fn endpoint(&mut self, endpoint: V4Endpoint) -> &mut Self {
        self.addr(endpoint.addr).text(":").number(endpoint.port)
    }

    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

/// Says how far the pool is used up.
#[nf::network_function]
pub(super) fn log_pool(Report { free, blocks, lasts }: Report, cx: &mut Cx<Nat>) {
    match lasts {
        Some(seconds) => cx.event(
            "pool_low",
            format_args!("\"free_blocks\":{free},\"blocks\":{blocks},\"lasts_seconds\":{seconds}"),
        ),
        None => cx.event(
            "pool_low",
            format_args!("\"free_blocks\":{free},\"blocks\":{blocks},\"lasts_seconds\":null"),
        ),
    }
}

#[nf::network_function]
impl Nat {
    pub(super) fn log_mapping(&self, m: &Mapping, event: Name, cx: &mut Cx<Self>) {
        if self.config.log != Log::Mappings {
            return;
        }
        let name = match m.protocol {
            protocol::TCP => "tcp",
            protocol::UDP => "udp",
            _ => "icmp",
        };
        let mut line = Line::new();
        line.text("\"inside\":\"").endpoint(m.inside);
        line.text("\",\"outside\":\"").endpoint(m.outside);
        line.text("\",\"protocol\":\"").text(name).text("\"");
        if m.vlan != 0 {
            line.text(",\"vlan\":").number(m.vlan);
        }
        cx.event(event, format_args!("{}", line.as_str()));
    }

    pub(super) fn log_block(&self, block: Block, inside: [u8; 4], event: Name, cx: &mut Cx<Self>) {
        if self.config.log != Log::Blocks {
            return;
        }
        let mut line = Line::new();
        line.text("\"host\":\"").addr(inside);
        line.text("\",\"outside\":\"")
            .addr(block.addr.as_v4().unwrap_or_default());
        line.text("\",\"ports\":\"").number(block.first);
        line.text("-").number(block.first + (block.ports - 1)).text("\"");
        cx.event(event, format_args!("{}", line.as_str()));
    }
}

#[cfg(test)]
mod unit {
    use super::{Line, V4Endpoint};

    #[test]
    fn numbers_and_addresses_read_as_they_should() {
        let mut line = Line::new();
        line.endpoint(V4Endpoint::new([255, 0, 10, 109], 65535))
            .text(" ")
            .number(0);
        assert_eq!(line.as_str(), "255.0.10.109:65535 0");
        // A part that does not fit is left out whole.
        for _ in 0..40 {
            line.text("abcd");
        }
        assert_eq!(line.as_str().len(), 20 + 27 * 4);
    }
}
