//! A driver's facts about its interface: its name, its queues, and which work it takes off the
//! kernel's hands.
//!
//! By `ioctl(SIOCETHTOOL)`, which works from any network namespace (`/sys` shows the namespace it
//! was mounted in) and needs no right for reading. An unanswered question counts as "no".

use super::system::{ask, request_for};
use std::os::fd::OwnedFd;

/// A driver's offloads: they change frames before, or after, a port has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Received segments are put together by the kernel (GRO).
    pub receive_merge: bool,
    /// Received segments are put together by the device (LRO).
    pub receive_merge_device: bool,
    /// VLAN tags are taken off received frames.
    pub receive_vlan: bool,
    /// The device cuts sent frames into segments (TSO).
    pub send_segmentation: bool,
    /// The device or its driver computes the checksums of sent frames.
    pub send_checksum: bool,
}

const GET_DRIVER: u32 = 0x03;
const GET_TX_CHECKSUM: u32 = 0x16;
const GET_TSO: u32 = 0x1e;
const GET_FLAGS: u32 = 0x25;
const GET_GRO: u32 = 0x2b;
const GET_CHANNELS: u32 = 0x3c;
const FLAG_LRO: u32 = 1 << 15;
const FLAG_RX_VLAN: u32 = 1 << 8;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    value: u32,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct Driver {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// Puts a question; `false` if the driver has no answer.
///
/// # Safety
/// `question` is the structure of its command.
unsafe fn put<T>(fd: &OwnedFd, interface: &str, question: &mut T) -> bool {
    let Some(mut request) = request_for(interface) else {
        return false;
    };
    request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
    // SAFETY: the kernel reads the command and reads and writes the structure that goes with it, by
    // the caller's promise; it is borrowed for the call.
    unsafe { ask(fd, libc::SIOCETHTOOL, &mut request) }.is_ok()
}

fn value(fd: &OwnedFd, interface: &str, command: u32) -> u32 {
    let mut question = Value { command, value: 0 };
    // SAFETY: all commands that come here are those of `ethtool_value`.
    match unsafe { put(fd, interface, &mut question) } {
        true => question.value,
        false => 0,
    }
}

/// The driver's offloads.
pub(super) fn offloads(fd: &OwnedFd, interface: &str) -> Offloads {
    let flags = value(fd, interface, GET_FLAGS);
    Offloads {
        receive_merge: value(fd, interface, GET_GRO) != 0,
        receive_merge_device: flags & FLAG_LRO != 0,
        receive_vlan: flags & FLAG_RX_VLAN != 0,
        send_segmentation: value(fd, interface, GET_TSO) != 0,
        send_checksum: value(fd, interface, GET_TX_CHECKSUM) != 0,
    }
}

/// The driver's name.
pub(super) fn driver(fd: &OwnedFd, interface: &str) -> Option<String> {
    let mut question = Driver {
        command: GET_DRIVER,
        driver: [0; 32],
        rest: [0; 160],
    };
    // SAFETY: the command's structure has these 196 bytes.
    if !unsafe { put(fd, interface, &mut question) } {
        return None;
    }
    let end = question.driver.iter().position(|byte| *byte == 0).unwrap_or(32);
    let name = String::from_utf8_lossy(&question.driver[..end]).into_owned();
    (!name.is_empty()).then_some(name)
}

/// How many queues the device receives with; 1 where it does not say.
pub(super) fn receive_queues(fd: &OwnedFd, interface: &str) -> u32 {
    let mut question = Channels {
        command: GET_CHANNELS,
        ..Channels::default()
    };
    // SAFETY: the command's structure has these nine numbers.
    if !unsafe { put(fd, interface, &mut question) } {
        return 1;
    }
    question.receive.saturating_add(question.combined).max(1)
}
