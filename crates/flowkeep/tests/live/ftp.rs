//! FTP through the chain: passive mode passes, of a server and of two behind a virtual address;
//! active mode is refused.
//!
//! In passive mode the client opens both connections, so no function has to know the words of the
//! first one:
//!
//! ```text
//!   client ──► 192.0.2.80:21 ──► .11 or .12    round robin
//!          ◄── 229 Entering Extended Passive Mode (|||40013|)
//!          ──► 192.0.2.80:40013 ──► .11        each server has ports of its own, and the service of these ports only that server
//! ```
//!
//! (Of PASV's answer, which has the server's own address, clients use the port only.) In active
//! mode the server connects to where the client says that it listens: 10.0.1.1, which is no host's
//! address outside. That would need an application gateway, which rewrites the words; there is
//! none. Instead a careful server refuses the client's PORT by itself, and another server's
//! connection is dropped and counted. Over IPv6, where nothing is translated, one rule is enough.

use crate::network::{PATIENCE, wait_for_listeners};
use crate::site::{SERVER, SERVER_V6, Site, VIRTUAL, end_of, site};
use lab::process::Process;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const PROGRAMS: &[(&str, &str)] = &[("vsftpd", "vsftpd"), ("curl", "curl"), ("lftp", "lftp")];

/// The page that says how; the tests here try its configuration.
const PAGE: &str = include_str!("../../../../docs/protocols.md");

/// The page's services and its rule.
fn documented() -> String {
    let block = |mark: &str| -> &str {
        let (_, rest) = PAGE.split_once(mark).expect(mark);
        rest.split("```").next().unwrap()
    };
    ["```toml services\n", "```toml rule\n"].map(block).concat()
}

/// At once, from the two servers behind the virtual address.
const DOWNLOADS: usize = 20;
/// Why the connection of a server that comes unasked is dropped.
const REASON: &str = "firewall/not_allowed";

/// Servers, the files that they have, and the log of tries.
struct Ftp {
    site: Site,
    content: Vec<u8>,
    /// No user can write to this one, or vsftpd would not serve it; in it is `up`, to which all
    /// can.
    folder: String,
}

fn transfers(scheme: &'static str) {
    let Some(mut ftp) = Ftp::new(scheme) else { return };
    ftp.site.start(&documented());
    ftp.passive();
    ftp.at_once();
    ftp.active_is_refused();
    ftp.active_over_ipv6();
    ftp.site.end();
}

impl Ftp {
    fn new(scheme: &'static str) -> Option<Self> {
        let site = site(scheme, PROGRAMS)?;
        let folder = site.network.folder.path("ftp");
        let mode = |path: &str, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::create_dir_all(format!("{folder}/up")).unwrap();
        mode(&site.network.folder.path(""), 0o755);
        mode(&folder, 0o755);
        mode(&format!("{folder}/up"), 0o777);
        let content = site.network.content("ftp/file", 2_000_000);
        let mut ftp = Ftp {
            site,
            content,
            folder,
        };
        ftp.vsftpd(
            "one",
            "listen_address=203.0.113.11\npasv_min_port=40000\npasv_max_port=40099",
        );
        ftp.vsftpd(
            "two",
            "listen_address=203.0.113.12\npasv_min_port=40100\npasv_max_port=40199",
        );
        ftp.vsftpd("careful", "listen_address=203.0.113.1");
        ftp.vsftpd(
            "careless",
            "listen_address=203.0.113.1\nlisten_port=2121\nport_promiscuous=YES\nconnect_timeout=3\nconnect_from_port_20=NO",
        );
        ftp.vsftpd(
            "six",
            &format!("listen_ipv6=YES\nlisten_address6={SERVER_V6}\nlisten=NO"),
        );
        let server = &ftp.site.network.server;
        wait_for_listeners(server, "tcp", 21, 3);
        wait_for_listeners(server, "tcp", 2121, 1);
        wait_for_listeners(server, "tcp6", 21, 1);
        Some(ftp)
    }

    fn vsftpd(&mut self, name: &str, settings: &str) {
        let folder = &self.folder;
        let file = self.site.network.folder.path(&format!("{name}.conf"));
        // Later settings replace earlier ones.
        let text = format!(
            "listen=YES\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\nftp_username=ftp\nanon_root={folder}\n\
             write_enable=YES\nanon_upload_enable=YES\nanon_umask=022\nsecure_chroot_dir={folder}\nxferlog_enable=NO\n\
             connect_from_port_20=YES\nseccomp_sandbox=NO\nisolate=NO\nisolate_network=NO\nftpd_banner=server {name}\n\
             {settings}\n"
        );
        fs::write(&file, text).unwrap();
        let vsftpd = self.site.network.server.start(&format!("vsftpd {file}")).unwrap();
        self.site.network.servers.push(vsftpd);
    }

    fn path(&self, name: &str) -> String {
        self.site.network.folder.path(name)
    }

    /// Whether a file has the served content; it is gone then.
    fn take(&self, file: &str) -> bool {
        let same = fs::read(file).is_ok_and(|got| got == self.content);
        let _ = fs::remove_file(file);
        same
    }

