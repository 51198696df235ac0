//! Hardware of a block device: the data on its label, and the place where it is plugged in.
//!
//! All of it is read in sysfs (the kernel's ABI documents sysfs-block, sysfs-bus-scsi and
//! sysfs-class-enclosure; `drivers/nvme/host/sysfs.c`). A partition is on the disk that it is a
//! part of; a device made of several disks (md, device mapper, loop) has no label.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use braid_array::status::Status;
use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

use crate::sysfs::BlockDevice;

/// The serial number's page of vital product data: four bytes, then the number (SPC-4, 7.8.15).
const SERIAL_PAGE_HEAD_BYTES: usize = 4;

/// Description of a disk, with the fields that its driver supplies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Present name: `sda`.
    pub device: String,
    /// Vendor and model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// World-wide name: `naa.5000c500a1b2c3d4`, `eui.0025385b21404321`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    /// Slot in an enclosure: `Slot 03`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
}

impl Disk {
    /// The disk that a block device is, or is on. `None` for a file, and for a disk without a
    /// label. Only paths in `/dev` are looked up: others may lie on a file system that never
    /// answers.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        path.starts_with("/dev").then_some(())?;
        Self::at(&whole_disk(path)?)
    }

    /// Reads the description from the disk's directory in sysfs.
    fn at(place: &Path) -> Option<Self> {
        let hardware = place.join("device");
        let word = |path: &Path| {
            let text = fs::read_to_string(path).ok()?;
            let text = printable(text.as_bytes());
            (!text.is_empty()).then_some(text)
        };
        let model = [word(&hardware.join("vendor")), word(&hardware.join("model"))];
        // Numbers, where it is PCI's; ATA for all of SATA.
        let says_nothing = |word: &String| word.starts_with("0x") || word == "ATA";
        let model: Vec<String> =
            model.into_iter().flatten().filter(|word| !says_nothing(word)).collect();
        let serial = word(&hardware.join("serial"))
            .or_else(|| word(&place.join("serial")))
            .or_else(|| serial_page(&hardware.join("vpd_pg80")));
        let disk = Self {
            device: place.file_name()?.to_str()?.to_owned(),
            model: (!model.is_empty()).then(|| model.join(" ")),
            serial,
            wwn: word(&place.join("wwid")).or_else(|| word(&hardware.join("wwid"))),
            slot: slot(&hardware).and_then(|slot| Some(slot.file_name()?.to_str()?.to_owned())),
        };
        let has_label = disk.model.is_some() || disk.serial.is_some() || disk.wwn.is_some();
        has_label.then_some(disk)
    }

    /// Returns the data on its label and its place, in a line.
    #[must_use]
    pub fn label(&self) -> String {
        let serial = self.serial.as_ref().map(|serial| format!("serial {serial}"));
        let slot = self.slot.as_ref().map(|slot| format!("in {slot}"));
        let words = [self.model.clone(), serial, self.wwn.clone(), slot];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Returns whether udev has looked at a block device and made its names (`/dev/disk/by-id`). While
/// the device is locked, udev does not look (<https://systemd.io/BLOCK_DEVICE_LOCKING>). True for
/// files, and where there is no udev.
#[must_use]
pub fn is_named(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return true };
    if !metadata.file_type().is_block_device() || !Path::new("/run/udev/control").exists() {
        return true;
    }
    let number = metadata.rdev();
    Path::new(&format!("/run/udev/data/b{}:{}", major(number), minor(number))).exists()
}

/// The file that lights the lamp of the slot that a block device is in (`1`), and puts it out
/// (`0`); where its enclosure has one.
#[must_use]
pub fn lamp(path: &Path) -> Option<PathBuf> {
    let hardware = whole_disk(path)?.join("device");
    Some(slot(&hardware)?.join("locate")).filter(|lamp| lamp.exists())
}

/// Returns the directory in sysfs of the disk that a block device is, or is a part of.
fn whole_disk(path: &Path) -> Option<PathBuf> {
    let metadata = fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then_some(())?;
    let device = BlockDevice::of(metadata.rdev())?;
    let disk = device.disk().map_or(device, |(disk, _)| disk);
    Some(disk.entry().to_owned())
}

/// The slot of an enclosure, which the disk has a link to.
fn slot(hardware: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(hardware).ok()?;
    let is_slot = |name: &str| name.starts_with("enclosure_device:");
    let link = entries.flatten().find(|entry| entry.file_name().to_str().is_some_and(is_slot))?;
    fs::canonicalize(link.path()).ok()
}

fn serial_page(path: &Path) -> Option<String> {
    let page = fs::read(path).ok()?;
    let text = printable(page.get(SERIAL_PAGE_HEAD_BYTES..)?);
    (!text.is_empty()).then_some(text)
}

/// Removes characters from a device's text that would disturb a terminal or a table.
fn printable(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_ascii_graphic() { c } else { ' ' })
        .collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Disks of an array's members, as they were found first. Lost disks stay known, and a disk that
