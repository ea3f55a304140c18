//! A group's route at its home switch: which runtimes' words it follows, and its words to them.

use super::message::{Epoch, RuntimeId, SwitchMessage};
use super::{Bug, has};

/// The route of a group at one of its homes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Home {
    /// The runtime that gets its packets; `None` if no runtime has the group.
    pub route: Option<RuntimeId>,
    /// The highest epoch that the route has followed.
    pub epoch: Epoch,
    /// The source of the move that made the route: it may call it back.
    pub source: Option<RuntimeId>,
}

/// An input of a home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HomeInput {
    /// [`super::TellSwitch::Reroute`].
    Reroute {
        /// The runtime that says so.
        by: RuntimeId,
        /// The runtime that had it, or was to have it.
        from: RuntimeId,
        /// The runtime that gets it.
        to: RuntimeId,
        /// The change's epoch.
        epoch: Epoch,
        /// Whether the view knows `to` no more.
        is_removed: bool,
    },
    /// No runtime has the group.
    Forget,
}

/// A word of a home to a runtime, behind the packets that it has sent there.
pub type HomeOutput = (RuntimeId, SwitchMessage);

impl Home {
    /// A route that was chosen.
    pub const fn chosen(route: RuntimeId) -> Self {
        Home {
            route: Some(route),
            epoch: Epoch { view: 0, count: 0 },
            source: None,
        }
    }

    /// Takes an input in; outputs go to `out`, in order.
    pub fn handle(&mut self, input: HomeInput, mut out: impl FnMut(HomeOutput)) {
        match input {
            HomeInput::Reroute {
                by,
                from,
                to,
                epoch,
                is_removed,
            } => {
                if is_removed {
                    return out((by, SwitchMessage::Refused(epoch)));
                }
                self.on_reroute(by, from, to, epoch, &mut out);
            }
            HomeInput::Forget => self.route = None,
        }
    }

    fn on_reroute(
        &mut self,
        by: RuntimeId,
        from: RuntimeId,
        to: RuntimeId,
        epoch: Epoch,
        out: &mut impl FnMut(HomeOutput),
    ) {
        // The source of the move that made the route follows it no further: where that led is where
        // it says that it comes from.
        let is_its = self.source == Some(by) && (self.route == Some(from) || self.route == Some(to));
        let may = self.route.is_none() || self.route == Some(by) || is_its;
        let is_again = epoch == self.epoch && self.source == Some(by);
        if !may || epoch < self.epoch || (epoch == self.epoch && !is_again) {
            return out((by, SwitchMessage::Fenced(self.epoch)));
        }
        if is_again && has(Bug::AnswersOnce) {
            return;
        }
        // A group that ended on its way stays ended: the route of its next packet is chosen again.
        let before = self.route;
        if before.is_some() {
            self.route = Some(to);
        }
        (self.epoch, self.source) = (epoch, Some(by));
        out((by, SwitchMessage::Rerouted(epoch)));
        let previous = before.filter(|previous| *previous != to);
        for away in [previous, Some(from).filter(|from| previous != Some(*from))]
            .into_iter()
            .flatten()
        {
            if away != by {
                out((away, SwitchMessage::Moved(to, epoch)));
            }
        }
    }
}
