//! Chains and functions of a configuration by themselves, as members of a cluster hand them on:
//! taken out of one text, put into another.
//!
//! Other settings are each member's own, and some are secret. The result is TOML on two lines.

use std::fmt::Write as _;
use toml::{Table, Value};

/// The tables that all members have alike and that may change while they run.
const TABLES: [&str; 2] = ["chain", "function"];

/// Chains and functions of a text; `None` if it is no TOML.
pub fn chains_of(text: &str) -> Option<String> {
    let mut all: Table = text.parse().ok()?;
    all.retain(|name, _| TABLES.contains(&name));
    Some(written(&all))
}

/// A text with other chains and functions; `None` if one of the two is no TOML.
pub fn with_chains(text: &str, chains: &str) -> Option<String> {
    let mut all: Table = text.parse().ok()?;
    all.retain(|name, _| !TABLES.contains(&name));
    let mut chains: Table = chains.parse().ok()?;
    chains.retain(|name, _| TABLES.contains(&name));
    all.extend(chains);
    Some(written(&all))
}

fn written(table: &Table) -> String {
    let mut out = String::new();
    for (name, value) in table {
        string(&mut out, name);
        out.push_str(" = ");
        write(&mut out, value);
        out.push('\n');
    }
    out
}

fn write(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => string(out, text),
        Value::Integer(number) => drop(write!(out, "{number}")),
        // With a point or an exponent, `inf` or `nan`.
        Value::Float(number) => drop(write!(out, "{number:?}")),
        Value::Boolean(is) => drop(write!(out, "{is}")),
        Value::Datetime(time) => drop(write!(out, "{time}")),
        Value::Array(all) => {
            out.push('[');
            for (place, value) in all.iter().enumerate() {
                out.push_str(if place > 0 { ", " } else { "" });
                write(out, value);
            }
            out.push(']');
        }
        Value::Table(all) => {
            out.push('{');
            for (place, (name, value)) in all.iter().enumerate() {
                out.push_str(if place > 0 { ", " } else { " " });
                string(out, name);
                out.push_str(" = ");
                write(out, value);
            }
            out.push_str(" }");
        }
    }
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter.is_control() => drop(write!(out, "\\u{:04X}", letter as u32)),
            letter => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "flows_max = 7\n[store]\nuri = \"redis://:secret@host\"\n[[chain]]\nname = \"web\"\nfunctions = [\"firewall\"]\n\
        [chain.match]\ndestination_port = [80]\n[[chain]]\nname = \"all\"\nfunctions = []\n[[function.firewall.rules]]\n\
        name = \"a \\\"b\\\" \\\\ \\u0007 \\u007f ä\"\nrate = 1e300\nis = true\nsince = 1979-05-27T07:32:00Z\nmore = [[1, -2], [0.5]]\n";

    #[test]
    fn chains_and_functions_come_out_and_go_in_unchanged_and_nothing_else_does() {
        let chains = chains_of(TEXT).unwrap();
        assert!(
            !chains.contains("secret") && !chains.contains("flows_max"),
            "{chains}"
        );
        let own = "flows_max = 9\n[[chain]]\nname = \"old\"\n[function.nat]\n[log]\nkeep = 3\n";
        let whole: Table = with_chains(own, &chains).unwrap().parse().unwrap();
        let wanted: Table = TEXT.parse().unwrap();
        assert_eq!(
            (&whole["chain"], &whole["function"]),
            (&wanted["chain"], &wanted["function"])
        );
        assert_eq!(
            (whole["flows_max"].as_integer(), whole["log"]["keep"].as_integer()),
            (Some(9), Some(3))
        );
        // Other settings of a decided text are ignored.
        let more = with_chains(own, &format!("flows_max = 1\n{chains}")).unwrap();
        assert_eq!(more.parse::<Table>().unwrap()["flows_max"].as_integer(), Some(9));
        assert_eq!((chains_of("="), with_chains("a = 1", "[")), (None, None));
    }
}
