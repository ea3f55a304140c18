//! Figures for Prometheus, as text over HTTP: OpenMetrics, or the format that a client asks for in
//! its place.
//!
//! One prefix `flowkeep_`, base units, `_total` on counters, and four labels: `runtime`, `switch`,
//! `function`, `reason` (a port's figures have `port`). The sum over
//! `flowkeep_dropped_packets_total` and the rest add up:
//!
//! ```text
//! flowkeep_received_packets_total + flowkeep_made_packets_total + flowkeep_recounted_packets
//!     = flowkeep_sent_packets_total + flowkeep_held_packets + flowkeep_passing_packets + flowkeep_dropped_packets_total
//! ```
//!
//! The server answers `GET /metrics` and nothing else. One thread has all connections and waits for
//! none of them: each is read and written as far as that goes. A connection has five seconds to ask
//! and five to take its answer; of more than 256 the oldest is closed. Requests that come together
//! get the figures of one moment.
//!
//! Not here: the figures themselves ([`crate::cluster`]).

mod answer;
mod busy;
mod copies;
mod costs;
mod pools;
mod tables;

use crate::cluster::{Cluster, LinkStats, Snapshot};
use answer::answer;
use runtime::PortCounters;
use runtime::stats::{Durations, Named, RuntimeStats, SwitchStats};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The most bytes of a request's head.
const HEAD_MAX: usize = 8192;
/// Connections at once.
const CONNECTIONS_MAX: usize = 256;
/// How long a connection may take for its request, and for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The text being written.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

/// A metric whose samples are being written.
pub(crate) struct Metric<'t> {
    text: &'t mut String,
    name: &'t str,
    suffix: &'static str,
}

impl Text {
    /// A figure that only grows.
    pub fn counter(&mut self, name: &'static str, help: &str) -> Metric<'_> {
        self.metric(name, "counter", "_total", help)
    }

    /// A figure of the moment.
    pub fn gauge(&mut self, name: &'static str, help: &str) -> Metric<'_> {
        self.metric(name, "gauge", "", help)
    }

    /// How long something took, in seconds; `label` says which workers' numbers the samples have.
    pub fn histogram<'d>(
        &mut self,
        name: &'static str,
        help: &str,
        label: &str,
        all: impl Iterator<Item = (String, &'d Durations)>,
    ) {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        self.metric(name, "histogram", "_bucket", help);
        for (number, durations) in all {
            let bounds = durations
                .cumulative()
                .map(|(bound, count)| (seconds(bound).to_string(), count));
            for (bound, count) in bounds.chain([("+Inf".to_owned(), durations.count())]) {
                let _ = writeln!(
                    self.0,
                    "flowkeep_{name}_bucket{{{label}=\"{number}\",le=\"{bound}\"}} {count}"
                );
            }
            let (sum, count) = (seconds(durations.sum()), durations.count());
            let _ = writeln!(
                self.0,
                "flowkeep_{name}_sum{{{label}=\"{number}\"}} {sum}\nflowkeep_{name}_count{{{label}=\"{number}\"}} {count}"
            );
        }
    }

    fn metric<'t>(&'t mut self, name: &'t str, kind: &str, suffix: &'static str, help: &str) -> Metric<'t> {
        let _ = writeln!(
            self.0,
            "# HELP flowkeep_{name} {help}\n# TYPE flowkeep_{name} {kind}"
        );
        Metric {
            text: &mut self.0,
            name,
            suffix,
        }
    }
}

