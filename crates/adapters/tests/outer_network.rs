//! In a user namespace of its own a process has all capabilities, and none of them counts in the
//! network outside: a live port says so, and what helps.

use flowkeep_adapters::interface::rights::{Capability, Rights};
use std::process::Command;

/// Tells this test that it is in the namespaces which it has made.
const INSIDE: &str = "FLOWKEEP_TEST_INSIDE";
const NAME: &str = "capabilities_count_in_a_network_of_ones_own_only";

#[test]
fn capabilities_count_in_a_network_of_ones_own_only() {
    let needed = [Capability::NetRaw, Capability::NetAdmin];
    if std::env::var_os(INSIDE).is_some() {
        match Rights::of_this_thread().need("afpacket:lo", &needed) {
            Ok(()) => println!("nothing is missing"),
            Err(error) => println!("{error}"),
        }
        return;
    }
    let said = |namespaces: &str| {
        let mut command = Command::new("unshare");
        command.arg(namespaces).arg(std::env::current_exe().unwrap());
        command.args(["--exact", NAME, "--nocapture"]).env(INSIDE, "1");
        let output = command.output().expect("unshare(1) of util-linux");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "unshare {namespaces}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let outside = said("-Ur");
    assert!(
        outside.contains("afpacket:lo: this process is in a user namespace")
            && outside.contains("unshare -Urn"),
        "{outside}"
    );
    let own = said("-Urn");
    assert!(own.contains("nothing is missing"), "{own}");
}
