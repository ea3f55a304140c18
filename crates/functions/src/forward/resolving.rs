//! Neighbours whose link address is asked for, and neighbours that have not answered: a bounded
//! table of one runtime.
//!
//! ```text
//!   nothing known ─packet─► asking ─patience is over─► silent ─packet─► silent, and asked for again
//!        ▲                    │ packets wait              │ packets are answered at once
//!        └── link address ────┴───────────────────────────┤
//!        └── no packet for as long as it is remembered ───┘
//! ```
//!
//! A call that waits may go on at another runtime, and no call waits here any more for a neighbour
//! that is being asked for. The kernel may hear of that neighbour and forget it meanwhile, which no
//! packet has seen here. So with newer tables the kernel is asked again, and a place at which no
//! call has looked for two seconds is forgotten: a call that waits looks each second.
//!
//! Only the packets of an unknown neighbour wait. A silent one is asked for again each second as
//! long as packets for it come, so a host that comes up is found within a second, and no packet
//! waits for one that does not.
//!
//! The table has a place for each address in one small set of places. Of a full set the silent
//! neighbour goes that was wanted longest ago. Where all of a set are being asked for, there is no
//! place ([`Wanted::NoRoom`]): the packet is dropped, but its neighbour is asked for, too, so a
//! later packet passes. The kernel's table has a bound of its own (`gc_thresh3`).
//!
//! Invariants: the table never grows, and a look at it touches one set; a neighbour in the tables
//! in force is not in here ([`Resolving::forget_found`]).
//!
//! Sources: RFC 4861 7.2.2 and 7.3.3, RFC 1122 2.3.2.2, RFC 6583 (a scan must not lock other
//! neighbours out).

use alloc::vec::Vec;
use nf::Addr;

/// Neighbours at most, as Linux' default (`gc_thresh3`).
pub const NEIGHBOURS_MAX: usize = 1024;
/// Places of a set.
const SET: usize = 8;
/// How long after a neighbour was asked for it is asked for again, in nanoseconds (RFC 4861 10,
/// `RETRANS_TIMER`).
pub(super) const AGAIN: u64 = 1_000_000_000;
/// No call waits at a place at which none has looked for so long.
const UNSEEN: u64 = 2 * AGAIN;

/// A neighbour, by the kernel's number of its interface and its address.
pub(super) type Neighbour = (u32, Addr);

/// The fate of a packet for a neighbour without a link address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// It waits until then at most.
    Wait(u64),
    /// It is answered: the neighbour is silent.
    Silent,
    /// It is dropped: too many neighbours are being asked for.
    NoRoom,
}

#[derive(Clone, Copy)]
struct Place {
    neighbour: Neighbour,
    /// When its patience is over, or was.
    until: u64,
    is_silent: bool,
    /// When the kernel heard last that it is wanted; 0 for not yet. And the generation of the
    /// tables in force then.
    asked: u64,
    tables: u32,
    /// When a packet was last for it.
    used: u64,
}

/// The table. All times are in nanoseconds.
pub(super) struct Resolving {
    places: Vec<Option<Place>>,
    count: usize,
    patience: u64,
    remembered: u64,
    seed: u64,
}

impl Resolving {
    pub fn new(patience: u64, remembered: u64, seed: u64) -> Self {
        Resolving {
            places: alloc::vec![None; NEIGHBOURS_MAX],
            count: 0,
            patience,
            remembered,
            seed,
        }
    }

    /// A number for a neighbour, by which calls that wait for it share their bound.
    pub fn number(&self, (interface, addr): Neighbour) -> u64 {
        let bits = u128::from_be_bytes(*addr.octets());
        let folded = |one: u64, other: u64| {
            let product = u128::from(one) * u128::from(other);
            product as u64 ^ (product >> 64) as u64
        };
        let half = folded(
            self.seed ^ bits as u64,
            0x9e37_79b9_7f4a_7c15 ^ u64::from(interface),
        );
        folded(half ^ (bits >> 64) as u64, 0xd1b5_4a32_d192_ed03 ^ self.seed)
    }

    fn set(&self, neighbour: Neighbour) -> core::ops::Range<usize> {
        let first = self.number(neighbour) as usize % (NEIGHBOURS_MAX / SET) * SET;
        first..first + SET
    }

