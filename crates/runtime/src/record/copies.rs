//! Records of copies that another runtime keeps: types 12 to 21, and 26 to 30.

use super::{FLOW_HEAD, FlowHeader, Reader, Writer};
use crate::flows::group::GroupKey;
use alloc::vec::Vec;
use nf::{Addr, Block};
use wire::Packet;

/// The type byte of changed bytes, and how much is in front of them.
const RUNS: u8 = 16;
const RUNS_HEAD: usize = 8;

/// Of copies that another runtime keeps ([`crate::replica`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copy<'a> {
    /// All earlier copies of the sender, of this incarnation, are void.
    Base {
        number: u32,
        now: u64,
        incarnation: u64,
        /// It counts only behind *whole*: until then another runtime has copies.
        is_second: bool,
    },
    Group {
        slot: u32,
        group: GroupKey,
        length: u16,
        piece: &'a [u8],
    },
    Flow {
        slot: u32,
        group: u32,
        length: u16,
        /// By which of the sender's configurations it goes.
        generation: u8,
        flow_header: FlowHeader,
        piece: &'a [u8],
    },
    More(&'a [u8]),
    Runs {
        slot: u32,
        is_group: bool,
        runs: &'a [u8],
    },
    End {
        slot: u32,
        is_group: bool,
    },
    Block {
        is_claimed: bool,
        block: Block,
        group: GroupKey,
    },
    Whole,
    /// The group rests, for so long.
    Rests {
        slot: u32,
        left: u64,
    },
    /// By the runtime that keeps them.
    Acknowledged {
        number: u32,
        count: u64,
    },
    /// By the same: a record of this base cannot be kept, nor what follows it.
    Refused {
        number: u32,
    },
    /// A configuration that copied flows go by: the low bits of its number at the sender, its
    /// identity, and the layout of each chain's flows (`replica::generations`).
    Plan {
        generation: u8,
        identity: u64,
        chains: &'a [u8],
    },
    /// All records from here to [`Copy::Changed`] are one change: it is kept whole, or not at all.
    Change,
    Changed,
    /// A group has come to the sender by a move, whose source may have it yet, and it has ended; or
    /// the source has none of it any more.
    Over {
        group: GroupKey,
        is_over: bool,
    },
}

/// Copies bytes to a place that is as long. Most runs have 4 to 16 bytes: those go without a call,
/// as two words that may overlap.
#[inline(always)]
fn copy_short(to: &mut [u8], from: &[u8]) {
    match from.len() {
        8..=16 => copy_ends::<8>(to, from),
        4..8 => copy_ends::<4>(to, from),
        _ => to.copy_from_slice(from),
    }
}

#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        if let Some(place) = to.first_chunk_mut() {
            *place = *first;
        }
        if let Some(place) = to.last_chunk_mut() {
            *place = *last;
        }
    }
}

impl<'a> Copy<'a> {
    /// Appends a record of changed bytes to a frame, as [`super::Record::append`] does, without a
    /// copy on the way.
    #[inline]
    pub fn append_runs(slot: u32, is_group: bool, runs: &[u8], frame: &mut Packet) -> bool {
        let at = frame.frame().len();
        let length = at + RUNS_HEAD + runs.len();
        if length > crate::message::room(frame) || !frame.set_length(length) {
            return false;
        }
        let Some((head, rest)) = frame
            .frame_mut()
            .get_mut(at..)
            .and_then(|place| place.split_first_chunk_mut::<RUNS_HEAD>())
        else {
            return false;
        };
        let ([a, b, c, d], [high, low]) = (slot.to_be_bytes(), (runs.len() as u16).to_be_bytes());
        *head = [RUNS, a, b, c, d, u8::from(is_group), high, low];
        copy_short(rest, runs);
        true
    }

