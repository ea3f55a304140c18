//! How two ends of a link find each other, and notice that the other is gone.
//!
//! Theory of operation. In a directory that both know the end with the lower number listens at a
//! socket; the other one connects. Each sends one message, with the memory that it reads from:
//!
//! ```text
//!   listening end   waits ── hello, memory ─► maps it, answers: hello, memory ─► session
//!   other end       connects ─ hello, memory ─► waits ── hello, memory ─► maps it ─► session
//! ```
//!
//! The connection is the session: the kernel closes it when either process is gone, however it
//! went, and says so to the other. Bytes on it afterwards are bells: the other end has put
//! something in while this one slept. Nothing of a session outlives both processes but the socket's
//! name, which the next to listen there takes over.
//!
//! Nothing here waits: each step is tried again at the next look, some milliseconds later.
//!
//! A hello holds the settings that both ends must have alike. A peer with another hello is sent
//! away with this end's hello, without memory, so that both know. Neither tries again for [`REST`]
//! looks.
//!
//! Invariants: the directory is this user's alone, and so is the process that connects; a hello is
//! held against this end's own settings; a hello that does not come within [`PATIENCE`] looks
//! closes the connection; one process listens for an end at a time.
//!
//! Not here: the session itself ([`super`]).

use super::ring::{Reader, Writer};
use super::shared::Mapping;
use super::{ShmError, ShmSettings};
use protocols::channel::AGREED;
use runtime::message;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, recvmsg, send, sendmsg, socket_with,
};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use wire::packet::FRAME_MAX;

/// `FKLINK` and the version of everything that both ends must agree on: hello, ring, heads
/// (`runtime::peer`).
const MAGIC: [u8; 8] = *b"FKLINK\0\x03";
/// Bytes of a hello.
const HELLO: usize = 24 + 8 * AGREED;
/// Looks after which a connection without a hello is closed.
const PATIENCE: u32 = 1000;
/// Looks between two attempts to meet a peer whose hello differs in what both must have alike.
const REST: u32 = 250;
/// Bells heard at a look.
const BELLS: usize = 64;

/// An end's description of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hello {
    from: u16,
    to: u16,
    /// Longest frame that it takes.
    frame_max: u32,
    /// Bytes of its memory.
    length: u64,
    /// Words on what both must have alike.
    agreed: [u64; AGREED],
}

/// Why a hello is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NotMet {
    /// The message is no hello to this end.
    Wrong(&'static str),
    /// In these bits of what both must have alike it has something else.
    Differs(Box<[u64; AGREED]>),
}

impl Hello {
    fn write(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.from.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.to.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.frame_max.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
        for (place, word) in bytes[24..].as_chunks_mut::<8>().0.iter_mut().zip(self.agreed) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// A hello to the end of `settings`; else the problem.
    fn read(bytes: &[u8], settings: &ShmSettings) -> Result<Hello, NotMet> {
        if !bytes.starts_with(&MAGIC[..6]) {
            return Err(NotMet::Wrong("no hello"));
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(NotMet::Wrong("another version of the link"));
        }
        let bytes: &[u8; HELLO] = bytes.try_into().map_err(|_| NotMet::Wrong("no hello"))?;
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let hello = Hello {
            from: short(8),
            to: short(10),
            frame_max: u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
            length: bytes[16..]
                .first_chunk()
                .map_or(0, |length| u64::from_le_bytes(*length)),
            agreed: std::array::from_fn(|word| {
                let word = bytes[24 + 8 * word..].first_chunk();
                word.map_or(0, |word| u64::from_le_bytes(*word))
            }),
        };
        if (hello.from, hello.to) != (settings.far, settings.near) {
            return Err(NotMet::Wrong("other workers' numbers"));
        }
        if hello.agreed != settings.agreed {
            let differs = std::array::from_fn(|part| hello.agreed[part] ^ settings.agreed[part]);
            return Err(NotMet::Differs(Box::new(differs)));
        }
        let longest = usize::try_from(hello.frame_max).unwrap_or(usize::MAX);
        let lengths = super::bytes_min(longest.min(FRAME_MAX))..=super::MEMORY_MAX;
        let length = usize::try_from(hello.length).unwrap_or(usize::MAX);
        if !(message::FRAME_MAX..=FRAME_MAX).contains(&longest) || !lengths.contains(&length) {
            return Err(NotMet::Wrong("a length that cannot be"));
        }
        Ok(hello)
    }
}

/// A session, as long as it lasts. Fields are dropped in this order.
pub(super) struct Way {
    pub writer: Writer,
    pub reader: Reader,
    /// Longest frame that the other end takes.
    pub frame_max: usize,
    /// The other end's process; 0 if it cannot be told.
    process: u32,
    connection: OwnedFd,
    pub(super) _theirs: Mapping,
    pub(super) _ours: Mapping,
}

impl Way {
    fn new(
        settings: &ShmSettings,
        connection: OwnedFd,
        ours: Mapping,
        hello: Hello,
        theirs: &OwnedFd,
    ) -> io::Result<Way> {
        let length = hello.length as usize;
        let theirs = Mapping::of(theirs, length)?;
        debug_assert!(ours.length() >= super::bytes_min(settings.frame_max));
        Ok(Way {
            // SAFETY: the other process's mapping of that length, which lives as long as this.
            // Nothing else of this process has it.
            writer: unsafe { Writer::new(theirs.start(), theirs.length()) },
            // SAFETY: as above, of the memory made here.
            reader: unsafe { Reader::new(ours.start(), ours.length()) },
            frame_max: hello.frame_max as usize,
            process: process_of(&connection),
            connection,
            _theirs: theirs,
            _ours: ours,
        })
    }

