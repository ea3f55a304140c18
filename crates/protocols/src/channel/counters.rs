//! A channel's counters: traffic, repetitions, and refusals by reason.

use super::auth::BadTag;
use super::wire::Malformed;

/// Why a frame, or a message in it, was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum DropReason {
    /// Shorter than a head.
    Short,
    /// Of another version.
    Version,
    /// With fields that do not exist or do not go together.
    Field,
    /// Not as long as it says.
    Length,
    /// Not between this pair of workers.
    OtherPair,
    /// Protected otherwise than this end asks for.
    Protection,
    /// Made with a key that is not accepted.
    UnknownKey,
    /// Forged or damaged.
    Tag,
    /// Of an incarnation that is over, this end's or the other's.
    OldSession,
    /// For an incarnation of this end that has not been.
    UnknownSession,
    /// Its number has been received.
    Replayed,
    /// Its number is too far behind to tell.
    OldNumber,
    /// Its messages have been received.
    Duplicate,
    /// Beyond the window: no place was promised to it.
    BeyondWindow,
    /// Longer than this end's frames.
    TooLong,
    /// Its payload is not records.
    Records,
    /// It acknowledges frames that were never sent.
    Acknowledgement,
    /// A packet for which the queue of outputs had no place.
    QueueFull,
    /// A message whose records do not follow each other.
    BrokenMessage,
    /// A message longer than is taken.
    LongMessage,
    /// A hello of a peer that has other things than both ends must have alike.
    Disagreement,
}

impl DropReason {
    /// All of them, in the order of [`Counters::drops`].
    pub const ALL: [DropReason; 21] = [
        DropReason::Short,
        DropReason::Version,
        DropReason::Field,
        DropReason::Length,
        DropReason::OtherPair,
        DropReason::Protection,
        DropReason::UnknownKey,
        DropReason::Tag,
        DropReason::OldSession,
        DropReason::UnknownSession,
        DropReason::Replayed,
        DropReason::OldNumber,
        DropReason::Duplicate,
        DropReason::BeyondWindow,
        DropReason::TooLong,
        DropReason::Records,
        DropReason::Acknowledgement,
        DropReason::QueueFull,
        DropReason::BrokenMessage,
        DropReason::LongMessage,
        DropReason::Disagreement,
    ];
    /// How many there are.
    pub const COUNT: usize = DropReason::ALL.len();

    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::Short => "short",
            DropReason::Version => "version",
            DropReason::Field => "field",
            DropReason::Length => "length",
            DropReason::OtherPair => "other_pair",
            DropReason::Protection => "protection",
            DropReason::UnknownKey => "unknown_key",
            DropReason::Tag => "tag",
            DropReason::OldSession => "old_session",
            DropReason::UnknownSession => "unknown_session",
            DropReason::Replayed => "replayed",
            DropReason::OldNumber => "old_number",
            DropReason::Duplicate => "duplicate",
            DropReason::BeyondWindow => "beyond_window",
            DropReason::TooLong => "too_long",
            DropReason::Records => "records",
            DropReason::Acknowledgement => "acknowledgement",
            DropReason::QueueFull => "queue_full",
            DropReason::BrokenMessage => "broken_message",
            DropReason::LongMessage => "long_message",
            DropReason::Disagreement => "disagreement",
        }
    }
}

impl From<Malformed> for DropReason {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Short => DropReason::Short,
            Malformed::Version => DropReason::Version,
            Malformed::Field => DropReason::Field,
            Malformed::Length => DropReason::Length,
        }
    }
}

impl From<BadTag> for DropReason {
    fn from(bad: BadTag) -> Self {
        match bad {
            BadTag::Protection => DropReason::Protection,
            BadTag::UnknownKey => DropReason::UnknownKey,
            BadTag::Tag => DropReason::Tag,
        }
    }
}

/// A channel's counters, since it was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages taken to be sent.
    pub messages_sent: u64,
    /// Messages delivered.
    pub messages_received: u64,
    /// Messages refused because all frames were in use: back-pressure.
    pub refused_full: u64,
    /// Messages refused because they are longer than `message_max`.
    pub refused_too_long: u64,
    /// Packets refused: no peer is met, or the queue has no place.
    pub refused_packets: u64,
    /// Frames transmitted, of any kind but packets.
    pub frames_sent: u64,
    /// Frames transmitted that carried nothing but an acknowledgement.
    pub acknowledgements_sent: u64,
    /// Packets wrapped.
    pub packets_sent: u64,
    /// Frames received that were for this session and new, of any kind.
    pub frames_received: u64,
    /// Frames among them that an end sends only once it has met this one: all but hellos.
    pub answers_received: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Frames of messages sent again.
    pub retransmissions: u64,
    /// Times that nothing was heard for so long that something was sent again, or asked.
    pub timeouts: u64,
    /// Sessions: how often the other end was met.
    pub sessions: u64,
    /// Messages' frames that were given up unacknowledged because the other end restarted.
    pub given_up_frames: u64,
    /// Drops, by [`DropReason`].
    pub drops: [u64; DropReason::COUNT],
}

impl Counters {
    /// Drops for one reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    pub(super) fn drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }
}
