//! Plain data: state whose bytes can be copied to another worker and checked there.

use crate::{Tick, Time};
use core::fmt::Debug;
use wire::{Addr, Endpoint};

/// A type with a fixed layout and no padding, whose bytes tell whether they are a value of it.
///
/// # Safety
/// No padding, no pointers, `repr(C)`, `repr(transparent)` or a primitive; and bytes that
/// [`Plain::is_valid`] accepts must be a value. Use `#[derive(Plain)]`, which checks all of it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of flow state: it is not plain data",
    label = "not plain data",
    note = "flow state is copied between workers as bytes, so it holds no pointers, no gaps, and nothing whose size depends on the machine",
    note = "a struct or field-less enum of your own: write `#[derive(nf::Plain, Clone, Copy, Debug)]` and `#[repr(C)]` or `#[repr(u8)]` above it",
    note = "instead of `IpAddr` or `SocketAddr`, also in an `Option`: `nf::Addr` or `nf::Endpoint` (its `Default`, all zero, is \"none\")",
    note = "instead of `Vec` or `String`: an array of fixed length and a count, like `servers: [u16; 8]` and `servers_used: u16`",
    note = "instead of another `Option`: the value and a `bool`, or a value that means \"none\"",
    note = "instead of `usize`: `u32` or `u64`; instead of `Duration`: nanoseconds in a `u64`; instead of `Instant`: `nf::Time`, as `cx.now()` gives it"
)]
pub unsafe trait Plain: Copy + 'static {
    /// A digest of the layout: size, and of each field its name, place and own layout. Two builds
    /// whose digests are alike take each other's bytes for the same value. Written out by the
    /// derive; of a type without one it is the size.
    const LAYOUT: u64 = layout(&[], size_of::<Self>());

    /// Whether `bytes` are a value of this type; `false` for a wrong length.
    fn is_valid(bytes: &[u8]) -> bool;
    /// Whether there is a [`Time`] or [`Tick`] in it.
    const HAS_TIMES: bool = false;
    /// The value is at a worker now whose clock is `by` nanoseconds ahead of the one before: each
    /// time in it follows.
    #[inline]
    fn rebase(&mut self, by: i64) {
        let _ = by;
    }
}

macro_rules! numbers {
    ($($t:ty)*) => { $(
        // SAFETY: a number has no padding and any bytes are one.
        unsafe impl Plain for $t {
            const LAYOUT: u64 = layout(&[(stringify!($t), 0, 0, 0)], size_of::<$t>());
            fn is_valid(bytes: &[u8]) -> bool { bytes.len() == size_of::<$t>() }
        }
    )* };
}
numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 Addr);

// SAFETY: `Endpoint` is `repr(C)`, 16 bytes and 2 with alignment 2: no padding, any bytes are one.
unsafe impl Plain for Endpoint {
    const LAYOUT: u64 = layout(&[("Endpoint", 0, 0, 0)], size_of::<Endpoint>());
    fn is_valid(bytes: &[u8]) -> bool {
        bytes.len() == size_of::<Endpoint>()
    }
}

macro_rules! times {
    ($($t:ty)*) => { $(
        // SAFETY: a number, transparently: no padding, any bytes are one.
        unsafe impl Plain for $t {
            fn is_valid(bytes: &[u8]) -> bool { bytes.len() == size_of::<$t>() }
            const HAS_TIMES: bool = true;
            #[inline]
            fn rebase(&mut self, by: i64) { *self = self.moved(by); }
        }
    )* };
}
times!(Time Tick);

// SAFETY: one byte; only 0 and 1 pass.
unsafe impl Plain for bool {
    const LAYOUT: u64 = layout(&[("bool", 0, 0, 0)], 1);
    fn is_valid(bytes: &[u8]) -> bool {
        matches!(bytes, [0 | 1])
    }
}

// SAFETY: an array has no padding beyond its elements', which have none.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    const LAYOUT: u64 = layout(&[("", N, size_of::<T>(), T::LAYOUT)], size_of::<Self>());
    fn is_valid(bytes: &[u8]) -> bool {
        bytes.len() == size_of::<Self>()
            && (size_of::<T>() == 0 || bytes.chunks(size_of::<T>()).all(T::is_valid))
    }
    const HAS_TIMES: bool = T::HAS_TIMES;
    #[inline]
    fn rebase(&mut self, by: i64) {
        if T::HAS_TIMES {
            self.iter_mut().for_each(|value| value.rebase(by));
        }
    }
}

