//! The ring of slots that the kernel fills with frames (`TPACKET_V2`).
//!
//! Theory of operation. A block of memory that kernel and process both see is divided into slots,
//! in a ring. A slot has a status, which says whose it is:
//!
//! ```text
//!   kernel's ──(a frame is copied in, status written last)──► ours ──(release)──► kernel's
//! ```
//!
//! A port sees each frame the moment it is there. The newer ring (`TPACKET_V3`) packs frames of any
//! length densely into blocks, but hands over a block only when it is full or a millisecond has
//! passed, which every request and reply would wait for; see [decision
//! 10](../../../../docs/decisions/0010-live-ports.md).
//!
//! A slot holds the longest frame that can come: 64 KiB where another stack of this machine, or a
//! stack that merges segments, may hand over super-frames, else the interface's MTU. A longer frame
//! is cut off by the kernel, and so refused.
//!
//! Invariant: memory of a slot is read only between its status being seen ours and its release.
//!
//! Not here: a frame's meaning.

use crate::interface::Interface;
use crate::interface::offload::{FrameHeader, HEADER_LENGTH};
use crate::interface::system::{Shared, option, set_option};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// The longest frame that a stack hands over: an IP packet of 65,535 bytes, an Ethernet header, two
/// tags.
const SUPER_FRAME: usize = 65_535 + 14 + 8;
/// Bytes before a frame in its slot, at most: status and lengths, address, header, alignment.
const SLOT_HEADER: usize = 128;
/// Memory for a ring of slots for super-frames.
const BYTES_SUPER: usize = 64 << 20;
/// Memory for a ring of slots for frames of the MTU.
const BYTES: usize = 16 << 20;
/// The kernel allocates by blocks; each is one piece of its memory if it can be.
const BLOCK: usize = 1 << 20;

/// A frame in its slot.
pub(super) struct Received<'a> {
    /// Its bytes in the slot.
    pub bytes: &'a [u8],
    /// How long it was.
    pub length: usize,
    /// The work left to be done with it.
    pub header: FrameHeader,
    /// The VLAN tag that the driver took off: protocol, control information.
    pub tag: Option<(u16, u16)>,
}

/// The ring and the socket it belongs to.
pub(super) struct Ring {
    // Before the socket: the mapping goes first.
    shared: Shared,
    fd: OwnedFd,
    slot_length: usize,
    slots_per_block: usize,
    slots: usize,
    next: usize,
    /// The kernel forgets what it has told.
    lost: Cell<u64>,
}

/// The longest frame of an interface's ring, and the ring's bytes.
fn made_of(interface: &Interface) -> (usize, usize) {
    let offloads = interface.offloads;
    let merged = offloads.receive_merge || offloads.receive_merge_device || interface.is_virtual();
    match merged {
        true => (SUPER_FRAME, BYTES_SUPER),
        false => (interface.frame_max() + 4, BYTES),
    }
}

/// Bytes that the kernel keeps for a port that receives, all of them there from the start; of an
/// interface that cannot be looked at the most.
pub(super) fn bytes(interface: &str) -> usize {
    Interface::find(interface).map_or(BYTES_SUPER, |interface| made_of(&interface).1)
}

impl Ring {
    /// Gives a packet socket its ring.
    pub fn open(fd: OwnedFd, interface: &Interface) -> io::Result<Self> {
        let (frame, bytes) = made_of(interface);
        let slot_length = (SLOT_HEADER + frame).next_multiple_of(libc::TPACKET_ALIGNMENT);
        let slots_per_block = BLOCK / slot_length;
        let blocks = bytes / BLOCK;
        let slots = slots_per_block * blocks;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as libc::c_uint,
            tp_block_nr: blocks as libc::c_uint,
            tp_frame_size: slot_length as libc::c_uint,
            tp_frame_nr: slots as libc::c_uint,
        };
        let set = |name, value: libc::c_int| set_option(&fd, libc::SOL_PACKET, name, &value);
        set(
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V2 as libc::c_int,
        )?;
        set(libc::PACKET_VNET_HDR, 1)?;
        // Frames that this host, or this port, sends are not received.
        set(libc::PACKET_IGNORE_OUTGOING, 1)?;
        set_option(&fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let shared = Shared::map(&fd, blocks * BLOCK, 0)?;
        Ok(Ring {
            shared,
            fd,
            slot_length,
            slots_per_block,
            slots,
            next: 0,
            lost: Cell::new(0),
        })
    }

