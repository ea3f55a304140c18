//! Load for an interface: frames that were made before, sent round and round, as a driver would
//! forward them.
//!
//! # Theory of operation
//!
//! A program in the kernel puts the next of the prepared frames into a page and redirects it to the
//! interface (`BPF_PROG_TEST_RUN` with live frames). There is no socket, no buffer of the network
//! stack and no copy between: the other end of a veth pair gets, as from a driver, a page with a
//! frame in it, and the receiver there decides what becomes of it. That costs the same for every
//! receiver, and little.
//!
//! ```text
//!   frames: array, 64 bytes each   place: the next one's number
//!        └──► page ──► redirect ──► interface ═══ its other end: a kernel's stack, or AF_XDP
//! ```
//!
//! A program that is on no interface is made known to all processors at each [`Offer::send`] and
//! forgotten again, which takes milliseconds. So it is parked on an interface that receives
//! nothing.
//!
//! The other end of a veth pair takes such frames only if it polls: a program on it, or
//! `ethtool -K END gro on`.
//!
//! Invariant: frames leave in their order, the first behind the last.
//!
//! Not here: the pace (the caller of [`Offer::send`] keeps it), the frames' contents.

use super::assembler::{
    Assembler, Condition::Below, Condition::Equal, Condition::NotEqual, Instruction, Register, Width,
};
use super::bpf::{Attachment, Link, Map, MapKind, Program, ProgramKind};
use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use std::io;

/// The length of each frame: 64 bytes with the check sequence that a wire has and a veth pair has
/// not.
pub const OFFERED: usize = 60;
/// Frames that the kernel hands on together, at most.
pub const TOGETHER: u32 = 64;

const LOOKUP: i32 = 1;
const REDIRECT: i32 = 23;
const STORE_BYTES: i32 = 190;
const XDP_ABORTED: i32 = 0;
const XDP_DROP: i32 = 1;

/// Frames for one interface.
#[derive(Debug)]
pub struct Offer {
    program: Program,
    _parked: Option<Link>,
    _frames: Map<4, 64>,
    _place: Map<4, 8>,
}

impl Offer {
    /// Prepares frames for the interface with this number in the calling thread's namespace; there
    /// is at least one. The program is parked on another interface, if there is one to park it on.
    pub fn new(interface: u32, parked: Option<u32>, frames: &[[u8; OFFERED]]) -> io::Result<Self> {
        let count = i32::try_from(frames.len()).map_err(io::Error::other)?;
        let map = Map::<4, 64>::new(MapKind::Array, frames.len() as u32, "fk_frames")?;
        for (number, frame) in (0_u32..).zip(frames) {
            let mut value = [0; 64];
            value[..OFFERED].copy_from_slice(frame);
            map.insert(&number.to_ne_bytes(), &value)?;
        }
        let place = Map::<4, 8>::new(MapKind::Array, 1, "fk_place")?;
        let text = program(interface, count, map.descriptor(), place.descriptor());
        let program = Program::load(ProgramKind::Xdp, &text, "fk_offer")?;
        Ok(Offer {
            _parked: parked
                .map(|on| program.attach(on, Attachment::XdpNative))
                .transpose()?,
            program,
            _frames: map,
            _place: place,
        })
    }

    /// Sends the next `count` frames. The calling thread is in the namespace that the offer was
    /// made in.
    pub fn send(&self, count: u32) -> io::Result<()> {
        match count {
            0 => Ok(()),
            _ => self.program.run_live(&[0; OFFERED], count, TOGETHER.min(count)),
        }
    }
}

fn program(interface: u32, count: i32, frames: i32, place: i32) -> Vec<Instruction> {
    let mut a = Assembler::new();
    let (nothing, not_last) = (a.label(), a.label());
    a.copy(R6, R1);
    a.store_number(Width::Word, R10, -4, 0);
    look_up(&mut a, place);
    a.jump(Equal, R0, 0, nothing);
    // Its number now, and the next one's for the next time.
    a.load(Width::Double, R7, R0, 0);
    a.copy(R8, R7);
    a.add(R8, 1);
    a.jump(Below, R8, count, not_last);
    a.set(R8, 0);
    a.place(not_last);
    a.store(Width::Double, R0, 0, R8);
    a.store(Width::Word, R10, -4, R7);
    look_up(&mut a, frames);
    a.jump(Equal, R0, 0, nothing);
    a.copy(R9, R0);
    a.copy(R1, R6);
    a.set(R2, 0);
    a.copy(R3, R9);
    a.set(R4, OFFERED as i32);
    a.call(STORE_BYTES);
    a.jump(NotEqual, R0, 0, nothing);
    a.set(R1, interface as i32);
    a.set(R2, 0);
    a.call(REDIRECT);
    a.exit();
    a.place(nothing);
    a.set(R0, XDP_ABORTED);
    a.exit();
    a.finish()
}

/// R0 is where the map has what the number on top of the stack says.
fn look_up(a: &mut Assembler, map: i32) {
    a.load_map(R1, map);
    a.copy(R2, R10);
    a.add(R2, -4);
    a.call(LOOKUP);
}

/// Has an interface lose everything that it receives, before anything else sees it, for as long as
/// the answer lives.
pub fn lose_everything(interface: u32) -> io::Result<Link> {
    let mut a = Assembler::new();
    a.set(R0, XDP_DROP);
    a.exit();
    Program::load(ProgramKind::Xdp, &a.finish(), "fk_lose")?.attach(interface, Attachment::XdpNative)
}
