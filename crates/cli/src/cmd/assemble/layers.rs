//! One array, or arrays whose members are arrays: told apart by whether the devices carry the
//! superblocks of several arrays, and those arrays' contents the superblocks of one more.

use braid_array::SECTOR_BYTES;
use braid_array::assemble::{Assembly, Candidate, Config, MemberConfig, Options, Start};
use braid_host::member::{self, MemberFile};
use braid_host::reader::Reader;
use braid_host::serve::Assembled;

use super::judge;
use crate::cmd::found::{self, Found};
use crate::failure::Failure;

/// Devices and what they make.
pub(super) struct Layer {
    pub(super) assembly: Assembly,
    found: Vec<Found>,
}

/// What was found.
pub(super) struct Layers {
    /// The arrays that are members of `top`; empty when its members are devices.
    pub(super) inner: Vec<Layer>,
    /// The array that is served.
    pub(super) top: Assembly,
    devices: Vec<Found>,
}

impl Layers {
    /// Decides who is in, in each layer. Reads inner arrays where they can be read.
    pub(super) fn of(found: Vec<Found>, options: Options) -> Self {
        let groups = found::groups(found);
        if groups.len() > 1 {
            let mut inner: Vec<Layer> = groups
                .into_iter()
                .map(|found| Layer { assembly: judge(&found, options), found })
                .collect();
            let candidates: Vec<Candidate> = inner.iter().filter_map(content).collect();
            if candidates.iter().any(|candidate| candidate.superblock.is_ok()) {
                let top = found::decide(candidates, options);
                return Self { inner, top, devices: Vec::new() };
            }
            // Members of different arrays were mixed up; the usual reasons say so best.
            let devices: Vec<Found> = inner.drain(..).flat_map(|layer| layer.found).collect();
            return Self { top: judge(&devices, options), inner, devices };
        }
        let devices: Vec<Found> = groups.into_iter().flatten().collect();
        Self { top: judge(&devices, options), inner: Vec::new(), devices }
    }

    /// The devices that are left out, and why.
    pub(super) fn left_out(&self) -> impl Iterator<Item = String> + '_ {
        let layers = self.inner.iter().map(|layer| &layer.assembly).chain([&self.top]);
        layers
            .flat_map(|assembly| &assembly.verdicts)
            .filter(|(_, verdict)| !verdict.attached())
            .map(|(device, verdict)| format!("{device} is left out: {verdict}"))
    }

    /// The devices that are in.
    pub(super) fn devices_in(&self) -> impl Iterator<Item = &str> + '_ {
        let assemblies = self.inner.iter().map(|layer| &layer.assembly);
        let top = self.inner.is_empty().then_some(&self.top);
        assemblies
            .chain(top)
            .flat_map(|assembly| &assembly.verdicts)
            .filter(|(_, verdict)| verdict.attached())
            .map(|(device, _)| device.as_str())
    }

    /// What is to be served.
    pub(super) fn assembled(self, object: &str) -> Result<Assembled, Failure> {
        let config = ready(object, self.top)?;
        if self.inner.is_empty() {
            let (config, members) = with_members(config, self.devices);
            return Ok(Assembled::Array { config, members });
        }
        let mut arrays = Vec::new();
        for layer in self.inner {
            let name = title(&layer.assembly);
            if config.members.iter().any(|member| member.device == name) {
                arrays.push((name, with_members(ready(object, layer.assembly)?, layer.found)));
            }
        }
        let inner = found::in_order(&config, &mut arrays, |(name, _)| name.clone());
        let inner: Vec<_> = inner.into_iter().map(|(_, array)| array).collect();
        let mut outer = config;
        let blocks = inner.iter().map(|(config, _)| config.block_bytes);
        outer.block_bytes = blocks.fold(outer.block_bytes, u32::max);
        Ok(Assembled::Nested { outer, inner })
    }
}

fn ready(object: &str, assembly: Assembly) -> Result<Config, Failure> {
    match assembly.start {
        Start::Ready { config, .. } => Ok(*config),
        Start::Refused { reason, next, .. } => {
            Err(Failure::refused("assemble", object, reason, next))
        }
    }
}

/// Puts the devices in the order of the configuration, which learns what blocks they take.
fn with_members(mut config: Config, found: Vec<Found>) -> (Config, Vec<MemberFile>) {
    let mut devices: Vec<MemberFile> = found.into_iter().map(|one| one.device).collect();
    let members = found::in_order(&config, &mut devices, |d| d.path.display().to_string());
    let blocks = members.iter().map(|member| member.block_bytes);
    config.block_bytes = blocks.fold(config.block_bytes, u32::max);
    (config, members)
}

/// How an inner array is called as a member.
fn title(assembly: &Assembly) -> String {
    let superblock = assembly.newest.as_ref();
    superblock.map_or_else(String::new, |sb| format!("array {} ({})", sb.name(), sb.uuid_text()))
}

/// What an inner array holds at the places of superblocks; `None` when it cannot be started.
fn content(layer: &Layer) -> Option<Candidate> {
    let Start::Ready { config, .. } = &layer.assembly.start else { return None };
    // Opened once more: the reader goes through the page cache, whoever serves it does not.
    let open = |member: &MemberConfig| member::peek(member.device.as_ref()).ok();
    let members: Option<Vec<MemberFile>> = config.members.iter().map(open).collect();
    let mut reader = Reader::new((**config).clone(), members?).ok()?;
    let sectors = reader.size_bytes() / SECTOR_BYTES;
    Some(Candidate::read(title(&layer.assembly), sectors, |sector, bytes| {
        let mut content = vec![0; bytes as usize];
        let read = reader.read_at(sector * SECTOR_BYTES, &mut content);
        read.map(|()| content).map_err(|error| error.to_string())
    }))
}
