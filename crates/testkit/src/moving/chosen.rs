//! External endpoints that a function chooses at random, and may choose otherwise another time.
//!
//! # Theory of operation
//! A packet that leaves from a chosen endpoint is compared as if it left from the endpoint that it
//! came in from, together with how often the endpoint of its conversation has changed so far, and
//! whether its sender used that endpoint last. So the endpoint itself may be another one, but a
//! conversation keeps it, and conversations that have one in common have:
//!
//! ```text
//!   flows stay   10.0.0.1:5 > 9.9.9.9:1   leaves from 203.0.113.1:4711      first choice
//!                10.0.0.1:5 > 9.9.9.9:2                 203.0.113.1:4711    first choice, as used last
//!   they move    10.0.0.1:5 > 9.9.9.9:1                 203.0.113.1:1234    first choice
//!                10.0.0.1:5 > 9.9.9.9:2                 203.0.113.1:4321    first choice, not as used last: a difference
//! ```
//!
//! Of ICMP errors that have to do with a chosen address the length is compared. In the event log
//! and in flows' states such endpoints are left out.
//!
//! Not here: whether replies find their way: they come to the endpoint that was chosen, and packets
//! that leave to inside are compared byte by byte.

use super::rig::Left;
use super::story::Story;
use crate::sent::Copied;
use nf::{Addr, Endpoint, Prefix, Side};
use std::collections::HashMap;
use wire::LinkType;
use wire::packet::flag;
use wire::rewrite::End;

/// A packet as it is compared.
#[derive(Clone, PartialEq, Eq)]
pub struct Compared {
    pub side: Side,
    pub link: LinkType,
    pub bytes: Vec<u8>,
    /// How often the conversation's endpoint has changed; whether it was used last.
    choice: (u32, bool),
}

/// Where endpoints are chosen from.
#[derive(Default)]
pub struct Chosen(pub Vec<Prefix>);

/// Which endpoints have been used.
#[derive(Default)]
struct Used {
    /// By protocol and both ends of the conversation: the endpoint, and how often it has changed.
    by_conversation: HashMap<(u8, Endpoint, Endpoint), (Endpoint, u32)>,
    /// By protocol and the sender that it is for.
    last: HashMap<(u8, Endpoint), Endpoint>,
}

impl Used {
    fn choice(&mut self, protocol: u8, chosen: Endpoint, ends: (Endpoint, Endpoint)) -> (u32, bool) {
        let is_last = self.last.insert((protocol, ends.0), chosen) == Some(chosen);
        let (known, changes) = self
            .by_conversation
            .entry((protocol, ends.0, ends.1))
            .or_insert((chosen, 0));
        if *known != chosen {
            (*known, *changes) = (chosen, *changes + 1);
        }
        (*changes, is_last)
    }
}

impl Chosen {
    /// Packets that left with each step, as they are compared.
    pub fn compared(&self, story: &Story) -> Vec<Vec<Compared>> {
        let mut used = Used::default();
        let mut compare = |left: &Left, from: Option<Endpoint>| {
            let mut compared = Compared {
                side: left.side,
                link: left.link,
                bytes: left.bytes.clone(),
                choice: (0, false),
            };
            if !self.0.is_empty() {
                self.rename(&mut compared, from, &mut used);
            }
            compared
        };
        let mut whole = Vec::with_capacity(story.chapters.len());
        for chapter in &story.chapters {
            let came = chapter.came.as_ref().filter(|_| !self.0.is_empty());
            let from = came.map(|(side, link, bytes)| Copied::of_frame(bytes, *link, *side).source());
            whole.push(chapter.left.iter().map(|left| compare(left, from)).collect());
        }
        whole
    }

    pub fn has(&self, addr: Addr) -> bool {
        self.0.iter().any(|prefix| prefix.contains(addr))
    }

    fn rename(&self, compared: &mut Compared, from: Option<Endpoint>, used: &mut Used) {
        let mut packet = Copied::of_frame(&compared.bytes, compared.link, compared.side);
        if !packet.has(flag::PARSED) {
            return;
        }
        if packet.has(flag::ICMP_ERROR) {
            let quoted = wire::parse::quoted(&packet);
            let ends = quoted.map(|quoted| [quoted.source.addr, quoted.destination.addr]);
            let mut all = ends.into_iter().flatten().chain([packet.source_addr()]);
            if all.any(|addr| self.has(addr)) {
                compared.bytes = vec![0; compared.bytes.len()];
            }
            return;
        }
        let Some(from) = from.filter(|_| self.has(packet.source_addr())) else {
            return;
        };
        let ends = (from, packet.destination());
        compared.choice = used.choice(packet.protocol(), packet.source(), ends);
        if packet.change(|packet| packet.rewrite(End::Source, from)) {
            compared.bytes = packet.frame().to_vec();
        }
    }

    /// A line without the endpoints that were chosen.
    pub fn bare(&self, line: &str) -> String {
        if self.0.is_empty() {
            return line.to_owned();
        }
        let is_part = |letter: char| letter.is_ascii_hexdigit() || ".:[]".contains(letter);
        let mut bare = String::new();
        let mut rest = line;
        while let Some(begin) = rest.find(is_part) {
            let end = rest[begin..]
                .find(|letter| !is_part(letter))
                .map_or(rest.len(), |length| begin + length);
            bare.push_str(&rest[..begin]);
            let word = &rest[begin..end];
            let addr = word.parse::<Endpoint>().map(|end| end.addr);
            match addr.or_else(|_| word.parse::<Addr>()) {
                Ok(addr) if self.has(addr) => bare.push_str("(chosen)"),
                _ => bare.push_str(word),
            }
            rest = &rest[end..];
        }
        bare + rest
    }
}
