//! The cluster key: a file with 32 random bytes that nodes and their clients have in common.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use braid_array::Refusal;

use crate::system::describe;

/// In front of the key in its file.
const TITLE: &str = "braid-key-1 ";

/// Its length in bytes.
pub const KEY_BYTES: usize = 32;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// One that nobody has.
    fn random() -> io::Result<Self> {
        let (mut bytes, mut filled) = ([0; KEY_BYTES], 0);
        while filled < KEY_BYTES {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
        }
        Ok(Self(bytes))
    }

    #[cfg(test)]
    pub(crate) const fn of(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Makes a file with a new one that only its owner can read.
    ///
    /// # Errors
    /// There is such a file, or it cannot be made.
    pub fn make(path: &Path) -> Result<(), Refusal> {
        let write = || {
            let key = Self::random()?;
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            let hex: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(file, "{TITLE}{hex}")?;
            file.sync_all()
        };
        write().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Refusal::new("there is a file already", "name another, or remove it first")
            }
            _ => Refusal::new(describe(&error), "name a file in a directory that takes one"),
        })
    }

    /// The key in a file.
    ///
    /// # Errors
    /// There is none, or others can read it.
    pub fn load(path: &Path) -> Result<Self, Refusal> {
        let make = || format!("make one with `braid key new {}`", path.display());
        let file = File::open(path).map_err(|error| Refusal::new(describe(&error), make()))?;
        let open = file.metadata().map(|data| data.mode() & 0o077 != 0);
        if open.map_err(|error| Refusal::new(describe(&error), make()))? {
            let next = format!("`chmod 600 {}`", path.display());
            return Err(Refusal::new("others than its owner can read or change it", next));
        }
        let (mut text, most) = (String::new(), 256);
        let read = file.take(most).read_to_string(&mut text);
        read.ok().and_then(|_| Self::parse(&text)).ok_or_else(|| {
            Refusal::new("it is no cluster key", "name a file that `braid key new` has made")
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let hex = text.trim_end().strip_prefix(TITLE)?.as_bytes();
        let mut key = [0; KEY_BYTES];
        if hex.len() != 2 * KEY_BYTES {
            return None;
        }
        for (byte, pair) in key.iter_mut().zip(hex.as_chunks::<2>().0) {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            *byte = (high? << 4 | low?) as u8;
        }
        Some(Self(key))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_come_back_and_no_two_are_equal() {
        let directory = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| directory.path().join(name));
        Key::make(&one).unwrap();
        Key::make(&two).unwrap();
        assert_eq!(fs::metadata(&one).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Key::load(&one), Key::load(&one));
        assert_ne!(Key::load(&one).unwrap(), Key::load(&two).unwrap());
        let before = fs::read(&one).unwrap();
        let error = Key::make(&one).unwrap_err().to_string();
        assert!(error.starts_with("there is a file already; "), "{error}");
        assert_eq!(fs::read(&one).unwrap(), before);
    }

    #[test]
    fn what_others_can_read_or_is_no_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let error = || Key::load(&path).unwrap_err().to_string();
        assert!(error().contains("`braid key new "), "{}", error());
        Key::make(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(error().ends_with(&format!("; `chmod 600 {}`", path.display())), "{}", error());
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let spoilt = good.replacen("-1 ", "-1 +", 1);
        let long = format!("{}00", good.trim_end());
        for text in ["", TITLE, &good[1..], &good[..70], &spoilt, &long, &good.repeat(9)] {
            fs::write(&path, text).unwrap();
            assert!(error().starts_with("it is no cluster key; "), "{text}: {}", error());
        }
        fs::write(&path, [0xff; 80]).unwrap();
        assert!(error().starts_with("it is no cluster key; "), "{}", error());
    }
}
