//! One array, or arrays whose members are arrays. Devices with superblocks of several arrays form
//! an array of arrays if the contents of these arrays carry the superblocks of one more.

use braid_array::Refusal;
use braid_array::assemble::{
    Assembly, Candidate, Config, Options, Settlement, SpillConfig, Start, Verdict, not_in_blocks,
};
use braid_array::format::superblock::feature;
use braid_array::format::{Superblock, SuperblockError};
use braid_array::refusal::{Invocation, Next};
use braid_host::member::MemberFile;
use braid_host::serve::Assembled;

use super::Called;
use crate::args::ReshapeArgs;
use crate::cmd::found::{self, Found};
use crate::cmd::halfway::{self, HalfwayFindings};
use crate::cmd::inside::{attached, content, content_of, judge, title};
use crate::failure::Failure;
use crate::invocation::next_step;

/// Devices and the array that they form.
pub(super) struct Layer {
    pub(super) assembly: Assembly,
    found: Vec<Found>,
}

/// Arrays found on the devices, in up to two layers.
pub(super) struct Layers {
    /// The arrays that are members of `top`; empty when its members are devices.
    pub(super) inner: Vec<Layer>,
    /// The array that is served.
    pub(super) top: Assembly,
    devices: Vec<Found>,
    /// What is written before a reshape goes on that md began.
    settlement: Option<Box<Settlement>>,
    /// The file that a reshape saves to.
    spill: Option<MemberFile>,
    /// Identity of the array, as typed.
    called: Called,
}

impl Layers {
    /// Decides which members are attached, in each layer. Reads inner arrays where possible. A
    /// single array is taken for a member of another only if it is known to be `nested` in one.
    pub(super) fn of(found: Vec<Found>, nested: bool, called: Called, options: Options) -> Self {
        let mut groups = found::groups(found);
        let mut blanks = Vec::new();
        if groups.len() > 1 || nested {
            // Nobody can tell which of several arrays a blank device was meant for.
            let blank = |one: &mut Found| one.candidate.superblock == Err(SuperblockError::NoMagic);
            blanks.extend(groups.iter_mut().flat_map(|group| group.extract_if(.., blank)));
            if nested || hold_a_superblock(&groups) {
                return Self::nested(groups, blanks, called, options);
            }
            // Members of different arrays were mixed up; the usual reasons say so best.
        }
        let devices: Vec<Found> = groups.into_iter().flatten().chain(blanks).collect();
        Self {
            top: judge(&devices, options),
            inner: Vec::new(),
            devices,
            settlement: None,
            spill: None,
            called,
        }
    }

    /// Arrays, at least one of which is a member of one more.
    fn nested(
        groups: Vec<Vec<Found>>,
        blanks: Vec<Found>,
        called: Called,
        options: Options,
    ) -> Self {
        let (inner, mut top) = judge_nested(groups.iter().map(Vec::as_slice), options);
        for blank in blanks {
            let reason = SuperblockError::NoMagic.to_string();
            if let Start::Ready { .. } = top.start {
                let reason = format!("{}: {reason}", blank.candidate.device);
                top.start = Start::Refused { reason, next: Next::default(), could_force: false };
            }
            top.verdicts.push((blank.candidate.device, Verdict::Unreadable { reason }));
        }
        let inner = inner.into_iter().zip(groups);
        let inner = inner.map(|(assembly, found)| Layer { assembly, found }).collect();
        let mut layers =
            Self { inner, top, devices: Vec::new(), settlement: None, spill: None, called };
        if let Start::Refused { reason, next, .. } = &layers.top.start {
            let reason = format!("{reason}{}", layers.problems());
            let next = layers.way_out(options).of(next.condition);
            layers.top.start = Start::Refused { reason, next, could_force: false };
        } else if let Some((reason, next)) = layers.halfway_member() {
            layers.top.start = Start::Refused { reason, next, could_force: false };
        }
        layers
    }

