//! All flows are moved, back and forth, while real clients talk through the chain: no client
//! notices.
//!
//! ```text
//!   client 10.0.1.1 … 10.0.1.8 ═══ gateway: firewall → NAT → load balancer → forward, three runtimes ═══ servers
//!     │ 500 downloads, each compared byte by byte     iperf3, TCP and UDP, up and down     SSH: words back and forth, files by scp
//!     │ SIP calls with RTP     names, 300 a second     two probes of 1000 numbered datagrams a second ([`probe`])
//!     └ meanwhile: ten times all flows to one runtime and all to another; then each runtime drained and resumed
//! ```
//!
//! In one process, and with a process for the switch and one for each of two runtimes: of one host,
//! which share memory, or of two, over Geneve and on Ethernet with a key; there without forwarding,
//! since runtimes of another host have no routes. The other host's clock is ten hours ahead.
//!
//! The clients have several addresses, since NAT keeps the flows of one inside host together:
//! groups are hosts here, and those of IPv6 too.
//!
//! A loss counts unless an overload explains it. On a machine that is busy with other things
//! sockets overflow and queues are full, which is counted where it happens ([`Site::overload`]); of
//! datagrams as many may be missing, over all clients, as were lost that way, and nothing may come
//! twice or in another order in any case. Nothing is tried again.

mod adding;
mod failing;
mod members;
pub mod probe;
mod stored;
mod suspicion;

use crate::network::PATIENCE;
use crate::site::{Links, Names, SERVER, Site, VIRTUAL, end_of, site};
use crate::{sip, ssh};
use lab::process::Run;
use serde_json::Value;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PROGRAMS: &[(&str, &str)] = &[
    ("curl", "curl"),
    ("nginx", "nginx-light"),
    ("iperf3", "iperf3"),
    ("dnsmasq", "dnsmasq-base"),
    ("dnsperf", "dnsperf"),
];

const CONFIG: &str = r#"
[[function.load_balancer.services]]
name = "ssh"
addresses = ["192.0.2.80"]
ports = 22
protocol = "tcp"
backends = [{ name = "ssh", endpoint = "203.0.113.11:22" }]
"#;

const RUNTIMES: u16 = 3;
/// All flows to one runtime and to another.
const ROUNDS: u32 = 10;
/// Inside hosts that download, and how much each does.
const DOWNLOADERS: [u8; 5] = [1, 2, 3, 4, 5];
const DOWNLOADS: usize = 100;
const FILE: usize = 60_000;
/// Bytes per second of a download: it lasts for most of the time.
const RATE: &str = "5k";
/// How long clients talk that are told how long.
const SECONDS: u64 = 15;
/// In nanoseconds: a move that takes longer is called back, so no receipt may tell of one.
const LATE: u64 = 4_000_000_000;
/// Between two orders.
const PAUSE: Duration = Duration::from_millis(300);

/// How many the cluster has.
#[derive(Clone, Copy)]
enum Processes {
    One,
    /// A switch and two nodes with a runtime each, and the links between them. An order goes to the
    /// process that gives flows away.
    Three(Links),
}

impl Processes {
    /// Runtimes, and the process to ask about each.
    fn runtimes(self) -> Vec<(u16, usize)> {
        match self {
            Processes::One => (0..RUNTIMES).map(|runtime| (runtime, 0)).collect(),
            Processes::Three(_) => vec![(0, 1), (1, 2)],
        }
    }

    /// Orders by which all flows are at runtime 1 and then at runtime 0, and the processes that get
    /// them.
    fn orders(self) -> [(usize, &'static str); 2] {
        match self {
            Processes::One => [(0, "flow migrate --all --to 1"), (0, "flow migrate --all --to 0")],
            Processes::Three(_) => [
                (1, "flow migrate --all --from 0 --to 1"),
                (2, "flow migrate --all --from 1 --to 0"),
            ],
        }
    }
}

/// Ends work that goes on until it is told, however this thread ends.
struct On<'a>(&'a AtomicBool);

impl Drop for On<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Datagrams that were lost, by all clients.
#[derive(Default)]
struct Missing(AtomicU64);

