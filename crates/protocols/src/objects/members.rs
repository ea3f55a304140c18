//! Keys, sets of runtimes, and the order of a set's runtimes for a key.

use crate::ownership::RuntimeId;

/// The longest key, in bytes.
pub const KEY_MAX: usize = 40;

/// Names an object in the cluster: the kind of object, and a function's own bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    kind: u16,
    length: u8,
    /// Zero behind `length`.
    bytes: [u8; KEY_MAX],
}

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}:{:?}", self.kind, self.bytes())
    }
}

impl Key {
    /// A key of these bytes; `None` if they are more than [`KEY_MAX`].
    pub fn new(kind: u16, bytes: &[u8]) -> Option<Self> {
        let mut padded = [0; KEY_MAX];
        padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Key {
            kind,
            length: bytes.len() as u8,
            bytes: padded,
        })
    }

    /// The kind of object.
    pub const fn kind(&self) -> u16 {
        self.kind
    }

    /// The function's own bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// The same number at each runtime of a cluster, which has one seed.
    fn hash(&self, seed: u64) -> u64 {
        let head = seed ^ u64::from(self.kind) << 8 ^ u64::from(self.length);
        let (words, _) = self.bytes.as_chunks::<8>();
        words
            .iter()
            .fold(mix(head), |hash, word| mix(hash ^ u64::from_le_bytes(*word)))
    }
}

/// Every bit of the number has a part in every bit of the result (the last step of MurmurHash3).
const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let number = (number ^ number >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ number >> 33
}

/// A set of runtimes, by number, 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Members(pub u64);

impl Members {
    /// The most runtimes there may be.
    pub const MAX: u16 = 64;

    /// The empty set.
    pub const NONE: Members = Members(0);

    /// The set of one runtime; the empty set for a number that no set has.
    pub const fn one(runtime: RuntimeId) -> Self {
        match runtime.0 < Self::MAX {
            true => Members(1 << runtime.0),
            false => Members(0),
        }
    }

    /// Whether it is in the set.
    pub const fn has(self, runtime: RuntimeId) -> bool {
        self.0 & Self::one(runtime).0 != 0
    }

    /// With one more.
    #[must_use]
    pub const fn with(self, runtime: RuntimeId) -> Self {
        Members(self.0 | Self::one(runtime).0)
    }

    /// Without one.
    #[must_use]
    pub const fn without(self, runtime: RuntimeId) -> Self {
        Members(self.0 & !Self::one(runtime).0)
    }

    /// The members of either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Members(self.0 | other.0)
    }

    /// The members of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Members(self.0 & other.0)
    }

    /// The members of this set that are not in the other.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Members(self.0 & !other.0)
    }

    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The runtimes, lowest first.
    pub fn iter(self) -> impl Iterator<Item = RuntimeId> {
        (0..Self::MAX)
            .map(RuntimeId)
            .filter(move |runtime| self.has(*runtime))
    }

    /// The first runtime in the key's rendezvous order: the key owner.
    pub fn first(self, key: &Key, seed: u64) -> Option<RuntimeId> {
        let hash = key.hash(seed);
        self.iter().max_by_key(|runtime| weight(hash, *runtime))
    }

    /// The set of the first so many runtimes in the key's rendezvous order.
    #[must_use]
    pub fn foremost(self, key: &Key, seed: u64, count: usize) -> Members {
        let (mut chosen, mut rest) = (Members::NONE, self);
        for _ in 0..count {
            let Some(next) = rest.first(key, seed) else { break };
            (chosen, rest) = (chosen.with(next), rest.without(next));
        }
        chosen
    }
}

/// A runtime's place in a key's order: the highest is first.
fn weight(hash: u64, runtime: RuntimeId) -> (u64, RuntimeId) {
    (mix(hash ^ mix(u64::from(runtime.0) + 1)), runtime)
}
