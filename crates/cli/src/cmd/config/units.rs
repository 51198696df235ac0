//! `braid config units`: the units that systemd starts at boot, with their order. Called by a
//! generator (systemd.generator(7)) before anything else runs, so it reads the file alone.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use braid_host::serve::ExportPlace;

use crate::config::{ArrayEntry, Config, NodeEntry};
use crate::failure::{Failure, system_error};
use crate::output;

const OPERATION: &str = "config units";
/// Where links lead; systemd goes by their names.
const UNITS: &str = "/usr/lib/systemd/system";
/// A part of systemd from version 255 on, which can spare processes from the final kill signal, for
/// file systems that cannot be unmounted. Older versions complain about the unknown setting.
const SINCE_255: &str = "/usr/lib/systemd/systemd-executor";
/// Directories that exist before any file system is mounted.
const EARLY: [&str; 3] = ["/dev", "/run", "/sys"];

pub(super) fn run(file: &Path, dir: &Path) -> Result<(), Failure> {
    // No file, no arrays.
    let Some(config) = Config::if_there(file) else { return Ok(()) };
    for problem in &config.problems {
        output::failure(&problem.failure(OPERATION, file));
    }
    let startable = |name: &str| config.problem(name).is_none();
    let nodes: Vec<&NodeEntry> =
        config.nodes.iter().filter(|entry| startable(&entry.name)).collect();
    let mut units = Vec::new();
    for entry in config.arrays.iter().filter(|entry| startable(&entry.name)) {
        units.push(of_array(entry, &nodes));
    }
    units.extend(nodes.iter().map(|entry| of_node(entry)));
    units.iter().try_for_each(|unit| unit.write(dir)).map_err(|error| {
        let next = "name a directory that may be written to";
        Failure::refused(OPERATION, dir.display(), system_error(&error), next)
    })
}