impl Metric<'_> {
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let _ = write!(self.text, "flowkeep_{}{}", self.name, self.suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            let _ = write!(
                self.text,
                "{}{name}=\"{}\"",
                if index == 0 { '{' } else { ',' },
                escaped(value)
            );
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// All figures as OpenMetrics text.
pub fn text(snapshot: &Snapshot) -> String {
    let mut text = Text::default();
    text.gauge("uptime_seconds", "Time since the start.")
        .sample(&[], snapshot.uptime.as_secs_f64());
    packets(&mut text, snapshot);
    switches(&mut text, snapshot);
    runtimes(&mut text, snapshot);
    busy::all(&mut text, snapshot);
    copies::write(&mut text, snapshot);
    words(&mut text, snapshot);
    costs::all(&mut text, snapshot);
    tables::all(&mut text, snapshot);
    ports(&mut text, snapshot);
    links(&mut text, snapshot);
    crate::health::stats::metrics(&mut text, &snapshot.backends);
    crate::store::stats::metrics(&mut text, &snapshot.stores, &snapshot.variables);
    crate::report::objects::metrics(&mut text, snapshot);
    text.0.push_str("# EOF\n");
    text.0
}

/// The figures that add up.
fn packets(text: &mut Text, snapshot: &Snapshot) {
    let mut metric = text.counter("received_packets", "Packets that came in at ports.");
    for (number, switch) in switches_of(snapshot) {
        metric.sample(&[("switch", &number)], switch.received);
    }
    let mut metric = text.counter("made_packets", "Packets that functions made.");
    for (number, runtime) in runtimes_of(snapshot) {
        metric.sample(&[("runtime", &number)], runtime.emitted);
    }
    let mut metric = text.counter("sent_packets", "Packets that left by ports.");
    for (number, switch) in switches_of(snapshot) {
        metric.sample(&[("switch", &number)], switch.sent);
    }
    text.gauge(
        "held_packets",
        "Packets kept: by functions, behind waiting calls, fragments that wait for their first one.",
    )
    .sample(&[], snapshot.packets().held);
    text.gauge(
        "passing_packets",
        "Packets between two workers: the remainder of the other figures, which are of slightly different moments; never negative.",
    )
    .sample(&[], snapshot.packets().passing);
    text.gauge(
        "recounted_packets",
        "Packets that are in two of the other figures, since those are of slightly different moments; 0 of a cluster that has stopped.",
    )
    .sample(&[], snapshot.packets().recounted);
    let mut metric = text.counter(
        "dropped_packets",
        "Packets dropped; function is empty where Flowkeep itself dropped.",
    );
    for (number, switch) in switches_of(snapshot) {
        for Named {
            function,
            name,
            count,
        } in &switch.dropped
        {
            metric.sample(
                &[("switch", &number), ("function", function), ("reason", name)],
                count,
            );
        }
    }
    for (number, runtime) in runtimes_of(snapshot) {
        for Named {
            function,
            name,
            count,
        } in &runtime.dropped
        {
            metric.sample(
                &[("runtime", &number), ("function", function), ("reason", name)],
                count,
            );
        }
    }
}

/// A figure of each switch, runtime or port: its name, its help, and where it is.
type Figure<T> = (&'static str, &'static str, fn(&T) -> u64);

fn switches(text: &mut Text, snapshot: &Snapshot) {
    let each: [Figure<SwitchStats>; 3] = [
        ("routes", "Groups of flows with a route.", |switch| switch.routes),
        ("reply_keys", "Reply keys of translated flows.", |switch| {
            switch.reply_keys
        }),
        (
            "port_blocks",
            "Blocks of external ports with a route.",
            |switch| switch.blocks,
        ),
    ];
    for (name, help, of) in each {
        let mut metric = text.gauge(name, help);
        for (number, switch) in switches_of(snapshot) {
            metric.sample(&[("switch", &number)], of(switch));
        }
    }
    let each: [Figure<SwitchStats>; 3] = [
        (
            "turned_packets",
            "Packets sent in again from outside (hairpinning).",
            |switch| switch.turned,
        ),
        (
            "handed_over_packets",
            "Packets passed to their group's home switch.",
            |switch| switch.handed_over,
        ),
        (
            "switch_stalls",
            "Steps that received nothing because a runtime's queue was full.",
            |switch| switch.stalls,
        ),
    ];
    for (name, help, of) in each {
        let mut metric = text.counter(name, help);
        for (number, switch) in switches_of(snapshot) {
            metric.sample(&[("switch", &number)], of(switch));
        }
    }
    text.histogram(
        "packet_latency_seconds",
        "Time from reading a packet to sending it, of one in 1024 packets that a switch sent; of a packet from another host, since it came from there.",
        "switch",
        switches_of(snapshot).map(|(number, switch)| (number, &switch.delays)),
    );
    let mut metric = text.counter("routed_packets", "Packets sent to each runtime.");
    for (number, switch) in switches_of(snapshot) {
        for (runtime, count) in switch.sent_to.iter().enumerate() {
            let runtime = runtime.to_string();
            metric.sample(&[("switch", &number), ("runtime", &runtime)], count);
        }
    }
}

fn runtimes(text: &mut Text, snapshot: &Snapshot) {
    let gauges: [Figure<RuntimeStats>; 6] = [
        ("flows", "Flows now.", |runtime| runtime.flows),
        ("flows_max", "The most flows there may be.", |runtime| {
            runtime.flows_max
        }),
        ("groups", "Groups of flows now.", |runtime| runtime.groups),
        (
            "resting_groups",
            "Groups now that live on without a flow.",
            |runtime| runtime.groups_resting,
        ),
        ("waiting_calls", "Calls of functions that wait now.", |runtime| {
            runtime.waiting
        }),
        (
            "runtime_dry",
            "Whether switches choose the runtime for no new group, since it has no free block of external ports and another has some.",
            |runtime| runtime.dry.into(),
        ),
    ];
    for (name, help, of) in gauges {
        let mut metric = text.gauge(name, help);
        for (number, runtime) in runtimes_of(snapshot) {
            metric.sample(&[("runtime", &number)], of(runtime));
        }
    }
    pools::all(text, snapshot);
    let counters: [Figure<RuntimeStats>; 8] = [
        (
            "processed_packets",
            "Packets received from switches.",
            |runtime| runtime.received,
        ),
        ("passed_packets", "Packets passed on as processed.", |runtime| {
            runtime.passed
        }),
        ("opened_flows", "Flows begun.", |runtime| runtime.flows_opened),
        ("ended_flows", "Flows over.", |runtime| runtime.flows_ended),
        (
            "evicted_groups",
            "Groups without a flow that ended before their time, for want of places.",
            |runtime| runtime.groups_evicted,
        ),
        (
            "lost_events",
            "Lines that the event log had no room for.",
            |runtime| runtime.events_lost,
        ),
        (
            "runtime_stalls",
            "Steps that received nothing for want of buffers.",
            |runtime| runtime.stalls,
        ),
        (
            "waits_untold",
            "Waiting calls whose answer was found by the look of each second: no token had reported it.",
            |runtime| runtime.untold,
        ),
    ];
    for (name, help, of) in counters {
        let mut metric = text.counter(name, help);
        for (number, runtime) in runtimes_of(snapshot) {
            metric.sample(&[("runtime", &number)], of(runtime));
        }
    }
    let mut metric = text.counter(
        "function_events",
        "The functions' own counters; reason is the counter's name.",
    );
    for (number, runtime) in runtimes_of(snapshot) {
        for Named {
            function,
            name,
            count,
        } in &runtime.counters
        {
            metric.sample(
                &[("runtime", &number), ("function", function), ("reason", name)],
                count,
            );
        }
    }
}

/// Messages of other workers that were refused.
fn words(text: &mut Text, snapshot: &Snapshot) {
    let mut metric = text.counter(
        "refused_words",
        "Messages of other workers that were refused: not allowed to their sender, or without room.",
    );
    for (number, switch) in switches_of(snapshot) {
        metric.sample(&[("switch", &number)], switch.words_refused);
    }
    for (number, runtime) in runtimes_of(snapshot) {
        metric.sample(&[("runtime", &number)], runtime.words_refused);
    }
    let help = "Flows that came from other runtimes and ended on arrival: no state of their functions, or not expected.";
    let mut metric = text.counter("refused_flows", help);
    for (number, runtime) in runtimes_of(snapshot) {
        metric.sample(&[("runtime", &number)], runtime.flows_refused);
    }
}

fn ports(text: &mut Text, snapshot: &Snapshot) {
    let each: [Figure<PortCounters>; 8] = [
        ("port_received_packets", "Packets received by a port.", |port| {
            port.received_packets
        }),
        (
            "port_received_bytes",
            "Bytes received by a port, link headers included.",
            |port| port.received_bytes,
        ),
        ("port_sent_packets", "Packets sent by a port.", |port| {
            port.sent_packets
        }),
        (
            "port_sent_bytes",
            "Bytes sent by a port, link headers included.",
            |port| port.sent_bytes,
        ),
        (
            "port_refused_frames",
            "Frames that were no packets; never counted as received.",
            |port| port.refused_packets,
        ),
        (
            "port_unsent_packets",
            "Packets that a port could not send.",
            |port| port.unsent_packets,
        ),
        (
            "port_lost_packets",
            "Frames that the kernel lost before a port could have them; never counted as received.",
            |port| port.lost_packets,
        ),
        (
            "port_answered_requests",
            "Requests for claimed addresses that a port answered by itself; never counted as received or sent.",
            |port| port.answered_packets,
        ),
    ];
    for (name, help, of) in each {
        let mut metric = text.counter(name, help);
        for port in &snapshot.ports {
            let switch = port.switch.to_string();
            metric.sample(&[("switch", &switch), ("port", &port.name)], of(&port.counters));
        }
    }
}

/// Links to other processes.
fn links(text: &mut Text, snapshot: &Snapshot) {
    if snapshot.links.is_empty() {
        return;
    }
    let ends = |link: &LinkStats| [link.from.to_string(), link.to.to_string()];
    let mut metric = text.gauge(
        "link_sessions",
        "Whether a link to another process has a peer at its other end.",
    );
    for link in &snapshot.links {
        let [from, to] = ends(link);
        metric.sample(&[("from", &from), ("to", &to)], u64::from(link.session != 0));
    }
    let mut metric = text.counter(
        "link_repeated_frames",
        "Frames that another process sent again although the first of them had come.",
    );
    for link in &snapshot.links {
        let [from, to] = ends(link);
        metric.sample(&[("from", &from), ("to", &to)], link.repeated);
    }
    let mut metric = text.counter(
        "link_meetings",
        "How often the other end of a channel has been met; each time but the first, a session had ended.",
    );
    for link in &snapshot.links {
        let [from, to] = ends(link);
        metric.sample(&[("from", &from), ("to", &to)], link.meetings);
    }
    let each: [Figure<PortCounters>; 3] = [
        (
            "link_received_packets",
            "Packets received from another process.",
            |link| link.received_packets,
        ),
        ("link_sent_packets", "Packets sent to another process.", |link| {
            link.sent_packets
        }),
        (
            "link_lost_packets",
            "Packets for another process that was not there any more.",
            |link| link.unsent_packets,
        ),
    ];
    for (name, help, of) in each {
        let mut metric = text.counter(name, help);
        for link in &snapshot.links {
            let [from, to] = ends(link);
            metric.sample(&[("from", &from), ("to", &to)], of(&link.counters));
        }
    }
    let mut metric = text.counter(
        "link_refused_frames",
        "Frames that came in by a link and were refused: another key, forged, repeated, not ours.",
    );
    for link in &snapshot.links {
        let [from, to] = ends(link);
        for (reason, count) in &link.refused {
            metric.sample(&[("from", &from), ("to", &to), ("reason", reason)], count);
        }
    }
}

/// Each switch with its number in the cluster.
fn switches_of(snapshot: &Snapshot) -> impl Iterator<Item = (String, &SwitchStats)> {
    let all = snapshot.switches.iter().enumerate();
    all.map(|(place, one)| (snapshot.switch_number(place).to_string(), one))
}

/// Each runtime with its number in the cluster.
fn runtimes_of(snapshot: &Snapshot) -> impl Iterator<Item = (String, &RuntimeStats)> {
    let all = snapshot.runtimes.iter().enumerate();
    all.map(|(place, one)| (snapshot.runtime_number(place).to_string(), one))
}

/// An endpoint that answers as long as this lives.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// An address that is taken, and refuses connections until it is served.
#[derive(Debug)]
pub struct Bound(SocketAddr, OwnedFd);

impl Bound {
    /// Takes an address. The error says what to do.
    pub fn at(address: SocketAddr) -> Result<Self, String> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let bound = || {
            let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            // The last one's connections may still be closing.
            set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &address)?;
            rustix::io::Result::Ok(socket)
        };
        let socket = bound().map_err(|error| says(address, &error.into()))?;
        Ok(Bound(address, socket))
    }
}

