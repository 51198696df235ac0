//! One disk: its requests wait in a queue, and are served when their time has come.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use braid_host::export::fuse::proto::FuseAnswer;
use rustix::fs::{FallocateFlags, fallocate};

use super::meter::{Meter, Rate};
use super::reply::Reply;

/// A request, with the way to answer it.
#[derive(Debug)]
enum Request {
    Read {
        offset: u64,
        bytes: usize,
        reply: Reply,
    },
    Write {
        offset: u64,
        data: Vec<u8>,
        reply: Reply,
    },
    Discard {
        offset: u64,
        bytes: u64,
        reply: Reply,
    },
    /// A flush, answered when all that came before it is.
    Flush {
        reply: Reply,
    },
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

/// A disk. Its thread ends when this is gone and the queue is empty.
#[derive(Debug)]
pub(super) struct Disk {
    queue: Sender<Request>,
}

impl Disk {
    pub(super) fn start(file: File, rate: Rate, host: Host) -> io::Result<Self> {
        let (queue, requests) = mpsc::channel();
        let serve = move || serve(&file, &requests, rate, &host);
        thread::Builder::new().name("disk".into()).spawn(serve)?;
        Ok(Self { queue })
    }

    fn ask(&self, request: Request) {
        // The thread lives as long as this does.
        let _ = self.queue.send(request);
    }

    pub(super) fn read(&self, offset: u64, bytes: usize, reply: Reply) {
        self.ask(Request::Read { offset, bytes, reply });
    }

    pub(super) fn write(&self, offset: u64, data: Vec<u8>, reply: Reply) {
        self.ask(Request::Write { offset, data, reply });
    }

    /// A disk has no memory of its own that would have to be flushed, and nothing on it outlives
    /// the measurement: what was answered is in the file below.
    pub(super) fn flush(&self, reply: Reply) {
        self.ask(Request::Flush { reply });
    }

    /// Discards for nothing, as zeroes are that are not sent.
    pub(super) fn discard(&self, range: Range<u64>, reply: Reply) {
        let bytes = range.end - range.start;
        self.ask(Request::Discard { offset: range.start, bytes, reply });
    }
}

/// A request passes disk and host at the same time, and does so when it is the first in the queue:
/// a long queue of one disk does not keep the host from the others.
fn serve(file: &File, requests: &Receiver<Request>, rate: Rate, host: &Host) {
    let mut meter = Meter::new(rate, host.now_s());
    let mut end = 0;
    for request in requests {
        if let Some(range) = request.range() {
            let bytes = range.end - range.start;
            let goes_on = range.start == end;
            end = range.end;
            let now_s = host.now_s();
            let through_disk_s = meter.take(bytes, goes_on, now_s);
            host.wait_until(through_disk_s.max(host.take(bytes, goes_on, now_s)));
        }
        request.serve(file);
    }
}

impl Request {
    /// Range that counts; `None`: it does not.
    fn range(&self) -> Option<Range<u64>> {
        match self {
            Self::Read { offset, bytes, .. } => Some(*offset..offset + *bytes as u64),
            Self::Write { offset, data, .. } => Some(*offset..offset + data.len() as u64),
            Self::Discard { .. } | Self::Flush { .. } => None,
        }
    }

    fn serve(self, file: &File) {
        match self {
            Self::Read { offset, bytes, reply } => {
                let mut data = vec![0; bytes];
                match file.read_exact_at(&mut data, offset) {
                    Ok(()) => reply.give(&FuseAnswer::Data { len: bytes as u32 }, &data),
                    Err(error) => reply.fail(&error),
                }
            }
            Self::Write { offset, data, reply } => match file.write_all_at(&data, offset) {
                Ok(()) => reply.give(&FuseAnswer::Written { len: data.len() as u32 }, &[]),
                Err(error) => reply.fail(&error),
            },
            Self::Discard { offset, bytes, reply } => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                match fallocate(file, mode, offset, bytes) {
                    Ok(()) => reply.give(&FuseAnswer::Done, &[]),
                    Err(error) => reply.fail(&error.into()),
                }
            }
            Self::Flush { reply } => reply.give(&FuseAnswer::Done, &[]),
        }
    }
}
