//! The operations that runtimes ask for.

/// An operation that a runtime asks of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Do {
    /// Gets the object, made if absent, and changes it.
    Write(usize),
    /// Gets the object if there is one, and changes it.
    Get(usize),
    Read(usize),
    Call(usize),
    Untethered(usize),
    Merge(usize),
    Remove(usize),
    /// The end of an object that is here, as if it was not used for long.
    Expire(usize),
    /// A read to which an earlier answer will do.
    Stale(usize),
}

impl Do {
    pub(super) fn key(self) -> usize {
        match self {
            Do::Write(key) | Do::Get(key) | Do::Read(key) | Do::Call(key) => key,
            Do::Untethered(key) | Do::Merge(key) | Do::Remove(key) => key,
            Do::Expire(key) | Do::Stale(key) => key,
        }
    }
}
