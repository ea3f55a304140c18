//! The driver's process: the rights that it gives up, and how it serves calls.
//!
//! ```text
//!   serve ─ limits ─ Open: the driver is opened ─ rights are given up ─┬─ calls, one after another ─► driver
//!                                                                      ├─ reader: the socket is closed ─► the process ends
//!                                                                      └─ beats: `Working` while a call lasts
//! ```
//!
//! Certificates are read when the driver is opened, as the user that the other process is, and
//! before a byte of a node is. Rights are a thread's own on Linux: they are given up before there
//! is a second one.

use super::message::{self, Bytes, DriverAnswer, FORM, Failed, MESSAGE_GOOD, Request, Sent, frame, parsed};
use super::{BEAT, MEMORY};
use crate::batch::KeptBatch;
use crate::driver::{Driver, Failure, Swapped};
use crate::uri;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_name, set_no_new_privs};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a call under way has when the other process has ended, before this one ends in it.
const LAST: Duration = Duration::from_millis(500);

/// The socket, and whether a call lasts. Beats and answers take turns.
struct Speaker {
    socket: UnixStream,
    works: bool,
}

type Voice = Arc<Mutex<Speaker>>;

fn lock(voice: &Voice) -> MutexGuard<'_, Speaker> {
    voice.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Is a store's driver for the process at the other end of standard input, until that is closed.
pub fn serve() -> io::Result<()> {
    limit()?;
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut first = Vec::new();
    message::read(&mut socket, &mut first)?;
    let Some(Request::Open { form: FORM, uri }) = parsed(&first) else {
        return Err(io::Error::other("another program's word"));
    };
    let mut driver = match uri::driver(uri) {
        Ok(driver) => driver,
        Err(failure) => return say(&mut socket, &DriverAnswer::Failed(failure.into())),
    };
    give_up_rights()?;
    let requests = begin_to_read(socket.try_clone()?)?;
    let voice = Arc::new(Mutex::new(Speaker { socket, works: false }));
    begin_to_beat(Arc::clone(&voice))?;
    say(&mut lock(&voice).socket, &DriverAnswer::Opened { form: FORM })?;
    for bytes in requests {
        let request = parsed(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        lock(&voice).works = true;
        let last = done(driver.as_mut(), uri, request, &mut |part| {
            say(&mut lock(&voice).socket, part)
        })?;
        // In one: no beat is behind the answer.
        let mut speaker = lock(&voice);
        speaker.works = false;
        speaker.socket.write_all(&last)?;
    }
    Ok(())
}

/// Limits the memory that a bad answer may take.
fn limit() -> io::Result<()> {
    // Also where this process is stopped.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Where the machine has no memory left, this process ends and not the other one. Without /proc
    // both count alike.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // No image of the memory on disk: it has the store's password.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let most = getrlimit(Resource::Data).maximum.unwrap_or(MEMORY).min(MEMORY);
    let most = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(Resource::Data, most)?;
    Ok(set_name(c"flowkeep-store")?)
}

fn give_up_rights() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let none = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, none)?;
    Ok(set_no_new_privs(true)?)
}

/// Reads requests, and ends this process when there are no more.
fn begin_to_read(mut socket: UnixStream) -> io::Result<Receiver<Vec<u8>>> {
    let (hand, requests) = sync_channel(1);
    thread::Builder::new().name("requests".into()).spawn(move || {
        loop {
            let mut request = Vec::new();
            if message::read(&mut socket, &mut request).is_err() || hand.send(request).is_err() {
                break;
            }
        }
        drop(hand);
        thread::sleep(LAST);
        std::process::exit(0);
    })?;
    Ok(requests)
}

fn begin_to_beat(voice: Voice) -> io::Result<()> {
    let beats = thread::Builder::new().name("beats".into());
    beats.spawn(move || {
        loop {
            thread::sleep(BEAT);
            let mut speaker = lock(&voice);
            if speaker.works {
                // A beat that is not read is followed by the end.
                let _ = say(&mut speaker.socket, &DriverAnswer::Working);
            }
        }
    })?;
    Ok(())
}

fn say(socket: &mut UnixStream, answer: &DriverAnswer<'_>) -> io::Result<()> {
    socket.write_all(&frame(answer).ok_or(io::ErrorKind::InvalidInput)?)
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Failed {
            problem: failure.problem,
            remedy: failure.remedy,
        }
    }
}

