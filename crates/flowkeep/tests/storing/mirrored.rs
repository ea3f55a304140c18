//! Two stores that mirror each other, under a running Flowkeep: one of them is killed with
//! `kill -9` and begins again, with its data or without, and Flowkeep itself is killed while one is
//! away.

use super::storing::{Folder, Server, server, wait};
use super::{LOGGED, Running, sum_at, table};
use serde_json::Value;

/// `[store]` with a mirror.
fn pair(first: &str, second: &str) -> String {
    table(first, &format!("mirror = \"{second}\""))
}

fn kill(server: &mut Server) {
    if let Some(mut child) = server.child.take() {
        child.kill().expect("it is killed");
        let _ = child.wait();
    }
}

impl Folder {
    fn redb(&self) -> String {
        format!("redb:{}", self.path("mirror.redb"))
    }

    /// Waits until the state of one of the two stores, by `status`, is as it should be.
    fn await_side(&self, uri: &str, what: &str, is: impl Fn(&Value) -> bool) {
        wait(what, || {
            let status = self.status()?;
            let sides = status["stores"][0]["mirrored"].as_array()?;
            let side = sides.iter().find(|side| side["store"] == uri)?;
            is(side).then_some(())
        });
    }

    fn await_behind(&self, uri: &str) {
        self.await_side(uri, "a store that is behind", |side| side["behind"] != 0);
    }

    fn await_in_step(&self, uri: &str) {
        let is = |side: &Value| side["behind"] == 0 && side["failing"] == false;
        self.await_side(uri, "a store in step", is);
    }

    /// Waits until so many packets more are counted.
    fn count_on(&self, packets: i64) {
        let from = wait("a count", || self.counted());
        wait("traffic", || {
            self.counted().filter(|count| *count > from + packets)
        });
    }

    /// Kills a server under load and starts it again, `rounds` times; Flowkeep sees a store that
    /// takes everything.
    fn kill_and_start(&self, server: &mut Server, rounds: usize) {
        for _ in 0..rounds {
            self.count_on(5_000);
            kill(server);
            self.await_behind(&server.uri());
            self.count_on(5_000);
            let status = self.status().expect("an answer");
            assert_eq!(status["stores"][0]["failing"], false, "{status}");
            server.launch().expect("it begins again");
            self.await_in_step(&server.uri());
        }
        self.count_on(5_000);
    }

    fn has_events(&self, names: &[&str]) {
        let events = std::fs::read_to_string(self.path("events.jsonl")).expect("events");
        for name in names {
            assert!(events.contains(name), "no {name}: {events}");
        }
        assert!(!events.contains("store_fenced"), "{events}");
    }
}

#[test]
fn one_of_two_mirrored_stores_is_killed_under_load_and_both_have_every_count() {
    // With its log, without its data, as the first and as the second.
    for (settings, is_first) in [(&LOGGED[..], true), (&[], true), (&[], false)] {
        let Some(mut server) = server(settings) else {
            return;
        };
        let folder = Folder::new();
        let (redis, file) = (server.uri(), folder.redb());
        let store = match is_first {
            true => pair(&redis, &file),
            false => pair(&file, &redis),
        };
        let running = Running::start(&folder.gateway(&folder.traffic(), &store, ""));
        folder.kill_and_start(&mut server, 3);
        let counted = folder.stop(running);
        for uri in [&redis, &file] {
            assert_eq!(
                sum_at(uri, "packets_by_protocol"),
                counted,
                "{uri}, first: {is_first}"
            );
        }
        folder.has_events(&["mirror_behind", "mirror_in_step"]);
    }
}

#[test]
fn either_of_two_mirrored_servers_is_killed_in_turn() {
    let (Some(mut first), Some(mut second)) = (server(&[]), server(&[])) else {
        return;
    };
    let folder = Folder::new();
    let store = pair(&first.uri(), &second.uri());
    let running = Running::start(&folder.gateway(&folder.traffic(), &store, ""));
    for _ in 0..2 {
        folder.kill_and_start(&mut first, 1);
        folder.kill_and_start(&mut second, 1);
    }
    let counted = folder.stop(running);
    for server in [&first, &second] {
        assert_eq!(sum_at(&server.uri(), "packets_by_protocol"), counted);
    }
}

/// The store that was away has an older state, or none: the next Flowkeep goes on from the other's.
#[test]
fn a_flowkeep_that_is_killed_while_one_store_is_away_goes_on_from_the_other() {
    for settings in [&LOGGED[..], &[]] {
        let Some(mut server) = server(settings) else {
            return;
        };
        let folder = Folder::new();
        let (redis, file) = (server.uri(), folder.redb());
        let config = folder.gateway(&folder.traffic(), &pair(&redis, &file), "");
        let running = Running::start(&config);
        folder.count_on(5_000);
        kill(&mut server);
        folder.await_behind(&redis);
        folder.count_on(5_000);
        running.kill();
        let before = sum_at(&file, "packets_by_protocol");
        assert!(before > 5_000, "{before}");
        // Neither is known to have the later state, as long as one does not answer.
        let (done, said, error) = super::output(&["run", &config]);
        assert!(
            !done && format!("{said}{error}").contains("without a mirror"),
            "{said}{error}"
        );
        server.launch().expect("it begins again");
        let running = Running::start(&config);
        folder.count_on(5_000);
        folder.await_in_step(&redis);
        let counted = folder.stop(running);
        for uri in [&redis, &file] {
            assert_eq!(sum_at(uri, "packets_by_protocol"), before + counted, "{uri}");
        }
    }
}
