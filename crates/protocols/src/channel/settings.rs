//! The settings of a channel, and the refusals of them.

use super::auth::Protection;
use super::seal::SALT;
use super::wire::{HEAD, RECORD_HEAD, RECORD_MAX, TAG, WORDS_MAX};
use alloc::format;
use alloc::string::String;
use core::fmt;

/// The settings of a channel. Times in nanoseconds, lengths in bytes.
#[derive(Clone, Debug)]
pub struct ChannelSettings {
    /// The worker this end belongs to.
    pub worker: u16,
    /// The worker at the other end.
    pub peer: u16,
    /// Which incarnation of this worker this is: not 0, and greater than in any incarnation before.
    /// Nanoseconds since 1970 at the start will do.
    pub incarnation: u64,
    /// The longest frame the link carries, head and tag included; at both ends the same.
    pub frame_max: usize,
    /// Frames of messages that may be here unacknowledged or unsent: a power of two, 64 to 1024.
    pub send_frames: u16,
    /// Frames of messages that have a place here before they are delivered: a power of two, 64
    /// to 1024.
    pub receive_frames: u16,
    /// The longest message; at both ends the same.
    pub message_max: usize,
    /// Data packets that may wait in the queue of outputs.
    pub packets_max: usize,
    /// So many frames of messages are acknowledged at once, without waiting for more.
    pub acknowledge_every: u16,
    /// An acknowledgement waits no longer for a frame to ride on.
    pub acknowledge_ns_max: u64,
    /// A message waits no longer for others to fill its frame.
    pub flush_ns_max: u64,
    /// Timeout of a retransmission before any round trip is measured.
    pub timeout_ns_initial: u64,
    /// Its floor afterwards; above `acknowledge_ns_max` of the other end.
    pub timeout_ns_min: u64,
    /// Its ceiling.
    pub timeout_ns_max: u64,
    /// Between two hellos while no peer answers.
    pub hello_ns: u64,
    /// Sequence of each session's first frame of messages; at both ends the same.
    pub first_sequence: u64,
    /// Number of an incarnation's first frame; at both ends the same.
    pub first_number: u64,
    /// How frames are protected; at both ends the same.
    pub protection: Protection,
    /// Random bytes of this channel's own: with keys, no other channel may ever have the same ones.
    /// Without keys they may be zeros.
    pub salt: [u8; SALT],
    /// Words on what both ends must have alike, each on a part of it. Hellos say them, and a peer
    /// that says others is not met.
    pub agreed: [u64; AGREED],
}

/// So many words a hello says of what both ends must have alike: three in its head, and as many
/// behind it as acknowledgements have at most.
pub const AGREED: usize = IN_HEAD + WORDS_MAX;
/// So many of them are in the head.
pub const IN_HEAD: usize = 3;

impl ChannelSettings {
    /// Settings for a pair of workers on a link of Ethernet's usual MTU. With keys, the salt is
    /// still to be drawn.
    pub fn new(worker: u16, peer: u16, incarnation: u64, protection: Protection) -> ChannelSettings {
        ChannelSettings {
            worker,
            peer,
            incarnation,
            frame_max: 1400,
            send_frames: 256,
            receive_frames: 256,
            message_max: 64 << 10,
            packets_max: 64,
            acknowledge_every: 8,
            acknowledge_ns_max: 25_000,
            flush_ns_max: 10_000,
            timeout_ns_initial: 5_000_000,
            timeout_ns_min: 200_000,
            timeout_ns_max: 100_000_000,
            hello_ns: 5_000_000,
            first_sequence: 1,
            first_number: 1,
            protection,
            salt: [0; SALT],
            agreed: [0; AGREED],
        }
    }

    /// Words of selective acknowledgement that a full window needs.
    pub(super) fn words(&self) -> usize {
        usize::from(self.receive_frames) / 64
    }

    /// The longest payload of records: a frame without the head, all its words and the tag.
    pub fn payload_max(&self) -> usize {
        self.frame_max - HEAD - 8 * self.words() - self.protection.tag_length()
    }

    pub(super) fn check(&self) -> Result<(), BadSettings> {
        let refuse = |name, value: u64, remedy: String| Err(BadSettings { name, value, remedy });
        if self.incarnation == 0 {
            return refuse("incarnation", 0, "is 1 or more".into());
        }
        if self.protection.encrypts() && self.salt == [0; SALT] {
            return refuse("salt", 0, "is 16 random bytes, for there are keys".into());
        }
        for (name, frames) in [
            ("send_frames", self.send_frames),
            ("receive_frames", self.receive_frames),
        ] {
            if !frames.is_power_of_two() || !(64..=1024).contains(&frames) {
                return refuse(name, frames.into(), "is a power of two, 64 to 1024".into());
            }
        }
        // Room for all words, a tag, and a record that is worth the rest.
        let (least, most) = (HEAD + 8 * WORDS_MAX + TAG + 64, RECORD_MAX);
        if !(least..=most).contains(&self.frame_max) {
            let remedy = format!("is from {least} to {most}");
            return refuse("frame_max", self.frame_max as u64, remedy);
        }
        let most = (usize::from(self.send_frames) - 1) * (self.payload_max() - RECORD_HEAD);
        if !(1..=most).contains(&self.message_max) {
            let remedy = format!(
                "is from 1 to {most}, what fits into {} frames",
                self.send_frames - 1
            );
            return refuse("message_max", self.message_max as u64, remedy);
        }
        if self.acknowledge_every == 0 {
            return refuse("acknowledge_every", 0, "is 1 or more".into());
        }
        if self.timeout_ns_min == 0 || self.timeout_ns_min > self.timeout_ns_max {
            let remedy = format!("is from 1 to `timeout_ns_max`, {}", self.timeout_ns_max);
            return refuse("timeout_ns_min", self.timeout_ns_min, remedy);
        }
        if self.hello_ns == 0 {
            return refuse("hello_ns", 0, "is 1 or more".into());
        }
        Ok(())
    }
}

/// Settings that a channel cannot be made with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadSettings {
    /// Which one.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// The values that it may have.
    pub remedy: String,
}

impl fmt::Display for BadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` of a channel is {}; it {}",
            self.name, self.value, self.remedy
        )
    }
}

impl core::error::Error for BadSettings {}
