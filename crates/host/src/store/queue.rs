//! The operations on a node's store, carried out one after another on a thread of their own.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_array::action::Event;
use braid_array::fabric::{NoteOp, Volume, VolumeOp};
use braid_array::{IoId, MemberId, Refusal, SECTOR_BYTES};

use super::lengthen::Lengthening;
use super::{Store, check_volume};
use crate::execute::Executor;
use crate::mailbox::Mailbox;
use crate::member::MemberFile;

/// Time in which a job that is left at the end has to be done.
const PATIENCE: Duration = Duration::from_secs(5);

/// An operation that may wait for the disk.
enum StoreJob {
    Survey { io: IoId, after: String, most: usize },
    Note { io: IoId, op: NoteOp },
    Create { io: IoId, name: String, bytes: u64 },
    Open { io: IoId, name: String },
    Remove { io: IoId, name: String, member: MemberId },
    Lengthen { io: IoId, name: String, member: MemberId, change: Lengthening },
}

/// The end of a job.
pub(super) enum StoreAnswer {
    Event(Event),
    Opened { io: IoId, name: String, file: Result<MemberFile, Refusal> },
}

/// The queue of a node's [`Store`], and the table of volumes that are open.
///
/// The engine puts operations in ([`volume`](Self::volume), [`note`](Self::note),
/// [`survey`](Self::survey)). A thread carries them out in this order, so that a disk that is slow
/// to sync delays no message to clients; then it signals the engine, which takes the answers
/// ([`take`](Self::take)).
///
/// An open volume has the lowest id that is free, and is a member of the executor under that id
/// until it is closed or deleted. It is open at most once.
pub(crate) struct StoreQueue {
    jobs: Option<Sender<StoreJob>>,
    answers: Receiver<StoreAnswer>,
    thread: Option<JoinHandle<()>>,
    /// Jobs that are not answered.
    pending: usize,
    /// Events that needed no thread.
    ready: VecDeque<Event>,
    /// The open volumes; the index is the id.
    open: Vec<Option<String>>,
}

