//! Packets that wait until the store has what their call has changed, of variables that are written
//! through (FlexState III-C).
//!
//! # Theory of operation
//!
//! ```text
//!   process_now ──Some(verdict)──► marks as before ────────────────────────────────► code
//!        │                             └─ others ─► future with marks and verdict ─► WAITING
//!        └──None──► process, in a future that notes the marks around each poll        │ the store has them
//!                       └─ over: the same ───────────────────────────────────────────►┴► code
//! ```
//!
//! Effects of the call stay in its frame meanwhile, as those of each call that waits
//! (`runner::waiting`). Later packets of its flow queue behind, packets of other flows pass: a
//! variable that they read may have changes that the store does not have yet.
//!
//! A packet that is dropped waits for nothing. Where another process has claimed the variables, the
//! store never has the change, and the packet is a counted drop (`store_fenced`).
//!
//! Invariants: a packet goes on from a function when the store has all changes that its call made
//! of variables written through; the call's changes are made once: such a call is not given up, so
//! its group stays until the store has answered.
//!
//! Not here: changes by a function without a packet's call (`arrived`, `departed`, timers).

use super::{CallAnswer, nanoseconds};
use crate::microthread::{Finished, Frame, FutureSlot};
use core::future::Future;
use core::pin::{Pin, pin};
use core::ptr::NonNull;
use core::task::{Context, Poll};
use nf::variables::through::{Marks, Through};
use nf::{Cx, NetworkFunction, Packet, Reason, Verdict};

/// A future that notes what it changes.
struct Noted<'a, F> {
    future: Pin<&'a mut F>,
    through: &'a Through,
    changed: &'a mut Marks,
}

impl<F: Future> Future for Noted<'_, F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let before = self.through.marks();
        let polled = self.future.as_mut().poll(cx);
        let now = self.through.marks();
        self.changed.note(before, now);
        polled
    }
}

/// The steps left when the packet may go on.
async fn await_written<F: NetworkFunction>(
    through: &'static Through,
    changed: Marks,
    finished: Finished,
    cx: &'static mut Cx<F>,
) -> Finished {
    if changed == Marks::default() || matches!(finished.0, Verdict::Drop(_)) {
        return finished;
    }
    let tickets = through.tickets(changed);
    match cx.stored(&tickets).await {
        Ok(()) => finished,
        Err(_) => (Verdict::Drop(Reason::UNSTORED), None),
    }
}

/// A call that may wait, as it is in a frame.
async fn call<F: NetworkFunction>(
    function: &'static F,
    through: &'static Through,
    packet: &'static mut Packet,
    state: &'static mut F::Flow,
    cx: &'static mut Cx<F>,
) -> Finished {
    let mut changed = Marks::default();
    let verdict = {
        let future = pin!(function.process(packet, &mut *state, &mut *cx));
        let noted = Noted {
            future,
            through,
            changed: &mut changed,
        };
        noted.await
    };
    await_written(through, changed, (verdict, function.timeout(state)), cx).await
}

/// The largest of both, in bytes.
pub(super) fn future_size<F: NetworkFunction>() -> usize {
    fn of_four<A, B, C, D, U>(_: impl FnOnce(A, B, C, D) -> U) -> usize {
        size_of::<U>()
    }
    fn of_five<A, B, C, D, E, U>(_: impl FnOnce(A, B, C, D, E) -> U) -> usize {
        size_of::<U>()
    }
    of_five(call::<F>).max(of_four(await_written::<F>))
}

/// [`super::run`] of a function with variables that are written through.
///
/// # Safety
/// As for [`super::run`]; the frame has room for [`future_size`] bytes.
#[cold]
#[inline(never)]
pub(super) unsafe fn run<F: NetworkFunction>(
    (function, through): (&F, &Through),
    packet: &mut Packet,
    flow: NonNull<u8>,
    frame: NonNull<Frame>,
) -> CallAnswer {
    // SAFETY: the worker keeps packet, flow state, frame and instance in place and untouched until
    // the future is gone.
    let (function, through, packet, cx) = unsafe {
        let function: &'static F = &*core::ptr::from_ref(function);
        let through: &'static Through = &*core::ptr::from_ref(through);
        let packet: &'static mut Packet = &mut *core::ptr::from_mut(packet);
        let cx: &'static mut Cx<F> = Cx::<F>::of(&mut *core::ptr::addr_of_mut!((*frame.as_ptr()).cx));
        (function, through, packet, cx)
    };
    // SAFETY: as above: the state is this function's alone.
    let state: &'static mut F::Flow = unsafe { &mut *flow.cast::<F::Flow>().as_ptr() };
    let before = through.marks();
    let code = match function.process_now(packet, state, cx) {
        Some(verdict) => {
            let mut changed = Marks::default();
            changed.note(before, through.marks());
            let timeout = match verdict {
                Verdict::Drop(_) => None,
                _ => function.timeout(state),
            };
            if changed == Marks::default() || matches!(verdict, Verdict::Drop(_)) {
                return CallAnswer {
                    timeout: nanoseconds(timeout),
                    code: verdict.into(),
                };
            }
            // SAFETY: as above.
            unsafe { FutureSlot::start(frame, await_written(through, changed, (verdict, timeout), cx)) }
        }
        // SAFETY: as above.
        None => unsafe { FutureSlot::start(frame, call(function, through, packet, state, cx)) },
    };
    CallAnswer {
        // SAFETY: only the future uses the frame's cx, while it is polled.
        timeout: unsafe { (*frame.as_ptr()).cx.timeout },
        code,
    }
}
