//! A netlink socket: requests, dumps, and what the kernel says by itself.

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use std::time::Duration;

/// The kernel's messages fit into this: it makes dumps of pages, 32 KiB at most.
const BUFFER: usize = 64 << 10;
/// Bytes that may wait to be read; beyond them the kernel says that some were lost.
const QUEUE: usize = 4 << 20;
/// Longer than this the kernel does not take for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The result of a wait.
pub(super) enum Heard {
    /// Messages, maybe none of interest.
    Messages(Vec<RouteNetlinkMessage>),
    /// Nothing in the time given.
    Nothing,
    /// Some messages were lost: everything must be asked again.
    Lost,
}

pub(super) struct Socket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Socket {
    /// A socket that hears of changes in these groups (a bit each), in the network namespace of the
    /// thread that opens it.
    pub fn open(groups: u32) -> Result<Self, Errno> {
        let fd = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            // NETLINK_ROUTE, which is 0.
            None,
        )?;
        // As much as the system allows; with less, more is lost and asked again.
        let _ = set_socket_recv_buffer_size(&fd, QUEUE);
        bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Socket {
            fd,
            buffer: vec![0; BUFFER],
            sequence: 0,
        })
    }

    /// Asks for all of a kind, and hands each to `each`.
    pub fn dump(
        &mut self,
        request: RouteNetlinkMessage,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> Result<(), Errno> {
        self.send(request, NLM_F_REQUEST | NLM_F_DUMP)?;
        set_socket_timeout(&self.fd, Timeout::Recv, Some(PATIENCE))?;
        loop {
            let length = recv_whole(&self.fd, &mut self.buffer)?;
            for message in messages(&self.buffer[..length]) {
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) => {
                        return Err(Errno::from_raw_os_error(error.raw_code().wrapping_neg()));
                    }
                    NetlinkPayload::InnerMessage(inner) => each(inner),
                    _ => {}
                }
            }
        }
    }

    /// Asks for something to be made or changed, and waits for the kernel's word on it.
    pub fn ask(&mut self, request: RouteNetlinkMessage) -> Result<(), Errno> {
        self.send(request, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK)?;
        set_socket_timeout(&self.fd, Timeout::Recv, Some(PATIENCE))?;
        loop {
            let length = recv_whole(&self.fd, &mut self.buffer)?;
            for message in messages(&self.buffer[..length]) {
                if let NetlinkPayload::Error(error) = message.payload {
                    return match error.raw_code() {
                        0 => Ok(()),
                        code => Err(Errno::from_raw_os_error(code.wrapping_neg())),
                    };
                }
            }
        }
    }

    /// Waits for what the kernel says by itself, at most so long.
    pub fn hear(&mut self, wait: Duration) -> Result<Heard, Errno> {
        // Zero would mean for ever.
        let wait = wait.max(Duration::from_millis(1));
        set_socket_timeout(&self.fd, Timeout::Recv, Some(wait))?;
        match recv_whole(&self.fd, &mut self.buffer) {
            Ok(length) => {
                let inner = messages(&self.buffer[..length]).filter_map(|message| match message.payload {
                    NetlinkPayload::InnerMessage(inner) => Some(inner),
                    _ => None,
                });
                Ok(Heard::Messages(inner.collect()))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Heard::Nothing),
            Err(Errno::NOBUFS) => Ok(Heard::Lost),
            Err(error) => Err(error),
        }
    }

    fn send(&mut self, request: RouteNetlinkMessage, flags: u16) -> Result<(), Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(&self.fd, &bytes, SendFlags::empty()).map(|_| ())
    }
}

/// One datagram; a datagram longer than the buffer is as good as lost.
fn recv_whole(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let (_, length) = recv(fd, buffer, RecvFlags::TRUNC)?;
    if length > BUFFER {
        Err(Errno::NOBUFS)
    } else {
        Ok(length)
    }
}

/// The messages of a datagram, up to the first that cannot be read.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = NetlinkMessage<RouteNetlinkMessage>> {
    core::iter::from_fn(move || {
        loop {
            let length: [u8; 4] = *bytes.first_chunk()?;
            let length = u32::from_ne_bytes(length) as usize;
            let one = bytes.get(..length).filter(|one| one.len() >= 16)?;
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
            // Messages that this library does not know are nothing we asked for.
            if let Ok(message) = NetlinkMessage::deserialize(one) {
                return Some(message);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_messages_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300), length in 0u32..64) {
            let _ = messages(&bytes).count();
            let mut begun = length.to_ne_bytes().to_vec();
            begun.extend(&bytes);
            prop_assert!(messages(&begun).count() <= begun.len() / 16);
        }
    }
}
