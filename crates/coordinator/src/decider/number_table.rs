//! The log's content besides decisions: which worker has which number, and which tokens were used.

use crate::proto;
use crate::translate::{self, WORKERS_MAX};
use protocols::membership::{Incarnation, Role, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// Used tokens that are remembered, at most.
const TOKENS_MAX: usize = 1024;
/// Seconds for which a used token is remembered when it is over, where there is room. A clock that
/// was ahead may come back, and the token is good again by it.
const TOKEN_KEPT: u64 = 7 * 86_400;
/// Seconds after its end from which on a token is forgotten where there is no room: a clock that
/// is set right steps back by less, as a rule.
const OVER_SURELY: u64 = 600;

/// The owner of numbers that a member had and has no more, since another of them passed on: a
/// later worker with such a number is above its incarnations. No member has this name.
const VACANT: &str = "";

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
    pub fn record(&self, id: WorkerId, incarnation: Incarnation) -> proto::Numbered {
        proto::Numbered {
            member: self.member.clone(),
            slot: self.place,
            worker: Some(translate::worker(id, incarnation)),
            ..proto::Numbered::default()
        }
    }
}

struct Known {
    id: WorkerId,
    /// The newest incarnation that asked to be a member.
    incarnation: Incarnation,
    /// Its member's file of incarnations, named by the first one that it has handed out; 0: not
    /// known.
    first: u64,
    /// All incarnations that asked from this one on were of that file.
    since: Incarnation,
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
pub struct NumberTable {
    slots: BTreeMap<Slot, Known>,
    names: BTreeMap<WorkerId, String>,
    /// Of members that no configuration lists: how they are reached, and the record that says so.
    contacts: BTreeMap<String, (proto::Contact, u64)>,
    /// By member, the plan of its configuration.
    plans: BTreeMap<String, proto::Plan>,
    /// By id: when it is over, and the record that says that it was used.
    tokens: BTreeMap<[u8; 16], (u64, u64)>,
}

impl NumberTable {
    /// Notes a number; the records that are needed no more. `None`: the number is another one's. A
    /// number of a member that no configuration lists passes to the next such one.
    pub fn number(&mut self, record: u64, numbered: &proto::Numbered) -> Option<Vec<u64>> {
        let (id, incarnation) = numbered.worker.as_ref().and_then(translate::to_worker)?;
        let slot = Slot::new(&numbered.member, id.role, numbered.slot);
        let known = Known {
            id,
            incarnation,
            first: numbered.first,
            since: Incarnation(numbered.since),
            record,
        };
        let mut spare = Vec::new();
        let is_same = self.slots.get(&slot).is_some_and(|known| known.id == id);
        if !is_same {
            let owner = self.names.get(&id).cloned();
            let passes = |name: &str| name == VACANT || self.is_enlisted(name);
            let is_passed_on = |owner: &String| passes(owner) && passes(&numbered.member);
            if self.slots.contains_key(&slot) || !owner.as_ref().is_none_or(is_passed_on) {
                return None;
            }
            spare.extend(
                owner
                    .and_then(|owner| self.take_from(&owner, id))
                    .into_iter()
                    .flatten(),
            );
        }
        if let Some(plan) = &numbered.plan {
            self.plans.insert(numbered.member.clone(), plan.clone());
        }
        self.names.insert(id, numbered.member.clone());
        let before = self.slots.insert(slot, known);
        spare.extend(before.map(|before| before.record));
        Some(spare)
    }

    /// A number is a member's no more; the records that are needed no more.
    fn take_from(&mut self, member: &str, id: WorkerId) -> Option<Vec<u64>> {
        let slot = self.slot_of(member, id)?;
        let mut spare: Vec<u64> = self
            .slots
            .remove(&slot)
            .map(|known| known.record)
            .into_iter()
            .collect();
        if !self.slots.keys().any(|slot| slot.member == member) {
            // Behind its numbers: a contact that is left over does no harm.
            spare.extend(self.contacts.remove(member).map(|(_, record)| record));
        }
        Some(spare)
    }

