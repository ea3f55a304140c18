//! Remedies that are followed: the text that a message says to write is accepted, and leads to no
//! other error.

use crate::codes::{PROFILE, code, port};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The configuration with the remedy's text in the place of the error, where the remedy is a value,
/// a name or a line to write; of several values the first.
fn followed(config: &str, said: &str) -> Option<String> {
    let mut place = said.strip_prefix("f.toml:")?.split(':');
    let (row, column): (usize, usize) = (place.next()?.parse().ok()?, place.next()?.parse().ok()?);
    let remedy = said
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("= "))?;
    let (_, written) = remedy
        .split_once("for example ")
        .or_else(|| remedy.split_once("write "))
        .or_else(|| remedy.split_once("there are: "))?;
    let mut lines: Vec<String> = config.lines().map(str::to_owned).collect();
    let line = lines.get_mut(row - 1)?;
    let mut start = column - 1;
    // Of a list an element is wrong, but where one value is to be.
    let is_list = said.contains("found [") || said.contains("is no list");
    if line[start..].starts_with("[\"") && !is_list {
        start += 1;
    }
    let (before, wrong) = line.split_at(start);
    let is_text = wrong.starts_with('"');
    let end = match is_text {
        true => 2 + wrong[1..].find('"')?,
        false if is_list => 1 + wrong.find(']')?,
        false => wrong.find([' ', ',', ']']).unwrap_or(wrong.len()),
    };
    let after = &wrong[end..];
    let is_value = |of: &str| of.starts_with(|first: char| first.is_ascii_digit() || "`\"".contains(first));
    // Where words are before the value: `a prefix, like 10.0.0.0/8`, `a number from 1`,
    // `at least 5`.
    let words = [" like ", " from ", "at least "];
    let mut behind = words.iter().filter_map(|of| Some(written.split_once(of)?.1));
    let written = match is_value(written) {
        true => written,
        false => behind.next().unwrap_or(written),
    };
    let quoted = |value: &str| match is_text {
        true => format!("{before}\"{value}\"{after}"),
        false => format!("{before}{value}{after}"),
    };
    *line = match written.chars().next()? {
        '`' => quoted(written[1..].split_once('`')?.0),
        '"' => format!("{before}\"{}\"{after}", written[1..].split_once('"')?.0),
        _ if is_value(written) => quoted(written.split([' ', ',', ';']).next()?),
        _ if written.contains(" = ") => written.split(", ").next()?.to_owned(),
        _ => quoted(written.split([' ', ',', ';']).next()?),
    };
    Some(lines.join("\n") + "\n")
}

