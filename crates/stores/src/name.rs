//! Names of partitions and variables, and the one form in which a store has them.
//!
//! A variable's key has five parts, in the manner of FlexState's Appendix A:
//! `nat@edge1@0@Counter@mappings` is the counter `mappings` of the function that the configuration
//! calls `nat`, on member `edge1`, runtime 0.
//!
//! ```text
//!   key  = part "@" part "@" number "@" kind "@" part
//!   part = each byte of the name: itself if it is one of A-Z a-z 0-9 _ - . , else "%" and two hexadecimal digits
//! ```
//!
//! No part has an `@` after that, so a key has one reading, and two names never have one key:
//! `any_two_names_have_two_keys`. An escape has upper-case digits and stands for no byte that needs
//! none, so a name has one key.

use std::fmt;
use std::str::FromStr;
pub use variables::Kind;

/// The most bytes that a function's, member's or variable's name may have.
pub const NAME_BYTES_MAX: usize = 255;

/// The problem of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is too long.
    #[error("the name `{0}…` has {1} bytes; give it at most {NAME_BYTES_MAX}")]
    Long(String, usize),
    /// It is no key that this version writes.
    #[error("`{0}` is no key of a variable; keys are FUNCTION@MEMBER@RUNTIME@KIND@NAME")]
    NoKey(String),
}

/// The name of a partition: the variables of one function's instance on one runtime. One worker
/// writes them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionName {
    function: String,
    member: String,
    runtime: u32,
}

impl PartitionName {
    /// The function as the configuration names it, the member (empty in a cluster of one process),
    /// the runtime's number.
    pub fn new(
        function: impl Into<String>,
        member: impl Into<String>,
        runtime: u32,
    ) -> Result<Self, NameError> {
        Ok(PartitionName {
            function: checked(function.into())?,
            member: checked(member.into())?,
            runtime,
        })
    }

    /// The function's name.
    pub fn function(&self) -> &str {
        &self.function
    }

    /// The member's name.
    pub fn member(&self) -> &str {
        &self.member
    }

    /// The runtime's number.
    pub fn runtime(&self) -> u32 {
        self.runtime
    }

    /// The variable of this kind and name.
    pub fn variable(&self, kind: Kind, name: impl Into<String>) -> Result<VariableName, NameError> {
        Ok(VariableName {
            partition: self.clone(),
            kind,
            name: checked(name.into())?,
        })
    }
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}@{}@{}",
            Part(&self.function),
            Part(&self.member),
            self.runtime
        )
    }
}

impl FromStr for PartitionName {
    type Err = NameError;

    fn from_str(key: &str) -> Result<Self, NameError> {
        let wrong = || NameError::NoKey(shortened(key));
        let parts: Vec<&str> = key.split('@').collect();
        let [function, member, runtime] = parts.as_slice() else {
            return Err(wrong());
        };
        let name = PartitionName::new(
            unescaped(function).ok_or_else(wrong)?,
            unescaped(member).ok_or_else(wrong)?,
            runtime.parse().map_err(|_| wrong())?,
        )?;
        // "+1" and "01" are numbers, and no runtime is written so.
        if name.to_string() == key {
            Ok(name)
        } else {
            Err(wrong())
        }
    }
}

/// A variable of a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariableName {
    partition: PartitionName,
    kind: Kind,
    name: String,
}

impl VariableName {
    /// Its partition.
    pub fn partition(&self) -> &PartitionName {
        &self.partition
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The name that the function gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `KIND@NAME`: its key within its partition.
    pub fn local_key(&self) -> String {
        format!("{}@{}", self.kind, Part(&self.name))
    }
}

impl fmt::Display for VariableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}@{}", self.partition, self.kind, Part(&self.name))
    }
}

impl FromStr for VariableName {
    type Err = NameError;

    fn from_str(key: &str) -> Result<Self, NameError> {
        let wrong = || NameError::NoKey(shortened(key));
        let (rest, name) = key.rsplit_once('@').ok_or_else(wrong)?;
        let (partition, kind) = rest.rsplit_once('@').ok_or_else(wrong)?;
        let kind = Kind::ALL
            .into_iter()
            .find(|known| known.to_string() == kind)
            .ok_or_else(wrong)?;
        let variable = partition
            .parse::<PartitionName>()?
            .variable(kind, unescaped(name).ok_or_else(wrong)?)?;
        if variable.to_string() == key {
            Ok(variable)
        } else {
            Err(wrong())
        }
    }
}

/// A name as a part of a key: escaped.
pub(crate) struct Part<'n>(pub &'n str);

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || b"_-.".contains(&byte) {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

/// The name that a part stands for, if it stands for one.
pub(crate) fn unescaped(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| {
                    char::from(byte)
                        .to_digit(16)
                        .and_then(|digit| u8::try_from(digit).ok())
                };
                digit(rest.next()?)? * 16 + digit(rest.next()?)?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn checked(name: String) -> Result<String, NameError> {
    if name.len() > NAME_BYTES_MAX {
        let length = name.len();
        return Err(NameError::Long(name.chars().take(16).collect(), length));
    }
    Ok(name)
}

fn shortened(key: &str) -> String {
    key.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn variable() -> impl Strategy<Value = VariableName> {
        let part = || "[a@%.{}\\x00é 0-9]{0,6}";
        (part(), part(), 0..3u32, 0..7usize, part()).prop_map(|(function, member, runtime, kind, name)| {
            PartitionName::new(function, member, runtime)
                .unwrap()
                .variable(Kind::ALL[kind], name)
                .unwrap()
        })
    }

    proptest! {
        #[test]
        fn any_two_names_have_two_keys(a in variable(), b in variable()) {
            prop_assert_eq!(a == b, a.to_string() == b.to_string());
        }

        #[test]
        fn a_key_is_read_back(name in variable()) {
            let key = name.to_string();
            let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.@%".contains(&byte));
            prop_assert!(is_plain);
            prop_assert_eq!(key.parse::<VariableName>().unwrap(), name.clone());
            prop_assert_eq!(name.partition().to_string().parse::<PartitionName>().unwrap(), name.partition().clone());
        }

        #[test]
        fn whatever_is_read_has_that_key(key in "[a@%0-9CountrMap{}]{0,40}") {
            if let Ok(name) = key.parse::<VariableName>() {
                prop_assert_eq!(name.to_string(), key);
            }
        }
    }

    #[test]
    fn keys_are_as_in_the_paper() {
        let partition = PartitionName::new("nf1", "ins1", 1).unwrap();
        let name = partition.variable(Kind::Counter, "abc").unwrap();
        assert_eq!(name.to_string(), "nf1@ins1@1@Counter@abc");
        let odd = PartitionName::new("n@1", "", 0).unwrap();
        assert_eq!(odd.to_string(), "n%401@@0");
        for wrong in [
            "n%41@@0",
            "n@@00",
            "n@@+1",
            "n%2@@0",
            "n@0",
            "n@@0@",
            "n%c3%a9@@0",
        ] {
            assert!(wrong.parse::<PartitionName>().is_err(), "{wrong}");
        }
        assert!(PartitionName::new("x".repeat(256), "", 0).is_err());
    }
}
