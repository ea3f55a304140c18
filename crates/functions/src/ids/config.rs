//! Settings of the IDS.
//!
//! ```toml
//! [function.ids]
//! rules_file = "ids.rules"
//! mode = "ips"
//!
//! [function.ids.variables]
//! HOME_NET = "[192.0.2.0/24, 2001:db8::/32]"
//! ```
//!
//! Invariant: rules are read and compiled once, when the settings are read; all instances share the
//! result. A mistake in them is kept, and [`Config::rules`] hands it out.
//!
//! Not here: the language of the rules (`parse`, `options`).

use super::header::Variables;
use super::options::LEAVE_OUT;
use super::parse::{self, RuleError};
use super::ruleset::RuleSet;
use crate::stream::EARLY_MAX;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use nf::{ConfigError, TextFile};
use schemars::JsonSchema;
use serde::Deserialize;

/// Whether rules may stop packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// `drop` and `reject` do what they say.
    #[default]
    Ips,
    /// Every packet passes; `drop` and `reject` alert.
    Ids,
}

/// The treatment of rules with unknown words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unsupported {
    /// The configuration is refused, with the word and the line.
    #[default]
    Refuse,
    /// Such rules are left out, and listed by `flowkeep function ids rules`.
    Skip,
}

/// The treatment of TCP segments that come before their turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutOfOrder {
    /// The segments go on at once, and copies wait to be read. A segment that finds no room passes,
    /// looked at by itself.
    #[default]
    Pass,
    /// The segments go on at once, and copies wait to be read. A segment that finds no room is
    /// dropped, so that it is sent again (`mode = "ips"`).
    Drop,
    /// The segments wait themselves, and go on in order when the gap before them is filled and they
    /// have been read. A segment that finds no room is dropped (`mode = "ips"`).
    Hold,
}

/// The table of the IDS.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// File with rules in Suricata's language, of which a subset is known (docs/configuration.md
    /// says which).
    #[schemars(with = "Option<String>", example = &"ids.rules")]
    pub rules_file: Option<TextFile>,
    /// Rules beside or instead of the file's, one a line.
    pub rules: String,
    /// Addresses and ports that rules name by `$NAME`. Default: Suricata's, with `HOME_NET` the
    /// private addresses of RFC 1918 and `EXTERNAL_NET` all others.
    pub variables: Variables,
    /// `"ips"` (default): `drop` and `reject` do what they say. `"ids"`: every packet passes.
    pub mode: Mode,
    /// Rules with words that are not known: `"refuse"` (default) the configuration, or `"skip"` the
    /// rule.
    pub unsupported: Unsupported,
    /// Follow TCP streams whose beginning was not seen. Default: false, as Suricata's `midstream`;
    /// their packets are looked at one by one.
    pub pick_up: bool,
    /// TCP segments that come before their turn. `"pass"` (default): they go on, and copies wait to
    /// be read in order; a segment that finds no room passes, looked at by itself. `"drop"`: as
    /// before, but a segment that finds no room is dropped, so that it is sent again. `"hold"`: the
    /// segments themselves wait until all before them has been read; so all segments that leave
    /// were read in order, but the receiver does not learn of a loss from the segments behind it.
    pub out_of_order: OutOfOrder,
    /// TCP segments of one direction of a flow that wait for a gap, at most. Default 64. All flows
    /// of a runtime share `held_max`.
    #[schemars(range(max = 4096))]
    #[serde(deserialize_with = "crate::stream::early_max")]
    pub early_max: u16,
    /// Leave packets with wrong checksums unread. Default: false: captures taken at a sender whose
    /// card computes checksums are full of wrong ones.
    pub verify_checksums: bool,
    /// Resets and ICMP errors sent per second and runtime, at most, by `reject`. Default 1000.
    pub answers_per_second: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            rules_file: None,
            rules: String::new(),
            variables: Variables::new(),
            mode: Mode::default(),
            unsupported: Unsupported::default(),
            pick_up: false,
            out_of_order: OutOfOrder::default(),
            early_max: EARLY_MAX as u16,
            verify_checksums: false,
            answers_per_second: 1000,
        }
    }
}

/// The variables of Suricata's own configuration.
const VARIABLES: &[(&str, &str)] = &[
    ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"),
    ("EXTERNAL_NET", "!$HOME_NET"),
    ("HTTP_SERVERS", "$HOME_NET"),
    ("SMTP_SERVERS", "$HOME_NET"),
    ("SQL_SERVERS", "$HOME_NET"),
    ("DNS_SERVERS", "$HOME_NET"),
    ("TELNET_SERVERS", "$HOME_NET"),
    ("AIM_SERVERS", "$EXTERNAL_NET"),
    ("DC_SERVERS", "$HOME_NET"),
    ("DNP3_SERVER", "$HOME_NET"),
    ("DNP3_CLIENT", "$HOME_NET"),
    ("MODBUS_CLIENT", "$HOME_NET"),
    ("MODBUS_SERVER", "$HOME_NET"),
    ("ENIP_CLIENT", "$HOME_NET"),
    ("ENIP_SERVER", "$HOME_NET"),
    ("HTTP_PORTS", "80"),
    ("SHELLCODE_PORTS", "!80"),
    ("ORACLE_PORTS", "1521"),
    ("SSH_PORTS", "22"),
    ("DNP3_PORTS", "20000"),
    ("MODBUS_PORTS", "502"),
    ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
    ("FTP_PORTS", "21"),
    ("GENEVE_PORTS", "6081"),
    ("VXLAN_PORTS", "4789"),
    ("TEREDO_PORTS", "3544"),
];

