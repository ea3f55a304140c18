//! Ports by name: the text of a port, and its meaning.
//!
//! `scheme:name?parameter=value&parameter=value`, read for one role: input, or output.
//!
//! | URI | role | parameters |
//! |---|---|---|
//! | `pcap:in.pcap` | input | `timing=fast` or `original`; `speed=2` with the latter; `loop=3` or `forever` |
//! | `pcap:out.pcapng` | output | `format=pcap` or `pcapng` where the name does not say it |
//! | `memory:name` | both | |
//! | `generate:profile.toml` | input | read by the generator |
//! | `afpacket:eth0` | both | `take=routed` or `everything`; `fanout=7`; `fanout_by=hash` or `queue` |
//! | `afxdp:eth0` | both | `take=routed` or `everything`; `mode=native` or `generic`; `queue=0`; `copy=auto`, `yes` or `no` |
//! | `reflect:` | both | `mode=mirror` or `answer`; `queue=4096`; `record=sent.pcapng`; `record_answers=back.pcapng` |
//!
//! A name is everything up to the first `?`, taken as it stands; a parameter's value is everything
//! up to the next `&`.
//!
//! ```
//! use flowkeep_adapters::uri::{PortUri, Role};
//! let error = PortUri::parse("pcap:in.pcap?timng=original", Role::Input).unwrap_err();
//! assert_eq!(error.to_string(), "pcap: has no parameter `timng`; did you mean `timing`? There are: timing, speed, loop");
//! ```
//!
//! Invariant: any text gives a port or an error that says what to write instead; nothing is
//! ignored.
//!
//! Not here: opening ([`crate::open`]).

use crate::afpacket::{FanoutBy, PacketSettings, Taking};
use crate::afxdp::{Copying, Mode as XdpMode, XdpSettings};
use crate::pcap::{Format, InputSettings, Rounds, Timing};
use crate::reflect::{Mode, ReflectSettings};
use std::path::{Path, PathBuf};

/// The purpose of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Packets come from it.
    Input,
    /// Packets go to it.
    Output,
}

/// A port as its URI describes it.
#[derive(Clone, Debug, PartialEq)]
pub enum PortUri {
    /// A capture to be read.
    PcapInput {
        /// The file.
        path: PathBuf,
        /// How it is read.
        settings: InputSettings,
    },
    /// A capture to be written.
    PcapOutput {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: Format,
    },
    /// Queues in this process.
    Memory {
        /// Their name.
        name: String,
    },
    /// A network interface, by packet sockets.
    Packet {
        /// Its name.
        interface: String,
        /// How it is opened.
        settings: PacketSettings,
    },
    /// A network interface, by AF_XDP.
    Xdp {
        /// Its name.
        interface: String,
        /// How it is opened.
        settings: XdpSettings,
    },
    /// Generated traffic.
    Generate(GenerateUri),
    /// An outside world that answers.
    Reflect {
        /// How it answers.
        settings: ReflectSettings,
        /// The capture of packets sent to it.
        record: Option<PathBuf>,
        /// The capture of its answers.
        record_answers: Option<PathBuf>,
    },
}

/// A `generate:` URI; its parameters are the generator's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerateUri {
    /// The file that describes the traffic.
    pub profile: PathBuf,
    /// Parameters as written, in order.
    pub parameters: Vec<(String, String)>,
}