    /// A packet is for a neighbour whose link address is not in the tables of this generation.
    /// `ask` has the kernel hear that, and says whether it has.
    pub fn want(&mut self, neighbour: Neighbour, tables: u32, now: u64, ask: impl Fn() -> bool) -> Wanted {
        let range = self.set(neighbour);
        let (patience, remembered) = (self.patience, self.remembered);
        let Some(set) = self.places.get_mut(range) else {
            return Wanted::NoRoom;
        };
        // Since when a place may be another's: a free one and one that is forgotten first, then
        // silent ones by their age.
        let is_over = |place: &Place| {
            let longest = if place.is_silent { remembered } else { UNSEEN };
            now.saturating_sub(place.used) >= longest
        };
        let mut free: Option<(u64, usize)> = None;
        let mut found = None;
        for (at, place) in set.iter().enumerate() {
            let age = match place {
                Some(place) if place.neighbour == neighbour && !is_over(place) => {
                    found = Some(at);
                    break;
                }
                None => 0,
                Some(place) if place.neighbour == neighbour || is_over(place) => 0,
                Some(place) if place.is_silent || place.until <= now => place.used.max(1),
                Some(_) => continue,
            };
            if free.is_none_or(|(oldest, _)| age < oldest) {
                free = Some((age, at));
            }
        }
        let Some(at) = found.or(free.map(|(_, at)| at)) else {
            ask();
            return Wanted::NoRoom;
        };
        let Some(slot) = set.get_mut(at) else {
            return Wanted::NoRoom;
        };
        if found.is_none() {
            self.count += usize::from(slot.is_none());
            *slot = None;
        }
        let place = slot.get_or_insert(Place {
            neighbour,
            until: now.saturating_add(patience),
            is_silent: false,
            asked: 0,
            tables,
            used: now,
        });
        place.used = now;
        let is_unheard = place.asked == 0 || now.saturating_sub(place.asked) >= AGAIN;
        let is_newer = !place.is_silent && place.tables != tables;
        if (is_unheard || is_newer) && ask() {
            place.asked = now.max(1);
            place.tables = tables;
        }
        place.is_silent |= now >= place.until;
        if place.is_silent {
            Wanted::Silent
        } else {
            Wanted::Wait(place.until)
        }
    }

    /// Whether the kernel has heard that a neighbour is wanted.
    pub fn is_asked(&self, neighbour: Neighbour) -> bool {
        let set = self.places.get(self.set(neighbour)).unwrap_or_default();
        let mut places = set.iter().flatten();
        places.any(|place| place.neighbour == neighbour && place.asked != 0)
    }

    /// Forgets the neighbours whose link address is known now.
    pub fn forget_found(&mut self, is_found: impl Fn(Neighbour) -> bool) {
        if self.count == 0 {
            return;
        }
        for slot in &mut self.places {
            if slot.is_some_and(|place| is_found(place.neighbour)) {
                *slot = None;
                self.count -= 1;
            }
        }
    }

