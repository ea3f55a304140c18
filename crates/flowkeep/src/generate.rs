//! `generate:profile.toml?…`: from a profile on disk to a generator.
//!
//! The parameters `seed`, `flows`, `packets` and `seconds` stand for the profile's own, so that one profile serves many runs.

use adapters::generate::{Generator, Profile};
use adapters::open::BoxPort;
use adapters::report::Reports;
use adapters::uri::GenerateUri;

/// Opens a generator; the error says what is wrong with the profile and how to mend it.
pub fn open(uri: &GenerateUri, _reports: &Reports) -> Result<BoxPort, String> {
    let path = uri.profile.display();
    let text = std::fs::read_to_string(&uri.profile)
        .map_err(|error| format!("{path} cannot be read: {error}; name a profile, a TOML file"))?;
    let mut profile: Profile = toml::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    for (name, value) in &uri.parameters {
        let wrong = |kind: &str| format!("`{name}={value}`: write {kind}, like `{name}=1000`");
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
