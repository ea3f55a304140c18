//! Channel frames on Ethernet: destination 6, source 6, EtherType [`ETHERTYPE`] 2, frame.
//!
//! No frame is shorter than Ethernet's shortest, so nothing is padded and a frame's length is its
//! own.

use super::{ETHERTYPE, NotOurs};

/// Bytes in front of a frame.
pub const FRONT: usize = 14;

/// A link address.
pub type Address = [u8; 6];

/// Writes what stands in front.
pub fn write(front: &mut [u8; FRONT], destination: Address, source: Address) {
    front[..6].copy_from_slice(&destination);
    front[6..12].copy_from_slice(&source);
    front[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
}

/// Destination, source and channel frame of an Ethernet frame.
pub fn read(bytes: &[u8]) -> Result<(Address, Address, &[u8]), NotOurs> {
    let (front, frame) = bytes.split_first_chunk::<FRONT>().ok_or(NotOurs::Short)?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *front;
    if u16::from_be_bytes([t0, t1]) != ETHERTYPE {
        return Err(NotOurs::Protocol);
    }
    Ok(([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5], frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn what_is_written_is_read() {
        let mut bytes: Vec<u8> = std::vec![0; FRONT];
        write(bytes.first_chunk_mut().unwrap(), [1; 6], [2; 6]);
        bytes.extend(b"frame");
        assert_eq!(read(&bytes), Ok(([1; 6], [2; 6], &b"frame"[..])));
        bytes[12] = 8;
        assert_eq!(read(&bytes), Err(NotOurs::Protocol));
        assert_eq!(read(&bytes[..13]), Err(NotOurs::Short));
    }
}
