//! The bytes of a content: `"GET |20|/etc\;"`, `!"|0d 0a|"`.
//!
//! Between bars stand pairs of hexadecimal digits, with or without blanks; a backslash makes `"`,
//! `;`, `:`, `\` and `|` a letter like any other.
//!
//! Not here: where in a payload they must be (`options`).

use super::parse::Fault;
use super::rule::Content;
use alloc::format;
use alloc::vec::Vec;

/// The longest content.
const BYTES_MAX: usize = 255;

/// Reads a content's value.
pub(super) fn read(value: &str) -> Result<Content, Fault> {
    let (negated, text) = match value.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, value),
    };
    let inside = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let Some(inside) = inside.filter(|_| text.len() >= 2) else {
        let problem = format!("the content {text} is not in quotes");
        return Err(Fault::new(problem, "write content:\"…\"; or content:!\"…\";"));
    };
    let bytes = bytes(inside)?;
    if bytes.is_empty() || bytes.len() > BYTES_MAX {
        let problem = format!("a content has 1 to {BYTES_MAX} bytes, not {}", bytes.len());
        return Err(Fault::new(problem, "divide it with distance:0 and within"));
    }
    Ok(Content {
        bytes,
        negated,
        ..Content::default()
    })
}

fn bytes(text: &str) -> Result<Vec<u8>, Fault> {
    let (mut bytes, mut escaped, mut digits) = (Vec::new(), false, None::<Vec<u8>>);
    for letter in text.bytes() {
        match (&mut digits, letter) {
            (Some(run), b'|') => {
                if run.len() % 2 == 1 || run.is_empty() {
                    return Err(not_hex(text));
                }
                bytes.extend(run.chunks(2).map(|pair| pair[0] << 4 | pair[1]));
                digits = None;
            }
            (Some(_), b' ') => {}
            (Some(run), letter) => match (letter as char).to_digit(16) {
                Some(digit) => run.push(digit as u8),
                None => return Err(not_hex(text)),
            },
            (None, letter) if escaped => {
                if !matches!(letter, b'"' | b';' | b':' | b'\\' | b'|') {
                    let problem = format!(
                        "`\\{}` is no escape in the content \"{text}\"",
                        letter.escape_ascii()
                    );
                    return Err(Fault::new(problem, "write a backslash as \\\\ or |5c|"));
                }
                bytes.push(letter);
                escaped = false;
            }
            (None, b'\\') => escaped = true,
            (None, b'|') => digits = Some(Vec::new()),
            (None, b'"') => {
                let problem = format!("there is a quote inside the content \"{text}\"");
                return Err(Fault::new(problem, "write it as \\\" or |22|"));
            }
            (None, letter) => bytes.push(letter),
        }
    }
    match digits.is_some() || escaped {
        true => Err(not_hex(text)),
        false => Ok(bytes),
    }
}

fn not_hex(text: &str) -> Fault {
    Fault::new(
        format!("what stands between bars in the content \"{text}\" are not pairs of hexadecimal digits"),
        "write them like |0d 0a|, and a bar itself as |7c|",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_hexadecimal_digits() {
        for (text, expected) in [
            ("\"abc\"", &b"abc"[..]),
            ("\"uid=0|28|root|29|\"", b"uid=0(root)"),
            ("\"|0D 0a|x|0d0A|\"", b"\r\nx\r\n"),
            (r#""a\;\:\"\\\|""#, b"a;:\"\\|"),
            ("\"gr\u{fc}\u{df}\"", "gr\u{fc}\u{df}".as_bytes()),
        ] {
            assert_eq!(read(text).unwrap().bytes, expected, "{text}");
        }
        assert!(read("!\"abc\"").unwrap().negated);
    }

    #[test]
    fn what_is_no_content() {
        for text in [
            "abc", "\"", "\"\"", "\"|0|\"", "\"|\"", "\"||\"", "\"|0g|\"", "\"a\\x\"", "\"a\"b\"", "\"a\\\"",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read(&format!("\"{}\"", "a".repeat(255))).is_ok());
        assert!(read(&format!("\"{}\"", "a".repeat(256))).is_err());
    }
}
