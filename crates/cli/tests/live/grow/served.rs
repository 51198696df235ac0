//! A running array that is to change, [`Served`].

use std::fs::File;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::export::{connect, fill, noise, read};
use crate::support::{Lab, fingerprint, until};

/// A running array `x`, full of noise.
pub(super) struct Served {
    pub(super) lab: Lab,
    pub(super) members: Vec<PathBuf>,
    pub(super) socket: PathBuf,
    pub(super) content: Vec<u8>,
}

impl Served {
    /// `shape` are the options of `create`, for this number of files of 16 MiB.
    pub(super) fn new(shape: &str, count: usize) -> Self {
        let lab = Lab::new();
        let members = lab.members("m", count, 16);
        lab.ok(&format!("create x {shape} -n {count} --assume-clean"), &members);
        let socket = lab.path("nbd");
        let mut served = Self { lab, members, socket, content: Vec::new() };
        served.assemble();
        served.content = noise(served.size());
        fill(&served.socket, "x", &served.content);
        served
    }

    pub(super) fn assemble(&self) {
        let export = format!("assemble x --export nbd:unix:{}", self.socket.display());
        self.lab.ok(&export, &self.members);
    }

    pub(super) fn status(&self) -> Value {
        serde_json::from_slice(&self.lab.ok("status x --json", &[])).expect("JSON")
    }

    pub(super) fn size(&self) -> usize {
        self.status()["size_bytes"].as_u64().expect("a size") as usize
    }

    /// Waits until the superblocks say clean: nothing is written by itself from then on.
    pub(super) fn rest(&self) {
        until("the array is clean", || self.status()["state"][0] == "clean");
    }

    /// A file of this size, which a change may add.
    pub(super) fn device(&self, name: &str, mib: u64) -> PathBuf {
        let path = self.lab.path(name);
        File::create(&path).and_then(|file| file.set_len(mib << 20)).expect("a device");
        path
    }

    /// Does it, first only as a plan, which writes nothing. Returns what was said.
    pub(super) fn grow(&mut self, words: &str, added: &[PathBuf]) -> String {
        self.rest();
        let mut words = format!("grow x {words}");
        for device in added {
            words += &format!(" --add {}", device.display());
        }
        let all: Vec<&PathBuf> = self.members.iter().chain(added).collect();
        let prints = || all.iter().map(|path| fingerprint(path)).collect::<Vec<_>>();
        let before = prints();
        let plan = self.lab.ok_text(&format!("{words} --dry-run"), &[]);
        assert_eq!(before, prints(), "{words} --dry-run wrote something");
        let (planned, last) = plan.trim_end().rsplit_once('\n').expect("lines");
        assert_eq!(last, "nothing was changed; without --dry-run it is done");
        let said = self.lab.ok_text(&format!("{words} --wait"), &[]);
        assert!(said.starts_with(planned), "{plan}{said}");
        self.members.extend_from_slice(added);
        said
    }

    /// Compares what can be read through the export with what was written.
    pub(super) fn compare(&self, what: &str) {
        let mut stream = connect(&self.socket, "x", self.size());
        for (number, part) in self.content.chunks(1 << 20).enumerate() {
            let found = read(&mut stream, (number << 20) as u64, part.len()).expect("readable");
            assert!(found == part, "{what}: MiB {number} differs");
        }
    }

    /// The shape as `status` has it: level, layout, members.
    pub(super) fn shape(&self) -> (String, String, u64) {
        let status = self.status();
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        (text("level"), text("layout"), status["raid_devices"].as_u64().expect("members"))
    }

    /// Has this shape, its content and redundancy that fits, also after a stop.
    pub(super) fn is(&self, shape: (&str, &str, u64)) {
        for what in ["grown", "assembled again"] {
            let (level, layout, members) = self.shape();
            assert_eq!((level.as_str(), layout.as_str(), members), shape, "{what}");
            let status = self.status();
            assert_eq!(status["sync"]["action"], "idle", "{what}: --wait waits");
            assert!(!status["state"].as_array().unwrap().contains(&"degraded".into()), "{what}");
            self.compare(what);
            self.lab.ok("check x --wait", &[]);
            self.lab.ok("stop x", &[]);
            self.assemble();
        }
    }

    pub(super) fn log(&self) -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir(self.lab.path("run")).expect("a run directory").flatten() {
            if entry.path().extension().is_some_and(|it| it == "log") {
                text += &std::fs::read_to_string(entry.path()).unwrap_or_default();
            }
        }
        text
    }
}
