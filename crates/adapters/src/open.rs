//! Opens ports by their URIs.
//!
//! Theory of operation. [`Ports`] has the parts that the ports of one process share: where they
//! report to, the memory queues by name, which files are being read and written, and how a
//! generator is made.
//!
//! ```no_run
//! use flowkeep_adapters::open::Ports;
//! let mut ports = Ports::new();
//! let inside = ports.open_input("pcap:in.pcap?loop=3")?;
//! let outside = ports.open_output("reflect:?mode=answer&record=out.pcapng")?;
//! for report in ports.reports().take() {
//!     eprintln!("{report}");
//! }
//! # Ok::<(), flowkeep_adapters::open::OpenError>(())
//! ```
//!
//! Invariant: no file is written that this process reads or writes otherwise.
//!
//! Not here: the URIs' meaning ([`crate::uri`]), which port is on which side.

use crate::afpacket::{Half, PacketPort};
use crate::afxdp::{Redirects, XdpPort};
use crate::interface::InterfaceError;
use crate::interface::addresses::Addresses;
use crate::memory::{MemoryEnd, MemoryPort};
use crate::pcap::{CaptureError, Format, PcapInput, PcapOutput};
use crate::pipe;
use crate::reflect::ReflectPort;
use crate::report::Reports;
use crate::tee::{Duplex, Tee};
use crate::uri::{GenerateUri, PortUri, Role, UriError};
use runtime::env::{AttachError, Port};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Any port.
pub type BoxPort = Box<dyn Port + Send>;

/// Makes a generator; the error says the profile's problem and how to mend it.
pub type OpenGenerator = fn(&GenerateUri, &Reports) -> Result<BoxPort, String>;

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URI does not hold.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// A capture cannot be read or written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A network interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A port cannot work with the buffers that there are.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A file is to be written that this run already has open.
    #[error("{path}: this run reads or writes it already; choose another name for the written file", path = path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The generator refused its profile.
    #[error("generate:{profile}: {problem}", profile = profile.display())]
    Generator {
        /// The profile.
        profile: PathBuf,
        /// The problem.
        problem: String,
    },
    /// This process has no generator.
    #[error("generate:{profile}: this program was built without the generator; use a capture (`pcap:…`)", profile = profile.display())]
    NoGenerator {
        /// The profile.
        profile: PathBuf,
    },
    /// A reflector was joined with something else.
    #[error("`{uri}` answers by itself, so it is input and output in one; leave the port's other half out")]
    ReflectorIsBoth {
        /// The reflector.
        uri: String,
    },
}

fn unreadable(source: std::io::Error) -> InterfaceError {
    InterfaceError::System {
        port: "addresses of this host".into(),
        what: "they cannot be read",
        source,
        advice: String::new(),
    }
}

/// The parts that the ports of one process share.
#[derive(Default)]
pub struct Ports {
    reports: Reports,
    memories: BTreeMap<String, MemoryEnd>,
    files: BTreeSet<(u64, u64)>,
    generator: Option<OpenGenerator>,
    /// This host's own addresses, once a port asks.
    addresses: Option<Arc<Addresses>>,
    redirects: Redirects,
}

impl Ports {
    /// No port yet, and no generator.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a generator for `generate:` URIs.
    #[must_use]
    pub fn with_generator(mut self, generator: OpenGenerator) -> Self {
        self.generator = Some(generator);
        self
    }

    /// Where the ports report to.
    pub fn reports(&self) -> &Reports {
        &self.reports
    }

    /// The other end of `memory:name`.
    pub fn memory(&mut self, name: &str) -> MemoryEnd {
        let new = || MemoryPort::new(name).1;
        self.memories.entry(name.to_owned()).or_insert_with(new).clone()
    }

    /// Called when all ports are open: an error for an interface of which only some queues are
    /// read.
    pub fn complete(&self) -> Result<(), OpenError> {
        Ok(self.redirects.complete()?)
    }

    /// Follows this host's own addresses from now on, by a thread with the rights of this one.
    pub fn follow_addresses(&self) -> Result<(), OpenError> {
        match &self.addresses {
            Some(addresses) => Ok(addresses.follow().map_err(unreadable)?),
            None => Ok(()),
        }
    }

    /// Opens the port that packets come from.
    pub fn open_input(&mut self, uri: &str) -> Result<BoxPort, OpenError> {
        self.open_one(PortUri::parse(uri, Role::Input)?, Half::Receive)
    }

