//! Plain data: state whose bytes can be copied to another worker and checked there.

use core::fmt::Debug;
use wire::{Addr, Endpoint};

/// A type with a fixed layout and no padding, whose bytes tell whether they are a value of it.
///
/// # Safety
/// No padding, no pointers, `repr(C)`, `repr(transparent)` or a primitive; and bytes that [`Plain::is_valid`] accepts
/// must be a value. Use `#[derive(Plain)]`, which checks all of it.
pub unsafe trait Plain: Copy + 'static {
    /// Whether `bytes` are a value of this type; `false` for a wrong length.
    fn is_valid(bytes: &[u8]) -> bool;
}

macro_rules! numbers {
    ($($t:ty)*) => { $(
        // SAFETY: a number has no padding and any bytes are one.
        unsafe impl Plain for $t {
            fn is_valid(bytes: &[u8]) -> bool { bytes.len() == size_of::<$t>() }
        }
    )* };
}
numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 Addr);

// SAFETY: `Endpoint` is `repr(C)`, 16 bytes and 2 with alignment 2: no padding, any bytes are one.
unsafe impl Plain for Endpoint {
    fn is_valid(bytes: &[u8]) -> bool {
        bytes.len() == size_of::<Endpoint>()
    }
}

// SAFETY: one byte; only 0 and 1 pass.
unsafe impl Plain for bool {
    fn is_valid(bytes: &[u8]) -> bool {
        matches!(bytes, [0 | 1])
    }
}

// SAFETY: an array has no padding beyond its elements', which have none.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    fn is_valid(bytes: &[u8]) -> bool {
        bytes.len() == size_of::<Self>()
            && (size_of::<T>() == 0 || bytes.chunks(size_of::<T>()).all(T::is_valid))
    }
}

// SAFETY: no bytes at all.
unsafe impl Plain for () {
    fn is_valid(bytes: &[u8]) -> bool {
        bytes.is_empty()
    }
}

/// For the derives: fails to compile with the offending type's name.
pub const fn assert_plain<T: Plain>() {}

/// The bytes of a value.
pub fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: plain data has no padding, so every byte is initialized; the slice lives as long as the value.
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
