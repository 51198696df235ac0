//! Early warnings by disks, read with smartctl (smartmontools 7 and later) before a member fails.
//!
//! Reported are the disk's own judgement and the signs common to nearly all disks that fail soon:
//! sectors that wait to be moved or could not be (ATA attributes 197 and 198), a critical warning,
//! errors of the medium or no spare left (NVMe), and the list of grown defects (SCSI).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::sinks::Latest;

/// Interval between queries. Disks update their findings in hours.
const INTERVAL: Duration = Duration::from_secs(30 * 60);
/// Interval until an array was seen.
const FIRST: Duration = Duration::from_secs(2);
/// Attributes that count sectors: waiting to be moved, and those that could not be read.
const COUNTED: [(u64, &str); 2] = [(197, "sectors wait to be moved"), (198, "sectors are lost")];

/// Warnings of each member's disk, as of one query; empty if all is well.
pub(super) type Warnings = BTreeMap<String, BTreeSet<String>>;

/// The thread that asks disks.
#[derive(Debug)]
pub(super) struct Smart {
    found: Receiver<Warnings>,
    /// Reported warnings, by member.
    told: Warnings,
}

impl Smart {
    /// Begins to ask the disks of all arrays.
    ///
    /// # Errors
    /// When smartctl cannot be run, or there is no thread.
    pub(super) fn start(smartctl: &Path, latest: Latest, told: Warnings) -> io::Result<Self> {
        let mut version = Command::new(smartctl);
        version.arg("--version").stdin(Stdio::null()).output()?;
        let (sender, found) = mpsc::channel();
        let smartctl = smartctl.to_owned();
        let ask = move || while ask_all(&smartctl, &latest, &sender).is_some() {};
        thread::Builder::new().name("smart".into()).spawn(ask)?;
        Ok(Self { found, told })
    }

    /// Returns warnings found since the last call and not yet reported, with their members.
    pub(super) fn news(&mut self) -> Vec<(String, String)> {
        let mut news = Vec::new();
        for found in self.found.try_iter() {
            for (member, warnings) in &found {
                let told = self.told.get(member);
                let new = warnings.iter().filter(|word| told.is_none_or(|t| !t.contains(*word)));
                news.extend(new.map(|word| (member.clone(), word.clone())));
            }
            self.told = found;
        }
        news
    }

    /// Returns the reported warnings, by member.
    pub(super) const fn told(&self) -> &Warnings {
        &self.told
    }
}

/// Asks all disks, then waits. Returns `None` when the receiver is gone.
fn ask_all(smartctl: &Path, latest: &Latest, sender: &Sender<Warnings>) -> Option<()> {
    let disks: BTreeMap<String, PathBuf> = latest.with(|arrays| {
        let disks = arrays.iter().flat_map(|array| &array.disks);
        disks.map(|(member, disk)| (member.clone(), Path::new("/dev").join(&disk.device))).collect()
    });
    if disks.is_empty() {
        thread::sleep(FIRST);
        return Some(());
    }
    let said = disks.into_iter().map(|(member, disk)| (member, ask(smartctl, &disk)));
    sender.send(said.collect()).ok()?;
    thread::sleep(INTERVAL);
    Some(())
}

/// Returns the warnings of a disk. A sleeping disk is not woken; a disk without an answer has no
/// warnings.
fn ask(smartctl: &Path, disk: &Path) -> BTreeSet<String> {
    let mut command = Command::new(smartctl);
    command.args(["--json=c", "--health", "--attributes", "--nocheck=standby"]).arg(disk);
    let answer = command.stdin(Stdio::null()).output();
    let said = answer.ok().and_then(|answer| serde_json::from_slice(&answer.stdout).ok());
    said.map_or_else(BTreeSet::new, |said| warnings(&said))
}

