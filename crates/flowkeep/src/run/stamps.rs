//! Moments in lines of the event log: functions tell them by the workers' clock, readers want the
//! time of day.
//!
//! # Theory of operation
//!
//! ```text
//!   function:  {"time":36000.500000000,…,"start":35999.000000000,…}       since the machine started
//!   file:      {"time":"2026-11-20T18:46:04.500000000Z",…,"start":1795200363.000000000,…}
//! ```
//!
//! Each line begins with `time`, which becomes a date of RFC 3339, UTC. Other moments keep their
//! form: a number with nine places, in seconds, and the date of EVE's `timestamp`; they become time
//! of day where they are not. Workers that go by a capture have its time, which is time of day as
//! it is. With the machine's clock a packet of a capture keeps the capture's time: a time behind
//! [`MACHINE`] is time of day already. A flow that began before the machine started, and moved here
//! or came from a store, has a negative moment, and a date before 1970.
//!
//! Invariants: text in strings stays as it is, whatever a peer has put there; a line that has no
//! moment stays as it is.
//!
//! Not here: functions' lines ([`nf::cx::EventLog`]), the file ([`super::events`]).

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const SECOND: u64 = 1_000_000_000;
/// No machine's clock says more than this: ten years since it started.
const MACHINE: i64 = 10 * 365 * 86_400 * SECOND.cast_signed();
/// The clocks may drift by so much before it is looked at: lines of one time stay so.
const DRIFT: u64 = 1_000_000;

/// The offset from a worker's time to the time of day. A capture's time is that already.
pub(super) fn clock_offset(packet_clock: bool) -> u64 {
    if packet_clock {
        return 0;
    }
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (today.as_nanos() as u64).saturating_sub(adapters::clock::monotonic_ns())
}

/// Makes moments times of day.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    packet_clock: bool,
    offset: u64,
}

impl Stamps {
    pub fn new(packet_clock: bool) -> Self {
        let offset = clock_offset(packet_clock);
        Stamps { packet_clock, offset }
    }

    /// Appends lines, with times of day.
    pub fn append(&mut self, lines: &str, out: &mut String) {
        let offset = clock_offset(self.packet_clock);
        if offset.abs_diff(self.offset) > DRIFT {
            self.offset = offset;
        }
        for line in lines.split_inclusive('\n') {
            self.line(line, out);
        }
    }

    fn line(&self, line: &str, out: &mut String) {
        let mut rest = line;
        if let Some((moment, behind)) = line.strip_prefix("{\"time\":").and_then(moment) {
            let _ = write!(out, "{{\"time\":\"{}\"", Rfc3339(self.today(moment)));
            rest = behind;
        }
        while self.offset > 0
            && let Some(at) = rest.find("\":")
        {
            let (before, value) = rest.split_at(at + 2);
            out.push_str(before);
            rest = value;
            // A quote behind an odd number of backslashes is in a string.
            let backslashes = before.bytes().rev().skip(2).take_while(|byte| *byte == b'\\');
            if backslashes.count() % 2 == 1 {
                continue;
            }
            if let Some((moment, behind)) = moment(value) {
                let today = self.today(moment);
                let _ = write!(out, "{}.{:09}", today / SECOND, today % SECOND);
                rest = behind;
            } else if before.ends_with("\"timestamp\":")
                && let Some((moment, behind)) = value.strip_prefix('"').and_then(date)
            {
                let date = Rfc3339(self.today(moment)).to_string();
                // To the microsecond, and with the offset in EVE's form.
                let _ = write!(out, "\"{}+0000\"", date.get(..26).unwrap_or(&date));
                rest = behind;
            }
        }
        out.push_str(rest);
    }

    fn today(&self, moment: i64) -> u64 {
        match moment < MACHINE {
            true => self.offset.saturating_add_signed(moment),
            false => moment.unsigned_abs(),
        }
    }
}

