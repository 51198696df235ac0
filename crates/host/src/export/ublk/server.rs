//! The ublk export: has a command of every tag wait in the engine's ring for a request, and answers
//! requests there.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use braid_array::{Buf, Op, Request, RequestError, SECTOR_BYTES};
use rustix::io::Errno;

use super::proto::{Shape, TagCommand, UblkRequest, data_offset};
use super::resize;
use super::table::DescriptorTable;
use crate::arena::Holder;
use crate::driver::{self, Completion};
use crate::engine::core::Core;
use crate::engine::export::Export;
use crate::lock::LockedFile;
use crate::token::{ExportId, ExportToken, JobRef, Owner, Token};

/// The disk of an array. The engine calls it as an [`Export`], from `start` to `close`; its device
/// closes with this. The kernel asks until the disk is taken away, for which it wants all answers.
#[derive(Debug)]
pub(crate) struct UblkServer {
    id: ExportId,
    /// N of `/dev/ublkbN`.
    number: u32,
    /// Device that commands go to and data come from.
    device: Arc<LockedFile>,
    table: DescriptorTable,
    shape: Shape,
    /// Memory of requests, from the start on.
    holder: Option<Holder>,
    /// Requests that wait for memory, each with its tag, in this order.
    short: VecDeque<(u16, UblkRequest)>,
    /// Signalled when the kernel does not take a command.
    failed: Arc<OwnedFd>,
    /// Tags of requests that came while it is held, if it is; the kernel repeats them to the next
    /// process.
    held: Option<Vec<u16>>,
    closing: bool,
}

impl UblkServer {
    pub(super) fn new(
        number: u32,
        device: LockedFile,
        table: DescriptorTable,
        shape: Shape,
        failed: Arc<OwnedFd>,
    ) -> Self {
        Self {
            id: ExportId(0),
            number,
            device: Arc::new(device),
            table,
            shape,
            holder: None,
            short: VecDeque::new(),
            failed,
            held: None,
            closing: false,
        }
    }

    fn command(&self, core: &mut Core, tag: u16, command: TagCommand) {
        let token = Token::Export(self.id, ExportToken { kind: 0, index: tag.into() });
        let file = Arc::clone(&self.device);
        let bytes = command.encode(tag);
        core.driver.start(token, driver::Op::Command { file, code: command.code(), bytes });
    }

    fn answer(&self, core: &mut Core, tag: u16, result: Result<u32, Errno>) {
        self.command(core, tag, TagCommand::Commit(result));
    }

    /// A request has come.
    fn take(&mut self, core: &mut Core, tag: u16) {
        if let Some(held) = &mut self.held {
            return held.push(tag);
        }
        match UblkRequest::decode(&self.table.descriptor(tag), &self.shape) {
            _ if self.closing => self.answer(core, tag, Err(Errno::IO)),
            Err(errno) => self.answer(core, tag, Err(errno)),
            Ok(ask) if !has_data(ask.op) => self.ask(core, tag, ask, Buf::default()),
            Ok(ask) => {
                self.short.push_back((tag, ask));
                self.work(core);
            }
        }
    }

    /// Gives the array a request.
    fn ask(&mut self, core: &mut Core, tag: u16, ask: UblkRequest, buf: Buf) {
        if let Op::Write { .. } = ask.op
            && let Err(errno) = self.fetch_data(core, tag, buf)
        {
            self.release(core, buf);
            return self.answer(core, tag, Err(errno));
        }
        let owner = Owner::Export(self.id, JobRef { client: 0, job: tag.into() });
        core.request(ask.op, ask.range.start, ask.range.end - ask.range.start, buf, owner);
    }

    /// Reads the data of a write request. The copy is made in this call, as for a socket: in the
    /// ring a worker of the kernel's would make it, which costs more than most copies do.
    fn fetch_data(&self, core: &Core, tag: u16, buf: Buf) -> Result<(), Errno> {
        let file = Arc::clone(&self.device);
        let read = driver::Op::Read { file, offset: data_offset(tag), buf };
        whole(core.driver.carry_out(&read)?, buf)
    }