    fn slot_of(&self, member: &str, id: WorkerId) -> Option<Slot> {
        let mut all = self.slots.iter();
        let found = all.find(|(slot, known)| slot.member == member && known.id == id);
        found.map(|(slot, _)| slot.clone())
    }

    /// Notes how a member is reached that no configuration lists; the record that is needed no
    /// more.
    pub fn enlist(&mut self, record: u64, contact: proto::Contact) -> Option<u64> {
        let before = self.contacts.insert(contact.member.clone(), (contact, record));
        before.map(|(_, record)| record)
    }

    /// Whether no configuration lists this member.
    pub fn is_enlisted(&self, member: &str) -> bool {
        self.contacts.contains_key(member)
    }

    /// How the members are reached that no configuration lists.
    pub fn contacts(&self) -> impl Iterator<Item = &proto::Contact> {
        self.contacts.values().map(|(contact, _)| contact)
    }

    /// Whether a member has numbers.
    pub fn is_known(&self, member: &str) -> bool {
        self.slots.keys().any(|slot| slot.member == member)
    }

    /// The places of a member, with their numbers.
    pub fn slots_of(&self, member: &str) -> impl Iterator<Item = (&Slot, WorkerId)> {
        let all = self.slots.iter().filter(move |(slot, _)| slot.member == member);
        all.map(|(slot, known)| (slot, known.id))
    }

    /// The plan of a member's configuration.
    pub fn plan(&self, member: &str) -> Option<&proto::Plan> {
        self.plans.get(member)
    }

    /// Numbers for so many runtimes of a member that no configuration lists, and the newest
    /// incarnation of each: those it has; or else the first that follow each other and that no
    /// member has; or else those of other such members that are not held. Such members' numbers are
    /// `listed..most`.
    pub fn room_for(
        &self,
        member: &str,
        runtimes: u16,
        (listed, most): (u16, u16),
        is_held: impl Fn(&str) -> bool,
    ) -> Result<Vec<(WorkerId, Incarnation)>, String> {
        let of = |slot: &Slot| self.slots.get(slot).map(|known| (known.id, known.incarnation));
        let slots = (0..u32::from(runtimes)).map(|place| Slot::new(member, Role::Runtime, place));
        if self.is_known(member) {
            let own: Option<Vec<_>> = slots.map(|slot| of(&slot)).collect();
            let had = self.slots.keys().filter(|slot| slot.member == member).count();
            let own = own.or_else(|| self.rest_of(member, runtimes, most));
            // A name of which a number is missing has lost it, and gets others.
            if own.is_some() || is_held(member) || self.has_all_places(member) {
                return own.ok_or_else(|| {
                    format!(
                        "`{member}` has numbers for {had} runtimes, and they stay its own: ask for as many (--runtimes {had}), or take another name"
                    )
                });
            }
        }
        let is_free = |number: &u16| !self.names.contains_key(&WorkerId::runtime(*number));
        let is_vacant = |number: &u16| {
            let owner = self.name(WorkerId::runtime(*number));
            owner.is_none_or(|owner| owner == VACANT)
        };
        let is_left = |number: &u16| {
            let owner = self.name(WorkerId::runtime(*number));
            is_vacant(number) || owner.is_some_and(|owner| self.is_enlisted(owner) && !is_held(owner))
        };
        let run = |is_good: &dyn Fn(&u16) -> bool| {
            let mut starts = listed..(most + 1).saturating_sub(runtimes);
            starts.find(|start| (*start..start + runtimes).all(|number| is_good(&number)))
        };
        let Some(start) = run(&is_free)
            .or_else(|| run(&is_vacant))
            .or_else(|| run(&is_left))
        else {
            let there = (listed..most).map(|number| {
                let owner = self.name(WorkerId::runtime(number));
                let owner = owner.filter(|owner| *owner != VACANT).unwrap_or("no member");
                format!("{number} ({owner})")
            });
            let there: Vec<String> = there.collect();
            return Err(format!(
                "the configuration lists {listed} runtimes and has room for {} more, and {runtimes} that follow each other are not free of {}: stop one                  of those members, or write a higher `runtimes_max` into the configuration and start all members again",
                most - listed,
                if there.is_empty() {
                    "none".to_owned()
                } else {
                    there.join(", ")
                }
            ));
        };
        let incarnation = |id: WorkerId| {
            let owner = self.name(id).and_then(|owner| self.slot_of(owner, id));
            owner
                .and_then(|slot| self.incarnation(&slot))
                .unwrap_or(Incarnation(0))
        };
        let ids = (start..start + runtimes).map(WorkerId::runtime);
        Ok(ids.map(|id| (id, incarnation(id))).collect())
    }

