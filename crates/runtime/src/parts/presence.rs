//! The workers at the other ends of a runtime's links, and what they have said.
//!
//! Not here: messages to a switch that restarts (`worker::sessions`).

use crate::env::Port;
use crate::members::End;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use hashbrown::HashMap;
use nf::{Addr, Block};
use protocols::membership::{View, WorkerId};
use protocols::ownership::Switches;

/// How long, in nanoseconds, a runtime that begins waits for absent switches, and for present ones:
/// longer than they may wait to be told themselves ([`crate::switch::Switch::wait_for_resync`]).
pub const ABSENT: u64 = 2_000_000_000;
pub const SILENT: u64 = 5_000_000_000;
/// The state of the other ends.
#[derive(Default)]
pub(crate) struct Sessions {
    /// By switch, and by runtime.
    pub switches: Vec<u64>,
    pub has_absent: bool,
    pub runtimes: Vec<u64>,
    /// The same ends, as views have them.
    pub switch_ends: Vec<End>,
    pub runtime_ends: Vec<End>,
    /// By runtime, which incarnation it has said that it is, if not by views; 0 for none.
    pub said: Vec<u64>,
    /// Whether workers go by views only.
    pub by_views: bool,
    /// The newest view.
    pub view: u32,
    /// By that view: whether this runtime is joining, and which switches run.
    pub is_joining: bool,
    pub running: Switches,
    /// By that view: which switches are members, and by runtime the incarnation that runs, 0 for
    /// none.
    pub listed: Switches,
    pub running_incarnations: Vec<u64>,
    /// By runtime, whether it has said that it takes no groups.
    pub leaving: Vec<bool>,
    pub resyncs: VecDeque<Resync>,
    /// Groups that are another's, by their words, and the last group that was looked at.
    pub taken: BTreeSet<[u64; 5]>,
    pub taken_cursor: [u64; 5],
    /// Switches that were met again and have said which groups are another's.
    pub reconciled: Switches,
    /// The barrier by which all others were asked since the last of them has.
    pub reconciled_at: u64,
    /// Reply keys that are another's, of flows that could not end when that was said: they are on
    /// their way, or wait for a call.
    pub refused: BTreeSet<[u64; 5]>,
    /// Whether switches have been told that this runtime takes no new groups, and runtimes that it
    /// takes none that move.
    pub said_leaving: (bool, bool),
    /// Until all switches have told which blocks are in use.
    pub beginning: Option<Beginning>,
    /// Blocks of this runtime's pool that were in use when it began, and which switches know them.
    pub lent: HashMap<Block, Switches>,
}

/// Of a runtime that begins among others.
pub(crate) struct Beginning {
    pub resynced: Switches,
    /// Since when it waits, once it does.
    pub since: Option<u64>,
}

/// How far a switch is told.
pub(crate) struct Resync {
    pub link: usize,
    pub part: ResyncPart,
}

pub(crate) enum ResyncPart {
    Moves(u32),
    Groups(u32),
    Flows(u32),
    Blocks(Vec<(Addr, u16)>),
    Rest,
}

impl Sessions {
    pub fn new<P: Port>(links: &[P]) -> Self {
        let has_absent = links.iter().any(|link| link.session() == 0);
        let there = links.iter().enumerate().filter(|(_, link)| link.session() != 0);
        // Switches that are there begin with this runtime, and have nothing to tell.
        let resynced = there.fold(Switches::NONE, |resynced, (index, _)| resynced.with(index as u8));
        Sessions {
            has_absent,
            beginning: has_absent.then_some(Beginning {
                resynced,
                since: None,
            }),
            switches: links.iter().map(Port::session).collect(),
            switch_ends: links.iter().map(|_| End::default()).collect(),
            ..Sessions::default()
        }
    }

