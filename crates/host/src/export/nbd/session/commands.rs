//! Commands, which follow the negotiation of options.

use super::Session;
use crate::export::nbd::devices::Device;
use crate::nbd_proto::{MAX_PAYLOAD_BYTES, NbdError, RawRequest, command, flag};

/// A command that passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::export::nbd) struct NbdCommand {
    pub(in crate::export::nbd) cookie: u64,
    pub(in crate::export::nbd) kind: CommandKind,
}

/// Kind of a command. Ranges are in the array; they are inside the device, aligned and not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::export::nbd) enum CommandKind {
    Read {
        offset: u64,
        len: u32,
    },
    /// The next `len` bytes of the stream are the data; they are not for the session.
    Write {
        offset: u64,
        len: u32,
        fua: bool,
    },
    WriteZeroes {
        offset: u64,
        len: u32,
        fua: bool,
        unmap: bool,
    },
    Trim {
        offset: u64,
        len: u32,
        fua: bool,
    },
    Flush,
}

impl CommandKind {
    pub(super) const fn range(self) -> Option<(u64, u32)> {
        match self {
            Self::Read { offset, len }
            | Self::Write { offset, len, .. }
            | Self::WriteZeroes { offset, len, .. }
            | Self::Trim { offset, len, .. } => Some((offset, len)),
            Self::Flush => None,
        }
    }
}

impl Session {
    /// The command to carry out; `None` for a block status, which needs nothing carried out.
    pub(super) fn checked(
        &self,
        device: &Device,
        request: &RawRequest,
    ) -> Result<Option<CommandKind>, (NbdError, &'static str)> {
        let RawRequest { flags, kind, offset, len, .. } = *request;
        let allowed = match kind {
            // FUA means nothing on a read or a flush, yet clients may send it with any command.
            command::READ if self.structured => flag::FUA | flag::DF,
            command::READ | command::WRITE | command::FLUSH | command::TRIM => flag::FUA,
            command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
            command::BLOCK_STATUS if self.allocation_context => flag::FUA | flag::REQ_ONE,
            command::BLOCK_STATUS => {
                return Err((NbdError::Invalid, "no metadata context was negotiated"));
            }
            _ => return Err((NbdError::Invalid, "unknown command")),
        };
        if flags & !allowed != 0 {
            return Err((NbdError::Invalid, "unknown command flag"));
        }
        if kind == command::FLUSH {
            return Ok(Some(CommandKind::Flush));
        }
        let writes = matches!(kind, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if writes && device.read_only {
            return Err((NbdError::NotPermitted, "the export is read-only"));
        }
        check_range(device, request)?;
        let offset = device.offset_bytes + offset;
        let fua = flags & flag::FUA != 0;
        match kind {
            command::READ if flags & flag::DF != 0 && len > device.piece_bytes => {
                Err((NbdError::Overflow, "too long to be read in one piece"))
            }
            command::WRITE_ZEROES if flags & flag::FAST_ZERO != 0 => {
                Err((NbdError::NotSupported, "zeroing may be as slow as writing"))
            }
            command::READ => Ok(Some(CommandKind::Read { offset, len })),
            command::WRITE => Ok(Some(CommandKind::Write { offset, len, fua })),
            command::TRIM => Ok(Some(CommandKind::Trim { offset, len, fua })),
            command::WRITE_ZEROES => {
                let unmap = flags & flag::NO_HOLE == 0;
                Ok(Some(CommandKind::WriteZeroes { offset, len, fua, unmap }))
            }
            _ => Ok(None),
        }
    }
}

fn check_range(device: &Device, request: &RawRequest) -> Result<(), (NbdError, &'static str)> {
    let RawRequest { kind, offset, len, .. } = *request;
    if len == 0 {
        return Err((NbdError::Invalid, "empty range"));
    }
    if matches!(kind, command::READ | command::WRITE) && len > MAX_PAYLOAD_BYTES {
        return Err((NbdError::Invalid, "longer than the maximum of 32 MiB"));
    }
    let end = offset.checked_add(len.into());
    if end.is_none_or(|end| end > device.size_bytes) {
        let grows = matches!(kind, command::WRITE | command::WRITE_ZEROES);
        let error = if grows { NbdError::NoSpace } else { NbdError::Invalid };
        return Err((error, "range ends beyond the device"));
    }
    let block = device.min_block_bytes;
    if offset % u64::from(block) != 0 || len % block != 0 {
        return Err((NbdError::Invalid, "not aligned to the minimum block size"));
    }
    Ok(())
}
