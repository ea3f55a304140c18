//! Messages between workers, carried in packet buffers on the same links as the packets, in order
//! with them.
//!
//! A frame of messages is a buffer of kind `Message` whose bytes are records, one after another: a
//! type byte, then fixed fields, numbers in network order. The messages of a runtime to a switch:
//!
//! | type | record | length |
//! |---|---|---|
//! | 1 | block claimed: address 16, first port 2, ports 2, group 40 | 61 |
//! | 2 | block released: address 16, first port 2, ports 2 | 21 |
//! | 3 | routed here: group 40 | 41 |
//! | 4 | group empty: group 40, packets consumed from this link 8 | 49 |
//! | 14 | block tentative: address 16, first port 2, ports 2, group 40 | 61 |
//! | 15 | block suspect, and by a switch, too: address 16, first port 2, ports 2, group 40 | 61 |
//! | 12 | leaving: whether it gets no new groups 1 | 2 |
//! | 13 | resynced | 1 |
//! | 16 | barrier asked: round 8 | 9 |
//! | 20 | keeps, of a runtime that has failed: runtime 2, number of the base of its copies here 4, 0 for none, all ones while it is there, its incarnation 8 | 15 |
//! | 22 | recovered: runtime 2 | 3 |
//! | 18 | lease asked for: incarnation 8, the asker's clock 8 | 17 |
//! | 19 | lease granted: incarnation of the grantor 8, the asker's clock as it said it 8 | 17 |
//!
//! And a switch to a runtime:
//!
//! | type | record | length |
//! |---|---|---|
//! | 5 | route suspect: group 40 | 41 |
//! | 6 | route conflict: reply key 40 | 41 |
//! | 1 | block claimed, by a group of another runtime: as above | 61 |
//! | 13 | resynced | 1 |
//! | 17 | barrier acknowledged: round 8 | 9 |
//! | 21 | heir: runtime 2, its incarnation 8 | 11 |
//! | 20 | keeps, to an heir that is late: runtime 2, 0 4, its incarnation 8 | 15 |
//! | 18 | lease asked for: as above; between switches, too | 17 |
//! | 19 | lease granted: as above; between switches, too | 17 |
//!
//! Of groups that move (`mobility`, `switch::directory`), to and from a switch:
//!
//! | type | record | length |
//! |---|---|---|
//! | 7 | re-route: group 40, key 40, from 2, to 2, its incarnation 8, epoch 8, marks 1: 1 the last key here, 2 taken back, 4 taken back late | 102 |
//! | 8 | behind: group 40, to 2, epoch 8 | 51 |
//! | 9 | by a switch: group 40, what 1, epoch 8, to 2 | 52 |
//! | 11 | installed: key 40, epoch 8 | 49 |
//! | 10 | block returned: address 16, first port 2, ports 2, runtime 2; by a runtime, and on to that one | 23 |
//!
//! *Installed*: a *GroupEmpty* that a target has said before, when it had nothing to do with the
//! group yet, must not end the route that has come to lead there.
//!
//! *Told before the first packet leaves*: a runtime passes the frame on before the packet whose
//! replies it is about, so a switch that reads its links before its ports knows the route before a
//! reply can come. A switch of another process may hear it later than the packet leaves by another
//! one: it is asked to say when it has (*BarrierAsked*, *BarrierAcknowledged*), and the packet
//! waits for that (`outbox::barrier`). Rounds grow from 1 while a runtime lives;
//! *BarrierAcknowledged* says it of all rounds up to this one, in the link's session.
//!
//! A *reply key* of a translated flow, where the switch could not route it otherwise, is announced
//! as a group of its own (type 3) and ends as one (type 4).
//!
//! *GroupEmpty*: the count says how much of what the switch sent had been seen when the group was
//! found idle. The switch forgets the route only if it has sent nothing for the group since;
//! otherwise its packets have begun the group again, and the runtime will say so again. So no flow
//! can be at two runtimes.
//!
//! *RouteSuspect*: the switch does not know whether its packets by a route began, or begin, the
//! group there (`switch::directory`). A runtime without it answers *GroupEmpty*. By a runtime: it
//! has moved the group, and the switch began again meanwhile: the switch shall ask the group's
//! runtime.
//!
//! *RouteConflict*: a reply key that the runtime announced is another runtime's, or there is no
//! room for a route. The switch drops what the flow sends until it hears that the key is idle
//! there. A group can be another runtime's, too, where the switch had begun again and did not know:
//! then all its flows end.
//!
//! *BlockTentative*: of a group on its way, to a switch that begins again. An existing claim wins,
//! and a later claim replaces this word. When the move is over, the source *doubts* it. The switch
//! then asks the group's runtime in its turn, which says the same if it has not got the block.
//!
//! *Resynced*: the switch has begun again, and everything that the runtime has and the switch
//! should know is said before this. By a switch: the runtime has begun again, and every block that
//! is in use at another runtime is said before this.

