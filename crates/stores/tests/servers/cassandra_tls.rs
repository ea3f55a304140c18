//! A real Cassandra behind TLS: which node is believed, errors of the rest, and its faults.

use crate::authority::Authority;
use crate::cassandra::{Node, join_pem};
use crate::cassandra_users::counts;
use crate::faults::{await_failure, await_recovery, goes_on, under_load};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// As `cassandra.yaml` has it.
const TLS: &str = "client_encryption_options:\n  enabled: true\n  optional: false\n  require_client_auth: WANTED\n  \
                   ssl_context_factory:\n    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory\n  \
                   keystore: FOLDER/node.pem\n  truststore: FOLDER/ca.crt\n";
const OURS: &str = "?ca=FOLDER/ca.crt&cert=FOLDER/client.crt&key=FOLDER/client.key";

/// A node that has TLS clients only; nothing where there is no Cassandra.
fn node(asks_for_certificates: bool) -> Option<Node> {
    let settings = TLS.replace("WANTED", &asks_for_certificates.to_string());
    let node = Node::start_with(&settings).map_err(|why| println!("not run: cassandra: {why}"));
    let node = node.ok()?;
    let other = Authority::new(&node.folder.join("other.crt"));
    other.sign(&node.folder, "stranger", "client");
    node.authority.sign(&node.folder, "client", "client");
    node.authority.sign_expired(&node.folder, "expired", "client");
    Some(node)
}

fn uri(node: &Node, host: &str, settings: &str) -> String {
    let settings = settings.replace("FOLDER", &node.folder.display().to_string());
    format!("cassandras://{host}:{}/space{settings}", node.port)
}

/// How long a node that has just begun may take, on a machine that has much to do.
const TIME: Duration = Duration::from_secs(180);

/// The count, as soon as the node answers in time.
fn counted(uri: &str) -> i64 {
    let began = Instant::now();
    loop {
        match counts(uri) {
            Ok(count) => return count,
            Err(said) => assert!(began.elapsed() < TIME, "{said}"),
        }
    }
}

/// Expects that nothing is counted, and these words in the error.
fn refused(uri: &str, words: &[&str]) {
    let began = Instant::now();
    loop {
        let said = counts(uri).unwrap_err();
        println!("{uri}\n    {said}");
        assert!(!said.contains("secret"), "{said}");
        if words.iter().all(|word| said.contains(word)) {
            return;
        }
        // A node that is slow is said to be silent; anything else is said at once.
        let is_silent = said.contains("has not answered") || said.contains("does not answer");
        assert!(is_silent && began.elapsed() < TIME, "{words:?} of {uri}: {said}");
    }
}

#[test]
fn a_node_is_believed_by_its_authority_and_its_name() {
    let Some(mut node) = node(true) else {
        return;
    };
    let at = |host: &str, settings: &str| uri(&node, host, settings);
    assert_eq!(counted(&at("localhost", OURS)), 1);
    assert_eq!(counted(&at("127.0.0.1", &format!("{OURS}&name=localhost"))), 2);
    let client = "&cert=FOLDER/client.crt&key=FOLDER/client.key";
    for (host, settings, words) in [
        // Another authority, and the system's.
        (
            "localhost",
            format!("?ca=FOLDER/other.crt{client}"),
            ["invalid peer certificate", "cassandras://HOST?ca=FILE"],
        ),
        (
            "localhost",
            String::new(),
            ["invalid peer certificate", "cassandras://HOST?ca=FILE"],
        ),
        // Another host by its name.
        ("127.0.0.1", OURS.to_owned(), ["not valid for", "&name=NAME"]),
        (
            "localhost",
            format!("{OURS}&name=elsewhere"),
            ["not valid for", "&name=NAME"],
        ),
        // Our certificate: none, another authority's, one of 2001.
        (
            "localhost",
            "?ca=FOLDER/ca.crt".to_owned(),
            ["the node asked for a certificate", "set `cert` and `key`"],
        ),
        (
            "localhost",
            "?ca=FOLDER/ca.crt&cert=FOLDER/stranger.crt&key=FOLDER/stranger.key".to_owned(),
            ["the node asked for a certificate", "set `cert` and `key`"],
        ),
        (
            "localhost",
            "?ca=FOLDER/ca.crt&cert=FOLDER/expired.crt&key=FOLDER/expired.key".to_owned(),
            ["the node asked for a certificate", "has not expired"],
        ),
        // Files.
        (
            "me:secret@localhost",
            "?ca=FOLDER/none".to_owned(),
            ["`ca` is ", "none: No such file"],
        ),
        (
            "localhost",
            "?ca=FOLDER/client.key".to_owned(),
            ["`ca` is ", "it has no certificate; name a file in PEM"],
        ),
        (
            "localhost",
            "?cert=FOLDER/client.crt".to_owned(),
            ["one of `cert` and `key`", "write both"],
        ),
        (
            "localhost",
            "?ca=FOLDER/ca.crt&cert=FOLDER/client.crt&key=FOLDER/ca.crt".to_owned(),
            ["`key` is ", "name a file in PEM"],
        ),
        (
            "localhost",
            "?ca=FOLDER/ca.crt&cert=FOLDER/client.crt&key=FOLDER/stranger.key".to_owned(),
            ["`key` is ", "name a certificate and its own key"],
        ),
        (
            "me:secret@localhost",
            "?insecure=yes".to_owned(),
            ["no setting `insecure=yes`", "&ca=FILE"],
        ),
    ] {
        refused(&at(host, &settings), &words);
    }
    // Without TLS.
    let plain = at("localhost", "").replace("cassandras:", "cassandra:");
    refused(&plain, &["with it: cassandras://"]);
    // A certificate for the address needs no name.
    let (by_address, by_name) = (at("127.0.0.1", OURS), at("localhost", OURS));
    node.kill();
    node.authority.sign(&node.folder, "node", "127.0.0.1");
    join_pem(&node.folder);
    node.launch();
    assert_eq!(counted(&by_address), 3);
    assert_eq!(counted(&by_name), 4);
    // A certificate that has expired.
    node.kill();
    node.authority.sign_expired(&node.folder, "node", "localhost");
    join_pem(&node.folder);
    node.launch();
    refused(&by_name, &["expired", "renew the node's certificate"]);
}

#[test]
fn a_node_behind_tls_that_stalls_and_dies_costs_no_count() {
    let Some(mut node) = node(false) else {
        return;
    };
    let uri = uri(&node, "localhost", "?ca=FOLDER/ca.crt");
    let (seen, health, _) = under_load(&uri, &uri, |store, packets| {
        goes_on(packets, Duration::from_secs(1));
        node.signal(Signal::STOP);
        goes_on(packets, Duration::from_secs(1));
        await_failure(store);
        node.signal(Signal::CONT);
        await_recovery(store);
        node.kill();
        await_failure(store);
        node.launch();
        await_recovery(store);
        goes_on(packets, Duration::from_millis(500));
    });
    assert!(health.failures > 0 && !health.failing && seen.iter().all(|seen| seen.was_late));
}

#[test]
fn a_node_without_tls_is_named() {
    let Ok(node) = Node::start_with("").map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    refused(
        &uri(&node, "localhost", "?ca=FOLDER/ca.crt"),
        &["`client_encryption_options`", "write cassandra:// without `ca`"],
    );
}