/// hangs delays nothing.
#[derive(Debug, Default)]
pub struct Disks(Mutex<BTreeMap<String, Option<Disk>>>);

impl Disks {
    /// Returns the disks of the members that an array has now.
    #[must_use]
    pub fn of_members(array: &Status) -> Self {
        let disks = Self::default();
        disks.of(array);
        disks
    }

    /// Returns the disks of an array's members, by the path of the member.
    pub fn of(&self, array: &Status) -> BTreeMap<String, Disk> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = BTreeMap::new();
        let mut arrays = vec![array];
        while let Some(array) = arrays.pop() {
            arrays.extend(&array.children);
            for member in array.members.iter().map(|member| member.device.as_str()) {
                let disk = known.get(member).cloned().unwrap_or_else(|| Disk::of(member.as_ref()));
                found.insert(member.to_owned(), disk);
            }
        }
        known.clone_from(&found);
        found.into_iter().filter_map(|(member, disk)| Some((member, disk?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use braid_array::MemberId;
    use braid_array::status::{MemberState, MemberStatus};

    use super::*;

    /// A sysfs with one disk.
    struct Sysfs(tempfile::TempDir);

    const DISK: &str = "devices/pci/host0/block/sdb";

    impl Sysfs {
        fn with(files: &[(&str, &[u8])]) -> Self {
            let sysfs = Self(tempfile::tempdir().unwrap());
            let block = sysfs.at(DISK);
            fs::create_dir_all(&block).unwrap();
            for (name, content) in files {
                let path = block.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            sysfs
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn disk(&self) -> Option<Disk> {
            Disk::at(&self.at(DISK))
        }
    }

    #[test]
    fn a_disk_behind_scsi_is_known_by_its_pages_and_its_slot() {
        let page = b"\0\x80\0\x14     WD-WCC4E1234567\0";
        let sysfs = Sysfs::with(&[
            ("device/vendor", b"ATA     \n"),
            ("device/model", b"WDC WD40EFRX-68W\n"),
            ("device/vpd_pg80", page),
            ("device/wwid", b"naa.50014ee2b1234567\n"),
        ]);
        let slot = sysfs.at("devices/enclosure/0:0:24:0/Slot 03");
        fs::create_dir_all(&slot).unwrap();
        let hardware = sysfs.at(DISK).join("device");
        symlink(&slot, hardware.join("enclosure_device:Slot 03")).unwrap();
        let disk = sysfs.disk().unwrap();
        assert_eq!(
            disk.label(),
            "WDC WD40EFRX-68W, serial WD-WCC4E1234567, naa.50014ee2b1234567, in Slot 03"
        );
        assert_eq!(disk.device, "sdb");
    }

    #[test]
    fn nvme_and_virtio_say_it_elsewhere() {
        let nvme = Sysfs::with(&[
            ("device/model", b"Samsung SSD 980 PRO 1TB                 \n"),
            ("device/serial", b"S5P2NG0R123456X     \n"),
            ("wwid", b"eui.002538b111b2c3d4\n"),
        ]);
        let label = "Samsung SSD 980 PRO 1TB, serial S5P2NG0R123456X, eui.002538b111b2c3d4";
        assert_eq!(nvme.disk().unwrap().label(), label);
        let virtio = Sysfs::with(&[("device/vendor", b"0x1af4\n"), ("serial", b"home\x1b[2J\n")]);
        assert_eq!(virtio.disk().unwrap().label(), "serial home [2J");
    }

    #[test]
    fn what_has_no_label_is_no_disk() {
        assert_eq!(Sysfs::with(&[]).disk(), None);
        assert_eq!(Sysfs::with(&[("device/vpd_pg80", b"\0\x80")]).disk(), None);
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!((Disk::of(file.path()), lamp(file.path())), (None, None));
    }

    #[test]
    fn a_disk_that_is_gone_is_known_until_its_member_is() {
        let disks = Disks::default();
        let disk = Disk { device: "sdb".to_owned(), ..Disk::default() };
        disks.0.lock().unwrap().insert("/dev/gone".to_owned(), Some(disk.clone()));
        let array = |members: &[&str]| {
            let member = |device: &&str| {
                MemberStatus::new(MemberId(0), (*device).to_owned(), MemberState::Spare)
            };
            Status { members: members.iter().map(member).collect(), ..Status::blank() }
        };
        let within = array(&["/dev/gone", "node://a:1/v", "mem:1"]);
        let expected = BTreeMap::from([("/dev/gone".to_owned(), disk)]);
        assert_eq!(disks.of(&within), expected);
        let above = Status { children: vec![within], ..Status::blank() };
        assert_eq!(disks.of(&above), expected);
        assert_eq!(disks.of(&Status::blank()), BTreeMap::new());
        assert_eq!(disks.of(&above), BTreeMap::new());
    }
}