    pub(super) fn length(&self) -> usize {
        match self {
            Copy::Base { .. } => 22,
            Copy::Acknowledged { .. } => 13,
            Copy::Group { piece, .. } => 49 + piece.len(),
            Copy::Flow { piece, .. } => 12 + FLOW_HEAD + piece.len(),
            Copy::More(piece) => 3 + piece.len(),
            Copy::Runs { runs, .. } => RUNS_HEAD + runs.len(),
            Copy::End { .. } => 6,
            Copy::Rests { .. } => 13,
            Copy::Block { .. } => 62,
            Copy::Whole | Copy::Change | Copy::Changed => 1,
            Copy::Refused { .. } => 5,
            Copy::Plan { chains, .. } => 12 + chains.len(),
            Copy::Over { .. } => 42,
        }
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        match *self {
            Copy::Base {
                number,
                now,
                incarnation,
                is_second,
            } => {
                writer.put(&[12]);
                writer.put(&number.to_be_bytes());
                writer.put(&now.to_be_bytes());
                writer.put(&incarnation.to_be_bytes());
                writer.put(&[u8::from(is_second)]);
            }
            Copy::Group {
                slot,
                ref group,
                length,
                piece,
            } => {
                writer.put(&[13]);
                writer.put(&slot.to_be_bytes());
                writer.words(group.words());
                writer.put(&length.to_be_bytes());
                writer.piece(piece);
            }
            Copy::Flow {
                slot,
                group,
                length,
                generation,
                ref flow_header,
                piece,
            } => {
                writer.put(&[14]);
                writer.put(&slot.to_be_bytes());
                writer.put(&group.to_be_bytes());
                writer.put(&length.to_be_bytes());
                writer.put(&[generation]);
                writer.put(&flow_header.head(piece.len()));
                writer.put(piece);
            }
            Copy::More(piece) => {
                writer.put(&[15]);
                writer.piece(piece);
            }
            Copy::Runs { slot, is_group, runs } => {
                writer.put(&[RUNS]);
                writer.put(&slot.to_be_bytes());
                writer.put(&[u8::from(is_group)]);
                writer.piece(runs);
            }
            Copy::End { slot, is_group } => {
                writer.put(&[17]);
                writer.put(&slot.to_be_bytes());
                writer.put(&[u8::from(is_group)]);
            }
            Copy::Block {
                is_claimed,
                ref block,
                ref group,
            } => {
                writer.put(&[18, u8::from(is_claimed)]);
                writer.put(block.addr.octets());
                writer.put(&block.first.to_be_bytes());
                writer.put(&block.ports.to_be_bytes());
                writer.words(group.words());
            }
            Copy::Whole => writer.put(&[19]),
            Copy::Rests { slot, left } => {
                writer.put(&[21]);
                writer.put(&slot.to_be_bytes());
                writer.put(&left.to_be_bytes());
            }
            Copy::Acknowledged { number, count } => {
                writer.put(&[20]);
                writer.put(&number.to_be_bytes());
                writer.put(&count.to_be_bytes());
            }
            Copy::Refused { number } => {
                writer.put(&[26]);
                writer.put(&number.to_be_bytes());
            }
            Copy::Plan {
                generation,
                identity,
                chains,
            } => {
                writer.put(&[27, generation]);
                writer.put(&identity.to_be_bytes());
                writer.piece(chains);
            }
            Copy::Change => writer.put(&[28]),
            Copy::Changed => writer.put(&[29]),
            Copy::Over { ref group, is_over } => {
                writer.put(&[30]);
                writer.words(group.words());
                writer.put(&[u8::from(is_over)]);
            }
        }
    }

    /// Appends the record to others.
    pub fn append_to(&self, records: &mut Vec<u8>) {
        let at = records.len();
        records.resize(at + self.length(), 0);
        self.write(&mut Writer { frame: records, at });
    }

    pub(super) fn read(what: u8, reader: &mut Reader<'a>) -> Option<Copy<'a>> {
        Some(match what {
            12 => Copy::Base {
                number: reader.u32()?,
                now: reader.u64()?,
                incarnation: reader.u64()?,
                is_second: reader.flag()?,
            },
            13 => Copy::Group {
                slot: reader.u32()?,
                group: reader.group()?,
                length: reader.u16()?,
                piece: reader.piece()?,
            },
            14 => {
                let (slot, group, length) = (reader.u32()?, reader.u32()?, reader.u16()?);
                let [generation] = *reader.take::<1>()?;
                let (flow_header, piece, rest) = FlowHeader::read(reader.0)?;
                reader.0 = rest;
                Copy::Flow {
                    slot,
                    group,
                    length,
                    generation,
                    flow_header,
                    piece,
                }
            }
            15 => Copy::More(reader.piece()?),
            RUNS => Copy::Runs {
                slot: reader.u32()?,
                is_group: reader.flag()?,
                runs: reader.piece()?,
            },
            17 => Copy::End {
                slot: reader.u32()?,
                is_group: reader.flag()?,
            },
            18 => Copy::Block {
                is_claimed: reader.flag()?,
                block: Block {
                    addr: Addr::v6(*reader.take::<16>()?),
                    first: reader.u16()?,
                    ports: reader.u16()?,
                },
                group: reader.group()?,
            },
            19 => Copy::Whole,
            20 => Copy::Acknowledged {
                number: reader.u32()?,
                count: reader.u64()?,
            },
            21 => Copy::Rests {
                slot: reader.u32()?,
                left: reader.u64()?,
            },
            26 => Copy::Refused {
                number: reader.u32()?,
            },
            27 => {
                let [generation] = *reader.take::<1>()?;
                Copy::Plan {
                    generation,
                    identity: reader.u64()?,
                    chains: reader.piece()?,
                }
            }
            28 => Copy::Change,
            29 => Copy::Changed,
            30 => Copy::Over {
                group: reader.group()?,
                is_over: reader.flag()?,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::record::Record;
    use wire::Pool;
    use wire::memory::Region;

    #[test]
    fn the_short_way_of_changed_bytes_writes_the_same() {
        let mut pool = Pool::new(Region::heap(Pool::region_length(1, 128)), 1, 128, 0);
        let mut frame = pool.take().unwrap();
        Message::begin(&mut frame);
        let record = Record::Copy(Copy::Runs {
            slot: 0x0102_0304,
            is_group: true,
            runs: b"runs",
        });
        let mut count = 0;
        while Copy::append_runs(0x0102_0304, true, b"runs", &mut frame) {
            count += 1;
        }
        assert_eq!(frame.frame(), record.bytes().repeat(count));
        // No room is left for another by the long way either.
        assert!(count > 0 && !record.append(&mut frame));
        pool.give(frame);
    }
}
