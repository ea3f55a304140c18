//! Values with a form of their own: port URIs, prefixes, protocols, port ranges.
//!
//! A list of one may be written without brackets: `source = "10.0.0.0/8"` is
//! `source = ["10.0.0.0/8"]`.

use super::Threads;
use super::problem::write_instead;
use adapters::afpacket::Taking;
use adapters::uri::{PortUri, Role};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use wire::{Prefix, protocol};

/// A port as written: `pcap:in.pcap?loop=3`. That it holds has been checked for its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri(String);

impl Uri {
    /// Takes it for a role. The error says what to write instead.
    pub fn new(text: &str, role: Role) -> Result<Self, String> {
        match PortUri::parse(text, role) {
            Ok(_) => Ok(Uri(text.to_owned())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it gives back the packets that it was given.
    pub fn is_reflector(&self) -> bool {
        matches!(PortUri::parse(&self.0, Role::Input), Ok(PortUri::Reflect { .. }))
    }

    /// Whether it is an interface whose frames are taken as a router takes them.
    pub fn is_of_a_router(&self) -> bool {
        let taking = match PortUri::parse(&self.0, Role::Input) {
            Ok(PortUri::Packet { settings, .. }) => settings.taking,
            Ok(PortUri::Xdp { settings, .. }) => settings.taking,
            _ => return false,
        };
        taking == Taking::Routed
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The source of packets.
pub fn input<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Uri>, D::Error> {
    uri(deserializer, Role::Input)
}

/// The destination of packets.
pub fn output<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Uri>, D::Error> {
    uri(deserializer, Role::Output)
}

fn uri<'de, D: Deserializer<'de>>(deserializer: D, role: Role) -> Result<Option<Uri>, D::Error> {
    let text: String = deserializer.deserialize_str(Text(PhantomData, "a port, like \"pcap:in.pcap\""))?;
    Uri::new(&text, role).map(Some).map_err(de::Error::custom)
}

/// Transport ports from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The lowest.
    pub first: u16,
    /// The highest; not below `first`.
    pub last: u16,
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |part: &str| {
            part.trim()
                .parse::<u16>()
                .map_err(|_| format!("`{text}` is no port; write 0 to 65535, or a range like \"8000-8100\""))
        };
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (port(first)?, port(last)?),
            None => (port(text)?, port(text)?),
        };
        if first > last {
            return Err(format!(
                "`{text}` ends before it begins; write \"{last}-{first}\""
            ));
        }
        Ok(PortRange { first, last })
    }
}

/// An IP protocol by name or number.
struct Protocol(u8);

/// Names people write for protocols.
const PROTOCOLS: &[(&str, u8)] = &[
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("icmp", protocol::ICMP),
    ("icmpv6", protocol::ICMPV6),
    ("sctp", protocol::SCTP),
    ("gre", protocol::GRE),
    ("esp", protocol::ESP),
    ("ah", protocol::AH),
    ("udplite", protocol::UDPLITE),
    ("igmp", protocol::IGMP),
];

/// The number of a protocol that people name.
pub fn protocol_number(text: &str) -> Result<u8, String> {
    text.parse::<Protocol>().map(|protocol| protocol.0)
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_lowercase();
        if let Some((_, number)) = PROTOCOLS.iter().find(|(name, _)| *name == lower) {
            return Ok(Protocol(*number));
        }
        text.parse().map(Protocol).map_err(|_| {
            let names: Vec<&str> = PROTOCOLS.iter().map(|(name, _)| *name).collect();
            format!("there is no protocol `{text}`; {}", write_instead(text, &names))
        })
    }
}

/// Reads anything that parses from text; numbers are text too.
struct Text<T>(PhantomData<T>, &'static str);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

/// One element, read as [`Text`].
struct Element<T>(T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Element<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(Text(PhantomData, "text in quotes"))
            .map(Element)
    }
}

/// Reads a list, or one element alone.
struct List<T>(PhantomData<T>, &'static str);

impl<'de, T: FromStr<Err: fmt::Display>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        Text(PhantomData, self.1).visit_str(text).map(|one| vec![one])
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Vec<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Vec<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(Element(one)) = list.next_element()? {
            all.push(one);
        }
        Ok(all)
    }
}

