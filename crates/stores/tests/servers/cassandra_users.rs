//! A real Cassandra that asks for a user and a password, and gives each user rights of its own:
//! the error of a wrong one, and that no password is shown.

use crate::cassandra::{self, Node};
use crate::faults::{name, options};
use flowkeep_stores::drivers::cassandra::Cassandra;
use flowkeep_stores::{Partition, Store};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);
const USERS: &str = "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n\
                     role_manager: CassandraRoleManager\npermissions_validity: 10ms\n\
                     roles_validity: 10ms\ncredentials_validity: 10ms\n";

fn uri(node: &Node, secret: &str, keyspace: &str) -> String {
    format!("cassandra://{secret}127.0.0.1:{}/{keyspace}", node.port)
}

/// Counts one more in a keyspace; the count, or the error.
pub fn counts(uri: &str) -> Result<i64, String> {
    let driver = Cassandra::new(uri, PATIENCE).map_err(|failure| failure.to_string())?;
    let (store, _agency) = Store::start(Box::new(driver), PATIENCE, |_| ()).unwrap();
    let mut partition = Partition::open(&store, name(0)).map_err(|error| error.to_string())?;
    let total = partition.counter("total", options()).unwrap();
    total.add(1);
    assert!(partition.finish(Duration::from_secs(20)), "{:?}", store.health());
    Ok(total.get())
}

/// Has the cluster's first user say something.
fn command(node: &Node, text: &str) {
    cassandra::asked(node, Some("cassandra"), async |session| {
        session.query_unpaged(text, &[]).await.unwrap();
    });
}

#[test]
fn a_user_is_known_by_its_password_and_has_its_rights() {
    let Ok(node) = Node::start_with(USERS).map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    // The first user is made behind the start.
    let first = uri(&node, "cassandra:cassandra@", "first");
    let began = Instant::now();
    while let Err(said) = counts(&first) {
        assert!(began.elapsed() < Duration::from_secs(90), "{said}");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(counts(&first), Ok(2));
    for secret in ["cassandra:wr0ng@", "stranger:wr0ng@", ""] {
        let said = counts(&uri(&node, secret, "first")).unwrap_err();
        println!("{secret}: {said}");
        assert!(
            said.contains(&format!("127.0.0.1:{}/first", node.port))
                && said.contains("set the user and the password")
                && !said.contains("wr0ng"),
            "{said}"
        );
    }
    // A password with letters that a URI has for itself, and a user without rights, then with them.
    command(
        &node,
        "CREATE ROLE flowkeep WITH PASSWORD = 'a@b:c/d' AND LOGIN = true",
    );
    let ours = uri(&node, "flowkeep:a%40b%3Ac%2Fd@", "first");
    let said = counts(&ours).unwrap_err();
    println!("{said}");
    assert!(
        said.contains("SELECT and MODIFY") && !said.contains("a@b"),
        "{said}"
    );
    for right in ["SELECT", "MODIFY"] {
        command(&node, &format!("GRANT {right} ON KEYSPACE first TO flowkeep"));
    }
    let began = Instant::now();
    let count = loop {
        match counts(&ours) {
            Ok(count) => break count,
            Err(said) => assert!(began.elapsed() < Duration::from_secs(20), "{said}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    assert_eq!(count, 3);
}
