//! Which worker has which number, and which tokens were used: what the log has besides decisions.

use crate::proto;
use crate::translate::{self, WORKERS_MAX};
use protocols::membership::{Incarnation, Role, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// Used tokens that are not over, at most.
const TOKENS_MAX: usize = 1024;

/// A worker's place in its member.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Slot {
    member: String,
    role: Role,
    /// Among the member's workers of that role.
    place: u32,
}

impl Slot {
    pub fn new(member: &str, role: Role, place: u32) -> Self {
        Slot {
            member: member.to_owned(),
            role,
            place,
        }
    }

    /// As the log has it.
    pub fn record(&self, id: WorkerId, life: Incarnation) -> proto::Numbered {
        proto::Numbered {
            member: self.member.clone(),
            slot: self.place,
            worker: Some(translate::worker(id, life)),
        }
    }
}

struct Known {
    id: WorkerId,
    /// The newest life that asked to be a member.
    life: Incarnation,
    /// The record that says so.
    record: u64,
}

/// Why places get no numbers.
#[derive(Debug, PartialEq, Eq)]
pub enum NoNumber {
    /// There are too many workers.
    Full,
    /// The number is another place's, of this member, or the place has another one.
    Taken(WorkerId, String),
}

/// Numbers and tokens.
#[derive(Default)]
pub struct Book {
    slots: BTreeMap<Slot, Known>,
    names: BTreeMap<WorkerId, String>,
    /// By id: when it is over, and the record that says that it was used.
    tokens: BTreeMap<[u8; 16], (u64, u64)>,
}

impl Book {
    /// Notes a number; the record that said the same before is needed no more. `None`: the number is another one's.
    pub fn number(&mut self, record: u64, numbered: &proto::Numbered) -> Option<Option<u64>> {
        let (id, life) = numbered.worker.as_ref().and_then(translate::to_worker)?;
        let slot = Slot::new(&numbered.member, id.role, numbered.slot);
        let known = Known { id, life, record };
        let is_same = self.slots.get(&slot).is_some_and(|known| known.id == id);
        if !is_same && (self.slots.contains_key(&slot) || self.names.contains_key(&id)) {
            return None;
        }
        self.names.insert(id, numbered.member.clone());
        let before = self.slots.insert(slot, known);
        Some(before.map(|before| before.record))
    }

    /// The numbers of these places: those they have, those that are `wished` for, or the smallest that nobody has.
    pub fn numbers_for(&self, slots: &[Slot], wished: &[u16]) -> Result<Vec<WorkerId>, NoNumber> {
        let mut taken: BTreeSet<WorkerId> = BTreeSet::new();
        let mut ids = Vec::new();
        for (place, slot) in slots.iter().enumerate() {
            let wish = wished.get(place).map(|number| WorkerId {
                role: slot.role,
                number: *number,
            });
            let known = self.slots.get(slot).map(|known| known.id);
            let id = match (known, wish) {
                (Some(known), None) => known,
                (Some(known), Some(wish)) if known == wish => known,
                (None, Some(wish)) if !self.names.contains_key(&wish) && !taken.contains(&wish) => wish,
                (_, Some(wish)) => {
                    let owner = self.name(wish).unwrap_or_default().to_owned();
                    return Err(NoNumber::Taken(wish, owner));
                }
                (None, None) => {
                    let all = (0..=u16::MAX).map(|number| WorkerId {
                        role: slot.role,
                        number,
                    });
                    let mut free = all.filter(|id| !self.names.contains_key(id) && !taken.contains(id));
                    free.next().ok_or(NoNumber::Full)?
                }
            };
            taken.insert(id);
            ids.push(id);
        }
        let new = taken.iter().filter(|id| !self.names.contains_key(id)).count();
        match self.names.len() + new <= WORKERS_MAX {
            true => Ok(ids),
            false => Err(NoNumber::Full),
        }
    }

    /// The newest life of a place.
    pub fn life(&self, slot: &Slot) -> Option<Incarnation> {
        self.slots.get(slot).map(|known| known.life)
    }

    /// Whether a number is a member's.
    pub fn is_of(&self, id: WorkerId, member: &str) -> bool {
        self.name(id) == Some(member)
    }

    /// The member that has a number.
    pub fn name(&self, id: WorkerId) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    /// Notes that a token was used. `None`: this is no token's record.
    pub fn use_token(&mut self, record: u64, token: &proto::TokenUsed) -> Option<()> {
        let id: [u8; 16] = token.id.as_slice().try_into().ok()?;
        self.tokens.insert(id, (token.expires, record));
        Some(())
    }

    pub fn has_token(&self, id: &[u8; 16]) -> bool {
        self.tokens.contains_key(id)
    }

    pub fn has_room_for_token(&self) -> bool {
        self.tokens.len() < TOKENS_MAX
    }

    /// Forgets tokens that are over; their records are needed no more.
    pub fn forget_tokens(&mut self, now: u64) -> Vec<u64> {
        let over = self.tokens.extract_if(.., |_, (expires, _)| *expires <= now);
        over.map(|(_, (_, record))| record).collect()
    }

    /// How many records say all this.
    pub fn records(&self) -> usize {
        self.slots.len() + self.tokens.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_keeps_its_number_and_no_two_have_one() {
        let mut book = Book::default();
        let slot = |member: &str, place| Slot::new(member, Role::Runtime, place);
        let all = [slot("a", 0), slot("a", 1)];
        let ids = book.numbers_for(&all, &[]).unwrap();
        assert_eq!(ids, [WorkerId::runtime(0), WorkerId::runtime(1)]);
        for (record, (slot, id)) in (5..).zip(all.iter().zip(&ids)) {
            assert_eq!(book.number(record, &slot.record(*id, Incarnation(1))), Some(None));
        }
        // Another member gets others; the first keeps its own, at a later life too.
        assert_eq!(
            book.numbers_for(&[slot("b", 0)], &[]).unwrap(),
            [WorkerId::runtime(2)]
        );
        assert_eq!(book.numbers_for(&all, &[]).unwrap(), ids);
        // A number that is wished for is had, unless it is another's.
        assert_eq!(
            book.numbers_for(&[slot("b", 0)], &[7]).unwrap(),
            [WorkerId::runtime(7)]
        );
        assert_eq!(book.numbers_for(&all, &[0, 1]).unwrap(), ids);
        let taken =
            |wished: u16, owner: &str| Err(NoNumber::Taken(WorkerId::runtime(wished), owner.to_owned()));
        assert_eq!(book.numbers_for(&[slot("b", 0)], &[1]), taken(1, "a"));
        assert_eq!(book.numbers_for(&all, &[0, 5]), taken(5, ""));
        let later = all[0].record(ids[0], Incarnation(2));
        assert_eq!(book.number(9, &later), Some(Some(5)));
        assert_eq!(book.life(&all[0]), Some(Incarnation(2)));
        // A record that gives a number twice is none.
        let stolen = slot("b", 0).record(ids[0], Incarnation(1));
        assert_eq!(book.number(10, &stolen), None);
    }

    #[test]
    fn workers_are_bounded() {
        let book = Book::default();
        let many = |count| {
            (0..count)
                .map(|place| Slot::new("a", Role::Runtime, place))
                .collect::<Vec<_>>()
        };
        assert!(book.numbers_for(&many(WORKERS_MAX as u32), &[]).is_ok());
        assert!(book.numbers_for(&many(WORKERS_MAX as u32 + 1), &[]).is_err());
    }
}
