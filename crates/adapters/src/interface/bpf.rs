//! Maps, programs and links of the kernel's virtual machine, by `bpf(2)`.
//!
//! Everything here is a descriptor: when this process ends, however it ends, the kernel takes the
//! last reference away and with it the map, the program, and the program's place on an interface.
//! So nothing needs to be cleaned up, and nothing can be left behind by a process that was killed.
//!
//! Not here: the programs' work ([`super::filter`]).

use super::assembler::Instruction;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The purpose of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ProgramKind {
    /// Chooses what a socket receives.
    SocketFilter = 1,
    /// Looks at what enters or leaves an interface (tc).
    Traffic = 3,
    /// Looks at what a driver received.
    Xdp = 6,
}

/// Where a program is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// Before the kernel's stack, behind the copies for packet sockets (Linux 6.6).
    TrafficIngress,
    /// In the driver.
    XdpNative,
    /// Before anything else, on whatever driver.
    XdpGeneric,
}

/// The kind of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// By key.
    Hash = 1,
    /// By number: keys are 0 to the size, four bytes each.
    Array = 2,
    /// By the longest prefix: the key is its length in bits, four bytes, and the address.
    Prefixes = 11,
    /// AF_XDP sockets by queue.
    Sockets = 17,
}

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;
const PROGRAM_LOAD: libc::c_long = 5;
const PROGRAM_TEST: libc::c_long = 10;
const LINK_CREATE: libc::c_long = 28;

/// The beginning of `union bpf_attr`, for each command; bytes behind it are zero.
trait Attributes {}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries_max: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    instructions_at: u64,
    licence_at: u64,
    log_level: u32,
    log_bytes: u32,
    log_at: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attachment: u32,
    flags: u32,
    /// The command's own part, unused here.
    rest: [u64; 6],
}

#[repr(C)]
#[derive(Default)]
struct ProgramTest {
    program: u32,
    answer: u32,
    input_bytes: u32,
    output_bytes: u32,
    input_at: u64,
    output_at: u64,
    repeat: u32,
    duration: u32,
    context_input_bytes: u32,
    context_output_bytes: u32,
    context_input_at: u64,
    context_output_at: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    padding: u32,
}

impl Attributes for MapCreate {}
impl Attributes for MapElement {}
impl Attributes for ProgramLoad {}
impl Attributes for LinkCreate {}
impl Attributes for ProgramTest {}

/// # Safety
/// `attributes` is the structure of `command`, and every address in it is of memory that lives
/// through the call and is as long as the structure says.
unsafe fn bpf<T: Attributes>(command: libc::c_long, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the caller's promise; the structure is borrowed for the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            size_of::<T>(),
        )
    };
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer)
    }
}

/// # Safety
/// As [`bpf`], and the command answers with a new descriptor.
unsafe fn bpf_fd<T: Attributes>(command: libc::c_long, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made the descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

fn short_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    bytes
}

/// A table that programs read and this process writes. `K` and `V` are plain bytes.
#[derive(Debug)]
pub struct Map<const K: usize, const V: usize>(OwnedFd);

impl<const K: usize, const V: usize> Map<K, V> {
    /// A map for at most `entries_max` entries.
    pub fn new(kind: MapKind, entries_max: u32, name: &str) -> io::Result<Self> {
        let mut attributes = MapCreate {
            kind: kind as u32,
            key_bytes: K as u32,
            value_bytes: V as u32,
            entries_max,
            // A map of prefixes takes its memory as it grows (BPF_F_NO_PREALLOC), and knows no
            // other way.
            flags: u32::from(kind == MapKind::Prefixes),
            name: short_name(name),
            ..MapCreate::default()
        };
        // SAFETY: the structure is the command's and has no address in it.
        unsafe { bpf_fd(MAP_CREATE, &mut attributes) }.map(Map)
    }

    /// Its descriptor, for programs.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Puts an entry in, or replaces it.
    pub fn insert(&self, key: &[u8; K], value: &[u8; V]) -> io::Result<()> {
        let mut attributes = MapElement {
            map: self.0.as_raw_fd() as u32,
            key: key.as_ptr().addr() as u64,
            value: value.as_ptr().addr() as u64,
            ..MapElement::default()
        };
        // SAFETY: the structure is the command's; key and value have the lengths that the map was
        // made with.
        unsafe { bpf(MAP_UPDATE, &mut attributes) }.map(drop)
    }