// SAFETY: no bytes at all.
unsafe impl Plain for () {
    fn is_valid(bytes: &[u8]) -> bool {
        bytes.is_empty()
    }
}

/// For the derives: a digest of names, two numbers each (place and size of a field; value of a
/// variant), and what they are made of; and of a size. FNV-1a of 64 bits: it tells builds apart,
/// not forgers.
#[doc(hidden)]
#[must_use]
pub const fn layout(parts: &[(&str, usize, usize, u64)], size: usize) -> u64 {
    let mut digest = fold(0xcbf2_9ce4_8422_2325, &(size as u64).to_le_bytes());
    let mut at = 0;
    while at < parts.len() {
        let (name, one, other, made_of) = parts[at];
        digest = fold(digest, &(name.len() as u64).to_le_bytes());
        digest = fold(digest, name.as_bytes());
        digest = fold(digest, &(one as u64).to_le_bytes());
        digest = fold(digest, &(other as u64).to_le_bytes());
        digest = fold(digest, &made_of.to_le_bytes());
        at += 1;
    }
    digest
}

const fn fold(mut digest: u64, bytes: &[u8]) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        digest = (digest ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    digest
}

/// For the derives: fails to compile where a struct has `bytes` bytes of padding at a place.
#[doc(hidden)]
#[track_caller]
pub const fn assert_no_gap(place: &str, bytes: usize) {
    if bytes == 0 {
        return;
    }
    let mut text = Text::new();
    text.push("there are undefined bytes (padding) ");
    text.push(place);
    text.push(": write a field `reserved: [u8; ");
    text.push_number(bytes);
    text.push("]` there, or order the fields from large to small");
    panic!("{}", text.as_str());
}

/// Text put together while compiling, cut off where it is full.
struct Text {
    bytes: [u8; 256],
    length: usize,
}

impl Text {
    const fn new() -> Self {
        Text {
            bytes: [0; 256],
            length: 0,
        }
    }

    const fn push(&mut self, text: &str) {
        let text = text.as_bytes();
        let mut index = 0;
        while index < text.len() && self.length < self.bytes.len() {
            self.bytes[self.length] = text[index];
            self.length += 1;
            index += 1;
        }
    }

    const fn push_number(&mut self, number: usize) {
        if number >= 10 {
            self.push_number(number / 10);
        }
        if self.length < self.bytes.len() {
            self.bytes[self.length] = b'0' + (number % 10) as u8;
            self.length += 1;
        }
    }

    const fn as_str(&self) -> &str {
        match core::str::from_utf8(self.bytes.split_at(self.length).0) {
            Ok(text) => text,
            // Cut inside a letter of a field's name.
            Err(_) => "there are undefined bytes (padding) between the fields or behind them",
        }
    }
}

/// The bytes of a value.
pub fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: plain data has no padding, so every byte is initialized; the slice lives as long as
    // the value.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }
}

/// The value that `bytes` are, or `None` if they are none. The bytes need no alignment.
pub fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    if !T::is_valid(bytes) {
        return None;
    }
    // SAFETY: `is_valid` checked the length and that the bytes are a value.
    Some(unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast::<T>()) })
}

/// State of a flow or a group: plain data with a schema version. Use `#[derive(FlowState)]`.
///
/// Fields are *committed* (at the replica before the packet that changed them leaves) unless marked
/// `#[flow_state(lazy)]`; lazy fields come last.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not flow state",
    label = "not flow state",
    note = "write `#[derive(nf::FlowState, Default, Clone, Copy, Debug)]` and `#[repr(C)]` above `struct {Self}`, or `()` here for nothing to remember"
)]
pub trait FlowState: Plain + Default {
    /// Number of the layout. A change of fields is a new version.
    const VERSION: u32;
    /// How many bytes at the start are committed; the rest is lazy.
    const COMMITTED: usize;
    /// Calls `see` with each field's name and value, for `flowkeep flow show`.
    fn each_field(&self, see: &mut dyn FnMut(&'static str, &dyn Debug));
}

impl FlowState for () {
    const VERSION: u32 = 0;
    const COMMITTED: usize = 0;
    fn each_field(&self, _see: &mut dyn FnMut(&'static str, &dyn Debug)) {}
}

#[cfg(test)]
mod tests;
