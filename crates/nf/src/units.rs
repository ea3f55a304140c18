//! Times and sizes as people write them in configurations: `"2h4m"`, `"500ms"`, `"64 MiB"`.
//!
//! A number alone is refused, because a reader cannot tell whether `60` means seconds or
//! milliseconds:
//!
//! ```
//! use nf::{ByteSize, Period};
//! assert_eq!("2h4m".parse::<Period>().unwrap().duration().as_secs(), 7440);
//! assert_eq!("64 KiB".parse::<ByteSize>().unwrap().bytes(), 65536);
//! assert_eq!("60".parse::<Period>().unwrap_err().to_string(), "`60` has no unit; write \"60s\"");
//! ```
//!
//! Not here: `"none"`, for settings that can be switched off; a function that has such a setting
//! says so itself.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A time with its unit: `d`, `h`, `m`, `s`, `ms`, `us`, `ns`, several after each other as in
/// `1m30s`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Period(Duration);

/// A number of bytes with its unit: `B`, `kB`, `MB`, `GB` (powers of 1000), `KiB`, `MiB`, `GiB` (of
/// 1024).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct ByteSize(u64);

/// Why something is not a time or a size, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitError(String);

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for UnitError {}

/// Units of time in nanoseconds, the longest first.
const TIMES: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Units of size in bytes.
const SIZES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl Period {
    /// A time.
    pub const fn new(duration: Duration) -> Self {
        Period(duration)
    }

    /// A number of seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Period(Duration::from_secs(seconds))
    }

    /// The time.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl ByteSize {
    /// A number of bytes.
    pub const fn new(bytes: u64) -> Self {
        ByteSize(bytes)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// The sum of `text`'s parts, each a whole number and a unit.
fn sum(text: &str, units: &[(&str, u64)], example: &str, parts_max: usize) -> Result<u64, UnitError> {
    let wrong = |what: &str| UnitError(format!("`{text}` {what}; write for example {example}"));
    let mut rest = text.trim();
    let mut total = 0u64;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '_')
            .unwrap_or(rest.len());
        let number: u64 = match rest[..digits].replace('_', "").parse() {
            Ok(number) => number,
            Err(_) if digits == 0 => return Err(wrong("has no whole number where one is expected")),
            Err(_) => return Err(wrong("is too much")),
        };
        rest = rest[digits..].trim_start();
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = &rest[..letters];
        let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
            let known: alloc::vec::Vec<&str> = units.iter().map(|(name, _)| *name).collect();
            return Err(match unit {
                "" if text.bytes().all(|b| b.is_ascii_digit()) => {
                    let usual = if units.len() == TIMES.len() && units[0].0 == "d" {
                        "s"
                    } else {
                        "B"
                    };
                    UnitError(format!("`{text}` has no unit; write \"{text}{usual}\""))
                }
                "" if rest.starts_with('.') => wrong("has a number that is not whole"),
                "" => wrong("has a number without a unit"),
                unit => UnitError(format!(
                    "`{text}`: there is no unit `{unit}`; there are {}",
                    known.join(", ")
                )),
            });
        };
        rest = rest[letters..].trim_start();
        parts += 1;
        if parts > parts_max {
            return Err(wrong("has more than one number"));
        }
        total = number
            .checked_mul(*factor)
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| wrong("is too much"))?;
    }
    if parts == 0 {
        return Err(wrong("is empty"));
    }
    Ok(total)
}

impl FromStr for Period {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        sum(text, &TIMES, "\"90s\" or \"1h30m\"", TIMES.len()).map(|ns| Period(Duration::from_nanos(ns)))
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        sum(text, &SIZES, "\"64MiB\"", 1).map(ByteSize)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, factor) in TIMES {
            if rest >= factor {
                write!(f, "{}{unit}", rest / factor)?;
                rest %= factor;
            }
        }
        Ok(())
    }
}

impl fmt::Display for ByteSize {
    /// The largest unit that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |unit: &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(unit.1);
        let (unit, factor) = SIZES
            .iter()
            .filter(exact)
            .max_by_key(|unit| unit.1)
            .unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl From<Period> for Duration {
    fn from(period: Period) -> Duration {
        period.0
    }
}

/// Reads either type from text, and names the missing unit when it finds a number.
struct Units<T> {
    what: &'static str,
    made: core::marker::PhantomData<T>,
}

impl<T: FromStr<Err = UnitError>> Visitor<'_> for Units<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let what = "a time with its unit, like \"90s\" or \"1h30m\"";
        deserializer.deserialize_any(Units {
            what,
            made: core::marker::PhantomData,
        })
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let what = "a size with its unit, like \"64MiB\"";
        deserializer.deserialize_any(Units {
            what,
            made: core::marker::PhantomData,
        })
    }
}

#[cfg(feature = "schema")]
mod schema {
    //! How the two look in a JSON schema.

    use super::{ByteSize, Period};
    use alloc::borrow::Cow;
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    impl JsonSchema for Period {
        fn schema_name() -> Cow<'static, str> {
            "Period".into()
        }
        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({
                "type": "string",
                "description": "A time with its unit: d, h, m, s, ms, us, ns; several after each other as in 1m30s.",
                "pattern": "^([0-9_]+ *(d|h|m|s|ms|us|ns) *)+$",
                "examples": ["90s", "2h4m"],
            })
        }
    }

    impl JsonSchema for ByteSize {
        fn schema_name() -> Cow<'static, str> {
            "ByteSize".into()
        }
        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({
                "type": "string",
                "description": "A number of bytes with its unit: B, kB, MB, GB, KiB, MiB, GiB.",
                "pattern": "^[0-9_]+ *(B|kB|MB|GB|KiB|MiB|GiB)$",
                "examples": ["64MiB"],
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(text: &str) -> Result<u128, String> {
        text.parse::<Period>()
            .map(|period| period.duration().as_nanos())
            .map_err(|error| error.to_string())
    }

    fn size(text: &str) -> Result<u64, String> {
        text.parse::<ByteSize>()
            .map(ByteSize::bytes)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn times() {
        assert_eq!(period("2h4m"), Ok(7_440_000_000_000));
        assert_eq!(period("500ms"), Ok(500_000_000));
        assert_eq!(period("1m 30s"), Ok(90_000_000_000));
        assert_eq!(period("0s"), Ok(0));
        assert_eq!(period("60"), Err("`60` has no unit; write \"60s\"".into()));
        assert_eq!(
            period("5 parsecs"),
            Err("`5 parsecs`: there is no unit `parsecs`; there are d, h, m, s, ms, us, ns".into())
        );
        for wrong in [
            "",
            "s",
            "-5s",
            "1.5s",
            "99999999999999d",
            "1h 5",
            "99999999999999999999s",
        ] {
            assert!(period(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("64 MiB"), Ok(64 << 20));
        assert_eq!(size("1500B"), Ok(1500));
        assert_eq!(size("1_000kB"), Ok(1_000_000));
        assert_eq!(size("9"), Err("`9` has no unit; write \"9B\"".into()));
        assert!(size("1MiB1B").is_err());
        assert!(size("1Mib").is_err());
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in ["2h4m", "500ms", "1d1ns", "0s"] {
            assert_eq!(text.parse::<Period>().unwrap().to_string(), text);
        }
        for text in ["64MiB", "1500B", "1kB", "0B", "3GiB"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
    }
}