    /// Examines the data of an array that stopped in the middle of a reshape: its superblocks do
    /// not tell whether md can continue it. Returns warnings about the readable content.
    pub(super) fn look(&mut self, options: Options, reshape: &ReshapeArgs) -> Vec<String> {
        let newest = self.top.newest.as_deref();
        let is_halfway = newest.is_some_and(|newest| newest.has(feature::RESHAPE_ACTIVE));
        let needs_file = newest.is_some_and(|newest| !newest.has(feature::NEW_OFFSET))
            && reshape.file().is_none();
        if !self.inner.is_empty() {
            return Vec::new();
        }
        if !is_halfway {
            self.look_at_cut_images(options);
            return Vec::new();
        }
        let to_read = judge(&self.devices, Options { read_only: true, ..options });
        let twins = self.devices.iter().map(|one| one.device.twin().ok()).collect();
        let (Start::Halfway(halfway), Some(twins)) = (to_read.start, twins) else {
            return Vec::new();
        };
        let candidates: Vec<Candidate> =
            self.devices.iter().map(|one| one.candidate.clone()).collect();
        let examined = halfway::examined(*halfway, twins, &candidates, (options, reshape));
        match (examined, &mut self.top.start) {
            (Err(Refusal { reason, next }), start) => {
                *start = Start::Refused { reason, next, could_force: false };
                Vec::new()
            }
            (Ok(HalfwayFindings::Settles(settlement)), Start::Refused { .. }) => {
                self.top = halfway::decide(&settlement, options);
                let said = goes_on(&settlement);
                self.settlement = Some(settlement);
                vec![said]
            }
            (Ok(HalfwayFindings::Reads(warnings)), Start::Refused { reason, next, .. }) => {
                let advice = if !warnings.is_empty() {
                    "read it, and copy what it holds"
                } else if needs_file {
                    "name the backup file that it began with, if there is one, by --backup-file \
                     FILE; have md go on with it (mdadm --assemble), or read it"
                } else {
                    "have md go on with it (mdadm --assemble), or read it"
                };
                next.advice = advice.into();
                warnings.iter().for_each(|warning| *reason += &format!("; {warning}"));
                Vec::new()
            }
            (Ok(HalfwayFindings::Reads(warnings)), _) => warnings,
            (Ok(HalfwayFindings::Settles(_)), _) => Vec::new(),
        }
    }

    /// Returns whether a reshape goes on that saves what it overwrites.
    pub(super) fn saves(&self) -> bool {
        self.settlement.as_ref().is_some_and(|settlement| settlement.saves())
    }

    /// Writes what a reshape needs before it goes on. Returns what is to be said.
    pub(super) fn settle(&mut self, reshape: &ReshapeArgs) -> Result<Option<String>, Refusal> {
        let Some(settlement) = self.settlement.take() else { return Ok(None) };
        halfway::settle(&settlement, &self.devices)?;
        let said = goes_on(&settlement);
        let Some(file) = reshape.file() else { return Ok(Some(said)) };
        let name = file.display();
        if !settlement.saves() {
            return Ok(Some(format!("{said}; {name} is not needed any more, and can be deleted")));
        }
        let set_uuid = self.top.newest.as_deref().map(|newest| newest.set_uuid);
        let sectors = settlement.saved_sectors;
        self.spill = Some(halfway::open_spill(file, set_uuid.unwrap_or_default(), sectors)?);
        Ok(Some(format!("{said}; keep {name} until that is over")))
    }

    /// Advises to read the rest of cut-off images, where the array needs them.
    fn look_at_cut_images(&mut self, options: Options) {
        let is_cut = |(_, verdict): &(_, Verdict)| matches!(verdict, Verdict::TooSmall { .. });
        let Start::Refused { next, .. } = &mut self.top.start else { return };
        if options.read_only || !self.top.verdicts.iter().any(is_cut) {
            return;
        }
        let to_read = Options { read_only: true, ..options };
        let twins = self.devices.iter().filter_map(|one| one.device.twin().ok());
        let (whole, ..) = found::to_use(twins.map(found::read).collect(), true);
        let assembly = judge(&whole, to_read);
        if let Start::Ready { .. } = assembly.start {
            let invocation = self.called.invocation(to_read, attached(&assembly).collect());
            *next = Next::by("read it: what is missing counts as unreadable", invocation);
        }
    }

