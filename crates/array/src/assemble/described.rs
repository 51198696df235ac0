//! Arrays without superblocks, as people describe them: to be read, and never written.

use super::{Config, MemberConfig, Standing, StartLog};
use crate::code::Losses;
use crate::format::superblock::{DevRole, MAX_SECTOR, feature};
use crate::format::{BadBlocks, Superblock};
use crate::geometry::{Geometry, Shape};
use crate::level::{Layout, Level};
use crate::refusal::Advised;
use crate::{Refusal, Role};

/// An array by its geometry.
#[derive(Clone, Debug)]
pub struct Described {
    /// Name of the array.
    pub name: String,
    /// Level.
    pub level: Level,
    /// Layout.
    pub layout: Layout,
    /// Chunk; 0 for linear and raid1.
    pub chunk_sectors: u32,
    /// The members in the order of their roles; `None` for one that is missing.
    pub members: Vec<Option<DescribedMember>>,
}

/// A member of it.
#[derive(Clone, Debug)]
pub struct DescribedMember {
    /// Path, for messages and status.
    pub device: String,
    /// Size of the device.
    pub device_sectors: u64,
    /// Sector at which the data begin on it.
    pub data_offset: u64,
}

impl Described {
    /// Returns the configuration with which a machine is started to read the array.
    ///
    /// # Errors
    /// When the data begin beyond the end of a member, when too many are missing, and when no array
    /// has this geometry.
    pub fn config(&self) -> Result<Config, Refusal> {
        let data_sectors = self.data_sectors()?;
        let sizes: Vec<u64> = data_sectors.iter().flatten().copied().collect();
        let smallest = sizes.iter().copied().min().unwrap_or(0);
        let unit = u64::from(self.chunk_sectors.max(1));
        let size_sectors = match self.level {
            Level::Linear | Level::Raid0 => 0,
            _ => smallest / unit * unit,
        };
        let raid_disks = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let used = |size: u64| if self.reads_what_is_sure() { smallest } else { size };
        let all: Vec<u64> = data_sectors.iter().map(|size| used(size.unwrap_or(0))).collect();
        let shape = Shape {
            level: self.level,
            layout: self.layout,
            raid_disks,
            chunk_sectors: self.chunk_sectors,
            size_sectors,
            member_data_sectors: &all,
        };
        self.check_missing(raid_disks)?;
        Geometry::new(&shape).map_err(|error| Refusal::new(error.to_string(), error.next()))?;
        let array = self.superblock(raid_disks, size_sectors);
        let members = (0..).zip(&self.members).filter_map(|(role, member)| {
            let member = member.as_ref()?;
            Some(member_config(member, Role(role), &array, used))
        });
        Ok(Config {
            members: members.collect(),
            superblock: array,
            bitmap: None,
            log: StartLog::None,
            read_only: true,
            force: true,
            block_bytes: 512,
            spill: None,
        })
    }

    /// Without a layout, only as much of each member of a raid0 is read as all have: there lie the
    /// same data by both layouts.
    fn reads_what_is_sure(&self) -> bool {
        self.level == Level::Raid0 && self.layout == Layout::None
    }

    /// Tells whether larger members of a raid0 hold more than is read, since no layout was given.
    #[must_use]
    pub fn leaves_some_out(&self) -> bool {
        let chunk = u64::from(self.chunk_sectors.max(1));
        let chunks = |member: &DescribedMember| {
            member.device_sectors.saturating_sub(member.data_offset) / chunk
        };
        let mut all = self.members.iter().flatten().map(chunks);
        let first = all.next();
        self.reads_what_is_sure() && all.any(|chunks| Some(chunks) != first)
    }

