//! Every size, written and read, in one state.

use std::fs;

use super::Options;
use super::case::{Level, State, Task};
use super::stand::Stand;
use crate::failure::Failure;
use crate::model::{Note, Standing};
use crate::rig::Room;
use crate::rig::leftovers::{Guard, Leftover};
use crate::tool::dd;
use crate::tool::mdstat::Recovery;

/// A case whose state stays.
struct Sweep {
    stand: Stand,
    state: State,
    largest_mb: u64,
    dirty_bytes: u64,
}

/// An array in a state.
pub(super) fn array(
    room: &Room,
    options: &Options,
    level: Level,
    state: State,
) -> Result<impl Standing + use<>, Failure> {
    let tag = format!("raid{}{state:?}", level.number);
    let stand = Stand::array(room, options, level, (&tag, options.swept_member_bytes))?;
    let sweep = Sweep::new(stand, state, options)?;
    if state != State::InSync {
        sweep.stand.member("fail", &mut Note::default())?;
    }
    if state == State::Recovering {
        sweep.stand.member("remove", &mut Note::default())?;
    }
    Ok(sweep)
}

/// A member without its array.
pub(super) fn alone(room: &Room, options: &Options) -> Result<impl Standing + use<>, Failure> {
    let stand = Stand::alone(room, options, options.swept_member_bytes)?;
    Sweep::new(stand, State::InSync, options)
}

impl Sweep {
    fn new(stand: Stand, state: State, options: &Options) -> Result<Self, Failure> {
        let largest_mb = options.largest_mb();
        stand.fill(largest_mb)?;
        Ok(Self { stand, state, largest_mb, dirty_bytes: options.dirty_bytes })
    }

    /// A recovery begins for each measurement, so that it is under way in all of it, and no other
    /// case is measured meanwhile.
    fn recovering(
        &self,
        note: &mut Note,
        measure: impl FnOnce(&mut Note) -> Result<String, Failure>,
    ) -> Result<String, Failure> {
        let Some(array) = &self.stand.array else { return measure(note) };
        let recovering = self.state == State::Recovering;
        if recovering {
            self.stand.member("add", note)?;
        }
        note.file("mdstat-before.txt", array.mdstat()?);
        let measured = measure(note);
        let after = array.mdstat()?;
        note.file("mdstat-after.txt", after.clone());
        if recovering {
            self.stand.member("fail", note)?;
            self.stand.member("remove", note)?;
        }
        let said = measured?;
        if recovering && Recovery::of(&after).is_none() {
            let reason = "its recovery ended before the measurement did";
            return Err(Failure::gap("the array", reason, "take larger members, or a --dir"));
        }
        Ok(said)
    }

    fn write(&self, mb: u64, flags: &[&str], note: &mut Note) -> Result<String, Failure> {
        let file = self.stand.file("out");
        let of = format!("of={file}");
        let bs = format!("bs={mb}MB");
        let words = [&["if=/dev/zero", &of, &bs, "count=1"], flags].concat();
        let said = self.recovering(note, |note| dd::run(&words, note));
        // What still waits in memory goes with it.
        fs::remove_file(&file).map_err(|error| {
            Failure::system(&file, &error, "see whether something else uses the directory")
        })?;
        rustix::fs::sync();
        said
    }

    fn cached(&self, mb: u64, note: &mut Note) -> Result<String, Failure> {
        let limit = DirtyLimit::set(&self.stand, self.dirty_bytes);
        let text = limit.as_ref().map_or_else(
            || "as much may wait in memory as the kernel lets\n".to_owned(),
            |_| format!("{} bytes may wait in memory\n", self.dirty_bytes),
        );
        note.file("cache.txt", text);
        self.write(mb, &[], note)
    }

    fn read(&mut self, mb: u64, note: &mut Note) -> Result<String, Failure> {
        self.stand.fs.remount()?;
        let words =
            [format!("if={}", self.stand.data()), "of=/dev/null".into(), format!("bs={mb}MB")];
        let words = words.iter().map(String::as_str).chain(["count=1"]).collect::<Vec<_>>();
        self.recovering(note, |note| dd::run(&words, note))
    }

    /// Each half of the file is read by one of its own.
    fn two_readers(&mut self, note: &mut Note) -> Result<String, Failure> {
        self.stand.fs.remount()?;
        let half = self.largest_mb / 2;
        let file = format!("if={}", self.stand.data());
        let count = format!("count={half}");
        let skip = format!("skip={half}");
        let first = [file.as_str(), "of=/dev/null", "bs=1MB", &count];
        let second = [&first[..], &[&skip]].concat();
        self.recovering(note, |note| {
            let both = [dd::start(&first, note)?, dd::start(&second, note)?];
            both.into_iter().map(dd::Copying::end).collect()
        })
    }
}

impl Standing for Sweep {
    fn run(&mut self, job: &str, note: &mut Note) -> Result<(), Failure> {
        self.stand.introduce(note);
        let said = match Task::named(job) {
            Some(Task::Write(mb)) => self.write(mb, &["oflag=sync"], note)?,
            Some(Task::Cached(mb)) => self.cached(mb, note)?,
            Some(Task::Read(mb)) => self.read(mb, note)?,
            Some(Task::TwoReaders) => self.two_readers(note)?,
            _ => return Err(Failure::usage(job, "no job has this name here", "see the report")),
        };
        note.file("dd.txt", said);
        Ok(())
    }

    fn server(&self) -> Option<u32> {
        self.stand.array.as_ref().map(crate::rig::Array::pid)
    }
}

/// Only so much may wait in memory to be written to a device: as on a machine with less of it.
struct DirtyLimit {
    _strict: Guard,
    _share: Guard,
}

impl DirtyLimit {
    /// `None` where the kernel cannot do that.
    fn set(stand: &Stand, bytes: u64) -> Option<Self> {
        let folder = stand.write_back();
        let strict = folder.join("strict_limit");
        let share = folder.join("max_ratio");
        let before = |file| fs::read_to_string(file).ok().map(|text| text.trim().to_owned());
        let keep =
            |file: &std::path::Path, value| Guard::new(Leftover::Setting(file.to_owned(), value));
        let guards = Self {
            _strict: keep(&strict, before(&strict)?),
            _share: keep(&share, before(&share)?),
        };
        fs::write(folder.join("max_bytes"), bytes.to_string()).ok()?;
        fs::write(strict, "1").ok()?;
        Some(guards)
    }
}
