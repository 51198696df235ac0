//! Sources of an array's content.

use braid_host::control::Client;
use braid_host::reader::Reader;
use braid_rescue::Image;

use super::stored::{BLOCK_BYTES, StoredContent};

/// An array.
pub(in crate::cmd) enum Source<'a> {
    /// From its members.
    Members(Box<Reader>),
    /// From the process that serves it, and its size.
    Running(Client, u64),
    /// From its nodes.
    Nodes(&'a StoredContent),
}

impl Image for Source<'_> {
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Members(reader) => reader.size_bytes(),
            Self::Running(_, size_bytes) => *size_bytes,
            Self::Nodes(array) => array.size_bytes(),
        }
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), String> {
        match self {
            Self::Members(reader) => reader.read(offset_bytes, into),
            Self::Running(client, _) => {
                let mut left = &mut *into;
                let len = left.len() as u64;
                let read = client.read(offset_bytes, len, &mut left);
                match read.map_err(|error| error.to_string())? {
                    done if done == len => Ok(()),
                    _ => Err("it ends before that".to_owned()),
                }
            }
            Self::Nodes(array) => {
                let from = offset_bytes - offset_bytes % BLOCK_BYTES;
                let end = offset_bytes + into.len() as u64;
                let len = end.next_multiple_of(BLOCK_BYTES) - from;
                let bytes = array.read(from, len).ok_or("its nodes do not bring it")?;
                let at = (offset_bytes - from) as usize;
                let wanted = bytes.get(at..at + into.len()).ok_or("it ends before that")?;
                into.copy_from_slice(wanted);
                Ok(())
            }
        }
    }
}