/// The text of a remedy is accepted: it leads to no other error.
#[test]
fn a_remedy_that_is_followed_mends_the_configuration() {
    let folder = folder("remedies");
    std::fs::write(folder.join("good.toml"), PROFILE).unwrap();
    let good = port("generate:good.toml");
    let first = |line: &str| format!("{line}\n{good}");
    let last = |table: &str, line: &str| format!("{good}[{table}]\n{line}\n");
    let wrong = [
        first("runtims = 2"),
        first("runtimes = 65"),
        first("runtimes = \"two\""),
        first("runtimes = 3\nruntimes_max = 2"),
        first("flows_max = 0"),
        first("flows_max = \"many\""),
        first("threads = 7"),
        first("clock = \"mashine\""),
        good.replace("inside", "insde"),
        good.replace("flow_monitor", "flow_monitr"),
        last("log", "max_size = \"0B\""),
        last("log", "max_size = \"64\""),
        last("log", "max_age = \"0s\""),
        last("log", "syslog = \"192.0.2.9\""),
        last("log", "syslog = \"collector:1514\""),
        last("log", "syslog = \"192.0.2.9:0\""),
        last("log", "ipfix = \"udp://[2001:db8::9]\""),
        last("log", "ipfix = \"0.0.0.0:4739\""),
        last("log", "ipfix = \"192.0.2.9:99999\""),
        last("metrics", "listen = \"9464\""),
        last("metrics", "listen = \"localhost\""),
        last("metrics", "listn = \"127.0.0.1:9464\""),
        last("replication", "policy = \"comit\""),
        last("replication", "silence = \"200\""),
        last("migration", "move_timeout = \"1\""),
        first("runtimes_max = 2") + "[scaling]\nhigh = 101\n",
    ];
    all_are_followed(&folder, &wrong);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Each is refused with a text to write, and good with that.
fn all_are_followed(folder: &Path, wrong: &[String]) {
    let file = folder.join("f.toml");
    let mut left = Vec::new();
    for config in wrong {
        std::fs::write(&file, config).unwrap();
        let check = code(folder, "chain check f.toml");
        assert_eq!(check.0, Some(2), "{config}\n{}", check.1);
        let Some(mended) = followed(config, &check.1) else {
            left.push(check.1);
            continue;
        };
        std::fs::write(&file, &mended).unwrap();
        let again = code(folder, "chain check f.toml");
        if again.0 != Some(0) {
            left.push(format!("{}was followed:\n{mended}\n{}", check.1, again.1));
        }
    }
    let all = wrong.len();
    assert!(left.is_empty(), "{} of {all}:\n{}", left.len(), left.join("\n"));
}

/// The same of functions' settings.
#[test]
fn a_remedy_of_a_functions_setting_mends_it() {
    let folder = folder("settings");
    std::fs::write(folder.join("good.toml"), PROFILE).unwrap();
    let of = |function: &str, settings: &str| {
        port("generate:good.toml").replace("flow_monitor", function) + settings + "\n"
    };
    let rule = |line: &str| {
        let table = "[[function.firewall.rules]]\nname = \"out\"\naction = \"allow\"\n";
        of("firewall", &format!("{table}{line}"))
    };
    let firewall = |line: &str| rule(&format!("[function.firewall]\n{line}"));
    let nat = |line: &str| {
        of(
            "nat",
            &format!("[function.nat]\npool = [\"203.0.113.0/28\"]\n{line}"),
        )
    };
    let pool = |value: &str| of("nat", &format!("[function.nat]\npool = {value}"));
    let service = |setting: &str, value: &str| {
        let mut settings = vec![
            ("name", "\"web\""),
            ("addresses", "[\"198.51.100.1\"]"),
            ("ports", "443"),
            ("protocol", "\"tcp\""),
            ("check", "\"tcp\""),
            ("policy", "\"maglev\""),
            ("backends", "[{ name = \"a\", endpoint = \"192.0.2.1:80\" }]"),
        ];
        settings.retain(|(name, _)| *name != setting);
        settings.push((setting, value));
        let lines: Vec<_> = settings
            .iter()
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        let lines = lines.join("\n");
        of(
            "load_balancer",
            &format!("[[function.load_balancer.services]]\n{lines}"),
        )
    };
    let backend = |words: &str| service("backends", &format!("[{{ name = \"a\", {words} }}]"));
    let wrong = [
        rule("from = \"insde\""),
        rule("from = [\"inside\"]"),
        rule("port = 80"),
        firewall("invalid = true"),
        rule("destination_port = 80"),
        rule("destination_ports = 70000"),
        rule("destination_ports = \"443-80\""),
        rule("source = \"198.51.100.1/24\""),
        firewall("invalid = \"dorp\""),
        firewall("tcp_lose = true"),
        firewall("[function.firewall.timeouts]\nudp_stream = \"0s\""),
        nat("block_size = 100"),
        nat("block_size = -1"),
        nat("blocks_per_host = -1"),
        nat("mapping = [\"endpoint-independent\"]"),
        nat("log = true"),
        nat("ports = [\"1024-2000\"]"),
        nat("[[function.nat.static]]\ninside = \"10.0.0.5\"\noutside = \"203.0.113.1\"\nprotocol = 47"),
        nat("static = [{ inside = \"10.0.0.5:99999\", outside = \"203.0.113.1:80\", protocol = \"tcp\" }]"),
        of("host_limits", "[function.host_limits]\nprefix_v4 = -1"),
        of("host_limits", "[function.host_limits]\nhosts_max = -1"),
        nat("blocks_per_host = 99"),
        nat("ports = \"9-3\""),
        nat("mss_clamp = 600000"),
        nat("log = \"all\""),
        nat("hairpining = true"),
        nat("[function.nat.timeouts]\nudp = \"5s\""),
        nat("[function.nat.timeouts]\nudp = 300"),
        pool("[]"),
        pool("[\"127.0.0.0/8\"]"),
        service("protocol", "\"tpc\""),
        service("policy", "\"random\""),
        service("ports", "0"),
        service("ports", "70000"),
        service("ports", "-1"),
        service("ports", "1.5"),
        service("ports", "true"),
        service("ports", "[443]"),
        service("protocol", "6"),
        service("policy", "[\"maglev\"]"),
        service("when_down", "true"),
        service("ports", "\"90-80\""),
        service("addresses", "[\"198.51.100.1:80\"]"),
        service("check", "\"ping\""),
        service("fall", "0"),
        service("interval", "\"1ms\""),
        service("interval", "\"2\""),
        service("timeout", "\"1ms\""),
        backend("endpont = \"192.0.2.1:80\""),
        backend("endpoint = \"192.0.2.1:99999\""),
        backend("endpoint = \"192.0.2.1:80\", weight = 0"),
        backend("endpoint = \"192.0.2.1:80\", weight = -1"),
        backend("endpoint = \"192.0.2.1:80\", state = [\"up\"]"),
        backend("endpoint = \"192.0.2.1:80\", state = \"dwn\""),
    ];
    all_are_followed(&folder, &wrong);
    // A wrong name near to a name that stands there already is not taken for that.
    for (config, near, other) in [
        (rule("nam = \"x\""), "`name`", "source"),
        (nat("pols = 5"), "`pool`", "`ports`"),
        (service("nam", "\"x\""), "`name`", "interval"),
    ] {
        std::fs::write(folder.join("f.toml"), &config).unwrap();
        let said = code(&folder, "chain check f.toml").1;
        assert!(!said.contains(near) && said.contains(other), "{said}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// No message proposes a name, a user or a right where it would not help.
#[test]
fn what_would_be_refused_again_is_no_remedy() {
    let folder = folder("other-remedies");
    let capture = include_bytes!("../../templates/new/example.pcap");
    for name in ["a.pcap", "b.pcap", "good.toml"] {
        let content: &[u8] = if name == "good.toml" {
            PROFILE.as_bytes()
        } else {
            capture
        };
        std::fs::write(folder.join(name), content).unwrap();
    }
    // A capture is read or written, whatever its name is.
    for ports in ["pcap:a.pcap pcap:b.pcap", "pcap:none.pcap pcap:b.pcap"] {
        let said = code(&folder, &format!("port bridge {ports}"));
        assert_eq!(said.0, Some(2), "{}", said.1);
        let has = |words: &str| said.1.contains(words);
        assert!(
            has("is a capture") && has("afpacket:") && !has("name for what"),
            "{}",
            said.1
        );
    }
    // Numbers and names that no user can have.
    let good = port("generate:good.toml");
    for user in ["99999999999", "4294967295", "-1", "a:b"] {
        std::fs::write(folder.join("f.toml"), format!("user = \"{user}\"\n{good}")).unwrap();
        let said = code(&folder, "run f.toml --for 1s --socket s");
        assert_ne!(said.0, Some(0), "{user}");
        let has = |words: &str| said.1.contains(words);
        assert!(has("flowkeep\"") && !has("useradd"), "{user}: {}", said.1);
    }
    // A folder, and a file below a file, or in a folder that is not there.
    let members = good.replace("[[chain]]", "member = \"a\"\n[[chain]]")
        + "[[member]]\nname = \"a\"\nhost = \"h\"\nswitches = 1\n[[member]]\nname = \"b\"\nhost = \"h\"\nruntimes = 1\n";
    for (key, words) in [
        (".", "is a folder; name the key's file"),
        ("good.toml/key", "`good.toml` is no folder"),
        ("keys/new", "mkdir -p keys; "),
    ] {
        let config = format!("{members}[cluster]\nkeys = [\"{key}\"]\n");
        std::fs::write(folder.join("f.toml"), config).unwrap();
        let said = code(&folder, "node f.toml --member b").1;
        assert!(said.contains(words), "{key}: {said}");
        assert!(
            !said.contains("see to it") && !said.contains("chmod 600 ."),
            "{key}: {said}"
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
