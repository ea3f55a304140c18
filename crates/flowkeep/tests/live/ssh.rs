//! OpenSSH through the chain: commands, files, many sessions at once, and sessions that are idle
//! longer than a connection may take to open.
//!
//! The server is an sshd of the test's own, with its own keys and configuration, on all addresses
//! of the server's host; one half of the sessions asks for a virtual address. A connection that is
//! open has another timeout than one that opens. The latter, and the service's, are shorter here
//! than sessions are idle, and no connection is taken up in its middle: a session lasts only
//! because firewall or NAT knows that it is open.

use crate::network::PATIENCE;
use crate::site::{SERVER, SERVER_V6, Site, VIRTUAL, end_of, site};
use lab::process::{Process, Run};
use std::fs;

pub const PROGRAMS: &[(&str, &str)] = &[("sshd", "openssh-server"), ("ssh", "openssh-client")];

const CONFIG: &str = r#"
[[function.load_balancer.services]]
name = "ssh"
addresses = ["192.0.2.80"]
ports = 22
protocol = "tcp"
policy = "round_robin"
idle_timeout = 5
backends = [
    { name = "ssh-one", endpoint = "203.0.113.11:22" },
    { name = "ssh-two", endpoint = "203.0.113.12:22" },
]

[function.firewall]
tcp_loose = false

[function.firewall.timeouts]
tcp_opening = "5s"
tcp_closing = "5s"

[function.nat.timeouts]
tcp_opening = "5s"
tcp_closing = "5s"
below_rfc = true
"#;

/// Longer than the timeouts above.
const IDLE_SECONDS: u32 = 12;
/// At once.
const SESSIONS: usize = 20;

/// sshd wants this directory, whatever its configuration; if it was not there it goes with the
/// test.
pub struct PrivilegeSeparation {
    made: bool,
}

impl PrivilegeSeparation {
    const PATH: &str = "/run/sshd";

    pub fn new() -> Self {
        let made = fs::create_dir(Self::PATH).is_ok();
        PrivilegeSeparation { made }
    }
}

impl Drop for PrivilegeSeparation {
    fn drop(&mut self) {
        if self.made {
            // Another sshd may have begun to use it.
            let _ = fs::remove_dir(Self::PATH);
        }
    }
}

pub fn keys(site: &Site) {
    for name in ["host", "key"] {
        let file = site.network.folder.path(name);
        let words = site.script("keygen", &format!("ssh-keygen -q -t ed25519 -N '' -f {file}\n"));
        site.network.server.run(&words, Run::within(PATIENCE)).unwrap();
    }
    let host = fs::read_to_string(site.network.folder.path("host.pub")).unwrap();
    fs::write(site.network.folder.path("known"), format!("* {host}")).unwrap();
}

pub fn sshd(site: &mut Site) {
    let folder = &site.network.folder;
    let config = folder.path("sshd.conf");
    let lines = [
        "Port 22".to_owned(),
        format!("HostKey {}", folder.path("host")),
        format!("AuthorizedKeysFile {}", folder.path("key.pub")),
        "StrictModes no".to_owned(),
        "UsePAM no".to_owned(),
        "PidFile none".to_owned(),
        "PermitRootLogin prohibit-password".to_owned(),
        "PasswordAuthentication no".to_owned(),
        "PrintMotd no".to_owned(),
        format!("MaxStartups {}", 10 * SESSIONS),
        "Subsystem sftp internal-sftp".to_owned(),
    ];
    fs::write(&config, lines.join("\n") + "\n").unwrap();
    let mut sshd = site
        .network
        .server
        .start(&format!("/usr/sbin/sshd -D -e -f {config}"))
        .unwrap();
    sshd.wait_for("Server listening on ::", PATIENCE).unwrap();
    site.network.servers.push(sshd);
}

/// How `ssh`, `scp` and `sftp` are called.
pub fn options(site: &Site) -> String {
    let folder = &site.network.folder;
    format!(
        "-F /dev/null -i {} -o IdentitiesOnly=yes -o BatchMode=yes -o UserKnownHostsFile={} -o StrictHostKeyChecking=yes \
         -o ConnectTimeout=30",
        folder.path("key"),
        folder.path("known")
    )
}

fn sessions(scheme: &'static str) {
    let Some(mut site) = site(scheme, PROGRAMS) else {
        return;
    };
    let _directory = PrivilegeSeparation::new();
    keys(&site);
    sshd(&mut site);
    site.start(CONFIG);
    let options = options(&site);

    let idle = idle(&site, &options);
    commands(&site, &options);
    files(&site, &options);
    at_once(&site, &options);
    for (name, expected, process) in idle {
        let end = end_of(process, PATIENCE);
        let good = end
            .as_ref()
            .is_ok_and(|end| end.status.success() && end.out == expected);
        site.log.expect(name, good, format!("{end:?}"));
    }
    site.end();
}