impl StoreQueue {
    /// Starts the thread. `wake` is signalled for each answer.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(store: Store, wake: Arc<OwnedFd>) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let (sender, answers) = mpsc::channel();
        let mailbox = Mailbox::new(sender, wake);
        let work = move || carry_out(store, &queue, &mailbox);
        let thread = std::thread::Builder::new().name("store".into()).spawn(work)?;
        Ok(Self {
            jobs: Some(jobs),
            answers,
            thread: Some(thread),
            pending: 0,
            ready: VecDeque::new(),
            open: Vec::new(),
        })
    }

    /// Lists at most so many volumes and notes, with names behind `after`.
    pub(crate) fn survey(&mut self, io: IoId, after: String, most: usize) {
        self.put(StoreJob::Survey { io, after, most });
    }

    /// Reads, writes or removes a note.
    pub(crate) fn note(&mut self, io: IoId, op: NoteOp) {
        self.put(StoreJob::Note { io, op });
    }

    /// Creates, opens, lengthens, closes or deletes a volume.
    pub(crate) fn volume(&mut self, executor: &mut Executor, io: IoId, op: VolumeOp) {
        if let Err(why) = self.try_volume(executor, io, op) {
            self.ready.push_back(Event::Volume { io, result: Err(why) });
        }
    }

    fn try_volume(
        &mut self,
        executor: &mut Executor,
        io: IoId,
        op: VolumeOp,
    ) -> Result<(), Refusal> {
        match op {
            VolumeOp::Create { name, bytes } => {
                check_volume(&name, Some(bytes))?;
                self.put(StoreJob::Create { io, name, bytes });
            }
            VolumeOp::Open { name } => {
                check_volume(&name, None)?;
                self.check_closed(&name)?;
                self.put(StoreJob::Open { io, name });
            }
            VolumeOp::Lengthen { member, kept_bytes, bytes, tail } => {
                let name = self.name_of(member)?.to_owned();
                let change = Lengthening::new(kept_bytes, bytes, tail)?;
                self.put(StoreJob::Lengthen { io, name, member, change });
            }
            VolumeOp::Close { member } => {
                self.release(executor, member)?;
                let result = Ok(Volume { member, bytes: 0 });
                self.ready.push_back(Event::Volume { io, result });
            }
            VolumeOp::Delete { member } => {
                let name = self.release(executor, member)?;
                self.put(StoreJob::Remove { io, name, member });
            }
        }
        Ok(())
    }

    /// Returns the next answer.
    pub(crate) fn take(&mut self, executor: &mut Executor) -> Option<Event> {
        if let Some(event) = self.ready.pop_front() {
            return Some(event);
        }
        let answer = self.answers.try_recv().ok()?;
        Some(self.answered(executor, answer))
    }

    pub(super) fn answered(&mut self, executor: &mut Executor, answer: StoreAnswer) -> Event {
        self.pending -= 1;
        match answer {
            StoreAnswer::Event(event) => event,
            StoreAnswer::Opened { io, name, file } => {
                let result = file.and_then(|file| self.admit(executor, name, file));
                Event::Volume { io, result }
            }
        }
    }

    fn put(&mut self, job: StoreJob) {
        let jobs = self.jobs.as_ref().expect("open until it is dropped");
        jobs.send(job).expect("its thread takes jobs as long as there are senders");
        self.pending += 1;
    }

    fn check_closed(&self, name: &str) -> Result<(), Refusal> {
        if self.open.iter().flatten().any(|open| open == name) {
            return Err(Refusal::new("it is open already", "stop the array that uses it"));
        }
        Ok(())
    }

    /// Gives a volume an id.
    fn admit(
        &mut self,
        executor: &mut Executor,
        name: String,
        file: MemberFile,
    ) -> Result<Volume, Refusal> {
        // Another client may have opened it in between.
        self.check_closed(&name)?;
        let free = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        let member = u16::try_from(free).map(MemberId);
        let many = |_| Refusal::new("too many volumes are open", "close some first");
        let member = member.map_err(many)?;
        let bytes = file.sectors * SECTOR_BYTES;
        executor.attach(member, file);
        self.open.resize(self.open.len().max(free + 1), None);
        self.open[free] = Some(name);
        Ok(Volume { member, bytes })
    }

    /// Closes a volume, on which nothing is in flight.
    fn release(&mut self, executor: &mut Executor, member: MemberId) -> Result<String, Refusal> {
        let name = self.name_of(member)?.to_owned();
        self.open[usize::from(member.0)] = None;
        executor.detach(member);
        Ok(name)
    }

    fn name_of(&self, member: MemberId) -> Result<&str, Refusal> {
        let open = self.open.get(usize::from(member.0)).and_then(Option::as_deref);
        open.ok_or_else(|| Refusal::new("no such volume is open", "open it first"))
    }

    /// Waits for the next answer.
    #[cfg(test)]
    pub(super) fn wait(&mut self, executor: &mut Executor) -> Event {
        self.ready.pop_front().unwrap_or_else(|| {
            let answer = self.answers.recv().expect("a thread");
            self.answered(executor, answer)
        })
    }
}

impl Drop for StoreQueue {
    fn drop(&mut self) {
        self.jobs = None;
        // The directory is free for another node when this returns, unless the disk hangs.
        while self.pending > 0 && self.answers.recv_timeout(PATIENCE).is_ok() {
            self.pending -= 1;
        }
        if self.pending == 0
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// Carries out jobs until no more can come.
fn carry_out(mut store: Store, jobs: &Receiver<StoreJob>, answers: &Mailbox<StoreAnswer>) {
    for job in jobs {
        let answer = match job {
            StoreJob::Survey { io, after, most } => {
                StoreAnswer::Event(Event::Survey { io, result: store.survey(&after, most) })
            }
            StoreJob::Note { io, op } => StoreAnswer::Event(store.note(io, &op)),
            StoreJob::Create { io, name, bytes } => {
                let file = store.create(&name, bytes).and_then(|()| store.open(&name));
                StoreAnswer::Opened { io, name, file }
            }
            StoreJob::Open { io, name } => {
                let file = store.open(&name);
                StoreAnswer::Opened { io, name, file }
            }
            StoreJob::Remove { io, name, member } => {
                let result = store.remove(&name).map(|()| Volume { member, bytes: 0 });
                StoreAnswer::Event(Event::Volume { io, result })
            }
            StoreJob::Lengthen { io, name, member, change } => {
                let result = store.lengthen(&name, &change);
                let result = result.map(|bytes| Volume { member, bytes });
                StoreAnswer::Event(Event::Volume { io, result })
            }
        };
        // An engine that has ended hears no answer.
        let _ = answers.send(answer);
    }
}
