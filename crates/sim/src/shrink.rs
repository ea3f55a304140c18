//! Makes a failing script small: takes out what it fails without.
//!
//! Faults, then moves and talks, then the network's noise, slow workers, drifting clocks, further
//! rounds: whatever can go while the same checker fires goes, half of a list at a time at first,
//! single things at last (delta debugging, Zeller 1999), until nothing more goes or so many runs
//! were made.
//!
//! Invariant: the script that it answers fails by the same checker; the same script shrinks to the
//! same.

use crate::checkers::Violation;
use crate::network::Noise;
use crate::run::{Planner, play};
use crate::script::Script;

/// Runs that shrinking takes at most.
const RUNS_MAX: u32 = 600;

struct Shrinker<'a, 'p> {
    planner: &'a mut Planner<'p>,
    checker: &'static str,
    twice: bool,
    runs: u32,
    best: Script,
    violation: Violation,
}

/// The smallest script found that fails by the same checker, its finding, and how many runs it
/// took.
pub(crate) fn shrink(
    script: Script,
    violation: &Violation,
    twice: bool,
    planner: &mut Planner<'_>,
) -> Result<(Script, Violation, u32), String> {
    let mut shrinker = Shrinker {
        planner,
        checker: violation.checker,
        twice,
        runs: 0,
        best: script,
        violation: violation.clone(),
    };
    loop {
        let before = shrinker.runs_that_helped()?;
        if !before || shrinker.runs >= RUNS_MAX {
            return Ok((shrinker.best, shrinker.violation, shrinker.runs));
        }
    }
}

impl Shrinker<'_, '_> {
    /// Whether a smaller script still fails; if so it is the best.
    fn attempt(&mut self, smaller: Script) -> Result<bool, String> {
        if self.runs >= RUNS_MAX {
            return Ok(false);
        }
        self.runs += 1;
        let outcome = play(&smaller, self.planner, self.twice)?;
        match outcome.violation {
            Some(violation) if violation.checker == self.checker => {
                (self.best, self.violation) = (smaller, violation);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// One round over everything; whether anything went.
    fn runs_that_helped(&mut self) -> Result<bool, String> {
        let mut helped = self.thin(|script| script.faults.len(), remove_fault)?;
        helped |= self.thin(|script| script.moves.len(), remove_move)?;
        helped |= self.thin(|script| script.changes.len(), remove_change)?;
        helped |= self.thin(|script| script.goings.len(), remove_going)?;
        helped |= self.thin(|script| script.talks.len(), remove_talk)?;
        let simpler: [fn(&mut Script) -> bool; 11] = [
            |script| script.comes_at.take().is_some(),
            |script| std::mem::take(&mut script.noise) != Noise::default(),
            |script| match &mut script.shape.apart {
                Some(apart) => std::mem::take(&mut apart.noise) != Noise::default(),
                None => false,
            },
            |script| script.shape.slow.take().is_some(),
            |script| std::mem::take(&mut script.shape.drift_ppm) != 0,
            |script| std::mem::take(&mut script.shape.ring_delay) != 0,
            |script| std::mem::take(&mut script.kinds.errors) != 0,
            |script| std::mem::take(&mut script.kinds.parts) != 0,
            |script| std::mem::take(&mut script.kinds.is_shuffled),
            |script| std::mem::take(&mut script.kinds.is_spread),
            shorten,
        ];
        for simplify in simpler {
            let mut smaller = self.best.clone();
            if simplify(&mut smaller) {
                helped |= self.attempt(smaller)?;
            }
        }
        for talk in 0..self.best.talks.len() {
            for less in [1, 2] {
                let mut smaller = self.best.clone();
                let talk = &mut smaller.talks[talk];
                let part = if less == 1 {
                    &mut talk.rounds
                } else {
                    &mut talk.burst
                };
                if *part > 1 {
                    *part /= 2;
                    helped |= self.attempt(smaller)?;
                }
            }
        }
        Ok(helped)
    }

    /// Takes things out of a list, in runs of halves, quarters and so on; whether any went.
    fn thin(&mut self, count: fn(&Script) -> usize, remove: fn(&mut Script, usize)) -> Result<bool, String> {
        let mut helped = false;
        let mut length = count(&self.best).div_ceil(2);
        while length > 0 {
            let mut at = 0;
            while at < count(&self.best) {
                let mut smaller = self.best.clone();
                for _ in 0..length.min(count(&smaller) - at) {
                    remove(&mut smaller, at);
                }
                if self.attempt(smaller)? {
                    helped = true;
                } else {
                    at += length;
                }
            }
            length /= 2;
        }
        Ok(helped)
    }
}

fn remove_fault(script: &mut Script, at: usize) {
    script.faults.remove(at);
}

fn remove_move(script: &mut Script, at: usize) {
    script.moves.remove(at);
}

fn remove_change(script: &mut Script, at: usize) {
    script.changes.remove(at);
}

fn remove_going(script: &mut Script, at: usize) {
    script.goings.remove(at);
}

fn remove_talk(script: &mut Script, at: usize) {
    script.talks.remove(at);
}

/// The shortest payloads there are; whether any was longer.
fn shorten(script: &mut Script) -> bool {
    let size = crate::frame::PAYLOAD_MIN as u16;
    let was_longer = script.talks.iter().any(|talk| talk.size > size);
    script.talks.iter_mut().for_each(|talk| talk.size = size);
    was_longer
}
