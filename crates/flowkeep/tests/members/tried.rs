//! A configuration on trial over the cluster: it goes back at all members unless it is confirmed,
//! also where the coordinator and a member die meanwhile.

use super::changed::{NO_443, all_have, firewall, in_force};
use super::joined::{Site, passes};
use super::rig::PATIENCE;
use super::wide::{until_all_answer, wide};
use std::time::{Duration, Instant};

/// Applied, and to be confirmed within so long.
#[track_caller]
fn tried(site: &Site, file: &str, time: &str) {
    let done = wide(
        site,
        "admin",
        &["chain", "apply", file, "--cut", "--confirm", time],
    );
    assert_eq!(done.code, 0, "{} {}", done.out, done.err);
    assert!(done.out.contains("it is on trial"), "{}", done.out);
}

/// Waits until all three have a configuration of this number.
#[track_caller]
fn until_all_have(site: &Site, number: u64) -> String {
    let began = Instant::now();
    loop {
        let all = in_force(&until_all_answer(site));
        if all.len() == 3 && all.iter().all(|of| of.1 == number && of.2 == all[0].2) {
            return all[0].2.clone();
        }
        assert!(began.elapsed() < PATIENCE, "{all:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_trial_goes_back_at_all_members_unless_it_is_confirmed() {
    let site = Site::guarded("tried", &firewall(""));
    let [front, left, mut right] = site.all();
    passes(&front, 2000);
    let old = all_have(&site, 1)[0].2.clone();
    let text = site.folder.read("cluster.toml");
    let new = text.replace(&firewall(""), &firewall(NO_443));
    let file = site.folder.write("new.toml", &new).display().to_string();

    wide(&site, "admin", &["chain", "confirm"]).refused(1, &["not-on-trial"]);
    tried(&site, &file, "8s");
    let new = until_all_have(&site, 2);
    assert_ne!(new, old);
    let status = wide(&site, "read", &["status", "--json"]).json();
    assert_eq!(status["trial"]["generation"], 2, "{status}");
    wide(&site, "operate", &["chain", "confirm"]).refused(1, &["role-without-right"]);
    // No operator confirms it.
    assert_eq!(until_all_have(&site, 3), old);
    assert!(wide(&site, "read", &["status", "--json"]).json()["trial"].is_null());
    wide(&site, "admin", &["chain", "rollback"]).refused(1, &["no configuration to go back to"]);
    passes(&front, 2000);

    // The command has ended; the coordinator and a member are killed before the time is over.
    tried(&site, &file, "8s");
    assert_eq!(until_all_have(&site, 4), new);
    right.kill();
    site.coordinator.kill_guarded();
    let right = site.start("node", "right");
    assert_eq!(until_all_have(&site, 5), old);
    passes(&front, 2000);

    // A trial is confirmed, and its configuration stays; an operator takes it back later.
    tried(&site, &file, "15s");
    let third = text.replace(&firewall(""), &firewall(&NO_443.replace("443", "80")));
    let third = site.folder.write("third.toml", &third).display().to_string();
    wide(&site, "admin", &["chain", "apply", &third, "--cut"]).refused(1, &["on-trial"]);
    let stays = wide(&site, "admin", &["chain", "confirm"]);
    assert!(
        stays.code == 0 && stays.out.contains("generation 6 stays"),
        "{} {}",
        stays.out,
        stays.err
    );
    std::thread::sleep(Duration::from_secs(16));
    assert_eq!(until_all_have(&site, 6), new);
    let back = wide(&site, "admin", &["chain", "rollback", "--cut"]);
    assert_eq!(back.code, 0, "{} {}", back.out, back.err);
    assert_eq!(until_all_have(&site, 7), old);
    for member in [front, left, right] {
        member.stop(&site.folder);
    }
}
