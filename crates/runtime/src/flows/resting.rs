//! Groups that rest: they have no flow, and live on for as long as their functions say.
//!
//! # Theory of operation
//!
//! A scan counter counts flows of which each has one packet, and that one is dropped. Its group
//! must outlive them. So the end of a group's last flow asks each function how long the group lives
//! without one ([`nf::NetworkFunction::group_timeout`]). The longest time counts. Most functions
//! say none: then the group ends at once, and nothing here is used.
//!
//! ```text
//!   begins ─► has flows ──last one ends, a time is said──► rests until then ──time is over, or evicted──► ends
//!                │  ▲                                        │
//!                │  └──────────── a flow joins ──────────────┘
//!                └────────last one ends, no time──────────────────────────────────────────────────────► ends
//! ```
//!
//! *Ends* is one thing for all three ways: `group_ended` gives back what the group took, the place
//! is free, the switch hears *GroupEmpty*.
//!
//! *The switch* needs no word of it. A route ends by its runtime's *GroupEmpty* alone
//! (`switch::directory`), and a runtime says that of no group that it has. So the route of a group
//! that rests stays, and its next packet comes to its runtime. A route that is probed
//! (`RouteSuspect`) stays for the same reason, and a switch that begins again is told of the group
//! as of any other.
//!
//! *A move* takes a group that rests as one with no flows: its state, its blocks, and the time that
//! it has left. It neither expires nor is evicted while it moves, since its source would not know
//! whether the target had it. An order that names all groups names it too, so a drain takes it
//! along; where no target has room, the runtime has it until its time is over. An order for so many
//! flows leaves it where it is.
//!
//! *A copy* of the group is sent when it begins to rest, with the time left, which runs at the
//! replica. A heir installs copies of groups that have no copied flow, as resting ones, behind all
//! flows.
//!
//! *The bound* is the one of all groups: a place is a place, with flows or without. Where no place
//! is free, a group that begins takes the place of the group that has rested longest
//! (`groups_evicted`); where none rests, its packet is refused (`groups_full`). The same is true of
//! a group with flows that moves here. A group that rests, and moves, takes no other's place.
//!
//! They are filed in a wheel of their own, and listed by when they began to rest:
//!
//! ```text
//!   oldest ──► place 7 ◄──► place 3 ◄──► place 12 ◄── latest         each: until when, older, newer
//! ```
//!
//! Invariants: a place is listed exactly as long as its group has no flow and lives
//! (`Groups::at_place`); the wheel offers it at or after its time.
//!
//! Not here: the work at a group's end, and when there is room to say so (`parts::life`).

use super::timer::Wheel;
use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// A group's place, as it rests.
#[derive(Clone, Copy)]
struct Place {
    /// Until when, in nanoseconds; 0 as long as it does not.
    until: u64,
    older: u32,
    newer: u32,
}

impl Place {
    const AWAKE: Place = Place {
        until: 0,
        older: NONE,
        newer: NONE,
    };
}

/// See the module's page.
pub struct Resting {
    wheel: Wheel,
    places: Vec<Place>,
    oldest: u32,
    latest: u32,
    count: usize,
}