    /// Opens the port that packets go to.
    pub fn open_output(&mut self, uri: &str) -> Result<BoxPort, OpenError> {
        self.open_one(PortUri::parse(uri, Role::Output)?, Half::Transmit)
    }

    /// Opens a port that receives from one thing and transmits to another. The same memory queue,
    /// reflector or interface as both is one port.
    pub fn open(&mut self, input: &str, output: &str) -> Result<BoxPort, OpenError> {
        let (from, to) = pair(input, output)?;
        if from == to {
            return self.open_one(from, Half::Both);
        }
        let from = self.open_one(from, Half::Receive)?;
        Ok(Box::new(Duplex::new(from, self.open_one(to, Half::Transmit)?)))
    }

    fn open_one(&mut self, uri: PortUri, half: Half) -> Result<BoxPort, OpenError> {
        Ok(match uri {
            PortUri::PcapInput { path, settings } => {
                let port = PcapInput::open(&path, settings, self.reports.clone())?;
                self.files.extend(identity(&path));
                Box::new(port)
            }
            PortUri::PcapOutput { path, format } => Box::new(self.create(&path, format)?),
            PortUri::Memory { name } => Box::new(self.memory(&name).port()),
            PortUri::Packet { interface, settings } => {
                let reports = self.reports.clone();
                let addresses = || self.addresses();
                Box::new(PacketPort::open(&interface, settings, half, addresses, reports)?)
            }
            PortUri::Xdp { interface, settings } => {
                let (reports, redirects) = (self.reports.clone(), self.redirects.clone());
                let addresses = || self.addresses();
                Box::new(XdpPort::open(
                    &interface, settings, half, &redirects, addresses, reports,
                )?)
            }
            PortUri::Generate(uri) => self.generate(&uri)?,
            PortUri::Reflect {
                settings,
                record,
                record_answers,
            } => {
                let sent = self.create_by_name(record)?;
                let received = self.create_by_name(record_answers)?;
                let port = ReflectPort::new(settings);
                if sent.is_none() && received.is_none() {
                    return Ok(Box::new(port));
                }
                Box::new(Tee::new(port, sent, received))
            }
        })
    }

    /// This host's own addresses: one map for all ports.
    fn addresses(&mut self) -> Result<Arc<Addresses>, InterfaceError> {
        if let Some(addresses) = &self.addresses {
            return Ok(addresses.clone());
        }
        let addresses = Addresses::read(self.reports.clone()).map_err(unreadable)?;
        Ok(self.addresses.insert(Arc::new(addresses)).clone())
    }

    fn generate(&self, uri: &GenerateUri) -> Result<BoxPort, OpenError> {
        let profile = uri.profile.clone();
        let Some(open) = self.generator else {
            return Err(OpenError::NoGenerator { profile });
        };
        open(uri, &self.reports).map_err(|problem| OpenError::Generator { profile, problem })
    }

    fn create_by_name(&mut self, path: Option<PathBuf>) -> Result<Option<PcapOutput>, OpenError> {
        path.map(|path| self.create(&path, Format::of_name(&path)))
            .transpose()
    }

    fn create(&mut self, path: &Path, format: Format) -> Result<PcapOutput, OpenError> {
        if identity(path).is_some_and(|file| self.files.contains(&file)) {
            return Err(OpenError::InUse {
                path: path.to_owned(),
            });
        }
        let file = pipe::create(path).map_err(|source| CaptureError::Create {
            path: path.to_owned(),
            source,
        })?;
        self.files.extend(identity(path));
        Ok(PcapOutput::new(
            file,
            path.to_owned(),
            format,
            self.reports.clone(),
        ))
    }
}

/// Whether [`Ports::open`] takes the two as halves of one port; nothing is opened.
pub fn check_pair(input: &str, output: &str) -> Result<(), OpenError> {
    pair(input, output).map(drop)
}

fn pair(input: &str, output: &str) -> Result<(PortUri, PortUri), OpenError> {
    let from = PortUri::parse(input, Role::Input)?;
    let to = PortUri::parse(output, Role::Output)?;
    if from != to {
        for (uri, parsed) in [(input, &from), (output, &to)] {
            if matches!(parsed, PortUri::Reflect { .. }) {
                return Err(OpenError::ReflectorIsBoth { uri: uri.to_owned() });
            }
        }
    }
    Ok((from, to))
}

