//! An entry of the ledger, as bytes.
//!
//! Numbers are in network order.
//!
//! ```text
//!   all     form 1, what 1, layout 8, chain's name 8 (groups: 0), worker's clock 8, wall clock 8, group's key 40
//!   flow    what = 1: the flow's record as it goes to another runtime (`record`, type 6), with all bytes of its states
//!   group   what = 2: length 2, state, then its blocks: address 16, first port 2, ports 2
//!   group   what = 3: it rests: time left 8, then as above
//!   group   what + 128: it is coming, and not all of its flows are here ([`super::handed`])
//! ```
//!
//! Invariant: whatever bytes are read, nothing panics, and the result is checked again where it
//! becomes a state (`recovery`).

use crate::chain::Plan;
use crate::flows::group::GroupKey;
use crate::record::FlowHeader;
use alloc::vec::Vec;
use nf::{Addr, Affinity, Block};

/// The number of this form.
const FORM: u8 = 1;
const FLOW: u8 = 1;
const GROUP: u8 = 2;
const RESTS: u8 = 3;
const COMING: u8 = 128;
const HEAD: usize = 2 + 4 * 8 + 40;
const BLOCK: usize = 20;

/// The clocks when an entry was written, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    /// The worker's, by which times in states are.
    pub clock: u64,
    /// The wall clock.
    pub wall: u64,
}

/// The digest of the states that flows of a chain keep; and of the chain's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub kept: u64,
    pub name: u64,
}

/// An entry that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry<'a> {
    pub layout: Layout,
    pub stamp: Stamp,
    pub group: GroupKey,
    pub what: What<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What<'a> {
    Flow(FlowHeader, &'a [u8]),
    Group(Group<'a>),
}

/// A group without its flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Group<'a> {
    /// Not all of its flows are here: another partition has them.
    pub is_coming: bool,
    /// For how much longer it rests, in nanoseconds, if it does.
    pub rests: Option<u64>,
    pub state: &'a [u8],
    /// Their bytes ([`blocks`]).
    pub blocks: &'a [u8],
}

/// The digest of what says how states are laid out (FNV-1a).
struct Digest(u64);

impl Digest {
    fn new() -> Self {
        Digest(0xcbf2_9ce4_8422_2325)
    }
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    /// A name and its end.
    fn name(&mut self, name: &str) {
        self.bytes(&(name.len() as u64).to_be_bytes());
        self.bytes(name.as_bytes());
    }
    fn schema(&mut self, schema: &crate::stage::Schema) {
        self.bytes(&schema.version.to_be_bytes());
        self.bytes(&(schema.size as u64).to_be_bytes());
        self.bytes(&schema.layout.to_be_bytes());
    }
}

/// By chain, the layout of its flows' states.
pub(crate) fn layouts(plan: &Plan) -> Vec<Layout> {
    let chains = plan.chains().iter().map(|chain| {
        let mut kept = Digest::new();
        kept.bytes(&[FORM, plan.affinity() as u8]);
        for name in &chain.functions {
            let known = plan.factories().iter().find(|factory| factory.name() == name);
            if let Some(factory) = known {
                kept.name(name);
                kept.name(factory.kind());
                kept.schema(&factory.schemas()[0]);
            }
        }
        if plan.affinity() == Affinity::Flow {
            // Behind the states of such a flow are its group's.
            kept.bytes(&group_layout(plan).to_be_bytes());
        }
        let mut name = Digest::new();
        name.name(&chain.name);
        Layout {
            kept: kept.0,
            name: name.0,
        }
    });
    chains.collect()
}

/// The layout of groups' states.
pub(crate) fn group_layout(plan: &Plan) -> u64 {
    let mut kept = Digest::new();
    kept.bytes(&[FORM, plan.affinity() as u8]);
    for factory in plan.factories() {
        kept.name(factory.name());
        kept.name(factory.kind());
        kept.schema(&factory.schemas()[1]);
    }
    kept.0
}

fn write_head(into: &mut Vec<u8>, what: u8, layout: Layout, stamp: Stamp, group: GroupKey) {
    into.extend_from_slice(&[FORM, what]);
    for word in [layout.kept, layout.name, stamp.clock, stamp.wall] {
        into.extend_from_slice(&word.to_be_bytes());
    }
    for word in group.words() {
        into.extend_from_slice(&word.to_be_bytes());
    }
}

/// Writes a flow with its states, which are in two pieces.
pub(crate) fn write_flow(
    into: &mut Vec<u8>,
    layout: Layout,
    stamp: Stamp,
    group: GroupKey,
    flow_header: &FlowHeader,
    state: [&[u8]; 2],
) {
    write_head(into, FLOW, layout, stamp, group);
    flow_header.write(state, into);
}

/// Writes a group with its blocks; those of `group` are not looked at.
pub(crate) fn write_group(
    into: &mut Vec<u8>,
    layout: u64,
    stamp: Stamp,
    key: GroupKey,
    group: &Group<'_>,
    blocks: impl Iterator<Item = Block>,
) {
    let layout = Layout {
        kept: layout,
        name: 0,
    };
    let what = if group.rests.is_some() { RESTS } else { GROUP };
    let what = if group.is_coming { what | COMING } else { what };
    write_head(into, what, layout, stamp, key);
    if let Some(left) = group.rests {
        into.extend_from_slice(&left.to_be_bytes());
    }
    into.extend_from_slice(&(group.state.len() as u16).to_be_bytes());
    into.extend_from_slice(group.state);
    for block in blocks {
        into.extend_from_slice(block.addr.octets());
        into.extend_from_slice(&block.first.to_be_bytes());
        into.extend_from_slice(&block.ports.to_be_bytes());
    }
}

/// An entry, if these bytes are one, all of them.
pub(crate) fn read(bytes: &[u8]) -> Option<Entry<'_>> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let [form, what, words @ ..] = head;
    if *form != FORM {
        return None;
    }
    let mut each = words
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_be_bytes(*word));
    let mut next = || each.next();
    let layout = Layout {
        kept: next()?,
        name: next()?,
    };
    let stamp = Stamp {
        clock: next()?,
        wall: next()?,
    };
    let group = GroupKey::from_words([next()?, next()?, next()?, next()?, next()?]);
    let what = match *what {
        FLOW => {
            let (flow_header, state, behind) = FlowHeader::read(rest)?;
            behind.is_empty().then_some(What::Flow(flow_header, state))?
        }
        what => What::Group(read_group(what, rest)?),
    };
    Some(Entry {
        layout,
        stamp,
        group,
        what,
    })
}

fn read_group(what: u8, bytes: &[u8]) -> Option<Group<'_>> {
    let (rests, rest) = match what & !COMING {
        GROUP => (None, bytes),
        RESTS => {
            let (left, rest) = bytes.split_first_chunk::<8>()?;
            (Some(u64::from_be_bytes(*left)), rest)
        }
        _ => return None,
    };
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (state, blocks) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let group = Group {
        is_coming: what & COMING != 0,
        rests,
        state,
        blocks,
    };
    (blocks.len() % BLOCK == 0).then_some(group)
}

/// The blocks of a group's entry.
pub(crate) fn blocks(bytes: &[u8]) -> impl Iterator<Item = Block> {
    bytes.as_chunks::<BLOCK>().0.iter().filter_map(|block| {
        let (addr, ports) = block.split_first_chunk::<16>()?;
        let [a, b, c, d] = *ports.first_chunk::<4>()?;
        Some(Block {
            addr: Addr::v6(*addr),
            first: u16::from_be_bytes([a, b]),
            ports: u16::from_be_bytes([c, d]),
        })
    })
}