impl Missing {
    fn note(&self, client: &str, count: u64) {
        println!("{client}: {count} missing");
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

fn moving(scheme: &'static str, processes: Processes) {
    let programs: Vec<_> = [PROGRAMS, sip::PROGRAMS, ssh::PROGRAMS].concat();
    let Some(mut site) = site(scheme, &programs) else {
        return;
    };
    let _directory = ssh::PrivilegeSeparation::new();
    let contents = serve(&mut site);
    match processes {
        Processes::One => {
            let workers = format!("runtimes = {RUNTIMES}\nruntimes_max = {}", RUNTIMES + 1);
            site.start_workers(&workers, CONFIG);
        }
        Processes::Three(links) => site.start_members(links, CONFIG),
    }

    let (on, missing) = (AtomicBool::new(true), Missing::default());
    let before = site.overload();
    let (site_of, missing_of, on_of) = (&site, &missing, &on);
    std::thread::scope(|scope| {
        let _on = On(on_of);
        for host in DOWNLOADERS {
            let content = &contents.file;
            scope.spawn(move || downloads(site_of, host, content, RATE));
            std::thread::sleep(PAUSE);
        }
        // Five hundred connections that open are more than some machines can do at once; packets
        // lost by that are not this test's concern.
        std::thread::sleep(Duration::from_secs(1));
        for (host, port) in [("10.0.1.6", 7006), ("10.0.1.7", 7007)] {
            scope.spawn(move || probes(site_of, host, port, on_of, missing_of));
        }
        for (host, port, how) in [
            (1, 5201, "--bitrate 5M"),
            (2, 5202, "--bitrate 5M --reverse"),
            (3, 5203, "--bitrate 1M --length 500 --udp"),
            (4, 5204, "--bitrate 1M --length 500 --udp --reverse"),
        ] {
            scope.spawn(move || stream(site_of, host, port, how, missing_of));
        }
        scope.spawn(move || words(site_of));
        scope.spawn(move || files(site_of, &contents.large));
        scope.spawn(move || calls(site_of, on_of, missing_of));
        scope.spawn(move || names(site_of, missing_of));

        std::thread::sleep(Duration::from_secs(1));
        back_and_forth(site_of, processes);
        drained_and_resumed(site_of, processes);
        if let Processes::One = processes {
            added_and_removed(site_of);
        }
    });
    let lost = site.overload() - before;
    let missing = missing.0.into_inner();
    println!("{missing} datagrams missing, {lost} counted as lost for want of room");
    let why = if missing > lost {
        site.circumstances()
    } else {
        String::new()
    };
    site.log.expect(
        "datagrams",
        missing <= lost,
        format!("{missing} missing, {lost} counted\n{why}"),
    );
    site.log.expect(
        "nothing dropped for moving",
        site.dropped("moving_full") == 0,
        "moving_full",
    );
    site.end();
}

/// The files of the servers.
struct Contents {
    file: Vec<u8>,
    large: Vec<u8>,
}

fn serve(site: &mut Site) -> Contents {
    for host in 2..=8 {
        site.network
            .client
            .address("eth0", &format!("10.0.1.{host}/24"))
            .unwrap();
    }
    site.network.keep_order();
    site.introduce_pool();
    ssh::keys(site);
    ssh::sshd(site);
    let network = &mut site.network;
    let contents = Contents {
        file: network.content("file", FILE),
        large: network.content("large", 2_000_000),
    };
    for (name, listen) in [("one", "203.0.113.11:80"), ("two", "203.0.113.12:80")] {
        let server = network.server.clone();
        network.nginx(&server, name, listen);
    }
    for port in 5201..=5204 {
        let words = format!("iperf3 --server --forceflush --port {port}");
        let mut iperf3 = network.server.start(&words).unwrap();
        iperf3.wait_for("Server listening", PATIENCE).unwrap();
        network.servers.push(iperf3);
    }
    network.serve_names(SERVER);
    contents
}

/// Asks the tool; failures are noted, with its words.
fn asked(site: &Site, member: usize, words: &str) -> Option<Value> {
    let answer = site.asked_of(member, &format!("{words} --json"));
    let said = format!("{answer:?}");
    let value = answer.ok().and_then(|answer| serde_json::from_str(&answer).ok());
    let whole: String = words.chars().filter(|c| !c.is_ascii_digit()).collect();
    site.log
        .note(whole.trim(), value.is_some(), || format!("{words}: {said}"));
    value
}

/// The sums of receipts.
#[derive(Default)]
struct Receipts {
    orders: u32,
    moved: u64,
    pauses: Vec<u64>,
    kept: u64,
}

impl Receipts {
    fn add(&mut self, site: &Site, member: usize, words: &str, flows_min: u64) {
        let Some(receipt) = asked(site, member, words) else {
            return;
        };
        let of = |name: &str| receipt[name].as_u64().unwrap_or(u64::MAX);
        let good = of("flows_moved") >= flows_min
            && of("pause_longest_ns") < LATE
            && (of("flows_refused"), of("flows_failed"), of("packets_dropped")) == (0, 0, 0);
        site.log.note("receipts", good, || format!("{words}: {receipt}"));
        self.orders += 1;
        self.moved += of("flows_moved");
        self.kept += of("packets_buffered") + of("packets_handed_on");
        self.pauses.push(of("pause_longest_ns"));
    }

    fn tell(mut self, what: &str) {
        self.pauses.sort_unstable();
        let at =
            |of_hundred: usize| Duration::from_nanos(self.pauses[(self.pauses.len() - 1) * of_hundred / 100]);
        println!(
            "{what}: {} orders, {} flows moved, {} packets waited; longest pause of an order: median {:?}, at most {:?}",
            self.orders,
            self.moved,
            self.kept,
            at(50),
            at(100)
        );
    }
}

/// The probes at least are moved each time, and where they are is known: all are at one runtime.
fn back_and_forth(site: &Site, processes: Processes) {
    let (mut receipts, began) = (Receipts::default(), Instant::now());
    for _ in 0..ROUNDS {
        for (member, order) in processes.orders() {
            receipts.add(site, member, order, 2);
            std::thread::sleep(PAUSE);
        }
    }
    receipts.tell("back and forth");
    println!("back and forth took {:?}", began.elapsed());
}

fn drained_and_resumed(site: &Site, processes: Processes) {
    let mut receipts = Receipts::default();
    for (runtime, member) in processes.runtimes() {
        receipts.add(site, member, &format!("runtime drain {runtime}"), 0);
        let list = asked(site, member, "runtime list").unwrap_or_default();
        let all = list["runtimes"].as_array().cloned().unwrap_or_default();
        let good = all
            .iter()
            .any(|of| of["runtime"] == runtime && of["flows"] == 0 && of["leaving"] == true);
        site.log
            .note("a drained runtime has no flow", good, || list.to_string());
        std::thread::sleep(PAUSE);
        asked(site, member, &format!("runtime resume {runtime}"));
    }
    receipts.tell("drained");
}

/// A runtime comes, takes its share of the flows, and goes, twice.
fn added_and_removed(site: &Site) {
    let mut receipts = Receipts::default();
    for _ in 0..2 {
        for order in [
            "runtime add --rebalance".to_owned(),
            format!("runtime remove {RUNTIMES}"),
        ] {
            receipts.add(site, 0, &order, 0);
            std::thread::sleep(PAUSE);
        }
    }
    receipts.tell("added and removed");
}

fn probes(site: &Site, host: &str, port: u16, on: &AtomicBool, missing: &Missing) {
    let mut seen = probe::probe(&site.network.client, &site.network.server, host, port, on);
    let told = seen.told();
    println!("{told}");
    let good = seen.sent > 1000 && seen.crooked() == 0 && !seen.stood_still(probe::GAP_MAX);
    site.log.expect(&format!("probe from {host}"), good, told);
    missing.note(&format!("probe from {host}"), seen.missing());
}

/// Downloads at once, each compared with the served file.
fn downloads(site: &Site, host: u8, content: &[u8], rate: &str) {
    let folder = &site.network.folder;
    let words = format!(
        "curl --silent --show-error --fail --parallel --parallel-immediate --parallel-max {DOWNLOADS} --max-time 50 --limit-rate {rate} \
         --interface 10.0.1.{host} --output {} http://{VIRTUAL}/file?[1-{DOWNLOADS}]",
        folder.path(&format!("got-{host}-#1"))
    );
    let ended = site.network.client.finish(&words, Run::within(PATIENCE)).unwrap();
    for number in 1..=DOWNLOADS {
        let file = folder.path(&format!("got-{host}-{number}"));
        let equal = fs::read(&file).is_ok_and(|got| got == content);
        let _ = fs::remove_file(&file);
        site.log
            .note("downloads", equal, || format!("{number} from {host}: {ended:?}"));
    }
    let good = ended.status.success();
    site.log.note("curl", good, || format!("{ended:?}"));
}

fn stream(site: &Site, host: u8, port: u16, how: &str, missing: &Missing) {
    stream_for(SECONDS, site, host, port, how, missing);
}

fn stream_for(seconds: u64, site: &Site, host: u8, port: u16, how: &str, missing: &Missing) {
    let client = format!("iperf3 {how}");
    let (code, out) = site.client(&format!(
        "iperf3 --json --client {SERVER} --bind 10.0.1.{host} --port {port} --time {seconds} {how}"
    ));
    let report: Value = serde_json::from_str(&out).unwrap_or_default();
    let end = &report["end"];
    if !how.contains("--udp") {
        let bytes = end["sum_received"]["bytes"].as_u64().unwrap_or(0);
        println!("{client}: {bytes} bytes");
        let good = code == Some(0) && bytes > 1_000_000;
        return site.log.expect(&client, good, out);
    }
    let number = |name: &str| end["sum"][name].as_u64();
    let disordered = end["streams"][0]["udp"]["out_of_order"].as_u64();
    let good = code == Some(0) && number("packets") > Some(100 * seconds) && disordered == Some(0);
    site.log.expect(&client, good, &out);
    missing.note(&client, number("lost_packets").unwrap_or(0));
}

/// Words back and forth in one session, one after the other.
fn words(site: &Site) {
    let count = SECONDS * 10;
    let options = ssh::options(site);
    let text = format!(
        "for number in $(seq {count}); do echo $number; sleep 0.1; done | \
         ssh -b 10.0.1.5 {options} root@{VIRTUAL} 'while read word; do echo got $word; done'\n"
    );
    let process = site.network.client.start(&site.script("words", &text)).unwrap();
    let end = end_of(process, PATIENCE);
    let expected: String = (1..=count).map(|number| format!("got {number}\n")).collect();
    let good = end
        .as_ref()
        .is_ok_and(|end| end.status.success() && end.out == expected);
    site.log
        .expect("ssh, words back and forth", good, format!("{end:?}"));
}

/// Files by scp, slow enough to be moved in their middle.
fn files(site: &Site, content: &[u8]) {
    let folder = &site.network.folder;
    let (large, options) = (folder.path("large"), ssh::options(site));
    for (number, host) in [SERVER, VIRTUAL].into_iter().enumerate() {
        let there = folder.path(&format!("there-{number}"));
        // 250 kB a second.
        let (code, out) = site.client(&format!("scp -q -l 2000 {options} {large} root@{host}:{there}"));
        let same = fs::read(&there).is_ok_and(|got| got == content);
        site.log.expect(
            &format!("scp to {host}"),
            code == Some(0) && same,
            format!("{code:?} {out}"),
        );
    }
}

/// Calls with media, again and again.
fn calls(site: &Site, on: &AtomicBool, missing: &Missing) {
    while on.load(Ordering::Acquire) {
        let lost = sip::with_symmetric_answers(site);
        missing.note("media", lost as u64);
    }
}

fn names(site: &Site, missing: &Missing) {
    let names = Names::ask(&site.network, SERVER, Some("10.0.1.8"), SECONDS);
    site.log.expect("names", names.are_good(SECONDS), &names.said);
    missing.note("names", names.lost);
}

#[test]
fn moving_over_packet_sockets() {
    moving("afpacket", Processes::One);
}

#[test]
fn moving_over_xdp() {
    moving("afxdp", Processes::One);
}

#[test]
fn moving_between_processes() {
    moving("afxdp", Processes::Three(Links::Memory));
}

#[test]
fn moving_between_hosts_over_geneve() {
    moving("afpacket", Processes::Three(Links::Geneve));
}

#[test]
fn moving_between_hosts_on_ethernet() {
    moving("afxdp", Processes::Three(Links::Ethernet));
}
