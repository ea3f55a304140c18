//! A real node is asked for the consistency and the copies of the URI.

use crate::cassandra::{self, Node};
use crate::faults::{PATIENCE, name, open, options};
use crate::proxies::altering_proxy;
use flowkeep_stores::Partition;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

/// The rest of a request.
struct Reader<'r>(&'r [u8]);

impl<'r> Reader<'r> {
    fn take(&mut self, count: usize) -> &'r [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn short(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    /// Values, each with its length in front.
    fn values(&mut self) {
        for _ in 0..self.short() {
            let length = self.int();
            self.take(usize::try_from(length).unwrap_or(0));
        }
    }

    /// An identity of a prepared statement.
    fn statement(&mut self) {
        let length = self.short();
        self.take(usize::from(length));
    }
}

/// A consistency, and of conditions, by their numbers in the protocol.
type Words = (u16, Option<u16>);

/// Of the requests on a connection: the consistencies of statements that run, and of batches.
fn words(mut said: &[u8]) -> [BTreeSet<Words>; 2] {
    let mut words = <[BTreeSet<Words>; 2]>::default();
    while let Some((head, rest)) = said.split_at_checked(9) {
        assert_eq!(head[0], 4, "the protocol's version");
        let length = u32::from_be_bytes(head[5..].try_into().unwrap());
        let Some((body, rest)) = rest.split_at_checked(length as usize) else {
            break;
        };
        said = rest;
        let mut body = Reader(body);
        match head[4] {
            0x0a => {
                body.statement();
                let (consistency, flags) = (body.short(), body.byte());
                if flags & 0x01 != 0 {
                    body.values();
                }
                if flags & 0x04 != 0 {
                    body.int();
                }
                if flags & 0x08 != 0 {
                    let length = body.int();
                    body.take(usize::try_from(length).unwrap());
                }
                words[0].insert((consistency, (flags & 0x10 != 0).then(|| body.short())));
            }
            0x0d => {
                body.byte();
                for _ in 0..body.short() {
                    assert_eq!(body.byte(), 1, "all are prepared");
                    body.statement();
                    body.values();
                }
                let (consistency, flags) = (body.short(), body.byte());
                words[1].insert((consistency, (flags & 0x10 != 0).then(|| body.short())));
            }
            _ => {}
        }
    }
    words
}

/// The keyspace's copies, as the node has them.
fn replication(node: &Node, keyspace: &str) -> BTreeMap<String, String> {
    cassandra::asked(node, None, async |session| {
        let text = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let answer = session.query_unpaged(text, (keyspace,)).await.unwrap();
        let rows = answer.into_rows_result().unwrap();
        let (found,) = rows.single_row::<(HashMap<String, String>,)>().unwrap();
        found.into_iter().collect()
    })
}

#[test]
fn consistency_and_copies_are_those_of_the_uri() {
    let Ok(node) = cassandra::shared().map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    // By the numbers of the protocol's section 3: of statements and batches, of conditions.
    for (number, word, consistency, serial) in [
        (0, "one", 0x01, 0x08),
        (1, "quorum", 0x04, 0x08),
        (2, "all", 0x05, 0x08),
        (3, "local_quorum", 0x06, 0x09),
        (4, "local_one", 0x0a, 0x09),
    ] {
        let heard = Arc::<Mutex<HashMap<usize, Vec<u8>>>>::default();
        let hears = Arc::clone(&heard);
        let port = altering_proxy(node.port, move |passing| {
            if !passing.is_answer {
                let mut heard = hears.lock().unwrap();
                heard
                    .entry(passing.connection)
                    .or_default()
                    .extend_from_slice(passing.bytes);
            }
        });
        let keyspace = format!("settings_{number}");
        let copies = if number % 2 == 0 { "datacenter1:1" } else { "1" };
        let uri = format!("cassandra://127.0.0.1:{port}/{keyspace}?consistency={word}&replication={copies}");
        let (store, agency, _) = open(&uri);
        let mut partition = Partition::open(&store, name(0)).unwrap();
        partition.counter("total", options()).unwrap().add(3);
        assert!(partition.finish(PATIENCE), "{:?}", store.health());
        assert!(store.write_guarded("g", 1, b"x").unwrap().is_ok());
        assert_eq!(store.sum("load", "total").unwrap(), 3);
        drop(partition);
        assert_eq!(agency.end(), 0);
        let (mut statements, mut batches) = (BTreeSet::new(), BTreeSet::new());
        for said in heard.lock().unwrap().values() {
            let [more, batched] = words(said);
            statements.extend(more);
            batches.extend(batched);
        }
        println!("{word}: {statements:x?} {batches:x?}");
        assert_eq!(batches, [(consistency, Some(serial))].into(), "{word}");
        let ours: BTreeSet<Words> = [(consistency, Some(serial)), (serial, Some(serial))].into();
        assert!(ours.is_subset(&statements), "{word}: {statements:x?}");
        // Statements that the library makes for itself have no conditions.
        let others: Vec<_> = statements.difference(&ours).collect();
        assert!(
            others.iter().all(|(_, serial)| serial.is_none()),
            "{word}: {others:x?}"
        );
        let found = replication(&node, &keyspace);
        let class = "org.apache.cassandra.locator.NetworkTopologyStrategy";
        let expected = [("class", class), ("datacenter1", "1")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, expected.into(), "{word}");
    }
}

#[test]
fn copies_that_cannot_be_had_are_named() {
    let Ok(node) = cassandra::shared().map_err(|why| println!("not run: cassandra: {why}")) else {
        return;
    };
    for (keyspace, settings, parts) in [
        (
            "settings_all",
            "consistency=all&replication=3",
            [
                "ALL",
                "too few nodes are up for the consistency; changes wait meanwhile",
            ],
        ),
        (
            "settings_nowhere",
            "replication=nowhere:1",
            ["nowhere", "see that the nodes take these replication settings"],
        ),
    ] {
        let uri = format!("cassandra://127.0.0.1:{}/{keyspace}?{settings}", node.port);
        let mut driver = crate::faults::driver(&uri);
        let said = driver.claim(&name(0), 1).unwrap_err().to_string();
        println!("{said}");
        for part in parts {
            assert!(said.contains(part), "{said}");
        }
    }
}