    /// A member of the array of arrays that stopped in the middle of a reshape: its pieces are
    /// arrays by themselves, and only two layers are served.
    fn halfway_member(&self) -> Option<(String, Next)> {
        let halfway = |layer: &&Layer| {
            let is_in = self.is_in(&title(&layer.assembly));
            is_in && matches!(layer.assembly.start, Start::Halfway(_))
        };
        let layer = self.inner.iter().find(halfway)?;
        let Start::Halfway(halfway) = &layer.assembly.start else { return None };
        let reason = format!("{}, a member: {}", title(&layer.assembly), halfway.description());
        let advice = "read with braid cat; or serve this one by itself, with --export \
                      nbd:unix:SOCKET, and name nbd+unix:///?socket=SOCKET in place of its members";
        let name = layer.assembly.newest.as_deref().map(short_name);
        let devices = attached(&layer.assembly).map(str::to_owned).collect();
        let options = Options { read_only: true, ..Options::default() };
        let serve = Invocation::Assemble { name, rename: false, options, devices };
        Some((reason, Next::by(advice, serve)))
    }

    /// The inner arrays that cannot be started, for a reason.
    fn problems(&self) -> String {
        let problem = |layer: &Layer| match &layer.assembly.start {
            Start::Refused { reason, .. } => {
                Some(format!("; {} cannot be started: {reason}", title(&layer.assembly)))
            }
            Start::Halfway(halfway) => Some(format!(
                "; {} is not taken for a member: {}",
                title(&layer.assembly),
                halfway.description()
            )),
            Start::Ready { .. } => None,
        };
        self.inner.iter().filter_map(problem).collect()
    }

    /// Returns the command that starts the array of arrays: without unrelated arrays, or degraded.
    fn way_out(&self, options: Options) -> Next {
        let unrelated = |layer: &&Layer| {
            let name = title(&layer.assembly);
            self.top.verdicts.iter().any(|(device, v)| *device == name && !v.attached())
        };
        let related: Vec<&[Found]> =
            self.inner.iter().filter(|l| !unrelated(l)).map(|l| l.found.as_slice()).collect();
        let is_halfway = |layer: &Layer| {
            let newest = layer.assembly.newest.as_deref();
            newest.is_some_and(|superblock| superblock.has(feature::RESHAPE_ACTIVE))
        };
        let reads = options.read_only || self.inner.iter().any(is_halfway);
        let options = Options { read_only: reads, ..options };
        let tries = [
            (options, ""),
            (Options { run: true, ..options }, "find the missing members, or start without them"),
            (Options { force: true, ..options }, "find the missing members, or accept the risk"),
        ];
        for (options, advice) in tries {
            let (inner, top) = judge_nested(related.iter().copied(), options);
            if let Start::Ready { .. } = top.start {
                let devices = devices_in(&inner, &top);
                return Next::by(advice, self.called.invocation(options, devices));
            }
        }
        let devices = related.iter().copied().flatten();
        let devices = devices.map(|one| one.candidate.device.clone()).collect();
        let advice = "find the missing members, and see which device belongs where";
        Next::by(advice, Invocation::Examine { devices })
    }