fn says(address: SocketAddr, error: &io::Error) -> String {
    format!(
        "{address}: metrics cannot be offered here: {error}; choose another with [metrics] listen = \"…\""
    )
}

impl Server {
    /// Takes an address and begins to answer. The error says what to do.
    pub fn start(address: SocketAddr, cluster: Arc<dyn Cluster>) -> Result<Self, String> {
        Self::serve(Bound::at(address)?, cluster)
    }

    /// Begins to answer.
    pub fn serve(Bound(address, socket): Bound, cluster: Arc<dyn Cluster>) -> Result<Self, String> {
        rustix::net::listen(&socket, CONNECTIONS_MAX as i32).map_err(|error| says(address, &error.into()))?;
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().map_err(|error| says(address, &error))?;
        listener
            .set_nonblocking(true)
            .map_err(|error| says(address, &error))?;
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let thread = thread::Builder::new()
            .name("flowkeep-metrics".into())
            .spawn(move || {
                let mut scrapers = Scrapers::default();
                while !seen.load(Ordering::Acquire) {
                    scrapers.turn(&listener, cluster.as_ref());
                }
            })
            .map_err(|error| says(address, &error))?;
        Ok(Server {
            address,
            ended,
            thread: Some(thread),
        })
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        // A connection wakes the thread, which looks every second otherwise.
        let _ = TcpStream::connect_timeout(&address, PATIENCE);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The connections that are open.
#[derive(Default)]
struct Scrapers(Vec<Scraper>);

/// A connection: it asks, then takes its answer.
struct Scraper {
    stream: TcpStream,
    /// Since when it asks, or takes the answer.
    since: Instant,
    head: Vec<u8>,
    /// Empty as long as it asks.
    answer: Vec<u8>,
    sent: usize,
}

impl Scrapers {
    /// Waits until a connection can go on, and goes on with all such ones.
    fn turn(&mut self, listener: &TcpListener, cluster: &dyn Cluster) {
        let mut wanted = vec![PollFd::new(listener, PollFlags::IN)];
        wanted.extend(self.0.iter().map(|scraper| {
            let what = match scraper.answer.is_empty() {
                true => PollFlags::IN,
                false => PollFlags::OUT,
            };
            PollFd::new(&scraper.stream, what)
        }));
        let time = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        if poll(&mut wanted, Some(&time)).is_err() {
            // Interrupted, or there is no memory for it.
            thread::sleep(Duration::from_millis(10));
        }
        let mut ready = wanted.iter().map(|fd| !fd.revents().is_empty());
        let is_called = ready.next().unwrap_or(false);
        let ready: Vec<bool> = ready.collect();
        drop(wanted);
        // Figures of one moment for all requests of this turn.
        let mut figures = None;
        let mut ready = ready.into_iter();
        self.0.retain_mut(|scraper| {
            let is_ready = ready.next().unwrap_or(false);
            (!is_ready || scraper.go_on(cluster, &mut figures)) && scraper.since.elapsed() < PATIENCE
        });
        if is_called {
            self.accept(listener);
        }
    }

    fn accept(&mut self, listener: &TcpListener) {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Out of descriptors, most likely: the oldest connection gives its own, if
                    // there is one.
                    if !self.0.is_empty() {
                        self.0.remove(0);
                    }
                    return thread::sleep(Duration::from_millis(10));
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            // The oldest is the slowest: it has had its time.
            if self.0.len() == CONNECTIONS_MAX {
                self.0.remove(0);
            }
            self.0.push(Scraper {
                stream,
                since: Instant::now(),
                head: Vec::new(),
                answer: Vec::new(),
                sent: 0,
            });
        }
    }
}

impl Scraper {
    /// Goes on as far as it can now; `false` when the connection is over.
    fn go_on(&mut self, cluster: &dyn Cluster, figures: &mut Option<String>) -> bool {
        let done = match self.answer.is_empty() {
            true => self.read(cluster, figures),
            false => Ok(()),
        };
        let done = done.and_then(|()| self.write());
        match done {
            Ok(()) => self.answer.is_empty() || self.sent < self.answer.len(),
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        }
    }

