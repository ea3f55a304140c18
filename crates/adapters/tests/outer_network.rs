//! In a user namespace of its own a process has all capabilities, and none of them counts in the
//! network outside, nor for the kernel's filters: a live port says so, and what helps.

use flowkeep_adapters::interface::rights::{Capability, Rights};
use std::process::Command;

/// Tells this test that it is in the namespaces which it has made.
const INSIDE: &str = "FLOWKEEP_TEST_INSIDE";
const NAME: &str = "capabilities_count_in_a_network_of_ones_own_only";

#[test]
fn capabilities_count_in_a_network_of_ones_own_only() {
    let sends = [Capability::NetRaw, Capability::NetAdmin];
    let receives = [Capability::NetRaw, Capability::NetAdmin, Capability::Bpf];
    if std::env::var_os(INSIDE).is_some() {
        for needed in [&sends[..], &receives] {
            match Rights::of_this_thread().need("afpacket:lo", needed) {
                Ok(()) => println!("nothing is missing"),
                Err(error) => println!("{error}"),
            }
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
    let barred = "afpacket:lo: this process is in a user namespace";
    let outside = said("-Ur");
    assert_eq!(outside.matches(barred).count(), 2, "{outside}");
    assert!(
        outside.contains("run it as root outside of that namespace"),
        "{outside}"
    );
    let own = said("-Urn");
    assert_eq!(own.matches(barred).count(), 1, "{own}");
    assert!(own.contains("nothing is missing"), "{own}");
}