    /// Whether there is anything to do.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.resyncs.is_empty() && self.taken.is_empty() && self.refused.is_empty()
    }

    /// Whether another is at a switch's end than was, and that one is gone.
    #[inline(always)]
    pub fn is_switch_over(&self, link: usize, session: u64) -> bool {
        let known = self.switches[link];
        let end = &self.switch_ends[link];
        (session != known || end.is_fenced(session)) && end.is_over(known, session, self.by_views)
    }

    /// The same of a runtime's end.
    #[inline]
    pub fn is_runtime_over(&self, runtime: usize, session: u64) -> bool {
        let Some(known) = self.runtimes.get(runtime) else {
            return false;
        };
        let end = &self.runtime_ends[runtime];
        (session != *known || end.is_fenced(session)) && end.is_over(*known, session, self.by_views)
    }

    /// Whether a runtime's end brings its worker's frames: it is not suspended.
    #[inline]
    pub fn may_read_runtime(&self, runtime: usize, session: u64) -> bool {
        let known = self.runtimes.get(runtime);
        known.is_none_or(|known| session == *known)
    }

    /// Whether frames of a runtime's end are dropped.
    pub fn is_runtime_fenced(&self, runtime: usize, session: u64) -> bool {
        let end = self.runtime_ends.get(runtime);
        end.is_some_and(|end| end.is_fenced(session))
    }

    /// Another runtime says which incarnation it is.
    pub fn note_incarnation(&mut self, runtime: usize, incarnation: u64, since: u32, view: &View) {
        if let (Some(end), Some(known)) = (self.runtime_ends.get_mut(runtime), self.runtimes.get(runtime)) {
            // That it is over by now is noted when its link is looked at next.
            let id = WorkerId::runtime(runtime as u16);
            end.note_incarnation(id, incarnation, since, *known, view);
        }
    }

    /// Notes which workers are at the ends of the links to other runtimes at the beginning.
    pub fn note_runtimes(&mut self, sessions: Vec<u64>) {
        self.leaving = alloc::vec![false; sessions.len()];
        self.runtime_ends = alloc::vec![End::default(); sessions.len()];
        self.said = alloc::vec![0; sessions.len()];
        self.runtimes = sessions;
    }

    /// Whether a worker is at the other end of the link to a runtime.
    pub fn has_runtime(&self, runtime: u16) -> bool {
        self.runtimes
            .get(usize::from(runtime))
            .is_some_and(|session| *session != 0)
    }

    /// The incarnation of the runtime at the other end of a link, as it has said; 0 if none has.
    pub fn incarnation(&self, runtime: u16) -> u64 {
        let end = self.runtime_ends.get(usize::from(runtime));
        end.filter(|_| self.has_runtime(runtime))
            .map_or(0, End::incarnation)
    }

    /// Which incarnation of a runtime a switch is told of: the incarnation in views; without views
    /// the incarnation that it has said. 0 if it has said none, and of this runtime itself.
    pub fn incarnation_to_name(&self, runtime: u16) -> u64 {
        if self.by_views {
            return self.incarnation(runtime);
        }
        let said = self.said.get(usize::from(runtime)).copied();
        said.filter(|_| self.has_runtime(runtime)).unwrap_or(0)
    }

    /// Another runtime says which incarnation it is, not by views; 0: another session begins.
    pub fn note_said(&mut self, runtime: usize, incarnation: u64) {
        if let Some(said) = self.said.get_mut(runtime) {
            *said = incarnation;
        }
    }

    /// Whether the runtime at the other end of a link may keep copies. A runtime that is joining
    /// may be cut off from a switch, and no flow could go on there.
    pub fn may_keep_copies(&self, runtime: u16) -> bool {
        let incarnation = self.incarnation(runtime);
        let runs = self.running_incarnations.get(usize::from(runtime));
        let may = !self.by_views || incarnation != 0 && runs == Some(&incarnation);
        self.has_runtime(runtime) && (may || crate::replica::is_broken("those that join keep no copies"))
    }

    /// The runtimes at the other ends that have said which incarnations they are.
    pub fn incarnations(&self) -> impl Iterator<Item = (u16, u64)> {
        let all = (0..self.runtimes.len() as u16).map(|runtime| (runtime, self.incarnation(runtime)));
        all.filter(|(_, incarnation)| *incarnation != 0)
    }

    /// Another runtime says whether it takes no groups.
    pub fn note_leaving(&mut self, runtime: usize, is_leaving: bool) {
        if let Some(known) = self.leaving.get_mut(runtime) {
            *known = is_leaving;
        }
    }

    /// Whether another runtime, as far as is known here, takes no groups.
    pub fn is_runtime_leaving(&self, runtime: u16) -> bool {
        self.leaving.get(usize::from(runtime)).is_some_and(|known| *known)
    }

    /// Goes on with another's functions: it waits to be told which blocks are in use.
    pub fn wait_for_resync(&mut self) {
        self.beginning = Some(Beginning {
            resynced: Switches::NONE,
            since: None,
        });
    }

    /// Whether it is too early to begin groups.
    #[inline]
    pub fn is_beginning(&self) -> bool {
        self.beginning.is_some()
    }

    /// Whether this runtime begins, and a switch has not told it which blocks are in use.
    pub fn is_beginning_without(&self, switch: u8) -> bool {
        let beginning = self.beginning.as_ref();
        beginning.is_some_and(|beginning| !beginning.resynced.has(switch))
    }

    /// Whether a switch's word is wanted before a block is home.
    pub fn may_know(&self, block: &Block, switch: u8) -> bool {
        self.lent.get(block).is_none_or(|known| known.has(switch))
    }

    /// A block is home.
    pub fn note_home(&mut self, block: &Block) {
        self.lent.remove(block);
    }

    /// Whether some switch is not there.
    #[inline]
    pub fn has_absent(&self) -> bool {
        self.has_absent
    }

    /// Whether some switch is being told what there is.
    pub fn is_resyncing(&self) -> bool {
        !self.resyncs.is_empty()
    }
}
