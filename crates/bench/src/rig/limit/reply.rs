//! The way to answer a request of the kernel's.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use braid_host::export::fuse::proto::FuseAnswer;
use rustix::io::Errno;

/// The way to answer a request.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) device: Arc<std::fs::File>,
    pub(super) unique: u64,
}

impl Reply {
    /// Answers with what was read, where the answer says that it follows.
    pub(super) fn give(&self, answer: &FuseAnswer, data: &[u8]) {
        let mut head = Vec::new();
        answer.encode(self.unique, &mut head);
        // Nobody hears it when nothing is mounted any more.
        let _ = (&*self.device).write_vectored(&[IoSlice::new(&head), IoSlice::new(data)]);
    }

    pub(super) fn fail(&self, error: &io::Error) {
        self.give(&FuseAnswer::Error(Errno::from_io_error(error).unwrap_or(Errno::IO)), &[]);
    }
}
