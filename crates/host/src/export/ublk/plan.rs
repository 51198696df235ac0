//! Choice of an array's device: its own that waits for a server, or a new one. No I/O.
//!
//! The kernel keeps a number with each device for the server's own use. Ours keep the owner's mark
//! there ([`mark`]), so nothing has to be remembered elsewhere: the next server of the array finds
//! the device, whatever became of the process that made it.

use braid_array::Refusal;

use super::command::{ANY_DEVICE, DeviceInfo, DeviceState, FEATURES};

/// Step towards a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Make one of this number, or of any ([`ANY_DEVICE`]).
    Add(u32),
    /// A device was never finished, or has lost its disk: take it away, and choose again.
    Clear(u32),
    /// Serve this one's disk on.
    Recover(DeviceInfo),
    /// The device has a server, which may be about to end: look again.
    Wait(DeviceInfo),
}

/// Marks devices of an array, by its UUID.
pub(super) fn mark(uuid: &[u8; 16]) -> u64 {
    let (first, second) = uuid.split_at(8);
    let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    // Devices of others have 0 there, or small numbers.
    half(first) ^ half(second) | 1 << 63
}

/// Chooses among the existing devices.
///
/// # Errors
/// When the wanted number belongs to another array; or when the array has a device of another
/// number, where its users wait: they would read from it later what others have changed meanwhile.
pub(super) fn choose(
    wanted: Option<u32>,
    mark: u64,
    found: &[DeviceInfo],
) -> Result<Choice, Refusal> {
    if let Some(own) = found.iter().find(|info| info.mark == mark) {
        let number = own.device;
        if own.state == DeviceState::Dead {
            return Ok(Choice::Clear(number));
        }
        if wanted.is_some_and(|wanted| wanted != number) {
            let reason = format!("users of the array wait at /dev/ublkb{number} for it");
            return Err(Refusal::new(reason, format!("export it as ublk:{number}")));
        }
        return match own.state {
            DeviceState::Quiesced if own.queues == 1 && own.features & FEATURES == FEATURES => {
                Ok(Choice::Recover(*own))
            }
            DeviceState::Live => Ok(Choice::Wait(*own)),
            _ => Err(not_ours(number)),
        };
    }
    match wanted {
        Some(number) if found.iter().any(|info| info.device == number) => Err(not_ours(number)),
        Some(number) => Ok(Choice::Add(number)),
        None => Ok(Choice::Add(ANY_DEVICE)),
    }
}

fn not_ours(number: u32) -> Refusal {
    Refusal::new(
        format!("/dev/ublkb{number} is somebody else's"),
        "name another number, or none to get one that is free",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = 1 << 63 | 5;

    fn info(device: u32, mark: u64, state: DeviceState) -> DeviceInfo {
        let most_bytes = 1 << 20;
        DeviceInfo {
            queues: 1,
            depth: 128,
            state,
            most_bytes,
            device,
            pid: 9,
            features: FEATURES,
            mark,
        }
    }

    #[test]
    fn arrays_have_marks_of_their_own() {
        let uuid = |first, last| {
            let mut uuid = [3; 16];
            (uuid[0], uuid[15]) = (first, last);
            uuid
        };
        assert_ne!(mark(&uuid(1, 1)), mark(&uuid(2, 1)));
        assert_ne!(mark(&uuid(1, 1)), mark(&uuid(1, 2)));
        assert_ne!(mark(&[0; 16]), 0, "which others have");
    }

    #[test]
    fn an_array_gets_its_own_device_back() {
        let live = info(0, 0, DeviceState::Live);
        let own = |state| info(1, OWN, state);
        let chosen = |wanted, own| choose(wanted, OWN, &[live, own]);
        assert_eq!(
            chosen(None, own(DeviceState::Quiesced)),
            Ok(Choice::Recover(own(DeviceState::Quiesced)))
        );
        assert_eq!(
            chosen(Some(1), own(DeviceState::Quiesced)),
            chosen(None, own(DeviceState::Quiesced))
        );
        assert_eq!(chosen(None, own(DeviceState::Live)), Ok(Choice::Wait(own(DeviceState::Live))));
        assert_eq!(chosen(Some(4), own(DeviceState::Dead)), Ok(Choice::Clear(1)));
        let waits = chosen(Some(2), own(DeviceState::Quiesced)).unwrap_err().to_string();
        assert!(waits.contains("ublkb1") && waits.ends_with("ublk:1"), "{waits}");
        for strange in [
            own(DeviceState::Other(3)),
            DeviceInfo { queues: 2, ..own(DeviceState::Quiesced) },
            DeviceInfo { features: 0, ..own(DeviceState::Quiesced) },
        ] {
            assert!(chosen(None, strange).is_err(), "{strange:?}");
        }
    }

    #[test]
    fn a_new_device_is_nobody_elses() {
        let others = [info(0, 0, DeviceState::Live), info(1, OWN + 1, DeviceState::Quiesced)];
        assert_eq!(choose(None, OWN, &others), Ok(Choice::Add(ANY_DEVICE)));
        assert_eq!(choose(Some(2), OWN, &others), Ok(Choice::Add(2)));
        for number in [0, 1] {
            let error = choose(Some(number), OWN, &others).unwrap_err();
            assert!(error.reason.contains(&format!("ublkb{number} is somebody else's")));
        }
    }
}