    /// Reads the head of the request, within a bound of bytes, and makes the answer.
    fn read(&mut self, cluster: &dyn Cluster, figures: &mut Option<String>) -> io::Result<()> {
        let mut chunk = [0; 1024];
        while !self.head.windows(4).any(|window| window == b"\r\n\r\n") {
            let count = self.stream.read(&mut chunk)?;
            if count == 0 || self.head.len() + count > HEAD_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.head.extend_from_slice(&chunk[..count]);
        }
        self.answer = answer(&self.head, || {
            figures.get_or_insert_with(|| text(&cluster.snapshot())).clone()
        });
        self.since = Instant::now();
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        while self.sent < self.answer.len() {
            let count = self.stream.write(&self.answer[self.sent..])?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.sent += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake::{self, Fake};
    use crate::config::layout::WorkerId;

    /// The samples of a metric, by their labels.
    fn samples<'t>(text: &'t str, name: &str) -> Vec<(&'t str, u64)> {
        text.lines()
            .filter_map(|line| line.strip_prefix(name))
            .filter(|rest| rest.starts_with(['{', ' ']))
            .map(|rest| {
                let (labels, value) = rest.rsplit_once(' ').unwrap();
                (labels, value.parse().unwrap())
            })
            .collect()
    }

    fn sum(text: &str, name: &str) -> u64 {
        samples(text, name).iter().map(|(_, value)| value).sum()
    }

    #[test]
    fn a_dry_runtime_is_in_the_figures() {
        let mut snapshot = fake::snapshot();
        snapshot.runtimes[1].dry = true;
        let of_both = [("{runtime=\"0\"}", 0), ("{runtime=\"1\"}", 1)];
        assert_eq!(samples(&text(&snapshot), "flowkeep_runtime_dry"), of_both);
    }

    #[test]
    fn every_packet_is_in_the_figures() {
        let text = text(&fake::snapshot());
        assert_eq!(
            sum(&text, "flowkeep_received_packets_total")
                + sum(&text, "flowkeep_made_packets_total")
                + sum(&text, "flowkeep_recounted_packets"),
            sum(&text, "flowkeep_sent_packets_total")
                + sum(&text, "flowkeep_held_packets")
                + sum(&text, "flowkeep_passing_packets")
                + sum(&text, "flowkeep_dropped_packets_total")
        );
        assert_eq!(
            samples(&text, "flowkeep_dropped_packets_total"),
            [
                ("{switch=\"0\",function=\"\",reason=\"not_ip\"}", 3),
                ("{runtime=\"0\",function=\"firewall\",reason=\"denied\"}", 4),
                ("{runtime=\"1\",function=\"firewall\",reason=\"denied\"}", 3),
            ]
        );
    }

    #[test]
    fn what_others_said_and_may_not_is_in_the_figures() {
        let mut snapshot = fake::snapshot();
        snapshot.switches[0].words_refused = 5;
        (
            snapshot.runtimes[1].words_refused,
            snapshot.runtimes[1].flows_refused,
        ) = (6, 7);
        snapshot.links = vec![LinkStats {
            from: WorkerId::Switch(0),
            to: WorkerId::Runtime(1),
            kind: "channel",
            session: 7,
            counters: PortCounters::default(),
            refused: [("tag", 4)].into(),
            repeated: 9,
            meetings: 2,
            member: "b".into(),
            differs: Default::default(),
            functions: Default::default(),
            not_met_for: None,
        }];
        let text = text(&snapshot);
        let words = [
            ("{switch=\"0\"}", 5),
            ("{runtime=\"0\"}", 0),
            ("{runtime=\"1\"}", 6),
        ];
        assert_eq!(samples(&text, "flowkeep_refused_words_total"), words);
        assert_eq!(sum(&text, "flowkeep_refused_flows_total"), 7);
        assert_eq!(sum(&text, "flowkeep_link_repeated_frames_total"), 9);
        assert_eq!(sum(&text, "flowkeep_link_meetings_total"), 2);
        assert_eq!(sum(&text, "flowkeep_link_refused_frames_total"), 4);
    }

    #[test]
    fn the_text_is_openmetrics() {
        let text = text(&fake::snapshot());
        assert!(text.ends_with("# EOF\n"));
        assert!(text.contains("port=\"lan \\\"1\\\"\""), "quotes are escaped");
        let mut seen = Vec::new();
        let mut current = ("", "");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(!seen.contains(&name), "{name} comes twice");
                seen.push(name);
                current = (name, kind);
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                let endings: &[&str] = match current.1 {
                    "counter" => &["_total"],
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                let ending = name.strip_prefix(current.0);
                assert!(ending.is_some_and(|ending| endings.contains(&ending)), "{line}");
                assert!(name.starts_with("flowkeep_"));
            }
        }
    }

