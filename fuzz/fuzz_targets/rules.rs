//! The IDS's rules: any text is rules or is refused with a line; rules that are read compile.

#![no_main]

use functions::ids::config::{Settings, variables};
use functions::ids::{Config, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = core::str::from_utf8(input) else {
        return;
    };
    let lines = text.lines().count();
    for rule in parse::rules(text, &variables(&Default::default())) {
        if let Err(error) = rule {
            assert!((1..=lines).contains(&error.line));
            assert!(!error.fault.problem.is_empty() && !error.fault.remedy.is_empty());
        }
    }
    let config = Config::from(Settings {
        rules: text.into(),
        ..Settings::default()
    });
    if let Ok(loaded) = config.rules() {
        assert!(!loaded.rules.is_empty() && loaded.rules.hash() != 0);
    }
});