    /// Whether a member's places follow each other from the first on.
    fn has_all_places(&self, member: &str) -> bool {
        let mut all = self.slots_of(member).map(|(slot, _)| slot.place);
        (0..).zip(&mut all).all(|(next, place)| next == place)
    }

    /// The records by which numbers are vacant before a member gets these: all numbers of each
    /// member that loses one of them, and its own if it gets others. A name that had a part of its
    /// numbers would be of no use to its member.
    pub fn vacated_for(&self, member: &str, places: &[(WorkerId, Incarnation)]) -> Vec<proto::Numbered> {
        let own = |(slot, id): (&Slot, WorkerId)| {
            let place = usize::try_from(slot.place)
                .ok()
                .and_then(|place| places.get(place));
            place.is_none_or(|(kept, _)| *kept == id)
        };
        let is_kept = self.slots_of(member).all(own);
        let owners = places.iter().filter_map(|(id, _)| self.name(*id));
        let mut owners: BTreeSet<&str> = owners.filter(|owner| *owner != VACANT).collect();
        owners.remove(member);
        if !is_kept {
            owners.insert(member);
        }
        let all = owners.into_iter().flat_map(|owner| self.slots_of(owner));
        let vacant = all.map(|(slot, id)| {
            let incarnation = self.incarnation(slot).unwrap_or(Incarnation(0));
            Slot::new(VACANT, id.role, id.number.into()).record(id, incarnation)
        });
        vacant.collect()
    }

    /// All numbers of a member of whose records some alone are in the log, if no process has had
    /// any of them and those behind them are free: the coordinator ended while it wrote them.
    fn rest_of(&self, member: &str, runtimes: u16, most: u16) -> Option<Vec<(WorkerId, Incarnation)>> {
        let own = self.slots.iter().filter(|(slot, _)| slot.member == member);
        let own: Vec<&Known> = own.map(|(_, known)| known).collect();
        let first = own.iter().map(|known| known.id.number).min()?;
        let end = first.checked_add(runtimes).filter(|end| *end <= most)?;
        let ids = (first..end).map(WorkerId::runtime);
        let is_good = |id: WorkerId| self.name(id).is_none_or(|owner| owner == member);
        let is_half = own.len() < usize::from(runtimes) && own.iter().all(|known| known.incarnation.0 == 0);
        let is_good = is_half && ids.clone().all(is_good);
        is_good.then(|| ids.map(|id| (id, Incarnation(0))).collect())
    }

    /// The numbers of these places: those they have, those that are `wished` for, or the smallest
    /// that no place has.
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

    /// The newest incarnation of a place.
    pub fn incarnation(&self, slot: &Slot) -> Option<Incarnation> {
        self.slots.get(slot).map(|known| known.incarnation)
    }

    /// The newest incarnation of the worker that has a number.
    pub fn newest(&self, id: WorkerId) -> Option<Incarnation> {
        let slot = self.slot_of(self.name(id)?, id)?;
        self.incarnation(&slot)
    }

    /// The incarnation from which on all that asked for a place were of this file, if one more
    /// incarnation does.
    pub fn since(&self, slot: &Slot, incarnation: Incarnation, first: u64) -> Incarnation {
        match self.slots.get(slot) {
            Some(known) if known.first == first => known.since,
            Some(known) if known.first == 0 && known.incarnation.0 >= first => Incarnation(first),
            _ => incarnation,
        }
    }

