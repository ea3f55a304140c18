//! Addresses, endpoints and prefixes as plain data, for use inside flow state.
//!
//! An IPv4 address is kept in its IPv4-mapped form (RFC 4291 2.5.5.2), so one fixed layout holds
//! both versions and state can be copied between workers without a schema for `Option`.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// An IPv4 or IPv6 address, 16 bytes in network order. All zero bytes is IPv6 `::`, "no address".
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct Addr([u8; 16]);

impl Addr {
    /// "No address": the IPv6 unspecified address.
    pub const UNSPECIFIED: Addr = Addr([0; 16]);

    /// An IPv4 address from its four bytes in network order.
    #[inline]
    pub const fn v4(bytes: [u8; 4]) -> Self {
        // As one number, so that it is written as one: byte by byte, the next comparison would wait
        // for the stores.
        Addr((0xffff_0000_0000 | u32::from_be_bytes(bytes) as u128).to_be_bytes())
    }

    /// An IPv6 address from its sixteen bytes in network order.
    #[inline]
    pub const fn v6(bytes: [u8; 16]) -> Self {
        Addr(bytes)
    }

    /// Whether this is an IPv4 address.
    #[inline]
    pub fn is_v4(&self) -> bool {
        self.0[..12] == MAPPED
    }

    /// The four bytes of an IPv4 address in network order, `None` for IPv6.
    #[inline]
    pub fn as_v4(&self) -> Option<[u8; 4]> {
        self.is_v4()
            .then(|| [self.0[12], self.0[13], self.0[14], self.0[15]])
    }

    /// The last four bytes as a number: the IPv4 address when [`Addr::is_v4`].
    #[inline]
    pub const fn low_u32(&self) -> u32 {
        u32::from_be_bytes([self.0[12], self.0[13], self.0[14], self.0[15]])
    }

    /// All sixteen bytes, IPv4 in its mapped form.
    #[inline]
    pub const fn octets(&self) -> &[u8; 16] {
        &self.0
    }

    /// IP version: 4 or 6.
    #[inline]
    pub fn version(&self) -> u8 {
        if self.is_v4() { 4 } else { 6 }
    }

    /// As the standard library's type.
    pub fn to_ip(self) -> IpAddr {
        match self.as_v4() {
            Some(bytes) => IpAddr::V4(Ipv4Addr::from(bytes)),
            None => IpAddr::V6(Ipv6Addr::from(self.0)),
        }
    }
}

impl From<IpAddr> for Addr {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Addr::v4(v4.octets()),
            IpAddr::V6(v6) => Addr::v6(v6.octets()),
        }
    }
}

impl From<Ipv4Addr> for Addr {
    fn from(ip: Ipv4Addr) -> Self {
        Addr::v4(ip.octets())
    }
}

impl FromStr for Addr {
    type Err = core::net::AddrParseError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<IpAddr>().map(Addr::from)
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_ip().fmt(f)
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An address and a port (for ICMP queries the identifier stands in the port's place, RFC 5508).
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Endpoint {
    /// The address.
    pub addr: Addr,
    /// The port in host order.
    pub port: u16,
}

impl Endpoint {
    /// An endpoint from its parts.
    #[inline]
    pub const fn new(addr: Addr, port: u16) -> Self {
        Endpoint { addr, port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.addr.is_v4() {
            write!(f, "{}:{}", self.addr, self.port)
        } else {
            write!(f, "[{}]:{}", self.addr, self.port)
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Endpoint {
    type Err = core::net::AddrParseError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<core::net::SocketAddr>()
            .map(|s| Endpoint::new(s.ip().into(), s.port()))
    }
}

/// An address prefix, `192.0.2.0/24` or `2001:db8::/32`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    addr: Addr,
    /// Length counted over the sixteen bytes of the mapped form.
    bits: u8,
}

/// Why a prefix did not parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixError {
    /// The part before the slash is no address.
    Address,
    /// The part behind the slash is no number, or more than 32 (IPv4) or 128 (IPv6).
    Length,
    /// There are bits set behind the prefix's length; the address with them cleared is given.
    HostBits(Prefix),
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefixError::Address => {
                f.write_str("not an IPv4 or IPv6 address; write one like 192.0.2.1, or 192.0.2.0/24")
            }
            PrefixError::Length => f.write_str(
                "the length must be 0 to 32 for IPv4, 0 to 128 for IPv6; write one of those, like /24",
            ),
            PrefixError::HostBits(mend) => write!(f, "bits are set behind the prefix length; write {mend}"),
        }
    }
}

impl core::error::Error for PrefixError {}

impl Prefix {
    /// The prefix of `length` bits (0–32 for IPv4, 0–128 for IPv6) that holds `addr`.
    pub fn new(addr: Addr, length: u8) -> Option<Self> {
        let bits = if addr.is_v4() {
            if length > 32 {
                return None;
            }
            96 + length
        } else {
            if length > 128 {
                return None;
            }
            length
        };
        let mask = Self::mask(bits);
        let masked = u128::from_be_bytes(*addr.octets()) & mask;
        Some(Prefix {
            addr: Addr(masked.to_be_bytes()),
            bits,
        })
    }