use crate::group::GroupKey;
use nf::{Addr, Block};
use protocols::ownership::{Epoch, RuntimeId, SwitchMessage};
use wire::{LinkType, Packet, packet::Kind};

/// Messages between workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Packets from outside for this block are the group's. By a switch, to a runtime that begins:
    /// another runtime's group has it.
    BlockClaimed(Block, GroupKey),
    /// The same of a group on its way, if no group has the block.
    BlockTentative(Block, GroupKey),
    /// The group's block is not here; by a switch: if it is not there, say so.
    BlockSuspect(Block, GroupKey),
    /// No group has the block.
    BlockReleased(Block),
    /// Packets of this group, or with this reply key, come here.
    Routed(GroupKey),
    /// The group, or reply key, has no flow; so many packets had been consumed from this link.
    GroupEmpty(GroupKey, u64),
    /// By a switch: if the group, or reply key, has no flow, say so. By the source of a move: it
    /// is over, ask the runtime that has the group.
    RouteSuspect(GroupKey),
    /// By a switch: the reply key gets no route to there; end its flow.
    RouteConflict(GroupKey),
    /// Of a group that moves, the packets with this key go elsewhere.
    Reroute(Reroute),
    /// The group with this key, or reply key, is installed: messages about it from now on are about
    /// that.
    Installed(GroupKey, Epoch),
    /// Tell that runtime that everything before this has been read.
    DrainMarker(GroupKey, RuntimeId, Epoch),
    /// By a switch: the state of a group that moves.
    Switch(GroupKey, SwitchMessage),
    /// From now on no new groups, or new ones again.
    Leaving(bool),
    /// The switch has been told all; by a switch: which blocks are in use.
    Resynced,
    /// Say when all before this has been heard, by this number.
    BarrierAsked(u64),
    /// By a switch: all before *BarrierAsked* with this number is in its tables.
    BarrierAcknowledged(u64),
    /// The sender's incarnation, which no other of this runtime had: first in a session, where
    /// copies are kept, or there are no views.
    Incarnation(u64),
    /// A runtime has failed: the number of the base of its copies that are kept here, 0 for none;
    /// and which incarnation of it, 0 if that was never heard. To a switch that is met: of a
    /// runtime that is not there no copies are kept
    /// ([`protocols::ownership::recovery::Report::OF_NONE`]), and of a runtime that is there which
    /// incarnation it is ([`protocols::ownership::recovery::Report::LATER`]). By a switch, with 0:
    /// it waits no longer for its heir, which begins now or not at all, and says so.
    Keeps(RuntimeId, u32, u64),
    /// Of a runtime of the same process: this incarnation of it is the first that was met here
    /// since, and no copies of one before are kept.
    Meets(RuntimeId, u64),
    /// By a switch: that incarnation of the runtime is let go, its flows go on there
    /// ([`crate::replica`]).
    Heir(RuntimeId, u64),
    /// All flows of that runtime of which there are copies are here, and were announced.
    Recovered(RuntimeId),
    /// This incarnation of the sender, which the view of this number has, asks for its lease, at
    /// this reading of its own clock.
    LeaseAsked(u64, u32, u64),
    /// This incarnation of the sender grants the lease that was asked for at this reading of the
    /// asker's clock.
    LeaseGranted(u64, u64),
    /// The block, of the first runtime's pool, is free and lent to the second
    /// ([`protocols::lending`]); by a switch: to the runtime that is told.
    BlockLent(Block, RuntimeId, RuntimeId),
    /// By a switch: no more that this runtime has lent is coming.
    LendsOver(RuntimeId),
    /// No group has the block any more, which is of that runtime's pool: it is free at the sender,
    /// as if it were lent.
    BlockKept(Block, RuntimeId),
    /// No group has the block, and it goes back to the runtime that it belongs to; by a switch to
    /// that runtime: it is over here.
    BlockReturned(Block, RuntimeId),
}

