//! Makes a case small in which moving flows makes a difference.
//!
//! # Theory of operation
//! A case is some steps of the script and the steps at which flows move. The steps behind the
//! difference are cut off first. Then parts of the moves are left out, and parts of the steps:
//! halves, quarters and so on to single ones, each part that is not missed staying out (Zeller's
//! delta debugging without its complements). A step that is left out takes no move with it: that
//! happens before the next step that is there.
//!
//! The difference that remains need not be the difference that was found first. How often the
//! script is played, and how long, is bounded.
//!
//! Not here: differences (`story`).

use super::play::{Failure, Numbered, play};
use super::story::{Difference, Story, Terms, difference, words};
use super::{Migration, Way};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The script is played so often at most, and no more after so long.
const TRIES_MAX: usize = 2000;
const TIME_MAX: Duration = Duration::from_secs(20);
/// Steps of a case that are printed.
const SHOWN: usize = 40;

/// The result of a case and where it differs; `stayed` is the result of its steps while flows stay,
/// if that is known already.
pub fn judge(
    migration: &Migration,
    script: &[Numbered],
    points: &BTreeSet<usize>,
    way: Way,
    stayed: Option<&Story>,
) -> (Story, Option<Difference>) {
    let made;
    let stayed = match stayed {
        Some(stayed) => stayed,
        None => match play_beside(migration, script, points, way) {
            Ok(story) if story.wrong.is_none() => {
                made = story;
                &made
            }
            // A script that cannot be, or is wrong without any move, is no case.
            _ => return (Story::default(), None),
        },
    };
    match catch_unwind(AssertUnwindSafe(|| play(migration, script, points, way))) {
        Ok(Ok(moved)) => {
            let terms = Terms {
                chosen: &migration.chosen,
                uncounted: &migration.uncounted,
                meanwhile: way.meanwhile(),
                lags: way.is_failure() && !migration.lagging().is_empty(),
                incarnations_longer: way.is_failure(),
            };
            let found = difference(stayed, &moved, &terms);
            (moved, found)
        }
        Ok(Err(Failure::Script(words) | Failure::Broken(words))) => {
            (Story::default(), Some(Difference::at_the_end(words)))
        }
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
            let words = format!("panicked: {}", words.unwrap_or("with no words"));
            (Story::default(), Some(Difference::at_the_end(words)))
        }
    }
}

/// The story that a case is compared with.
fn play_beside(
    migration: &Migration,
    script: &[Numbered],
    points: &BTreeSet<usize>,
    way: Way,
) -> Result<Story, Failure> {
    let (points, way) = migration.beside(points, way);
    play(migration, script, &points, way)
}

/// A case that differs.
pub struct Case {
    script: Vec<Numbered>,
    whole: usize,
    points: BTreeSet<usize>,
    way: Way,
    difference: Difference,
}

struct Budget {
    tries: usize,
    until: Instant,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.tries >= TRIES_MAX || Instant::now() >= self.until
    }
}

/// The smallest case that is found from one.
pub fn smallest(
    migration: &Migration,
    script: &[Numbered],
    points: &BTreeSet<usize>,
    way: Way,
    difference: Difference,
) -> Case {
    let mut case = Case {
        script: script.to_vec(),
        whole: script.len(),
        points: points.clone(),
        way,
        difference,
    };
    let mut budget = Budget {
        tries: 0,
        until: Instant::now() + TIME_MAX,
    };
    if let Some(chapter) = case.difference.chapter {
        let cut = script[..script.len().min(chapter + 1)].to_vec();
        let points = case.points.clone();
        case.adopt(migration, cut, points, &mut budget);
    }
    loop {
        let size = (case.script.len(), case.points.len());
        case.fewer_points(migration, &mut budget);
        case.fewer_steps(migration, &mut budget);
        if (case.script.len(), case.points.len()) == size || budget.is_spent() {
            return case;
        }
    }
}

