//! The answers of the server of figures, in one of two formats.
//!
//! ```text
//!   Accept: text/plain, and not OpenMetrics     Prometheus' text format, 0.0.4 (promtool, older scrapers)
//!   Accept: anything else, or none              OpenMetrics 1.0.0
//! ```
//!
//! Both have the same samples. In the text format a counter's family has the name of its samples,
//! with `_total`, units have no line, and the end has none.
//!
//! Source: OpenMetrics 1.0.0 (the draft's 5, "Content negotiation"), and Prometheus' page of
//! exposition formats.

use std::fmt::Write as _;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The answer to a request with this head. Figures come as OpenMetrics.
pub(super) fn answer(head: &[u8], figures: impl FnOnce() -> String) -> Vec<u8> {
    let mut words = head.split(|byte| *byte == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    let (status, kind, body) = match (method, path) {
        (b"GET", b"/metrics") if wants_text(head) => ("200 OK", TEXT, as_text(&figures())),
        (b"GET", b"/metrics") => ("200 OK", OPENMETRICS, figures()),
        (b"GET", _) => (
            "404 Not Found",
            "text/plain",
            "Figures are at /metrics\n".to_owned(),
        ),
        _ => (
            "405 Method Not Allowed",
            "text/plain",
            "Write GET /metrics\n".to_owned(),
        ),
    };
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Whether the client takes plain text and no OpenMetrics.
fn wants_text(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let accept = head.lines().filter_map(|line| line.strip_prefix("accept:"));
    let accept = accept.collect::<Vec<_>>().join(",");
    accept.contains("text/plain") && !accept.contains("application/openmetrics-text")
}

/// OpenMetrics in the text format.
fn as_text(figures: &str) -> String {
    let (mut text, mut help) = (String::with_capacity(figures.len()), None);
    for line in figures.lines() {
        if let Some(said) = line.strip_prefix("# HELP ") {
            // Its name depends on the type, which may come behind it.
            help = Some(said);
        } else if let Some(said) = line.strip_prefix("# TYPE ") {
            let (name, kind) = said.split_once(' ').unwrap_or((said, "untyped"));
            let ending = if kind == "counter" { "_total" } else { "" };
            if let Some((_, sentence)) = help.take().and_then(|said| said.split_once(' ')) {
                let _ = writeln!(text, "# HELP {name}{ending} {sentence}");
            }
            let kind = if kind == "info" { "gauge" } else { kind };
            let _ = writeln!(text, "# TYPE {name}{ending} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake;
    use crate::metrics;

    fn asked(accept: &str) -> String {
        let head = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n");
        let answer = answer(head.as_bytes(), || metrics::text(&fake::snapshot()));
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn a_client_gets_the_format_that_it_takes() {
        for accept in [
            "",
            "Accept: */*\r\n",
            "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n",
        ] {
            assert!(asked(accept).contains(OPENMETRICS), "{accept}");
        }
        for accept in ["Accept: text/plain;version=0.0.4\r\n", "ACCEPT: Text/Plain\r\n"] {
            assert!(asked(accept).contains(TEXT), "{accept}");
        }
    }

    #[test]
    fn both_formats_have_the_same_samples_and_families_have_their_names() {
        let figures = metrics::text(&fake::snapshot());
        let text = as_text(&figures);
        let samples = |of: &str| {
            let lines = of.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(samples(&text), samples(&figures));
        let count = |of: &str, what: &str| of.lines().filter(|line| line.starts_with(what)).count();
        for what in ["# TYPE ", "# HELP "] {
            assert_eq!(count(&text, what), count(&figures, what), "{what}");
        }
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
        let mut family = String::new();
        for line in text.lines() {
            if let Some(said) = line.strip_prefix("# TYPE ") {
                family = said.split(' ').next().unwrap().to_owned();
                assert!(text.contains(&format!("# HELP {family} ")), "{family}");
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&family), "{family}: {line}");
            }
        }
    }
}
