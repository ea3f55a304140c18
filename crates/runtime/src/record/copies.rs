//! Records of copies that another runtime keeps: types 12 to 21.

use super::{FLOW_HEAD, Facts, Reader, Writer};
use crate::flows::group::GroupKey;
use nf::{Addr, Block};

/// Of copies that another runtime keeps ([`crate::replica`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copy<'a> {
    /// All earlier copies of the sender, of this life, are void.
    Base {
        number: u32,
        now: u64,
        life: u64,
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
        facts: Facts,
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
}

impl<'a> Copy<'a> {
    pub(super) fn length(&self) -> usize {
        match self {
            Copy::Base { .. } => 21,
            Copy::Acknowledged { .. } => 13,
            Copy::Group { piece, .. } => 49 + piece.len(),
            Copy::Flow { piece, .. } => 11 + FLOW_HEAD + piece.len(),
            Copy::More(piece) => 3 + piece.len(),
            Copy::Runs { runs, .. } => 8 + runs.len(),
            Copy::End { .. } => 6,
            Copy::Rests { .. } => 13,
            Copy::Block { .. } => 62,
            Copy::Whole => 1,
        }
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        match *self {
            Copy::Base { number, now, life } => {
                writer.put(&[12]);
                writer.put(&number.to_be_bytes());
                writer.put(&now.to_be_bytes());
                writer.put(&life.to_be_bytes());
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
                ref facts,
                piece,
            } => {
                writer.put(&[14]);
                writer.put(&slot.to_be_bytes());
                writer.put(&group.to_be_bytes());
                writer.put(&length.to_be_bytes());
                writer.put(&facts.head(piece.len()));
                writer.put(piece);
            }
            Copy::More(piece) => {
                writer.put(&[15]);
                writer.piece(piece);
            }
            Copy::Runs { slot, is_group, runs } => {
                writer.put(&[16]);
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
        }
    }

    pub(super) fn read(what: u8, reader: &mut Reader<'a>) -> Option<Copy<'a>> {
        Some(match what {
            12 => Copy::Base {
                number: reader.u32()?,
                now: reader.u64()?,
                life: reader.u64()?,
            },
            13 => Copy::Group {
                slot: reader.u32()?,
                group: reader.group()?,
                length: reader.u16()?,
                piece: reader.piece()?,
            },
            14 => {
                let (slot, group, length) = (reader.u32()?, reader.u32()?, reader.u16()?);
                let (facts, piece, rest) = Facts::read(reader.0)?;
                reader.0 = rest;
                Copy::Flow {
                    slot,
                    group,
                    length,
                    facts,
                    piece,
                }
            }
            15 => Copy::More(reader.piece()?),
            16 => Copy::Runs {
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
            _ => return None,
        })
    }
}
