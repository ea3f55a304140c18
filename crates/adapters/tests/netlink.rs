//! The kernel's tables followed while they change: a pair of links between two network namespaces,
//! changed with `ip`.
//!
//! The test runs itself again under `unshare --net`, so all it makes is gone with it. It needs
//! root; without, it says so.

use flowkeep_adapters::netlink::{RouteKind, Watcher};
use std::process::Command;
use std::time::{Duration, Instant};
use wire::Addr;

const INSIDE: &str = "FLOWKEEP_TEST_IN_NAMESPACE";

fn addr(text: &str) -> Addr {
    text.parse().unwrap()
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().expect("ip");
    assert!(status.success(), "ip {words}");
}

/// A namespace of a name for the other end, gone at the end.
struct Peer(String);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Waits until the condition holds.
#[track_caller]
fn until(watcher: &mut Watcher, what: &str, mut holds: impl FnMut(&Watcher) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds(watcher) {
        assert!(Instant::now() < end, "{what}: {:?}", watcher.network());
        watcher.wait(Duration::from_millis(100)).expect("netlink");
    }
}

#[test]
fn the_kernel_is_followed() {
    if std::env::var_os(INSIDE).is_some() {
        return follow();
    }
    let me = std::env::current_exe().expect("a test");
    let ran = Command::new("timeout")
        .args(["-k", "5", "900", "unshare", "--net"])
        .arg(me)
        .args(["--exact", "the_kernel_is_followed", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("`timeout` and `unshare`, which every Debian has");
    let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    if said.contains("Operation not permitted") {
        return println!("not run: needs root (unshare --net)");
    }
    assert!(ran.status.success(), "{said}");
}

fn follow() {
    let peer = Peer(format!("fk-forward-{}", std::process::id()));
    ip(&format!("netns add {}", peer.0));
    ip("link set lo up");
    ip("link add fk0 type veth peer name fk1");
    ip(&format!("link set fk1 netns {}", peer.0));
    let mut watcher = Watcher::open().expect("netlink");
    let link = |watcher: &Watcher| {
        let links = &watcher.network().links;
        links.values().find(|link| link.name == "fk0").cloned()
    };
    let fk0 = link(&watcher).expect("fk0");
    assert!(!fk0.is_up);
    let theirs = |words: &str| ip(&format!("-n {} {words}", peer.0));
    theirs("addr add 10.77.0.2/24 dev fk1");
    theirs("link set fk1 address 02:00:00:00:77:02 up");
    ip("addr add 10.77.0.1/24 dev fk0");
    ip("addr add fd77::1/64 dev fk0 nodad");
    ip("link set fk0 mtu 1400 up");
    until(&mut watcher, "up, with addresses", |w| {
        let addresses = w.network().addresses.get(&fk0.index).cloned().unwrap_or_default();
        link(w).is_some_and(|link| link.is_up && link.mtu == 1400)
            && addresses.contains(&addr("10.77.0.1"))
            && addresses.contains(&addr("fd77::1"))
    });
    let route = |w: &Watcher, to: &str| {
        let to = to.parse().unwrap();
        w.network().routes.iter().find(|route| route.to == to).cloned()
    };
    until(&mut watcher, "the link's own route", |w| {
        route(w, "10.77.0.0/24").is_some()
            && route(w, "10.77.0.1/32").is_some_and(|r| r.kind == RouteKind::Local)
    });
    // Routes come, change and go.
    ip("route add 198.51.100.0/24 via 10.77.0.2 mtu 1300 metric 50");
    until(&mut watcher, "a route", |w| route(w, "198.51.100.0/24").is_some());
    let found = route(&watcher, "198.51.100.0/24").unwrap();
    assert_eq!((found.mtu, found.rank), (1300, (1, 50)));
    assert_eq!(
        (found.ways[0].link, found.ways[0].gateway),
        (fk0.index, Some(addr("10.77.0.2")))
    );
    ip("route replace 198.51.100.0/24 metric 50 nexthop via 10.77.0.2 weight 3 nexthop via 10.77.0.3");
    until(&mut watcher, "two ways", |w| {
        route(w, "198.51.100.0/24").is_some_and(|r| r.ways.iter().map(|way| way.weight).eq([3, 1]))
    });
    ip("route add blackhole 203.0.113.0/24");
    ip("route add unreachable 192.0.2.0/24");
    ip("-6 route add default via fd77::2 dev fk0");
    ip("route add 198.18.0.0/15 via 10.77.0.2 table 100");
    until(&mut watcher, "routes of all kinds", |w| {
        route(w, "203.0.113.0/24").is_some_and(|r| r.kind == RouteKind::Blackhole)
            && route(w, "192.0.2.0/24").is_some_and(|r| r.kind == RouteKind::Unreachable)
            && route(w, "::/0").is_some_and(|r| r.ways[0].gateway == Some(addr("fd77::2")))
    });
    assert_eq!(route(&watcher, "198.18.0.0/15"), None, "another table's");
    // Routes that want a tunnel's header, as far as this kernel has them: unreachable, but for
    // their plain ways.
    for (to, words) in [
        ("198.51.101.0/24", "encap ip id 5 dst 10.77.0.2 dev fk0"),
        ("198.51.102.0/24", "encap ip6 id 5 dst fd77::2 dev fk0"),
        ("198.51.103.0/24", "encap mpls 100 via inet 10.77.0.2"),
        ("2001:db8:1::/48", "encap seg6 mode encap segs fd77::2 dev fk0"),
        ("2001:db8:2::/48", "encap seg6local action End dev fk0"),
        (
            "2001:db8:3::/48",
            "encap ioam6 trace prealloc type 0x800000 ns 1 size 12 dev fk0",
        ),
        ("2001:db8:4::/48", "encap rpl segs fd77::2 dev fk0"),
    ] {
        let family = if to.contains(':') { "-6 " } else { "" };
        let words = format!("{family}route add {to} {words}");
        if !Command::new("ip")
            .args(words.split(' '))
            .status()
            .expect("ip")
            .success()
        {
            println!("not run: this kernel has no such routes: {words}");
            continue;
        }
        until(&mut watcher, &words, |w| {
            route(w, to).is_some_and(|r| r.kind == RouteKind::Unreachable && r.ways.is_empty())
        });
    }
    ip("route add 198.51.104.0/24 nexthop encap ip id 5 dst 10.77.0.2 dev fk0 nexthop via 10.77.0.3");
    until(&mut watcher, "the plain way of two", |w| {
        route(w, "198.51.104.0/24")
            .is_some_and(|r| r.ways.len() == 1 && r.ways[0].gateway == Some(addr("10.77.0.3")))
    });
    ip("route del 198.51.100.0/24");
    until(&mut watcher, "the route gone", |w| {
        route(w, "198.51.100.0/24").is_none()
    });
    // Neighbours: told, changed, gone, and asked for.
    let of = |w: &Watcher, address: &str| {
        let neighbours = &w.network().neighbours;
        neighbours.get(&(fk0.index, addr(address))).map(|n| n.link)
    };
    ip("neigh add 10.77.0.9 lladdr 02:00:00:00:00:09 dev fk0 nud permanent");
    until(&mut watcher, "a neighbour", |w| {
        of(w, "10.77.0.9") == Some([2, 0, 0, 0, 0, 9])
    });
    ip("neigh replace 10.77.0.9 lladdr 02:00:00:00:00:0a dev fk0 nud permanent");
    until(&mut watcher, "its new address", |w| {
        of(w, "10.77.0.9") == Some([2, 0, 0, 0, 0, 10])
    });
    // A neighbour by IPv6 at the address that maps it is no neighbour by IPv4.
    ip("-6 neigh add ::ffff:10.77.0.9 lladdr 02:00:00:00:66:66 dev fk0 nud permanent");
    ip("-6 route add ::ffff:192.0.2.0/120 dev fk0");
    ip("-6 neigh add fd77::9 lladdr 02:00:00:00:00:09 dev fk0 nud permanent");
    until(&mut watcher, "what came behind it", |w| {
        of(w, "fd77::9").is_some()
    });
    assert_eq!(of(&watcher, "10.77.0.9"), Some([2, 0, 0, 0, 0, 10]));
    ip("-6 neigh del ::ffff:10.77.0.9 dev fk0");
    ip("-6 neigh del fd77::9 dev fk0");
    until(&mut watcher, "gone", |w| of(w, "fd77::9").is_none());
    assert_eq!(of(&watcher, "10.77.0.9"), Some([2, 0, 0, 0, 0, 10]));
    assert_eq!(
        route(&watcher, "192.0.2.0/24").map(|route| route.kind),
        Some(RouteKind::Unreachable)
    );
    // Going stale, and being confirmed, changes nothing that a packet is sent by. Other things may
    // change at the same time by themselves.
    let staleness = |w: &Watcher| {
        let neighbours = &w.network().neighbours;
        neighbours
            .get(&(fk0.index, addr("10.77.0.9")))
            .map(|n| n.is_stale)
    };
    let mut quiet = [0; 2];
    for number in 0..20 {
        let stale = number % 2 == 0;
        let state = if stale { "stale" } else { "reachable" };
        ip(&format!(
            "neigh replace 10.77.0.9 lladdr 02:00:00:00:00:0a dev fk0 nud {state}"
        ));
        let mut changed = false;
        while staleness(&watcher) != Some(stale) {
            changed |= watcher.wait(Duration::from_millis(100)).expect("netlink");
        }
        quiet[usize::from(stale)] += usize::from(!changed);
    }
    assert!(
        quiet[0] > 5 && quiet[1] > 5,
        "changes without a difference: {quiet:?}"
    );
    ip("neigh del 10.77.0.9 dev fk0");
    until(&mut watcher, "no neighbour", |w| of(w, "10.77.0.9").is_none());
    assert_eq!(of(&watcher, "10.77.0.2"), None);
    watcher.resolve(fk0.index, addr("10.77.0.2")).expect("root");
    until(&mut watcher, "an answer to ARP", |w| {
        of(w, "10.77.0.2") == Some([2, 0, 0, 0, 0x77, 2])
    });
    theirs("addr add fd77::2/64 dev fk1 nodad");
    watcher.resolve(fk0.index, addr("fd77::2")).expect("root");
    until(&mut watcher, "an answer to a solicitation", |w| {
        of(w, "fd77::2") == Some([2, 0, 0, 0, 0x77, 2])
    });
    // Its end takes all along.
    ip("link set fk0 down");
    until(&mut watcher, "nothing by a link that is down", |w| {
        let mut ways = w.network().routes.iter().flat_map(|r| &r.ways);
        ways.all(|way| way.link != fk0.index)
    });
}