impl Resting {
    /// For so many places; 0 where no function's groups rest.
    pub fn new(places: usize, now: u64) -> Self {
        Resting {
            wheel: Wheel::new(places, now),
            places: alloc::vec![Place::AWAKE; places],
            oldest: NONE,
            latest: NONE,
            count: 0,
        }
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none rests.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Until when a group rests, if it does.
    pub fn until(&self, index: u32) -> Option<u64> {
        let place = self.places.get(index as usize)?;
        (place.until != 0).then_some(place.until)
    }

    /// A group rests from now on.
    pub fn begin(&mut self, index: u32, until: u64) {
        debug_assert!(self.until(index).is_none(), "a group begins to rest once");
        let older = self.latest;
        let Some(place) = self.places.get_mut(index as usize) else {
            return;
        };
        *place = Place {
            until: until.max(1),
            older,
            newer: NONE,
        };
        match self.places.get_mut(older as usize) {
            Some(before) => before.newer = index,
            None => self.oldest = index,
        }
        self.latest = index;
        self.count += 1;
        self.wheel.file_by(index, until);
    }

    /// A group rests no more: a flow has joined it, or it ends. A group that does not rest stays as
    /// it is.
    pub fn end(&mut self, index: u32) {
        let Some(place) = self
            .places
            .get_mut(index as usize)
            .filter(|place| place.until != 0)
        else {
            return;
        };
        // It stays filed: that look finds it awake, or serves for its next rest.
        let Place { older, newer, .. } = core::mem::replace(place, Place::AWAKE);
        match self.places.get_mut(older as usize) {
            Some(place) => place.newer = newer,
            None => self.oldest = newer,
        }
        match self.places.get_mut(newer as usize) {
            Some(place) => place.older = older,
            None => self.latest = older,
        }
        self.count -= 1;
    }

    /// Groups that rest, the oldest first.
    pub fn oldest(&self) -> impl Iterator<Item = u32> {
        let at = |index: u32| self.places.get(index as usize).map(|place| (index, place.newer));
        core::iter::successors(at(self.oldest), move |(_, newer)| at(*newer)).map(|(index, _)| index)
    }

    /// Looks at up to `budget` groups whose time may be over. A group whose time is over, and how
    /// many were looked at; fewer than `budget` and `None`: done for now.
    pub fn due(&mut self, now: u64, budget: usize) -> (Option<u32>, usize) {
        let (mut due, mut looked) = (None, 0);
        let places = &self.places;
        while looked < budget && due.is_none() {
            let offered = self.wheel.poll(now, 1, |index| {
                let until = places.get(index as usize).map_or(0, |place| place.until);
                match until {
                    0 => None,
                    until if until > now => Some(until),
                    _ => {
                        due = Some(index);
                        None
                    }
                }
            });
            looked += offered;
            if offered == 0 {
                break;
            }
        }
        (due, looked)
    }

    /// A group whose time is over cannot end now: it is offered again with the next tick.
    pub fn look_again(&mut self, index: u32, now: u64) {
        self.wheel.file_by(index, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Groups rest, wake and expire in any order, against a plain list.
        #[test]
        fn those_that_rest_are_listed_by_age_and_offered_in_time(
            steps in prop::collection::vec((0u32..8, 0u64..9, 0u64..4), 0..200),
        ) {
            const TICK: u64 = 1 << super::super::timer::TICK_SHIFT;
            let mut resting = Resting::new(8, 0);
            let (mut model, mut now) = (Vec::<(u32, u64)>::new(), 0);
            for (index, ticks, pass) in steps {
                if resting.until(index).is_some() {
                    resting.end(index);
                    model.retain(|(other, _)| *other != index);
                } else {
                    resting.begin(index, now + ticks * TICK + 1);
                    model.push((index, now + ticks * TICK + 1));
                }
                now += pass * TICK;
                while let (Some(due), _) = resting.due(now, 100) {
                    let found = model.iter().find(|(other, _)| *other == due);
                    prop_assert!(found.is_some_and(|(_, until)| *until <= now), "{due} is early");
                    resting.end(due);
                    model.retain(|(other, _)| *other != due);
                }
                prop_assert!(model.iter().all(|(_, until)| *until + 2 * TICK > now), "one is late");
                let listed: Vec<u32> = resting.oldest().collect();
                let known: Vec<u32> = model.iter().map(|(index, _)| *index).collect();
                prop_assert_eq!(listed, known);
                prop_assert_eq!(resting.len(), model.len());
            }
        }
    }

    #[test]
    fn one_that_cannot_end_is_offered_again() {
        const TICK: u64 = 1 << super::super::timer::TICK_SHIFT;
        let mut resting = Resting::new(2, 0);
        resting.begin(1, TICK);
        assert_eq!(resting.due(3 * TICK, 10).0, Some(1));
        resting.look_again(1, 3 * TICK);
        assert_eq!(resting.due(3 * TICK, 10).0, None);
        assert_eq!(resting.due(5 * TICK, 10).0, Some(1));
    }
}