/// Unit file of one array or node.
struct Unit {
    service: String,
    /// Below `[Unit]`.
    text: String,
    /// Links: the wanting unit of each.
    wanted: Vec<(&'static str, String)>,
}

impl Unit {
    fn write(&self, dir: &Path) -> io::Result<()> {
        let part = dir.join(format!("{}.d", self.service));
        std::fs::create_dir_all(&part)?;
        std::fs::write(part.join("50-arrays-toml.conf"), format!("[Unit]\n{}", self.text))?;
        for (by, unit) in &self.wanted {
            let wants = dir.join(format!("{by}.wants"));
            std::fs::create_dir_all(&wants)?;
            let link = wants.join(unit);
            if !link.is_symlink() {
                symlink(Path::new(UNITS).join(template(unit)), link)?;
            }
        }
        Ok(())
    }
}

/// `braid@home.service` comes from `braid@.service`.
fn template(unit: &str) -> String {
    match (unit.split_once('@'), unit.rsplit_once('.')) {
        (Some((template, _)), Some((_, kind))) => format!("{template}@.{kind}"),
        _ => unit.to_owned(),
    }
}

fn of_array(entry: &ArrayEntry, nodes: &[&NodeEntry]) -> Unit {
    let service = format!("braid@{}.service", entry.name);
    let members = entry.members.iter().map(|member| Path::new(&member.value));
    let places = entry.exports.iter().filter_map(|export| match &export.value.place {
        ExportPlace::NbdUnix(path) | ExportPlace::Fuse(path) | ExportPlace::VhostUser(path) => {
            Some(path.as_path())
        }
        ExportPlace::NbdTcp(_) | ExportPlace::Ublk(_) => None,
    });
    let over_nodes = entry.is_over_nodes();
    let named = members.filter(|_: &&Path| !over_nodes);
    let key = entry.of_nodes.key.as_deref();
    // Of a mount that it makes itself, only what is around it must be there before.
    let paths = named.chain(places).filter_map(Path::parent).chain(key);
    let mut text = after_mounts(paths);
    if over_nodes {
        text.push_str("Wants=network-online.target\nAfter=network-online.target\n");
        text.push_str("Before=remote-fs-pre.target\nWants=remote-fs-pre.target\n");
        // Its members may be on any of this machine's, which must not stop before it has.
        for node in nodes {
            let _ = writeln!(text, "After=braid-node@{}.service", node.name);
        }
    } else if !text.contains("RequiresMountsFor") {
        text.push_str("Before=local-fs-pre.target\nWants=local-fs-pre.target\n");
    }
    if Path::new(SINCE_255).exists() {
        text.push_str("SurviveFinalKillSignal=yes\n");
    }
    let mut wanted = Vec::new();
    if entry.boot {
        wanted.push(("braid.target", service.clone()));
        wanted.push(("multi-user.target", "braid.target".to_owned()));
    }
    if entry.scrub {
        wanted.push(("timers.target", format!("braid-scrub@{}.timer", entry.name)));
    }
    Unit { service, text, wanted }
}

fn of_node(entry: &NodeEntry) -> Unit {
    let service = format!("braid-node@{}.service", entry.name);
    let paths = [entry.store.as_deref(), entry.key.as_deref()];
    let text = after_mounts(paths.into_iter().flatten());
    let mut wanted = Vec::new();
    if entry.boot {
        wanted.push(("braid.target", service.clone()));
        wanted.push(("multi-user.target", "braid.target".to_owned()));
    }
    Unit { service, text, wanted }
}

/// File systems that must be mounted first.
fn after_mounts<'a>(paths: impl Iterator<Item = &'a Path>) -> String {
    let late = |path: &&Path| !EARLY.iter().any(|early| path.starts_with(early));
    let paths: BTreeSet<PathBuf> = paths.filter(late).map(Path::to_owned).collect();
    paths.iter().fold(String::new(), |mut text, path| {
        let path = path.display().to_string().replace('%', "%%").replace('"', "\\\"");
        let _ = writeln!(text, "RequiresMountsFor=\"{path}\"");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("arrays.toml");
        std::fs::write(&file, text).unwrap();
        let to = dir.path().join("units");
        run(&file, &to).unwrap();
        (dir, to)
    }

    fn text(dir: &Path, service: &str) -> String {
        let path = dir.join(format!("{service}.d/50-arrays-toml.conf"));
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn each_entry_is_wanted_at_boot_after_what_it_needs() {
        let (_dir, to) = written(
            "[array.home]\nmembers = [\"/dev/sda\", \"/dev/sdb\"]\nexports = \"ublk:1\"\n\
             [array.img]\nmembers = [\"/srv/a 1/m\"]\nexports = \"fuse:/mnt/x\"\nboot = false\n\
             [array.far]\nmembers = [\"node://h:1/v\"]\nscrub = false\n\
             [node.n1]\nlisten = \"h:1\"\nstore = \"/srv/n\"\n\
             [array.bad]\nx = 1\n",
        );
        assert!(text(&to, "braid@home.service").contains("Before=local-fs-pre.target"));
        let img = text(&to, "braid@img.service");
        assert!(img.contains("RequiresMountsFor=\"/srv/a 1\"\n"), "{img}");
        assert!(img.contains("RequiresMountsFor=\"/mnt\"\n") && !img.contains("local-fs"), "{img}");
        let far = text(&to, "braid@far.service");
        assert!(far.contains("After=network-online.target"), "{far}");
        assert!(far.contains("After=braid-node@n1.service\n"), "{far}");
        assert!(!img.contains("braid-node@"), "{img}");
        assert!(text(&to, "braid-node@n1.service").contains("RequiresMountsFor=\"/srv/n\""));
        let linked = |link: &str| to.join(link).read_link().ok();
        let units = Path::new(UNITS);
        let wants = "braid.target.wants/";
        let at = |unit| linked(&format!("{wants}{unit}"));
        assert_eq!(at("braid@home.service"), Some(units.join("braid@.service")));
        assert_eq!(at("braid-node@n1.service"), Some(units.join("braid-node@.service")));
        assert_eq!((at("braid@img.service"), at("braid@bad.service")), (None, None));
        let timer = |name: &str| linked(&format!("timers.target.wants/braid-scrub@{name}.timer"));
        assert_eq!(timer("home"), Some(units.join("braid-scrub@.timer")));
        assert_eq!(timer("far"), None);
        assert!(linked("multi-user.target.wants/braid.target").is_some());
    }

    #[test]
    fn what_is_not_there_starts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        run(&dir.path().join("none"), dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