/// A file by its device and number, which all its names share; `None` for a path to no file, such
/// as a pipe: ports may share it.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let file = fs::metadata(path).ok()?;
    file.is_file().then(|| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Frame;
    use runtime::env::Burst;
    use wire::memory::Region;
    use wire::{LinkType, Pool};

    fn text(path: &Path, scheme: &str) -> String {
        format!("{scheme}:{}", path.display())
    }

    fn pool() -> Pool {
        Pool::new(Region::heap(Pool::region_length(8, 256)), 8, 256, 0)
    }

    #[test]
    fn packets_go_from_port_to_port() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap");
        let (mut pool, mut burst) = (pool(), Burst::new());
        let mut ports = Ports::new();
        let end = ports.memory("in");
        let frame = Frame {
            timestamp: 5,
            ..Frame::new(&[1; 30], LinkType::Raw)
        };
        end.push_frame(frame.clone());
        let mut inside = ports.open_input("memory:in").unwrap();
        let mut outside = ports.open_output(&text(&path, "pcap")).unwrap();
        inside.receive(0, &mut pool, &mut burst);
        outside.transmit(0, &mut pool, &mut burst);
        drop(outside);

        let mut ports = Ports::new();
        let end = ports.memory("out");
        let mut both = ports.open(&text(&path, "pcap"), "memory:out").unwrap();
        both.receive(0, &mut pool, &mut burst);
        both.transmit(0, &mut pool, &mut burst);
        assert_eq!(end.take(), Some(frame));
        assert!(ports.reports().take().is_empty());
    }

    #[test]
    fn a_reflector_records_and_is_one_port() {
        let folder = tempfile::tempdir().unwrap();
        let (sent, back) = (
            folder.path().join("sent.pcapng"),
            folder.path().join("back.pcapng"),
        );
        let mut ports = Ports::new();
        let uri = format!(
            "reflect:?record={}&record_answers={}",
            sent.display(),
            back.display()
        );
        drop(ports.open_output(&uri).unwrap());
        assert!(sent.is_file() && back.is_file());
        assert!(ports.open("reflect:", "reflect:").is_ok());
        let error = ports
            .open("memory:a", "reflect:?queue=7")
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.starts_with("`reflect:?queue=7` answers by itself"),
            "{error}"
        );
    }

    #[test]
    fn no_file_is_emptied_that_is_being_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap");
        let mut ports = Ports::new();
        drop(ports.open_output(&text(&path, "pcap")).unwrap());
        let length = fs::metadata(&path).unwrap().len();
        // Under other names, too.
        let other = folder.path().join(".").join("a.pcap");
        let (hard, soft) = (folder.path().join("hard.pcap"), folder.path().join("soft.pcap"));
        fs::hard_link(&path, &hard).unwrap();
        std::os::unix::fs::symlink(&path, &soft).unwrap();
        let mut ports = Ports::new();
        let _reads = ports.open_input(&text(&path, "pcap")).unwrap();
        for name in [other, hard, soft] {
            assert!(matches!(
                ports.open_output(&text(&name, "pcap")),
                Err(OpenError::InUse { .. })
            ));
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), length);
        let new = folder.path().join("new.pcap");
        let _writes = ports.open_output(&text(&new, "pcap")).unwrap();
        assert!(matches!(
            ports.open_output(&text(&new, "pcap")),
            Err(OpenError::InUse { .. })
        ));
        assert!(ports.open_output("pcap:/dev/null").is_ok() && ports.open_output("pcap:/dev/null").is_ok());
    }

    #[test]
    fn a_generator_is_injected() {
        let mut ports = Ports::new();
        let error = ports.open_input("generate:p.toml").err().unwrap().to_string();
        assert!(error.contains("without the generator"), "{error}");
        let mut ports = Ports::new().with_generator(|uri, _| match uri.profile.to_str() {
            Some("good.toml") => Ok(Box::new(MemoryPort::new("g").0)),
            _ => Err("no such profile".into()),
        });
        assert!(ports.open_input("generate:good.toml").is_ok());
        let error = ports.open_input("generate:bad.toml").err().unwrap().to_string();
        assert_eq!(error, "generate:bad.toml: no such profile");
    }

    #[test]
    fn errors_name_the_file() {
        let mut ports = Ports::new();
        let error = ports
            .open_input("pcap:/nowhere/a.pcap")
            .err()
            .unwrap()
            .to_string();
        assert!(error.starts_with("/nowhere/a.pcap: cannot be opened"), "{error}");
        let error = ports
            .open_output("pcap:/nowhere/a.pcap")
            .err()
            .unwrap()
            .to_string();
        assert!(error.starts_with("/nowhere/a.pcap: cannot be created"), "{error}");
    }
}
