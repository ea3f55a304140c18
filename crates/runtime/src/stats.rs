//! A worker's figures: every packet in is out, held, or dropped for a named reason.

use crate::worker::asked::TableRows;
use alloc::string::String;
use alloc::vec::Vec;
use nf::{Event, Field};

/// Declares the reasons: the comment says of the packet why it was dropped.
macro_rules! reasons {
    ($($(#[doc = $help:literal])* $reason:ident = $name:literal,)*) => {
        /// Why the runtime itself drops a packet. Functions have their own reasons.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $help])* $reason,)*
        }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$reason),*];

            /// The name in metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DropReason::$reason => $name,)*
                }
            }

            /// Its sentence about the packet.
            pub const fn help(self) -> &'static str {
                match self {
                    $(DropReason::$reason => concat!($($help),*),)*
                }
            }
        }
    };
}

reasons! {
    /// The frame ends inside a header.
    FrameTruncated = "frame_truncated",
    /// Neither IPv4 nor IPv6.
    NotIp = "not_ip",
    /// A length or version field contradicts the frame.
    FrameMalformed = "frame_malformed",
    /// A later fragment whose first one has not come in time.
    FragmentUnknown = "fragment_unknown",
    /// A fragment in the place of another with other data, or a copy of which too many wait.
    FragmentRepeated = "fragment_repeated",
    /// Of a datagram of which two fragments overlap.
    FragmentOverlap = "fragment_overlap",
    /// More fragments wait for their first one, or more datagrams have fragments, than are
    /// followed.
    FragmentsFull = "fragments_full",
    /// No chain's rule matches the flow.
    NoChain = "no_chain",
    /// As many flows as the runtime is configured for.
    FlowsFull = "flows_full",
    /// As many groups as the runtime is configured for.
    GroupsFull = "groups_full",
    /// As many waiting calls as configured.
    WaitingFull = "waiting_full",
    /// As many packets behind waiting calls as configured.
    WaitingQueueFull = "waiting_queue_full",
    /// As many packets wait for the same thing as may.
    WaitingShareFull = "waiting_share_full",
    /// A function waits for something that is not the runtime's and would never go on.
    WaitsForNothing = "waits_for_nothing",
    /// As many packets held for functions as configured.
    HeldFull = "held_full",
    /// Held when its flow ended.
    HeldAtEnd = "held_at_end",
    /// Emitted, or answered, more often than one packet may.
    EmitOverflow = "emit_overflow",
    /// A function's answer is no packet.
    AnswerMalformed = "answer_malformed",
    /// Turned around twice (RFC 4787 5: hairpinning needs one turn).
    HairpinLoop = "hairpin_loop",
    /// The runtime's queue is full, or the link to it is down.
    RuntimeBusy = "runtime_busy",
    /// There is no runtime to send a new group to.
    NoRuntime = "no_runtime",
    /// The switch that has its group's route is not there.
    HomeAbsent = "home_absent",
    /// The link to the switch that has its group's route is full.
    HomeBusy = "home_busy",
    /// As many routes as the switch is configured for.
    RoutesFull = "routes_full",
    /// It opened a flow whose replies, as it was translated, would be taken for another flow's.
    ReplyKeyTaken = "reply_key_taken",
    /// It would have opened a flow in a group that is another runtime's: its flow ended, or its
    /// block of ports changed hands, while it was on its way.
    RouteOver = "route_over",
    /// It would have begun a group at a runtime that has begun again and has not been told yet
    /// which blocks of ports are in use.
    TooEarly = "too_early",
    /// As many packets kept for groups that move as configured.
    MovingFull = "moving_full",
    /// More packets wait for switches of other processes to hear of their flows than may.
    UnheardFull = "unheard_full",
    /// More packets wait for their flows' copies at another runtime than may.
    ReplicaFull = "replica_full",
    /// No other runtime can keep a copy of its flow, and the configuration has it dropped then.
    NoReplica = "no_replica",
    /// More packets wait until a store has their flows than may, or a flow's entry found no room.
    StoreFull = "store_full",
    /// Another process has claimed the variables, written through, that its call has changed.
    StoreFenced = "store_fenced",
    /// Its runtime failed, and more packets wait for its flows to be recovered than may, or it
    /// waited in vain.
    RecoveryFull = "recovery_full",
    /// Kept or passed on for a group that moves, when the runtime at the other end went; or it
    /// waited to leave by a switch that went.
    PeerGone = "peer_gone",
    /// No port on the side the packet should leave by.
    NoEgress = "no_egress",
    /// The port could not send it.
    PortUnsent = "port_unsent",
    /// Its call waited while the configuration changed, and the new one ends its flow.
    ConfigurationChanged = "configuration_changed",
    /// In flight when the run was broken off.
    Stopped = "stopped",
    /// The worker has no lease: it may be another's by now.
    NoLease = "no_lease",
    /// Its runtime failed in a process that goes on, and had it in hand or in its queue.
    RuntimeFailed = "runtime_failed",
}

