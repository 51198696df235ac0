//! An array that stopped in the middle of a reshape, to be read.
//!
//! Such an array has two maps, and each sector lies where one of them says: a stripe never mixes
//! them. The array is thus two arrays, one by each map, of the same devices, and what is read is a
//! part of each, one behind the other; the superblocks of both are judged by the usual rules.
//! Nothing is written.

mod backup;
mod code;
mod front;
mod goes_on;
mod maps;
mod pieces;
mod settle;
#[cfg(test)]
mod tests;
mod weigh;

pub use backup::{Backup, BackupError};
pub use front::ReadMember;
pub(super) use goes_on::settled;
pub(super) use maps::as_stripes;
pub use settle::{Settlement, SettlingWrite};

use self::backup::BackupPlace;
use self::code::Code;
use self::maps::Numbers;
use super::judge::same_array;
use super::table::decide_alike;
use super::{Assembly, Candidate, Config, Options, Start, Verdict};
use crate::condition::Condition;
use crate::format::Superblock;
use crate::format::reshaped::{Side, turn};
use crate::format::superblock::{MAX_SECTOR, feature};
use crate::geometry::Geometry;
use crate::level::Layout;
use crate::refusal::{Invocation, Next};
use crate::{Refusal, Role};

/// An array in the middle of a reshape, as far as superblocks tell of it.
#[derive(Clone, Debug)]
pub struct Halfway {
    /// The newest superblock.
    superblock: Box<Superblock>,
    numbers: Numbers,
    /// By the old map.
    old: Result<Box<Config>, Refusal>,
    /// By the new one.
    new: Result<Box<Config>, Refusal>,
    /// Up to here, or from here on, the new map holds.
    front: u64,
    backups: Vec<Backup>,
    /// Backups that are no longer needed, but show how others were made.
    done: Vec<Backup>,
    /// A backup was looked into, whatever it still holds.
    has_backup: bool,
    /// Places on members where mdadm may have left backups.
    places: Vec<BackupPlace>,
    /// The data tell the front.
    is_sure: bool,
    /// The front was stated by who knows.
    is_stated: bool,
    /// Nothing tells whether a backup holds what was before.
    is_in_doubt: bool,
    /// The moved part, as parity tells it.
    code: Option<Code>,
    /// The data begin elsewhere in the new map, on some member.
    shifts: bool,
    /// Doubtful data are read all the same.
    force: bool,
}

/// Returns whether an array with this superblock stands in the middle of a reshape.
pub(super) const fn is_halfway(superblock: &Superblock) -> bool {
    superblock.has(feature::RESHAPE_ACTIVE)
}

/// Returns whether the data begin elsewhere in the new map on this member.
const fn shifts(superblock: &Superblock) -> bool {
    superblock.has(feature::NEW_OFFSET) && superblock.reshape.new_offset != 0
}

/// Decides who is in, by both maps.
pub(super) fn decide(
    candidates: &[Candidate],
    newest: usize,
    superblock: &Superblock,
    options: Options,
    saves: bool,
) -> Assembly {
    let numbers = match checked(candidates, newest, superblock) {
        Ok(numbers) => numbers,
        Err(reason) => {
            let reason = format!("the array is in the middle of a reshape {reason}");
            return refused(candidates, superblock, reason);
        }
    };
    let candidates = &all_turned(&numbers, candidates, superblock);
    // An array of which nothing has moved is read like any other.
    let by_one_map = || goes_on::is_not_begun(&numbers, candidates, superblock);
    if goes_on::is_possible(&numbers, candidates, superblock, saves)
        && (!options.read_only || by_one_map())
    {
        return goes_on::decide(&numbers, candidates, newest, superblock, options);
    }
    let options_to_read = Options { read_only: true, ..options };
    let by =
        |side| decide_alike(&seen(&numbers, candidates, superblock, side), newest, options_to_read);
    let old = by(Side::Old);
    let new = by(Side::New);
    let verdicts = old.verdicts.into_iter().zip(new.verdicts);
    let verdicts = verdicts.map(|((device, old), (_, new))| (device, either(old, new))).collect();
    let front = numbers.position.min(numbers.size_sectors());
    let mut halfway = Halfway {
        superblock: Box::new(superblock.clone()),
        numbers,
        old: config(old.start),
        new: config(new.start),
        front,
        backups: Vec::new(),
        done: Vec::new(),
        has_backup: false,
        places: Vec::new(),
        is_sure: false,
        is_stated: false,
        is_in_doubt: false,
        code: None,
        shifts: candidates.iter().filter_map(|one| one.superblock.as_ref().ok()).any(shifts),
        force: options.force,
    };
    halfway.places = halfway.places(candidates);
    let start = halfway.start(candidates, options);
    Assembly { verdicts, newest: Some(Box::new(superblock.clone())), start }
}

