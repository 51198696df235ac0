//! An array as a file of bytes: what does not begin or end at a block of the array becomes a
//! read-modify-write of the blocks it touches.
//!
//! A read-modify-write runs alone: a write that was acknowledged while it was between its read and
//! its write would be undone. Writes of whole blocks run beside each other.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_array::RequestError;

use crate::door::{Door, Message};

/// Told how a write went.
pub(super) type Done = Box<dyn FnOnce(Result<(), RequestError>) + Send>;

/// The array as bytes. Ranges must lie inside `0..size`.
#[derive(Debug)]
pub(super) struct ByteFile {
    door: Door,
    size: u64,
    block: u64,
    gate: Mutex<Gate>,
}

/// Who writes, and who waits for that, in the order in which they came.
#[derive(Default)]
struct Gate {
    running: usize,
    alone: bool,
    waiting: VecDeque<(Turn, Entry)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Together,
    Alone,
}

type Entry = Box<dyn FnOnce(Pass) + Send>;

/// The right to write; given back when it is dropped, also when the engine dropped the message
/// that carried it.
struct Pass(Arc<ByteFile>);

/// One part of a write that is no single write of whole blocks.
enum Step {
    /// Put these bytes into the blocks around them.
    Patch { offset: u64, bytes: Vec<u8>, fua: bool },
    /// Make whole blocks zero.
    Zero { range: Range<u64>, unmap: bool },
}