impl From<wire::ParseError> for DropReason {
    fn from(error: wire::ParseError) -> Self {
        match error {
            wire::ParseError::Truncated => DropReason::FrameTruncated,
            wire::ParseError::NotIp => DropReason::NotIp,
            wire::ParseError::Malformed => DropReason::FrameMalformed,
        }
    }
}

/// Drops by the runtime's own reasons.
#[derive(Clone, Copy, Debug)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Drops([0; DropReason::ALL.len()])
    }
}

impl Drops {
    /// Counts one.
    #[inline]
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// How many for a reason.
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// How many in all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// A number with a function's name and one of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The function as the configuration calls it; empty for the runtime's own.
    pub function: String,
    /// The reason's or counter's name.
    pub name: &'static str,
    /// The count.
    pub count: u64,
}

/// How long something took each time: counts by length, each bound twice the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    counts: [u64; Durations::BOUNDS + 1],
    sum: u64,
}

impl Durations {
    /// Bounds: from a microsecond to half a second, and longer.
    const BOUNDS: usize = 20;

    /// Counts one, of so many nanoseconds.
    pub fn note(&mut self, nanoseconds: u64) {
        let microseconds = nanoseconds.div_ceil(1000).max(1);
        let bound = microseconds.next_power_of_two().trailing_zeros() as usize;
        if let Some(count) = self.counts.get_mut(bound.min(Self::BOUNDS)) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(nanoseconds);
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Durations) {
        self.counts
            .iter_mut()
            .zip(&other.counts)
            .for_each(|(count, more)| *count += more);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Each bound, in nanoseconds, and how many took no longer.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut so_far = 0;
        self.counts
            .iter()
            .take(Self::BOUNDS)
            .enumerate()
            .map(move |(bound, count)| {
                so_far += count;
                (1000 << bound, so_far)
            })
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Nanoseconds of all.
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

/// The outcome for the flows of a runtime that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReceipt {
    /// The runtime.
    pub failed: u16,
    /// Flows that went on.
    pub flows: u64,
    /// Flows whose copies were no flows, or had no room.
    pub lost: u64,
    /// Nanoseconds from the notice of the failure until all switches had let the runtime go.
    pub waited: u64,
    /// Nanoseconds from then on until all flows were installed and announced.
    pub installed: u64,
}

const RECOVERED_FIELDS: &[Field] = &[
    Field::number("failed", "", "Number of the runtime that failed."),
    Field::number("flows", "flows", "Flows that went on here."),
    Field::number(
        "lost",
        "flows",
        "Flows whose copies were no flows, or had no room.",
    ),
    Field::number(
        "waited_ms",
        "ms",
        "From the notice of the failure until all switches had let the runtime go.",
    ),
    Field::number(
        "installed_ms",
        "ms",
        "From then on until all flows were installed and announced.",
    ),
];

/// The event of a [`RecoveryReceipt`].
pub(crate) const RECOVERED: Event = Event::new(
    "recovered",
    "Flows of a runtime that failed go on at this one.",
    RECOVERED_FIELDS,
);

/// Entries of a store for flows that cannot go on.
pub(crate) const STORED_REFUSED: Event = Event::new(
    "stored_refused",
    "A runtime begins with a store that has entries which are no flows or groups of its chains.",
    &[
        Field::number("other_layout", "entries", "Entries of another layout of states."),
        Field::number("no_entry", "entries", "Entries that cannot be read."),
        Field::number("without_group", "entries", "Flows whose group is not there."),
    ],
);

/// The runtimes' own lines in the event log.
pub const EVENTS: &[Event] = &[RECOVERED, STORED_REFUSED];

/// How a function's pool of blocks stands at one runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolStats {
    /// The function, as configured.
    pub function: String,
    /// Blocks that are free here, borrowed ones included.
    pub free: u32,
    /// Blocks that are this runtime's own, free and in use.
    pub blocks: u32,
    /// Seconds until no block is free, at the rate of the last two; `None` while no fewer become
    /// free.
    pub lasts_seconds: Option<f64>,
}

/// The cost of a function's calls, of the packets that were sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionCost {
    /// The function, as configured.
    pub function: String,
    /// Calls.
    pub calls: u64,
    /// Cycles of all of them.
    pub cycles: u64,
    /// Calls that are in neither, since the thread was put aside meanwhile.
    pub interrupted: u64,
}

