//! The cluster key, which nodes and their clients have in common, and keys of one array.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use braid_array::Refusal;
use braid_array::format::Version;
use braid_array::format::superblock::uuid_text;
use ring::hmac;

use crate::system::describe;

/// In front of the cluster key in its file.
const TITLE: &str = "braid-key-1 ";

/// In front of the UUID of the array, in the file of its key, which comes behind that.
const ARRAY_TITLE: &str = "braid-array-key-1 ";

/// Label from which a key is derived, so that no other derived key is equal.
const PURPOSE: &[u8] = b"braid key of one array, 1\0";

/// Its length in bytes.
pub const KEY_BYTES: usize = 32;

/// A cluster key, 32 random bytes from a file, or the key of one array. The latter is derived from
/// the cluster key and the array's UUID, for clients that are to use no other array; the cluster
/// key cannot be found out from it. Nodes have the cluster key, and derive the other anew for a
/// client that says of which array its key is. [`make`](Self::make) writes a new key,
/// [`load`](Self::load) reads one from a file that only its owner can read,
/// [`limited_to`](Self::limited_to) derives. `Debug` does not show the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    bytes: [u8; KEY_BYTES],
    /// Array that the key is limited to, if it is.
    array: Option<[u8; 16]>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// The UUID of an array over nodes, as `braid detail` writes it.
#[must_use]
pub fn text_of_uuid(array: [u8; 16]) -> String {
    uuid_text(Version::V1_2, array)
}

/// Reads a UUID in hexadecimal digits, with colons or hyphens at any place.
#[must_use]
pub fn uuid_of_text(text: &str) -> Option<[u8; 16]> {
    hex(&text.chars().filter(|c| !matches!(c, ':' | '-')).collect::<String>())
}

/// So many bytes in hexadecimal digits, and nothing else.
fn hex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    if text.len() != 2 * BYTES {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().as_chunks::<2>().0) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = (high? << 4 | low?) as u8;
    }
    Some(bytes)
}

impl Key {
    /// Creates a new key.
    fn random() -> io::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        let mut filled = 0;
        while filled < KEY_BYTES {
            let flags = rustix::rand::GetRandomFlags::empty();
            filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
        }
        Ok(Self { bytes, array: None })
    }

    #[cfg(test)]
    pub(crate) const fn of(bytes: [u8; KEY_BYTES]) -> Self {
        Self { bytes, array: None }
    }

    /// The same, said to be that of this array.
    #[cfg(test)]
    pub(crate) const fn said_of(self, array: [u8; 16]) -> Self {
        Self { array: Some(array), ..self }
    }

    pub(crate) const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.bytes
    }

    /// The only array that it is good for; `None` of a cluster key.
    #[must_use]
    pub const fn array(&self) -> Option<[u8; 16]> {
        self.array
    }

    /// The key of an array, from the cluster key. The cluster key cannot be found out from it.
    #[must_use]
    pub fn limited_to(&self, array: [u8; 16]) -> Self {
        let said = [PURPOSE, &array].concat();
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.bytes), &said);
        let mut bytes = [0; KEY_BYTES];
        bytes.copy_from_slice(derived.as_ref());
        Self { bytes, array: Some(array) }
    }

    /// Makes a file with a new key, which only its owner can read.
    ///
    /// # Errors
    /// When the file exists, or cannot be made.
    pub fn make(path: &Path) -> Result<(), Refusal> {
        let key = Self::random().map_err(|error| Refusal::new(describe(&error), "try again"))?;
        key.write(path)
    }

    /// Writes the key into a new file that only its owner can read.
    ///
    /// # Errors
    /// When the file exists, or cannot be made.
    pub fn write(&self, path: &Path) -> Result<(), Refusal> {
        let title = match self.array {
            Some(array) => format!("{ARRAY_TITLE}{} ", text_of_uuid(array)),
            None => TITLE.to_owned(),
        };
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            let hex: String = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(file, "{title}{hex}")?;
            file.sync_all()
        };
        write().map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Refusal::new("there is a file already", "name another, or remove it first")
            }
            _ => Refusal::new(describe(&error), "name a file in a directory that takes one"),
        })
    }

    /// Reads the key in a file.
    ///
    /// # Errors
    /// When there is no such file, or others can read it.
    pub fn load(path: &Path) -> Result<Self, Refusal> {
        let make = || format!("make one with `braid key new {}`", path.display());
        let file = File::open(path).map_err(|error| Refusal::new(describe(&error), make()))?;
        let open = file.metadata().map(|data| data.mode() & 0o077 != 0);
        if open.map_err(|error| Refusal::new(describe(&error), make()))? {
            let next = format!("`chmod 600 {}`", path.display());
            return Err(Refusal::new("others than its owner can read or change it", next));
        }
        let mut text = String::new();
        let most = 256;
        let read = file.take(most).read_to_string(&mut text);
        read.ok().and_then(|_| Self::parse(&text)).ok_or_else(|| {
            Refusal::new("it is no cluster key", "name a file that `braid key new` has made")
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim_end();
        let Some(limited) = text.strip_prefix(ARRAY_TITLE) else {
            return Some(Self { bytes: hex(text.strip_prefix(TITLE)?)?, array: None });
        };
        let (array, key) = limited.split_once(' ')?;
        Some(Self { bytes: hex(key)?, array: Some(uuid_of_text(array)?) })
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
        let limited = directory.path().join("limited");
        Key::of([1; KEY_BYTES]).limited_to([2; 16]).write(&limited).unwrap();
        let limited = fs::read_to_string(&limited).unwrap();
        let short = limited.replacen(":02", ":0", 1);
        let nowhere = limited.replacen("02020202:02020202:02020202:02020202 ", "", 1);
        for text in [ARRAY_TITLE, &limited[1..], &limited[..99], &short, &nowhere] {
            assert_ne!(text, limited);
            fs::write(&path, text).unwrap();
            assert!(error().starts_with("it is no cluster key; "), "{text}: {}", error());
        }
        fs::write(&path, [0xff; 80]).unwrap();
        assert!(error().starts_with("it is no cluster key; "), "{}", error());
    }

    #[test]
    fn the_key_of_an_array_is_its_own_and_comes_back() {
        let cluster = Key::of([1; KEY_BYTES]);
        let [one, two] = [[3; 16], [4; 16]].map(|array| cluster.limited_to(array));
        let other = Key::of([2; KEY_BYTES]).limited_to([3; 16]);
        let all = [cluster, one, two, other];
        for (at, key) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|before| before.bytes != key.bytes));
        }
        assert_eq!([cluster.array(), one.array()], [None, Some([3; 16])]);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        one.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        let uuid = "03030303:03030303:03030303:03030303";
        assert!(text.starts_with(&format!("braid-array-key-1 {uuid} ")), "{text}");
        assert!(Key::load(&path) == Ok(one));
        assert!(one.write(&path).unwrap_err().to_string().starts_with("there is a file already"));
    }

    #[test]
    fn uuids_are_read_as_people_write_them() {
        let uuid = [
            0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd,
            0xee, 0xff,
        ];
        for text in [
            "00112233:44556677:8899aabb:ccddeeff",
            "00112233-4455-6677-8899-aabbccddeeff",
            "00112233445566778899AABBCCDDEEFF",
        ] {
            assert_eq!(uuid_of_text(text), Some(uuid), "{text}");
        }
        for text in ["", "00112233", "00112233:44556677:8899aabb:ccddeefg", &"é".repeat(16)] {
            assert_eq!(uuid_of_text(text), None, "{text}");
        }
    }
}
