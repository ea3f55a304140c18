//! Why a cluster cannot be started, and whether that is the configuration.

use crate::config::layout::WorkerId;
use crate::member::joining::JoinError;
use adapters::open::OpenError;
use adapters::pages::PagesError;
use nf::ConfigError;
use runtime::chain::PlanError;
use runtime::env::AttachError;

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
        "this needs {needs} of memory at the start, and this machine has {has}: `{setting}` takes {takes}; lower it \
         (`flowkeep chain check` shows what each table takes)"
    )]
    TooLittle {
        /// What it takes at the start.
        needs: String,
        /// What there is.
        has: String,
        /// What takes most.
        setting: String,
        /// How much that is.
        takes: String,
    },
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
        /// Those that there are.
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
    /// Whether the configuration says something that cannot be, whatever the machine; else the machine refused.
    pub fn is_of_configuration(&self) -> bool {
        match self {
            RunError::Port { source, .. } => matches!(
                source,
                OpenError::Uri(_) | OpenError::InUse { .. } | OpenError::ReflectorIsBoth { .. }
            ),
            RunError::EmptyPort { .. }
            | RunError::NoInput
            | RunError::Plan(_)
            | RunError::NoSuchPort { .. }
            | RunError::Function { .. } => true,
            RunError::Memory(_)
            | RunError::TooLittle { .. }
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
