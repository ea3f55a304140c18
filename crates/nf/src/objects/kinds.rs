//! A kind of objects: how its bytes are checked, and what its calls do.

use super::{SharedObject, SingleWriter};
use crate::plain::{Plain, bytes_of, from_bytes};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::fmt;
use core::time::Duration;

/// The longest content, in bytes.
pub const CONTENT_MAX: usize = 4096;
/// The longest call, in bytes.
pub const CALL_MAX: usize = 64;
/// The longest answer, in bytes.
pub const ANSWER_MAX: usize = 64;
/// The most kinds at a worker.
pub const KINDS_MAX: usize = 64;

/// The bytes of a call, or of an answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Words(ArrayVec<u8, CALL_MAX>);

impl Words {
    /// These bytes; `None` if they are too many.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        ArrayVec::try_from(bytes).ok().map(Words)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A kind of objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    /// The function that has opened it.
    pub function: String,
    /// The kind's name within the function.
    pub name: String,
    /// Of content, call and answer: bytes, and [`Plain::LAYOUT`].
    pub layouts: [(usize, u64); 3],
    /// Whether one call at a time has an object, and changes it in place.
    pub is_single: bool,
    /// Nanoseconds that an object lives without a call; 0: until it is removed.
    pub idle_ns: u64,
    /// The functions of its calls.
    pub methods: Methods,
}

/// A kind's functions, by its bytes.
#[derive(Clone, Copy)]
pub struct Methods {
    /// Whether bytes are a content.
    pub is_content: fn(&[u8]) -> bool,
    /// Whether bytes are a call.
    pub is_call: fn(&[u8]) -> bool,
    /// Whether bytes are an answer.
    pub is_answer: fn(&[u8]) -> bool,
    /// The default content.
    pub birth: fn() -> Vec<u8>,
    /// [`SharedObject::apply`].
    pub apply: fn(&mut [u8], &Words) -> Option<Words>,
    /// [`SharedObject::read`].
    pub read: fn(&[u8], &Words) -> Option<Words>,
}

impl PartialEq for Methods {
    /// Kinds are compared by their names and layouts.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Methods {}

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Methods")
    }
}

impl Kind {
    /// A kind that a function opens under a name.
    pub fn of<T: SharedObject>(function: &str, name: &str) -> Self {
        Kind::with::<T, T::Call, T::Answer>([function, name], T::IDLE, |methods| Methods {
            apply: apply::<T>,
            read: read::<T>,
            ..methods
        })
    }

    /// A kind of objects with one writer.
    pub fn of_single<T: SingleWriter>(function: &str, name: &str) -> Self {
        let kind = Kind::with::<T, T::Call, T::Answer>([function, name], T::IDLE, |methods| Methods {
            read: read_single::<T>,
            ..methods
        });
        Kind {
            is_single: true,
            ..kind
        }
    }

    fn with<T: Plain + Default, C: Plain, A: Plain>(
        [function, name]: [&str; 2],
        idle: Option<Duration>,
        methods: impl FnOnce(Methods) -> Methods,
    ) -> Self {
        const {
            assert!(
                size_of::<T>() <= CONTENT_MAX,
                "a shared object has at most 4096 bytes"
            );
            assert!(
                size_of::<C>() <= CALL_MAX && size_of::<A>() <= ANSWER_MAX,
                "a shared object's call and its answer have at most 64 bytes each"
            );
            assert!(
                !T::HAS_TIMES && !C::HAS_TIMES && !A::HAS_TIMES,
                "a shared object has no `Time` or `Tick`: each host has a clock of its own"
            );
        }
        let idle = idle.map_or(0, |idle| u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX));
        Kind {
            function: function.to_string(),
            name: name.to_string(),
            layouts: [layout::<T>(), layout::<C>(), layout::<A>()],
            is_single: false,
            idle_ns: idle,
            methods: methods(Methods {
                is_content: T::is_valid,
                is_call: C::is_valid,
                is_answer: A::is_valid,
                birth: || bytes_of(&T::default()).to_vec(),
                apply: |_, _| None,
                read: |_, _| None,
            }),
        }
    }
}

fn layout<T: Plain>() -> (usize, u64) {
    (size_of::<T>(), T::LAYOUT)
}

fn apply<T: SharedObject>(content: &mut [u8], call: &Words) -> Option<Words> {
    let mut object = from_bytes::<T>(content)?;
    let answer = object.apply(&from_bytes::<T::Call>(call.bytes())?);
    for (byte, after) in content.iter_mut().zip(bytes_of(&object)) {
        *byte = *after;
    }
    Some(Words::of(&answer))
}

fn read_single<T: SingleWriter>(content: &[u8], call: &Words) -> Option<Words> {
    let answer = from_bytes::<T>(content)?.read(&from_bytes::<T::Call>(call.bytes())?);
    Some(Words::of(&answer))
}

fn read<T: SharedObject>(content: &[u8], call: &Words) -> Option<Words> {
    let answer = from_bytes::<T>(content)?.read(&from_bytes::<T::Call>(call.bytes())?);
    Some(Words::of(&answer))
}
