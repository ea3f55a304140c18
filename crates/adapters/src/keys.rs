//! Keys of links between hosts, from files, and the random bytes that go with them.
//!
//! A file has one key: its number, 1 to 255, and 32 bytes in hexadecimal digits. Only its owner may
//! read it, and that is the user of this process, or root.
//!
//! ```text
//!   # the second key of this cluster
//!   2 8f1c…(64 digits)
//! ```
//!
//! Up to four keys are accepted; the first is sent with. So keys are changed without a frame
//! refused, in three steps, each at all members before the next: the new one is added behind the
//! old one; it is put in front; the old one is taken away. Each step is [`read`] again and
//! [`runtime::peer::Peer::protect`] at every link.
//!
//! Invariant: no error, and nothing that is printed, contains a key.
//!
//! Not here: which files (the configuration), when they are read again.

use protocols::channel::auth::KEYS_MAX;
use protocols::channel::{Key, Keys, SALT};
use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// No file.
    #[error(
        "no key file is named; a link between hosts needs one (or `protection = \"none\"`, by which any host can speak to its workers)"
    )]
    None,
    /// More files than keys are accepted.
    #[error(
        "{count} key files are named, and at most {KEYS_MAX} keys are accepted at a time; take the oldest out"
    )]
    TooMany {
        /// How many.
        count: usize,
    },
    /// A file cannot be read.
    #[error("key file {}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Others may read it.
    #[error("key file {}: others than its owner may read or write it; forbid that with: chmod 600 {}", file.display(), file.display())]
    Open {
        /// The file.
        file: PathBuf,
    },
    /// Another user's: that user could change it.
    #[error("key file {}: it is of user {owner}, not of {user}; give it to that one with: chown {user} {}", file.display(), file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user that must own it.
        user: u32,
    },
    /// It has no key.
    #[error("key file {}, line {line}: {problem}; a key is its number, 1 to 255, and 64 hexadecimal digits", file.display())]
    Form {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem.
        problem: &'static str,
    },
    /// Two have one number.
    #[error("key file {}: another file has a key with the same number; number this one otherwise", file.display())]
    Twice {
        /// The second file.
        file: PathBuf,
    },
}

/// A file is not longer than this.
const FILE_MAX: u64 = 4096;

/// Reads a key from each of the files; the first is sent with.
pub fn read(files: &[PathBuf]) -> Result<Keys, KeyError> {
    let (first, others) = files.split_first().ok_or(KeyError::None)?;
    if files.len() > KEYS_MAX {
        return Err(KeyError::TooMany { count: files.len() });
    }
    let mut keys = Keys::new(read_one(first)?);
    for file in others {
        if !keys.accept(read_one(file)?) {
            return Err(KeyError::Twice { file: file.clone() });
        }
    }
    Ok(keys)
}

fn read_one(path: &Path) -> Result<Key, KeyError> {
    let (number, secret) = secret(path, None)?;
    Ok(Key::new(number, secret).expect("a number that was looked at"))
}

/// The number and the bytes of the key in a file, for what derives something else from it than
/// tags. The file is this process's user's, root's, or of the user `also`, that the process will
/// become.
pub fn secret(path: &Path, also: Option<u32>) -> Result<(u8, [u8; 32]), KeyError> {
    let unreadable = |source| KeyError::Unreadable {
        file: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    // The open file's metadata, not its name's.
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(KeyError::Open {
            file: path.to_owned(),
        });
    }
    let user = rustix::process::geteuid().as_raw();
    if !is_own(metadata.uid(), user, also) {
        return Err(KeyError::Foreign {
            file: path.to_owned(),
            owner: metadata.uid(),
            user,
        });
    }
    let mut text = String::new();
    file.take(FILE_MAX)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    parse(&text).map_err(|(line, problem)| KeyError::Form {
        file: path.to_owned(),
        line,
        problem,
    })
}

/// Whether a file of `owner` can be trusted by a process of `user`.
fn is_own(owner: u32, user: u32, also: Option<u32>) -> bool {
    owner == user || owner == 0 || also == Some(owner)
}

