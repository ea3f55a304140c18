//! A client and a server, on either side of a gateway; their traffic, and how it went.
//!
//! ```text
//!   client eth0 ═══ left  gateway  right ═══ eth0 server
//! ```

use lab::process::{Process, Run};
use lab::{Lab, LabError, Namespace, need};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// How long anything here may take, on a machine that does other things too.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Tests run alone, since they share two processors with each other; those of [`BESIDE_OTHERS`]
/// beside each other.
static TURN: RwLock<()> = RwLock::new(());

/// Modules whose tests ask for results, and not for their time: mostly they wait.
const BESIDE_OTHERS: [&str; 11] = [
    "bridge",
    "chain",
    "cluster",
    "ftp",
    "ipv6",
    "mtu",
    "nat_behaviour",
    "nat_settings",
    "reload",
    "sip",
    "ssh",
];

/// A test's right to run, until it is dropped.
pub enum Turn {
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
    BesideOthers(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
}

impl Turn {
    /// Waits for the turn of the test that this thread runs.
    fn wait() -> Self {
        let thread = std::thread::current();
        let module = thread.name().and_then(|test| test.split("::").next());
        if module.is_some_and(|module| BESIDE_OTHERS.contains(&module)) {
            Turn::BesideOthers(TURN.read().unwrap_or_else(PoisonError::into_inner))
        } else {
            Turn::alone()
        }
    }

