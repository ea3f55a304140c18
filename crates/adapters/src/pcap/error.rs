//! Why a capture could not be read or written on. Each text says the place and the remedy.

use std::io;
use std::path::PathBuf;

/// The remedy where a file cannot be opened; empty where none is known.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => {
            "; name a file that is there (a path begins at the folder in which this was started)"
        }
        io::ErrorKind::PermissionDenied => "; let the user that Flowkeep runs as read it, or copy it",
        io::ErrorKind::IsADirectory => "; name one of the captures in it",
        _ => "",
    }
}

/// Why a capture could not be read or written on.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be opened.
    #[error("{path}: cannot be opened: {source}{}", remedy(source), path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file cannot be created.
    #[error("{path}: cannot be created: {source}; choose a folder that exists and may be written to", path = path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file begins like no capture.
    #[error(
        "{path}: neither pcap nor pcapng: it begins with {start}; \
         a compressed capture is to be unpacked, another format converted (`editcap -F pcapng IN OUT`)",
        path = path.display()
    )]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// Its first bytes, in words.
        start: String,
    },
    /// The file begins like a capture, and its header does not hold.
    #[error(
        "{path}: no packet of it can be read: {problem}; name another capture, or take this one again",
        path = path.display()
    )]
    Header {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The file ends in the middle of something.
    #[error(
        "{path}: ends inside packet {packet}, which begins at byte {offset}; the packets before it were read. \
         Was it cut off, or is it still being written?",
        path = path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Number of the packet that is not whole, from 1.
        packet: u64,
        /// Where that packet's header begins.
        offset: u64,
    },
    /// The file contradicts its format.
    #[error(
        "{path}: damaged at byte {offset}, before or in packet {packet}: {problem}; the packets before it were read",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Number of the packet that was to be read, from 1.
        packet: u64,
        /// Where the record or block begins.
        offset: u64,
        /// The problem.
        problem: String,
    },
    /// The system could not read on.
    #[error("{path}: reading at byte {offset} failed: {source}; the packets before it were read", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// The system's answer.
        source: io::Error,
    },
}
