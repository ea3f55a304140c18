//! Bytes of the network, and times, inside a JSON text.
//!
//! UTF-8 stays as it is, but for quotes, backslashes and control characters. Other bytes become
//! `\u00XX`, as if they were Latin-1, so that a line is always JSON and no byte is lost.
//!
//! Not here: the lines themselves (`nf::cx::EventLog`).

use core::fmt::{self, Display, Formatter, Write};

/// Prints bytes as the inside of a JSON text.
pub(crate) struct Text<'a>(pub &'a [u8]);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '"' | '\\' => {
                        f.write_char('\\')?;
                        f.write_char(letter)?;
                    }
                    _ if letter < ' ' || letter == '\u{7f}' => write!(f, "\\u{:04x}", u32::from(letter))?,
                    _ => f.write_char(letter)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\u{byte:04x}")?;
            }
        }
        Ok(())
    }
}

/// Nanoseconds since 1970, negative before, as EVE writes times.
pub(crate) struct Timestamp(pub i64);

impl Display for Timestamp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (
            self.0.div_euclid(1_000_000_000),
            self.0.div_euclid(1000).rem_euclid(1_000_000),
        );
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Years begin in March here, so that the leap day comes last; an era is 400 years.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let year = 400 * era + year_of_era + i64::from(month <= 2);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{micros:06}+0000",
            second / 3600,
            second / 60 % 60,
            second % 60,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn any_bytes_are_json() {
        let all: std::vec::Vec<u8> = (0..=255).collect();
        let line = std::format!("\"{}\"", Text(&all));
        let read: std::string::String = serde_json::from_str(&line).unwrap();
        assert_eq!(read.chars().count(), 256);
        assert_eq!(
            Text("a\"\\\u{fc}\n".as_bytes()).to_string(),
            "a\\\"\\\\\u{fc}\\u000a"
        );
    }

    #[test]
    fn times_are_calendar_times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000+0000"),
            (-36_000, "1969-12-31T14:00:00.000000+0000"),
            (951_782_399, "2000-02-28T23:59:59.000000+0000"),
            (951_827_696, "2000-02-29T12:34:56.000000+0000"),
            (4_107_542_400, "2100-03-01T00:00:00.000000+0000"),
            (1_795_200_364, "2026-11-20T18:46:04.000000+0000"),
        ] {
            assert_eq!(Timestamp(seconds * 1_000_000_000).to_string(), text);
        }
        assert_eq!(
            Timestamp(1_234_567_891).to_string(),
            "1970-01-01T00:00:01.234567+0000"
        );
        // No number does harm.
        for extreme in [i64::MIN, i64::MAX] {
            assert!(Timestamp(extreme).to_string().ends_with("+0000"));
        }
    }
}
