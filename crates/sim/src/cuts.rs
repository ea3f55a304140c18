//! The faults where workers have joined a coordinator: cuts and stalls that are longer than a
//! lease, and crashes of all.
//!
//! ```text
//!   lease 40 ms ─ suspicion 50 ms ─ removed some 100 ms after the last word ─ cuts and stalls of 45 to 300 ms
//!                                 ─ two that do not hear each other: one removed some 220 ms after the last word ─┘
//! ```
//!
//! Clocks do not jump there, the coordinator's neither, since leases take a clock's rate as given:
//! a removal waits for a lease of an incarnation that has ended. A coordinator that begins again
//! may have another host's clock. In every second script rates differ by nearly a sixteenth, which
//! is what a promise allows for.
//!
//! Not here: faults of all scripts ([`crate::script`]).

use crate::coordinator::Joined;
use crate::random::{Random, Stream};
use crate::script::{Beyond, Fault, MILLI, Script, Timed, Whence, Who};

/// Clocks' rates differ by less than a sixteenth: parts in a million.
const RATES: u16 = 60_000;

impl Joined {
    /// In three of ten scripts of those whose workers would be one process.
    pub fn draw(seed: u64, scenario: u64) -> Option<Joined> {
        let mut random = Random::of(seed, Stream::Leases, scenario);
        let is_joined = random.below(10) < 3;
        is_joined.then(|| Joined::of(&mut random, seed, scenario))
    }

    pub fn of(random: &mut Random, seed: u64, scenario: u64) -> Joined {
        Joined {
            lease: 40 * MILLI,
            suspicion: 50 * MILLI,
            settling: random.of_these(&[20 * MILLI, 100 * MILLI]),
            heartbeat: 10 * MILLI,
            unheard: 120 * MILLI,
            offices: draw_offices(seed, scenario),
        }
    }
}

/// In half of the scripts with a coordinator there are two or three.
fn draw_offices(seed: u64, scenario: u64) -> u8 {
    let mut random = Random::of(seed, Stream::Offices, scenario);
    random.of_these(&[1, 1, 2, 3])
}

impl Script {
    /// Draws the faults that leases and views are for, where workers have joined a coordinator.
    pub(crate) fn draw_cuts(&mut self) {
        if self.joined().is_none() {
            return;
        }
        let mut random = Random::of(self.seed, Stream::Leases, 16 + self.scenario as u64);
        self.faults
            .retain(|timed| !matches!(timed.fault, Fault::Jump { .. } | Fault::Crash { who: Who::All }));
        if self.is_calm {
            return;
        }
        if random.once_in(2) {
            self.shape.drift_ppm = RATES;
        }
        if self.draw_removals() {
            return;
        }
        let span = self.heals_at;
        let mut last = span;
        for _ in 0..random.between(1, 4) {
            let at = random.below(span);
            let (fault, time) = self.draw_cut(&mut random);
            self.faults.push(Timed { at, fault });
            last = last.max(at + time);
        }
        last = last.max(self.draw_offices_faults(span));
        self.heals_at = last + random.below(100 * MILLI);
        for talk in &mut self.talks {
            let more = random.of_these(&[1, 4, 8]);
            talk.rounds = (talk.rounds * more).min(60 / talk.burst);
            talk.gap = random.of_these(&[talk.gap, 5 * MILLI, 15 * MILLI]);
        }
    }

    /// By clocks that leap, a cut between two workers lasts as long as the leap: longer than
    /// silence, one switch lets go of a runtime that others have.
    pub(crate) fn keep_cuts_short(&mut self) {
        let cuts = self.faults.iter().filter_map(|timed| match timed.fault {
            Fault::Partition { time, .. } => Some(timed.at..timed.at + time),
            _ => None,
        });
        let cuts: Vec<_> = cuts.collect();
        for timed in &mut self.faults {
            if let Fault::Jump { by, .. } = &mut timed.fault
                && cuts.iter().any(|cut| cut.contains(&timed.at))
            {
                *by = 10 * MILLI;
            }
        }
    }

    /// A fault, and how long it lasts.
    fn draw_cut(&self, random: &mut Random) -> (Fault, u64) {
        let workers = u64::from(self.shape.switches) + u64::from(self.shape.runtimes);
        let worker = random.below(workers) as u8;
        let time = random.between(45 * MILLI, 300 * MILLI);
        let way = random.below(4);
        let (to, from) = (way != 1, way != 2);
        let fault = match random.below(12) {
            0..4 => Fault::Isolated {
                worker,
                whom: random.of_these(&[Whence::Workers, Whence::All, Whence::Coordinator]),
                to,
                from,
                time,
            },
            4..6 => Fault::Partition {
                from: worker,
                to: ((u64::from(worker) + 1 + random.below(workers - 1)) % workers) as u8,
                back: random.once_in(2),
                time,
            },
            6..8 => Fault::Stall { worker, time },
            8..10 => Fault::Crash {
                who: Who::Worker(worker, random.between(MILLI / 10, 20 * MILLI)),
            },
            10 => Fault::OfficeCrash { office: 0, time },
            _ => Fault::OfficeStall { office: 0, time },
        };
        (fault, time)
    }

    /// Where there are several coordinators: faults of them and of their store, and when the last
    /// of these is over.
    fn draw_offices_faults(&mut self, span: u64) -> u64 {
        let offices = self.joined().map_or(1, |joined| joined.offices);
        let mut last = 0;
        if offices < 2 {
            return last;
        }
        let mut random = Random::of(self.seed, Stream::Offices, 16 + self.scenario as u64);
        for _ in 0..random.between(1, 5) {
            let at = random.below(span);
            let time = random.between(20 * MILLI, 250 * MILLI);
            // The first is the elected one at the beginning.
            let any = random.below(u64::from(offices)) as u8;
            let office = random.of_these(&[0, 0, any]);
            let way = random.below(4);
            let (to, from) = (way != 1, way != 2);
            let fault = match random.below(8) {
                0..2 => Fault::OfficeCrash { office, time },
                2..4 => Fault::OfficeStall { office, time },
                4..7 => Fault::OfficeCut {
                    office,
                    whom: random.of_these(&[Beyond::Members, Beyond::Store, Beyond::Store, Beyond::Both]),
                    to,
                    from,
                    time,
                },
                _ => Fault::StoreStall { time },
            };
            self.faults.push(Timed { at, fault });
            last = last.max(at + time);
        }
        last
    }
}