    fn expect(&mut self, client: &str, good: bool, said: impl std::fmt::Debug) {
        self.site.log.expect(client, good, format!("{said:?}"));
    }

    fn passive(&mut self) {
        let (got, file) = (self.path("got"), format!("{}/file", self.folder));
        for (host, url) in [
            (SERVER, SERVER.to_owned()),
            (VIRTUAL, VIRTUAL.to_owned()),
            (SERVER_V6, format!("[{SERVER_V6}]")),
        ] {
            let curl = "curl --silent --show-error --globoff --max-time 30";
            for (how, words) in [("EPSV", ""), ("PASV", "--disable-epsv")] {
                // Over IPv6 there is EPSV only, whatever curl is told.
                let end = self
                    .site
                    .client(&format!("{curl} {words} -o {got} ftp://{url}/file"));
                let same = self.take(&got);
                self.expect(&format!("{how} from {host}"), end.0 == Some(0) && same, end);
            }
            let end = self.site.client(&format!("{curl} -T {file} ftp://{url}/up/file"));
            let same = self.take(&format!("{}/up/file", self.folder));
            self.expect(&format!("upload to {host}"), end.0 == Some(0) && same, end);
            let words = self.lftp("true", host, &got);
            let end = self.site.client(&words);
            let same = self.take(&got);
            self.expect(&format!("lftp from {host}"), end.0 == Some(0) && same, end);
        }
    }

    fn lftp(&self, passive: &str, host: &str, got: &str) -> String {
        let text = format!(
            "lftp -e 'set net:timeout 10; set net:max-retries 1; set ftp:passive-mode {passive}; get file -o {got}; bye' {host}\n"
        );
        self.site.script("lftp", &text)
    }

    /// Both servers have some, each control connection its data from the same one: the other would
    /// not know of it.
    fn at_once(&mut self) {
        let file = |number: usize| self.path(&format!("got-{number}"));
        let clients: Vec<Process> = (0..DOWNLOADS)
            .map(|number| {
                let how = ["", "--disable-epsv"][number / 2 % 2];
                let words = format!(
                    "curl --verbose --max-time 50 {how} -o {} ftp://{VIRTUAL}/file",
                    file(number)
                );
                self.site.network.client.start(&words).unwrap()
            })
            .collect();
        let ends: Vec<_> = clients
            .into_iter()
            .map(|client| end_of(client, PATIENCE))
            .collect();
        let served = ["server one", "server two"]
            .map(|name| ends.iter().flatten().filter(|end| end.err.contains(name)).count());
        for (number, end) in ends.iter().enumerate() {
            let same = self.take(&self.path(&format!("got-{number}")));
            let good = same && end.as_ref().is_ok_and(|end| end.status.success());
            self.expect(&format!("download {} of {DOWNLOADS}", number + 1), good, end);
        }
        self.expect("both servers", served.iter().all(|served| *served > 0), served);
    }

    /// By a careful server's own word, and of a careless one's by the cluster, for a reason that is
    /// counted.
    fn active_is_refused(&mut self) {
        let got = self.path("got");
        let curl = format!("curl --verbose --max-time 20 --ftp-port - -o {got}");
        for how in ["", "--disable-eprt"] {
            let (code, out) = self.site.client(&format!("{curl} {how} ftp://{SERVER}/file"));
            let good = code == Some(30) && out.contains("500 Illegal") && !self.take(&got);
            self.expect(&format!("active, by a careful server {how}"), good, (code, out));
        }
        let words = self.lftp("false", SERVER, &got);
        let (code, out) = self.site.client(&words);
        let good = code == Some(1) && out.contains("500 Illegal") && !self.take(&got);
        self.expect("active, by lftp", good, (code, out));

        let before = self.site.dropped(REASON);
        let (code, out) = self.site.client(&format!("{curl} ftp://{SERVER}:2121/file"));
        let refused = self.site.dropped(REASON) - before;
        println!("FTP active: {refused} packets refused");
        let good = code == Some(19) && out.contains("425 Failed to establish connection") && !self.take(&got);
        self.expect("active, by a careless server", good, (code, out));
        self.expect("its connection is counted", refused > 0, refused);
    }

    /// Where nothing is translated a rule for the server's port 20 is enough, and needed.
    fn active_over_ipv6(&mut self) {
        let got = self.path("got");
        for (ports, passes) in [("50000-50009", true), ("51000-51009", false)] {
            let before = self.site.dropped(REASON);
            let words = format!(
                "curl --verbose --globoff --max-time 5 --ftp-port [2001:db8:1::1]:{ports} -o {got} ftp://[{SERVER_V6}]/file"
            );
            let (code, out) = self.site.client(&words);
            let refused = self.site.dropped(REASON) - before;
            let good = self.take(&got) == passes && (code == Some(0)) == passes && (refused == 0) == passes;
            self.expect(
                &format!("active over IPv6 to {ports}"),
                good,
                (code, refused, out),
            );
        }
    }
}

#[test]
fn ftp_over_packet_sockets() {
    transfers("afpacket");
}

#[test]
fn ftp_over_xdp() {
    transfers("afxdp");
}
