//! Whether a server is up, by its checks so far.
//!
//! ```text
//!   nothing known ──the first check──► up or down
//!   up ──`fall` failures in a row──► down ──`rise` passes in a row──► up
//! ```

/// The state of a server by its checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    is_up: Option<bool>,
    /// Checks in a row that say otherwise.
    against: u16,
}

impl Standing {
    /// Whether it is up; `None` before the first check has ended.
    pub fn is_up(self) -> Option<bool> {
        self.is_up
    }

    /// Notes how a check ended; whether the standing changed by it.
    pub fn note(&mut self, passed: bool, rise: u16, fall: u16) -> bool {
        let Some(is_up) = self.is_up else {
            self.is_up = Some(passed);
            return true;
        };
        if passed == is_up {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let needed = if passed { rise } else { fall };
        if self.against < needed {
            return false;
        }
        (self.is_up, self.against) = (Some(passed), 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_falls_and_rises_by_checks_in_a_row() {
        let mut standing = Standing::default();
        assert_eq!(standing.is_up(), None);
        let mut said = |checks: &str| {
            let note = |letter| match standing.note(letter == '+', 2, 3) {
                true if standing.is_up() == Some(true) => 'U',
                true => 'D',
                false => '.',
            };
            checks.chars().map(note).collect::<String>()
        };
        // The first decides; a check that says otherwise in between begins the row again.
        assert_eq!(said("+--+---"), "U.....D");
        assert_eq!(said("-+-++"), "....U");
        let mut dead = Standing::default();
        assert!(dead.note(false, 2, 3) && dead.is_up() == Some(false));
        let mut quick = Standing::default();
        assert!(quick.note(true, 1, 1) && quick.note(false, 1, 1) && quick.note(true, 1, 1));
    }
}