    /// Takes over which neighbours are silent.
    pub fn take_over(&mut self, before: &Resolving) {
        for place in before.places.iter().flatten().filter(|place| place.is_silent) {
            let range = self.set(place.neighbour);
            let set = self.places.get_mut(range).unwrap_or_default();
            if let Some(slot) = set.iter_mut().find(|slot| slot.is_none()) {
                *slot = Some(*place);
                self.count += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const LAN: u32 = 2;

    fn table() -> Resolving {
        Resolving::new(3 * SECOND, 30 * SECOND, 7)
    }

    fn host(number: u32) -> Neighbour {
        (LAN, Addr::v4((0x0a00_0000 + number).to_be_bytes()))
    }

    #[test]
    fn a_neighbour_is_asked_for_then_silent_then_forgotten() {
        let mut table = table();
        let asked = core::cell::Cell::new(0);
        let want = |table: &mut Resolving, now| {
            table.want(host(9), 1, now, || {
                asked.set(asked.get() + 1);
                true
            })
        };
        assert_eq!(want(&mut table, SECOND), Wanted::Wait(4 * SECOND));
        assert_eq!(want(&mut table, SECOND + 5), Wanted::Wait(4 * SECOND));
        assert_eq!(asked.get(), 1, "once in a second");
        for later in [2 * SECOND, 3 * SECOND, 4 * SECOND - 1] {
            assert_eq!(want(&mut table, later), Wanted::Wait(4 * SECOND));
        }
        assert_eq!(want(&mut table, 4 * SECOND), Wanted::Silent);
        // As long as packets come, none of them waits, and it is asked for each second.
        asked.set(0);
        for tenth in 41..1000 {
            assert_eq!(want(&mut table, tenth * SECOND / 10), Wanted::Silent);
        }
        assert!((90..=96).contains(&asked.get()), "{}", asked.get());
        let later = 100 * SECOND + 30 * SECOND;
        assert_eq!(want(&mut table, later), Wanted::Wait(later + 3 * SECOND));
        // Its address is known, and then no longer.
        table.forget_found(|neighbour| neighbour == host(9));
        let again = later + 60 * SECOND;
        assert_eq!(table.count, 0);
        assert_eq!(want(&mut table, again), Wanted::Wait(again + 3 * SECOND));
    }

    /// A neighbour was asked for, and then no packet came for it: the knowledge of it is too old to
    /// refuse a packet by.
    #[test]
    fn what_was_asked_long_ago_is_asked_again() {
        let mut table = table();
        table.want(host(9), 1, SECOND, || true);
        let later = 100 * SECOND;
        assert_eq!(
            table.want(host(9), 1, later, || true),
            Wanted::Wait(later + 3 * SECOND)
        );
    }

    /// The call that waited goes on elsewhere; the kernel hears of the neighbour and forgets it,
    /// and no packet sees that here. Seed 91107170 of the simulator's `forward`.
    #[test]
    fn with_newer_tables_the_kernel_is_asked_again() {
        let mut table = table();
        table.want(host(9), 1, SECOND, || true);
        table.want(host(9), 1, SECOND + 1, || panic!("the tables are the same"));
        let asked = core::cell::Cell::new(0);
        let ask = || {
            asked.set(asked.get() + 1);
            true
        };
        for _ in 0..3 {
            let wanted = table.want(host(9), 3, SECOND + 2, ask);
            assert_eq!(wanted, Wanted::Wait(4 * SECOND));
        }
        assert_eq!(asked.get(), 1, "once for each tables");
        // Two seconds later no call waits here, and the next one waits as the first one did.
        let later = 3 * SECOND + 2;
        let wanted = table.want(host(9), 3, later, ask);
        assert_eq!(wanted, Wanted::Wait(later + 3 * SECOND));
        assert_eq!(asked.get(), 2);
        // A silent one is asked for each second, whatever the tables.
        let silent = later + 3 * SECOND;
        for late in [later + SECOND, later + 2 * SECOND, silent] {
            table.want(host(9), 3, late, || true);
        }
        let wanted = table.want(host(9), 4, silent + 1, || panic!("it is silent"));
        assert_eq!(wanted, Wanted::Silent);
    }

    #[test]
    fn what_the_kernel_has_not_heard_is_said_again() {
        let mut table = table();
        table.want(host(9), 1, SECOND, || false);
        assert!(!table.is_asked(host(9)));
        table.want(host(9), 1, SECOND + 1, || true);
        assert!(table.is_asked(host(9)));
        table.want(host(9), 1, SECOND + 2, || panic!("it has heard"));
    }

    /// A scan of more addresses than there is room for: the table stays as large as it is, silent
    /// ones make room, and a neighbour without a place is asked for all the same.
    #[test]
    fn a_scan_is_bounded_and_locks_nothing_out() {
        let mut table = table();
        let full = (0..10_000)
            .filter(|n| table.want(host(*n), 1, SECOND, || true) == Wanted::NoRoom)
            .count();
        assert!(
            (10_000 - NEIGHBOURS_MAX..10_000).contains(&full),
            "{full} without a place"
        );
        assert!(table.count <= NEIGHBOURS_MAX && table.places.len() == NEIGHBOURS_MAX);
        let asked = core::cell::Cell::new(false);
        let refused = (20_000..30_000).find(|n| {
            asked.set(false);
            let wanted = table.want(host(*n), 1, SECOND, || {
                asked.set(true);
                true
            });
            wanted == Wanted::NoRoom
        });
        assert!(refused.is_some() && asked.get());
        // As soon as their patience is over, others have their places.
        for n in 40_000..40_100 {
            assert_eq!(
                table.want(host(n), 1, 4 * SECOND, || true),
                Wanted::Wait(7 * SECOND),
                "{n}"
            );
        }
    }
}