/// How a function's shared objects of one kind stand at one runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectStats {
    /// The function, as configured.
    pub function: String,
    /// The kind's name within the function.
    pub kind: String,
    /// Objects that are here.
    pub objects: u64,
    /// Copies of other runtimes' objects.
    pub copies: u64,
    /// Bytes of both, without their keys.
    pub bytes: u64,
    /// Calls that the function has made here, by [`ObjectStats::HOW`].
    pub calls: [u64; ObjectStats::HOW.len()],
    /// Calls of them that ended without an answer.
    pub failed: u64,
    /// Requests of this runtime that went to another one; a call of an object that is here needs
    /// none.
    pub remote: u64,
    /// Requests of other runtimes that were sent on, as a rule to the runtime that has the object.
    pub forwards: u64,
    /// Objects that went to another runtime.
    pub moves: u64,
    /// States that were sent to a runtime that keeps a copy.
    pub copied: u64,
    /// Bytes of all messages about such objects that were sent to other runtimes.
    pub sent_bytes: u64,
}

impl ObjectStats {
    /// How objects are called.
    pub const HOW: [&'static str; 6] = ["update", "send", "merge", "get", "read", "remove"];

    /// All calls.
    pub fn calls(&self) -> u64 {
        self.calls.iter().sum()
    }

    /// Adds what a predecessor has counted; of the moment's figures there are none of its.
    fn go_on_from(&mut self, before: &ObjectStats) {
        for (count, more) in self.calls.iter_mut().zip(before.calls) {
            *count += more;
        }
        self.failed += before.failed;
        self.remote += before.remote;
        self.forwards += before.forwards;
        self.moves += before.moves;
        self.copied += before.copied;
        self.sent_bytes += before.sent_bytes;
    }

    /// The part of these that stays when their runtime is gone: nothing of the moment.
    pub(crate) fn in_the_end(self) -> ObjectStats {
        ObjectStats {
            objects: 0,
            copies: 0,
            bytes: 0,
            ..self
        }
    }
}

/// A runtime's numbers since its start, and a few of the moment.
#[derive(Clone, Debug, Default)]
pub struct RuntimeStats {
    /// Packets that came in over links or ports.
    pub received: u64,
    /// Packets passed on as processed.
    pub passed: u64,
    /// Nanoseconds of its thread in steps that had something to do: measured by what steps it, 0
    /// where packets carry the time.
    pub busy: u64,
    /// Packets that functions made.
    pub emitted: u64,
    /// Packets in the runtime now: queued behind waiting calls, held for functions, fragments that
    /// wait for their first one, first packets of which switches have yet to hear.
    pub held: u64,
    /// Drops, by function and reason; those never counted are left out.
    pub dropped: Vec<Named>,
    /// The functions' own counters, zeros too.
    pub counters: Vec<Named>,
    /// The functions' pools of blocks.
    pub pools: Vec<PoolStats>,
    /// The cost of the functions' calls; empty where nothing is sampled.
    pub costs: Vec<FunctionCost>,
    /// The functions' tables that are in the metrics.
    pub tables: Vec<TableRows>,
    /// Flows now.
    pub flows: u64,
    /// The most flows there may be.
    pub flows_max: u64,
    /// Flows begun.
    pub flows_opened: u64,
    /// Flows over, by expiry or otherwise.
    pub flows_ended: u64,
    /// Flows that came from other runtimes, and that went to them: neither begun nor over.
    pub flows_moved: [u64; 2],
    /// Packets that came from other runtimes with groups that moved, and that went to them: neither
    /// received nor passed.
    pub packets_moved: [u64; 2],
    /// Whether it takes no groups from other runtimes.
    pub leaving: bool,
    /// Whether switches choose it for no new group, since another has free blocks of ports and this
    /// one has none. A runtime that leaves is not chosen in any case, and not dry.
    pub dry: bool,
    /// Flows that came from other runtimes and are over: their bytes were no state of their
    /// functions, or this runtime did not expect them.
    pub flows_refused: u64,
    /// Messages of other workers that were refused: not allowed to their sender, or without room.
    pub words_refused: u64,
    /// Whether another runtime keeps a copy of every flow, and which.
    pub protected_by: Option<u16>,
    /// Flows of which another runtime keeps copies.
    pub protected_flows: u64,
    /// How long, in nanoseconds, it took until all flows had copies, since the replica was chosen
    /// or a policy changed; 0 as long as some lack one.
    pub protection_took: u64,
    /// The last recoveries of other runtimes' flows here, the oldest first.
    pub recoveries: Vec<RecoveryReceipt>,
    /// How long groups stood still that moved away from here.
    pub move_pauses: Durations,
    /// How long recoveries of other runtimes' flows took here, from the notice of the failure on.
    pub recovery_times: Durations,
    /// Packets that left without a copy of their flow's state, since no runtime could keep one.
    pub unprotected: u64,
    /// Copies of other runtimes' flows that are kept here now.
    pub copies: u64,
    /// Flows of failed runtimes that were recovered here, and that could not be.
    pub recovered: [u64; 2],
    /// Groups without a flow of failed runtimes that were recovered here.
    pub groups_recovered: u64,
    /// Groups now.
    pub groups: u64,
    /// Groups now that have no flow: their functions have them live on.
    pub groups_resting: u64,
    /// Groups without a flow that ended before their time, for want of places.
    pub groups_evicted: u64,
    /// Calls waiting now.
    pub waiting: u64,
    /// Shared objects, by function and kind.
    pub objects: Vec<ObjectStats>,
    /// Messages about shared objects that came and were not taken.
    pub object_messages_refused: u64,
    /// Lines the event log had no room for.
    pub events_lost: u64,
    /// Steps in which nothing was received for want of buffers for messages.
    pub stalls: u64,
    /// Waiting calls whose answer was found by the look of each second: no token had reported it.
    pub untold: u64,
    /// The number of the configuration in force.
    pub generation: u64,
}

impl RuntimeStats {
    /// Copies here that find no room, should the runtimes fail that they are of: their flows would
    /// end.
    pub fn copies_without_room(&self) -> u64 {
        (self.flows + self.copies).saturating_sub(self.flows_max.max(self.flows))
    }

