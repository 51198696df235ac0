//! What lies on the members is read once more when the votes are granted, and compared with what
//! the start of the array was judged by.

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

/// Superblocks and bitmaps of the members, as found when the array was judged, against what lies
/// there now. Until the votes are granted the last client may change them; from then on nothing of
/// it lands any more, so that if they are the same they stay it. If anything `changed` the client
/// gives up, and is to be made anew. Nothing is recorded before that is known, as a view that names
/// the nodes as they are now says that none of them has forgotten anything.
///
/// ```text
/// the volume is opened, for reading ─► its superblock ─► its bitmap, page by page ─► next voter
/// ```
#[derive(Debug)]
pub(super) struct Reread {
    /// By role, what lay there when it was judged.
    found: Vec<Option<Found>>,
    /// By role, the names of the volumes.
    volumes: Vec<Option<String>>,
    /// By role, how much of its bitmap was read, once the superblock was.
    bitmaps: BTreeMap<Role, Pages>,
    changed: bool,
}

/// The beginning of a bitmap.
#[derive(Debug, Default)]
struct Pages {
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

    /// Reads from all that are there; their roles. Who only reads goes by what there was.
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

    /// Asks for what comes next. Is all of the member read?
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>, role: Role) -> bool {
        let Some((sector, bytes)) = self.next(role) else {
            self.judge(role);
            return true;
        };
        let message = |tag| Message::ReadMeta { tag, sector, bytes };
        cx.request(role, RequestKind::Reread, message);
        false
    }

    /// Something else lies on a member now.
    pub(super) const fn changed(&self) -> bool {
        self.changed
    }

    fn found(&self, role: Role) -> Option<&Found> {
        self.found.get(role.index())?.as_ref()
    }

    /// The part of the volume that is read next, as sector and bytes; `None` when that was all.
    fn next(&self, role: Role) -> Option<(u64, u32)> {
        let Some(pages) = self.bitmaps.get(&role) else {
            return Some((SUPERBLOCK_SECTOR, READ_BYTES));
        };
        let Found { superblock, bitmap } = self.found(role)?;
        let bitmap = bitmap.as_ref().filter(|bitmap| pages.count < bitmap.pages())?;
        let sector = superblock.bitmap_sector()? + pages.count * PAGE_SECTORS;
        Some((sector, bitmap.page_bytes(pages.count, SECTOR_BYTES as u32)))
    }

    /// A part has come.
    pub(super) fn take(&mut self, role: Role, bytes: &[u8]) {
        if let Some(pages) = self.bitmaps.get_mut(&role) {
            pages.count += 1;
            pages.bytes.extend_from_slice(bytes);
            return;
        }
        let now = Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, bytes).ok();
        self.changed |= now.as_ref() != self.found(role).map(|found| &found.superblock);
        self.bitmaps.insert(role, Pages::default());
    }

    /// All of a member was read.
    fn judge(&mut self, role: Role) {
        let Some(Pages { bytes, .. }) = self.bitmaps.remove(&role) else { return };
        let Some(before) = self.found(role).and_then(|found| found.bitmap.as_ref()) else { return };
        self.changed |= Bitmap::decode(&bytes).as_ref() != Ok(before);
    }
}