/// A prefix, with errors that name the written text.
struct NamedPrefix(Prefix);

impl FromStr for NamedPrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map(NamedPrefix)
            .map_err(|error| format!("`{text}` is no prefix: {error}"))
    }
}

/// `"10.0.0.0/8"` or a list of such.
pub fn prefixes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Prefix>, D::Error> {
    let expected = "prefixes, like [\"10.0.0.0/8\"]";
    let list = deserializer.deserialize_any(List::<NamedPrefix>(PhantomData, expected))?;
    Ok(list.into_iter().map(|prefix| prefix.0).collect())
}

/// `"tcp"` or 6.
pub fn protocol<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    let text = Text::<Protocol>(PhantomData, "a protocol, like \"tcp\" or 6");
    deserializer
        .deserialize_any(text)
        .map(|protocol| Some(protocol.0))
}

/// `80`, `"8000-8100"`, or a list of such.
pub fn port_ranges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PortRange>, D::Error> {
    let list: Vec<PortRange> =
        deserializer.deserialize_any(List(PhantomData, "ports, like [\"80\", \"8000-8100\"]"))?;
    if list.is_empty() {
        return Err(de::Error::custom(MATCHES_ALL));
    }
    Ok(list)
}

/// An address and port to listen on.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    deserializer
        .deserialize_str(AddressWithPort("127.0.0.1", 9464))
        .map(Some)
}

/// Where a syslog collector is.
pub fn syslog<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    collector(deserializer, 514)
}

/// Where an IPFIX collector is.
pub fn ipfix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    collector(deserializer, 4739)
}

/// One host's address and a port of it.
fn collector<'de, D: Deserializer<'de>>(deserializer: D, port: u16) -> Result<Option<SocketAddr>, D::Error> {
    let to = deserializer.deserialize_str(AddressWithPort("192.0.2.9", port))?;
    let refuse = |problem: &str, instead: SocketAddr| -> D::Error {
        de::Error::custom(format!("`{to}` {problem}; write for example \"{instead}\""))
    };
    if to.port() == 0 {
        return Err(refuse(
            "has port 0, to which nothing is sent",
            SocketAddr::new(to.ip(), port),
        ));
    }
    if to.ip().is_unspecified() || to.ip().is_multicast() {
        let instead = SocketAddr::new(IpAddr::from([192, 0, 2, 9]), port);
        return Err(refuse("is no address of one host", instead));
    }
    Ok(Some(to))
}

/// An address with a port; an example of both, for a text that is none.
struct AddressWithPort(&'static str, u16);

impl Visitor<'_> for AddressWithPort {
    type Value = SocketAddr;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an address with a port, like \"{}:{}\"", self.0, self.1)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<SocketAddr, E> {
        let AddressWithPort(example, port) = self;
        let problem = match text.parse() {
            Ok(address) => return Ok(address),
            Err(_) => format!("`{text}` is no address with a port"),
        };
        // Near texts: a scheme in front, or no port behind.
        let bare = text.rsplit_once("://").map_or(text, |(_, bare)| bare);
        let bare = bare.trim().trim_end_matches('/');
        let host = bare.trim_start_matches('[').trim_end_matches(']');
        let remedy = if let Ok(address) = bare.parse::<SocketAddr>() {
            format!("write \"{address}\"")
        } else if let Ok(host) = host.parse::<IpAddr>() {
            format!("write \"{}\"", SocketAddr::new(host, port))
        } else if let Some((host, _)) = bare.rsplit_once(':')
            && let Ok(host) = host.trim_matches(['[', ']']).parse::<IpAddr>()
        {
            let instead = SocketAddr::new(host, port);
            format!("a port is a number from 1 to 65535: write for example \"{instead}\"")
        } else {
            let own = bare.rsplit(':').next().and_then(|own| own.parse().ok());
            let own: u16 = own.filter(|own| *own != 0).unwrap_or(port);
            let names = match bare.trim_start_matches(':').parse::<u16>() {
                Ok(_) => "write",
                Err(_) => "names are not looked up: write an address,",
            };
            format!("{names} for example \"{example}:{own}\" or \"[2001:db8::9]:{own}\"")
        };
        Err(E::custom(format!("{problem}; {remedy}")))
    }
}