    /// Adds what predecessors have counted; of the moment's figures there are none of theirs.
    pub fn go_on_from(&mut self, before: &RuntimeStats) {
        self.received += before.received;
        self.passed += before.passed;
        self.busy += before.busy;
        self.emitted += before.emitted;
        self.flows_opened += before.flows_opened;
        self.flows_ended += before.flows_ended;
        self.flows_refused += before.flows_refused;
        self.groups_evicted += before.groups_evicted;
        self.groups_recovered += before.groups_recovered;
        self.words_refused += before.words_refused;
        self.unprotected += before.unprotected;
        self.object_messages_refused += before.object_messages_refused;
        for kind in &before.objects {
            let is_it = |of: &&mut ObjectStats| of.function == kind.function && of.kind == kind.kind;
            match self.objects.iter_mut().find(is_it) {
                Some(of) => of.go_on_from(kind),
                None => self.objects.push(kind.clone().in_the_end()),
            }
        }
        self.events_lost += before.events_lost;
        self.stalls += before.stalls;
        self.untold += before.untold;
        self.move_pauses.add(&before.move_pauses);
        self.recovery_times.add(&before.recovery_times);
        for place in 0..2 {
            self.flows_moved[place] += before.flows_moved[place];
            self.packets_moved[place] += before.packets_moved[place];
            self.recovered[place] += before.recovered[place];
        }
        before
            .dropped
            .iter()
            .for_each(|named| add_to(&mut self.dropped, named));
        before
            .counters
            .iter()
            .for_each(|named| add_to(&mut self.counters, named));
    }
}

/// Adds a number to the one of the same names.
pub(crate) fn add_to(all: &mut Vec<Named>, more: &Named) {
    let mut same = all.iter_mut();
    match same.find(|named| named.function == more.function && named.name == more.name) {
        Some(named) => named.count += more.count,
        None => all.push(more.clone()),
    }
}

/// A switch's numbers.
#[derive(Clone, Debug, Default)]
pub struct SwitchStats {
    /// Packets received at its ports.
    pub received: u64,
    /// Packets sent by its ports.
    pub sent: u64,
    /// As [`RuntimeStats::busy`].
    pub busy: u64,
    /// How long packets took from being read to being sent, of one in 1024 that its ports sent.
    /// Empty where packets carry the time.
    pub delays: Durations,
    /// Packets that were hairpinned.
    pub turned: u64,
    /// Fragments held until their first one comes.
    pub held: u64,
    /// Drops by reason.
    pub dropped: Vec<Named>,
    /// Groups routed now.
    pub routes: u64,
    /// Reply keys known now.
    pub reply_keys: u64,
    /// External port blocks known now.
    pub blocks: u64,
    /// Groups by runtime.
    pub groups: Vec<u64>,
    /// Packets sent to each runtime since the start.
    pub sent_to: Vec<u64>,
    /// Steps in which nothing was received because a runtime's queue was full (back-pressure on
    /// ports that wait).
    pub stalls: u64,
    /// Packets handed to the home switch of their group.
    pub handed_over: u64,
    /// Messages of other workers that were refused: not allowed to their sender, or without room.
    pub words_refused: u64,
}
