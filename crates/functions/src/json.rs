//! Bytes of the network inside a JSON text.
//!
//! What is UTF-8 stays as it is, but for quotes, backslashes and control characters. Other bytes become `\u00XX`, as if they
//! were Latin-1, so that a line is always JSON and no byte is lost.
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
        assert_eq!(Text("a\"\\\u{fc}\n".as_bytes()).to_string(), "a\\\"\\\\\u{fc}\\u000a");
    }
}