    fn data_sectors(&self) -> Result<Vec<Option<u64>>, Refusal> {
        let data = |member: &Option<DescribedMember>| {
            let Some(member) = member else { return Ok(None) };
            match member.device_sectors.checked_sub(member.data_offset) {
                Some(sectors) if sectors > 0 => Ok(Some(sectors)),
                _ => {
                    let reason = format!(
                        "{}: the data would begin at sector {}, and the member has {}",
                        member.device, member.data_offset, member.device_sectors
                    );
                    Err(Refusal::new(reason, "give a smaller offset"))
                }
            }
        };
        self.members.iter().map(data).collect()
    }

    fn check_missing(&self, raid_disks: u32) -> Result<(), Refusal> {
        let losses = Losses::of(self.level, self.layout, raid_disks)
            .map_err(|error| Refusal::new(error.to_string(), error.next()))?;
        let is_lost = |role: Role| self.members.get(role.index()).is_none_or(Option::is_none);
        if losses.survives(is_lost) {
            return Ok(());
        }
        let missing = self.members.iter().filter(|member| member.is_none()).count();
        let reason = format!("{} cannot do without {missing} of these members", self.level);
        Err(Refusal::new(reason, "name more of them"))
    }

    /// Returns a superblock as it would be of the whole array.
    fn superblock(&self, raid_disks: u32, size_sectors: u64) -> Superblock {
        let has_layout = matches!(self.layout, Layout::Raid0(_));
        Superblock {
            feature_map: if has_layout { feature::RAID0_LAYOUT } else { 0 },
            set_name: Superblock::name_field(&self.name),
            level: self.level.to_md(),
            layout: self.layout.encode(),
            size_sectors,
            chunk_sectors: self.chunk_sectors,
            raid_disks,
            resync_offset: MAX_SECTOR,
            roles: (0..).map(Role).map(DevRole::Active).take(self.members.len()).collect(),
            ..Superblock::blank()
        }
    }
}

fn member_config(
    member: &DescribedMember,
    role: Role,
    array: &Superblock,
    used: impl Fn(u64) -> u64,
) -> MemberConfig {
    let DescribedMember { device, device_sectors, data_offset } = member;
    let superblock = Superblock {
        data_offset: *data_offset,
        data_size: used(device_sectors - data_offset),
        dev_number: role.0.into(),
        ..array.clone()
    };
    MemberConfig {
        device: device.clone(),
        device_sectors: *device_sectors,
        superblock,
        bad_blocks: BadBlocks::default(),
        standing: Standing::InSync { role },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(level: Level, members: &[Option<u64>]) -> Described {
        let member = |(index, offset): (usize, &Option<u64>)| {
            offset.map(|data_offset| DescribedMember {
                device: format!("m{index}"),
                device_sectors: 10_000,
                data_offset,
            })
        };
        Described {
            name: "x".into(),
            level,
            layout: Layout::default_for(level),
            chunk_sectors: if level == Level::Raid1 { 0 } else { 128 },
            members: members.iter().enumerate().map(member).collect(),
        }
    }

    #[test]
    fn members_begin_where_it_is_said_and_the_least_room_counts() {
        let config = described(Level::Raid5, &[Some(2048), None, Some(4096)]).config().unwrap();
        let offsets: Vec<_> = config.members.iter().map(|m| m.superblock.data_offset).collect();
        assert_eq!(offsets, [2048, 4096]);
        assert_eq!(config.superblock.size_sectors, (10_000 - 4096) / 128 * 128);
        assert_eq!(config.members[1].standing, Standing::InSync { role: Role(2) });
        assert!(config.read_only);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let reason =
            |level, members: &[Option<u64>]| described(level, members).config().unwrap_err().reason;
        let far = reason(Level::Raid5, &[Some(0), Some(10_000), Some(0)]);
        assert_eq!(far, "m1: the data would begin at sector 10000, and the member has 10000");
        let few = reason(Level::Raid5, &[Some(0), None, None]);
        assert_eq!(few, "raid5 cannot do without 2 of these members");
        assert_eq!(reason(Level::Raid0, &[None, Some(0)]).split(' ').next(), Some("raid0"));
        assert!(!reason(Level::Raid5, &[]).is_empty());
    }
}
