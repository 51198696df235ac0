//! Taking a node into a running array over nodes: its volume is made, or looked at, here; then the
//! array connects to it.

use braid_array::action::{Command, NewMember};
use braid_array::format::superblock::feature;
use braid_array::format::{BadBlocks, DevRole, Superblock, SuperblockError};
use braid_array::refusal::Invocation;
use braid_array::status::{MemberState, MemberStatus, Status};
use braid_array::{MemberId, Refusal, SECTOR_BYTES};
use braid_cluster::assemble::{SUPERBLOCK_SECTOR, member_name, member_parts};
use braid_cluster::ids::NodeId;
use braid_cluster::journal::{HEADERS_BYTES, Header};
use braid_cluster::wire::valid_volume_name;

use super::add::split;
use super::served::Served;
use crate::fabric::Network;
use crate::remote::{self, Remote, RemoteError};
use crate::system::{random_uuid, refused_by_system};

/// Number of times a node is asked whether it has closed the session that made the volume.
const FREE_TRIES: u32 = 50;
const FREE_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

/// Volumes are written in blocks of so many bytes.
const NODE_BLOCK_BYTES: u32 = 4096;

/// The volume that is to be a member.
struct NewVolume<'a> {
    address: &'a str,
    volume: &'a str,
    network: Network,
}

/// A volume that is to be a member.
struct Found {
    bytes: u64,
    /// Superblock on it, if that is of this array.
    superblock: Option<Superblock>,
    bad_blocks: Option<BadBlocks>,
    /// Made by this command.
    made: bool,
}

impl Served {
    pub(super) fn add_node(
        &self,
        member: &str,
        status: &Status,
        network: Network,
        readd: bool,
        force: bool,
    ) -> Result<(), Refusal> {
        let (address, volume) = self.place(member, status)?;
        let place = NewVolume { address: &address, volume: &volume, network };
        let device = member_name(&address, &volume);
        if let Some(member) = status.members.iter().find(|member| member.device == device) {
            return Err(self.already_a_member("is".to_owned(), member, status));
        }
        let found = self.volume(&place, status, readd, force)?;
        // The place of one that was lost is given away by the array, which sees to that.
        let alone = if status.degraded == 0 { place.check_alone(status) } else { Ok(()) };
        if let Err(why) = alone {
            return Err(if found.made { place.removed(why) } else { why });
        }
        let device_uuid = random_uuid().map_err(|error| refused_by_system(&error))?;
        let new = NewMember {
            // The machine puts one that is free in its place.
            member: MemberId(0),
            device: device.clone(),
            device_sectors: found.bytes / SECTOR_BYTES,
            superblock: found.superblock.map(Box::new),
            bad_blocks: found.bad_blocks,
            readd,
            device_uuid,
        };
        let added = self.command_with(Command::Add(Box::new(new)), None);
        match added {
            Err(why) if found.made => Err(place.removed(why)),
            Err(why) => Err(why),
            Ok(()) => self.mark_spare(&place, &device, device_uuid, found.made),
        }
    }

    /// Writes to the volume that the member is a spare, if it is one now. The array does not
    /// connect to a spare until it is needed.
    fn mark_spare(
        &self,
        place: &NewVolume<'_>,
        device: &str,
        device_uuid: [u8; 16],
        made: bool,
    ) -> Result<(), Refusal> {
        let status = self.status()?;
        let spare = |member: &&MemberStatus| member.state == MemberState::Spare;
        let called = status.members.iter().filter(spare).find(|member| member.device == device);
        let Some(member) = called else { return Ok(()) };
        let superblock = spare_superblock(status.superblock.clone(), member.number, device_uuid);
        place.mark(&superblock).map_err(|why| {
            // What comes of that does not matter more than this.
            let _ = self.command_with(Command::Remove(member.member), None);
            if made { place.removed(why) } else { why }
        })
    }

    /// Address and volume of a member; without a volume, that of the others.
    fn place(&self, member: &str, status: &Status) -> Result<(String, String), Refusal> {
        let typed = member.trim_end_matches('/');
        let other = status.members.first().and_then(|member| member_parts(&member.device));
        let usual = other.map_or(self.name.as_str(), |(_, volume)| volume);
        let address_only = typed.strip_prefix("node://").filter(|rest| !rest.contains('/'));
        let parts = address_only.map_or_else(|| member_parts(typed), |rest| Some((rest, usual)));
        let parts = parts.filter(|(address, volume)| {
            valid_volume_name(volume) && address.rsplit_once(':').is_some()
        });
        let (address, volume) = parts.ok_or_else(|| {
            let reason = format!("{} is over nodes, and this is no volume on a node", self.name);
            Refusal::new(reason, "add node://HOST:PORT or node://HOST:PORT/VOLUME")
        })?;
        Ok((address.to_owned(), volume.to_owned()))
    }

    /// Looks at the volume, or makes it.
    fn volume(
        &self,
        place: &NewVolume<'_>,
        status: &Status,
        readd: bool,
        force: bool,
    ) -> Result<Found, Refusal> {
        let mut remote = place.connect()?;
        let has = remote.has_volume(place.volume).map_err(told)?;
        if has {
            return self.found(place, remote, status, readd, force);
        }
        if readd {
            return Err(self.no_member(place));
        }
        let ours = &status.superblock;
        let end = (ours.data_offset + ours.data_size) * SECTOR_BYTES;
        let parts_only = ours.has(feature::NODE_PPL);
        let journal = Header::new(status.journal_bytes + HEADERS_BYTES, parts_only);
        let journal = journal.map(|header| (header.place(end), header.encode(&ours.set_uuid)));
        let bytes = journal.as_ref().map_or(end, |(headers, _)| headers + HEADERS_BYTES);
        remote.create_volume(place.volume, bytes).map_err(told)?;
        let written = journal.map_or(Ok(()), |(headers, header)| {
            remote.write(headers / SECTOR_BYTES, header).map_err(told)
        });
        drop(remote);
        let free = written.and_then(|()| place.wait_until_free());
        free.map_err(|why| place.removed(why))?;
        Ok(Found { bytes, superblock: None, bad_blocks: None, made: true })
    }