/// Does a call. Parts of its answer are said; the last one is returned, as a frame.
fn done(driver: &mut dyn Driver, uri: &str, request: Request<'_>, part: Part<'_>) -> io::Result<Vec<u8>> {
    let long = || {
        DriverAnswer::Failed(Failed {
            problem: "what it has is longer than a message of 16 MiB".to_owned(),
            remedy: "remove it there".to_owned(),
        })
    };
    let answer = match answer(driver, uri, request, part) {
        Ok(answer) => answer,
        Err(Trouble::Store(failure)) => DriverAnswer::Failed(failure.into()),
        Err(Trouble::Socket(error)) if error.kind() == io::ErrorKind::InvalidInput => long(),
        Err(Trouble::Socket(error)) => return Err(error),
    };
    let framed = frame(&answer).or_else(|| frame(&long()));
    framed.ok_or(io::ErrorKind::InvalidInput.into())
}

enum Trouble {
    Store(Failure),
    Socket(io::Error),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Trouble::Store(failure)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Socket(error)
    }
}

/// A name, of what there is one reading of.
fn named<N: std::str::FromStr>(key: &str) -> Result<N, Trouble> {
    key.parse()
        .map_err(|_| Trouble::Socket(io::ErrorKind::InvalidData.into()))
}

type Part<'p> = &'p mut dyn FnMut(&DriverAnswer<'_>) -> io::Result<()>;

fn answer(
    driver: &mut dyn Driver,
    uri: &str,
    request: Request<'_>,
    part: Part<'_>,
) -> Result<DriverAnswer<'static>, Trouble> {
    Ok(match request {
        Request::Open { .. } => return Err(io::Error::from(io::ErrorKind::InvalidData).into()),
        Request::Look => uri::look(uri).map(|()| DriverAnswer::Done)?,
        Request::Claim { partition, at_least } => {
            DriverAnswer::Epoch(driver.claim(&named(&partition)?, at_least)?)
        }
        Request::Version { partition } => DriverAnswer::Version(driver.version(&named(&partition)?)?),
        Request::Restore { partition, version } => {
            DriverAnswer::Written(vec![driver.restore(&named(&partition)?, version)?], None)
        }
        Request::Write(sent) => {
            let kept: Option<Vec<KeptBatch>> = sent.iter().map(Sent::batch).collect();
            let kept = kept.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
            let batches: Vec<_> = kept.iter().map(KeptBatch::batch).collect();
            let mut outcomes = Vec::with_capacity(batches.len());
            let written = driver.write(&batches, &mut outcomes);
            DriverAnswer::Written(outcomes, written.err().map(Failed::from))
        }
        Request::Load { variable } => {
            load(driver, &variable, part)?;
            DriverAnswer::Done
        }
        Request::Partitions { function } => {
            let all = driver.partitions(function)?;
            names(all.iter().map(ToString::to_string), part)?
        }
        Request::Variables => names(driver.variables()?.iter().map(ToString::to_string), part)?,
        Request::Records => names(driver.records()?.into_iter(), part)?,
        Request::Record { name } => DriverAnswer::Record(driver.record(name)?),
        Request::Swap { name, expected, new } => {
            let (expected, new) = (expected.map(|of| of.0), new.map(|of| of.0));
            match driver.swap(name, expected, new)? {
                Swapped::Done => DriverAnswer::Done,
                Swapped::Other(has) => DriverAnswer::Record(has),
            }
        }
    })
}

/// Says all names, in messages of a good length.
fn names(all: impl Iterator<Item = String>, part: Part<'_>) -> Result<DriverAnswer<'static>, Trouble> {
    let (mut some, mut bytes) = (Vec::new(), 0);
    for name in all {
        bytes += name.len();
        some.push(name);
        if bytes >= MESSAGE_GOOD {
            part(&DriverAnswer::Names(std::mem::take(&mut some)))?;
            bytes = 0;
        }
    }
    part(&DriverAnswer::Names(some))?;
    Ok(DriverAnswer::Done)
}

/// Says all elements, in messages of a good length.
fn load(driver: &mut dyn Driver, variable: &str, part: Part<'_>) -> Result<(), Trouble> {
    let mut some: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let (mut bytes, mut said) = (0, Ok(()));
    let mut flush = |some: &mut Vec<(Vec<u8>, Vec<u8>)>| {
        let all = some.iter().map(|(field, value)| (Bytes(field), Bytes(value)));
        let said = part(&DriverAnswer::Elements(all.collect()));
        some.clear();
        said
    };
    driver.load(&named(variable)?, &mut |field, value| {
        if said.is_err() {
            return;
        }
        bytes += field.len() + value.len();
        some.push((field.to_vec(), value.to_vec()));
        if bytes >= MESSAGE_GOOD {
            said = flush(&mut some);
            bytes = 0;
        }
    })?;
    said?;
    Ok(flush(&mut some)?)
}