/// The problem of a URI, and the text to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// There is no colon.
    #[error("`{text}` does not say what it is; write for example `{}:{text}`. There are: {}", likely(text), SCHEMES.join(", "))]
    NoScheme {
        /// All of it.
        text: String,
    },
    /// The word before the colon is none of ours.
    #[error("there is no port `{scheme}:`{} There are: {}", meant(scheme, &SCHEMES), SCHEMES.join(", "))]
    UnknownScheme {
        /// The word.
        scheme: String,
    },
    /// Nothing stands behind the colon.
    #[error("`{scheme}:` names nothing; write for example `{example}`")]
    NoName {
        /// The scheme.
        scheme: &'static str,
        /// A whole one.
        example: &'static str,
    },
    /// A reflector has a name.
    #[error(
        "a reflector has no name: write `reflect:`, parameters behind a `?`, in place of `reflect:{name}`"
    )]
    NameOfReflector {
        /// The name.
        name: String,
    },
    /// A parameter has no value.
    #[error("`{part}` has no value; write `{part}=…`")]
    NoValue {
        /// The parameter.
        part: String,
    },
    /// A parameter is none of this port's.
    #[error("{scheme}: has no parameter `{name}`{} {}", meant(name, known), listed(known))]
    UnknownParameter {
        /// The scheme.
        scheme: &'static str,
        /// The parameter.
        name: String,
        /// The parameters that there are.
        known: &'static [&'static str],
    },
    /// A parameter is there twice.
    #[error("`{name}` is there twice; leave one out")]
    Twice {
        /// The parameter.
        name: String,
    },
    /// The parameter does not take this value.
    #[error("`{name}={value}` cannot be; {name} is {allowed}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// The value.
        value: String,
        /// The values that it takes.
        allowed: &'static str,
    },
    /// `speed` without `timing=original`.
    #[error(
        "`speed` is for the capture's own timing; write `timing=original&speed={value}`, or leave it out"
    )]
    SpeedOfNothing {
        /// Its value.
        value: String,
    },
    /// `fanout_by` without `fanout`.
    #[error(
        "`fanout_by` says how ports with one number share an interface; write `fanout=1&fanout_by={value}`, or leave it out"
    )]
    FanoutOfNothing {
        /// Its value.
        value: String,
    },
    /// A generator is no place to send packets to.
    #[error(
        "a generator makes packets and takes none; write `reflect:` for an outside that answers, or `pcap:out.pcap`"
    )]
    NoOutput,
}

/// The likely scheme of a name without one: an interface of this machine, or a file.
fn likely(name: &str) -> &'static str {
    let is_name = !name.is_empty() && !name.contains(['/', '.']);
    match is_name && std::path::Path::new("/sys/class/net").join(name).exists() {
        true => "afpacket",
        false => "pcap",
    }
}

const SCHEMES: [&str; 6] = ["pcap", "memory", "generate", "reflect", "afpacket", "afxdp"];
const PCAP_INPUT: &[&str] = &["timing", "speed", "loop"];
const PCAP_OUTPUT: &[&str] = &["format"];
const MEMORY: &[&str] = &[];
const PACKET: &[&str] = &["take", "fanout", "fanout_by"];
const XDP: &[&str] = &["take", "mode", "queue", "copy"];
const REFLECT: &[&str] = &["mode", "queue", "record", "record_answers"];

impl PortUri {
    /// Reads a URI for a role.
    pub fn parse(text: &str, role: Role) -> Result<Self, UriError> {
        let (scheme, rest) = text.split_once(':').ok_or_else(|| UriError::NoScheme {
            text: text.to_owned(),
        })?;
        let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
        match (scheme, role) {
            ("pcap", Role::Input) => pcap_input(name, query),
            ("pcap", Role::Output) => pcap_output(name, query),
            ("memory", _) => {
                Parameters::read("memory", query, MEMORY)?;
                let name = named(name, "memory", "memory:inside")?.to_owned();
                Ok(PortUri::Memory { name })
            }
            ("generate", Role::Output) => Err(UriError::NoOutput),
            ("generate", Role::Input) => Ok(PortUri::Generate(GenerateUri {
                profile: named(name, "generate", "generate:profile.toml")?.into(),
                parameters: pairs(query)?
                    .into_iter()
                    .map(|(n, v)| (n.to_owned(), v.to_owned()))
                    .collect(),
            })),
            ("reflect", _) => reflect(name, query),
            ("afpacket", _) => packet(name, query),
            ("afxdp", _) => xdp(name, query),
            _ => Err(UriError::UnknownScheme {
                scheme: scheme.to_owned(),
            }),
        }
    }
}

fn pcap_input(name: &str, query: &str) -> Result<PortUri, UriError> {
    let parameters = Parameters::read("pcap", query, PCAP_INPUT)?;
    let path = named(name, "pcap", "pcap:in.pcap")?.into();
    let speed = parameters.value("speed", "a number above 0, such as 2 or 0.5", |value| {
        value
            .parse()
            .ok()
            .filter(|speed: &f64| speed.is_finite() && *speed > 0.0)
    })?;
    let original = parameters.value("timing", "`fast` or `original`", |value| match value {
        "fast" => Some(false),
        "original" => Some(true),
        _ => None,
    })?;
    let timing = match (original.unwrap_or(false), speed) {
        (true, speed) => Timing::Original {
            speed: speed.unwrap_or(1.0),
        },
        (false, None) => Timing::Fast,
        (false, Some(_)) => {
            let value = parameters.raw("speed").unwrap_or_default().to_owned();
            return Err(UriError::SpeedOfNothing { value });
        }
    };
    let rounds = parameters.value("loop", "a number from 1 on, or `forever`", |value| match value {
        "forever" => Some(Rounds::Forever),
        number => number.parse().ok().filter(|n| *n > 0).map(Rounds::Times),
    })?;
    let rounds = rounds.unwrap_or(Rounds::Times(1));
    Ok(PortUri::PcapInput {
        path,
        settings: InputSettings { timing, rounds },
    })
}

