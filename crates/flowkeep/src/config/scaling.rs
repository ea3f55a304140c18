//! Settings of scaling by load.

use super::document::Document;
use super::{Config, values};
use crate::scaling::Rules;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// Runtimes that come and go by themselves, by load (NFVactor III-D). With this table, in one
/// process: no fewer than `runtimes_min` and no more than `runtimes_max`.
#[derive(Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct Scaling {
    /// The fewest runtimes that take flows, 1 to 64. Default: `runtimes`.
    #[schemars(range(min = 1, max = 64), example = 1)]
    #[serde(deserialize_with = "values::workers")]
    pub runtimes_min: Option<u16>,
    /// A runtime that has something to do for more than this part of the time, in percent, gives
    /// flows away: to a runtime that is less busy than `low`, else to a new one. 1 to 100. Default
    /// 80.
    #[schemars(range(min = 1, max = 100), example = 80)]
    #[serde(deserialize_with = "values::percent")]
    pub high: u8,
    /// A runtime goes where the others would then be busy for less than this part of the time each,
    /// in percent. 1 to 100, and at most three quarters of `high`. Default 50.
    #[schemars(range(min = 1, max = 100), example = 50)]
    #[serde(deserialize_with = "values::percent")]
    pub low: u8,
    /// How long a runtime is so busy before flows are moved, from `"10ms"` to `"1h"`. Default
    /// `"2s"`.
    #[schemars(with = "String", example = &"2s")]
    #[serde(deserialize_with = "values::wait")]
    pub out_after: nf::Period,
    /// How long there is so little to do before a runtime goes, from `"10ms"` to `"1h"`. Default
    /// `"60s"`.
    #[schemars(with = "String", example = &"60s")]
    #[serde(deserialize_with = "values::wait")]
    pub in_after: nf::Period,
    /// The time between two looks at the load of runtimes, from `"10ms"` to `"1h"`. Default `"1s"`.
    #[schemars(with = "String", example = &"1s")]
    #[serde(deserialize_with = "values::wait")]
    pub interval: nf::Period,
}

impl Default for Scaling {
    fn default() -> Self {
        Scaling {
            runtimes_min: None,
            high: 80,
            low: 50,
            out_after: nf::Period::seconds(2),
            in_after: nf::Period::seconds(60),
            interval: nf::Period::seconds(1),
        }
    }
}

impl Scaling {
    /// The same as rules, for a process that begins with so many runtimes and has room for so many.
    pub fn rules(&self, runtimes: u16, most: u16) -> Rules {
        Rules {
            min: self.runtimes_min.unwrap_or(runtimes),
            max: most,
            high: u64::from(self.high) * 10,
            low: u64::from(self.low) * 10,
            out_after: self.out_after.duration(),
            in_after: self.in_after.duration(),
        }
    }

    /// Between two looks.
    pub fn interval(&self) -> Duration {
        self.interval.duration()
    }
}

/// Whether runtimes can come and go as is said.
pub fn check(config: &Config, document: &mut Document<'_, '_>) {
    let Some(scaling) = &config.scaling else {
        return;
    };
    if !config.member.is_empty() {
        let problem = "the runtimes of members come and go with their processes";
        document.problem_at("scaling", problem, "take [scaling] out; start and stop members");
        return;
    }
    let (least, most) = (
        scaling.runtimes_min.unwrap_or(config.runtimes),
        config.most_runtimes(),
    );
    if least >= most {
        let problem =
            format!("there are {least} runtimes at least and {most} at most, so none comes or goes");
        let remedy = format!("write runtimes_max = {}, or more, at the top", least + 1);
        document.problem_at("scaling", &problem, &remedy);
    }
    if least > config.runtimes {
        let problem = format!("it begins with {} runtimes", config.runtimes);
        let remedy = format!("write runtimes = {least} at the top, or a smaller number here");
        document.problem_at("scaling.runtimes_min", &problem, &remedy);
    }
    if u64::from(scaling.low) * 4 > u64::from(scaling.high) * 3 {
        let problem = format!(
            "runtimes would come and go by turns: low is {} and high {}",
            scaling.low, scaling.high
        );
        let remedy = format!("write low = {}, or less", u64::from(scaling.high) * 3 / 4);
        document.problem_at("scaling.low", &problem, &remedy);
    }
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    const REST: &str = r#"
[[port]]
name = "a"
input = "pcap:x"
output = "pcap:/dev/null"
[[chain]]
name = "c"
functions = ["counter"]
"#;

    fn wrong(head: &str, scaling: &str) -> Vec<[String; 2]> {
        let text = format!("{head}\n{REST}\n[scaling]\n{scaling}\n");
        let problems = parse("t", &text, &crate::functions()).err().unwrap_or_default();
        let told = problems
            .iter()
            .map(|problem| [problem.problem.clone(), problem.remedy.clone()]);
        told.collect()
    }

    #[test]
    fn there_may_be_eight_more_where_no_setting_says_how_many() {
        let counts = |head: &str| {
            let config = parse("t", &format!("{head}\n{REST}"), &crate::functions()).unwrap();
            (config.runtimes, config.planned_runtimes(), config.most_runtimes())
        };
        assert_eq!(counts(""), (1, 1, 9));
        assert_eq!(counts("runtimes = 60"), (60, 60, 64));
        assert_eq!(counts("runtimes = 2\nruntimes_max = 3"), (2, 3, 3));
        assert_eq!(counts("runtimes = 2\nthreads = 1"), (2, 2, 2));
        assert_eq!(counts("runtimes_max = 3\nthreads = 1"), (1, 3, 3));
    }

    #[test]
    fn what_cannot_be_is_said_with_what_to_write() {
        for good in ["", "runtimes_max = 2"] {
            assert_eq!(wrong(good, ""), Vec::<[String; 2]>::new());
        }
        let told = wrong("threads = 1", "");
        assert!(
            told[0][0].contains("1 runtimes at least and 1 at most"),
            "{told:?}"
        );
        assert!(told[0][1].contains("runtimes_max = 2"), "{told:?}");
        let told = wrong("runtimes_max = 4", "runtimes_min = 2");
        assert!(told[0][1].contains("runtimes = 2"), "{told:?}");
        let told = wrong("runtimes_max = 4", "low = 70");
        assert!(told[0][1].contains("low = 60"), "{told:?}");
        assert_eq!(wrong("runtimes_max = 4", "high = 101").len(), 1);
    }
}