impl Case {
    /// Takes a smaller case in this one's place, if it differs.
    fn adopt(
        &mut self,
        migration: &Migration,
        script: Vec<Numbered>,
        points: BTreeSet<usize>,
        budget: &mut Budget,
    ) -> bool {
        budget.tries += 1;
        match judge(migration, &script, &points, self.way, None).1 {
            Some(difference) => {
                self.script = script;
                self.points = points;
                self.difference = difference;
                true
            }
            None => false,
        }
    }

    fn fewer_points(&mut self, migration: &Migration, budget: &mut Budget) {
        let mut part = self.points.len().div_ceil(2);
        while part > 0 {
            let mut at = 0;
            while at < self.points.len() && !budget.is_spent() {
                let kept = self.points.iter().enumerate();
                let kept = kept.filter(|(index, _)| !(at..at + part).contains(index));
                let points = kept.map(|(_, point)| *point).collect();
                if !self.adopt(migration, self.script.clone(), points, budget) {
                    at += part;
                }
            }
            part /= 2;
        }
    }

    fn fewer_steps(&mut self, migration: &Migration, budget: &mut Budget) {
        let mut part = self.script.len().div_ceil(2);
        while part > 0 {
            let mut at = 0;
            while at < self.script.len() && !budget.is_spent() {
                let mut script = self.script.clone();
                script.drain(at..(at + part).min(script.len()));
                if script.is_empty() || !self.adopt(migration, script, self.points.clone(), budget) {
                    at += part;
                }
            }
            part /= 2;
        }
    }

    /// The case as a person reads it.
    pub fn report(&self, migration: &Migration) -> String {
        let numbers: Vec<usize> = self.script.iter().map(|step| step.number).collect();
        let points: Vec<usize> = self.points.iter().copied().collect();
        let mut text = format!(
            "`{}` does not come through {}.\n\nThe smallest case found has {} of the script's {} steps; {} step{} {}:\n\n",
            migration.names(),
            self.way.what(),
            self.script.len(),
            self.whole,
            self.way,
            if points.len() == 1 { "" } else { "s" },
            listed(&points),
        );
        let shown = self.script.len().saturating_sub(SHOWN);
        if shown > 0 {
            let _ = writeln!(text, "         ({shown} steps before)");
        }
        // Playing the script tells its frames.
        let story = play(migration, &self.script, &BTreeSet::new(), self.way).unwrap_or_default();
        for (at, step) in self.script.iter().enumerate().skip(shown) {
            let mark = if self.difference.chapter == Some(at) {
                '>'
            } else {
                ' '
            };
            let came = story.chapters.get(at).and_then(|chapter| chapter.came.as_ref());
            let what = match (&step.step.what, came) {
                (_, Some((side, link, bytes))) => words(*side, *link, bytes),
                (what, None) => format!("{what:?}"),
            };
            let after = step
                .step
                .after
                .map_or(String::new(), |time| format!(", {time:?} later"));
            let _ = writeln!(text, "{mark}{:>7}  {what}{after}", step.number);
        }
        let behind = self.difference.chapter.and_then(|at| self.script.get(at));
        let _ = match behind {
            Some(step) => writeln!(text, "\nThe difference, with step {}:", step.number),
            None => writeln!(text, "\nThe difference, at the end:"),
        };
        let _ = writeln!(text, "{}", self.difference.words);
        let functions: String = migration
            .functions
            .iter()
            .fold(String::new(), |mut all, function| {
                let _ = write!(all, ".function::<{}>(…)", function.type_name);
                all
            });
        let _ = writeln!(
            text,
            "\nThe line that repeats it:\n\n    testkit::migration(){functions}.ways([Way::{:?}]).only({numbers:?}).at({points:?}).check(script);",
            self.way
        );
        text
    }
}

fn listed(numbers: &[usize]) -> String {
    let words: Vec<String> = numbers.iter().map(usize::to_string).collect();
    match words.split_last() {
        None => "none".into(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}
