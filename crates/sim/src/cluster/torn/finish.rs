//! The end of a run: all members are there, and the array stops and starts again.

use braid_array::format::superblock::MAX_SECTOR;

use super::Torn;
use crate::cluster::content;
use crate::report::Failure;

/// By then a resync has ended that lacks nothing, however often it is tried again.
const RESYNC_MILLIS: u64 = 120_000;

impl Torn<'_> {
    /// Everything is there again, and is read, with all members and without some.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.cluster.note(&[103], || "FINISH".to_owned());
        for role in self.dead.clone() {
            self.comes_back(role);
        }
        self.be_whole()?;
        self.read_all()?;
        if self.cluster.rng.percent(50) {
            self.write_all()?;
            self.read_all()?;
        }
        let all_known = self.unknown.is_none();
        if all_known {
            self.is_in_line()?;
        }
        self.restart()?;
        self.read_all()?;
        self.stop()?;
        if all_known {
            let disks = self.cluster.disks();
            content::judge(&self.cluster.layout, &disks, &[&[]], &mut self.judge)?;
        }
        if !self.is_vouched() && !self.cluster.is_clean() {
            return Ok(());
        }
        for role in self.cluster.more_losses(&[]) {
            self.dies(role);
        }
        self.begin()?;
        self.read_all()?;
        self.stop()
    }

    /// Where all is known sums fit again, some time.
    fn is_in_line(&mut self) -> Result<(), Failure> {
        self.cluster.world.begin();
        let until = self.cluster.world.now().plus_millis(RESYNC_MILLIS);
        self.cluster.world.wake_at(until);
        loop {
            let status = self.cluster.status_of(self.client);
            if status.superblock.resync_offset == MAX_SECTOR && status.unsynced_sectors == 0 {
                return Ok(());
            }
            if self.cluster.world.now() >= until || !self.step()? {
                let held = status.held_up;
                return Err(Failure(format!("all is known, and sums do not fit: {held:?}")));
            }
        }
    }
}
