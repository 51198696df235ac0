//! Writes to the array `x` while other things happen to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use super::{block, export};
use crate::support::export::{ask, read};
use crate::support::{Lab, until};

/// Distance of two writes: an odd number of blocks, so that they are everywhere in chunks.
const STRIDE: usize = 65 << 12;

/// Numbered writes, from one end of the array to the other and again.
pub(super) struct Writer {
    first: usize,
    bytes: usize,
    answered: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Writer {
    /// Begins with this number, and returns when the first write is answered. All writes are to
    /// this many bytes.
    pub(super) fn begin(lab: &Lab, bytes: usize, first: usize) -> Self {
        let answered = Arc::new(AtomicUsize::new(first));
        let stop = Arc::new(AtomicBool::new(false));
        let mut export = export(lab);
        let counted = Arc::clone(&answered);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            for number in first.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                ask(&mut export, 1, place(number, bytes) as u64, &block(number))?;
                counted.store(number + 1, Ordering::Relaxed);
            }
            Ok(())
        });
        let writer = Self { first, bytes, answered, stop, thread };
        writer.until_more(1);
        writer
    }

    /// Waits until so many further writes are answered.
    pub(super) fn until_more(&self, count: usize) {
        let from = self.answered.load(Ordering::Relaxed);
        until("writes", || {
            assert!(!self.thread.is_finished(), "a write has failed");
            self.answered.load(Ordering::Relaxed) >= from + count
        });
    }

    /// Waits until the whole array has been written to once more.
    pub(super) fn until_round(&self) {
        self.until_more(self.bytes / STRIDE + 1);
    }

    /// Ends it: no write has failed. Returns the number of the next write.
    pub(super) fn end(self, content: &mut [u8]) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join().expect("no wrong answer");
        ended.expect("no write fails");
        let next = self.answered.load(Ordering::Relaxed);
        note(self.first..next, content);
        next
    }

    /// Its array has been killed: all that was answered is there, and the write that was not is or
    /// is not. Returns the number of the next write.
    pub(super) fn cut_off(self, lab: &Lab, content: &mut [u8]) -> usize {
        // Its connection broke, or the last answer was an error.
        let ended = self.thread.join();
        assert!(!matches!(ended, Ok(Ok(()))), "its export is over");
        let next = self.answered.load(Ordering::Relaxed);
        note(self.first..next, content);
        let at = place(next, self.bytes);
        let mut export = export(lab);
        let found = read(&mut export, at as u64, 4096).expect("content");
        assert!(found == content[at..at + 4096] || found == block(next), "old or new at {at}");
        content[at..at + 4096].copy_from_slice(&found);
        next + 1
    }
}

fn place(number: usize, bytes: usize) -> usize {
    number % (bytes / STRIDE) * STRIDE
}

fn note(numbers: std::ops::Range<usize>, content: &mut [u8]) {
    for number in numbers {
        let at = place(number, content.len());
        content[at..at + 4096].copy_from_slice(&block(number));
    }
}