fn pcap_output(name: &str, query: &str) -> Result<PortUri, UriError> {
    let parameters = Parameters::read("pcap", query, PCAP_OUTPUT)?;
    let path: PathBuf = named(name, "pcap", "pcap:out.pcap")?.into();
    let format = parameters.value("format", "`pcap` or `pcapng`", |value| match value {
        "pcap" => Some(Format::Pcap),
        "pcapng" => Some(Format::PcapNg),
        _ => None,
    })?;
    let format = format.unwrap_or(Format::of_name(Path::new(&path)));
    Ok(PortUri::PcapOutput { path, format })
}

fn reflect(name: &str, query: &str) -> Result<PortUri, UriError> {
    let parameters = Parameters::read("reflect", query, REFLECT)?;
    if !name.is_empty() {
        return Err(UriError::NameOfReflector {
            name: name.to_owned(),
        });
    }
    let mut settings = ReflectSettings::default();
    let mode = parameters.value("mode", "`mirror` or `answer`", |value| match value {
        "mirror" => Some(Mode::Mirror),
        "answer" => Some(Mode::Answer),
        _ => None,
    })?;
    settings.mode = mode.unwrap_or(settings.mode);
    let queue = parameters.value("queue", "a number of packets from 1 on", |value| {
        value.parse().ok().filter(|packets| *packets > 0)
    })?;
    settings.queue = queue.unwrap_or(settings.queue);
    let file = |name| parameters.value(name, "a file's name", |v| (!v.is_empty()).then(|| v.into()));
    Ok(PortUri::Reflect {
        settings,
        record: file("record")?,
        record_answers: file("record_answers")?,
    })
}

fn packet(name: &str, query: &str) -> Result<PortUri, UriError> {
    let parameters = Parameters::read("afpacket", query, PACKET)?;
    let interface = named(name, "afpacket", "afpacket:eth0")?.to_owned();
    let fanout = parameters.value("fanout", "a number from 0 to 65535", |value| value.parse().ok())?;
    let by = parameters.value("fanout_by", "`hash` or `queue`", |value| match value {
        "hash" => Some(FanoutBy::Hash),
        "queue" => Some(FanoutBy::Queue),
        _ => None,
    })?;
    if let (None, Some(value)) = (fanout, parameters.raw("fanout_by")) {
        return Err(UriError::FanoutOfNothing {
            value: value.to_owned(),
        });
    }
    let settings = PacketSettings {
        taking: taking(&parameters)?,
        fanout,
        fanout_by: by.unwrap_or_default(),
    };
    Ok(PortUri::Packet { interface, settings })
}

fn xdp(name: &str, query: &str) -> Result<PortUri, UriError> {
    let parameters = Parameters::read("afxdp", query, XDP)?;
    let interface = named(name, "afxdp", "afxdp:eth0")?.to_owned();
    let mode = parameters.value("mode", "`native` or `generic`", |value| match value {
        "native" => Some(XdpMode::Native),
        "generic" => Some(XdpMode::Generic),
        _ => None,
    })?;
    let copying = parameters.value("copy", "`auto`, `yes` or `no`", |value| match value {
        "auto" => Some(Copying::Auto),
        "yes" => Some(Copying::Copy),
        "no" => Some(Copying::ZeroCopy),
        _ => None,
    })?;
    let settings = XdpSettings {
        taking: taking(&parameters)?,
        mode: mode.unwrap_or_default(),
        copying: copying.unwrap_or_default(),
        queue: parameters.value("queue", "a number from 0 on", |value| value.parse().ok())?,
    };
    Ok(PortUri::Xdp { interface, settings })
}

fn taking(parameters: &Parameters<'_>) -> Result<Taking, UriError> {
    let taking = parameters.value("take", "`routed` or `everything`", |value| match value {
        "routed" => Some(Taking::Routed),
        "everything" => Some(Taking::Everything),
        _ => None,
    })?;
    Ok(taking.unwrap_or_default())
}

fn named<'a>(name: &'a str, scheme: &'static str, example: &'static str) -> Result<&'a str, UriError> {
    if name.is_empty() {
        Err(UriError::NoName { scheme, example })
    } else {
        Ok(name)
    }
}

