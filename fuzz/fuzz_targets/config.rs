//! Configuration and generator profile: any text is read or refused with a place, never more.
//!
//! The first byte says which of the two the rest is.

#![no_main]

use flowkeep::registry::Registry;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static FUNCTIONS: OnceLock<Registry> = OnceLock::new();

fuzz_target!(|input: &[u8]| {
    let Some((kind, text)) = input.split_first() else {
        return;
    };
    let Ok(text) = core::str::from_utf8(text) else {
        return;
    };
    if kind % 4 == 0 {
        if let Ok(profile) = toml::from_str::<adapters::generate::Profile>(text)
            && profile.flows < 10_000
        {
            let _ = adapters::generate::Generator::new(&profile);
        }
    } else if let Err(problems) =
        flowkeep::config::parse("fuzz.toml", text, FUNCTIONS.get_or_init(flowkeep::functions))
    {
        assert!(!problems.is_empty());
        for problem in problems {
            let _ = problem.to_string();
        }
    }
});