/// The key in a file's text, or the line and problem of an error.
fn parse(text: &str) -> Result<(u8, [u8; 32]), (usize, &'static str)> {
    let lines = text.lines().enumerate();
    let mut lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.trim().starts_with('#'));
    let (at, line) = lines.next().ok_or((1, "there is no key"))?;
    let wrong = |problem| (at + 1, problem);
    let mut words = line.split_whitespace();
    let (Some(number), Some(digits), None) = (words.next(), words.next(), words.next()) else {
        return Err(wrong("there are not two words"));
    };
    let number: u8 = number
        .parse()
        .map_err(|_| wrong("its number is none from 1 to 255"))?;
    if number == 0 {
        return Err(wrong("its number is none from 1 to 255"));
    }
    let digits = digits.as_bytes();
    if digits.len() != 64 {
        return Err(wrong("the key is not 64 digits long"));
    }
    let mut secret = [0; 32];
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = (*digit as char)
                .to_digit(16)
                .ok_or(wrong("the key has something that is no hexadecimal digit"))?;
            *byte = *byte << 4 | value as u8;
        }
    }
    if secret == [0; 32] {
        // Links without a secret are sealed with zeros.
        return Err(wrong("the key is all zeros, which is no secret"));
    }
    if let Some((at, _)) = lines.next() {
        return Err((at + 1, "there is a second key"));
    }
    Ok((number, secret))
}

/// Random bytes of the system's.
fn random<const LENGTH: usize>() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The salt of a new channel, which no other channel has.
pub fn salt() -> io::Result<[u8; SALT]> {
    random().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("no random bytes for a link's keys: {error}"),
        )
    })
}

/// The text of a file with a new key.
pub fn generate(number: u8) -> io::Result<String> {
    let secret: [u8; 32] = random()?;
    let mut text = format!("{number} ");
    for byte in secret {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Files(tempfile::TempDir);

    impl Files {
        fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    fn said(files: &[PathBuf]) -> String {
        read(files).expect_err("refused").to_string()
    }

    #[test]
    fn what_is_generated_is_read() {
        let files = Files(tempfile::tempdir().unwrap());
        let text = generate(7).unwrap();
        let one = files.write("one", &format!("# ours\n\n{text}"), 0o600);
        let two = files.write("two", &generate(255).unwrap(), 0o400);
        let keys = read(&[one.clone(), two.clone()]).unwrap();
        let printed = format!("{keys:?}");
        assert!(printed.contains("key 7") && printed.contains("key 255"));
        assert!(!printed.contains(text.split(' ').nth(1).unwrap().trim()));
        assert_ne!(generate(7).unwrap(), text);
        assert_ne!(salt().unwrap(), salt().unwrap());
        assert!(said(&[one.clone(), two, one]).contains("same number"));
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        assert!(is_own(7, 7, None) && is_own(0, 7, None) && is_own(8, 0, Some(8)));
        assert!(!is_own(8, 7, None) && !is_own(8, 0, None) && !is_own(9, 0, Some(8)));
        let files = Files(tempfile::tempdir().unwrap());
        let file = files.write("theirs", &generate(1).unwrap(), 0o600);
        // Only root gives files away.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(4711), None).unwrap();
            let text = said(core::slice::from_ref(&file));
            assert!(
                text.contains("it is of user 4711, not of 0") && text.contains("chown 0 "),
                "{text}"
            );
            assert!(secret(&file, Some(4711)).is_ok());
        }
    }

    #[test]
    fn errors_say_where_and_what_to_do() {
        let files = Files(tempfile::tempdir().unwrap());
        let good = generate(1).unwrap();
        assert!(said(&[]).contains("no key file is named"));
        assert!(said(&vec![PathBuf::from("x"); 5]).contains("at most 4"));
        assert!(said(&[PathBuf::from("/nowhere/key")]).contains("key file /nowhere/key: No such file"));
        assert!(said(&[files.write("open", &good, 0o640)]).contains("chmod 600"));
        let cases = [
            ("", "line 1: there is no key"),
            ("\n1\n", "line 2: there are not two words"),
            (&format!("0{}", &good[1..]), "none from 1 to 255"),
            (&format!("256{}", &good[1..]), "none from 1 to 255"),
            (&good[..60], "not 64 digits"),
            (
                &good.replace(' ', " g").replacen("\n", "", 1)[..67],
                "not 64 digits",
            ),
            (&format!("1 {}", "x".repeat(64)), "no hexadecimal digit"),
            (&format!("1 {}", "0".repeat(64)), "all zeros"),
            (&format!("{good}{good}"), "line 2: there is a second key"),
        ];
        for (index, (text, says)) in cases.iter().enumerate() {
            let text = said(&[files.write(&index.to_string(), text, 0o600)]);
            assert!(text.contains(says), "{text}");
        }
    }
}