/// Sessions in which for a while neither end says anything; then the client goes on in one, the
/// server in the other.
fn idle(site: &Site, options: &str) -> [(&'static str, &'static str, Process); 2] {
    let begin = |name: &str, text: &str| {
        let words = site.script(name, text);
        site.network.client.start(&words).unwrap()
    };
    let client = format!(
        "(echo one; sleep {IDLE_SECONDS}; echo two) | ssh {options} root@{VIRTUAL} 'while read word; do echo got $word; done'\n"
    );
    let server = format!("ssh {options} root@{VIRTUAL} 'echo one; sleep {IDLE_SECONDS}; echo two'\n");
    [
        (
            "idle, the client goes on",
            "got one\ngot two\n",
            begin("idle-client", &client),
        ),
        (
            "idle, the server goes on",
            "one\ntwo\n",
            begin("idle-server", &server),
        ),
    ]
}

fn commands(site: &Site, options: &str) {
    for host in [SERVER, VIRTUAL, SERVER_V6] {
        let (code, out) = site.client(&format!("ssh {options} root@{host} echo here; exit 7"));
        let good = code == Some(7) && out == "here\n";
        site.log
            .expect(&format!("a command at {host}"), good, format!("{code:?} {out}"));
    }
}

/// A file up and down again, by each client; the files are compared there with a hash and here byte
/// by byte.
fn files(site: &Site, options: &str) {
    let content = site.network.content("large", 6_000_000);
    let path = |name: &str| site.network.folder.path(name);
    let (large, there, back, batch) = (path("large"), path("there"), path("back"), path("batch"));
    let sum = |file: &str| {
        site.network
            .server
            .run(&format!("sha256sum {file}"), Run::within(PATIENCE))
    };
    let hash = sum(&large).unwrap()[..64].to_owned();
    let mut outcomes = Vec::new();
    for (host, uri) in [
        (SERVER, SERVER.to_owned()),
        (VIRTUAL, VIRTUAL.to_owned()),
        (SERVER_V6, format!("[{SERVER_V6}]")),
    ] {
        // New keys are agreed upon on the way, so that both ends speak at once.
        let scp = format!("scp -q {options} -o RekeyLimit=1M");
        fs::write(&batch, format!("get {there} {back}\n")).unwrap();
        for (client, words, arrives) in [
            ("scp", format!("{scp} {large} root@{uri}:{there}"), &there),
            ("sftp", format!("sftp -q {options} -b {batch} root@{uri}"), &back),
        ] {
            let (code, out) = site.client(&words);
            let (_, said) = site.client(&format!("ssh {options} root@{host} sha256sum {arrives}"));
            let same = fs::read(arrives).is_ok_and(|got| got == content);
            let good = code == Some(0) && said.starts_with(&hash) && same;
            outcomes.push((
                format!("{client} at {host}"),
                good,
                format!("{code:?} {out}{said}"),
            ));
        }
        fs::remove_file(&there).ok();
        fs::remove_file(&back).ok();
    }
    for (client, good, said) in outcomes {
        site.log.expect(&client, good, said);
    }
}

/// Each sends a file and has it sent back.
fn at_once(site: &Site, options: &str) {
    let content = site.network.content("small", 300_000);
    let small = site.network.folder.path("small");
    let file = |number: usize| site.network.folder.path(&format!("session-{number}"));
    let processes: Vec<Process> = (0..SESSIONS)
        .map(|number| {
            let host = [SERVER, VIRTUAL][number % 2];
            let text = format!("ssh {options} root@{host} cat < {small} > {}\n", file(number));
            let words = site.script(&format!("script-{number}"), &text);
            site.network.client.start(&words).unwrap()
        })
        .collect();
    let ends: Vec<_> = processes
        .into_iter()
        .map(|process| end_of(process, PATIENCE))
        .collect();
    for (number, end) in ends.into_iter().enumerate() {
        let same = fs::read(file(number)).is_ok_and(|got| got == content);
        let good = same && end.as_ref().is_ok_and(|end| end.status.success());
        let name = format!("session {} of {SESSIONS} at once", number + 1);
        site.log.expect(&name, good, format!("{end:?}"));
    }
}

#[test]
fn ssh_over_packet_sockets() {
    sessions("afpacket");
}

#[test]
fn ssh_over_xdp() {
    sessions("afxdp");
}
