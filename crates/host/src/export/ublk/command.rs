//! Commands by which devices are made, taken over and taken away, and their data. No I/O.
//!
//! Source: as in [`proto`](super::proto).

#![expect(clippy::host_endian_bytes, reason = "kernel and program are on one machine")]

use rustix::ioctl::{Opcode, opcode};

use super::proto::GROUP;

/// `struct ublksrv_ctrl_cmd`: device (32 bits), queue, length of the data at the address (16 bits
/// each), address, one number (64 bits each), and fields for users other than root.
pub(super) const COMMAND_BYTES: usize = 32;
/// `struct ublksrv_ctrl_dev_info`.
pub(super) const INFO_BYTES: usize = 64;
/// `struct ublk_params` as far as we fill it: header, basic, discard.
pub(super) const PARAMETERS_BYTES: usize = 60;
/// `UBLK_FEATURES_LEN`.
pub(super) const FEATURES_BYTES: usize = 8;

/// Number for no queue in particular, and the one for no device in particular.
const NO_QUEUE: u16 = u16::MAX;
pub(super) const ANY_DEVICE: u32 = u32::MAX;

/// `UBLK_F_USER_RECOVERY`, `UBLK_F_USER_RECOVERY_REISSUE`: the device outlives its server, and
/// requests that the server had not answered are repeated.
const RECOVERY: u64 = 1 << 3 | 1 << 4;
/// `UBLK_F_CMD_IOCTL_ENCODE`: commands have the numbers that we give them.
const IOCTL_NUMBERS: u64 = 1 << 6;
/// `UBLK_F_USER_COPY`: the server moves data itself.
const USER_COPY: u64 = 1 << 7;
/// Features of a device of ours.
pub(super) const FEATURES: u64 = RECOVERY | IOCTL_NUMBERS | USER_COPY;

/// `UBLK_F_UPDATE_SIZE`, of newer drivers: a disk can get another size while it is used.
pub(super) const UPDATE_SIZE: u64 = 1 << 10;

/// A command. For commands that carry more than a number, the structure at their address is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UblkCommand {
    /// Tell all features of the driver: 8 bytes.
    Features,
    /// Make a device: [`DeviceInfo`], which comes back as it was made.
    Add,
    /// Get the description of a device: [`DeviceInfo`].
    Info,
    /// Set the parameters of the disk: [`Parameters`].
    SetParameters,
    /// Get the parameters of the disk: [`Parameters`].
    Parameters,
    /// Make the disk. Waits until the server waits for requests of every tag.
    Start {
        /// The server.
        pid: u32,
    },
    /// Change the size of the disk, which must be there.
    UpdateSize {
        /// The new size.
        sectors: u64,
    },
    /// Take the disk away. Waits until the server has answered all requests.
    Stop,
    /// Take the device away. Waits until it is no longer open.
    Delete,
    /// Forget the server that has died.
    StartRecovery,
    /// Go on with a new server. Waits as `Start` does.
    EndRecovery {
        /// The server.
        pid: u32,
    },
}

impl UblkCommand {
    pub(super) const fn code(self) -> Opcode {
        let number = match self {
            Self::Add => 0x04,
            Self::Delete => 0x05,
            Self::Start { .. } => 0x06,
            Self::Stop => 0x07,
            Self::SetParameters => 0x08,
            Self::StartRecovery => 0x10,
            Self::EndRecovery { .. } => 0x11,
            Self::UpdateSize { .. } => 0x15,
            Self::Info => return opcode::read::<[u8; COMMAND_BYTES]>(GROUP, 0x02),
            Self::Parameters => return opcode::read::<[u8; COMMAND_BYTES]>(GROUP, 0x09),
            Self::Features => return opcode::read::<[u8; COMMAND_BYTES]>(GROUP, 0x13),
        };
        opcode::read_write::<[u8; COMMAND_BYTES]>(GROUP, number)
    }

    /// Encodes the command for a device, with its data at this address.
    pub(super) fn encode(self, device: u32, address: u64, len: usize) -> [u8; COMMAND_BYTES] {
        let number = match self {
            Self::Start { pid } | Self::EndRecovery { pid } => u64::from(pid),
            Self::UpdateSize { sectors } => sectors,
            _ => 0,
        };
        let len = u16::try_from(len).expect("what commands carry is short");
        let mut bytes = [0; COMMAND_BYTES];
        bytes[..4].copy_from_slice(&device.to_ne_bytes());
        bytes[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
        bytes[6..8].copy_from_slice(&len.to_ne_bytes());
        bytes[8..16].copy_from_slice(&address.to_ne_bytes());
        bytes[16..24].copy_from_slice(&number.to_ne_bytes());
        bytes
    }
}

/// State of a device: with or without a disk, and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceState {
    /// No disk yet, or no longer.
    Dead,
    /// Disk and server.
    Live,
    /// Its disk waits for a new server.
    Quiesced,
    /// A state that no device of ours has.
    Other(u16),
}

