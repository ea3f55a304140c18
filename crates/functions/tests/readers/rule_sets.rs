//! A rule set as it is published: how much of it is in the subset known here.
//!
//! The rules are Snort's community rules without those that ask HTTP's parts, regular expressions
//! or computed numbers (`community-core.rules`). The test lists each rule that does not load by the
//! word that keeps it out.

use crate::data;
use flowkeep_functions::ids::Config;
use flowkeep_functions::ids::config::{Settings, Unsupported};
use std::collections::BTreeMap;

/// Rules of each hundred that must load.
const PERCENT_MIN: usize = 95;

#[test]
fn a_published_rule_set_loads() {
    let Some(folder) = data("ids/community-rules") else {
        return;
    };
    let text = std::fs::read_to_string(folder.join("community-core.rules")).expect("the rules read");
    let is_rule = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
    let all = text.lines().filter(is_rule).count();
    let loaded = Config::from(Settings {
        rules: text,
        unsupported: Unsupported::Skip,
        ..Settings::default()
    })
    .rules()
    .unwrap_or_else(|error| panic!("unknown words are skipped, and nothing else is wrong: {error}"));
    let mut left_out: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for skipped in &loaded.skipped {
        let word = skipped
            .error
            .fault
            .unknown
            .clone()
            .expect("only unknown words are skipped");
        left_out.entry(word).or_default().push(skipped.error.line);
    }
    println!("{} of {all} rules load", loaded.rules.len());
    for (word, lines) in &left_out {
        println!("{:>4} left out for `{word}`: lines {lines:?}", lines.len());
    }
    assert_eq!(loaded.rules.len() + loaded.skipped.len(), all);
    assert!(loaded.rules.len() * 100 >= all * PERCENT_MIN);
}
