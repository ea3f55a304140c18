//! The clock of the second runtime, which is at another host: 28 years ahead of all others'.
//!
//! # Theory of operation
//! Whatever moves between the runtimes moves between two clocks. To be compared with the run where
//! flows stay, the second runtime's text is told by the clock of the first: numbers with nine
//! places (seconds, as [`nf::Time`] prints itself and the event log begins its lines), `Tick(…)`,
//! and EVE's dates. 28 years of 10,227 days are whole milliseconds, so a [`nf::Tick`] is not
//! rounded; and between 1970 and 2099 the calendar repeats itself after them, so of a date the year
//! alone differs.
//!
//! ```text
//!   runtime 1:  {"time":883613800.000000004,"runtime":1,…"timestamp":"1998-01-01T00:16:40…
//!   told:       {"time":1000.000000004,"runtime":1,…"timestamp":"1970-01-01T00:16:40…
//! ```
//!
//! Not here: which runtime has which clock (`rig`).

use runtime::worker::FlowView;

const YEARS: u64 = 28;
const SECONDS: u64 = 10_227 * 86_400;
/// By how much the second runtime's clock is ahead, in nanoseconds.
pub const AHEAD: u64 = SECONDS * 1_000_000_000;

/// By how much a runtime's clock is ahead.
pub fn ahead(runtime: u16) -> u64 {
    u64::from(runtime) * AHEAD
}

/// A runtime's view of a flow, with times by the first runtime's clock.
pub fn flow(mut flow: FlowView) -> FlowView {
    for (_, value) in flow.state.iter_mut().flat_map(|(_, fields)| fields) {
        *value = told(flow.runtime, value);
    }
    flow
}

/// A runtime's text, with times by the first runtime's clock.
pub fn told(runtime: u16, text: &str) -> String {
    if runtime == 0 {
        return text.to_owned();
    }
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        told.push_str(before);
        let length = from
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(from.len());
        let (digits, behind) = from.split_at(length);
        told.push_str(&number(&told, digits, behind));
        rest = behind;
    }
    told + rest
}

/// Digits, as they are or by the first runtime's clock.
fn number(before: &str, digits: &str, behind: &str) -> String {
    let by_clock =
        |more: &dyn Fn(u64) -> u64| digits.parse().map_or(digits.to_owned(), |n| more(n).to_string());
    let places = behind.strip_prefix('.').map(|places| {
        let end = places.find(|letter: char| !letter.is_ascii_digit());
        end.unwrap_or(places.len())
    });
    if places == Some(9) {
        // A time before its clock's beginning, or a time that never was, is not by this clock.
        return by_clock(&|seconds| seconds.checked_sub(SECONDS).unwrap_or(seconds));
    }
    if before.ends_with("Tick(") {
        // 0 is never, and no moment is told as it.
        return by_clock(&|tick| match tick {
            0 => 0,
            tick => u64::from((tick as u32).wrapping_sub((AHEAD / 1_000_000) as u32)),
        });
    }
    if before.ends_with("\"timestamp\":\"") && behind.starts_with('-') {
        return by_clock(&|year| year.saturating_sub(YEARS));
    }
    digits.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nf::Time;

    #[test]
    fn what_is_told_is_told_by_the_first_clock() {
        let time = Time::from_nanoseconds(AHEAD + 1_000_000_000_004);
        let line = format!(
            "{{\"time\":{time},\"runtime\":1,\"timestamp\":\"1998-01-01T00:16:40.000000+0000\",\"n\":883612801.5}}"
        );
        assert_eq!(
            told(1, &line),
            "{\"time\":1000.000000004,\"runtime\":1,\"timestamp\":\"1970-01-01T00:16:40.000000+0000\",\"n\":883612801.5}"
        );
        assert_eq!(told(0, &line), line);
        assert_eq!(told(1, "0.000000000 never"), "0.000000000 never");
        let tick = |nanoseconds| format!("{:?}", Time::from_nanoseconds(nanoseconds).tick());
        assert_eq!(told(1, &tick(AHEAD + 7_000_000)), tick(7_000_000));
        assert_eq!(told(1, "Tick(0)"), "Tick(0)");
    }
}