    /// Takes an entry out; a missing entry is no error.
    pub fn remove(&self, key: &[u8; K]) -> io::Result<()> {
        let mut attributes = MapElement {
            map: self.0.as_raw_fd() as u32,
            key: key.as_ptr().addr() as u64,
            ..MapElement::default()
        };
        // SAFETY: as above; this command reads no value.
        match unsafe { bpf(MAP_DELETE, &mut attributes) } {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }
}

/// A program in the kernel.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// Loads a program; the kernel refuses what it cannot prove harmless.
    pub fn load(kind: ProgramKind, instructions: &[Instruction], name: &str) -> io::Result<Self> {
        let licence = c"Dual MIT/GPL";
        let mut log = vec![0_u8; 1 << 16];
        let mut attributes = ProgramLoad {
            kind: kind as u32,
            instructions: instructions.len() as u32,
            instructions_at: instructions.as_ptr().addr() as u64,
            licence_at: licence.as_ptr().addr() as u64,
            name: short_name(name),
            ..ProgramLoad::default()
        };
        // SAFETY: the structure is the command's; instructions and licence are borrowed for the
        // call and as long as said.
        let first = unsafe { bpf_fd(PROGRAM_LOAD, &mut attributes) };
        let error = match first {
            Ok(program) => return Ok(Program(program)),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
            Err(error) => error,
        };
        // Once more, to be told why.
        attributes.log_level = 1;
        attributes.log_bytes = log.len() as u32;
        attributes.log_at = log.as_mut_ptr().addr() as u64;
        // SAFETY: as above, and the log is borrowed for the call.
        match unsafe { bpf_fd(PROGRAM_LOAD, &mut attributes) } {
            Ok(program) => Ok(Program(program)),
            Err(_) => {
                let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                let why = String::from_utf8_lossy(&log[..end]);
                Err(io::Error::new(
                    error.kind(),
                    format!("{error}: {}", why.trim_end()),
                ))
            }
        }
    }

    /// Attaches the program to an interface, for as long as the link lives.
    pub fn attach(&self, interface: u32, attachment: Attachment) -> io::Result<Link> {
        let (kind, flags) = match attachment {
            Attachment::TrafficIngress => (46, 0),
            Attachment::XdpGeneric => (37, 1 << 1),
            Attachment::XdpNative => (37, 1 << 2),
        };
        let mut attributes = LinkCreate {
            program: self.0.as_raw_fd() as u32,
            interface,
            attachment: kind,
            flags,
            ..LinkCreate::default()
        };
        // SAFETY: the structure is the command's and has no address in it.
        unsafe { bpf_fd(LINK_CREATE, &mut attributes) }.map(|fd| Link { _fd: fd })
    }

    /// Its descriptor, for a socket's filter.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Runs an XDP program over `count` copies of a frame and does with each what it answers:
    /// frames that it redirects leave by that interface, as if a driver had received and forwarded
    /// them (Linux 5.18).
    pub fn run_live(&self, frame: &[u8], count: u32, batch: u32) -> io::Result<()> {
        const LIVE_FRAMES: u32 = 1 << 1;
        let mut attributes = ProgramTest {
            program: self.0.as_raw_fd() as u32,
            input_bytes: frame.len() as u32,
            input_at: frame.as_ptr().addr() as u64,
            repeat: count,
            flags: LIVE_FRAMES,
            batch,
            ..ProgramTest::default()
        };
        // SAFETY: the structure is the command's; the frame is borrowed for the call; no output is
        // asked for.
        unsafe { bpf(PROGRAM_TEST, &mut attributes) }.map(drop)
    }

    /// The program's answer to a frame.
    #[cfg(test)]
    pub fn test(&self, frame: &[u8]) -> io::Result<u32> {
        let mut attributes = ProgramTest {
            program: self.0.as_raw_fd() as u32,
            input_bytes: frame.len() as u32,
            input_at: frame.as_ptr().addr() as u64,
            repeat: 1,
            ..ProgramTest::default()
        };
        // SAFETY: the structure is the command's; the frame is borrowed for the call; no output is
        // asked for.
        unsafe { bpf(PROGRAM_TEST, &mut attributes) }?;
        Ok(attributes.answer)
    }
}

/// A program's place on an interface; it leaves when this is dropped, or the process ends.
#[derive(Debug)]
pub struct Link {
    _fd: OwnedFd,
}