    /// Whether an incarnation that had this place was of this file. Of a place whose file is not
    /// known, as an earlier version wrote it, those count from the file's first number on.
    pub fn is_of_file(&self, slot: &Slot, incarnation: Incarnation, first: u64) -> bool {
        let known = self.slots.get(slot).filter(|_| first > 0);
        known.is_some_and(|known| match known.first {
            0 => incarnation.0 >= first,
            _ => known.first == first && incarnation >= known.since,
        })
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

    /// Makes room for one more token: the record that is needed no more, if a token had to go. The
    /// token that has been over for longest goes. `Err`: after so many seconds one may.
    pub fn make_room_for_token(&mut self, now: u64) -> Result<Option<u64>, u64> {
        let oldest = self.tokens.iter().min_by_key(|(_, (expires, _))| *expires);
        let Some((id, (expires, _))) = oldest.filter(|_| self.tokens.len() >= TOKENS_MAX) else {
            return Ok(None);
        };
        let (id, surely) = (*id, expires.saturating_add(OVER_SURELY));
        match surely.checked_sub(now).filter(|left| *left > 0) {
            Some(left) => Err(left),
            None => Ok(self.tokens.remove(&id).map(|(_, record)| record)),
        }
    }

    /// Forgets tokens that have long been over; their records are needed no more.
    pub fn forget_tokens(&mut self, now: u64) -> Vec<u64> {
        let over = self
            .tokens
            .extract_if(.., |_, (expires, _)| expires.saturating_add(TOKEN_KEPT) <= now);
        over.map(|(_, (_, record))| record).collect()
    }

    /// How many records say all this.
    pub fn records(&self) -> usize {
        self.slots.len() + self.tokens.len() + self.contacts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_keeps_its_number_and_no_two_have_one() {
        let mut number_table = NumberTable::default();
        let slot = |member: &str, place| Slot::new(member, Role::Runtime, place);
        let all = [slot("a", 0), slot("a", 1)];
        let ids = number_table.numbers_for(&all, &[]).unwrap();
        assert_eq!(ids, [WorkerId::runtime(0), WorkerId::runtime(1)]);
        for (record, (slot, id)) in (5..).zip(all.iter().zip(&ids)) {
            assert_eq!(
                number_table.number(record, &slot.record(*id, Incarnation(1))),
                Some(vec![])
            );
        }
        // Another member gets others; the first keeps its own, at a later incarnation too.
        assert_eq!(
            number_table.numbers_for(&[slot("b", 0)], &[]).unwrap(),
            [WorkerId::runtime(2)]
        );
        assert_eq!(number_table.numbers_for(&all, &[]).unwrap(), ids);
        // A number that is wished for is had, unless it is another's.
        assert_eq!(
            number_table.numbers_for(&[slot("b", 0)], &[7]).unwrap(),
            [WorkerId::runtime(7)]
        );
        assert_eq!(number_table.numbers_for(&all, &[0, 1]).unwrap(), ids);
        let taken =
            |wished: u16, owner: &str| Err(NoNumber::Taken(WorkerId::runtime(wished), owner.to_owned()));
        assert_eq!(number_table.numbers_for(&[slot("b", 0)], &[1]), taken(1, "a"));
        assert_eq!(number_table.numbers_for(&all, &[0, 5]), taken(5, ""));
        let later = all[0].record(ids[0], Incarnation(2));
        assert_eq!(number_table.number(9, &later), Some(vec![5]));
        assert_eq!(number_table.incarnation(&all[0]), Some(Incarnation(2)));
        // A record that gives a number twice is none.
        let stolen = slot("b", 0).record(ids[0], Incarnation(1));
        assert_eq!(number_table.number(10, &stolen), None);
    }

    /// Incarnations of one file follow each other; those of another, as of a second process with
    /// the same certificate elsewhere, are not known to have ended.
    #[test]
    fn incarnations_before_are_known_by_their_file() {
        let mut number_table = NumberTable::default();
        let slot = Slot::new("a", Role::Switch, 0);
        let id = number_table
            .numbers_for(std::slice::from_ref(&slot), &[])
            .unwrap()[0];
        let asks = |number_table: &mut NumberTable, incarnation, first| {
            let since = number_table.since(&slot, Incarnation(incarnation), first).0;
            let numbered = proto::Numbered {
                first,
                since,
                ..slot.record(id, Incarnation(incarnation))
            };
            number_table.number(incarnation, &numbered).unwrap();
            since
        };
        let is_of = |number_table: &NumberTable, incarnation, first| {
            number_table.is_of_file(&slot, Incarnation(incarnation), first)
        };
        assert!(!is_of(&number_table, 1, 1));
        assert_eq!(
            [asks(&mut number_table, 1, 1), asks(&mut number_table, 9, 1)],
            [1, 1]
        );
        assert!(is_of(&number_table, 1, 1) && !is_of(&number_table, 1, 8) && !is_of(&number_table, 1, 0));
        // Another file's, and then the first one's again.
        assert_eq!(asks(&mut number_table, 12, 8), 12);
        assert!(is_of(&number_table, 12, 8) && !is_of(&number_table, 9, 8) && !is_of(&number_table, 12, 1));
        assert_eq!(asks(&mut number_table, 15, 1), 15);
        assert!(
            is_of(&number_table, 15, 1) && !is_of(&number_table, 9, 1),
            "12 was between"
        );
        // A member that does not say its file, as earlier versions.
        assert_eq!(asks(&mut number_table, 20, 0), 20);
        assert!(
            is_of(&number_table, 20, 18) && !is_of(&number_table, 20, 21) && !is_of(&number_table, 20, 0)
        );
        assert_eq!(asks(&mut number_table, 22, 18), 18);
        assert!(is_of(&number_table, 20, 18) && !is_of(&number_table, 17, 18));
    }

    fn enlisted(
        number_table: &mut NumberTable,
        record: u64,
        member: &str,
        places: &[(WorkerId, Incarnation)],
        incarnation: u64,
    ) {
        let contact = proto::Contact {
            member: member.to_owned(),
            ..proto::Contact::default()
        };
        number_table.enlist(record, contact);
        for (place, (id, _)) in (0..).zip(places) {
            let slot = Slot::new(member, Role::Runtime, place);
            let numbered = slot.record(*id, Incarnation(incarnation));
            assert!(
                number_table
                    .number(record + 1 + u64::from(place), &numbered)
                    .is_some()
            );
        }
    }

    /// Numbers follow each other, stay their member's while it is held, and pass on when it is not,
    /// with their incarnations.
    #[test]
    fn members_that_are_not_listed_share_what_is_left() {
        let mut number_table = NumberTable::default();
        let listed = Slot::new("left", Role::Runtime, 0);
        number_table.number(0, &listed.record(WorkerId::runtime(0), Incarnation(5)));
        let bounds = (1, 4);
        let numbers = |found: Result<Vec<(WorkerId, Incarnation)>, String>| -> Vec<(u16, u64)> {
            let found = found.unwrap();
            found
                .iter()
                .map(|(id, incarnation)| (id.number, incarnation.0))
                .collect()
        };
        let two = number_table.room_for("d", 2, bounds, |_| true);
        assert_eq!(numbers(two.clone()), [(1, 0), (2, 0)]);
        enlisted(&mut number_table, 10, "d", &two.unwrap(), 7);
        assert_eq!(
            numbers(number_table.room_for("d", 2, bounds, |_| true)),
            [(1, 7), (2, 7)]
        );
        assert!(
            number_table
                .room_for("d", 3, bounds, |_| true)
                .unwrap_err()
                .contains("--runtimes 2")
        );
        assert_eq!(numbers(number_table.room_for("e", 1, bounds, |_| true)), [(3, 0)]);
        let full = number_table.room_for("e", 2, bounds, |_| true).unwrap_err();
        assert!(
            full.contains("1 (d), 2 (d), 3 (no member)") && full.contains("runtimes_max"),
            "{full}"
        );
        assert!(
            number_table.room_for("e", 4, bounds, |_| false).is_err(),
            "a listed one's number is its own"
        );
        // `d` is gone: its numbers are another's, above its incarnations.
        let passed = number_table.room_for("e", 2, bounds, |_| false);
        assert_eq!(numbers(passed.clone()), [(1, 7), (2, 7)]);
        enlisted(&mut number_table, 20, "e", &passed.unwrap(), 9);
        assert!(
            number_table.is_of(WorkerId::runtime(2), "e")
                && !number_table.is_known("d")
                && !number_table.is_enlisted("d")
        );
        assert_eq!(number_table.records(), 4, "what `d` had is needed no more");
    }

    #[test]
    fn a_member_whose_numbers_were_half_written_gets_the_rest() {
        let mut number_table = NumberTable::default();
        let first = [(WorkerId::runtime(1), Incarnation(0))];
        enlisted(&mut number_table, 10, "d", &first, 0);
        let all = number_table.room_for("d", 2, (1, 4), |_| false).unwrap();
        assert_eq!(
            all,
            [1, 2].map(|number| (WorkerId::runtime(number), Incarnation(0)))
        );
        assert!(
            number_table.room_for("d", 4, (1, 4), |_| false).is_err(),
            "there is no room"
        );
        // A process has had it: it stays alone.
        enlisted(&mut number_table, 20, "d", &first, 5);
        assert!(number_table.room_for("d", 2, (1, 4), |_| false).is_err());
    }

    /// As many as may be, all over: each further one is used all the same, and those of the last
    /// minutes stay.
    #[test]
    fn tokens_that_are_over_make_room() {
        let mut number_table = NumberTable::default();
        let (now, hour) = (1_000_000, 3600);
        let token = |number: u64, expires| {
            let mut id = [0; 16];
            id[8..].copy_from_slice(&number.to_be_bytes());
            let id = id.to_vec();
            proto::TokenUsed { id, expires }
        };
        for number in 0..TOKENS_MAX as u64 {
            let expires = now - hour + number;
            number_table.use_token(number, &token(number, expires)).unwrap();
        }
        // The one that has been over for longest goes, and its record.
        assert_eq!(number_table.make_room_for_token(now), Ok(Some(0)));
        let further = token(5000, now + hour);
        number_table.use_token(5000, &further).unwrap();
        assert!(!number_table.has_token(&[0; 16]));
        assert_eq!(number_table.make_room_for_token(now), Ok(Some(1)));
        // When the clock steps back, those that may be good again stay, and it is said for how long.
        let longest_over = now - hour + 2;
        let early = longest_over + OVER_SURELY - 5;
        number_table.use_token(5001, &token(5001, now + hour)).unwrap();
        assert_eq!(number_table.make_room_for_token(early), Err(5));
        assert_eq!(number_table.make_room_for_token(early + 5), Ok(Some(2)));
    }

    /// A clock that is a day ahead, and right again, makes no token good a second time.
    #[test]
    fn a_used_token_is_remembered_a_week_longer() {
        let mut number_table = NumberTable::default();
        let (id, day) = ([7; 16], 86_400);
        let token = proto::TokenUsed {
            id: id.to_vec(),
            expires: 100 * day,
        };
        number_table.use_token(5, &token).unwrap();
        assert_eq!(number_table.forget_tokens(101 * day), vec![]);
        assert!(number_table.has_token(&id));
        assert_eq!(number_table.forget_tokens(107 * day), vec![5]);
        assert!(!number_table.has_token(&id));
    }

    #[test]
    fn workers_are_bounded() {
        let number_table = NumberTable::default();
        let many = |count| {
            (0..count)
                .map(|place| Slot::new("a", Role::Runtime, place))
                .collect::<Vec<_>>()
        };
        assert!(number_table.numbers_for(&many(WORKERS_MAX as u32), &[]).is_ok());
        assert!(
            number_table
                .numbers_for(&many(WORKERS_MAX as u32 + 1), &[])
                .is_err()
        );
    }
}
