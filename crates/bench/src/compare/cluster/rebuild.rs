//! A member is failed, and added again as if it were new: the others give its node all that it is
//! to hold, while nobody uses the array.

use std::time::{Duration, Instant};

use braid_array::action::{Command, NewMember};
use braid_array::events::SyncAction;
use braid_array::status::{MemberState, Status};
use braid_array::{MemberId, SECTOR_BYTES};
use braid_host::submission::{Message, SubmissionQueue};

use super::setting::Done;

/// Time between two looks at the progress.
const LOOK: Duration = Duration::from_millis(5);
/// Time until it is over.
const PATIENCE: Duration = Duration::from_secs(60);
/// Size larger than any volume.
const MOST_SECTORS: u64 = 1 << 50;
/// The member's id in its new superblock.
const DEVICE: [u8; 16] = [0xbd; 16];

/// Rebuilds one member of an array that has all of them. Bytes are those of the member, and time
/// runs from when the first of them are there.
pub fn rebuild(submissions: &SubmissionQueue) -> Result<Done, String> {
    let ended = || "the engine has ended".to_owned();
    let order = |command| {
        let message = |done| Message::Command { command, device: None, done };
        submissions.call(message).ok_or_else(ended)?.map_err(|refusal| refusal.to_string())
    };
    let status = submissions.status().ok_or_else(ended)?;
    let first = status.members.first().ok_or("an array has members")?;
    order(Command::Fail(first.member))?;
    order(Command::Remove(first.member))?;
    let new = NewMember {
        // The array puts one that is free in its place, and the size that it finds.
        member: MemberId(0),
        device: first.device.clone(),
        device_sectors: MOST_SECTORS,
        superblock: None,
        bad_blocks: None,
        readd: false,
        device_uuid: DEVICE,
    };
    order(Command::Add(Box::new(new)))?;
    let began = Instant::now();
    let mut window = None::<(Instant, u64, u64)>;
    while began.elapsed() < PATIENCE {
        let status = submissions.status().ok_or_else(ended)?;
        let now = Instant::now();
        if let Some((since, before, all)) = window
            && is_whole(&status)
        {
            let window_seconds = (now - since).as_secs_f64();
            return Ok(Done { window_bytes: all - before, window_seconds, total_bytes: all });
        }
        let sync = &status.sync;
        let bytes = |sectors: u64| sectors * SECTOR_BYTES;
        if window.is_none() && sync.action == SyncAction::Recovery && sync.done_sectors > 0 {
            window = Some((now, bytes(sync.done_sectors), bytes(sync.total_sectors)));
        }
        std::thread::sleep(LOOK);
    }
    Err("no member was rebuilt within a minute".to_owned())
}

fn is_whole(status: &Status) -> bool {
    let in_sync = |state: &MemberState| *state == MemberState::InSync;
    status.degraded == 0 && status.members.iter().all(|member| in_sync(&member.state))
}
