//! A read or write until all of it is done: result of one call of the kernel, and next step.

use braid_array::IoError;
use rustix::io::Errno;

use super::error_of;

/// So often in a row a call may bring nothing; with the waits between them, about four seconds.
const MAX_TRIES: u32 = 10;
const FIRST_WAIT_MILLIS: u64 = 10;
const LONGEST_WAIT_MILLIS: u64 = 1000;

/// Progress of a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    /// Where on the device it begins, in bytes.
    pub(super) offset: u64,
    pub(super) len_bytes: u32,
    pub(super) done_bytes: u32,
    reads: bool,
    /// Calls may end behind any sector.
    by_sectors: bool,
    tries: u32,
}

/// Action that follows a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Done,
    /// The rest is to be asked for.
    Rest,
    /// The same, after so long.
    Later {
        millis: u64,
    },
    Failed(IoError),
}

impl Transfer {
    pub(super) const fn new(offset: u64, len_bytes: u32, reads: bool) -> Self {
        Self { offset, len_bytes, done_bytes: 0, reads, by_sectors: false, tries: 0 }
    }

    /// Allows calls to end behind any sector, where not all sectors lie together.
    pub(super) const fn by_sectors(self) -> Self {
        Self { by_sectors: true, ..self }
    }

    /// The first byte on the device behind it.
    pub(super) fn end(&self) -> u64 {
        self.offset + u64::from(self.len_bytes)
    }

    /// A call has ended. Being short of memory for a moment, and having moved only a part, are no
    /// faults of the device.
    pub(super) fn step(&mut self, result: Result<u32, Errno>) -> Next {
        let moved = match result {
            Ok(moved) => moved,
            Err(errno) => return self.failed(errno),
        };
        if self.done_bytes + moved >= self.len_bytes {
            return Next::Done;
        }
        // Direct I/O goes on in whole blocks.
        let whole = (self.done_bytes + moved) / self.block_bytes() * self.block_bytes();
        if whole > self.done_bytes {
            (self.done_bytes, self.tries) = (whole, 0);
            return Next::Rest;
        }
        if self.reads && (moved == 0 || self.tries > 0) {
            // The file ends before the range does.
            return Next::Failed(IoError::SHRUNK);
        }
        self.later(IoError::MEDIUM)
    }

    /// A call failed.
    pub(super) fn failed(&mut self, errno: Errno) -> Next {
        match errno {
            Errno::AGAIN | Errno::NOMEM => self.later(error_of(errno)),
            _ => Next::Failed(error_of(errno)),
        }
    }

    fn later(&mut self, error: IoError) -> Next {
        self.tries += 1;
        if self.tries > MAX_TRIES {
            return Next::Failed(error);
        }
        let millis = (FIRST_WAIT_MILLIS << (self.tries - 1)).min(LONGEST_WAIT_MILLIS);
        Next::Later { millis }
    }

    /// Returns the unit of which its ends are multiples, at most a page.
    const fn block_bytes(&self) -> u32 {
        if self.by_sectors {
            return 512;
        }
        1 << (self.offset as u32 | self.len_bytes | 4096).trailing_zeros()
    }
}

#[cfg(test)]
mod tests {
    use braid_array::IoErrorKind;

    use super::*;

    #[test]
    fn a_short_transfer_goes_on_at_a_whole_block() {
        let mut write = Transfer::new(4096, 8192, false);
        assert_eq!(write.step(Ok(5000)), Next::Rest);
        assert_eq!(write.done_bytes, 4096);
        assert_eq!(write.step(Ok(4096)), Next::Done);
        let mut small = Transfer::new(512, 1536, false);
        assert_eq!(small.step(Ok(700)), Next::Rest);
        assert_eq!(small.done_bytes, 512);
        assert_eq!(small.step(Ok(100)), Next::Later { millis: 10 });
        assert_eq!(small.step(Ok(1024)), Next::Done);
    }

    #[test]
    fn what_brings_nothing_is_tried_for_some_seconds() {
        for nothing in [Ok(0), Err(Errno::NOMEM), Err(Errno::AGAIN)] {
            let mut write = Transfer::new(0, 4096, false);
            let mut waited = 0;
            let error = loop {
                match write.step(nothing) {
                    Next::Later { millis } => waited += millis,
                    Next::Failed(error) => break error,
                    next => panic!("{next:?}"),
                }
            };
            assert!((3000..6000).contains(&waited), "{waited} ms");
            assert_eq!(error.errno, nothing.err().map(Errno::raw_os_error));
        }
    }

    #[test]
    fn a_read_beyond_the_end_and_an_error_fail_at_once() {
        let mut read = Transfer::new(0, 4096, true);
        assert_eq!(read.step(Ok(0)), Next::Failed(IoError::SHRUNK));
        let Next::Failed(error) = read.step(Err(Errno::IO)) else { panic!("it is no failure") };
        assert_eq!((error.kind, error.errno), (IoErrorKind::Medium, Some(5)));
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            let mut write = Transfer::new(0, 4096, false);
            let Next::Failed(error) = write.step(Err(errno)) else { panic!("{errno} is kept") };
            assert_eq!(error.kind, IoErrorKind::Full, "no fault of the device");
        }
    }
}
