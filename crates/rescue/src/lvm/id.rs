//! LVM's identifiers.

use std::fmt;

/// The uuid of a physical volume, a group or a logical volume: 32 characters, printed in groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LvmId([u8; 32]);

impl LvmId {
    /// Lengths of the groups in which it is printed.
    const GROUPS: [usize; 7] = [6, 4, 4, 4, 4, 4, 6];

    /// As a physical volume's header has it, without dashes.
    pub(super) fn from_bytes(bytes: [u8; 32]) -> Option<Self> {
        let known = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#".contains(byte);
        bytes.iter().all(known).then_some(Self(bytes))
    }

    /// Reads it with or without dashes; `None` for what is no such uuid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').take(33).collect();
        Self::from_bytes(bytes.try_into().ok()?)
    }
}

impl fmt::Display for LvmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter();
        for (index, length) in Self::GROUPS.iter().enumerate() {
            if index > 0 {
                f.write_str("-")?;
            }
            for byte in rest.by_ref().take(*length) {
                write!(f, "{}", char::from(*byte))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for LvmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