/// `a=1&b=2`, in order.
fn pairs(query: &str) -> Result<Vec<(&str, &str)>, UriError> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let pair = part.split_once('=').ok_or_else(|| UriError::NoValue {
            part: part.to_owned(),
        })?;
        if pairs.iter().any(|(name, _)| *name == pair.0) {
            return Err(UriError::Twice {
                name: pair.0.to_owned(),
            });
        }
        pairs.push(pair);
    }
    Ok(pairs)
}

/// Parameters whose names are all known.
struct Parameters<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Parameters<'a> {
    fn read(scheme: &'static str, query: &'a str, known: &'static [&'static str]) -> Result<Self, UriError> {
        let pairs = pairs(query)?;
        match pairs.iter().find(|(name, _)| !known.contains(name)) {
            None => Ok(Parameters(pairs)),
            Some((name, _)) => Err(UriError::UnknownParameter {
                scheme,
                name: (*name).to_owned(),
                known,
            }),
        }
    }

    fn raw(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }

    /// The value if the parameter is there; an error if `read` makes nothing of it.
    fn value<T>(
        &self,
        name: &'static str,
        allowed: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, UriError> {
        match self.raw(name) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| UriError::Value {
                name,
                value: value.to_owned(),
                allowed,
            }),
        }
    }
}

/// The sentence's end: a question if something known is near.
fn meant(word: &str, known: &[&str]) -> String {
    let distance = |name: &&&str| strsim::damerau_levenshtein(&word.to_lowercase(), name);
    match known.iter().min_by_key(distance) {
        Some(near) if distance(&near) <= near.len().div_ceil(2) => format!("; did you mean `{near}`?"),
        _ => ".".to_owned(),
    }
}