    /// The socket.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Where a slot starts in the ring.
    #[inline]
    fn place(&self, slot: usize) -> usize {
        (slot / self.slots_per_block) * BLOCK + (slot % self.slots_per_block) * self.slot_length
    }

    /// The status of the next slot. It is the first word of the slot.
    #[inline]
    fn status(&self) -> &AtomicU32 {
        let at = self.place(self.next);
        debug_assert!(at + self.slot_length <= self.shared.length());
        // SAFETY: `next` is below the number of slots, so the slot lies in the mapping, which lives
        // as long as `self`; slots are aligned to 16. Kernel and process both access the word
        // atomically.
        unsafe { AtomicU32::from_ptr(self.shared.start().add(at).cast().as_ptr()) }
    }

    /// The next frame, if one is there. It stays until [`Ring::release`].
    #[inline]
    pub fn front(&self) -> Option<Received<'_>> {
        // Acquire: the kernel's writes before the status are seen behind it.
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot is ours by its status, so the kernel does not write to it; it lies in
        // the mapping (see `status`), and the shared borrow of `self` keeps `release` away for as
        // long as the slice lives.
        let slot = unsafe {
            let start = self.shared.start().add(self.place(self.next));
            std::slice::from_raw_parts(start.as_ptr(), self.slot_length)
        };
        Some(read(slot, status))
    }

    /// Hands the next slot back to the kernel.
    #[inline]
    pub fn release(&mut self) {
        // Release: all reading of the slot comes before.
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = if self.next + 1 == self.slots {
            0
        } else {
            self.next + 1
        };
    }

    /// How many frames the kernel had no slot for, since the start.
    pub fn lost(&self) -> u64 {
        let new = option::<libc::tpacket_stats>(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS);
        let lost = self.lost.get() + new.map_or(0, |statistics| u64::from(statistics.tp_drops));
        self.lost.set(lost);
        lost
    }
}

/// Reads a slot: `struct tpacket2_hdr`, address, frame header, frame. Offsets come from the kernel;
/// an offset out of the slot gives an empty frame that had a length, and so is refused.
#[inline]
fn read(slot: &[u8], status: u32) -> Received<'_> {
    let word = |at: usize| u32::from_ne_bytes([slot[at], slot[at + 1], slot[at + 2], slot[at + 3]]);
    let half = |at: usize| u16::from_ne_bytes([slot[at], slot[at + 1]]);
    let (length, captured) = (word(4) as usize, word(8) as usize);
    let start = usize::from(half(12));
    let bytes = slot.get(start..start + captured).unwrap_or_default();
    let header = start
        .checked_sub(HEADER_LENGTH)
        .and_then(|at| slot.get(at..)?.first_chunk())
        .map(FrameHeader::read)
        .unwrap_or_default();
    let tag = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
        let protocol = match status & libc::TP_STATUS_VLAN_TPID_VALID {
            0 => 0x8100,
            _ => half(26),
        };
        (protocol, half(24))
    });
    Received {
        bytes,
        length: length.max(1),
        header,
        tag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_read_as_the_kernel_writes_it() {
        assert_eq!(std::mem::offset_of!(libc::tpacket2_hdr, tp_len), 4);
        assert_eq!(std::mem::offset_of!(libc::tpacket2_hdr, tp_snaplen), 8);
        assert_eq!(std::mem::offset_of!(libc::tpacket2_hdr, tp_mac), 12);
        assert_eq!(std::mem::offset_of!(libc::tpacket2_hdr, tp_vlan_tci), 24);
        assert_eq!(std::mem::offset_of!(libc::tpacket2_hdr, tp_vlan_tpid), 26);
        let mut slot = [0; 256];
        slot[4..8].copy_from_slice(&80_u32.to_ne_bytes());
        slot[8..12].copy_from_slice(&60_u32.to_ne_bytes());
        slot[12..14].copy_from_slice(&100_u16.to_ne_bytes());
        slot[24..26].copy_from_slice(&7_u16.to_ne_bytes());
        slot[26..28].copy_from_slice(&0x88a8_u16.to_ne_bytes());
        slot[100..160].fill(9);
        let tagged = libc::TP_STATUS_USER | libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        let received = read(&slot, tagged);
        assert_eq!((received.bytes, received.length), (&[9; 60][..], 80));
        assert_eq!(received.tag, Some((0x88a8, 7)));
        // Offsets out of the slot.
        slot[8..12].copy_from_slice(&u32::MAX.to_ne_bytes());
        let received = read(&slot, libc::TP_STATUS_USER);
        assert_eq!((received.bytes.len(), received.tag), (0, None));
        assert!(received.bytes.len() < received.length);
    }
}