/// Why a text cannot be a name: nothing could be found or shown by it.
fn unnamed(text: &str, what: &str) -> Option<String> {
    if text.trim().is_empty() {
        return Some(format!("the name is empty; write {what}, or take the line out"));
    }
    let control = text.chars().find(|letter| letter.is_control())?;
    Some(format!(
        "the name has a character that cannot be shown ({}); take it out",
        control.escape_unicode()
    ))
}

/// The host of a member that names none.
pub fn here() -> String {
    "here".to_owned()
}

/// The problem of a name and its remedy, if it has one.
pub fn unnamed_parts(text: &str) -> Option<(String, String)> {
    let said = unnamed(text, "one")?;
    let (problem, remedy) = said.split_once("; ")?;
    Some((problem.to_owned(), remedy.to_owned()))
}

fn named<'de, D: Deserializer<'de>>(deserializer: D, what: &str) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    match unnamed(&text, what) {
        None => Ok(text),
        Some(problem) => Err(de::Error::custom(problem)),
    }
}

/// The name of a file or folder.
pub fn file<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    named(deserializer, "the name of a file").map(Some)
}

/// The same as a path.
pub fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(file(deserializer)?.map(PathBuf::from))
}

/// A control socket: its file's name may be a socket's.
pub fn socket<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let found = path(deserializer)?;
    let most = crate::control::NAME_MAX;
    match found
        .as_deref()
        .and_then(std::path::Path::file_name)
        .map(|name| name.len())
    {
        Some(length) if length > most => Err(de::Error::custom(format!(
            "the file's name has {length} bytes, and a socket's has {most} at most; shorten it"
        ))),
        _ => Ok(found),
    }
}

/// Names of files.
pub fn files<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct Name(String);
    impl<'de> Deserialize<'de> for Name {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            named(deserializer, "the name of a file").map(Name)
        }
    }
    let all = Vec::<Name>::deserialize(deserializer)?;
    Ok(all.into_iter().map(|name| name.0).collect())
}

/// A name of something.
pub fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    named(deserializer, "one")
}

/// A name of something, if it has one.
pub fn name_if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    name(deserializer).map(Some)
}

/// A size that something may have.
pub fn some_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<nf::ByteSize>, D::Error> {
    let size = nf::ByteSize::deserialize(deserializer)?;
    match size.bytes() {
        0 => Err(de::Error::custom(
            "no file is that small; write for example \"64MiB\", or take the line out",
        )),
        _ => Ok(Some(size)),
    }
}

/// An age that something may have.
pub fn some_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<nf::Period>, D::Error> {
    let time = nf::Period::deserialize(deserializer)?;
    match time.duration().is_zero() {
        true => Err(de::Error::custom(
            "no file is that young; write for example \"24h\", or take the line out",
        )),
        false => Ok(Some(time)),
    }
}

/// The message on an empty list.
const MATCHES_ALL: &str = "an empty list says nothing; name one, or take the line out to match all of them";

/// Prefixes of which one must match.
pub fn some_prefixes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Prefix>, D::Error> {
    let list = prefixes(deserializer)?;
    if list.is_empty() {
        return Err(de::Error::custom(MATCHES_ALL));
    }
    Ok(list)
}

/// An address of a host.
pub fn ip_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    struct Address(IpAddr);
    impl FromStr for Address {
        type Err = String;
        fn from_str(text: &str) -> Result<Self, String> {
            text.parse().map(Address).map_err(|_| {
                format!("`{text}` is no address of a host; write for example \"10.0.0.1\" or \"fd00::1\"")
            })
        }
    }
    let text = Text::<Address>(PhantomData, "an address, like \"10.0.0.1\"");
    deserializer.deserialize_str(text).map(|address| Some(address.0))
}

