//! The record of a route.

use crate::group::GroupKey;
use protocols::ownership::Epoch;

/// Which runtime has a key: one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Route {
    pub key: GroupKey,
    /// [`Route::last_sent`], shifted by [`MARKS`], and the marks below it.
    sent_and_marks: u64,
    pub runtime: u16,
    /// The runtime that moved the group last, if any has, and of which change of hands it was.
    pub source: u16,
    /// By which incarnation of its runtime it was made, and which of the source's.
    pub incarnation: u16,
    pub source_incarnation: u16,
    pub epoch: Epoch,
}

const _: () = assert!(size_of::<Route>() == 64);

/// In [`Route::runtime`]: the place is free. In [`Route::source`]: the group has not moved.
pub(super) const NO_RUNTIME: u16 = u16::MAX;

/// How many marks a route has.
const MARKS: u32 = 2;
/// The route is among those to be probed.
pub(super) const SUSPECT: u64 = 1;
/// The runtime has yet to install the group. That runtime's word about the group is older.
pub(super) const AWAITED: u64 = 2;

impl Route {
    pub fn new(key: GroupKey, runtime: u16, incarnation: u16, last_sent: u64) -> Self {
        Route {
            key,
            sent_and_marks: last_sent << MARKS,
            runtime,
            source: NO_RUNTIME,
            incarnation,
            source_incarnation: 0,
            epoch: Epoch::default(),
        }
    }

    /// Where the last packet that was sent for the group stands in the link's count. The count has
    /// 62 bits: a link that sends a hundred million packets a second fills them in a thousand
    /// years.
    #[inline(always)]
    pub fn last_sent(&self) -> u64 {
        self.sent_and_marks >> MARKS
    }

    #[inline(always)]
    pub fn set_last_sent(&mut self, count: u64) {
        self.sent_and_marks = count << MARKS | self.sent_and_marks & (SUSPECT | AWAITED);
    }

    pub fn has(&self, mark: u64) -> bool {
        self.sent_and_marks & mark != 0
    }

    pub fn set(&mut self, mark: u64, value: bool) {
        self.sent_and_marks = self.sent_and_marks & !mark | if value { mark } else { 0 };
    }
}