/// The numbers of the reshape, which all members agree on that were told of the last update.
fn checked(
    candidates: &[Candidate],
    newest: usize,
    superblock: &Superblock,
) -> Result<Numbers, String> {
    let numbers = Numbers::of(superblock)?;
    let devices = candidates.iter().filter_map(|c| Some((&c.device, c.superblock.as_ref().ok()?)));
    for (device, other) in devices {
        // As long as nothing has moved, it counts as not begun.
        let knows_less = numbers.is_not_begun() && !other.has(feature::RESHAPE_ACTIVE);
        let equal = same_array(other, superblock) && other.events == superblock.events;
        let equal = equal && !knows_less;
        let agrees = numbers.is_that_of(other)
            && other.reshape.position == superblock.reshape.position
            && other.has(feature::RESHAPE_ACTIVE);
        if equal && !agrees {
            let first = &candidates[newest].device;
            return Err(format!("of which the superblocks of {first} and {device} differ"));
        }
    }
    Ok(numbers)
}

/// The candidates, where one that missed that the reshape was turned round has heard of it.
fn all_turned(numbers: &Numbers, candidates: &[Candidate], newest: &Superblock) -> Vec<Candidate> {
    let mut all = candidates.to_vec();
    let superblocks = all.iter_mut().filter_map(|candidate| candidate.superblock.as_mut().ok());
    for superblock in superblocks.filter(|superblock| same_array(superblock, newest)) {
        let mut turned = superblock.clone();
        turn(&mut turned);
        if is_halfway(superblock) && !numbers.is_that_of(superblock) && numbers.is_that_of(&turned)
        {
            *superblock = turned;
        }
    }
    all
}

fn refused(candidates: &[Candidate], superblock: &Superblock, reason: String) -> Assembly {
    let verdict = |c: &Candidate| match &c.superblock {
        Ok(own) if same_array(own, superblock) => match own.supported() {
            Ok(()) => Verdict::Unreadable { reason: "not looked at".to_owned() },
            Err(unsupported) => Verdict::Unsupported(unsupported),
        },
        Ok(own) => Verdict::Foreign { uuid: own.uuid_text(), name: own.name() },
        Err(error) => Verdict::Unreadable { reason: error.to_string() },
    };
    let verdicts = candidates.iter().map(|c| (c.device.clone(), verdict(c))).collect();
    let devices = candidates.iter().map(|candidate| candidate.device.clone()).collect();
    let next = Next::by("compare the superblocks", Invocation::Examine { devices });
    let next = next.of(Condition::Halfway);
    let start = Start::Refused { reason, next, could_force: false };
    Assembly { verdicts, newest: Some(Box::new(superblock.clone())), start }
}

/// The candidates as one map has them.
fn seen(
    numbers: &Numbers,
    candidates: &[Candidate],
    newest: &Superblock,
    side: Side,
) -> Vec<Candidate> {
    let mut seen = candidates.to_vec();
    for candidate in &mut seen {
        if let Ok(superblock) = &mut candidate.superblock
            && same_array(superblock, newest)
        {
            *superblock = numbers.seen(superblock, side);
            candidate.bitmap = None;
        }
    }
    let apart = numbers.apart(side).filter(|apart| only_lacks(numbers.map(side), &seen, *apart));
    if apart.is_some() {
        // Nothing is computed from parity: it may be wrong.
        let superblocks = seen.iter_mut().filter_map(|one| one.superblock.as_mut().ok());
        superblocks.for_each(|superblock| superblock.resync_offset = MAX_SECTOR);
    }
    seen
}

/// Returns whether all members are there but, at most, this one.
fn only_lacks(map: &Geometry, candidates: &[Candidate], role: Role) -> bool {
    let holds = |wanted: Role| {
        let superblocks = candidates.iter().filter_map(|one| one.superblock.as_ref().ok());
        let mut whole = superblocks.filter(|sb| !sb.has(feature::RECOVERY_OFFSET));
        whole.any(|sb| sb.role() == crate::format::DevRole::Active(wanted))
    };
    let disks = u16::try_from(map.raid_disks()).unwrap_or(u16::MAX);
    Role::all(disks).all(|wanted| wanted == role || holds(wanted))
}

/// Returns the verdict on a device for the array that has both maps.
fn either(old: Verdict, new: Verdict) -> Verdict {
    let holds = |verdict: &Verdict| verdict.attached() && *verdict != Verdict::Spare;
    if !holds(&new) && holds(&old) { old } else { new }
}

