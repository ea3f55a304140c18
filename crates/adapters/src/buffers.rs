//! Pools of packet buffers as ports need them.
//!
//! A capture has frames of up to 64 KiB, nearly all of them short: buffers of that size in small
//! pages, of which only the first is ever touched. Ports on interfaces have frames of an MTU:
//! buffers of one page, in large pages, which `AF_XDP` can receive into ([`crate::afxdp`]).
//!
//! Invariant: where every port's longest frame fits into a page beside its notes and headroom,
//! buffers are pages.

use crate::afxdp::{CHUNK, FRAME};
use crate::pages::{PagesError, Want, map_ahead};
use wire::Pool;

/// Bytes of a pool that are there before the first packet: as a rule no more are ever out at a
/// time.
const AHEAD: usize = 16 << 20;

/// The parts of a pool of `count` buffers: the longest frame, the pages, bytes of them that are
/// there at once, and bytes in all.
fn made_of(count: usize, frame_max: usize) -> (usize, Want, usize, usize) {
    let (frame_max, want, ahead) = match frame_max > FRAME {
        true => (frame_max, Want::Plain, 0),
        false => (Pool::frame_max_of(CHUNK), Want::Huge, AHEAD),
    };
    let length = Pool::region_length(count, frame_max);
    (frame_max, want, ahead.min(length), length)
}

/// Bytes of such a [`pool`]: at once, and at most.
pub fn bytes(count: usize, frame_max: usize) -> (usize, usize) {
    let (_, _, ahead, length) = made_of(count, frame_max);
    (ahead, length)
}

/// A pool of `count` buffers for frames of up to `frame_max` bytes, with the number `origin`.
pub fn pool(count: usize, frame_max: usize, origin: u8) -> Result<Pool, PagesError> {
    let (frame_max, want, ahead, length) = made_of(count, frame_max);
    let region = map_ahead(length, want, ahead)?.region;
    Ok(Pool::new(region, count, frame_max, origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_for_an_mtu_are_pages_and_those_for_captures_are_not() {
        for frame_max in [0, 1518, FRAME] {
            let pool = pool(16, frame_max, 3).unwrap();
            let memory = pool.memory();
            assert_eq!((memory.stride, memory.length), (CHUNK, 16 * CHUNK));
            assert!(memory.start.addr().get().is_multiple_of(CHUNK));
            assert!(Pool::frame_max_of(memory.stride) >= FRAME && pool.origin() == 3);
        }
        let mut pool = pool(2, 65_535, 0).unwrap();
        let packet = pool.take().unwrap();
        assert_eq!(packet.room(), 65_535);
        pool.give(packet);
    }
}
