//! A real redis-server behind TLS: which server is believed, errors of the rest, and its faults.

use crate::authority::Authority;
use crate::faults::{await_failure, await_recovery, goes_on, name, options, under_load};
use crate::redis::Server;
use flowkeep_stores::drivers::redis::Redis;
use flowkeep_stores::{Driver, Partition, Store};
use rustix::process::Signal;
use std::net::TcpListener;
use std::time::{Duration, Instant};

struct Site {
    folder: tempfile::TempDir,
    server: Server,
    port: u16,
}

impl Site {
    /// A server whose certificate is for `host`; nothing where there is no redis-server.
    fn new(host: &str, more: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(&folder.path().join("ca.crt"));
        Authority::new(&folder.path().join("other.crt"));
        authority.sign(folder.path(), "server", host);
        authority.sign(folder.path(), "client", "client");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let file = |name: &str| folder.path().join(name).display().to_string();
        let settings = format!(
            "--tls-port {port} --tls-cert-file {} --tls-key-file {} --tls-ca-cert-file {} {more}",
            file("server.crt"),
            file("server.key"),
            file("ca.crt"),
        );
        let server = Server::start(&settings.split_whitespace().collect::<Vec<_>>());
        let server = server.map_err(|why| println!("not run: {why}")).ok()?;
        Some(Site { folder, server, port })
    }

    fn uri(&self, secret: &str, settings: &str) -> String {
        let folder = self.folder.path().display().to_string();
        let settings = settings.replace("FOLDER", &folder);
        format!("rediss://{secret}localhost:{}{settings}", self.port)
    }

    fn counts(&self, uri: &str) -> Result<i64, String> {
        let driver = Redis::new(uri, Duration::from_secs(1)).map_err(|failure| failure.to_string())?;
        let (store, _agency) = Store::start(Box::new(driver), Duration::from_secs(1), |_| ()).unwrap();
        let mut partition = Partition::open(&store, name(0)).map_err(|error| error.to_string())?;
        let total = partition.counter("total", options()).unwrap();
        total.add(1);
        assert!(partition.finish(Duration::from_secs(20)), "{:?}", store.health());
        Ok(total.get())
    }
}

#[test]
fn a_server_is_believed_by_its_authority_and_its_name() {
    let Some(site) = Site::new("localhost", "--tls-auth-clients no") else {
        return;
    };
    assert_eq!(site.counts(&site.uri("", "?ca=FOLDER/ca.crt")), Ok(1));
    assert_eq!(site.counts(&site.uri("", "?ca=FOLDER/ca.crt")), Ok(2));
    // The system's authorities, another one, and a file that has none.
    for settings in ["", "?ca=FOLDER/other.crt", "?ca=FOLDER/client.key"] {
        let said = site.counts(&site.uri("", settings)).unwrap_err();
        assert!(
            said.contains("certificate") && said.contains("?ca=FILE"),
            "{said}"
        );
    }
    // By this name it is another host.
    let by_address = site
        .uri("", "?ca=FOLDER/ca.crt")
        .replace("localhost", "127.0.0.1");
    let said = site.counts(&by_address).unwrap_err();
    assert!(
        said.contains("certificate") && said.contains("this very host"),
        "{said}"
    );
    for (settings, part) in [
        ("?ca=FOLDER/none", "none: No such file"),
        ("?cert=FOLDER/client.crt", "one of `cert` and `key`"),
        ("?insecure=yes", "no setting `insecure`"),
    ] {
        let said = site.counts(&site.uri("me:secret@", settings)).unwrap_err();
        assert!(
            said.contains(part) && !said.contains("secret"),
            "{settings}: {said}"
        );
    }
}

#[test]
fn a_server_may_ask_for_our_certificate_and_a_user() {
    let acl = "--user default off --user mine on >right ~{* ~flowkeep@* +eval +scan +hset +hdel +del +hgetall +hmget +hget \
               +sadd +smembers +get +set";
    let Some(site) = Site::new("localhost", &format!("--tls-auth-clients yes {acl}")) else {
        return;
    };
    let ours = "?ca=FOLDER/ca.crt&cert=FOLDER/client.crt&key=FOLDER/client.key";
    assert_eq!(site.counts(&site.uri("mine:right@", ours)), Ok(1));
    let mut driver = Redis::new(&site.uri("mine:right@", ours), Duration::from_secs(1)).unwrap();
    assert_eq!(driver.variables().unwrap().len(), 1);
    assert!(
        site.counts(&site.uri("mine:right@", "?ca=FOLDER/ca.crt"))
            .is_err()
    );
    let said = site.counts(&site.uri("mine:wrong@", ours)).unwrap_err();
    assert!(
        said.contains("set the user and the password") && !said.contains("wrong@"),
        "{said}"
    );
}

#[test]
fn a_server_behind_tls_that_stalls_and_dies_costs_no_count() {
    let Some(mut site) = Site::new("localhost", "--tls-auth-clients no") else {
        return;
    };
    let uri = site.uri("", "?ca=FOLDER/ca.crt");
    let (seen, health, _) = under_load(&uri, &uri, |store, packets| {
        site.server.signal(Signal::STOP);
        goes_on(packets, Duration::from_secs(1));
        await_failure(store);
        site.server.signal(Signal::CONT);
        await_recovery(store);
        site.server.kill();
        await_failure(store);
        site.server.restart();
        await_recovery(store);
        goes_on(packets, Duration::from_millis(500));
    });
    assert!(health.failures > 0 && seen.iter().all(|seen| seen.rewritten >= 1));
}

#[test]
fn a_server_without_tls_is_an_error_in_time() {
    let Ok(server) = Server::start(&[]).map_err(|why| println!("not run: {why}")) else {
        return;
    };
    let uri = format!("rediss://127.0.0.1:{}", server.port);
    let mut driver = Redis::new(&uri, Duration::from_millis(300)).unwrap();
    let began = Instant::now();
    let said = driver.claim(&name(0), 1).unwrap_err().to_string();
    assert!(began.elapsed() < Duration::from_secs(5), "{said}");
}