/// A rule that was left out.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// Where it stands.
    pub file: String,
    /// Its line, and the word that is not known.
    pub error: RuleError,
}

/// The rules, and those left out.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The rules.
    pub rules: Arc<RuleSet>,
    /// The rules left out.
    pub skipped: Vec<Skipped>,
}

/// The settings of the IDS, and their rules.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(from = "Settings")]
#[schemars(with = "Settings")]
pub struct Config {
    settings: Settings,
    loaded: Result<Loaded, ConfigError>,
}

impl From<Settings> for Config {
    fn from(settings: Settings) -> Self {
        let loaded = load(&settings);
        Config { settings, loaded }
    }
}

impl Config {
    /// The settings as written.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The rules, or the mistake in them.
    pub fn rules(&self) -> Result<Loaded, ConfigError> {
        self.loaded.clone()
    }
}

/// The variables with those that the settings leave as they are.
pub fn variables(own: &Variables) -> Variables {
    let mut all: Variables = VARIABLES
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect();
    all.extend(own.iter().map(|(name, value)| (name.clone(), value.clone())));
    all
}

/// In errors: rules that stand in the configuration itself.
const INLINE: &str = "rules";

fn load(settings: &Settings) -> Result<Loaded, ConfigError> {
    let variables = variables(&settings.variables);
    let mut texts = Vec::new();
    if let Some(file) = &settings.rules_file {
        let Some(text) = file.text() else {
            return Err(ConfigError::new(
                "rules_file",
                "the file was not read",
                "write the rules into `rules`",
            ));
        };
        texts.push((file.path(), text));
    }
    texts.push((INLINE, settings.rules.as_str()));
    let (mut rules, mut skipped) = (Vec::new(), Vec::new());
    let mut wrong: Option<ConfigError> = None;
    let mut more = 0usize;
    let mut all_unknown = true;
    // Where each rule's text begins among the lines of all.
    let mut lines_before = Vec::new();
    let mut before = 0;
    for (file, text) in &texts {
        lines_before.push(before);
        for read in parse::rules(text, &variables) {
            match read {
                Ok(mut rule) => {
                    rule.line += before;
                    rules.push(rule);
                }
                Err(error) if error.fault.unknown.is_some() && settings.unsupported == Unsupported::Skip => {
                    skipped.push(Skipped {
                        file: (*file).into(),
                        error,
                    });
                }
                Err(error) => {
                    all_unknown &= error.fault.unknown.is_some();
                    match wrong {
                        None => wrong = Some(refusal(file, &error)),
                        Some(_) => more += 1,
                    }
                }
            }
        }
        before += text.lines().count();
    }
    if let Some(mut error) = wrong {
        // Of rules of which none is left nothing would be found.
        if all_unknown && rules.is_empty() && error.remedy == LEAVE_OUT {
            error.remedy = "write it with words that are known, which docs/configuration.md lists; if it is left out, no rule remains".into();
        }
        if more > 0 {
            error.problem = format!("{}; and {more} more rules are wrong", error.problem);
        }
        return Err(error);
    }
    if rules.is_empty() {
        return Err(ConfigError::new(
            "",
            "there is no rule, so nothing would be found",
            "name a file: rules_file = \"ids.rules\"",
        ));
    }
    match RuleSet::new(rules) {
        Ok(rules) => Ok(Loaded {
            rules: Arc::new(rules),
            skipped,
        }),
        Err((line, fault)) => {
            let which = lines_before
                .iter()
                .rposition(|before| line > *before)
                .unwrap_or(0);
            let (file, text) = texts[which];
            let line = line.saturating_sub(lines_before[which]).max(1);
            Err(refusal(
                file,
                &RuleError {
                    line,
                    text: text.lines().nth(line - 1).unwrap_or_default().trim().into(),
                    fault,
                },
            ))
        }
    }
}

fn refusal(file: &str, error: &RuleError) -> ConfigError {
    let RuleError { line, text, fault } = error;
    match file {
        INLINE => ConfigError::new(
            "rules",
            format!("line {line} of the rules: {}", fault.problem),
            fault.remedy.clone(),
        ),
        _ => ConfigError::new("rules_file", fault.problem.clone(), fault.remedy.clone()).in_file(
            file,
            *line,
            text.clone(),
        ),
    }
}
