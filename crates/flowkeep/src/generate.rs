//! `generate:profile.toml?…`: from a profile on disk to a generator.
//!
//! The parameters `seed`, `flows`, `packets` and `seconds` stand for the profile's own, so that one
//! profile serves many runs.

use crate::config::problem::write_instead;
use adapters::generate::{Generator, Profile};
use adapters::open::BoxPort;
use adapters::report::Reports;
use adapters::uri::GenerateUri;

/// Opens a generator; the error says the profile's problem and the remedy.
pub fn open(uri: &GenerateUri, _reports: &Reports) -> Result<BoxPort, String> {
    let path = uri.profile.display();
    let text = std::fs::read_to_string(&uri.profile)
        .map_err(|error| format!("{path} cannot be read: {error}; name a profile, a TOML file"))?;
    let mut profile: Profile =
        toml::from_str(&text).map_err(|error| format!("{path}:{}", wrong_at(&text, &error)))?;
    for (name, value) in &uri.parameters {
        let wrong = |kind: &str| format!("`{name}={value}` cannot be; write {kind}, like `{name}=1000`");
        let whole = || value.parse::<u64>().map_err(|_| wrong("a whole number"));
        match name.as_str() {
            "seed" => profile.seed = whole()?,
            "flows" => profile.flows = whole()?.try_into().map_err(|_| wrong("a number below 2^32"))?,
            "packets" => profile.packets_max = Some(whole()?),
            "seconds" => profile.seconds_max = Some(value.parse().map_err(|_| wrong("a number of seconds"))?),
            other => {
                return Err(format!(
                    "there is no parameter `{other}`; there are: seed, flows, packets, seconds"
                ));
            }
        }
    }
    let generator = Generator::new(&profile).map_err(|error| format!("{path}: {error}"))?;
    Ok(Box::new(generator))
}

/// The problem of a profile's text on one line: its place, the text, and the remedy.
fn wrong_at(text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let said = error.message();
    let (problem, expected) = said.split_once(", expected ").unwrap_or((said, ""));
    let names =
        |text: &str| -> Vec<String> { text.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let is_rate = text.get(..start).is_some_and(|before| {
        let line = before.rsplit('\n').next().unwrap_or_default();
        line.trim_end().trim_end_matches('=').trim() == "rate"
    });
    let remedy = match (problem.strip_prefix("unknown "), expected) {
        (None, "") if is_rate => {
            "write rate = { total = 1000.0 }, packets a second of all flows, or rate = { per_flow = 10.0 }"
                .to_owned()
        }
        (Some(unknown), _) => {
            let known = names(expected);
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            write_instead(names(unknown).first().map_or("", String::as_str), &known)
        }
        (None, "") => "mend the line".to_owned(),
        (None, "u8" | "u16" | "u32" | "u64" | "usize") => "write a whole number".to_owned(),
        (None, "f32" | "f64") => "write a number".to_owned(),
        (None, other) => format!("write {other}"),
    };
    format!("{line}:{column}: {problem}; {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_profile_is_told_on_one_line_with_its_place_and_a_remedy() {
        let wrong = |text: &str| wrong_at(text, &toml::from_str::<Profile>(text).unwrap_err());
        assert_eq!(
            wrong("seed = 1\nflws = 3\n"),
            "2:1: unknown field `flws`; write `flows`"
        );
        assert_eq!(
            wrong("flows = \"x\""),
            "1:9: invalid type: string \"x\"; write a whole number"
        );
        for rate in ["1", "1.5", "[1]"] {
            let said = wrong(&format!("seed = 1\nrate = {rate}\n"));
            assert!(
                said.starts_with("2:8: ") && said.contains("; write rate = { total = 1000.0 }"),
                "{said}"
            );
        }
        assert_eq!(wrong("x"), "1:2: key with no value; write `=`");
        for text in [
            "[[classes]]\nshare = []",
            "rate = { total = \"a\" }",
            "flows = 1\nflows = 2",
        ] {
            let said = wrong(text);
            assert!(!said.contains('\n') && said.contains("; "), "{said}");
        }
    }
}
