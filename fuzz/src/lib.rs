//! Code that the fuzz targets share: for targets that take packets, an input is a frame with a head
//! of two bytes.
//!
//! ```text
//!   link type │ bytes cut off, 0 to 255 │ frame …
//! ```
//!
//! | target | what is fed |
//! |---|---|
//! | `parse`, `rewrite` | packets, to `wire` |
//! | `messages` | messages between workers, to `runtime::message` |
//! | `channel` | frames from another worker, to `protocols::channel` and `protocols::link::geneve` |
//! | `peer` | what another process says of a packet, to `runtime::peer` |
//! | `words` | words, packets and sessions of other workers, to a switch and a runtime ([`words`]) |
//! | `objects` | messages about shared objects, and what a driver says, to `protocols::objects` ([`objects`]) |
//! | `capture` | pcap and pcapng files, to `adapters::pcap` |
//! | `config` | configurations and generator profiles, to the tool's readers |
//! | `rules` | rules of the IDS, to `functions::ids` |
//!
//! `cargo xtask nightly` runs each for a minute, or as `--fuzz-seconds` says. By hand (a nightly
//! compiler and `cargo install cargo-fuzz`):
//!
//! ```text
//!   cargo +nightly run --release --manifest-path fuzz/Cargo.toml --example seeds     the corpus to begin with
//!   cargo +nightly fuzz run parse   -- -max_total_time=180
//!   cargo +nightly fuzz run rewrite -- -max_total_time=180
//! ```
//!
//! A fault that is found is fixed, and its input kept as a unit test of the code it was fed to.

pub mod objects;
pub mod words;

use core::cell::RefCell;
use wire::memory::Region;
use wire::{LinkType, Packet, Pool};

/// Link types by an input's first byte.
pub const LINKS: [LinkType; 5] = [
    LinkType::Ethernet,
    LinkType::Raw,
    LinkType::Loopback,
    LinkType::LinuxSll,
    LinkType::LinuxSll2,
];

/// Longest frame of an input.
pub const FRAME_MAX: usize = 4096;

thread_local! {
    static POOL: RefCell<Pool> =
        RefCell::new(Pool::new(Region::heap(Pool::region_length(2, FRAME_MAX)), 2, FRAME_MAX, 0));
}

/// The link type, the bytes cut off and the frame of an input.
pub fn split(input: &[u8]) -> Option<(LinkType, u32, &[u8])> {
    let (&[link, cut], frame) = input.split_first_chunk()?;
    (frame.len() <= FRAME_MAX).then(|| (LINKS[usize::from(link) % LINKS.len()], u32::from(cut), frame))
}

/// An input for a frame.
pub fn join(link: LinkType, cut: u8, frame: &[u8]) -> Vec<u8> {
    let number = LINKS.iter().position(|l| *l == link).unwrap_or(0);
    [&[number as u8, cut], frame].concat()
}

/// Runs `job` on a packet with a frame in it, parsed if it parses.
pub fn with_packet<T>(link: LinkType, cut: u32, frame: &[u8], job: impl FnOnce(&mut Packet, bool) -> T) -> T {
    let mut packet = POOL
        .with_borrow_mut(|pool| pool.take())
        .expect("each job gives its buffer back");
    assert!(packet.set_frame(frame, link));
    packet.set_wire_length(frame.len() as u32 + cut);
    let parsed = wire::parse(&mut packet).is_ok();
    let answer = job(&mut packet, parsed);
    POOL.with_borrow_mut(|pool| pool.give(packet));
    answer
}