/// Extracts the warnings from an answer.
fn warnings(said: &Value) -> BTreeSet<String> {
    let mut warnings = BTreeSet::new();
    if said["smart_status"]["passed"] == false {
        warnings.insert("the disk says that it is failing".to_owned());
    }
    for attribute in said["ata_smart_attributes"]["table"].as_array().into_iter().flatten() {
        let id = attribute["id"].as_u64();
        let Some((_, what)) = COUNTED.iter().find(|(counted, _)| Some(*counted) == id) else {
            continue;
        };
        // Some disks keep other figures in the upper half.
        let count = attribute["raw"]["value"].as_u64().unwrap_or(0) & 0xffff_ffff;
        if count > 0 {
            warnings.insert(format!("{count} {what}"));
        }
    }
    let nvme = &said["nvme_smart_health_information_log"];
    let critical = nvme["critical_warning"].as_u64().unwrap_or(0);
    if critical != 0 {
        warnings.insert(format!("a critical warning, {critical:#x}"));
    }
    let counts = [
        (&nvme["media_errors"], "errors of the medium"),
        (&said["scsi_grown_defect_list"], "defects grown"),
    ];
    for (count, what) in counts {
        let count = count.as_u64().unwrap_or(0);
        if count > 0 {
            warnings.insert(format!("{count} {what}"));
        }
    }
    let spare = nvme["available_spare"].as_u64();
    let least = nvme["available_spare_threshold"].as_u64();
    if let (Some(spare), Some(least)) = (spare, least)
        && spare < least
    {
        warnings.insert(format!("{spare} % of the spare blocks are left"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cmd::monitor::tests::script;

    fn words(said: Value) -> Vec<String> {
        warnings(&said).into_iter().collect()
    }

    #[test]
    fn what_disks_of_all_kinds_say_is_understood() {
        let ata = |passed: bool, pending: u64| {
            json!({
                "smart_status": { "passed": passed },
                "ata_smart_attributes": { "table": [
                    { "id": 5, "raw": { "value": 7 } },
                    { "id": 197, "raw": { "value": pending } },
                    { "id": 198, "raw": { "value": 3u64 << 32 } },
                ] },
            })
        };
        assert!(words(ata(true, 0)).is_empty());
        assert_eq!(words(ata(true, 8)), ["8 sectors wait to be moved"]);
        assert_eq!(words(ata(false, 0)), ["the disk says that it is failing"]);
        let nvme = |critical: u64, spare: u64, errors: u64| {
            json!({ "nvme_smart_health_information_log": {
                "critical_warning": critical, "available_spare": spare,
                "available_spare_threshold": 10, "media_errors": errors,
            } })
        };
        assert!(words(nvme(0, 100, 0)).is_empty());
        let all = ["2 errors of the medium", "9 % of the spare blocks are left"];
        assert_eq!(words(nvme(0, 9, 2)), all);
        assert_eq!(words(nvme(4, 100, 0)), ["a critical warning, 0x4"]);
        assert_eq!(words(json!({ "scsi_grown_defect_list": 1 })), ["1 defects grown"]);
        assert!(words(json!([])).is_empty() && words(json!("no")).is_empty());
    }

    #[test]
    fn smartctl_is_asked_and_what_was_told_is_not_told_again() {
        let says = "test \"$5\" = /dev/sdx && echo '{\"smart_status\":{\"passed\":false}}'";
        let (dir, smartctl) = script(says);
        assert_eq!(ask(&smartctl, Path::new("/dev/sdx")).len(), 1);
        assert!(ask(&smartctl, Path::new("/dev/sdy")).is_empty());
        let missing = dir.path().join("none");
        assert!(Smart::start(&missing, Latest::default(), Warnings::new()).is_err());

        let (sender, found) = mpsc::channel();
        let mut smart = Smart { found, told: Warnings::new() };
        let says = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            sender.send(Warnings::from([("/dev/sda1".to_owned(), words)])).unwrap();
        };
        let news = |words: &[&str]| -> Vec<(String, String)> {
            words.iter().map(|word| ("/dev/sda1".to_owned(), (*word).to_owned())).collect()
        };
        says(&["a"]);
        assert_eq!(smart.news(), news(&["a"]));
        says(&["a", "b"]);
        assert_eq!(smart.news(), news(&["b"]));
        says(&[]);
        says(&["a"]);
        assert_eq!(smart.news(), news(&["a"]), "it was well meanwhile");
        assert_eq!(smart.told().len(), 1);
    }
}