    /// Passes the data of a read to the kernel.
    fn give_data(&self, core: &Core, tag: u16, buf: Buf) -> Result<(), Errno> {
        let file = Arc::clone(&self.device);
        let write = driver::Op::Write { file, offset: data_offset(tag), buf, dsync: false };
        whole(core.driver.carry_out(&write)?, buf)
    }

    fn release(&mut self, core: &mut Core, buf: Buf) {
        core.arena.release(self.holder.as_mut().expect("it has started"), buf);
    }
}

impl Export for UblkServer {
    fn start(&mut self, core: &mut Core, id: ExportId) {
        self.id = id;
        self.holder = core.arena.admit();
        assert!(self.holder.is_some(), "an arena has room for the first client");
        // What we need memory for may be that memory is freed by writing to this disk. Without the
        // right to say so the kernel may wait for that, as for any program.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        for tag in 0..self.table.depth() {
            self.command(core, tag, TagCommand::Fetch);
        }
    }

    fn take_in(&mut self, core: &mut Core, completion: Completion<ExportToken>) {
        let tag = u16::try_from(completion.token.index).expect("a tag");
        match completion.result {
            Ok(_) => self.take(core, tag),
            // It wants no more of this tag.
            Err(Errno::NODEV) => {}
            Err(_) => driver::signal(&self.failed),
        }
    }

    fn completed(
        &mut self,
        core: &mut Core,
        job: JobRef,
        request: Request,
        result: Result<(), RequestError>,
    ) {
        let tag = u16::try_from(job.job).expect("a tag");
        let mut answer = result.map_err(errno);
        if request.op == Op::Read && answer.is_ok() {
            answer = self.give_data(core, tag, request.buf);
        }
        if has_data(request.op) {
            self.release(core, request.buf);
        }
        self.answer(core, tag, answer.map(|()| request.buf.len));
    }

    fn work(&mut self, core: &mut Core) {
        while let Some((tag, ask)) = self.short.front() {
            let holder = self.holder.as_mut().expect("requests come after the start");
            let len = (ask.range.end - ask.range.start) as u32;
            let Some(buf) = core.arena.allocate(holder, len) else { return };
            let tag = *tag;
            let (_, ask) = self.short.pop_front().expect("the first one");
            self.ask(core, tag, ask, buf);
        }
    }

    fn resized(&mut self, _core: &mut Core, bytes: u64) {
        self.shape.size_bytes = bytes - bytes % u64::from(self.shape.block_bytes);
        resize::begin(self.number, self.shape.size_bytes / SECTOR_BYTES);
    }

    fn hold(&mut self, _core: &mut Core) {
        self.held.get_or_insert_default();
    }

    fn go_on(&mut self, core: &mut Core) {
        for tag in self.held.take().unwrap_or_default() {
            self.take(core, tag);
        }
    }

    fn is_held(&self, core: &Core) -> bool {
        self.short.is_empty() && !core.asks(self.id)
    }

    /// Fails further requests. The commands that wait in the kernel end with the disk, which the
    /// owner of the engine takes away.
    fn close(&mut self, _core: &mut Core) {
        self.closing = true;
    }

    fn disconnect(&mut self, _core: &mut Core) {}

    fn is_over(&self) -> bool {
        self.short.is_empty()
    }

    fn end(&mut self, core: &mut Core) {
        if let Some(holder) = self.holder.take() {
            core.arena.release_holder(holder);
        }
    }
}

const fn has_data(op: Op) -> bool {
    matches!(op, Op::Read | Op::Write { .. })
}

const fn whole(moved: u32, buf: Buf) -> Result<(), Errno> {
    if moved == buf.len { Ok(()) } else { Err(Errno::IO) }
}

/// The kernel knows these as kinds of errors of disks, and all others as an I/O error.
const fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::NoSpace => Errno::NOSPC,
        RequestError::Medium => Errno::NODATA,
        RequestError::OutOfRange
        | RequestError::Malformed
        | RequestError::ReadOnly
        | RequestError::Failed
        | RequestError::BufferHeld => Errno::IO,
    }
}