    /// The devices that are left out of the array of this name, and why.
    pub(super) fn left_out(&self, name: &str) -> impl Iterator<Item = String> + '_ {
        let name = name.to_owned();
        let left_out = move |device: &str, why: String| {
            let taken_back = self.beside().find(|layer| title(&layer.assembly) == device);
            let back = taken_back.map_or_else(String::new, |layer| {
                let device = layer.assembly.newest.as_deref().map_or_else(String::new, short_name);
                let next = Invocation::Add { array: Some(name.clone()), device };
                format!("; {} rebuilds it", next_step(&next.into()))
            });
            format!("{device} is left out: {why}{back}")
        };
        let why_not = left_out.clone();
        let unused = self.inner.iter().filter_map(move |layer| match &layer.assembly.start {
            Start::Refused { reason, .. } => {
                Some(why_not(&title(&layer.assembly), format!("cannot be started: {reason}")))
            }
            Start::Halfway(halfway) if !self.is_in(&title(&layer.assembly)) => {
                Some(why_not(&title(&layer.assembly), halfway.description()))
            }
            Start::Ready { .. } | Start::Halfway(_) => None,
        });
        let layers = self.inner.iter().map(|layer| &layer.assembly).chain([&self.top]);
        let out = layers
            .flat_map(|assembly| &assembly.verdicts)
            .filter(|(_, verdict)| !verdict.attached())
            .map(move |(device, verdict)| left_out(device, verdict.to_string()));
        unused.chain(out)
    }

    /// Returns whether the inner array of this name is attached to the served array.
    fn is_in(&self, name: &str) -> bool {
        attached(&self.top).any(|member| member == name)
    }

    /// Returns the inner arrays that start, but are stale as members: the served array continued
    /// without them. These members can be taken back.
    fn beside(&self) -> impl Iterator<Item = &Layer> {
        let stale = |layer: &&Layer| {
            let name = title(&layer.assembly);
            let mut verdicts = self.top.verdicts.iter();
            let known = verdicts.any(|(device, verdict)| {
                *device == name && matches!(verdict, Verdict::Stale { .. })
            });
            known && matches!(layer.assembly.start, Start::Ready { .. })
        };
        self.inner.iter().filter(stale)
    }

    /// The devices that are in.
    fn devices_in(&self) -> Vec<&str> {
        if self.inner.is_empty() {
            return attached(&self.top).collect();
        }
        devices_in(self.inner.iter().map(|layer| &layer.assembly), &self.top)
    }

    /// Returns the number of roles without a member in sync, in each layer.
    pub(super) fn degraded(&self) -> usize {
        let arrays = self.inner.iter().map(|layer| &layer.assembly).chain([&self.top]);
        let degraded = arrays.map(|assembly| match &assembly.start {
            Start::Ready { degraded, .. } => usize::from(*degraded),
            Start::Refused { .. } | Start::Halfway(_) => 0,
        });
        degraded.sum()
    }

    /// Returns the command that starts the array, with its attached devices.
    pub(super) fn invocation(&self, options: Options) -> Invocation {
        self.called.invocation(options, self.devices_in())
    }

    /// Returns the array to be served.
    pub(super) fn assembled(
        self,
        object: &str,
        reshape: &ReshapeArgs,
    ) -> Result<Assembled, Failure> {
        if let (Start::Halfway(halfway), true) = (&self.top.start, self.inner.is_empty()) {
            let devices = self.devices.into_iter().map(|one| one.device).collect();
            let (whole, arrays) =
                halfway::open("assemble", object, (**halfway).clone(), devices, reshape)
                    .map_err(|why| Failure::explained("assemble", object, why))?;
            return Ok(Assembled::Pieces { whole, arrays });
        }
        let beside: Vec<String> = self.beside().map(|layer| title(&layer.assembly)).collect();
        let config = ready(object, self.top)?;
        if self.inner.is_empty() {
            let (mut config, mut members) = with_members(config, self.devices)?;
            if let Some(spill) = self.spill {
                let device = spill.path.display().to_string();
                config.spill = Some(SpillConfig { device, sectors: spill.sectors });
                members.push(spill);
            }
            return Ok(Assembled::Array { config, members });
        }
        let mut arrays = Vec::new();
        for layer in self.inner {
            let name = title(&layer.assembly);
            let is_in = config.members.iter().any(|member| member.device == name);
            if is_in || beside.contains(&name) {
                arrays.push((name, with_members(ready(object, layer.assembly)?, layer.found)?));
            }
        }
        let inner = found::in_order(&config, &mut arrays, |(name, _)| name.clone());
        let inner: Vec<_> = inner.into_iter().chain(arrays).map(|(_, array)| array).collect();
        let mut outer = config;
        let blocks = inner.iter().map(|(config, _)| config.block_bytes);
        outer.block_bytes = blocks.fold(outer.block_bytes, u32::max);
        Ok(Assembled::Nested { outer, inner })
    }
}