/// One key of a group that changes hands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reroute {
    /// The group.
    pub group: GroupKey,
    /// Its own key, or a key that was announced for it.
    pub key: GroupKey,
    /// The runtime that had it, or was to have it.
    pub from: RuntimeId,
    /// The runtime that gets it.
    pub to: RuntimeId,
    /// Which incarnation of that runtime has agreed; 0 where none has said so.
    pub incarnation: u64,
    /// The change's epoch.
    pub epoch: Epoch,
    /// The last of the group's keys at this switch: to be answered.
    pub is_last: bool,
    /// Whether the group is taken back.
    pub taken: Taken,
}

/// Whether a group is taken back from a target that is gone, and that may have installed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It moves, or the target has not got its state.
    Not = 0,
    /// It is.
    Back = 1,
    /// It is, and for long no switch has answered.
    Late = 2,
}

/// The longest record: a re-route.
pub const RECORD_MAX: usize = 102;
/// The type byte of a re-route.
const REROUTE: u8 = 7;

/// A frame of messages is no longer, whatever buffer it is in: at the other end of a link between
/// processes, buffers may be shorter than here, and all are as long as this where there are such
/// links.
pub const FRAME_MAX: usize = 3584;

/// How long a frame of messages in this buffer may be.
#[inline]
pub fn room(frame: &Packet) -> usize {
    frame.room().min(FRAME_MAX)
}