/// Description of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    /// Tags of each queue.
    pub(super) depth: u16,
    pub(super) state: DeviceState,
    pub(super) most_bytes: u32,
    pub(super) device: u32,
    /// The server, when there is one.
    pub(super) pid: i32,
    pub(super) features: u64,
    /// Value that its server keeps there (`ublksrv_flags`); ours keep a mark of the owner.
    pub(super) mark: u64,
}

impl DeviceInfo {
    pub(super) fn encode(&self) -> [u8; INFO_BYTES] {
        let state = match self.state {
            DeviceState::Dead => 0,
            DeviceState::Live => 1,
            DeviceState::Quiesced => 2,
            DeviceState::Other(state) => state,
        };
        let mut bytes = [0; INFO_BYTES];
        bytes[..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[4..6].copy_from_slice(&u16::to_ne_bytes(state));
        bytes[8..12].copy_from_slice(&self.most_bytes.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.device.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.pid.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.features.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.mark.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; INFO_BYTES]) -> Self {
        let short = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two"));
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
        let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight"));
        Self {
            queues: short(0),
            depth: short(2),
            state: match short(4) {
                0 => DeviceState::Dead,
                1 => DeviceState::Live,
                2 => DeviceState::Quiesced,
                other => DeviceState::Other(other),
            },
            most_bytes: word(8),
            device: word(12),
            pid: word(16).cast_signed(),
            features: long(24),
            mark: long(32),
        }
    }
}

/// Parameters of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) read_only: bool,
    pub(super) sectors: u64,
    /// Powers of two: the smallest request, the smallest write without a read around it, and the
    /// shortest and the best request for programs that have the choice.
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) shortest_shift: u8,
    pub(super) best_shift: u8,
    /// Reads and writes are no longer than this.
    pub(super) most_sectors: u32,
    /// Discards are of whole ones of these; of none without.
    pub(super) discard_bytes: u32,
    pub(super) most_discard_sectors: u32,
}

/// `UBLK_PARAM_TYPE_BASIC`, `UBLK_PARAM_TYPE_DISCARD`.
const BASIC: u32 = 1 << 0;
const DISCARD: u32 = 1 << 1;
/// `UBLK_ATTR_READ_ONLY`; and `UBLK_ATTR_VOLATILE_CACHE`, `UBLK_ATTR_FUA`: flushes are asked for,
/// and single writes that are durable when they complete.
const READ_ONLY: u32 = 1 << 0;
const CACHE: u32 = 1 << 2 | 1 << 3;

impl Parameters {
    pub(super) fn encode(&self) -> [u8; PARAMETERS_BYTES] {
        let mut bytes = [0; PARAMETERS_BYTES];
        let mut put = |at: usize, word: u32| {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        };
        put(0, PARAMETERS_BYTES as u32);
        put(4, if self.read_only { BASIC } else { BASIC | DISCARD });
        put(8, if self.read_only { CACHE | READ_ONLY } else { CACHE });
        put(16, self.most_sectors);
        if !self.read_only {
            put(44, self.discard_bytes);
            // Discards, then zeroes to be written.
            put(48, self.most_discard_sectors);
            put(52, self.most_discard_sectors);
            // One range each.
            bytes[56..58].copy_from_slice(&1u16.to_ne_bytes());
        }
        let shifts =
            [self.logical_shift, self.physical_shift, self.best_shift, self.shortest_shift];
        bytes[12..16].copy_from_slice(&shifts);
        bytes[24..32].copy_from_slice(&self.sectors.to_ne_bytes());
        bytes
    }

    /// Returns whether a disk that was made with `bytes` can be served with these parameters. A
    /// smaller one can: the array has grown since.
    pub(super) fn serve(&self, bytes: &[u8; PARAMETERS_BYTES]) -> bool {
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
        let read_only = word(8) & READ_ONLY != 0;
        sectors_of(bytes) <= self.sectors
            && bytes[12] >= self.logical_shift
            && word(16) <= self.most_sectors
            && (read_only || !self.read_only)
    }
}

