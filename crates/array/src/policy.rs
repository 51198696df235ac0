//! The consistency policy of an array that is stopped, changed. Nothing is written here.
//!
//! Areas and logs of the new policy come first, on all members, into space that nothing uses: a
//! bitmap without a bit set, or partial parity logs that tell of nothing; or a journal on a device
//! of its own, in which nothing is recorded. The superblocks come after that, one after the other,
//! those of spares behind the others, with an event count that is one higher. So a member that was
//! not reached is as current as one that misses the last update, and takes the place of a bitmap or
//! log from the others: whichever writes were done, the array assembles, with the old policy or the
//! new one. A journal that is taken away loses its superblock last.
//!
//! A change that was cut off between the superblocks goes on with those that were not reached.

mod area;
mod journal;

use self::area::{Area, AreaMember};
pub use self::journal::NewJournal;
use crate::assemble::{Assembly, Candidate, FoundLog, Options, Start, Verdict, decide};
use crate::format::ppl;
use crate::format::superblock::{MAX_SECTOR, feature};
use crate::format::suspended::{is_suspended, journal_number};
use crate::format::{DevRole, Superblock, Version};
use crate::level::Level;
use crate::refusal::{Invocation, Next, Refusal};

/// A policy that an array can be given, and that can be taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A resync of everything follows an unclean stop.
    Resync,
    /// A resync of what the bitmap marks.
    Bitmap {
        /// Bytes of sync space for each bit; md's choice when not said.
        chunk_bytes: Option<u32>,
    },
    /// Partial parity logs, which close the write hole; RAID 5.
    PartialParity,
    /// A journal on a device of its own, which closes it, too; RAID 4, 5 and 6. `None` where the
    /// array has one already.
    Journal(Option<NewJournal>),
}

impl Policy {
    /// Returns the feature bits by which superblocks tell of it.
    const fn features(self) -> u32 {
        match self {
            Self::Resync => 0,
            Self::Bitmap { .. } => feature::BITMAP_OFFSET,
            Self::PartialParity => feature::ANY_PPL,
            Self::Journal(_) => feature::JOURNAL,
        }
    }

    /// Returns whether the superblock says that the array has it.
    fn is_that_of(self, superblock: &Superblock) -> bool {
        let wanted = self.features();
        let has = superblock.feature_map & ANY_POLICY;
        // Logs that are off for a time are not taken away yet.
        has & !wanted == 0 && (has != 0 || wanted == 0) && !is_suspended(superblock)
    }
}

/// Feature bits of all policies.
const ANY_POLICY: u32 = feature::BITMAP_OFFSET | feature::ANY_PPL | feature::JOURNAL;

/// Something to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Index of the candidate; a device for a journal comes behind them.
    pub index: usize,
    /// First sector of the device.
    pub sector: u64,
    /// Whole sectors.
    pub bytes: Vec<u8>,
}

/// The writes that change a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    /// In this order, each durable before the next.
    pub writes: Vec<Write>,
    /// The candidate that is no part of the array any more: the device of its journal.
    pub leaves: Option<usize>,
}

impl PolicyChange {
    /// Plans the change for the array of these candidates, which must be all of its members, and
    /// its journal if it has one, whose logs were read. `utime`: the time, coded as in a
    /// superblock. `None` when it has the policy already.
    ///
    /// # Errors
    /// The reason why the array, as it is, cannot be given the policy.
    pub fn plan(
        candidates: &[Candidate],
        policy: Policy,
        utime: u64,
    ) -> Result<Option<Self>, Refusal> {
        let (newest, verdicts) = stopped(candidates)?;
        let members: Vec<AreaMember<'_>> =
            (0..).zip(candidates).filter_map(AreaMember::of).collect();
        if members.iter().any(|member| misses_events(member.superblock, &newest)) {
            let reason = "some members miss the last update of the superblocks";
            return Err(Refusal::new(reason, start_all(&verdicts, "start the array, and stop it")));
        }
        let wanted = policy.features();
        let level = check_level(&newest, policy)?;
        let has = newest.feature_map & ANY_POLICY;
        if policy.is_that_of(&newest) {
            return Ok(None);
        }
        if has != 0 && wanted != 0 {
            let what = match has {
                feature::BITMAP_OFFSET => "a bitmap",
                feature::JOURNAL => "a journal",
                _ => "logs",
            };
            let reason = format!("the array has {what}, and cannot have another policy beside it");
            let next = "take that away first, with --consistency-policy resync";
            return Err(Refusal::new(reason, next));
        }
        let is_journal_off = journal_number(&newest).is_some();
        let superblock = Superblock { utime, events: newest.events + 1, ..newest };
        let area = match policy {
            Policy::Resync if has == feature::JOURNAL || is_journal_off => {
                return Ok(Some(journal::taken(superblock, &members)));
            }
            Policy::Journal(Some(new)) => {
                return journal::given(superblock, &members, new).map(Some);
            }
            Policy::Journal(None) => {
                let reason = "the array has no journal";
                let next = "name the device that is to hold it: --write-journal DEVICE";
                return Err(Refusal::new(reason, next));
            }
            Policy::Resync => Area::default(),
            Policy::Bitmap { chunk_bytes } => {
                Area::bitmap(level, &superblock, &members, chunk_bytes)?
            }
            Policy::PartialParity => Area::partial_parity(&superblock, &members)?,
        };
        Ok(Some(area.written(&superblock, &members)))
    }

