//! The commands that look inside a running cluster: `flow trace`, `flow events`, `capture`, `top`.

use super::failed::Failed;
use super::{Asking, Capture, Failure, Top, jobs, print};
use crate::capture::{self, Wanted, job::CaptureJob};
use crate::config::values::protocol_number;
use crate::control::Key;
use crate::following::{self, job::FollowJob};
use crate::shape;
use crate::top::job::{TopError, TopJob};
use crate::trace::job::TraceJob;
use nf::{ByteSize, Period};
use std::io::{self, Write};
use std::net::SocketAddr;

/// Says on standard error text that is not part of the output.
fn tell(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Which flow, and how much of it.
pub struct TraceWords {
    pub protocol: String,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub vlan: u16,
    pub packets: u32,
    pub stop_after: Period,
}

/// `flow trace`
pub fn flow_trace(words: TraceWords, asking: &Asking, out: &mut dyn Write) -> Result<(), Failure> {
    let key = Key {
        protocol: protocol_number(&words.protocol).map_err(Failure::usage)?,
        source: words.source,
        destination: words.destination,
        vlan: words.vlan,
    };
    let mut client = super::asking::connect(asking)?;
    let job = TraceJob {
        key,
        packets: words.packets,
        json: asking.json,
        stop: jobs::stop_signal(Some(words.stop_after))?,
    };
    let traced = crate::trace::job::run(&job, &mut client, out).map_err(Failure::failed)?;
    if traced.steps_lost > 0 {
        tell(format_args!(
            "{} steps are missing: there was no room for them; trace fewer packets at once (--packets)",
            traced.steps_lost
        ));
    }
    match (traced.packets, traced.ended) {
        (_, true) => tell("the cluster has ended"),
        (0, false) => {
            let error = format!(
                "no packet of {} {} {} within {}",
                words.protocol, words.source, words.destination, words.stop_after
            );
            tell(&error);
            if asking.json {
                print(out, shape::object(&Failed { error, code: 0 }))?;
            }
        }
        _ => {}
    }
    super::asking::complete(&client)
}

/// `flow events`
pub fn flow_events(
    protocol: Option<&str>,
    address: Option<wire::Prefix>,
    count: Option<u64>,
    asking: &Asking,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let protocol = protocol
        .map(protocol_number)
        .transpose()
        .map_err(Failure::usage)?;
    let mut client = super::asking::connect(asking)?;
    let job = FollowJob {
        choice: following::Choice {
            address: address.map(|prefix| prefix.to_string()),
            protocol,
        },
        count,
        json: asking.json,
        stop: jobs::stop_signal(None)?,
    };
    let followed = following::job::run(&job, &mut client, out).map_err(Failure::failed)?;
    if followed.lost > 0 {
        tell(format_args!("{} events lost in all", followed.lost));
    }
    if followed.ended {
        tell("the cluster has ended");
    }
    super::asking::complete(&client)
}

/// `capture`
pub fn capture(words: Capture, out: &mut dyn Write) -> Result<(), Failure> {
    let filter = match words.filter.as_deref().map(str::trim) {
        None | Some("") => None,
        Some(expression) => Some(capture::compile(expression).map_err(Failure::usage)?),
    };
    let any = words.drops || words.incoming || words.outgoing;
    let mut client = super::asking::connect(&Asking::by(words.socket, words.over))?;
    let job = CaptureJob {
        wanted: Wanted {
            incoming: words.incoming || !any,
            outgoing: words.outgoing || !any,
            dropped: words.drops,
            filter,
            snap_length: words.snap_length,
            buffer_bytes: words.buffer.map(ByteSize::bytes),
        },
        count: words.count,
        file: words.file,
        stop: jobs::stop_signal(words.stop_after)?,
    };
    let caught = crate::capture::job::run(&job, &mut client, out).map_err(Failure::failed)?;
    let noun = if caught.packets == 1 { "packet" } else { "packets" };
    tell(format_args!("{} {noun} captured", caught.packets));
    for (port, count) in &caught.lost {
        tell(format_args!(
            "{count} packets of {port} not captured for want of room: narrow the filter, or say a larger --buffer"
        ));
    }
    if caught.ended {
        tell("the cluster has ended");
    }
    super::asking::complete(&client)
}

/// `top`
pub fn top(words: &Top, out: &mut dyn Write) -> Result<(), Failure> {
    let job = TopJob {
        interval: words.interval.duration(),
        once: words.once,
        json: words.asking.json,
    };
    let mut client = super::asking::connect(&words.asking)?;
    crate::top::job::run(&job, &mut client, out).map_err(|error| match error {
        TopError::NoTerminal(why) => Failure::usage(why),
        TopError::Failed(why) => Failure::failed(why),
    })
}
