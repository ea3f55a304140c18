//! Messages on words that are no command: the parser's text, with a remedy.
//!
//! The parser takes the words of Rust's types on a value (*invalid digit found in string*), which
//! help no operator. Here is what each of these means.
//!
//! Not here: values with a type of this tool, which say it themselves.

/// Rust's words, and the words in their place.
const WORDS: [(&str, &str); 7] = [
    (
        "invalid digit found in string",
        "not a whole number; write one like 20",
    ),
    (
        "cannot parse integer from empty string",
        "not a whole number; write one like 20",
    ),
    (
        "number too large to fit in target type",
        "the number is too large; write a smaller one",
    ),
    (
        "number too small to fit in target type",
        "the number is too small; write a larger one",
    ),
    ("invalid float literal", "not a number; write one like 0.5"),
    (
        "invalid socket address syntax",
        "not an address with a port; write one like 127.0.0.1:7000",
    ),
    (
        " is not in 1..18446744073709551615",
        " is too small; write 1 or more",
    ),
];
/// A hint that an option which there is not may be meant as a value: it never is.
const TIP: &str = "  tip: to pass '";

/// The parser's text, as it is printed.
pub(super) fn plain(text: &str) -> String {
    let mut plain = WORDS
        .iter()
        .fold(text.to_owned(), |text, (rust, words)| text.replace(rust, words));
    if let Some((before, rest)) = plain.split_once(TIP) {
        let behind = rest.split_once("\n\n").map_or("", |(_, behind)| behind);
        plain = format!("{before}{behind}");
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    fn said(words: &str) -> String {
        let words = ["flowkeep"].into_iter().chain(words.split(' '));
        let Err(error) = Cli::try_parse_from(words) else {
            panic!("a command")
        };
        plain(&error.render().to_string())
    }

    #[test]
    fn values_say_what_to_write_instead() {
        for (words, remedy) in [
            (
                "flow list --limit x",
                "'x' for '--limit <N>': not a whole number; write one like 20",
            ),
            ("sim --scenario nat --seed x", "not a whole number"),
            (
                "sim --scenario nat --seed 99999999999999999999",
                "write a smaller one",
            ),
            ("runtime add x", "write one like 20"),
            ("capture --count x", "write one like 20"),
            ("flow events --count 0", "0 is too small; write 1 or more"),
            ("flow list --limit 0", "write 1 or more"),
            ("top --interval 0s", "0s is too short; write 100ms or more"),
            ("runtime rebalance --interval 99ms", "write 100ms or more"),
            ("cluster token d --member a --valid 0s", "write 1s or more"),
            ("coordinator --data d --listen 1", "write one like 127.0.0.1:7000"),
        ] {
            let said = said(words);
            assert!(said.contains(remedy), "{words}: {said}");
        }
    }

    #[test]
    fn an_option_that_there_is_not_is_no_value() {
        let said = said("flow migrate --prefix 10.0.0.0/24 --to 1");
        assert!(said.contains("unexpected argument '--prefix' found"), "{said}");
        assert!(said.contains("Usage:") && !said.contains("tip"), "{said}");
        let near = self::said("status --jsn");
        assert!(near.contains("a similar argument exists: '--json'"), "{near}");
    }
}