/// Returns the size of a disk that was made with these parameters.
pub(super) fn sectors_of(bytes: &[u8; PARAMETERS_BYTES]) -> u64 {
    u64::from_ne_bytes(bytes[24..32].try_into().expect("eight"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: Parameters = Parameters {
        read_only: false,
        sectors: 0x0102_0304_0506,
        logical_shift: 9,
        physical_shift: 12,
        shortest_shift: 16,
        best_shift: 18,
        most_sectors: 2048,
        discard_bytes: 4096,
        most_discard_sectors: 1 << 22,
    };

    #[test]
    fn commands_are_as_the_kernel_has_them() {
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!(UblkCommand::Add.code(), 0xc020_7504);
            assert_eq!(UblkCommand::Info.code(), 0x8020_7502);
            assert_eq!(UblkCommand::Features.code(), 0x8020_7513);
            assert_eq!(UblkCommand::EndRecovery { pid: 1 }.code(), 0xc020_7511);
            assert_eq!(UblkCommand::Delete.code(), 0xc020_7505);
            assert_eq!(UblkCommand::UpdateSize { sectors: 1 }.code(), 0xc020_7515);
        }
        let bytes = UblkCommand::Start { pid: 77 }.encode(3, 0x1122_3344_5566_7788, 60);
        assert_eq!(bytes[..4], 3u32.to_ne_bytes());
        assert_eq!(bytes[4..6], [0xff; 2]);
        assert_eq!(bytes[6..8], 60u16.to_ne_bytes());
        assert_eq!(bytes[8..16], 0x1122_3344_5566_7788u64.to_ne_bytes());
        assert_eq!(bytes[16..24], 77u64.to_ne_bytes());
        assert_eq!(bytes[24..], [0; 8]);
        let sectors = 0x0102_0304_0506;
        let bytes = UblkCommand::UpdateSize { sectors }.encode(3, 0, 0);
        assert_eq!(bytes[16..24], sectors.to_ne_bytes());
    }

    #[test]
    fn what_a_device_is_comes_back() {
        for state in
            [DeviceState::Dead, DeviceState::Live, DeviceState::Quiesced, DeviceState::Other(3)]
        {
            let info = DeviceInfo {
                queues: 1,
                depth: 128,
                state,
                most_bytes: 1 << 20,
                device: 7,
                pid: -1,
                features: FEATURES,
                mark: 0xfeed_0000_0000_0001,
            };
            assert_eq!(DeviceInfo::decode(&info.encode()), info);
        }
    }

    #[test]
    fn parameters_lie_where_the_kernel_reads_them() {
        let bytes = PARAMETERS.encode();
        assert_eq!(bytes[..4], 60u32.to_ne_bytes());
        assert_eq!(bytes[4..8], 3u32.to_ne_bytes());
        assert_eq!(bytes[8..12], 0xcu32.to_ne_bytes());
        assert_eq!(bytes[12..16], [9, 12, 18, 16]);
        assert_eq!(bytes[16..20], 2048u32.to_ne_bytes());
        assert_eq!(bytes[20..24], [0; 4], "requests may cross chunks");
        assert_eq!(bytes[24..32], 0x0102_0304_0506u64.to_ne_bytes());
        assert_eq!(bytes[44..48], 4096u32.to_ne_bytes());
        assert_eq!(bytes[56..58], 1u16.to_ne_bytes());
        let read_only = Parameters { read_only: true, ..PARAMETERS }.encode();
        assert_eq!([read_only[4], read_only[8]], [1, 0xd]);
        assert_eq!(read_only[40..], [0; 20]);
    }

    #[test]
    fn a_disk_is_served_on_if_its_requests_fit() {
        let serve = |disk: Parameters| PARAMETERS.serve(&disk.encode());
        assert!(serve(PARAMETERS));
        assert!(serve(Parameters { read_only: true, best_shift: 20, ..PARAMETERS }));
        assert!(serve(Parameters { logical_shift: 12, most_sectors: 1024, ..PARAMETERS }));
        assert!(
            serve(Parameters { sectors: PARAMETERS.sectors - 8, ..PARAMETERS }),
            "it has grown"
        );
        assert!(!serve(Parameters { sectors: PARAMETERS.sectors + 8, ..PARAMETERS }));
        assert!(!serve(Parameters { most_sectors: 4096, ..PARAMETERS }));
        let coarse = Parameters { logical_shift: 12, ..PARAMETERS };
        assert!(!coarse.serve(&PARAMETERS.encode()), "smaller requests may come");
        let read_only = Parameters { read_only: true, ..PARAMETERS };
        assert!(!read_only.serve(&PARAMETERS.encode()), "writes may come");
    }
}
