//! System calls with types: sockets and their options, `ioctl` on interfaces, shared mappings.
//!
//! Each wrapper says in its proof why the kernel reads and writes only what it is handed. Each
//! answers the system's own error; the caller says what that means.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// A structure of the kernel's interface: plain memory, of which every pattern of bytes is a value.
///
/// # Safety
/// The type has no padding that matters, no pointer that is followed in safe code, and any bytes
/// are a value of it.
pub(crate) unsafe trait Plain: Sized {}

macro_rules! plain {
    ($($kind:ty),* $(,)?) => {
        $(
            // SAFETY: an integer, or a `repr(C)` structure of the kernel's made of integers.
            unsafe impl Plain for $kind {}
        )*
    };
}

plain!(
    libc::c_int,
    libc::tpacket_req,
    libc::tpacket_req3,
    libc::tpacket_stats,
    libc::tpacket_stats_v3,
    libc::packet_mreq,
    u64,
    libc::xdp_desc,
    libc::xdp_umem_reg,
    libc::xdp_mmap_offsets,
    libc::xdp_statistics,
    libc::xdp_options,
);

/// The answer of a call that says -1 when it failed.
pub(crate) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// A socket that never blocks and does not outlive this program in a child.
pub(crate) fn socket(domain: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes numbers only.
    let fd = checked(unsafe { libc::socket(domain, kind, protocol) })?;
    // SAFETY: the kernel has just made this descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a socket's option.
pub(crate) fn set_option<T: Plain>(
    fd: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of a value that is borrowed for the call.
    checked(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Reads a socket's option. A kernel that knows fewer fields leaves the rest zero.
pub(crate) fn option<T: Plain>(fd: &OwnedFd, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the value's size.
    checked(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    // SAFETY: any bytes are a value of a plain type, and it was zeroed before.
    Ok(unsafe { value.assume_init() })
}

/// Ties a socket to an address.
///
/// # Safety
/// `T` is the address structure of the socket's family.
pub(crate) unsafe fn bind<T>(fd: &OwnedFd, address: &T) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of an address that is borrowed for the call.
    checked(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            std::ptr::from_ref(address).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// A request about the interface called `name`, without an argument yet; `None` if no interface can
/// be called that.
pub(crate) fn request_for(name: &str) -> Option<libc::ifreq> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['\0', '/']) {
        return None;
    }
    // SAFETY: zeros are a value of `ifreq`: integers, and a union of integers and a pointer.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Some(request)
}

/// Asks about an interface.
///
/// # Safety
/// `number` is a request that reads and writes no more than the `ifreq`, and what a pointer in it
/// points at.
pub(crate) unsafe fn ask(fd: &OwnedFd, number: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the caller's promise.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), number as libc::Ioctl, std::ptr::from_mut(request)) })
        .map(drop)
}

/// Whether a namespace is of a user namespace that this process is outside of, so that its
/// capabilities count for nothing there (ioctl_ns(2)).
pub(crate) fn is_of_outer_users(namespace: &std::fs::File) -> bool {
    const NS_GET_USERNS: libc::c_ulong = 0xb701;
    // SAFETY: this request has no argument, and answers with a descriptor of its own or an error.
    let answer = checked(unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS as libc::Ioctl) });
    match answer {
        Ok(fd) => {
            // SAFETY: the kernel has just opened it, and nothing else has it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            false
        }
        Err(error) => error.raw_os_error() == Some(libc::EPERM),
    }
}

/// Whether this process is in a user namespace that is not the first one: the kernel loads no
/// filter for it, whatever its capabilities (bpf(2)).
pub(crate) fn is_in_user_namespace() -> bool {
    // `PROC_USER_INIT_INO` of the kernel's `proc_ns.h`. Where it cannot be read, the system calls
    // will tell.
    let own = std::fs::read_link("/proc/thread-self/ns/user");
    own.is_ok_and(|own| own.as_os_str() != "user:[4026531837]")
}

/// Memory shared with the kernel, unmapped when dropped.
pub(crate) struct Shared {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping is not tied to a thread. Its users see to reads and writes, and none of them is
// `Sync`.
unsafe impl Send for Shared {}

impl Shared {
    /// Maps `length` bytes of a socket's rings, from `offset` on.
    pub fn map(fd: &OwnedFd, length: usize, offset: u64) -> io::Result<Self> {
        // SAFETY: a new mapping, placed by the kernel, touches no memory in use.
        let start = unsafe {
            libc::mmap64(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                offset as libc::off64_t,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast())
            .map(|start| Shared { start, length })
            .ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Where it starts.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How long it is.
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: this mapping was made with this length, and is used no more. An error cannot be
        // reported from here.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