impl Message {
    /// Appends the record to a frame of messages; `false` if it does not fit.
    pub fn append(&self, frame: &mut Packet) -> bool {
        let at = frame.frame().len();
        let mut record = [0; RECORD_MAX];
        let mut writer = Writer {
            bytes: &mut record,
            at: 0,
        };
        match self {
            Message::BlockClaimed(block, group) => {
                writer.put(&[1]);
                writer.block(block);
                writer.words(group.words());
            }
            Message::BlockTentative(block, group) | Message::BlockSuspect(block, group) => {
                let is_tentative = matches!(self, Message::BlockTentative(..));
                writer.put(&[if is_tentative { 14 } else { 15 }]);
                writer.block(block);
                writer.words(group.words());
            }
            Message::BlockReleased(block) => {
                writer.put(&[2]);
                writer.block(block);
            }
            Message::Routed(group) => {
                writer.put(&[3]);
                writer.words(group.words());
            }
            Message::GroupEmpty(group, consumed) => {
                writer.put(&[4]);
                writer.words(group.words());
                writer.put(&consumed.to_be_bytes());
            }
            Message::RouteSuspect(group) => {
                writer.put(&[5]);
                writer.words(group.words());
            }
            Message::RouteConflict(group) => {
                writer.put(&[6]);
                writer.words(group.words());
            }
            Message::Reroute(reroute) => {
                writer.put(&[REROUTE]);
                writer.words(reroute.group.words());
                writer.words(reroute.key.words());
                writer.put(&reroute.from.0.to_be_bytes());
                writer.put(&reroute.to.0.to_be_bytes());
                writer.put(&reroute.incarnation.to_be_bytes());
                writer.epoch(reroute.epoch);
                writer.put(&[u8::from(reroute.is_last) | (reroute.taken as u8) << 1]);
            }
            Message::Installed(key, epoch) => {
                writer.put(&[11]);
                writer.words(key.words());
                writer.epoch(*epoch);
            }
            Message::DrainMarker(group, to, epoch) => {
                writer.put(&[8]);
                writer.words(group.words());
                writer.put(&to.0.to_be_bytes());
                writer.epoch(*epoch);
            }
            Message::Switch(group, message) => {
                writer.put(&[9]);
                writer.words(group.words());
                let (what, epoch, to) = match *message {
                    SwitchMessage::Rerouted(epoch) => (0, epoch, 0),
                    SwitchMessage::Refused(epoch) => (1, epoch, 0),
                    SwitchMessage::Moved(to, epoch) => (2, epoch, to.0),
                    SwitchMessage::Drained(epoch) => (3, epoch, 0),
                    SwitchMessage::Fenced(epoch) => (4, epoch, 0),
                };
                writer.put(&[what]);
                writer.epoch(epoch);
                writer.put(&u16::to_be_bytes(to));
            }
            Message::Leaving(is_leaving) => writer.put(&[12, u8::from(*is_leaving)]),
            Message::Resynced => writer.put(&[13]),
            Message::BarrierAsked(round) | Message::BarrierAcknowledged(round) => {
                let is_asked = matches!(self, Message::BarrierAsked(_));
                writer.put(&[if is_asked { 16 } else { 17 }]);
                writer.put(&round.to_be_bytes());
            }
            Message::Incarnation(incarnation) => {
                writer.put(&[23]);
                writer.put(&incarnation.to_be_bytes());
            }
            Message::Keeps(runtime, number, incarnation) => {
                writer.put(&[20]);
                writer.put(&runtime.0.to_be_bytes());
                writer.put(&number.to_be_bytes());
                writer.put(&incarnation.to_be_bytes());
            }
            Message::Heir(runtime, incarnation) | Message::Meets(runtime, incarnation) => {
                let is_heir = matches!(self, Message::Heir(..));
                writer.put(&[if is_heir { 21 } else { 26 }]);
                writer.put(&runtime.0.to_be_bytes());
                writer.put(&incarnation.to_be_bytes());
            }
            Message::Recovered(runtime) => {
                writer.put(&[22]);
                writer.put(&runtime.0.to_be_bytes());
            }
            Message::LeaseAsked(incarnation, view, asked) => {
                writer.put(&[18]);
                writer.put(&incarnation.to_be_bytes());
                writer.put(&view.to_be_bytes());
                writer.put(&asked.to_be_bytes());
            }
            Message::LeaseGranted(incarnation, asked) => {
                writer.put(&[19]);
                writer.put(&incarnation.to_be_bytes());
                writer.put(&asked.to_be_bytes());
            }
            Message::BlockLent(block, home, to) => {
                writer.put(&[24]);
                writer.block(block);
                writer.put(&home.0.to_be_bytes());
                writer.put(&to.0.to_be_bytes());
            }
            Message::LendsOver(home) => {
                writer.put(&[25]);
                writer.put(&home.0.to_be_bytes());
            }
            Message::BlockKept(block, home) => {
                writer.put(&[27]);
                writer.block(block);
                writer.put(&home.0.to_be_bytes());
            }
            Message::BlockReturned(block, runtime) => {
                writer.put(&[10]);
                writer.block(block);
                writer.put(&runtime.0.to_be_bytes());
            }
        }
        let length = writer.at;
        if at + length > room(frame) || !frame.set_length(at + length) {
            return false;
        }
        frame.frame_mut()[at..].copy_from_slice(&record[..length]);
        true
    }

    /// The keys that are re-routed at the beginning of a frame, where nothing else is: by that
    /// alone, to fetch the routes that will be looked at.
    pub fn keys_rerouted(bytes: &[u8]) -> impl Iterator<Item = GroupKey> {
        let is_one = |record: &&[u8]| record.first() == Some(&REROUTE);
        let records = bytes.chunks_exact(RECORD_MAX).take_while(is_one);
        records.filter_map(|record| Some(GroupKey::from_words(Reader(&record[41..]).words()?)))
    }

    /// Makes an empty frame of messages of a buffer.
    pub fn begin(frame: &mut Packet) {
        frame.reset(0, LinkType::Raw);
        frame.set_kind(Kind::Message);
    }