    /// Checks whether an existing volume of this name may be taken.
    fn found(
        &self,
        place: &NewVolume<'_>,
        mut remote: Remote,
        status: &Status,
        readd: bool,
        force: bool,
    ) -> Result<Found, Refusal> {
        if remote.used() {
            return Err(Refusal::new("is in use by another client", "stop that array first"));
        }
        let removal = format!("braid node delete {} {}", place.address, place.volume);
        let bytes = remote.volume_bytes();
        let superblock = match remote::superblock(&mut remote).map_err(told)? {
            Ok(found) if found.set_uuid == status.superblock.set_uuid => {
                if !readd && !force && status.went_alone(&found) {
                    return Err(split());
                }
                Some(found)
            }
            _ if readd => return Err(self.no_member(place)),
            Ok(_) | Err(_) if force => None,
            Ok(found) => {
                let reason = format!("is a member of another array, {}", found.uuid_text());
                return Err(Refusal::new(
                    reason,
                    "name another volume, or --force to overwrite it",
                ));
            }
            Err(SuperblockError::NoMagic) => {
                let reason = "the node has a volume of this name without a superblock, maybe left \
                              over from a command that was interrupted";
                return Err(Refusal::new(reason, format!("remove it: {removal}")));
            }
            Err(error) => {
                let next = format!("use --force to overwrite it, or remove it: {removal}");
                return Err(Refusal::new(format!("its superblock is damaged: {error}"), next));
            }
        };
        let listed = |superblock| remote::bad_blocks(&mut remote, superblock).map_err(told);
        let bad_blocks = superblock.as_ref().map(listed).transpose()?;
        Ok(Found { bytes, superblock, bad_blocks: bad_blocks.and_then(Result::ok), made: false })
    }

    fn no_member(&self, place: &NewVolume<'_>) -> Refusal {
        let device = member_name(place.address, place.volume);
        let next = Invocation::Add { array: Some(self.name.clone()), device };
        Refusal::new(format!("was no member of {}", self.name), next)
    }
}

/// Returns the superblock of a spare with this number.
fn spare_superblock(array: Superblock, number: u16, device_uuid: [u8; 16]) -> Superblock {
    let mut roles = array.roles;
    roles.resize(roles.len().max(usize::from(number) + 1), DevRole::Spare);
    roles[usize::from(number)] = DevRole::Spare;
    let rebuilt = feature::RECOVERY_OFFSET | feature::RECOVERY_BITMAP | feature::REPLACEMENT;
    Superblock {
        roles,
        feature_map: array.feature_map & !(rebuilt | feature::OVER_NODES),
        recovery_offset: 0,
        dev_number: number.into(),
        device_uuid,
        devflags: 0,
        ..array
    }
}

impl NewVolume<'_> {
    /// Checks that no other member is on its node. Both would be lost together.
    fn check_alone(&self, status: &Status) -> Result<(), Refusal> {
        let node = self.node()?;
        let others = status.members.iter().filter(|other| other.state != MemberState::Faulty);
        for (address, volume) in others.filter_map(|other| member_parts(&other.device)) {
            let other = NewVolume { address, volume, network: self.network };
            // Who cannot be asked is not this one.
            if other.node().is_ok_and(|other| other == node) {
                let next = "use a node of its own for each member";
                return Err(Refusal::new("is on the node of another member", next));
            }
        }
        Ok(())
    }

    fn node(&self) -> Result<Option<NodeId>, Refusal> {
        let mut remote = self.connect()?;
        remote.open_volume(self.volume, false).map_err(told)?;
        Ok(remote.node())
    }

    fn mark(&self, superblock: &Superblock) -> Result<(), Refusal> {
        let mut remote = self.connect()?;
        remote.open_volume(self.volume, true).map_err(told)?;
        let bytes = superblock.blocks(NODE_BLOCK_BYTES);
        remote.write(SUPERBLOCK_SECTOR, bytes).map_err(told)
    }

    fn connect(&self) -> Result<Remote, Refusal> {
        Remote::connect(self.address, self.network).map_err(told)
    }

    /// Waits until the session that made the volume is closed, as the array opens it for writing.
    fn wait_until_free(&self) -> Result<(), Refusal> {
        for _ in 0..FREE_TRIES {
            let mut remote = self.connect()?;
            remote.open_volume(self.volume, false).map_err(told)?;
            if !remote.used() {
                return Ok(());
            }
            std::thread::sleep(FREE_EVERY);
        }
        Err(Refusal::new("the volume does not become free", "see the log of the node, try again"))
    }

    /// Takes the volume away that was made, when it is not needed: why.
    fn removed(&self, why: Refusal) -> Refusal {
        let removed = self.connect().and_then(|mut remote| {
            remote.open_volume(self.volume, true).map_err(told)?;
            remote.remove_volume().map_err(told)
        });
        if removed.is_ok() {
            return why;
        }
        let advice = format!(
            "{}; then remove the volume that was made: braid node delete {} {}",
            why.next.advice, self.address, self.volume
        );
        Refusal::new(why.reason, advice)
    }
}

fn told(error: RemoteError) -> Refusal {
    error.why
}
