//! Why a cluster cannot be started, and whether that is the configuration.

use crate::config::layout::WorkerId;
use crate::member::joining::JoinError;
use adapters::open::OpenError;
use adapters::pages::PagesError;
use nf::ConfigError;
use runtime::chain::PlanError;
use runtime::env::AttachError;
use runtime::replication::STORED_AS;

/// More than there is.
#[derive(Debug)]
pub struct Shortage {
    /// The memory needed at the start.
    pub needs: String,
    /// The same in units of 1024 bytes.
    pub kilobytes: u64,
    /// The memory that there is.
    pub has: String,
    /// The setting that takes most.
    pub setting: String,
    /// How much that is.
    pub takes: String,
    /// How low it must be, where that is known.
    pub to: String,
    /// The same of `flows_max`, by proportion; 0 where no number is low enough.
    pub flows: u32,
}

/// Why a cluster cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A port cannot be opened.
    #[error("port `{port}`: {source}")]
    Port {
        /// Its name.
        port: String,
        /// Why.
        source: OpenError,
    },
    /// A port with neither input nor output.
    #[error("port `{port}` has neither an input nor an output; give it one, like `input = \"pcap:in.pcap\"`")]
    EmptyPort {
        /// Its name.
        port: String,
    },
    /// No port to read from.
    #[error("no port has an input; say where packets come from, like `input = \"pcap:in.pcap\"`")]
    NoInput,
    /// The chains cannot be.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A function refuses its settings.
    #[error("function `{function}`: {source}")]
    Function {
        /// Its name.
        function: String,
        /// Why.
        source: ConfigError,
    },
    /// There is no memory for packet buffers.
    #[error(transparent)]
    Memory(#[from] PagesError),
    /// There is too little memory for its tables.
    #[error(
        "this needs {} of memory at the start, and this machine has {}: `{}` takes {}; lower it{} \
         (`flowkeep chain check` shows what each table takes)", .0.needs, .0.has, .0.setting, .0.takes, .0.to
    )]
    TooLittle(Box<Shortage>),
    /// There is too little address space for its tables.
    #[error(
        "this maps {} at the start, and this process may map {}; raise that (`ulimit -v {kilobytes}`; of a unit \
         `LimitAS={kilobytes}K`), or lower `{}`{}; it takes {}",
        .0.needs, .0.has, .0.setting, .0.to, .0.takes, kilobytes = .0.kilobytes
    )]
    TooLittleSpace(Box<Shortage>),
    /// The kernel's tables cannot be followed.
    #[error(transparent)]
    Kernel(adapters::netlink::NetlinkError),
    /// An interface for a port that is none.
    #[error(
        "function `forward`: `interfaces` names the port `{port}`, which is not there; write the name of a [[port]]"
    )]
    NoSuchPort {
        /// The name.
        port: String,
    },
    /// A port's interface that the kernel does not have.
    #[error("there is no interface `{interface}`; there are: {there_are}")]
    NoSuchInterface {
        /// The name.
        interface: String,
        /// The interfaces that there are.
        there_are: String,
    },
    /// A pool that links cannot work with.
    #[error("the buffers of {near}: {source}")]
    Pool {
        /// The worker.
        near: WorkerId,
        /// Why.
        source: AttachError,
    },
    /// A link to another process.
    #[error("the link of {near} to {far} cannot be: {source}")]
    Link {
        /// The worker here.
        near: WorkerId,
        /// The worker there.
        far: WorkerId,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Rights cannot be given up.
    #[error("{0}")]
    Privileges(String),
    /// The coordinator does not take it in.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A store of variables cannot be opened.
    #[error(transparent)]
    Store(#[from] stores::Failure),
    /// A thread cannot be started.
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}

impl RunError {
    /// Whether the configuration says something that cannot be, which `chain check` calls an error.
    /// Else the machine refused, of which `chain check` warns at most.
    pub fn is_of_configuration(&self) -> bool {
        match self {
            RunError::Port { source, .. } => matches!(
                source,
                OpenError::Uri(_)
                    | OpenError::Capture(_)
                    | OpenError::Generator { .. }
                    | OpenError::NoGenerator { .. }
                    | OpenError::InUse { .. }
                    | OpenError::ReflectorIsBoth { .. }
            ),
            RunError::EmptyPort { .. }
            | RunError::NoInput
            | RunError::Plan(_)
            | RunError::NoSuchPort { .. } => true,
            // A store that does not answer is none of the configuration.
            RunError::Function { function, source } => {
                source.at != nf::function::VARIABLES && function != STORED_AS
            }
            RunError::Memory(_)
            | RunError::TooLittle(_)
            | RunError::TooLittleSpace(_)
            | RunError::Join(_)
            | RunError::Thread(_)
            | RunError::Store(_)
            | RunError::Privileges(_)
            | RunError::Kernel(_)
            | RunError::NoSuchInterface { .. }
            | RunError::Link { .. }
            | RunError::Pool { .. } => false,
        }
    }
}
