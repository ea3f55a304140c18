//! Flowkeep's books at its end, and the kernel's over the same interfaces.

use crate::network::PATIENCE;
use lab::Namespace;
use lab::process::Run;
use serde_json::Value;

/// The kernel's counts at an interface.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    /// Frames that the filter has handed to a socket.
    redirected: u64,
    /// Frames that the driver lost, because no queue had room for them or by order.
    lost: u64,
    /// Frames sent, the kernel's own among them.
    sent: u64,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Of both ports, in the configuration's order.
pub fn interfaces(gateway: &Namespace) -> [Interface; 2] {
    ["left", "right"].map(|name| {
        let text = gateway
            .run(&format!("ethtool -S {name}"), Run::within(PATIENCE))
            .unwrap();
        let sum = |end: &str| {
            let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
            let all = lines.filter(|(name, _)| name.starts_with("rx_queue_") && name.ends_with(end));
            all.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
        };
        let words = format!("cat /sys/class/net/{name}/statistics/tx_packets");
        let sent = gateway.run(&words, Run::within(PATIENCE)).unwrap();
        Interface {
            redirected: sum("_xdp_redirect"),
            lost: sum("_drops"),
            sent: sent.trim().parse().unwrap(),
        }
    })
}

/// In + made = out + held + dropped.
pub fn balance(report: &Value) {
    let packets = &report["packets"];
    println!("packets: {packets}");
    let dropped: u64 = packets["dropped"].as_object().unwrap().values().map(number).sum();
    let came = number(&packets["in"]) + number(&packets["made"]);
    assert_eq!(
        came,
        number(&packets["out"]) + number(&packets["held"]) + dropped,
        "{report}"
    );
    assert_eq!(number(&packets["held"]), 0, "{report}");
    assert!(number(&packets["in"]) > 1000, "hardly anything came: {report}");
}

/// Checks that the ports' counters agree with the kernel's of their interfaces.
pub fn agree(report: &Value, interfaces: &[Interface; 2]) {
    for (port, interface) in report["ports"].as_array().unwrap().iter().zip(interfaces) {
        println!("port: {port}\n  the kernel: {interface:?}");
        let of = |name: &str| number(&port[name]);
        assert_eq!(
            of("received_packets") + of("answered_packets") + of("failed_packets"),
            interface.redirected,
            "{port}"
        );
        // The kernel sends a little by itself: requests for neighbours.
        let sent = of("sent_packets") + of("answered_packets");
        let own = interface.sent.checked_sub(sent);
        assert!(
            own.is_some_and(|own| own < 1000),
            "{own:?} frames sent by the kernel: {port}"
        );
        assert!(of("lost_packets") <= interface.lost + 1, "{port}");
    }
}
