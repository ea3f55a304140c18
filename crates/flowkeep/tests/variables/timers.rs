//! Timers: armed by packets, fired without, by the process that has their variables then.

use super::{chain, gateway, gateway_of, most, said, sum};
use crate::rig::Folder;
use crate::storing::{output, server, wait};
use nf::variables::{Counter, CounterMap, Options, Timers, Variables};
use nf::{ConfigError, Cx, NetworkFunction, Packet, TimerCx, Verdict, WorkerInfo, network_function};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

/// Timers of a runtime.
pub const COUNT: u64 = 600;
const RUNTIMES: u64 = 2;

#[derive(Deserialize, JsonSchema, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How many milliseconds are between two timers.
    apart_ms: u64,
}

/// Each packet arms the next timer, until there have been [`COUNT`]. How often each has fired is a
/// variable, too.
pub struct Alarms {
    runtime: u16,
    apart_ms: u64,
    armed: Counter,
    timers: Timers<u64, ()>,
    fired: CounterMap<u64>,
}

#[network_function]
impl NetworkFunction for Alarms {
    const NAME: &'static str = "alarms";
    const COUNTERS: &'static [&'static str] = &["fired"];
    type Config = Settings;

    fn with_variables(
        config: &Arc<Settings>,
        worker: &WorkerInfo,
        variables: &mut Variables,
    ) -> Result<Self, ConfigError> {
        // Timers of another runtime may come besides.
        let options = Options {
            capacity: 4096,
            ..Options::default()
        };
        Ok(Alarms {
            runtime: worker.runtime,
            apart_ms: config.apart_ms,
            armed: variables.counter("armed", options)?,
            timers: variables.timers("timers", options)?,
            fired: variables.counter_map("fired", options)?,
        })
    }

    fn process(&self, _: &mut Packet, (): &mut (), cx: &mut Cx<Self>) -> Verdict {
        let number = self.armed.get().cast_unsigned();
        let at = cx.wall_ms() + self.apart_ms * (number + 1);
        // No two runtimes have one key.
        let key = u64::from(self.runtime) << 32 | number;
        if number < COUNT && self.timers.arm(&key, at, ()).is_ok() {
            self.armed.add(1);
        }
        Verdict::Forward
    }

    fn next_timer(&self) -> Option<u64> {
        self.timers.next_at()
    }

    fn timer_due(&self, cx: &mut TimerCx<Self>) {
        if let Some((number, ())) = self.timers.fire(cx.wall_ms()) {
            let _ = self.fired.add(&number, 1);
            cx.count("fired");
        }
    }

    fn command(&self, _: &[&str]) -> Result<String, String> {
        let (mut fired, mut most) = (0, 0);
        self.fired.for_each(|_, times| {
            fired += 1;
            most = most.max(times);
        });
        let (runtime, armed, waiting) = (self.runtime, self.armed.get(), self.timers.len());
        Ok(format!(
            "runtime={runtime} armed={armed} waiting={waiting} fired={fired} most={most}"
        ))
    }
}

/// Killed while timers fire, twice; the rest fires where no packet comes. All of it is one store's
/// to tell.
fn each_fires_once(name: &str, uri: &str) {
    let folder = Folder::new(name);
    let table = chain("alarms", "apart_ms = 20", uri);
    let state = |member: &_| said(member, "alarms", "state").filter(|said| said["armed"].len() == 2);
    let mut at_least = 50;
    for _ in 0..2 {
        let mut running = gateway(&folder, 5000.0, &table);
        let killed = wait("all are armed, and some have fired", || {
            let said = state(&running)?;
            let are_armed = sum(&said, "armed") == RUNTIMES * COUNT;
            (are_armed && sum(&said, "fired") > at_least).then_some(said)
        });
        running.kill();
        println!("{uri}: killed when it was {killed:?}");
        assert_eq!(most(&killed, "most"), 1, "{killed:?}");
        at_least = sum(&killed, "fired") + 50;
    }
    let running = gateway(&folder, 0.001, &table);
    let said = wait("all have fired", || {
        state(&running).filter(|said| sum(said, "waiting") == 0)
    });
    assert_eq!(sum(&said, "fired"), RUNTIMES * COUNT, "{said:?}");
    assert_eq!(most(&said, "most"), 1, "{said:?}");
    let status = running.status();
    assert!(status.packets.r#in <= 8, "{status}");
    let fired_here = status.counters.get("alarms/fired").copied().unwrap_or(0);
    assert!(fired_here > 0, "some fired here, where no packet came: {status}");
}

#[test]
fn timers_fire_once_through_kills_with_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("variables.redb").display().to_string();
    each_fires_once("timers-file", &format!("redb:{file}"));
}

#[test]
fn timers_fire_once_through_kills_with_a_server() {
    if let Some(server) = server(&[]) {
        each_fires_once("timers-server", &server.uri());
    }
}