/// A link-layer address, of words.
pub fn link_address_of(text: &str) -> Result<[u8; 6], String> {
    let bytes: Option<Vec<u8>> = (text.split(':'))
        .map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2))
        .collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("`{text}` is no link address; write six bytes, like \"52:54:00:12:34:56\""))
}

/// A link-layer address.
pub fn link_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[u8; 6]>, D::Error> {
    struct Address([u8; 6]);
    impl FromStr for Address {
        type Err = String;
        fn from_str(text: &str) -> Result<Self, String> {
            link_address_of(text).map(Address)
        }
    }
    let text = Text::<Address>(PhantomData, "a link address, like \"52:54:00:12:34:56\"");
    deserializer.deserialize_str(text).map(|address| Some(address.0))
}

/// A whole number between two bounds.
struct Between {
    least: u64,
    most: u64,
}

impl Visitor<'_> for Between {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {}", self.least, self.most)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        if (self.least..=self.most).contains(&number) {
            Ok(number)
        } else {
            Err(E::invalid_value(de::Unexpected::Unsigned(number), &self))
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
        }
    }
}

/// A number of workers.
pub fn from_1_to_64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let number = deserializer.deserialize_u64(Between { least: 1, most: 64 })?;
    Ok(u16::try_from(number).expect("at most 64"))
}

/// A member's number of workers, if it has any.
pub fn workers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    from_1_to_64(deserializer).map(Some)
}

/// The longest frame, if it is said: no shorter than Ethernet's.
pub fn frame<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    let number = deserializer.deserialize_u64(Between {
        least: 1514,
        most: 65535,
    })?;
    Ok(Some(u16::try_from(number).expect("at most 65535")))
}

/// A number of flows: a worker's 32-bit positions can tell them apart, with room to spare.
pub fn flows<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = deserializer.deserialize_u64(Between {
        least: 1,
        most: 1 << 28,
    })?;
    Ok(u32::try_from(number).expect("at most 2^28"))
}

/// A number of packets held, each of which takes a buffer.
pub fn held<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = deserializer.deserialize_u64(Between {
        least: 1,
        most: 1 << 16,
    })?;
    Ok(u32::try_from(number).expect("at most 2^16"))
}

/// A number of groups that may be on their way: others bound by it how much they keep.
pub fn moves<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let most = u64::from(runtime::mobility::MOVES_MAX);
    let number = deserializer.deserialize_u64(Between { least: 1, most })?;
    Ok(u32::try_from(number).expect("at most 256"))
}

/// How long a move may take.
pub fn move_timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<nf::Period>, D::Error> {
    let period = nf::Period::deserialize(deserializer)?;
    let bounds = std::time::Duration::from_millis(10)..=std::time::Duration::from_secs(3600);
    match bounds.contains(&period.duration()) {
        true => Ok(Some(period)),
        false => Err(serde::de::Error::custom(
            "a move takes from 10ms to 1h; write for example \"2s\"",
        )),
    }
}

/// How long something is waited for.
pub fn packets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let packets = u16::deserialize(deserializer)?;
    match (1..=runtime::replication::PACKETS_MAX).contains(&packets) {
        true => Ok(packets),
        false => Err(serde::de::Error::custom("from 1 to 32767; write for example 16")),
    }
}

/// A part of the time.
pub fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    let number = deserializer.deserialize_u64(Between { least: 1, most: 100 })?;
    Ok(u8::try_from(number).expect("at most 100"))
}

/// A time from 10 ms to an hour.
pub fn wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<nf::Period, D::Error> {
    let period = nf::Period::deserialize(deserializer)?;
    let bounds = std::time::Duration::from_millis(10)..=std::time::Duration::from_secs(3600);
    match bounds.contains(&period.duration()) {
        true => Ok(period),
        false => Err(serde::de::Error::custom(
            "from 10ms to 1h; write for example \"200ms\"",
        )),
    }
}

