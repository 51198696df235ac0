//! Second read of the members once the votes are granted, and comparison with the superblocks and
//! bitmaps on which the start was judged.

use braid_array::Role;
use std::collections::BTreeMap;

use braid_array::SECTOR_BYTES;
use braid_array::format::bitmap::PAGE_BYTES;
use braid_array::format::superblock::READ_BYTES;
use braid_array::format::{Bitmap, Superblock, Version};

use crate::assemble::SUPERBLOCK_SECTOR;
use crate::client::engine::Cx;
use crate::client::out::RequestKind;
use crate::client::{ClientConfig, ClientMember};
use crate::member::Found;
use crate::wire::Message;

const PAGE_SECTORS: u64 = PAGE_BYTES as u64 / SECTOR_BYTES;

/// Superblocks and bitmaps of the members, as found when the array was judged, compared with the
/// present ones. Until the votes are granted the last client may change them. Afterwards none of
/// its writes lands, so equal content stays equal. If anything has `changed`, the client gives up,
/// and is to be made anew. Nothing is recorded before the comparison: a view that names the present
/// nodes asserts that none of them has forgotten anything.
///
/// ```text
/// the volume is opened, for reading ─► its superblock ─► its bitmap, page by page ─► next voter
/// ```
#[derive(Debug)]
pub(super) struct Reread {
    /// By role, the content when it was judged.
    found: Vec<Option<Found>>,
    /// By role, the names of the volumes.
    volumes: Vec<Option<String>>,
    /// By role, the part of the bitmap that was read, once the superblock was.
    bitmaps: BTreeMap<Role, BitmapPages>,
    changed: bool,
}

/// The beginning of a bitmap.
#[derive(Debug, Default)]
struct BitmapPages {
    count: u64,
    bytes: Vec<u8>,
}

impl Reread {
    pub(super) fn new(config: &ClientConfig) -> Self {
        let volume = |member: &ClientMember| member.volume.clone();
        let volumes = config.members.iter().map(|member| member.as_ref().map(volume)).collect();
        let found = config.found.clone();
        Self { found, volumes, bitmaps: BTreeMap::new(), changed: false }
    }

    /// Begins to read from all members that are there; returns their roles. A read-only client
    /// relies on the first read.
    pub(super) fn begin(&self, cx: &mut Cx<'_>) -> Vec<Role> {
        if cx.keeper.is_read_only() {
            return Vec::new();
        }
        let known = |role: &Role| self.found(*role).is_some();
        let roles: Vec<Role> = cx.members.alive_roles().filter(known).collect();
        for &role in &roles {
            let Some(name) = self.volumes[role.index()].clone() else { continue };
            let open = |tag| Message::OpenVolume { tag, name, write: false };
            cx.request(role, RequestKind::Reread, open);
        }
        roles
    }

    /// Requests the next part of a member. Returns whether all of it is read.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>, role: Role) -> bool {
        let Some((sector, bytes)) = self.next(role) else {
            self.judge(role);
            return true;
        };
        let message = |tag| Message::ReadMeta { tag, sector, bytes };
        cx.request(role, RequestKind::Reread, message);
        false
    }

    /// Returns whether the content of a member has changed.
    pub(super) const fn changed(&self) -> bool {
        self.changed
    }

    fn found(&self, role: Role) -> Option<&Found> {
        self.found.get(role.index())?.as_ref()
    }

    /// Returns the next part of the volume to read, as sector and bytes; `None` at the end.
    fn next(&self, role: Role) -> Option<(u64, u32)> {
        let Some(pages) = self.bitmaps.get(&role) else {
            return Some((SUPERBLOCK_SECTOR, READ_BYTES));
        };
        let Found { superblock, bitmap } = self.found(role)?;
        let bitmap = bitmap.as_ref().filter(|bitmap| pages.count < bitmap.pages())?;
        let sector = superblock.bitmap_sector()? + pages.count * PAGE_SECTORS;
        Some((sector, bitmap.page_bytes(pages.count, SECTOR_BYTES as u32)))
    }

    /// Takes a part that was read.
    pub(super) fn take(&mut self, role: Role, bytes: &[u8]) {
        if let Some(pages) = self.bitmaps.get_mut(&role) {
            pages.count += 1;
            pages.bytes.extend_from_slice(bytes);
            return;
        }
        let now = Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, bytes).ok();
        self.changed |= now.as_ref() != self.found(role).map(|found| &found.superblock);
        self.bitmaps.insert(role, BitmapPages::default());
    }

    /// Compares a member once all of it was read.
    fn judge(&mut self, role: Role) {
        let Some(BitmapPages { bytes, .. }) = self.bitmaps.remove(&role) else { return };
        let Some(before) = self.found(role).and_then(|found| found.bitmap.as_ref()) else { return };
        self.changed |= Bitmap::decode(&bytes).as_ref() != Ok(before);
    }
}
