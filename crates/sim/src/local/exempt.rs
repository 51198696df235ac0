//! Promises taken off where parity may not fit.

use braid_array::Role;

use super::{CLIENT, Local};
use crate::local::assembly;
use crate::local::part::holder;
use crate::local::scenario::Log;

impl Local {
    /// Takes the promise off data that a write hole may have changed, for the missing roles. An
    /// inner array has no write hole.
    pub fn exempt(&mut self) {
        let part = self.parts.top_mut();
        let partial = matches!(part.scenario.log, Log::PartialParity(_));
        if part.suspects.is_empty() || !self.forced && !partial {
            return;
        }
        let status = self.world.processes[CLIENT].client().status();
        for role in Role::all(part.roles()) {
            if holder(&status, role).is_some() {
                continue;
            }
            if self.forced {
                part.suspects.exempt(role, &part.shape, &mut self.judge);
            } else {
                part.suspects.exempt_being_written(role, &part.shape, &mut self.judge);
            }
        }
    }

    /// Takes the promise off unreadable data that parity must supply. The machine reconstructs
    /// units of up to 64 KiB within a chunk, not single sectors.
    pub fn exempt_unreadable(&mut self) {
        if self.forced {
            self.exempt_unread(self.parts.devices[0].unit_sectors());
        }
    }

    /// Takes the promise off unreadable data and the rest of each unit of this height, which are
    /// reconstructed together.
    pub fn exempt_unread(&mut self, height: u64) {
        let part = &mut self.parts.devices[0];
        if part.suspects.is_empty() || self.parts.over.is_some() {
            return;
        }
        let process = &mut self.world.processes[CLIENT];
        let status = process.client().status();
        for role in Role::all(part.roles()) {
            let device = holder(&status, role).and_then(|member| process.device_of(member));
            let Some(device) = device else { continue };
            let disk = &process.devices[device].disk;
            if disk.blind() {
                part.suspects.exempt(role, &part.shape, &mut self.judge);
            }
            // It may not have got what the one before it could not read, and says so in its log.
            let listed = assembly::candidate(device, disk).bad_blocks;
            let listed = listed.unwrap_or_default();
            let listed = listed.ranges().iter().flat_map(|&(at, sectors)| at..at + sectors);
            for bad in disk.unreadable().iter().copied().chain(listed) {
                let Some(column) = bad.checked_sub(part.shape.data_offset) else { continue };
                let unit = bad - column % height;
                let rows = unit..unit + height;
                part.suspects.exempt_range(role, rows, &part.shape, &mut self.judge);
            }
        }
    }
}