    /// The first record of `bytes` and what follows it; `None` at the end, or where the bytes are
    /// no record.
    pub fn read(bytes: &[u8]) -> Option<(Message, &[u8])> {
        let mut reader = Reader(bytes);
        let message = match reader.take::<1>()?[0] {
            1 => Message::BlockClaimed(reader.block()?, GroupKey::from_words(reader.words()?)),
            2 => Message::BlockReleased(reader.block()?),
            3 => Message::Routed(GroupKey::from_words(reader.words()?)),
            4 => Message::GroupEmpty(
                GroupKey::from_words(reader.words()?),
                u64::from_be_bytes(*reader.take::<8>()?),
            ),
            5 => Message::RouteSuspect(GroupKey::from_words(reader.words()?)),
            6 => Message::RouteConflict(GroupKey::from_words(reader.words()?)),
            REROUTE => {
                let (group, key) = (reader.words()?, reader.words()?);
                let (from, to) = (reader.runtime()?, reader.runtime()?);
                let incarnation = u64::from_be_bytes(*reader.take::<8>()?);
                let (epoch, [marks]) = (reader.epoch()?, *reader.take::<1>()?);
                Message::Reroute(Reroute {
                    group: GroupKey::from_words(group),
                    key: GroupKey::from_words(key),
                    from,
                    to,
                    incarnation,
                    epoch,
                    is_last: marks & 1 != 0,
                    taken: match marks >> 1 {
                        0 => Taken::Not,
                        1 => Taken::Back,
                        2 => Taken::Late,
                        _ => return None,
                    },
                })
            }
            8 => Message::DrainMarker(
                GroupKey::from_words(reader.words()?),
                reader.runtime()?,
                reader.epoch()?,
            ),
            9 => {
                let group = GroupKey::from_words(reader.words()?);
                let what = reader.take::<1>()?[0];
                let (epoch, to) = (reader.epoch()?, reader.runtime()?);
                Message::Switch(
                    group,
                    match what {
                        0 => SwitchMessage::Rerouted(epoch),
                        1 => SwitchMessage::Refused(epoch),
                        2 => SwitchMessage::Moved(to, epoch),
                        3 => SwitchMessage::Drained(epoch),
                        4 => SwitchMessage::Fenced(epoch),
                        _ => return None,
                    },
                )
            }
            11 => Message::Installed(GroupKey::from_words(reader.words()?), reader.epoch()?),
            12 => Message::Leaving(reader.take::<1>()?[0] != 0),
            13 => Message::Resynced,
            14 => Message::BlockTentative(reader.block()?, GroupKey::from_words(reader.words()?)),
            15 => Message::BlockSuspect(reader.block()?, GroupKey::from_words(reader.words()?)),
            16 => Message::BarrierAsked(u64::from_be_bytes(*reader.take::<8>()?)),
            17 => Message::BarrierAcknowledged(u64::from_be_bytes(*reader.take::<8>()?)),
            20 => Message::Keeps(
                reader.runtime()?,
                u32::from_be_bytes(*reader.take::<4>()?),
                u64::from_be_bytes(*reader.take::<8>()?),
            ),
            21 => Message::Heir(reader.runtime()?, u64::from_be_bytes(*reader.take::<8>()?)),
            22 => Message::Recovered(reader.runtime()?),
            23 => Message::Incarnation(u64::from_be_bytes(*reader.take::<8>()?)),
            18 => Message::LeaseAsked(
                u64::from_be_bytes(*reader.take::<8>()?),
                u32::from_be_bytes(*reader.take::<4>()?),
                u64::from_be_bytes(*reader.take::<8>()?),
            ),
            19 => Message::LeaseGranted(
                u64::from_be_bytes(*reader.take::<8>()?),
                u64::from_be_bytes(*reader.take::<8>()?),
            ),
            10 => Message::BlockReturned(reader.block()?, reader.runtime()?),
            24 => Message::BlockLent(reader.block()?, reader.runtime()?, reader.runtime()?),
            25 => Message::LendsOver(reader.runtime()?),
            27 => Message::BlockKept(reader.block()?, reader.runtime()?),
            26 => Message::Meets(reader.runtime()?, u64::from_be_bytes(*reader.take::<8>()?)),
            _ => return None,
        };
        Some((message, reader.0))
    }
}