    fn alone() -> Self {
        Turn::Alone(TURN.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Three hosts in a row.
pub struct Network {
    // Dropped in this order: programs before the namespaces that they run in.
    pub servers: Vec<Process>,
    pub client: Namespace,
    pub gateway: Namespace,
    pub server: Namespace,
    lab: Lab,
    pub folder: Folder,
    _turn: Turn,
}

/// A directory that is gone afterwards.
pub struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        // Nothing in it that a shell would read as something else.
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let unique = format!("flowkeep-live-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(unique);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A lab if this machine and user can have one, and all programs are there; otherwise a line says
/// what is missing.
fn lab(programs: &[(&str, &'static str)]) -> Option<Lab> {
    let missing = programs
        .iter()
        .find_map(|(program, package)| need(program, package).err());
    match missing.map_or_else(Lab::new, Err) {
        Ok(lab) => Some(lab),
        Err(error @ (LabError::NotRoot | LabError::NoProgram { .. })) => {
            println!("not run: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The network, or a line that says what it lacks.
pub fn network(programs: &[(&str, &'static str)]) -> Option<Network> {
    let turn = Turn::wait();
    Some(Network::new(lab(programs)?, turn).unwrap())
}

/// The network, and the additions that `add` makes to it.
pub fn network_with<T>(
    programs: &[(&str, &'static str)],
    add: impl FnOnce(&mut Lab, &Network) -> Result<T, LabError>,
) -> Option<(Network, T)> {
    let mut network = network(programs)?;
    // The lab is lent for the moment.
    let mut lab = std::mem::replace(&mut network.lab, Lab::new().unwrap());
    let added = add(&mut lab, &network).unwrap();
    network.lab = lab;
    Some((network, added))
}

/// A lab for something else than the network, and the right to be the only one.
pub fn alone(programs: &[(&str, &'static str)]) -> Option<(Lab, Turn)> {
    let turn = Turn::alone();
    Some((lab(programs)?, turn))
}

impl Network {
    fn new(mut lab: Lab, turn: Turn) -> Result<Self, LabError> {
        let client = lab.namespace("client")?;
        let gateway = lab.namespace("gateway")?;
        let server = lab.namespace("server")?;
        lab.cable((&client, "eth0"), (&gateway, "left"))?;
        lab.cable((&server, "eth0"), (&gateway, "right"))?;
        Ok(Network {
            servers: Vec::new(),
            client,
            gateway,
            server,
            lab,
            folder: Folder::new(),
            _turn: turn,
        })
    }

    /// The lab, for more hosts and cables.
    pub fn lab(&mut self) -> &mut Lab {
        &mut self.lab
    }

    /// Client and server in one network, with nothing between them but the gateway's work.
    pub fn one_network(&self) {
        for (host, number) in [(&self.client, 1), (&self.server, 2)] {
            host.address("eth0", &format!("10.0.0.{number}/24")).unwrap();
            host.address("eth0", &format!("2001:db8::{number}/64")).unwrap();
        }
    }

    /// Has one processor take in the frames of the cables. Otherwise it is the one that the sender
    /// runs on just then, each with a queue of its own, so that packets of a sender that is moved
    /// to another processor may overtake each other in the kernel.
    pub fn keep_order(&self) {
        for (host, interface) in [
            (&self.client, "eth0"),
            (&self.gateway, "left"),
            (&self.gateway, "right"),
            (&self.server, "eth0"),
        ] {
            let words = format!("tee /sys/class/net/{interface}/queues/rx-0/rps_cpus");
            host.run(&words, Run::with_input(PATIENCE, "1")).unwrap();
        }
    }

    /// Starts the tool in the gateway and waits until it says that it is ready.
    pub fn flowkeep(&self, words: &str, ready: &str) -> Process {
        let words = format!("{} {words}", env!("CARGO_BIN_EXE_flowkeep"));
        let mut process = self.gateway.start(&words).unwrap();
        process.wait_for(ready, PATIENCE).unwrap();
        process
    }

    /// nginx at the server, with a file of so many bytes that do not repeat; answers them.
    pub fn serve_file(&mut self, name: &str, bytes: usize) -> Vec<u8> {
        let content = self.content(name, bytes);
        let server = self.server.clone();
        self.nginx(&server, "nginx", "80; listen [::]:80");
        content
    }

    /// A file of so many bytes that do not repeat, for servers; answers them.
    pub fn content(&self, name: &str, bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let content: Vec<u8> = (0..bytes)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        fs::write(self.folder.path(name), &content).unwrap();
        content
    }

    /// nginx, which says its name in each answer.
    pub fn nginx(&mut self, host: &Namespace, name: &str, listen: &str) {
        let folder = self.folder.path("");
        let folder = folder.trim_end_matches('/');
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {folder}/{name}-{kind};"))
            .join(" ");
        let config = format!(
            "user root; daemon off; master_process off; pid {folder}/{name}.pid; error_log stderr notice;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; {temporary}\n\
             server {{ listen {listen}; root {folder}; add_header X-Server {name}; }} }}\n"
        );
        let file = self.folder.path(&format!("{name}.conf"));
        fs::write(&file, config).unwrap();
        let mut nginx = host.start(&format!("nginx -c {file}")).unwrap();
        nginx.wait_for("using the", PATIENCE).unwrap();
        self.servers.push(nginx);
    }

    /// An iperf3 server.
    pub fn serve_iperf3(&mut self) {
        let mut iperf3 = self.server.start("iperf3 --server --forceflush").unwrap();
        iperf3.wait_for("Server listening", PATIENCE).unwrap();
        self.servers.push(iperf3);
    }

    /// A name server at the server, which knows every name under `example.test`.
    pub fn serve_names(&mut self, address: &str) {
        let mut dnsmasq = self
            .server
            .start(&format!(
                "dnsmasq --no-daemon --no-resolv --no-hosts --conf-file=/dev/null --user=root --bind-interfaces \
                 --listen-address={address} --address=/example.test/192.0.2.7"
            ))
            .unwrap();
        dnsmasq.wait_for("started", PATIENCE).unwrap();
        self.servers.push(dnsmasq);
    }

    /// Downloads a file at the client and compares it with the expected content.
    pub fn download(&self, url: &str, expected: &[u8]) {
        let file = self.folder.path("downloaded");
        self.at_client(&format!(
            "curl --silent --show-error --fail --globoff --max-time 50 --output {file} {url}"
        ));
        let got = fs::read(&file).unwrap();
        assert_eq!(got.len(), expected.len(), "{url}");
        assert!(got == expected, "{url}: the content differs");
        fs::remove_file(&file).unwrap();
    }

    /// Sends so many echo requests from the client; all must be answered.
    ///
    /// All at once, as everywhere here where all must be: behind the last one ping waits for no
    /// longer than its interval or twice the longest round trip so far, whatever `-W` says, and on
    /// a busy machine an answer may take longer. With `-S` there is room for all while a neighbour
    /// is asked for.
    pub fn ping(&self, address: &str, count: u32, size: u32) {
        let out = self.at_client(&format!(
            "ping -n -c {count} -l {count} -S 200000 -i 5 -W 5 -s {size} {address}"
        ));
        assert!(
            out.contains(&format!("{count} packets transmitted, {count} received")),
            "{out}"
        );
    }

    /// Measures from the client; answers the report's end.
    pub fn iperf3(&self, words: &str) -> Value {
        // Its server is busy for a moment after each measurement. It says so, and closes the
        // connection without having read the client's bytes: then the client may see a reset
        // instead.
        const REFUSED: &str = "unable to receive control message: Connection reset by peer";
        for _ in 0..50 {
            let out = self.at_client(&format!("iperf3 --json --client {words}"));
            let report: Value = serde_json::from_str(&out).unwrap();
            match report.get("error").and_then(Value::as_str) {
                None => return report["end"].clone(),
                Some(error) if error.contains("busy") || error == REFUSED => {
                    println!("iperf3 is tried again: {error}");
                    std::thread::sleep(Duration::from_millis(100));
                }
                Some(error) => panic!("{error}"),
            }
        }
        panic!("iperf3's server stays busy");
    }

    /// How many datagrams client and server have lost because their programs did not read them in
    /// time.
    pub fn udp_overflows(&self) -> u64 {
        udp_overflows(&self.client) + udp_overflows(&self.server)
    }

    /// Runs a program at the client to its end.
    #[track_caller]
    pub fn at_client(&self, words: &str) -> String {
        match self.client.run(words, Run::within(PATIENCE)) {
            Ok(out) => out,
            Err(error) => panic!("{error}"),
        }
    }
}

/// How many datagrams a host has lost because its programs did not read them in time.
pub fn udp_overflows(host: &Namespace) -> u64 {
    let of = |file: &str, value: &dyn Fn(&str) -> Option<u64>| -> u64 {
        let words = format!("cat /proc/net/{file}");
        value(&host.run(&words, Run::within(PATIENCE)).unwrap()).unwrap()
    };
    let four = of("snmp", &|text| {
        let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
        let (names, values) = (lines.next()?, lines.next()?);
        let at = names.split(' ').position(|name| name == "RcvbufErrors")?;
        values.split(' ').nth(at)?.parse().ok()
    });
    let six = of("snmp6", &|text| {
        let line = text.lines().find(|line| line.starts_with("Udp6RcvbufErrors"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    });
    four + six
}

/// Waits until so many programs in the namespace listen at a port: `udp`, `tcp` or `tcp6`, as
/// `/proc/net` has it.
pub fn wait_for_listeners(host: &Namespace, protocol: &str, port: u16, count: usize) {
    let began = Instant::now();
    // The fourth field is the state: 0A listens, 07 is a UDP socket that is not connected.
    let local = format!(":{port:04X}");
    let listens = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 3 && fields[1].ends_with(&local) && matches!(fields[3], "0A" | "07")
    };
    loop {
        let words = format!("cat /proc/net/{protocol}");
        let sockets = host.run(&words, Run::within(PATIENCE)).unwrap();
        if sockets.lines().filter(listens).count() >= count {
            return;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "no socket listens at {port}: {sockets}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