    /// Takes bells off the connection; `false` if the other end is gone.
    pub fn hear(&self) -> bool {
        for _ in 0..BELLS {
            match recv(&self.connection, &mut [0_u8; 8], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return false,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Whether the other end's process has been killed, or exits, though its connection is still
    /// open.
    pub fn is_dying(&self) -> bool {
        self.process != 0 && super::dying::is_dying(self.process)
    }

    /// Rings the other end's bell. If it has so many unheard that there is no room for one more,
    /// that will do.
    #[cold]
    pub fn ring(&self) {
        let _ = send(&self.connection, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// A connection whose other end has not said hello yet.
struct Pending {
    connection: OwnedFd,
    looks: u32,
    /// The memory made for it, by the end that speaks first.
    ours: Option<Mapping>,
}

/// One end, looking for the other.
pub(super) struct Meeting {
    settings: ShmSettings,
    path: PathBuf,
    /// Of the end that listens, with what names its file.
    listener: Option<(OwnedFd, (u64, u64))>,
    pending: Option<Pending>,
    /// Looks that are let pass, and in what the last peer that was sent away differed.
    rest: u32,
    differs: [u64; AGREED],
    /// Everything that may wake a sleeper.
    wakes: OwnedFd,
}

impl Meeting {
    /// Prepares the directory, and listens if that is this end's part.
    pub fn new(settings: &ShmSettings) -> Result<Meeting, ShmError> {
        let directory = &settings.directory;
        own_directory(directory)?;
        let (low, high) = (settings.near.min(settings.far), settings.near.max(settings.far));
        let path = directory.join(format!("{low}-{high}"));
        let failed = |source: io::Error| ShmError::Socket {
            path: path.clone(),
            source,
        };
        let wakes = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let mut listener = None;
        if settings.near == low {
            if connect_to(&path).is_ok() {
                return Err(ShmError::Twice {
                    worker: settings.near,
                    path,
                });
            }
            let socket = listen_at(&path).map_err(failed)?;
            wake_by(&wakes, &socket).map_err(failed)?;
            let named = fs::symlink_metadata(&path).map_err(failed)?;
            listener = Some((socket, (named.dev(), named.ino())));
        }
        Ok(Meeting {
            settings: settings.clone(),
            path,
            listener,
            pending: None,
            rest: 0,
            differs: [0; AGREED],
            wakes,
        })
    }

    /// The descriptor that becomes readable when there is something to look at.
    pub fn descriptor(&self) -> i32 {
        self.wakes.as_raw_fd()
    }

    /// Goes on looking for the other end. An error is one of an attempt, after which the next may
    /// go well; an empty one is not worth a word.
    pub fn look(&mut self) -> Result<Option<Way>, String> {
        if self.rest > 0 {
            self.rest -= 1;
            return Ok(None);
        }
        if self.pending.is_none() {
            self.pending = self.begin()?;
        }
        let Some(pending) = &mut self.pending else {
            return Ok(None);
        };
        pending.looks += 1;
        let heard = hear_hello(&pending.connection, &self.settings);
        if matches!(heard, Ok(None)) && pending.looks < PATIENCE {
            return Ok(None);
        }
        let Some(Pending { connection, ours, .. }) = self.pending.take() else {
            return Ok(None);
        };
        let (hello, theirs) = match heard {
            Ok(Some(heard)) => heard,
            Ok(None) => return Ok(None),
            Err(NotHeard::Failed(why)) => return Err(why),
            Err(NotHeard::NotMet(NotMet::Wrong(why))) => return Err(why.to_owned()),
            Err(NotHeard::NotMet(NotMet::Differs(differs))) => {
                self.differs = *differs;
                // The end that listens answers with its own hello: the peer has sent its hello and
                // waits. This end hears the next peer at once, which may be another process.
                match &self.listener {
                    Some(_) => {
                        let _ = send(
                            &connection,
                            &self.hello(0).write(),
                            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
                        );
                    }
                    None => self.rest = REST,
                }
                return Ok(None);
            }
        };
        self.differs = [0; AGREED];
        let ours = match ours {
            Some(ours) => ours,
            None => self.say_hello(&connection)?,
        };
        Way::new(&self.settings, connection, ours, hello, &theirs)
            .map(Some)
            .map_err(|error| error.to_string())
    }

    /// Other words on what both must have alike, for hellos from now on.
    pub fn agree(&mut self, agreed: [u64; AGREED]) {
        self.settings.agreed = agreed;
        self.differs = [0; AGREED];
    }

    /// In what the last peer that was sent away differed, of what both must have alike.
    pub fn differs(&self) -> [u64; AGREED] {
        self.differs
    }

    /// This end's hello, with so much memory.
    fn hello(&self, length: u64) -> Hello {
        Hello {
            from: self.settings.near,
            to: self.settings.far,
            frame_max: self.settings.frame_max as u32,
            length,
            agreed: self.settings.agreed,
        }
    }

    /// In a session: sends away any other process that connects. Processes try again, so a process
    /// that connects when the session is over is heard.
    pub fn refuse(&self) {
        if let Some((listener, _)) = &self.listener {
            let _ = accept_with(listener, SocketFlags::CLOEXEC);
        }
    }

    /// A new connection, if there is one.
    fn begin(&self) -> Result<Option<Pending>, String> {
        let (connection, ours) = match &self.listener {
            Some((listener, _)) => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                match accept_with(listener, flags) {
                    Ok(connection) => (connection, None),
                    Err(_) => return Ok(None),
                }
            }
            None => {
                let Ok(connection) = connect_to(&self.path) else {
                    return Ok(None);
                };
                let ours = self.say_hello(&connection)?;
                (connection, Some(ours))
            }
        };
        // SO_PEERCRED: the process that listened or connected; the kernel's word.
        let them = socket_peercred(&connection).map_err(|error| error.to_string())?;
        if them.uid != rustix::process::geteuid() {
            return Err(format!(
                "a process of another user ({}) is at the other end",
                them.uid.as_raw()
            ));
        }
        wake_by(&self.wakes, &connection).map_err(|error| error.to_string())?;
        Ok(Some(Pending {
            connection,
            looks: 0,
            ours,
        }))
    }

    /// Makes the memory that this end reads from, and sends it.
    fn say_hello(&self, connection: &OwnedFd) -> Result<Mapping, String> {
        let settings = &self.settings;
        let (mapping, memory) = Mapping::new(settings.bytes).map_err(|error| {
            format!(
                "{} KiB of shared memory cannot be had: {error}",
                settings.bytes >> 10
            )
        })?;
        let hello = self.hello(mapping.length() as u64);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [memory.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let bytes = hello.write();
        sendmsg(
            connection,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        )
        .map_err(failure)?;
        Ok(mapping)
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        // Only if no other process has taken the name over.
        if let Some((_, named)) = self.listener
            && fs::symlink_metadata(&self.path).is_ok_and(|there| (there.dev(), there.ino()) == named)
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The process at the other end, by its number here; 0 if it has none here.
fn process_of(connection: &OwnedFd) -> u32 {
    let mut them = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of_val(&them) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of a structure of that length, all of whose
    // bytes may have any value.
    let failed = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut them).cast(),
            &mut length,
        )
    };
    match failed {
        0 => u32::try_from(them.pid).unwrap_or(0),
        _ => 0,
    }
}

/// The report of an attempt that failed: of an end that has just gone, none.
fn failure(error: Errno) -> String {
    match error {
        Errno::PIPE | Errno::CONNRESET => String::new(),
        error => error.to_string(),
    }
}

/// Why there is no hello.
enum NotHeard {
    /// The connection does not work.
    Failed(String),
    /// It is not taken.
    NotMet(NotMet),
}

/// The other end's hello and memory; none if it has not come yet.
fn hear_hello(connection: &OwnedFd, settings: &ShmSettings) -> Result<Option<(Hello, OwnedFd)>, NotHeard> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; HELLO + 1];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let length = match recvmsg(
        connection,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        flags,
    ) {
        Ok(message) => message.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(NotHeard::Failed(failure(error))),
    };
    if length == 0 {
        return Err(NotHeard::Failed(String::new()));
    }
    let mut memory = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            memory = descriptors.last();
        }
    }
    let hello = Hello::read(&bytes[..length.min(bytes.len())], settings).map_err(NotHeard::NotMet)?;
    memory
        .map(|memory| Some((hello, memory)))
        .ok_or(NotHeard::NotMet(NotMet::Wrong("a hello without memory")))
}

/// Makes the directory if it is not there. It must be this user's; no other user may write there.
fn own_directory(directory: &Path) -> Result<(), ShmError> {
    let failed = |source| ShmError::Directory {
        path: directory.into(),
        source,
    };
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    made.map_err(failed)?;
    let there = fs::symlink_metadata(directory).map_err(failed)?;
    let is_own = there.uid() == rustix::process::geteuid().as_raw();
    if !there.is_dir() || !is_own || there.permissions().mode() & 0o077 != 0 {
        return Err(ShmError::NotOurs {
            path: directory.into(),
        });
    }
    Ok(())
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let socket = unix_socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Listens under a name of its own, then takes the name over from any process that had it.
fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let own = path.with_extension(format!("new-{}", std::process::id()));
    match fs::remove_file(&own) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = unix_socket()?;
    bind(&socket, &SocketAddrUnix::new(&own)?)?;
    listen(&socket, 4)?;
    fs::rename(&own, path)?;
    Ok(socket)
}

fn wake_by(wakes: &OwnedFd, source: &OwnedFd) -> io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    Ok(epoll::add(wakes, source, data, epoll::EventFlags::IN)?)
}