struct Writer<'a> {
    bytes: &'a mut [u8; RECORD_MAX],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
    fn words(&mut self, words: &[u64; 5]) {
        for word in words {
            self.put(&word.to_be_bytes());
        }
    }
    fn epoch(&mut self, epoch: Epoch) {
        self.put(&epoch.view.to_be_bytes());
        self.put(&epoch.count.to_be_bytes());
    }
    fn block(&mut self, block: &Block) {
        self.put(block.addr.octets());
        self.put(&block.first.to_be_bytes());
        self.put(&block.ports.to_be_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(head)
    }
    fn words(&mut self) -> Option<[u64; 5]> {
        let mut words = [0; 5];
        for word in &mut words {
            *word = u64::from_be_bytes(*self.take::<8>()?);
        }
        Some(words)
    }
    fn runtime(&mut self) -> Option<RuntimeId> {
        Some(RuntimeId(u16::from_be_bytes(*self.take::<2>()?)))
    }
    fn epoch(&mut self) -> Option<Epoch> {
        Some(Epoch {
            view: u32::from_be_bytes(*self.take::<4>()?),
            count: u32::from_be_bytes(*self.take::<4>()?),
        })
    }
    fn block(&mut self) -> Option<Block> {
        Some(Block {
            addr: Addr::v6(*self.take::<16>()?),
            first: u16::from_be_bytes(*self.take::<2>()?),
            ports: u16::from_be_bytes(*self.take::<2>()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;
    use wire::Pool;
    use wire::memory::Region;

    fn message() -> impl Strategy<Value = Message> {
        let block = (any::<[u8; 16]>(), any::<u16>(), any::<u16>()).prop_map(|(addr, first, ports)| Block {
            addr: Addr::v6(addr),
            first,
            ports,
        });
        let group = any::<[u64; 5]>().prop_map(GroupKey::from_words);
        let epoch = || (any::<u32>(), any::<u32>()).prop_map(|(view, count)| Epoch { view, count });
        let runtime = || any::<u16>().prop_map(RuntimeId);
        let message = prop_oneof![
            epoch().prop_map(SwitchMessage::Rerouted),
            epoch().prop_map(SwitchMessage::Refused),
            (runtime(), epoch()).prop_map(|(to, epoch)| SwitchMessage::Moved(to, epoch)),
            epoch().prop_map(SwitchMessage::Drained),
            epoch().prop_map(SwitchMessage::Fenced),
        ];
        let reroute = (
            group.clone(),
            group.clone(),
            runtime(),
            runtime(),
            any::<u64>(),
            epoch(),
            any::<bool>(),
            prop_oneof![Just(Taken::Not), Just(Taken::Back), Just(Taken::Late)],
        )
            .prop_map(
                |(group, key, from, to, incarnation, epoch, is_last, taken)| Reroute {
                    group,
                    key,
                    from,
                    to,
                    incarnation,
                    epoch,
                    is_last,
                    taken,
                },
            );
        prop_oneof![
            reroute.prop_map(Message::Reroute),
            (group.clone(), epoch()).prop_map(|(g, e)| Message::Installed(g, e)),
            (group.clone(), runtime(), epoch()).prop_map(|(g, r, e)| Message::DrainMarker(g, r, e)),
            (group.clone(), message).prop_map(|(g, s)| Message::Switch(g, s)),
            (block.clone(), runtime()).prop_map(|(b, r)| Message::BlockReturned(b, r)),
            (block.clone(), runtime()).prop_map(|(b, r)| Message::BlockKept(b, r)),
            (block.clone(), runtime(), runtime()).prop_map(|(b, r, s)| Message::BlockLent(b, r, s)),
            runtime().prop_map(Message::LendsOver),
            (block.clone(), group.clone()).prop_map(|(b, g)| Message::BlockClaimed(b, g)),
            (block.clone(), group.clone()).prop_map(|(b, g)| Message::BlockTentative(b, g)),
            (block.clone(), group.clone()).prop_map(|(b, g)| Message::BlockSuspect(b, g)),
            block.prop_map(Message::BlockReleased),
            group.clone().prop_map(Message::Routed),
            (group.clone(), any::<u64>()).prop_map(|(g, n)| Message::GroupEmpty(g, n)),
            group.clone().prop_map(Message::RouteSuspect),
            group.prop_map(Message::RouteConflict),
            any::<bool>().prop_map(Message::Leaving),
            Just(Message::Resynced),
            any::<u64>().prop_map(Message::Incarnation),
            (any::<u16>(), any::<u32>(), any::<u64>()).prop_map(|(runtime, number, incarnation)| {
                Message::Keeps(RuntimeId(runtime), number, incarnation)
            }),
            (any::<u16>(), any::<u64>())
                .prop_map(|(runtime, incarnation)| Message::Heir(RuntimeId(runtime), incarnation)),
            (any::<u16>(), any::<u64>())
                .prop_map(|(runtime, incarnation)| Message::Meets(RuntimeId(runtime), incarnation)),
            any::<u16>().prop_map(|runtime| Message::Recovered(RuntimeId(runtime))),
            any::<u64>().prop_map(Message::BarrierAsked),
            any::<u64>().prop_map(Message::BarrierAcknowledged),
            (any::<u64>(), any::<u32>(), any::<u64>()).prop_map(|(i, v, a)| Message::LeaseAsked(i, v, a)),
            (any::<u64>(), any::<u64>()).prop_map(|(i, a)| Message::LeaseGranted(i, a)),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(messages in proptest::collection::vec(message(), 0..40)) {
            let mut pool = Pool::new(Region::heap(Pool::region_length(1, 2048)), 1, 2048, 0);
            let mut frame = pool.take().unwrap();
            Message::begin(&mut frame);
            let fitted: Vec<Message> = messages.into_iter().take_while(|m| m.append(&mut frame)).collect();
            let mut bytes = frame.frame();
            let mut read = Vec::new();
            while let Some((message, rest)) = Message::read(bytes) {
                read.push(message);
                bytes = rest;
            }
            prop_assert!(bytes.is_empty());
            prop_assert_eq!(read, fitted);
            pool.give(frame);
        }

        #[test]
        fn keys_are_named_up_to_the_first_other_word(messages in proptest::collection::vec(message(), 0..20)) {
            let mut pool = Pool::new(Region::heap(Pool::region_length(1, 2048)), 1, 2048, 0);
            let mut frame = pool.take().unwrap();
            Message::begin(&mut frame);
            // Some more than by chance.
            let key = GroupKey::from_words([4, 5, 6, 7, 8]);
            let reroute = Message::Reroute(Reroute {
                group: GroupKey::from_words([1; 5]),
                key,
                from: RuntimeId(1),
                to: RuntimeId(2),
                incarnation: 5,
                epoch: Epoch { view: 3, count: 4 },
                is_last: true,
                taken: Taken::Back,
            });
            let said = [reroute, reroute].into_iter().chain(messages);
            let said: Vec<Message> = said.take_while(|m| m.append(&mut frame)).collect();
            let first = said.iter().map_while(|message| match message {
                Message::Reroute(reroute) => Some(reroute.key),
                _ => None,
            });
            prop_assert_eq!(Message::keys_rerouted(frame.frame()).collect::<Vec<_>>(), first.collect::<Vec<_>>());
            pool.give(frame);
        }

        #[test]
        fn hostile_bytes_are_no_harm(kind in 0u8..20, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut pool = Pool::new(Region::heap(Pool::region_length(1, 2048)), 1, 2048, 0);
            let mut frame = pool.take().unwrap();
            let bytes = [&[kind][..], &bytes].concat();
            let mut rest = &bytes[..];
            while let Some((message, next)) = Message::read(rest) {
                // Bytes may differ that mean nothing, or the same.
                Message::begin(&mut frame);
                prop_assert!(message.append(&mut frame));
                prop_assert_eq!(frame.frame().len(), rest.len() - next.len());
                prop_assert_eq!(Message::read(frame.frame()), Some((message, &[][..])));
                rest = next;
            }
            pool.give(frame);
        }
    }
}
