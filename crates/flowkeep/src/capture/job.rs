//! `flowkeep capture`: asks, and writes or prints packets until there are enough.

use super::{Frame, Lines, Wanted, Writer};
use crate::control::client::Client;
use crate::control::{Answer, FOREIGN, Observe, Request};
use crate::signals::StopSignal;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which packets to capture, and how.
#[derive(Debug)]
pub struct CaptureJob {
    /// Which packets.
    pub wanted: Wanted,
    /// How many, at most.
    pub count: Option<u64>,
    /// Where to write them, as pcapng; `-` is standard output. Without one, lines are printed.
    pub file: Option<PathBuf>,
    /// When to end.
    pub stop: StopSignal,
}

/// How often captured packets are fetched.
const LOOK: Duration = Duration::from_millis(20);

/// The result of a capture.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Caught {
    /// Packets written or printed.
    pub packets: u64,
    /// Packets that there was no room for, by port.
    pub lost: Vec<(String, u64)>,
    /// Whether the cluster ended meanwhile.
    pub ended: bool,
}

/// Where packets go.
enum Sink<'a> {
    File(Writer<Box<dyn Write + 'a>>),
    Lines(Box<Lines>, &'a mut dyn Write),
}

impl Sink<'_> {
    fn put(&mut self, frame: &Frame) -> io::Result<()> {
        match self {
            Sink::File(writer) => writer.write(frame),
            Sink::Lines(lines, out) => writeln!(out, "{}", lines.line(frame)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::File(writer) => writer.flush(),
            Sink::Lines(_, out) => out.flush(),
        }
    }

    fn finish(self, lost: &[(u8, u64)]) -> io::Result<()> {
        match self {
            Sink::File(mut writer) => {
                lost.iter().for_each(|(port, count)| writer.lose(*port, *count));
                writer.finish().map(drop)
            }
            Sink::Lines(_, out) => out.flush(),
        }
    }
}

/// Captures until there are enough packets, the time is over, or the cluster ends.
pub fn run(job: &CaptureJob, client: &mut Client, out: &mut dyn Write) -> Result<Caught, String> {
    let Answer::Watching { ports } =
        client.ask(&Request::Watch(Box::new(Observe::Packets(job.wanted.clone()))))?
    else {
        return Err(FOREIGN.into());
    };
    let name = job
        .file
        .as_ref()
        .map_or("standard output".into(), |file| file.display().to_string());
    let failed = |error: io::Error| format!("{name}: {error}");
    let mut sink = open(job, &ports, out).map_err(failed)?;
    let mut caught = Caught::default();
    let mut lost = std::collections::BTreeMap::<u8, u64>::new();
    loop {
        let stopped = job.stop.is_raised();
        let observed = client.observed(stopped)?;
        let room = job.count.map_or(u64::MAX, |count| count - caught.packets);
        let mut wanted = (observed.frames.iter()).take(room.try_into().unwrap_or(usize::MAX));
        let put = wanted.try_for_each(|frame| sink.put(frame).map(|()| caught.packets += 1));
        let written = put.and_then(|()| sink.flush());
        for (port, count) in &observed.lost {
            *lost.entry(*port).or_default() += count;
        }
        let gone = matches!(&written, Err(error) if error.kind() == ErrorKind::BrokenPipe);
        if !gone {
            written.map_err(failed)?;
        }
        let enough = job.count.is_some_and(|count| caught.packets >= count);
        if gone || stopped || enough || observed.is_over {
            caught.ended = observed.is_over;
            let lost: Vec<(u8, u64)> = lost.into_iter().collect();
            let finished = sink.finish(&lost);
            if !gone {
                finished.map_err(failed)?;
            }
            let port = |number: u8| ports.get(usize::from(number)).cloned().unwrap_or_default();
            caught.lost = lost
                .iter()
                .map(|(number, count)| (port(*number), *count))
                .collect();
            return Ok(caught);
        }
        std::thread::sleep(LOOK);
    }
}

/// A file that cannot be made, with a remedy.
fn where_to(error: io::Error) -> io::Error {
    let remedy = "choose a folder that exists and that you may write to";
    io::Error::new(error.kind(), format!("{error}; {remedy}"))
}

fn open<'a>(job: &CaptureJob, ports: &[String], out: &'a mut dyn Write) -> io::Result<Sink<'a>> {
    let out: Box<dyn Write + 'a> = match job.file.as_deref() {
        None => return Ok(Sink::Lines(Box::new(Lines::new(ports.to_vec())), out)),
        Some(file) if file == Path::new("-") => Box::new(BufWriter::new(out)),
        Some(file) => Box::new(BufWriter::new(File::create(file).map_err(where_to)?)),
    };
    Ok(Sink::File(Writer::new(out, ports.to_vec())?))
}