    fn mask(bits: u8) -> u128 {
        if bits == 0 {
            0
        } else {
            u128::MAX << (128 - u32::from(bits))
        }
    }

    /// Whether `addr` lies in the prefix. An IPv4 address never lies in an IPv6 prefix.
    #[inline]
    pub fn contains(&self, addr: Addr) -> bool {
        if self.bits >= 96 && addr.is_v4() {
            // Both are mapped: the last 32 bits decide (and the first 96 are equal, if this is an
            // IPv4 prefix).
            let difference = addr.low_u32() ^ self.addr.low_u32();
            return self.addr.is_v4() && difference & Self::mask(self.bits) as u32 == 0;
        }
        if addr.is_v4() != self.is_v4() {
            return false;
        }
        let difference = u128::from_be_bytes(*addr.octets()) ^ u128::from_be_bytes(*self.addr.octets());
        difference & Self::mask(self.bits) == 0
    }

    /// Whether this is an IPv4 prefix.
    pub fn is_v4(&self) -> bool {
        self.bits >= 96 && self.addr.is_v4()
    }

    /// The first address.
    pub fn addr(&self) -> Addr {
        self.addr
    }

    /// The length as written: 0–32 for IPv4, 0–128 for IPv6.
    pub fn length(&self) -> u8 {
        if self.is_v4() { self.bits - 96 } else { self.bits }
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (addr, length) = match text.split_once('/') {
            Some((addr, length)) => (addr, Some(length)),
            None => (text, None),
        };
        let addr: Addr = addr.parse().map_err(|_| PrefixError::Address)?;
        let whole = if addr.is_v4() { 32 } else { 128 };
        let length = match length {
            // The standard library would take a plus sign.
            Some(digits) if digits.starts_with('+') => return Err(PrefixError::Length),
            Some(digits) => digits.parse::<u8>().map_err(|_| PrefixError::Length)?,
            None => whole,
        };
        let prefix = Prefix::new(addr, length).ok_or(PrefixError::Length)?;
        if prefix.addr != addr {
            Err(PrefixError::HostBits(prefix))
        } else {
            Ok(prefix)
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.length())
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_hold_what_they_should() {
        let p: Prefix = "10.1.0.0/16".parse().unwrap();
        assert!(p.contains("10.1.255.1".parse().unwrap()));
        assert!(!p.contains("10.2.0.0".parse().unwrap()));
        assert!(!p.contains("2001:db8::1".parse().unwrap()));
        let all6: Prefix = "::/0".parse().unwrap();
        assert!(all6.contains("2001:db8::1".parse().unwrap()));
        assert!(!all6.contains("10.0.0.1".parse().unwrap()));
        let all4: Prefix = "0.0.0.0/0".parse().unwrap();
        assert!(all4.contains("10.0.0.1".parse().unwrap()));
        assert!(!all4.contains("::1".parse().unwrap()));
    }

    #[test]
    fn a_prefix_with_host_bits_is_refused_with_the_mend() {
        let error = "10.1.2.3/16".parse::<Prefix>().unwrap_err();
        assert_eq!(
            std::format!("{error}"),
            "bits are set behind the prefix length; write 10.1.0.0/16"
        );
        for length in ["33", "+8", "-1", "", "8/8"] {
            let text = std::format!("10.0.0.0/{length}");
            assert_eq!(text.parse::<Prefix>(), Err(PrefixError::Length), "{text}");
        }
    }
}
