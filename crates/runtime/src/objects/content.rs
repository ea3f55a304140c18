//! Contents, calls and answers as bytes, which a kind's functions check and change.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use nf::objects::{Kind, Methods, Words};
use protocols::objects::Body;
use protocols::objects::wire::Bytes;

/// The kinds of a worker, by number.
pub(super) type Kinds = Arc<[Kind]>;

/// The content of an object.
#[derive(Clone)]
pub(super) struct Content {
    methods: Methods,
    bytes: Vec<u8>,
}

impl Content {
    /// The default of a kind.
    pub fn born(kind: &Kind) -> Self {
        Content {
            methods: kind.methods,
            bytes: (kind.methods.birth)(),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Other bytes of the same kind.
    pub fn set(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Content {}

impl Hash for Content {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.bytes)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Call(pub Words);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Answer(pub Words);

impl Body for Content {
    type Call = Call;
    type Answer = Answer;

    fn apply(&mut self, call: &Call) -> Answer {
        // Contents and calls are of their kind: they were made so here, or checked when they came.
        Answer((self.methods.apply)(&mut self.bytes, &call.0).unwrap_or_default())
    }

    fn read(&self, call: &Call) -> Answer {
        Answer((self.methods.read)(&self.bytes, &call.0).unwrap_or_default())
    }

    fn fold(_: &mut Call, _: &Call) -> bool {
        false
    }
}

impl Bytes for Content {
    type Kinds = Kinds;

    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.bytes);
    }

    fn read(kinds: &Kinds, kind: u16, bytes: &[u8]) -> Option<Self> {
        let methods = kinds.get(usize::from(kind))?.methods;
        (methods.is_content)(bytes).then(|| Content {
            methods,
            bytes: bytes.to_vec(),
        })
    }
}

impl Bytes for Call {
    type Kinds = Kinds;

    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.0.bytes());
    }

    fn read(kinds: &Kinds, kind: u16, bytes: &[u8]) -> Option<Self> {
        let is_call = kinds.get(usize::from(kind))?.methods.is_call;
        is_call(bytes).then(|| Words::new(bytes).map(Call)).flatten()
    }
}

impl Bytes for Answer {
    type Kinds = Kinds;

    fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self.0.bytes());
    }

    fn read(kinds: &Kinds, kind: u16, bytes: &[u8]) -> Option<Self> {
        let is_answer = kinds.get(usize::from(kind))?.methods.is_answer;
        is_answer(bytes).then(|| Words::new(bytes).map(Answer)).flatten()
    }
}
