//! Coordinators that are silent, or hear no member, though each member lives: none is suspected.

use super::Killable;
use super::rig::*;
use flowkeep_coordinator::agent::connect;
use flowkeep_coordinator::identity::Right;
use flowkeep_coordinator::log::Embedded;
use flowkeep_coordinator::proto;
use flowkeep_coordinator::relay::Unfit;
use flowkeep_coordinator::server::Server;
use protocols::membership::Role;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const MEMBERS: [(&str, Role); 3] = [("edge", Role::Switch), ("a", Role::Runtime), ("b", Role::Runtime)];

/// Waits until all three run and have the newest view, which it answers.
fn view_of(cluster: &Cluster, at: SocketAddr, all: &[Process]) -> u32 {
    let reader = cluster.operator(Right::Read);
    until("all run", || {
        status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a", "b"])
    });
    let view = status(&reader, at).unwrap().view;
    until("all have the view", || {
        let mut workers = all.iter().flat_map(|process| &process.workers);
        workers.all(|worker| worker.view() == u64::from(view))
    });
    view
}

/// The elected coordinator is stopped, with its sockets open. The next one begins when the lease of
/// its election is over.
#[test]
fn when_a_coordinator_stands_still_the_next_one_suspects_no_member() {
    unsuspected(|| {
        let cluster = Cluster::new("stands-still");
        let first = Killable::start(&cluster, "127.0.0.1:0");
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let next = free.local_addr().unwrap();
        drop(free);
        let links = Arc::new(Links::default());
        let all = MEMBERS.map(|(name, role)| {
            let mut settings = cluster.member(name, 1, &[role], first.address);
            settings.coordinators.push(next.to_string());
            Process::join(settings, &links).unwrap()
        });
        let view = view_of(&cluster, first.address, &all);
        let stopped = Command::new("kill")
            .args(["-STOP", &first.child.id().to_string()])
            .status();
        assert!(stopped.unwrap().success());
        // The log is where the next one finds it.
        let copy = cluster.directory.path().join("copy");
        std::fs::copy(cluster.log_path(), &copy).unwrap();
        thread::sleep(Duration::from_secs(3));
        let log = Embedded::open(&copy).unwrap();
        let server = Server::start(cluster.settings(next), Box::new(log)).unwrap();
        let reader = cluster.operator(Right::Read);
        until("the next one hears all members", || {
            let status = status(&reader, next);
            status.is_some_and(|status| status.members.iter().all(|member| member.load.is_some()))
        });
        // Longer than it waits for members that it has not heard.
        thread::sleep(Duration::from_secs(8));
        assert_eq!(suspicions(&cluster), 0);
        assert_eq!(status(&reader, next).unwrap().view, view);
        links.check();
        first.kill();
        drop((all, server));
    });
}

/// The way between a member and the coordinator. When it is cut, nothing passes, and neither end
/// hears of it.
struct Way {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

impl Way {
    fn to(at: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, is_cut) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let cut = is_cut.clone();
        thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(at)) else {
                    return;
                };
                pass(&near, &far, &cut);
                pass(&far, &near, &cut);
            }
        });
        Way { address, is_cut }
    }

    fn cut(&self, is: bool) {
        self.is_cut.store(is, Ordering::Relaxed);
    }
}

fn pass(from: &TcpStream, to: &TcpStream, is_cut: &Arc<AtomicBool>) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let is_cut = is_cut.clone();
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            while is_cut.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        let _ = from.shutdown(Shutdown::Read);
    });
}

#[test]
fn a_coordinator_that_is_cut_off_from_all_members_suspects_none() {
    unsuspected(|| {
        let cluster = Cluster::new("cut-off");
        let server = cluster.start();
        let (at, links) = (server.address(), Arc::new(Links::default()));
        let ways = MEMBERS.map(|_| Way::to(at));
        let mut members = MEMBERS.iter().zip(&ways);
        let all = [(); 3].map(|()| {
            let ((name, role), way) = members.next().unwrap();
            Process::join(cluster.member(name, 1, &[*role], way.address), &links).unwrap()
        });
        let view = view_of(&cluster, at, &all);
        ways.iter().for_each(|way| way.cut(true));
        thread::sleep(Duration::from_secs(2));
        ways[0].cut(false);
        // The other ways pass their bytes a while later.
        thread::sleep(Duration::from_millis(1500));
        ways.iter().for_each(|way| way.cut(false));
        thread::sleep(Duration::from_secs(5));
        assert_eq!(suspicions(&cluster), 0);
        let reader = cluster.operator(Right::Read);
        assert_eq!(status(&reader, at).unwrap().view, view);
        // A member that is silent by itself is removed as ever.
        all[2].workers[0].hang(true);
        until("it is removed", || {
            status(&reader, at).is_some_and(|status| running(&status) == ["edge", "a"])
        });
        links.check();
        drop((all, server));
    });
}

/// The service's thread hears members. It does other work, too.
#[test]
fn a_service_that_is_held_up_has_no_member_suspected() {
    fn slow(_: &[u8]) -> Result<Right, Unfit> {
        thread::sleep(Duration::from_secs(2));
        Err(Unfit::Unknown("no request".to_owned()))
    }
    unsuspected(|| {
        let cluster = Cluster::new("held-up");
        let mut settings = cluster.settings("127.0.0.1:0".parse().unwrap());
        settings.judge = slow;
        let log = Embedded::open(&cluster.log_path()).unwrap();
        let server = Server::start(settings, Box::new(log)).unwrap();
        thread::sleep(Duration::from_nanos(TIMING.settling));
        let (at, links) = (server.address(), Arc::new(Links::default()));
        let join = |(name, role)| Process::join(cluster.member(name, 1, &[role], at), &links).unwrap();
        let all = MEMBERS.map(join);
        view_of(&cluster, at, &all);
        let admin = cluster.operator(Right::Admin);
        block_on(async {
            let mut client = connect(&at.to_string(), &admin).await.unwrap();
            let request = proto::RelayRequest {
                member: "a".to_owned(),
                request: vec![1],
            };
            client.relay(request).await.unwrap_err()
        });
        thread::sleep(Duration::from_nanos(2 * TIMING.suspicion));
        assert_eq!(suspicions(&cluster), 0);
        links.check();
        drop((all, server));
    });
}