fn listed(known: &[&str]) -> String {
    match known {
        [] => "It takes none".to_owned(),
        all => format!("There are: {}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn input(text: &str) -> Result<PortUri, String> {
        PortUri::parse(text, Role::Input).map_err(|e| e.to_string())
    }

    fn output(text: &str) -> Result<PortUri, String> {
        PortUri::parse(text, Role::Output).map_err(|e| e.to_string())
    }

    fn capture(path: &str, timing: Timing, rounds: Rounds) -> Result<PortUri, String> {
        Ok(PortUri::PcapInput {
            path: path.into(),
            settings: InputSettings { timing, rounds },
        })
    }

    #[test]
    fn ports_by_name() {
        assert_eq!(
            input("pcap:in.pcap"),
            capture("in.pcap", Timing::Fast, Rounds::Times(1))
        );
        assert_eq!(
            input("pcap:/a b/in.pcap?timing=original&speed=2.5&loop=3"),
            capture("/a b/in.pcap", Timing::Original { speed: 2.5 }, Rounds::Times(3))
        );
        assert_eq!(
            input("pcap:x:y.pcap?loop=forever&timing=original"),
            capture("x:y.pcap", Timing::Original { speed: 1.0 }, Rounds::Forever)
        );
        let written = |path: &str, format| {
            Ok(PortUri::PcapOutput {
                path: path.into(),
                format,
            })
        };
        assert_eq!(output("pcap:out.pcap"), written("out.pcap", Format::Pcap));
        assert_eq!(output("pcap:out.PCAPNG"), written("out.PCAPNG", Format::PcapNg));
        assert_eq!(
            output("pcap:/dev/stdout?format=pcapng"),
            written("/dev/stdout", Format::PcapNg)
        );
        assert_eq!(input("memory:a"), output("memory:a"));
        let generate = GenerateUri {
            profile: "p.toml".into(),
            parameters: vec![("seed".into(), "7".into()), ("flows".into(), "10".into())],
        };
        assert_eq!(
            input("generate:p.toml?seed=7&flows=10"),
            Ok(PortUri::Generate(generate))
        );
        let reflector = PortUri::Reflect {
            settings: ReflectSettings {
                mode: Mode::Answer,
                queue: 9,
            },
            record: Some("s.pcapng".into()),
            record_answers: Some("b.pcapng".into()),
        };
        let text = "reflect:?mode=answer&queue=9&record=s.pcapng&record_answers=b.pcapng";
        assert_eq!(output(text), Ok(reflector));
        assert!(output("reflect:").is_ok());
        let packet = |settings| {
            Ok(PortUri::Packet {
                interface: "eth0".into(),
                settings,
            })
        };
        assert_eq!(input("afpacket:eth0"), packet(PacketSettings::default()));
        let settings = PacketSettings {
            taking: Taking::Everything,
            fanout: Some(7),
            fanout_by: FanoutBy::Queue,
        };
        assert_eq!(
            output("afpacket:eth0?take=everything&fanout=7&fanout_by=queue"),
            packet(settings)
        );
        let xdp = |settings| {
            Ok(PortUri::Xdp {
                interface: "eth0".into(),
                settings,
            })
        };
        assert_eq!(input("afxdp:eth0"), xdp(XdpSettings::default()));
        let settings = XdpSettings {
            taking: Taking::Everything,
            mode: XdpMode::Generic,
            copying: Copying::Copy,
            queue: Some(3),
        };
        assert_eq!(
            output("afxdp:eth0?take=everything&mode=generic&copy=yes&queue=3"),
            xdp(settings)
        );
    }

    #[test]
    fn errors_say_what_to_write() {
        let cases = [
            (
                input("in.pcap"),
                "`in.pcap` does not say what it is; write for example `pcap:in.pcap`. There are: pcap, memory, generate, reflect, afpacket, afxdp",
            ),
            (
                input("pacp:in.pcap"),
                "there is no port `pacp:`; did you mean `pcap`? There are: pcap, memory, generate, reflect, afpacket, afxdp",
            ),
            (
                input("https://x"),
                "there is no port `https:`. There are: pcap, memory, generate, reflect, afpacket, afxdp",
            ),
            (
                input("pcap:"),
                "`pcap:` names nothing; write for example `pcap:in.pcap`",
            ),
            (
                output("pcap:?format=pcap"),
                "`pcap:` names nothing; write for example `pcap:out.pcap`",
            ),
            (
                input("pcap:a?loop=0"),
                "`loop=0` cannot be; loop is a number from 1 on, or `forever`",
            ),
            (
                input("pcap:a?timing=slow"),
                "`timing=slow` cannot be; timing is `fast` or `original`",
            ),
            (
                input("pcap:a?timing=original&speed=-1"),
                "`speed=-1` cannot be; speed is a number above 0, such as 2 or 0.5",
            ),
            (
                input("pcap:a?speed=2"),
                "`speed` is for the capture's own timing; write `timing=original&speed=2`, or leave it out",
            ),
            (input("pcap:a?loop"), "`loop` has no value; write `loop=…`"),
            (
                input("pcap:a?loop=2&loop=3"),
                "`loop` is there twice; leave one out",
            ),
            (
                output("pcap:a?loop=2"),
                "pcap: has no parameter `loop`. There are: format",
            ),
            (
                input("memory:a?x=1"),
                "memory: has no parameter `x`. It takes none",
            ),
            (
                output("reflect:a"),
                "a reflector has no name: write `reflect:`, parameters behind a `?`, in place of `reflect:a`",
            ),
            (
                output("reflect:?mod=answer"),
                "reflect: has no parameter `mod`; did you mean `mode`? There are: mode, queue, record, record_answers",
            ),
            (
                output("reflect:?queue=many"),
                "`queue=many` cannot be; queue is a number of packets from 1 on",
            ),
            (
                input("lo"),
                "`lo` does not say what it is; write for example `afpacket:lo`. There are: pcap, memory, generate, reflect, afpacket, afxdp",
            ),
            (
                input("afpacket:"),
                "`afpacket:` names nothing; write for example `afpacket:eth0`",
            ),
            (
                input("afpacket:eth0?take=some"),
                "`take=some` cannot be; take is `routed` or `everything`",
            ),
            (
                input("afpacket:eth0?fanout=70000"),
                "`fanout=70000` cannot be; fanout is a number from 0 to 65535",
            ),
            (
                input("afxdp:eth0?mode=hardware"),
                "`mode=hardware` cannot be; mode is `native` or `generic`",
            ),
            (
                input("afxdp:eth0?queue=all"),
                "`queue=all` cannot be; queue is a number from 0 on",
            ),
            (
                input("afpacket:eth0?fanout_by=queue"),
                "`fanout_by` says how ports with one number share an interface; write `fanout=1&fanout_by=queue`, or leave it out",
            ),
            (
                output("reflect:?record="),
                "`record=` cannot be; record is a file's name",
            ),
        ];
        for (got, expected) in cases {
            assert_eq!(got.unwrap_err(), expected);
        }
        assert!(output("generate:p.toml").unwrap_err().contains("takes none"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_port_or_an_error(text in "(pcap|memory|generate|reflect|afpacket|afxdp|)?:?[ -~é]{0,40}") {
            for role in [Role::Input, Role::Output] {
                if let Err(error) = PortUri::parse(&text, role) {
                    prop_assert!(!error.to_string().is_empty());
                }
            }
        }
    }
}