    /// Plans the rest of a change to this policy that was cut off between the superblocks. All
    /// members then have the area or log of the policy. `None` where no change was cut off, and
    /// where the array has a journal: that array is started first.
    ///
    /// # Errors
    /// The reason why the array, as it is, cannot be given the policy; a change to another one was
    /// cut off.
    pub fn rest(candidates: &[Candidate], policy: Policy) -> Result<Option<Self>, Refusal> {
        let (newest, _) = stopped(candidates)?;
        let members: Vec<AreaMember<'_>> =
            (0..).zip(candidates).filter_map(AreaMember::of).collect();
        if members.iter().any(|member| member.superblock.has(feature::JOURNAL)) {
            return Ok(None);
        }
        let told = |sb: &Superblock| (sb.feature_map ^ newest.feature_map) & ANY_POLICY == 0;
        let left = |member: &&AreaMember<'_>| !told(member.superblock);
        let left: Vec<AreaMember<'_>> = members.iter().filter(left).copied().collect();
        let cut_off = left.iter().any(|member| misses_events(member.superblock, &newest));
        if policy.is_that_of(&newest) {
            let feature = newest.feature_map & ANY_POLICY;
            let code = newest.bitmap_offset_sectors;
            let writes = area::superblocks(&newest, &left, feature, code);
            return Ok((!left.is_empty()).then_some(Self { writes, leaves: None }));
        }
        if cut_off {
            let reason = "a change to another policy was cut off, and some members miss it";
            return Err(Refusal::new(reason, "say that change again first"));
        }
        Ok(None)
    }
}

/// Returns whether the member, which holds a role, has missed an update of the superblocks.
fn misses_events(superblock: &Superblock, newest: &Superblock) -> bool {
    has_role(superblock) && superblock.events != newest.events
}

/// The newest superblock of the array, if it was stopped well, is complete, and all its members are
/// there; and what each of these is.
fn stopped(candidates: &[Candidate]) -> Result<(Superblock, Vec<(String, Verdict)>), Refusal> {
    // Which of them are missing is said below: to start without them is no way here. One whose log
    // is too small for writes can be given another policy.
    let has_log = |candidate: &Candidate| {
        let superblock = candidate.superblock.as_ref();
        superblock.is_ok_and(|sb| sb.has(feature::ANY_PPL) || sb.role() == DevRole::Journal)
    };
    let read_only = candidates.iter().any(has_log);
    let options = Options { run: true, read_only, ..Options::default() };
    let assembly = decide(candidates.to_vec(), options);
    let (newest, degraded) = match (&assembly.newest, &assembly.start) {
        (Some(newest), Start::Ready { degraded, .. }) => (newest.as_ref().clone(), *degraded),
        (_, Start::Refused { reason, next, .. }) => {
            return Err(Refusal::new(reason.clone(), next.clone()));
        }
        (None, Start::Ready { .. }) => unreachable!("an array has a superblock"),
        (_, Start::Halfway(halfway)) => {
            let next = "have mdadm bring that to its end, and stop the array";
            return Err(Refusal::new(halfway.description(), next));
        }
    };
    let start = |advice| start_all(&assembly.verdicts, advice);
    for (device, verdict) in &assembly.verdicts {
        let reason = format!("{device}: {verdict}");
        match verdict {
            Verdict::Active { .. } | Verdict::Spare | Verdict::Journal => {}
            Verdict::Rebuilding { .. } | Verdict::Replacement { .. } => {
                return Err(Refusal::new(reason, start("have it rebuilt, and stop the array")));
            }
            _ => {
                return Err(Refusal::new(reason, "name the members of the array, and all of them"));
            }
        }
    }
    journal::check_empty(candidates, &assembly)?;
    if degraded > 0 {
        let reason = format!("{degraded} of its members are not named, or not there");
        let next = "name all of them; or add a member and have it rebuilt first";
        return Err(Refusal::new(reason, next));
    }
    if newest.resync_offset != MAX_SECTOR {
        let reason = "the array was not stopped well, or its resync is not done";
        return Err(Refusal::new(reason, start("start it, wait for the resync, and stop it")));
    }
    Ok((newest, assembly.verdicts))
}

/// The next step that starts the array with all that is here.
fn start_all(verdicts: &[(String, Verdict)], advice: &'static str) -> Next {
    let devices = verdicts.iter().map(|(device, _)| device.clone()).collect();
    let options = Options::default();
    Next::by(advice, Invocation::Assemble { name: None, rename: false, options, devices })
}

fn has_role(superblock: &Superblock) -> bool {
    matches!(superblock.role(), DevRole::Active(_))
}

/// Checks that an array of this level can have the policy.
fn check_level(newest: &Superblock, policy: Policy) -> Result<Level, Refusal> {
    let level =
        Level::from_md(newest.level).filter(|level| !matches!(level, Level::Linear | Level::Raid0));
    let Some(level) = level else {
        let reason = "the array has no redundancy that could become inconsistent";
        return Err(Refusal::new(reason, "leave it as it is"));
    };
    if newest.version == Version::V0_90 {
        let reason = "the policy of an array with metadata 0.90 is not changed";
        return Err(Refusal::new(reason, "leave it as it is, or use mdadm --grow --bitmap"));
    }
    if policy == Policy::PartialParity && level != Level::Raid5 {
        let reason = format!("a {level} cannot have partial parity logs, which a raid5 has");
        return Err(Refusal::new(reason, "use resync or bitmap"));
    }
    if matches!(policy, Policy::Journal(_)) && level.parity_disks() == 0 {
        let reason = format!("a {level} cannot have a journal, which levels with parity have");
        return Err(Refusal::new(reason, "use resync or bitmap"));
    }
    if policy == Policy::PartialParity && newest.raid_disks as usize > ppl::MAX_MEMBERS {
        let most = ppl::MAX_MEMBERS;
        let reason = format!("partial parity logs are for {most} members at most");
        return Err(Refusal::new(reason, "use resync or bitmap"));
    }
    Ok(level)
}