impl<'de> Deserialize<'de> for Threads {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl Visitor<'_> for Words {
            type Value = Threads;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\" or 1")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Threads, E> {
                match text {
                    "auto" => Ok(Threads::Auto),
                    "1" => Ok(Threads::One),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Threads, E> {
                match number {
                    1 => Ok(Threads::One),
                    _ => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
                }
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Threads, E> {
                self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
            }
        }
        deserializer.deserialize_any(Words)
    }
}

impl JsonSchema for Threads {
    fn schema_name() -> Cow<'static, str> {
        "Threads".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": ["auto", 1] })
    }
}

/// In schemas: text or a number.
#[derive(Debug)]
pub struct Named;

impl JsonSchema for Named {
    fn schema_name() -> Cow<'static, str> {
        "Named".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"] })
    }
}

/// In schemas: one, or a list.
#[derive(Debug)]
pub struct OneOrMany<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

/// RFC 1918 and RFC 4193.
pub fn private_addresses() -> Vec<Prefix> {
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"]
        .iter()
        .map(|text| text.parse().expect("a prefix"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_checked_for_their_role() {
        assert_eq!(
            Uri::new("pcap:a.pcap?loop=3", Role::Input).unwrap().as_str(),
            "pcap:a.pcap?loop=3"
        );
        assert!(Uri::new("pcap:a.pcap?loop=3", Role::Output).is_err());
        assert!(
            Uri::new("a.pcap", Role::Input)
                .unwrap_err()
                .contains("write for example `pcap:a.pcap`")
        );
    }

    #[test]
    fn what_is_no_address_with_a_port_is_told_what_to_write() {
        let read = |text| AddressWithPort("192.0.2.9", 514).visit_str::<de::value::Error>(text);
        assert_eq!(read("[::1]:514").unwrap().to_string(), "[::1]:514");
        for (text, remedy) in [
            ("99", "write for example \"192.0.2.9:99\" or \"[2001:db8::9]:99\""),
            (
                ":99",
                "write for example \"192.0.2.9:99\" or \"[2001:db8::9]:99\"",
            ),
            ("192.0.2.9", "write \"192.0.2.9:514\""),
            ("2001:db8::9", "write \"[2001:db8::9]:514\""),
            ("[2001:db8::9]", "write \"[2001:db8::9]:514\""),
            (
                "192.0.2.9:99999",
                "a port is a number from 1 to 65535: write for example \"192.0.2.9:514\"",
            ),
            ("udp://192.0.2.9:5514/", "write \"192.0.2.9:5514\""),
            (
                "host",
                "names are not looked up: write an address, for example \"192.0.2.9:514\" or \"[2001:db8::9]:514\"",
            ),
            (
                "host:99",
                "names are not looked up: write an address, for example \"192.0.2.9:99\" or \"[2001:db8::9]:99\"",
            ),
        ] {
            let said = read(text).unwrap_err().to_string();
            assert_eq!(said, format!("`{text}` is no address with a port; {remedy}"));
        }
    }

    #[test]
    fn a_name_can_be_shown() {
        assert_eq!(unnamed("größe 1", "one"), None);
        for wrong in ["", "  ", "a\nb", "\0"] {
            assert!(unnamed_parts(wrong).is_some(), "{wrong:?}");
        }
    }

    #[test]
    fn ranges_and_protocols() {
        assert_eq!("80".parse(), Ok(PortRange { first: 80, last: 80 }));
        assert_eq!(
            "8000-8100".parse(),
            Ok(PortRange {
                first: 8000,
                last: 8100
            })
        );
        assert!("9-8".parse::<PortRange>().unwrap_err().contains("write \"8-9\""));
        assert!("65536".parse::<PortRange>().is_err());
        assert_eq!("TCP".parse::<Protocol>().map(|p| p.0), Ok(6));
        assert_eq!("47".parse::<Protocol>().map(|p| p.0), Ok(47));
        assert!(
            "tpc"
                .parse::<Protocol>()
                .is_err_and(|problem| problem.contains("write `tcp`"))
        );
    }
}
