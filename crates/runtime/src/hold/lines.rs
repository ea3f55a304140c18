//! Lines of the event log, where copies are kept.
//!
//! ```text
//!   line is written ─► step ends: marked ─ the records of the step are acknowledged ─► handed out
//! ```
//!
//! A line tells what a flow did: it began, it ended, it has a port. If it left before the replica
//! knew of that, and the runtime failed, the heir would have the flow do it once more, and tell it
//! once more: two records of one flow.
//!
//! Invariants: where copies are kept, no line is handed out before the replica has acknowledged
//! all records up to the end of the step that wrote it; lines are handed out in order. Lines that
//! wait take the log's room, so flows end no earlier than their lines find some.
//!
//! Not here: a line that was handed out and is not in the file yet, which a process that is killed
//! loses.

use alloc::collections::VecDeque;
use nf::cx::EventLog;

/// Steps that are told apart; with more of them, the last ones wait for each other.
const STEPS: usize = 64;

/// See the module's page.
pub(crate) struct HeldLines {
    /// Whether copies are kept.
    waits: bool,
    /// The runtime ends: its flows go on nowhere.
    is_over: bool,
    /// Behind which record lines may leave, and up to which byte of the log.
    marks: VecDeque<(u64, usize)>,
    /// Bytes of the log that have a mark, or had one.
    marked: usize,
    /// Bytes of the log that may leave.
    ready: usize,
}

impl Default for HeldLines {
    fn default() -> Self {
        HeldLines {
            waits: false,
            is_over: false,
            marks: VecDeque::with_capacity(STEPS),
            marked: 0,
            ready: 0,
        }
    }
}

impl HeldLines {
    /// Copies are kept from now on, as a base of their own; or none are, and all lines may leave.
    #[cold]
    pub fn keep_copies(&mut self, waits: bool) {
        self.waits = waits && !self.is_over;
        self.marks.clear();
        self.marked = self.ready;
    }

    /// No line waits from now on.
    #[cold]
    pub fn let_go(&mut self) {
        self.is_over = true;
        self.keep_copies(false);
    }

    /// Whether something of so long a log may be without a mark, or waits.
    #[inline(always)]
    pub fn has_work(&self, length: usize) -> bool {
        length > self.ready
    }

    /// A step has ended: the events up to here are in so many records, of which so many are
    /// acknowledged.
    pub fn go_on(&mut self, length: usize, sent: u64, acknowledged: u64) {
        if length > self.marked {
            self.marked = length;
            let is_full = self.marks.len() >= STEPS;
            match self.marks.back_mut() {
                Some(last) if is_full || last.0 == sent => *last = (sent, length),
                _ => self.marks.push_back((sent, length)),
            }
        }
        let may_leave = |(sent, _): &mut (u64, usize)| {
            *sent <= acknowledged || crate::replica::is_broken("lines wait for copies")
        };
        while let Some((_, length)) = self.marks.pop_front_if(may_leave) {
            self.ready = length;
        }
    }

    /// Hands out the lines that may leave.
    pub fn take(&mut self, log: &mut EventLog, out: &mut alloc::string::String) {
        let ready = if self.waits { self.ready } else { log.len() };
        log.take_first(ready, out);
        self.ready = 0;
        self.marked = self.marked.saturating_sub(ready);
        self.marks
            .iter_mut()
            .for_each(|(_, length)| *length = length.saturating_sub(ready));
    }

    /// Whether lines of so long a log wait for a replica.
    pub fn are_waiting(&self, length: usize) -> bool {
        self.waits && length > self.ready
    }
}