fn ready(object: &str, assembly: Assembly) -> Result<Config, Failure> {
    match assembly.start {
        Start::Ready { config, .. } => Ok(*config),
        Start::Halfway(halfway) => {
            let reason = halfway.description();
            Err(Failure::refused("assemble", object, reason, "read it by itself: braid cat"))
        }
        Start::Refused { reason, next, .. } => {
            Err(Failure::refused("assemble", object, reason, next))
        }
    }
}

/// Puts the devices in the order of the configuration, and sets its block size.
fn with_members(
    mut config: Config,
    found: Vec<Found>,
) -> Result<(Config, Vec<MemberFile>), Failure> {
    let mut devices: Vec<MemberFile> = found.into_iter().map(|one| one.device).collect();
    let members = found::in_order(&config, &mut devices, |d| d.path.display().to_string());
    let blocks = members.iter().map(|member| member.block_bytes);
    config.block_bytes = blocks.fold(config.block_bytes, u32::max);
    // What is not written need not fit.
    let written = if config.read_only { &[][..] } else { &config.members[..] };
    for (member, device) in written.iter().zip(&members) {
        let block_bytes = device.block_bytes;
        if let Some((what, sector)) = not_in_blocks(&member.superblock, block_bytes) {
            let reason = format!(
                "needs I/O in blocks of {block_bytes} bytes, and its {what} begins at sector \
                 {sector}, within a block"
            );
            let next =
                "copy it to a device with blocks of 512 bytes, or into a file, and name that";
            return Err(Failure::refused("assemble", &member.device, reason, next));
        }
    }
    Ok((config, members))
}

/// Returns the name of an array in commands.
pub(super) fn short_name(superblock: &Superblock) -> String {
    let name = superblock.name();
    name.split_once(':').map_or(name.as_str(), |(_, name)| name).to_owned()
}

/// The devices of those arrays that are in.
fn devices_in<'a>(inner: impl IntoIterator<Item = &'a Assembly>, top: &Assembly) -> Vec<&'a str> {
    let is_in = |assembly: &&Assembly| {
        let name = title(assembly);
        attached(top).any(|member| member == name)
    };
    inner.into_iter().filter(is_in).flat_map(attached).collect()
}

/// Returns the line about a reshape that is settled first.
fn goes_on(settlement: &Settlement) -> String {
    let began = if settlement.is_of_md { " that md began" } else { "" };
    format!("the reshape{began} goes on from sector {}", settlement.position)
}

/// Decides about arrays, and about the one that they are members of.
fn judge_nested<'a>(
    groups: impl Iterator<Item = &'a [Found]>,
    options: Options,
) -> (Vec<Assembly>, Assembly) {
    let groups: Vec<&[Found]> = groups.collect();
    let inner: Vec<Assembly> = groups.iter().map(|found| judge(found, options)).collect();
    let contents = inner.iter().zip(&groups).filter_map(|(one, found)| content_of(one, found));
    let candidates: Vec<Candidate> = contents.collect();
    let none = candidates.is_empty();
    let mut top = found::decide(candidates, options);
    if let (true, Start::Refused { reason, .. }) = (none, &mut top.start) {
        *reason = "none of the arrays that it is made of can be started".to_owned();
    }
    (inner, top)
}

/// Returns whether one of these arrays, started by force, holds a superblock of an outer array.
fn hold_a_superblock(groups: &[Vec<Found>]) -> bool {
    let mut contents = groups.iter().filter_map(|found| content(found));
    contents.any(|candidate| candidate.superblock.is_ok())
}
