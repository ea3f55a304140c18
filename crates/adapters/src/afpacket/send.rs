//! Sending bursts by a packet socket.
//!
//! One `sendmmsg` for a burst; the kernel copies each frame out of its packet buffer. The kernel
//! stops at the first frame it cannot take: that frame is counted as unsent, and the next call
//! begins behind it, unless the queue is full: then all the rest is unsent.
//!
//! Invariant: every packet of a burst is counted, as sent or as unsent.

use crate::interface::Interface;
use crate::interface::system::{bind, set_option, socket};
use crate::report::Reports;
use runtime::env::{BURST, Burst, PortCounters};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use wire::packet::Kind;

/// Bytes that may be on their way through the kernel: on one machine they count until the receiver
/// has read them.
const QUEUE: libc::c_int = 16 << 20;

/// A socket that only sends.
pub(super) struct Sender {
    fd: OwnedFd,
    /// The last failure that was told.
    told: Option<i32>,
}

impl Sender {
    /// A socket that sends by an interface and receives nothing.
    pub fn open(interface: &Interface) -> io::Result<Self> {
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        // SAFETY: it is the address structure of packet sockets. Protocol 0 receives nothing.
        unsafe { bind(&fd, &super::address(interface, 0)) }?;
        // Needs the right to exceed the system's limit; without it, what the limit allows.
        if set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &QUEUE).is_err() {
            set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &QUEUE)?;
        }
        Ok(Sender { fd, told: None })
    }

    /// Sends all packets of a burst, as far as the kernel takes them. The buffers stay in the
    /// burst.
    pub fn send(&mut self, burst: &mut Burst, counters: &mut PortCounters, port: &str, reports: &Reports) {
        let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BURST];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::zeroed() }; BURST];
        let mut count = 0;
        for packet in burst.iter().filter(|packet| packet.kind() != Kind::Empty) {
            let frame = packet.frame();
            let piece = pieces[count].write(libc::iovec {
                iov_base: frame.as_ptr().cast_mut().cast(),
                iov_len: frame.len(),
            });
            // SAFETY: zeros are a value of `mmsghdr`: lengths of 0 and null pointers.
            let message = unsafe { messages[count].assume_init_mut() };
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        let mut next = 0;
        while next < count {
            // SAFETY: messages `next..count` were written above, each with one piece that leads to
            // a frame of the burst, which is borrowed for the call. The kernel only reads the
            // frames, and writes the messages' lengths.
            let sent = unsafe {
                libc::sendmmsg(
                    self.fd.as_raw_fd(),
                    messages[next].as_mut_ptr(),
                    (count - next) as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                )
            };
            if sent > 0 {
                for message in &messages[next..next + sent as usize] {
                    // SAFETY: the kernel has written how much of it was sent.
                    counters.sent_bytes += u64::from(unsafe { message.assume_init_ref() }.msg_len);
                }
                counters.sent_packets += sent as u64;
                next += sent as usize;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS) => {
                    counters.unsent_packets += (count - next) as u64;
                    return;
                }
                code => {
                    counters.unsent_packets += 1;
                    next += 1;
                    self.tell(code.unwrap_or(0), &error, port, reports);
                }
            }
        }
    }

    /// Says what fails, once for each way in turn.
    #[cold]
    fn tell(&mut self, code: i32, error: &io::Error, port: &str, reports: &Reports) {
        if self.told.replace(code) == Some(code) {
            return;
        }
        let remedy = match code {
            libc::EMSGSIZE => "packets are longer than its MTU: raise it, or lower that of the other side",
            libc::ENETDOWN => "bring it up again with: ip link set up",
            libc::ENXIO | libc::ENODEV => "the interface is gone: restart when it is back",
            _ => "",
        };
        reports.tell(port, format_args!("a packet cannot be sent: {error}"), remedy);
    }
}
