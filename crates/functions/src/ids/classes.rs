//! Classes of rules: an alert's category and severity, by the short name that `classtype` gives.
//!
//! The names, texts and priorities are those of `classification.config`, which Snort and Suricata
//! ship and every public rule set counts on. A name that is not in it has no category and
//! priority 3.
//!
//! Not here: classes of one's own.

/// Short name, category, priority; sorted by name.
const CLASSES: &[(&str, &str, u8)] = &[
    ("attempted-admin", "Attempted Administrator Privilege Gain", 1),
    ("attempted-dos", "Attempted Denial of Service", 2),
    ("attempted-recon", "Attempted Information Leak", 2),
    ("attempted-user", "Attempted User Privilege Gain", 1),
    ("bad-unknown", "Potentially Bad Traffic", 2),
    ("coin-mining", "Crypto Currency Mining Activity Detected", 2),
    (
        "command-and-control",
        "Malware Command and Control Activity Detected",
        1,
    ),
    ("credential-theft", "Successful Credential Theft Detected", 1),
    (
        "default-login-attempt",
        "Attempt to login by a default username and password",
        2,
    ),
    ("denial-of-service", "Detection of a Denial of Service Attack", 2),
    ("domain-c2", "Domain Observed Used for C2 Detected", 1),
    ("exploit-kit", "Exploit Kit Activity Detected", 1),
    (
        "external-ip-check",
        "Device Retrieving External IP Address Detected",
        2,
    ),
    ("icmp-event", "Generic ICMP event", 3),
    ("inappropriate-content", "Inappropriate Content was Detected", 1),
    ("misc-activity", "Misc activity", 3),
    ("misc-attack", "Misc Attack", 2),
    ("network-scan", "Detection of a Network Scan", 3),
    (
        "non-standard-protocol",
        "Detection of a non-standard protocol or event",
        2,
    ),
    ("not-suspicious", "Not Suspicious Traffic", 3),
    ("policy-violation", "Potential Corporate Privacy Violation", 1),
    ("protocol-command-decode", "Generic Protocol Command Decode", 3),
    ("pup-activity", "Possibly Unwanted Program Detected", 2),
    ("rpc-portmap-decode", "Decode of an RPC Query", 2),
    ("sdf", "Sensitive Data was Transmitted Across the Network", 2),
    ("shellcode-detect", "Executable code was detected", 1),
    ("social-engineering", "Possible Social Engineering Attempted", 2),
    ("string-detect", "A suspicious string was detected", 3),
    ("successful-admin", "Successful Administrator Privilege Gain", 1),
    ("successful-dos", "Denial of Service", 2),
    ("successful-recon-largescale", "Large Scale Information Leak", 2),
    ("successful-recon-limited", "Information Leak", 2),
    ("successful-user", "Successful User Privilege Gain", 1),
    (
        "suspicious-filename-detect",
        "A suspicious filename was detected",
        2,
    ),
    (
        "suspicious-login",
        "An attempted login using a suspicious username was detected",
        2,
    ),
    ("system-call-detect", "A system call was detected", 2),
    ("targeted-activity", "Targeted Malicious Activity was Detected", 1),
    ("tcp-connection", "A TCP connection was detected", 4),
    ("trojan-activity", "A Network Trojan was detected", 1),
    ("unknown", "Unknown Traffic", 3),
    ("unsuccessful-user", "Unsuccessful User Privilege Gain", 1),
    (
        "unusual-client-port-connection",
        "A client was using an unusual port",
        2,
    ),
    (
        "web-application-activity",
        "access to a potentially vulnerable web application",
        2,
    ),
    ("web-application-attack", "Web Application Attack", 1),
];

/// Priority of rules that say none.
const PRIORITY: u8 = 3;

/// Category and priority of a class.
pub(super) fn of(name: &str) -> (&'static str, u8) {
    match CLASSES.binary_search_by_key(&name, |class| class.0) {
        Ok(at) => (CLASSES[at].1, CLASSES[at].2),
        Err(_) => ("", PRIORITY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(CLASSES.is_sorted_by_key(|class| class.0));
        assert_eq!(of("trojan-activity"), ("A Network Trojan was detected", 1));
        assert_eq!(of("no such class"), ("", 3));
    }
}
