//! What a primary sends: records of ends and blocks, of groups and flows, whole or as runs of what
//! changed.
//!
//! Invariant: a record is counted when it is sent, so that the count names it.

use super::sender::facts;
use crate::flows::Ended;
use crate::flows::actor::{Header, NO_GROUP, STALE};
use crate::parts::Core;
use crate::record::{Copy, Record, Travelling};
use alloc::vec::Vec;

/// Bytes of a state in one record.
const PIECE: usize = 1024;
/// Bytes compared at a time.
const CHUNK: usize = 64;

impl Core {
    pub(super) fn send_copy(&mut self, copy: Copy<'_>) {
        if let Some(to) = self.sender.to {
            self.out.send_record(to, &Record::Copy(copy));
            self.sender.sent += 1;
        }
    }

    /// Ends and blocks, before any record that follows them.
    #[cold]
    pub(super) fn send_ends(&mut self) {
        if self.flows.owners.has_changes() {
            for change in self.flows.owners.take_changes() {
                self.send_copy(Copy::Block {
                    is_claimed: change.is_claimed,
                    block: change.block,
                    group: change.group,
                });
            }
        }
        let ended = self.flows.take_ended();
        for over in &ended {
            let (slot, is_group) = match *over {
                Ended::Flow(actor, copied) => {
                    self.sender.forget(copied);
                    (actor, false)
                }
                Ended::Group(group) => {
                    self.sender.set_group(group, 0);
                    (group, true)
                }
                Ended::InGroup(_) => continue,
            };
            self.send_copy(Copy::End { slot, is_group });
        }
        let mut sent = None;
        for over in &ended {
            if let Ended::InGroup(group) = *over
                && sent != Some(group)
                && self.sender.before.group != Some(group)
                && self.sender.has_group(group)
            {
                sent = Some(group);
                self.send_group(group);
                self.gate.mark(group, self.sender.sent);
            }
        }
        self.flows.give_ended(ended);
    }

    pub(super) fn send_group(&mut self, group: u32) {
        let key = self.flows.groups().key(group);
        let bytes = self.flows.groups().state_bytes(group);
        let length = bytes.len() as u16;
        let mut pieces = bytes.chunks(PIECE);
        let Some(to) = self.sender.to else {
            return;
        };
        let first = Copy::Group {
            slot: group,
            group: key,
            length,
            piece: pieces.next().unwrap_or_default(),
        };
        self.out.send_record(to, &Record::Copy(first));
        self.sender.sent += 1;
        for piece in pieces {
            self.out.send_record(to, &Record::Copy(Copy::More(piece)));
            self.sender.sent += 1;
        }
        self.sender.set_group(group, self.sender.base());
        if self.sender.before.group == Some(group) {
            self.sender.before.group = None;
        }
    }

    pub(super) fn send_flow(&mut self, actor: u32) {
        let header = *self.flows.header(actor);
        let Some(state) = self.runner.travelling(header.chain, &self.flows) else {
            return;
        };
        let Some(to) = self.sender.to else {
            return;
        };
        let mut sent = 0;
        let mut is_first = true;
        while is_first || sent < state.length() {
            let place = state.place(sent);
            let place = place.start..place.end.min(place.start + PIECE);
            let piece = self.flows.state_bytes(actor).get(place).unwrap_or_default();
            sent += piece.len();
            let copy = match is_first {
                true => Copy::Flow {
                    slot: actor,
                    group: header.group,
                    length: state.length() as u16,
                    facts: facts(&header, *self.flows.second_key(actor), self.now),
                    piece,
                },
                false => Copy::More(piece),
            };
            self.out.send_record(to, &Record::Copy(copy));
            self.sender.sent += 1;
            if piece.is_empty() {
                break;
            }
            is_first = false;
        }
        let base = self.sender.base();
        self.sender.flows += u64::from(header.copied & !STALE != base);
        self.flows.header_mut(actor).copied = base;
    }

