//! A real cluster of redis-servers on the loopback: slots that move, nodes that die, slots that are
//! missing.

use crate::authority::Authority;
use crate::faults::{await_failure, await_recovery, goes_on, name, under_load};
use crate::redis::Server;
use flowkeep_stores::{PartitionName, Store};
use std::net::TcpListener;
use std::time::{Duration, Instant};

const SLOTS: u16 = 16384;
const PATIENCE: Duration = Duration::from_secs(60);

/// Servers that have all slots between them, each a third; and a replica, where a test wants one.
pub struct Cluster {
    nodes: Vec<Server>,
    bus: Vec<u16>,
    /// Where nodes and clients meet over TLS, if they do.
    tls: Vec<u16>,
    primaries: u16,
}

impl Cluster {
    /// Three primaries. The error says why it cannot be had here.
    pub fn start(settings: &[&str]) -> Result<Self, String> {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            bus: Vec::new(),
            tls: Vec::new(),
            primaries: 3,
        };
        for _ in 0..cluster.primaries {
            cluster.add(settings)?;
        }
        for at in 0..usize::from(cluster.primaries) {
            let (first, last) = cluster.range(at);
            cluster.done(at, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            cluster.done(at, &format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1));
        }
        cluster.meet();
        Ok(cluster)
    }

    /// The same, and a replica of the node that has this partition.
    fn with_replica(of: &PartitionName) -> Result<Self, String> {
        let mut cluster = Self::start(&[])?;
        let primary = cluster.of(of);
        cluster.add(&[])?;
        cluster.meet();
        let id = cluster.id(primary);
        let replica = cluster.nodes.len() - 1;
        let began = Instant::now();
        while !cluster
            .say(replica, &format!("CLUSTER REPLICATE {id}"))
            .starts_with("+OK")
            || !cluster
                .say(replica, "INFO replication")
                .contains("master_link_status:up")
        {
            assert!(began.elapsed() < PATIENCE, "the replica does not follow");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(cluster)
    }

    fn add(&mut self, settings: &[&str]) -> Result<(), String> {
        // The usual port between nodes, 10,000 higher, is none for most free ports.
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let bus = free().map_err(|error| error.to_string())?.port();
        let mut own = format!(
            "--cluster-enabled yes --cluster-config-file nodes.conf --cluster-node-timeout 1000 --cluster-port {bus} \
             --repl-diskless-sync-delay 0"
        );
        if settings.contains(&"--tls-cluster") {
            let tls = free().map_err(|error| error.to_string())?.port();
            own += &format!(" --tls-port {tls}");
            self.tls.push(tls);
        }
        let all: Vec<&str> = own.split(' ').chain(settings.iter().copied()).collect();
        self.nodes.push(Server::start(&all)?);
        self.bus.push(bus);
        Ok(())
    }

    /// Has all nodes know each other.
    fn meet(&self) {
        for (node, bus) in self.nodes.iter().zip(&self.bus).skip(1) {
            self.done(0, &format!("CLUSTER MEET 127.0.0.1 {} {bus}", node.port));
        }
        let began = Instant::now();
        let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
        let is_met = |at| {
            let said = self.say(at, "CLUSTER INFO");
            said.contains("cluster_state:ok") && said.contains(&known)
        };
        while !(0..self.nodes.len()).all(is_met) {
            assert!(began.elapsed() < PATIENCE, "{}", self.say(0, "CLUSTER NODES"));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn say(&self, at: usize, command: &str) -> String {
        self.nodes[at].try_say(command).unwrap_or_default()
    }

    fn done(&self, at: usize, command: &str) {
        let said = self.say(at, command);
        assert!(said.starts_with("+OK"), "{command}: {said}");
    }

    fn id(&self, at: usize) -> String {
        self.say(at, "CLUSTER MYID").lines().nth(1).unwrap().to_owned()
    }

    fn range(&self, at: usize) -> (u16, u16) {
        let at = u16::try_from(at).unwrap();
        let share = SLOTS / self.primaries;
        let last = if at + 1 == self.primaries {
            SLOTS - 1
        } else {
            share * (at + 1) - 1
        };
        (share * at, last)
    }

    fn slot(&self, partition: &PartitionName) -> u16 {
        let said = self.say(0, &format!("CLUSTER KEYSLOT {{{partition}}}"));
        said.trim_start_matches(':').trim().parse().unwrap()
    }

    /// Which node has a partition's slot at the start.
    fn of(&self, partition: &PartitionName) -> usize {
        let slot = self.slot(partition);
        let has = |at: &usize| (self.range(*at).0..=self.range(*at).1).contains(&slot);
        (0..usize::from(self.primaries)).find(has).unwrap()
    }

    /// Names all nodes.
    pub fn uri(&self) -> String {
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port))
            .collect();
        format!("redis://{}?cluster", nodes.join(","))
    }

    /// Names one node.
    fn uri_of(&self, at: usize) -> String {
        format!("redis://127.0.0.1:{}?cluster", self.nodes[at].port)
    }

    /// Has a slot go from one node to another, key by key, as `redis-cli --cluster reshard` does
    /// it.
    fn give(&self, slot: u16, from: usize, to: usize) {
        let (old, new) = (self.id(from), self.id(to));
        let port = self.tls.get(to).copied().unwrap_or(self.nodes[to].port);
        self.done(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {old}"));
        self.done(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {new}"));
        loop {
            let said = self.say(from, &format!("CLUSTER GETKEYSINSLOT {slot} 1"));
            let Some(key) = said.lines().nth(2) else { break };
            let said = self.say(from, &format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"));
            assert!(
                said.starts_with("+OK") || said.starts_with("+NOKEY"),
                "{key}: {said}"
            );
            // Commands meet a slot that is half here and half there.
            std::thread::sleep(Duration::from_millis(20));
        }
        self.done(to, &format!("CLUSTER SETSLOT {slot} NODE {new}"));
        self.done(from, &format!("CLUSTER SETSLOT {slot} NODE {new}"));
    }
}

fn cluster(started: Result<Cluster, String>) -> Option<Cluster> {
    started.map_err(|why| println!("not run: {why}")).ok()
}

fn said(store: &Store) -> String {
    store
        .health()
        .last_failure
        .map_or_else(String::new, |failure| failure.to_string())
}

#[test]
fn slots_that_move_under_load_cost_no_count() {
    let Some(cluster) = cluster(Cluster::start(&[])) else {
        return;
    };
    let (slot, from) = (cluster.slot(&name(0)), cluster.of(&name(0)));
    let to = (from + 1) % 3;
    under_load(&cluster.uri_of(to), &cluster.uri(), |store, packets| {
        for (from, to) in [(from, to), (to, from)] {
            cluster.give(slot, from, to);
            goes_on(packets, Duration::from_millis(500));
            await_recovery(store);
        }
    });
}

#[test]
fn a_cluster_over_tls_costs_no_count_when_slots_move_and_a_node_dies() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(&folder.path().join("ca.crt"));
    authority.sign(folder.path(), "node", "127.0.0.1");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (ca, cert, key) = (file("ca.crt"), file("node.crt"), file("node.key"));
    let settings = [
        ["--tls-cluster", "yes"],
        ["--tls-auth-clients", "no"],
        ["--tls-ca-cert-file", &ca],
        ["--tls-cert-file", &cert],
        ["--tls-key-file", &key],
    ];
    let Some(mut cluster) = cluster(Cluster::start(settings.as_flattened())) else {
        return;
    };
    let (slot, from) = (cluster.slot(&name(0)), cluster.of(&name(0)));
    let to = (from + 1) % 3;
    // One node is named; the others are known by its word, with their ports for TLS.
    let uri = format!("rediss://127.0.0.1:{}?cluster&ca={ca}", cluster.tls[to]);
    let (seen, health, _) = under_load(&uri, &uri, |store, packets| {
        cluster.give(slot, from, to);
        goes_on(packets, Duration::from_millis(300));
        await_recovery(store);
        cluster.nodes[to].kill();
        await_failure(store);
        cluster.nodes[to].restart();
        await_recovery(store);
        goes_on(packets, Duration::from_millis(300));
    });
    assert!(health.failures > 0 && seen[0].was_late && seen[0].rewritten > 0);
    // Another authority's certificate is not believed of a node either.
    Authority::new(&folder.path().join("other.crt"));
    let uri = uri.replace("ca.crt", "other.crt");
    let said = flowkeep_stores::driver_of(&uri)
        .unwrap()
        .version(&name(0))
        .unwrap_err();
    assert!(said.to_string().contains("certificate"), "{said}");
}

#[test]
fn a_node_that_is_killed_is_followed_by_its_replica() {
    let Some(mut cluster) = cluster(Cluster::with_replica(&name(0))) else {
        return;
    };
    let primary = cluster.of(&name(0));
    // The node that the URI names dies: the others are known from it.
    let (uri, all) = (cluster.uri_of(primary), cluster.uri());
    let (seen, health, _) = under_load(&uri, &all, |store, packets| {
        cluster.nodes[primary].kill();
        goes_on(packets, Duration::from_millis(500));
        await_failure(store);
        assert!(
            said(store).contains("changes wait meanwhile") || said(store).contains("tried again"),
            "{}",
            said(store)
        );
        await_recovery(store);
        goes_on(packets, Duration::from_millis(500));
    });
    assert!(health.failures > 0 && seen.iter().all(|seen| seen.was_late));
    let replica = cluster.nodes.len() - 1;
    assert!(cluster.say(replica, "ROLE").contains("master"));
}

#[test]
fn changes_wait_while_slots_are_missing() {
    let Some(mut cluster) = cluster(Cluster::start(&[])) else {
        return;
    };
    let node = cluster.of(&name(0));
    let other = (node + 1) % 3;
    let uri = cluster.uri();
    let (seen, health, _) = under_load(&uri, &uri, |store, packets| {
        cluster.nodes[node].kill();
        await_failure(store);
        let began = Instant::now();
        while !cluster.say(other, "CLUSTER INFO").contains("cluster_state:fail") {
            assert!(began.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(20));
        }
        let batches = store.health().batches;
        goes_on(packets, Duration::from_secs(1));
        assert!(store.health().failing);
        assert!(
            store.health().batches <= batches + 4,
            "a cluster without slots takes nothing"
        );
        cluster.nodes[node].restart();
        await_recovery(store);
        goes_on(packets, Duration::from_millis(700));
    });
    // The node had no log: it came back empty.
    assert!(health.failures > 0 && seen[0].was_late && seen[0].rewritten > 0);
}

#[test]
fn an_address_of_one_node_without_the_word_says_so() {
    let Some(cluster) = cluster(Cluster::start(&[])) else {
        return;
    };
    let elsewhere = (cluster.of(&name(0)) + 1) % 3;
    let uri = cluster.uri_of(elsewhere).replace("?cluster", "");
    let failure = flowkeep_stores::driver_of(&uri)
        .unwrap()
        .version(&name(0))
        .unwrap_err();
    assert!(failure.to_string().contains("write ?cluster"), "{failure}");
    for (wrong, part) in [
        ("redis://me:secret@h/3?cluster", "one database"),
        ("redis://me:secret@h?cluster&ca=x", "those of rediss"),
        ("redis://me:secret@h:x y?cluster", "no address"),
        ("rediss://me:secret@h?cluster&ca=/nowhere", "/nowhere"),
    ] {
        let said = flowkeep_stores::driver_of(wrong).err().unwrap().to_string();
        assert!(said.contains(part) && !said.contains("secret"), "{wrong}: {said}");
    }
}