/// A moment in front of `text`, in seconds with nine places, and the text behind it. It may be as
/// far before the machine's start as behind it.
fn moment(text: &str) -> Option<(i64, &str)> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    let seconds = digits(text);
    let places = text.get(seconds..)?.strip_prefix('.')?;
    if digits(places) != 9 {
        return None;
    }
    let (nanoseconds, behind) = places.split_at(9);
    let whole: i64 = text.get(..seconds)?.parse().ok()?;
    let moment = whole
        .checked_mul(SECOND.cast_signed())?
        .checked_add(nanoseconds.parse().ok()?)?
        .checked_mul(sign)?;
    let ends = behind.starts_with([',', '}']);
    (ends && moment > -MACHINE).then_some((moment, behind))
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// A date as EVE has it, with the quote behind it, of the ten years that a machine's clock may say,
/// or the ten before.
fn date(text: &str) -> Option<(i64, &str)> {
    const LENGTH: usize = "1970-01-01T00:16:40.000000+0000\"".len();
    let (date, behind) = text.split_at_checked(LENGTH)?;
    let number = |from: usize, to: usize| date.get(from..to)?.parse::<u32>().ok().map(i64::from);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let is_machines = (1960..1980).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_machines || !date.ends_with("+0000\"") {
        return None;
    }
    let leap_days = |year: i64| (year - 1969).div_euclid(4);
    let days_before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap_day = i64::from(month > 2 && year % 4 == 0);
    let days =
        (year - 1970) * 365 + leap_days(year) + days_before.get(month as usize - 1)? + leap_day + day - 1;
    let second = number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
    let moment = (days * 86_400 + second) * SECOND.cast_signed() + number(20, 26)? * 1000;
    Some((moment, behind))
}

/// Milliseconds since 1970 of a date as [`Rfc3339`] writes it.
pub(super) fn milliseconds(date: &str) -> Option<u64> {
    let number = |from: usize, to: usize| date.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // As in `Rfc3339`, the other way.
    let shifted = year - u64::from(month <= 2);
    let (era, year_of_era) = (shifted / 400, shifted % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + of_era).checked_sub(719_468)?;
    let seconds = days * 86_400 + number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
    Some(seconds * 1000 + number(20, 23)?)
}

/// Nanoseconds since 1970 as a date of RFC 3339, UTC, with nine places.
pub(crate) struct Rfc3339(pub u64);