impl ByteFile {
    pub(super) fn new(door: Door, size: u64, block_bytes: u32) -> Arc<Self> {
        let block = u64::from(block_bytes);
        // What lies beyond the last whole block cannot be asked for.
        Arc::new(Self { door, size: size - size % block, block, gate: Mutex::default() })
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Makes everything that was acknowledged durable.
    pub(super) fn flush(&self, done: Done) {
        self.door.send(Message::Flush { done });
    }

    /// Reads a range that is shorter than 4 GiB by two blocks.
    pub(super) fn read(
        &self,
        range: &Range<u64>,
        done: impl FnOnce(Result<&[u8], RequestError>) + Send + 'static,
    ) {
        let cover = self.cover(range);
        let part = index(range.start - cover.start)..index(range.end - cover.start);
        let Some(len) = length(&cover) else { return done(Err(RequestError::Malformed)) };
        let done = Box::new(move |read: Result<Vec<u8>, RequestError>| {
            done(read.as_ref().map_err(|error| *error).map(|bytes| &bytes[part]));
        });
        self.door.send(Message::Read { offset: cover.start, len, done });
    }

    /// Writes bytes at an offset.
    pub(super) fn write(self: &Arc<Self>, offset: u64, bytes: Vec<u8>, fua: bool, done: Done) {
        let range = offset..offset + bytes.len() as u64;
        if self.cover(&range) != range {
            return self.alone(VecDeque::from([Step::Patch { offset, bytes, fua }]), done);
        }
        self.enter(
            Turn::Together,
            Box::new(move |pass| {
                let file = Arc::clone(&pass.0);
                let done = ending(pass, done);
                file.door.send(Message::Write { offset, data: bytes, fua, done });
            }),
        );
    }

    /// Makes a range read as zeroes.
    pub(super) fn zero(self: &Arc<Self>, range: Range<u64>, unmap: bool, done: Done) {
        let inner = range.start.next_multiple_of(self.block)..range.end - range.end % self.block;
        if inner == range {
            return self.enter(
                Turn::Together,
                Box::new(move |pass| {
                    let file = Arc::clone(&pass.0);
                    file.send_zero(&range, unmap, ending(pass, done));
                }),
            );
        }
        let mut steps = VecDeque::new();
        let mut patch = |part: Range<u64>| {
            if !part.is_empty() {
                let bytes = vec![0; index(part.end - part.start)];
                steps.push_back(Step::Patch { offset: part.start, bytes, fua: false });
            }
        };
        if inner.is_empty() {
            patch(range);
        } else {
            patch(range.start..inner.start);
            patch(inner.end..range.end);
            steps.push_back(Step::Zero { range: inner, unmap });
        }
        self.alone(steps, done);
    }

    fn send_zero(&self, range: &Range<u64>, unmap: bool, done: Done) {
        let offset = range.start;
        let len = range.end - range.start;
        self.door.send(Message::WriteZeroes { offset, len, unmap, done });
    }

    /// The whole blocks around a range.
    fn cover(&self, range: &Range<u64>) -> Range<u64> {
        range.start - range.start % self.block..range.end.next_multiple_of(self.block)
    }

    /// Takes these steps one after another while nothing else is written.
    fn alone(self: &Arc<Self>, steps: VecDeque<Step>, done: Done) {
        self.enter(Turn::Alone, Box::new(move |pass| take_steps(pass, steps, done)));
    }

    /// Runs the job as soon as its turn has come.
    fn enter(self: &Arc<Self>, turn: Turn, job: Entry) {
        let mut gate = self.lock();
        if gate.waiting.is_empty() && gate.admits(turn) {
            gate.begin(turn);
            drop(gate);
            job(Pass(Arc::clone(self)));
        } else {
            gate.waiting.push_back((turn, job));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.waiting.len();
        write!(f, "Gate {{ running: {}, alone: {}, waiting: {waiting} }}", self.running, self.alone)
    }
}

impl Gate {
    const fn admits(&self, turn: Turn) -> bool {
        match turn {
            Turn::Together => !self.alone,
            Turn::Alone => self.running == 0,
        }
    }

    fn begin(&mut self, turn: Turn) {
        self.running += 1;
        self.alone = turn == Turn::Alone;
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut jobs = Vec::new();
        let mut gate = self.0.lock();
        gate.running -= 1;
        if gate.running == 0 {
            gate.alone = false;
        }
        while gate.waiting.front().is_some_and(|(turn, _)| gate.admits(*turn)) {
            if let Some((turn, job)) = gate.waiting.pop_front() {
                gate.begin(turn);
                jobs.push(job);
            }
        }
        drop(gate);
        for job in jobs {
            job(Self(Arc::clone(&self.0)));
        }
    }
}

/// Gives the turn back before it tells how the write went.
fn ending(pass: Pass, done: Done) -> Done {
    Box::new(move |result| {
        drop(pass);
        done(result);
    })
}

fn take_steps(pass: Pass, mut steps: VecDeque<Step>, done: Done) {
    let Some(step) = steps.pop_front() else { return ending(pass, done)(Ok(())) };
    let file = Arc::clone(&pass.0);
    let next: Done = Box::new(move |result| match result {
        Ok(()) => take_steps(pass, steps, done),
        Err(error) => ending(pass, done)(Err(error)),
    });
    match step {
        Step::Zero { range, unmap } => file.send_zero(&range, unmap, next),
        Step::Patch { offset, bytes, fua } => patch(&file, offset, bytes, fua, next),
    }
}

/// Reads the blocks around the bytes, puts the bytes in and writes the blocks back.
fn patch(file: &ByteFile, offset: u64, bytes: Vec<u8>, fua: bool, done: Done) {
    let cover = file.cover(&(offset..offset + bytes.len() as u64));
    let Some(len) = length(&cover) else { return done(Err(RequestError::Malformed)) };
    let start = index(offset - cover.start);
    let door = file.door.clone();
    let write = Box::new(move |read: Result<Vec<u8>, RequestError>| match read {
        Ok(mut data) => {
            data[start..start + bytes.len()].copy_from_slice(&bytes);
            door.send(Message::Write { offset: cover.start, data, fua, done });
        }
        Err(error) => done(Err(error)),
    });
    file.door.send(Message::Read { offset: cover.start, len, done: write });
}

fn length(range: &Range<u64>) -> Option<u32> {
    u32::try_from(range.end - range.start).ok()
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("the kernel asks for less than memory can hold")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::testing::FakeEngine;

    /// Calls, waits for the answer.
    fn wait<T: Send + 'static>(call: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> T {
        let (send, receive) = mpsc::channel();
        call(Box::new(move |value| send.send(value).unwrap()));
        receive.recv().unwrap()
    }

    fn file_of(len: usize, bad: Range<u64>) -> (Arc<ByteFile>, FakeEngine, Vec<u8>) {
        let content: Vec<u8> = (0..len).map(|i| (i % 253) as u8).collect();
        let fake = FakeEngine::start(content.clone(), 4096, bad, &[]);
        (ByteFile::new(fake.door.clone(), len as u64, 4096), fake, content)
    }

    #[test]
    fn every_range_reads_and_writes_as_in_a_plain_file() {
        let (file, fake, mut expected) = file_of(5 * 4096 + 512, 0..0);
        assert_eq!(file.size(), 5 * 4096);
        let edges =
            [0, 1, 511, 512, 4095, 4096, 4097, 8191, 8192, 3 * 4096, 5 * 4096 - 1, 5 * 4096];
        let ranges =
            || edges.iter().flat_map(|a| edges.iter().filter(move |b| a < *b).map(move |b| *a..*b));
        for (i, range) in ranges().enumerate() {
            let from = range.start as u64;
            let to = range.end as u64;
            let written = vec![i as u8; range.len()];
            wait(|done| file.write(from, written.clone(), i % 2 == 0, done)).unwrap();
            expected[range.clone()].copy_from_slice(&written);
            let read = wait(|done| {
                file.read(&(0..5 * 4096), move |bytes| done(bytes.unwrap().to_vec()));
            });
            assert!(read == expected[..5 * 4096], "write of {range:?}");
            let read = wait(|done| {
                file.read(&(from..to), move |bytes| done(bytes.unwrap().to_vec()));
            });
            assert!(read == written, "read of {range:?}");
        }
        for range in ranges() {
            let from = range.start as u64;
            let to = range.end as u64;
            wait(|done| file.write(0, expected[..5 * 4096].to_vec(), false, done)).unwrap();
            wait(|done| file.zero(from..to, true, done)).unwrap();
            let mut zeroed = expected[..5 * 4096].to_vec();
            zeroed[range.clone()].fill(0);
            let read = wait(|done| {
                file.read(&(0..5 * 4096), move |bytes| done(bytes.unwrap().to_vec()));
            });
            assert!(read == zeroed, "zeroes in {range:?}");
        }
        let asked = fake.asked.lock().unwrap();
        assert!(asked.zeroed.iter().all(|(range, unmap)| *unmap && range.start % 4096 == 0));
        assert!(asked.fua_writes > 0);
    }

    #[test]
    fn nothing_else_is_written_between_the_read_and_the_write_of_a_patch() {
        let (sender, messages) = mpsc::channel();
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let file = ByteFile::new(Door::new(sender, Arc::new(wake)), 8 * 4096, 4096);
        let (send, answers) = mpsc::channel();
        let done = |name: &'static str| -> Done {
            let send = send.clone();
            Box::new(move |result| send.send((name, result)).unwrap())
        };
        file.write(8192, vec![1; 4096], false, done("block before"));
        file.write(5, vec![2; 10], true, done("patch"));
        file.write(0, vec![3; 4096], false, done("block"));
        file.write(4096, vec![4; 4096], false, done("other block"));
        file.zero(4096..4097, false, done("small zero"));
        // The patch waits for the block before it, all others for the patch.
        let Ok(Message::Write { offset: 8192, done, .. }) = messages.try_recv() else { panic!() };
        assert!(messages.try_recv().is_err());
        done(Ok(()));
        let Ok(Message::Read { offset: 0, len: 4096, done }) = messages.try_recv() else {
            panic!()
        };
        assert!(messages.try_recv().is_err());
        done(Ok(vec![9; 4096]));
        let Ok(Message::Write { offset: 0, data, fua: true, done }) = messages.try_recv() else {
            panic!()
        };
        assert!(data[..5] == [9; 5] && data[5..15] == [2; 10] && data[15..] == [9; 4081]);
        assert!(messages.try_recv().is_err());
        done(Ok(()));
        // Whole blocks go together, and a patch waits for both.
        let Ok(Message::Write { offset: 0, done: first, .. }) = messages.try_recv() else {
            panic!()
        };
        let Ok(Message::Write { offset: 4096, done: second, .. }) = messages.try_recv() else {
            panic!()
        };
        second(Ok(()));
        assert!(messages.try_recv().is_err());
        // Also a callback that is dropped gives its turn back.
        drop(first);
        assert!(matches!(messages.try_recv(), Ok(Message::Read { offset: 4096, .. })));
        let told: Vec<_> = answers.try_iter().map(|(name, _)| name).collect();
        assert_eq!(told, ["block before", "patch", "other block"]);
    }

    #[test]
    fn an_error_is_passed_on_and_the_next_write_still_runs() {
        let (file, fake, _) = file_of(4 * 4096, 4096..8192);
        let error = wait(|done| file.write(5000, vec![1; 10], false, done));
        assert_eq!(error, Err(RequestError::Medium));
        let error = wait(|done| file.read(&(5000..5001), move |bytes| done(bytes.map(drop))));
        assert_eq!(error, Err(RequestError::Medium));
        wait(|done| file.write(1, vec![1; 10], false, done)).unwrap();
        wait(|done| file.write(4096, vec![1; 4096], false, done)).unwrap();
        let stop = braid_array::action::Command::Stop;
        fake.door.call(|done| Message::Command { command: stop, device: None, done });
        fake.thread.join().unwrap();
        // The engine has ended: callbacks are dropped, not forgotten.
        for at in [0, 1, 2] {
            let (send, receive) = mpsc::channel();
            file.write(
                at,
                vec![1; 4096],
                false,
                Box::new(move |result| send.send(result).unwrap()),
            );
            receive.recv().unwrap_err();
        }
    }
}
