//! One disk: its requests wait in a queue, and are served when their time has come.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use braid_host::export::fuse::FileOperation;
use braid_host::export::fuse::proto::FuseAnswer;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::meter::{Meter, Rate};

/// A request of the kernel's, and where its answer goes.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) ask: FileOperation,
    pub(super) data: Vec<u8>,
    pub(super) reply: Reply,
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) device: Arc<File>,
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
}

/// Host that all disks go through.
#[derive(Clone, Debug)]
pub(super) struct Host {
    meter: Arc<Mutex<Meter>>,
    begun: Instant,
}

impl Host {
    pub(super) fn new(rate: Rate) -> Self {
        Self { meter: Arc::new(Mutex::new(Meter::new(rate, 0.0))), begun: Instant::now() }
    }

    fn now_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    fn take(&self, bytes: u64, goes_on: bool, now_s: f64) -> f64 {
        let mut meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
        meter.take(bytes, goes_on, now_s)
    }

    fn wait_until(&self, then_s: f64) {
        let left = then_s - self.now_s();
        if left > 0.0 {
            thread::sleep(Duration::from_secs_f64(left));
        }
    }
}

/// Starts a disk: a queue, and a thread that ends with it.
pub(super) fn start(file: File, rate: Rate, host: Host) -> io::Result<Sender<Request>> {
    let (queue, requests) = mpsc::channel();
    let serve = move || serve(&file, &requests, rate, &host);
    thread::Builder::new().name("disk".into()).spawn(serve)?;
    Ok(queue)
}

/// A request passes disk and host at the same time, and does so when it is the first in the queue:
/// a long queue of one disk does not keep the host from the others.
fn serve(file: &File, requests: &Receiver<Request>, rate: Rate, host: &Host) {
    let mut meter = Meter::new(rate, host.now_s());
    let mut end = 0;
    for request in requests {
        if let FileOperation::Read(range) | FileOperation::Write { range, .. } = &request.ask {
            let bytes = range.end - range.start;
            let goes_on = range.start == end;
            end = range.end;
            let now_s = host.now_s();
            let through_disk_s = meter.take(bytes, goes_on, now_s);
            host.wait_until(through_disk_s.max(host.take(bytes, goes_on, now_s)));
        }
        match request.carry_out(file) {
            Ok((answer, data)) => request.reply.give(&answer, &data),
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                request.reply.give(&FuseAnswer::Error(errno), &[]);
            }
        }
    }
}

pub(super) const fn length(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}

impl Request {
    /// Carries the request out; returns its answer. A disk has no memory of its own that would have
    /// to be flushed, and nothing on it outlives the measurement: what was answered is in the file
    /// below. Zeroes are discarded for nothing, as they would be that are not sent.
    fn carry_out(&self, file: &File) -> io::Result<(FuseAnswer, Vec<u8>)> {
        match &self.ask {
            FileOperation::Read(range) => {
                let mut data = vec![0; length(range)];
                file.read_exact_at(&mut data, range.start)?;
                return Ok((FuseAnswer::Data { len: data.len() as u32 }, data));
            }
            FileOperation::Write { range, .. } => {
                file.write_all_at(&self.data, range.start)?;
                return Ok((FuseAnswer::Written { len: self.data.len() as u32 }, Vec::new()));
            }
            FileOperation::Zero { range, .. } => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, mode, range.start, range.end - range.start)?;
            }
            FileOperation::Flush => {}
        }
        Ok((FuseAnswer::Done, Vec::new()))
    }
}