impl std::fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, places) = (self.0 / SECOND, self.0 % SECOND);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Years begin in March here, so that the leap day comes last; an era is 400 years.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        let year = 400 * era + year_of_era + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{places:09}Z"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `date --utc --date=@1795200364`: 2026-11-20T18:46:04.
    const TODAY: u64 = 1_795_200_364 * SECOND;

    fn told(offset: u64, line: &str) -> String {
        let mut out = String::new();
        let packet_clock = offset == 0;
        Stamps { packet_clock, offset }.line(line, &mut out);
        out
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_795_200_364, "2026-11-20T18:46:04.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(Rfc3339(seconds * SECOND).to_string(), text);
            assert_eq!(milliseconds(text), Some(seconds * 1000));
        }
        for day in 0..50_000 {
            let moment = (day * 86_400 + 3_661) * SECOND + 7_000_000;
            assert_eq!(
                milliseconds(&Rfc3339(moment).to_string()),
                Some(moment / 1_000_000)
            );
        }
        for none in [
            "",
            "2026-13-01T00:00:00.000Z",
            "1969-12-31T00:00:00.000Z",
            "é026-11-20T18:46:04.0",
        ] {
            assert_eq!(milliseconds(none), None);
        }
        assert!(Rfc3339(u64::MAX).to_string().ends_with(".709551615Z"));
    }

    #[test]
    fn dates_of_a_machines_clock_are_read_as_they_were_written() {
        for day in 0..3652 {
            let moment = (day * 86_400 + 3_661) * SECOND + 7_000;
            let text = Rfc3339(moment).to_string();
            let eve = format!("{}+0000\",", &text[..26]);
            assert_eq!(date(&eve), Some((moment.cast_signed(), ",")), "{eve}");
        }
        // `date --utc --date=1960-01-01 +%s`, and so on.
        for (text, second) in [
            ("1960-01-01T00:00:00", -315_619_200),
            ("1960-02-29T12:00:00", -310_478_400),
            ("1964-03-01T00:00:00", -184_204_800),
            ("1968-12-31T23:59:59", -31_536_001),
            ("1969-12-31T23:59:59", -1),
        ] {
            let eve = format!("{text}.500000+0000\",");
            assert_eq!(
                date(&eve),
                Some((second * 1_000_000_000 + 500_000_000, ",")),
                "{eve}"
            );
        }
        for other in [
            "",
            "1970-13-01T00:16:40.000000+0000\"",
            "1980-01-01T00:16:40.000000+0000\"",
            "1959-12-31T00:16:40.000000+0000\"",
            "é",
        ] {
            assert_eq!(date(other), None);
        }
    }

    #[test]
    fn moments_of_a_machine_become_times_of_day() {
        let line = "{\"time\":10.000000005,\"runtime\":0,\"start\":9.000000000,\"end\":10.000000000}\n";
        let expected = "{\"time\":\"2026-11-20T18:46:14.000000005Z\",\"runtime\":0,\
                        \"start\":1795200373.000000000,\"end\":1795200374.000000000}\n";
        assert_eq!(told(TODAY, line), expected);
        let line = "{\"time\":10.000000005,\"timestamp\":\"1970-01-01T00:00:09.250000+0000\",\"n\":1}\n";
        let expected = "{\"time\":\"2026-11-20T18:46:14.000000005Z\",\
                        \"timestamp\":\"2026-11-20T18:46:13.250000+0000\",\"n\":1}\n";
        assert_eq!(told(TODAY, line), expected);
    }

    #[test]
    fn moments_before_a_machine_started_become_times_of_day() {
        let line = "{\"time\":2.000000000,\"start\":-5.000000000,\"end\":1.000000000,\"a\":-0.250000000}\n";
        let expected = "{\"time\":\"2026-11-20T18:46:06.000000000Z\",\"start\":1795200359.000000000,\
                        \"end\":1795200365.000000000,\"a\":1795200363.750000000}\n";
        assert_eq!(told(TODAY, line), expected);
        let line = "{\"time\":2.000000000,\"timestamp\":\"1969-12-31T23:59:55.250000+0000\"}\n";
        let expected = "{\"time\":\"2026-11-20T18:46:06.000000000Z\",\
                        \"timestamp\":\"2026-11-20T18:45:59.250000+0000\"}\n";
        assert_eq!(told(TODAY, line), expected);
        // In the first second behind 1970 there is nothing earlier.
        assert_eq!(told(SECOND, "{\"a\":-5.000000000}"), "{\"a\":0.000000000}");
        assert_eq!(
            told(TODAY, "{\"a\":-9223372037.000000000}"),
            "{\"a\":-9223372037.000000000}"
        );
    }

    #[test]
    fn moments_of_a_capture_stay() {
        let line = "{\"time\":1795200364.000000005,\"start\":9.000000000}\n";
        let expected = "{\"time\":\"2026-11-20T18:46:04.000000005Z\",\"start\":9.000000000}\n";
        assert_eq!(told(0, line), expected);
        // Its packets keep their times where workers go by the machine's clock.
        let line = "{\"time\":1.000000000,\"start\":1795200000.000000000,\"timestamp\":\"2026-11-20T18:46:04.000000+0000\"}\n";
        let told = told(TODAY, line);
        assert!(
            told.starts_with("{\"time\":\"2026-11-20T18:46:05.000000000Z\","),
            "{told}"
        );
        assert_eq!(told[42..], line[21..]);
    }

    #[test]
    fn what_a_peer_writes_into_a_string_stays() {
        for text in [
            "{\"url\":\"\\\":1.000000000,\\\"timestamp\\\":\\\"1970-01-01T00:00:09.250000+0000\\\"\",\"x\":1.5}\n",
            "{\"url\":\"\\\\\\\":1.000000000,\"}\n",
            "{\"x\":1.00000000,\"y\":1.0000000000,\"z\":--1.000000000,\"v\":99999999999999999999.000000000}\n",
            "no JSON at all\n",
            "{\"time\":\n",
            "",
        ] {
            assert_eq!(told(TODAY, text), text);
        }
        // A string that ends with a backslash ends.
        let line = "{\"url\":\"\\\\\",\"start\":1.000000000}\n";
        assert_eq!(
            told(TODAY, line),
            "{\"url\":\"\\\\\",\"start\":1795200365.000000000}\n"
        );
    }
}
