//! Buffers that a device, or the kernel, fills and empties by itself.
//!
//! Theory of operation. A pool's buffers lie one behind another in one piece of memory, each as
//! long as the next. A writer from outside (an `AF_XDP` socket) is told where the piece lies, and a
//! buffer by its distance from the start:
//!
//! ```text
//!   take ─► into_raw ─► distance ─► device fills it ─► distance ─► from_raw ─► received_at
//!   packet ─► into_raw ─► distance of the frame ─► device sends it ─► distance ─► from_raw ─► give
//! ```
//!
//! While the device has it there is no [`PacketBox`], and nothing here reads or writes the buffer.
//! The notes at its beginning stay: the device writes behind them.
//!
//! Invariant: a buffer is a box, or it is the device's; never both.

use super::{HEADROOM, Notes, Packet, PacketBox, Pool};
use crate::LinkType;
use crate::memory::Region;
use core::ptr::NonNull;

/// Where a pool's buffers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolMemory {
    /// Where the first buffer starts.
    pub start: NonNull<u8>,
    /// Bytes of all buffers.
    pub length: usize,
    /// Bytes from one buffer to the next.
    pub stride: usize,
}

impl Pool {
    /// Where its buffers lie. The memory stays where it is for as long as the pool lives, and
    /// longer if buffers are out when it goes.
    pub fn memory(&self) -> PoolMemory {
        PoolMemory {
            start: self._region.start(),
            length: self.total * self.stride,
            stride: self.stride,
        }
    }

    /// The longest frame that a buffer of `stride` bytes takes ([`Pool::new`] rounds the stride up
    /// to whole lines).
    pub const fn frame_max_of(stride: usize) -> usize {
        stride - size_of::<Notes>() - HEADROOM
    }
}

/// Boxes handed out point into the region: dropping a pool while some are out would leave them
/// dangling, so the region of such a pool is leaked instead. It is not an error: a killed ring may
/// hold the last of them. A stranger's buffer, given back here by mistake, counts for none of ours.
impl Drop for Pool {
    fn drop(&mut self) {
        let start = self._region.start().addr().get();
        let ours = start..start + self._region.length();
        let home = self
            .free
            .iter()
            .filter(|p| ours.contains(&p.0.addr().get()))
            .count();
        if home != self.fresh {
            let region = core::mem::replace(&mut self._region, Region::heap(0));
            core::mem::forget(region);
        }
    }
}

impl PacketBox {
    /// Gives the box up for where its buffer starts. The caller must make that a box again, or the
    /// buffer is lost to its pool.
    #[inline]
    #[must_use = "the buffer is lost unless it is made a box again"]
    pub fn into_raw(self) -> NonNull<u8> {
        self.0.cast()
    }

    /// Makes what [`PacketBox::into_raw`] gave a box again.
    ///
    /// # Safety
    /// The address is from `into_raw`, and is made a box once. Nothing else reads or writes the
    /// buffer from now on, and its first [`Packet::NOTES`] bytes are as they were.
    #[inline]
    pub unsafe fn from_raw(start: NonNull<u8>) -> Self {
        PacketBox(start.cast())
    }

    /// Where the frame starts, counted from where the buffer starts.
    #[inline]
    pub fn frame_offset(&self) -> usize {
        size_of::<Notes>() + self.notes.start as usize
    }
}

impl Packet {
    /// Bytes of a buffer before its headroom, which only this module writes.
    pub const NOTES: usize = size_of::<Notes>();

    /// Notes that a device has put a frame of `length` bytes at `offset` from where the buffer
    /// starts, and forgets the notes on the buffer's last frame; `false` (and no change) if the
    /// frame would lie outside of the buffer.
    #[inline]
    pub fn received_at(&mut self, offset: usize, length: usize, link: LinkType) -> bool {
        let start = match offset.checked_sub(Self::NOTES) {
            Some(start) if length <= self.storage.len() && start <= self.storage.len() - length => start,
            _ => return false,
        };
        if start > usize::from(u16::MAX) || length > super::FRAME_MAX {
            return false;
        }
        self.reset(0, link);
        self.notes.start = start as u16;
        self.notes.length = length as u32;
        self.notes.wire_length = length as u32;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        let frame_max = Pool::frame_max_of(2048);
        Pool::new(Region::heap(Pool::region_length(4, frame_max)), 4, frame_max, 3)
    }

    #[test]
    fn a_device_fills_a_buffer_by_its_distance() {
        let mut pool = pool();
        let memory = pool.memory();
        assert_eq!((memory.stride, memory.length), (2048, 4 * 2048));
        let raw = pool.take().unwrap().into_raw();
        let distance = raw.addr().get() - memory.start.addr().get();
        assert!(distance.is_multiple_of(2048) && distance < memory.length);
        // The device.
        // SAFETY: the buffer is no box now, and 256 + 60 bytes lie in it.
        unsafe { memory.start.add(distance + 256).write_bytes(7, 60) };
        // SAFETY: from `into_raw`, once; the notes have not been written.
        let mut packet = unsafe { PacketBox::from_raw(memory.start.add(distance)) };
        assert!(packet.received_at(256, 60, LinkType::Ethernet));
        assert_eq!((packet.frame(), packet.frame_offset()), (&[7; 60][..], 256));
        assert!(packet.grow_front(256 - Packet::NOTES) && !packet.grow_front(1));
        assert_eq!((packet.origin(), packet.wire_length()), (3, 252));
        pool.give(packet);
        assert_eq!(pool.free(), 4);
    }

    #[test]
    fn a_frame_outside_of_the_buffer_is_refused() {
        let mut pool = pool();
        let mut packet = pool.take().unwrap();
        assert!(packet.set_frame(&[1; 9], LinkType::Raw));
        for (offset, length) in [
            (Packet::NOTES - 1, 1),
            (0, 0),
            (2048, 1),
            (2000, 49),
            (256, usize::MAX),
            (usize::MAX, 1),
        ] {
            assert!(
                !packet.received_at(offset, length, LinkType::Ethernet),
                "{offset} {length}"
            );
        }
        assert_eq!(packet.frame(), &[1; 9]);
        assert!(packet.received_at(2000, 48, LinkType::Ethernet));
        assert!(packet.received_at(Packet::NOTES, 2048 - Packet::NOTES, LinkType::Ethernet));
        pool.give(packet);
    }
}
