//! Says of members that are there and are not met why that is: once each, as long as it is so.
//!
//! Links know the reason that keeps two members apart: why the last frame from the other end was
//! refused ([`LinkStatus::why`]). The operator should not have to look for it: the member says a
//! line for each other member and each reason, until it meets that member.
//!
//! Not here: silent members (`status` shows that they are not there); the content of hellos
//! (`protocols::channel`, `adapters::shm`).

use crate::report::LinkStatus;
use std::collections::BTreeSet;

/// The members and reasons that were said.
#[derive(Debug, Default)]
pub struct Unmet(BTreeSet<(String, String)>);

impl Unmet {
    /// The lines to be said now, by all links.
    pub fn look(&mut self, links: &[LinkStatus]) -> Vec<String> {
        let is_apart = |name: &String| links.iter().any(|link| link.member == *name && !link.is_there);
        self.0.retain(|(member, _)| is_apart(member));
        let mut lines = Vec::new();
        for link in links.iter().filter(|link| !link.is_there) {
            if !link.why.is_empty() && self.0.insert((link.member.clone(), link.why.clone())) {
                lines.push(format!("member `{}` is not met: {}", link.member, link.why));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_said_once_until_they_have_met() {
        let link = |member: &str, is_there, why: &str| LinkStatus {
            member: member.to_owned(),
            is_there,
            why: why.to_owned(),
            ..LinkStatus::default()
        };
        let mut unmet = Unmet::default();
        // Two links to the same member, and one to a member without a reason.
        let all = [
            link("left", false, "a"),
            link("left", false, "a"),
            link("right", false, ""),
        ];
        assert_eq!(unmet.look(&all), ["member `left` is not met: a"]);
        assert!(unmet.look(&all).is_empty());
        assert_eq!(
            unmet.look(&[link("left", false, "b"), link("right", false, "a")]),
            ["member `left` is not met: b", "member `right` is not met: a"]
        );
        assert!(unmet.look(&[link("left", true, "")]).is_empty());
        assert_eq!(unmet.look(&all).len(), 1);
        // Met by one of its workers only.
        assert!(
            unmet
                .look(&[link("left", true, ""), link("left", false, "a")])
                .is_empty()
        );
    }
}