    #[test]
    fn pauses_of_moves_are_a_histogram() {
        let mut snapshot = fake::snapshot();
        for pause in [1_500, 1_800, 40_000_000, 3_000_000_000] {
            snapshot.runtimes[0].move_pauses.note(pause);
        }
        let text = text(&snapshot);
        let number = snapshot.runtime_number(0);
        for (bound, count) in [
            ("0.000001", 0),
            ("0.000002", 2),
            ("0.032768", 2),
            ("0.065536", 3),
            ("0.524288", 3),
            ("+Inf", 4),
        ] {
            let line = format!(
                "flowkeep_move_pause_seconds_bucket{{runtime=\"{number}\",le=\"{bound}\"}} {count}\n"
            );
            assert!(text.contains(&line), "{line}{text}");
        }
        let sum = format!("flowkeep_move_pause_seconds_sum{{runtime=\"{number}\"}} 3.0400033\n");
        assert!(text.contains(&sum), "{text}");
    }

    #[test]
    fn how_long_packets_take_is_a_histogram_of_each_switch() {
        let mut snapshot = fake::snapshot();
        for delay in [900, 5_000, 6_000_000] {
            snapshot.switches[0].delays.note(delay);
        }
        let text = text(&snapshot);
        let buckets = samples(&text, "flowkeep_packet_latency_seconds_bucket");
        let count = |bound: &str| {
            let labels = format!("{{switch=\"0\",le=\"{bound}\"}}");
            buckets
                .iter()
                .find(|(of, _)| *of == labels)
                .map(|(_, count)| *count)
        };
        assert_eq!(count("0.000001"), Some(1), "{text}");
        assert_eq!(count("0.000008"), Some(2));
        assert_eq!(count("0.004096"), Some(2));
        assert_eq!(count("+Inf"), Some(3));
        assert!(text.contains("flowkeep_packet_latency_seconds_sum{switch=\"0\"} 0.0060059\n"));
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn it_answers_over_http() {
        let server = Server::start("127.0.0.1:0".parse().unwrap(), Arc::new(Fake::default())).unwrap();
        let address = server.address();
        let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"),
            "{answer}"
        );
        assert!(answer.ends_with("# EOF\n"));
        assert!(ask(address, b"GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(address, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert_eq!(ask(address, b"GET /metrics"), "", "half a request");
        assert_eq!(ask(address, &[b'x'; HEAD_MAX + 1]), "", "too much of one");
        assert!(ask(address, b"GET /metrics?a=b HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
        let again = Server::start(address, Arc::new(Fake::default()));
        assert!(again.is_err_and(|problem| problem.contains("[metrics] listen")));
    }

    #[test]
    fn slow_ones_keep_nobody_waiting() {
        let server = Server::start("127.0.0.1:0".parse().unwrap(), Arc::new(Fake::default())).unwrap();
        // Half of the clients say nothing, half send a part of a request.
        let slow: Vec<_> = (0..200)
            .map(|number| {
                let mut stream = TcpStream::connect(server.address()).unwrap();
                if number % 2 == 0 {
                    stream.write_all(b"GET /met").unwrap();
                }
                stream
            })
            .collect();
        let began = Instant::now();
        for _ in 0..3 {
            let answer = ask(server.address(), b"GET /metrics HTTP/1.1\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        drop(slow);
    }

    #[test]
    fn the_oldest_makes_room() {
        let server = Server::start("127.0.0.1:0".parse().unwrap(), Arc::new(Fake::default())).unwrap();
        let connect = || TcpStream::connect(server.address()).unwrap();
        let mut first = connect();
        let rest: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect()).collect();
        // The first connection is closed before its time.
        first.set_read_timeout(Some(PATIENCE / 2)).unwrap();
        assert_eq!(first.read(&mut [0]).unwrap(), 0);
        drop(rest);
    }

    #[test]
    fn no_figure_is_negative() {
        let mut snapshot = fake::snapshot();
        // A runtime dropped something that its switch had not counted yet.
        snapshot.runtimes[0].dropped[0].count += 1_000;
        let text = text(&snapshot);
        assert_eq!(sum(&text, "flowkeep_passing_packets"), 0);
        assert!(sum(&text, "flowkeep_recounted_packets") > 0);
        assert!(!snapshot.packets().add_up());
    }
}