#[test]
fn timers_fire_without_a_store_that_outlasts_the_process() {
    let folder = Folder::new("timers-memory");
    let running = gateway(&folder, 5000.0, &chain("alarms", "apart_ms = 1", "memory:"));
    let said = wait("all have fired", || {
        said(&running, "alarms", "state").filter(|said| sum(said, "fired") == RUNTIMES * COUNT)
    });
    assert_eq!((sum(&said, "waiting"), most(&said, "most")), (0, 1), "{said:?}");
}

/// Killed with two runtimes and begun with one: that one fires the other's, too. It is killed again
/// while it does.
#[test]
fn timers_of_a_runtime_that_does_not_begin_again_fire_once_at_another() {
    let folder = Folder::new("timers-fewer");
    let uri = format!("redb:{}", folder.0.join("variables.redb").display());
    let table = chain("alarms", "apart_ms = 20", &uri);
    let mut running = gateway(&folder, 5000.0, &table);
    wait("all are armed, and some have fired", || {
        let said = said(&running, "alarms", "state").filter(|said| said["armed"].len() == 2)?;
        let are_armed = sum(&said, "armed") == RUNTIMES * COUNT;
        (are_armed && sum(&said, "fired") > 50).then_some(())
    });
    running.kill();
    // The store has all that fired at either runtime; one runtime says its part.
    let state = |running: &_| said(running, "alarms", "state");
    let mut running = gateway_of(1, &folder, 0.001, &table);
    let first = wait("it begins", || state(&running));
    let events = wait("its events", || {
        let events = std::fs::read_to_string(folder.0.join("gateway.jsonl")).ok()?;
        events.contains("\"timers_taken_over\"").then_some(events)
    });
    let taken = events.lines().find(|line| line.contains("\"timers_taken_over\""));
    let taken: serde_json::Value = serde_json::from_str(taken.expect("a line")).expect("JSON");
    assert_eq!(taken["partition"], "alarms@@1", "{taken}");
    wait("some have fired", || {
        let waiting = sum(&state(&running)?, "waiting");
        (waiting == 0 || waiting + 50 < sum(&first, "waiting")).then_some(())
    });
    running.kill();
    let running = gateway_of(1, &folder, 0.001, &table);
    wait("all have fired", || {
        state(&running).filter(|said| sum(said, "waiting") == 0)
    });
    let said = wait("the store has it", || {
        let fired = fired(&running.socket.display().to_string(), &uri);
        fired.filter(|(fired, _)| *fired == RUNTIMES * COUNT)
    });
    assert_eq!(said, (RUNTIMES * COUNT, RUNTIMES * COUNT));
}

/// The sums of all runtimes at the store in the process: how many timers have fired, and how often
/// in all.
fn fired(socket: &str, uri: &str) -> Option<(u64, u64)> {
    let (done, said, error) = output(&["store", "inspect", uri, "--merged", "--json", "--socket", socket]);
    assert!(done, "{error}");
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let rows = said["variables"].as_array()?;
    let row = rows.iter().find(|row| row["name"] == "fired")?;
    Some((row["elements"].as_u64()?, row["sum"].as_u64()?))
}

/// A runtime goes while most of its timers wait; `go`: how.
fn another_runtime_fires_them(name: &str, go: &[&[&str]]) {
    let folder = Folder::new(name);
    let running = gateway(&folder, 5000.0, &chain("alarms", "apart_ms = 10", "memory:"));
    let socket = running.socket.display().to_string();
    let before = wait("all are armed, and some have fired", || {
        let said = said(&running, "alarms", "state").filter(|said| said["armed"].len() == 2)?;
        let are_armed = sum(&said, "armed") == RUNTIMES * COUNT;
        (are_armed && sum(&said, "fired") > 50).then_some(said)
    });
    for words in go {
        let (done, said, error) = output(&[words, &["--socket", &socket][..]].concat());
        assert!(done, "{words:?}: {said}{error}");
    }
    let said = wait("all have fired at the other", || {
        said(&running, "alarms", "state").filter(|said| sum(said, "waiting") == 0)
    });
    assert_eq!(said["runtime"], [0], "{said:?}");
    // All timers of its own have fired, and those that the other left, which were more than half.
    assert!(
        sum(&said, "fired") > COUNT + COUNT / 2,
        "{said:?} behind {before:?}"
    );
    wait("the store has it", || {
        fired(&socket, "memory:").filter(|fired| *fired == (RUNTIMES * COUNT, RUNTIMES * COUNT))
    });
    // The next of its number finds none.
    let (done, said, error) = output(&["runtime", "add", "1", "--socket", &socket]);
    assert!(done, "{said}{error}");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(
        fired(&socket, "memory:"),
        Some((RUNTIMES * COUNT, RUNTIMES * COUNT))
    );
}

#[test]
fn timers_of_a_runtime_that_is_removed_fire_once_at_another() {
    let go: [&[&str]; 2] = [&["runtime", "drain", "1"], &["runtime", "remove", "1"]];
    another_runtime_fires_them("timers-removed", &go);
}

#[test]
fn timers_of_a_runtime_that_is_killed_fire_once_at_another() {
    another_runtime_fires_them("timers-killed", &[&["runtime", "kill", "1", "--unprotected"]]);
}
