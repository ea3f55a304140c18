//! Text that a configuration keeps in a file of its own: rules, lists.
//!
//! A function reads no files. It names the settings that are files in
//! [`NetworkFunction::FILES`](crate::NetworkFunction::FILES); the tool reads each and hands path
//! and text to the function's settings, where a [`TextFile`] takes them. A function reports an
//! error in such a file with [`ConfigError::in_file`](crate::ConfigError::in_file).
//!
//! ```
//! use nf::TextFile;
//! let file = TextFile::new("ids.rules", "alert ip any any -> any any (sid:1;)");
//! assert_eq!(file.text().unwrap().lines().count(), 1);
//! ```

use alloc::string::String;
use core::fmt;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// A file's path as written in the configuration, and its text once it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextFile {
    path: String,
    text: Option<String>,
}

impl TextFile {
    /// A file with its text.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        TextFile {
            path: path.into(),
            text: Some(text.into()),
        }
    }

    /// The path, as written.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The text; `None` where the tool has not read the file.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

impl<'de> Deserialize<'de> for TextFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = TextFile;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the path of a file in quotes")
            }
            fn visit_str<E: Error>(self, path: &str) -> Result<TextFile, E> {
                Ok(TextFile {
                    path: path.into(),
                    text: None,
                })
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TextFile, A::Error> {
                let (mut path, mut text) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "path" => path = Some(map.next_value()?),
                        "text" => text = Some(map.next_value()?),
                        _ => return Err(A::Error::unknown_field(&key, &["path", "text"])),
                    }
                }
                Ok(TextFile {
                    path: path.ok_or_else(|| A::Error::missing_field("path"))?,
                    text,
                })
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