fn config(start: Start) -> Result<Box<Config>, Refusal> {
    match start {
        Start::Ready { config, .. } => Ok(config),
        Start::Refused { reason, next, .. } => Err(Refusal { reason, next }),
        Start::Halfway(_) => Err(Refusal::plain("a map of a map")),
    }
}

impl Halfway {
    /// Returns whether the array can be read.
    fn start(self, candidates: &[Candidate], options: Options) -> Start {
        for side in [Side::Old, Side::New] {
            if let (true, Err(why)) = (self.needs(side), self.config(side)) {
                let name = if side == Side::Old { "old" } else { "new" };
                let reason = format!("{}; by its {name} map {}", self.description(), why.reason);
                let next = why.next.clone();
                let forces = |next: &Next| match next.invocation.as_deref() {
                    Some(Invocation::Assemble { options, .. }) => options.force,
                    _ => false,
                };
                let could_force = !options.force && forces(&next);
                return Start::Refused { reason, next, could_force };
            }
        }
        if options.read_only {
            return Start::Halfway(Box::new(self));
        }
        let reason = format!("{}: until that is over, it is only read", self.description());
        let options = Options { read_only: true, ..options };
        let devices = candidates.iter().map(|candidate| candidate.device.clone()).collect();
        let read = Invocation::Assemble { name: None, rename: false, options, devices };
        // Whether md may go on with it, only the data tell.
        let next = Next::by("read it", read).of(Condition::Halfway);
        Start::Refused { reason, next, could_force: false }
    }

    /// Returns whether Braid began to move data in place: nothing that is yet to be moved is
    /// overwritten before it is in a backup, and the position is that of all members.
    fn is_of_braid(&self) -> bool {
        goes_on::is_of_braid(&self.superblock) && !self.shifts && self.numbers.is_by_stripe()
    }

    /// Takes this sector of the array for where the reshape stopped, whatever superblocks and data
    /// tell.
    ///
    /// # Errors
    /// When no reshape of this array stops there.
    pub fn stop_at(&mut self, position: u64) -> Result<(), Refusal> {
        let unit = self.numbers.unit();
        let size = self.numbers.size_sectors();
        if position > size || position < size && !position.is_multiple_of(unit) {
            let reason = format!("{}: it did not stop at sector {position}", self.description());
            return Err(Refusal::new(reason, format!("name a multiple of {unit} up to {size}")));
        }
        self.front = position;
        self.is_stated = true;
        Ok(())
    }

    /// In the words of a message: what was changed, and how far that is.
    #[must_use]
    pub fn description(&self) -> String {
        format!("the array stopped in a reshape {} at {}%", self.change(), self.percent())
    }

    /// Returns what the reshape changes, in words.
    #[must_use]
    pub fn change(&self) -> String {
        let Numbers { old, new, .. } = &self.numbers;
        let mut parts = Vec::new();
        if old.raid_disks() != new.raid_disks() {
            parts.push(format!("from {} to {} members", old.raid_disks(), new.raid_disks()));
        }
        if old.layout() != new.layout() {
            let old = layout_name(old);
            let new = layout_name(new);
            parts.push(format!("from layout {old} to {new}"));
        }
        if old.chunk_sectors() != new.chunk_sectors() {
            let kib = |map: &Geometry| map.chunk_sectors() / 2;
            parts.push(format!("from chunks of {} KiB to {} KiB", kib(old), kib(new)));
        }
        if parts.is_empty() {
            parts.push("to other data offsets".to_owned());
        }
        parts.join(", ")
    }

    /// Returns how much of what has to be moved is moved.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let total = self.numbers.size_sectors().max(1);
        let moved = if self.numbers.backwards { total - self.front } else { self.front };
        moved.saturating_mul(100) / total
    }

    /// Returns the size of what can be read of the array, in sectors.
    #[must_use]
    pub fn size_sectors(&self) -> u64 {
        self.numbers.size_sectors()
    }

    /// Returns whether something lies where this map says.
    fn needs(&self, side: Side) -> bool {
        let (before, behind) = self.numbers.sides();
        let size = self.numbers.size_sectors();
        side == before && self.front > 0 || side == behind && self.front < size
    }

    fn config(&self, side: Side) -> Result<&Config, &Refusal> {
        match side {
            Side::Old => self.old.as_deref(),
            Side::New => self.new.as_deref(),
        }
    }
}

fn layout_name(map: &Geometry) -> String {
    match map.layout() {
        Layout::None => "none".to_owned(),
        layout => layout.name().unwrap_or_default(),
    }
}