    pub(super) fn send_runs(&mut self, actor: u32, header: &Header) {
        let Some(state) = self.runner.travelling(header.chain, &self.flows) else {
            return;
        };
        let mut runs = core::mem::take(&mut self.sender.runs);
        let mut at = 0;
        let own = self.runner.stages().committed(header.chain).len();
        let shared = match header.group {
            NO_GROUP => self.runner.stages().group_committed().len(),
            _ => 0,
        };
        let offset = self.flows.group_offset();
        for index in 0..own + shared {
            let range = match index.checked_sub(own) {
                None => self.runner.stages().committed(header.chain).get(index).cloned(),
                Some(index) => {
                    let range = self.runner.stages().group_committed().get(index);
                    range.map(|range| offset + range.start..offset + range.end)
                }
            };
            let Some(range) = range else {
                break;
            };
            let first = place_in_copy(range.start, &state);
            let now = self.flows.state_bytes(actor).get(range).unwrap_or_default();
            let length = now.len();
            match self.sender.before.flow.get_mut(at..at + length) {
                Some(before) => compare(before, now, first, &mut runs),
                None => self.flows.header_mut(actor).outdate_copy(),
            }
            at += length;
            self.send_full_runs(actor, false, &mut runs, PIECE);
        }
        self.send_full_runs(actor, false, &mut runs, 0);
        self.sender.runs = runs;
    }

    pub(super) fn send_group_runs(&mut self, group: u32) {
        let mut runs = core::mem::take(&mut self.sender.runs);
        let mut at = 0;
        for index in 0..self.runner.stages().group_committed().len() {
            let Some(range) = self.runner.stages().group_committed().get(index).cloned() else {
                break;
            };
            let first = range.start;
            let now = self
                .flows
                .groups()
                .state_bytes(group)
                .get(range)
                .unwrap_or_default();
            let length = now.len();
            match self.sender.before.group_bytes.get_mut(at..at + length) {
                Some(before) => compare(before, now, first, &mut runs),
                None => self.sender.groups.clear(),
            }
            at += length;
            self.send_full_runs(group, true, &mut runs, PIECE);
        }
        self.send_full_runs(group, true, &mut runs, 0);
        self.sender.runs = runs;
    }

    /// Sends runs once they are longer than that.
    pub(super) fn send_full_runs(
        &mut self,
        slot: u32,
        is_group: bool,
        runs: &mut Vec<u8>,
        longer_than: usize,
    ) {
        if runs.len() > longer_than {
            for piece in split_runs(runs) {
                self.send_copy(Copy::Runs {
                    slot,
                    is_group,
                    runs: piece,
                });
            }
            runs.clear();
        }
    }
}

/// Where the bytes of an actor's state are in its copy.
fn place_in_copy(at: usize, state: &Travelling) -> usize {
    match at < state.own || state.group.1 == 0 {
        true => at,
        false => at - state.group.0 + state.own,
    }
}

/// Appends a run for what differs, at places from `first` on, and notes the new bytes.
#[inline]
fn compare(before: &mut [u8], now: &[u8], first: usize, runs: &mut Vec<u8>) {
    if before == now {
        return;
    }
    for (index, (old, new)) in before.chunks_mut(CHUNK).zip(now.chunks(CHUNK)).enumerate() {
        let Some(from) = old.iter().zip(new).position(|(old, new)| old != new) else {
            continue;
        };
        let differs = |(old, new): (&u8, &u8)| old != new;
        let to = old.len() - old.iter().zip(new).rev().position(differs).unwrap_or(0);
        let run = &new[from..to];
        let place = (first + index * CHUNK + from) as u16;
        runs.extend_from_slice(&place.to_be_bytes());
        runs.push(run.len() as u8);
        runs.extend_from_slice(run);
        old.copy_from_slice(new);
    }
}

/// Runs in records of bounded length.
fn split_runs(runs: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = runs;
    core::iter::from_fn(move || {
        let mut length = 0;
        while let Some(run) = rest.get(length + 2) {
            let next = length + 3 + usize::from(*run);
            if next > PIECE && length > 0 {
                break;
            }
            length = next.min(rest.len());
        }
        let (piece, left) = rest.split_at(length);
        rest = left;
        (!piece.is_empty()).then_some(piece)
    })
}
