//! Entries of `/etc/braid/arrays.toml`, as `braid detail --scan --toml` prints them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use braid_array::format::Superblock;
use braid_host::control::wire::ControlStatus;
use braid_host::limits::Limit;

use super::shape;

/// Where udev keeps names of devices that stay.
const BY_ID: &str = "/dev/disk/by-id";

/// Returns the entry of a running array, with its exports and limits. Limits are `shown` as they
/// are typed.
pub(crate) fn of_running(array: &ControlStatus, shown: fn(&Limit) -> String) -> String {
    let status = &array.array;
    let arrays = std::iter::once(status).chain(&status.children);
    let members = arrays.flat_map(|array| &array.members);
    // Of an array within an array only the devices are members of anything that can be named.
    let names = status.children.iter().map(|child| child.short_name()).collect::<Vec<_>>();
    let members = members.map(|member| &member.device).filter(|device| !names.contains(device));
    let mut text = head(&array.name, &status.superblock, members.map(PathBuf::from));
    if !array.exports.is_empty() {
        let exports: Vec<String> = array.exports.iter().map(|export| quoted(export)).collect();
        let _ = writeln!(text, "exports = [{}]", exports.join(", "));
    }
    for (key, limit) in [("min", &array.limits.min), ("max", &array.limits.max)] {
        if let Some(limit) = limit {
            let _ = writeln!(text, "{key} = {}", quoted(&shown(limit)));
        }
    }
    text.push('\n');
    text
}

/// Returns the entry of an array that does not run.
pub(crate) fn of_members(superblock: &Superblock, members: &[PathBuf]) -> String {
    let name = superblock.name();
    head(shape::short_name(&name), superblock, members.iter().cloned()) + "\n"
}

fn head(name: &str, superblock: &Superblock, members: impl Iterator<Item = PathBuf>) -> String {
    let mut text = format!("[array.{}]\n", key(&entry_name(name)));
    let members: Vec<PathBuf> = members.collect();
    if !members.iter().any(|member| member.starts_with("node:")) {
        let _ = writeln!(text, "uuid = {}", quoted(&superblock.uuid_text()));
    }
    text.push_str("members = [\n");
    for member in members {
        let _ = writeln!(text, "    {},", quoted(&lasting(&member).display().to_string()));
    }
    text.push_str("]\n");
    text
}

/// Returns the name of a device that it keeps when others come before it.
pub(crate) fn lasting(device: &Path) -> PathBuf {
    let links = std::fs::read_dir(BY_ID).into_iter().flatten().flatten();
    let mut links: Vec<PathBuf> = links.map(|entry| entry.path()).collect();
    links.sort();
    let leads_there = |link: &PathBuf| std::fs::canonicalize(link).is_ok_and(|to| to == device);
    links.into_iter().find(leads_there).unwrap_or_else(|| device.to_owned())
}

/// Returns whether the name of an entry may contain this, and that of a unit of systemd.
pub(crate) fn is_entry_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(c)
}

/// Returns the name of an entry for the array of this name, which is found by its UUID.
fn entry_name(name: &str) -> String {
    let name = name.replace(|c| !is_entry_char(c), "-");
    match name.trim_start_matches(['.', '-']) {
        "" => "unnamed".to_owned(),
        name => name.to_owned(),
    }
}

/// A key of TOML, which may be any text in quotes.
fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_can_be_quoted() {
        assert_eq!(quoted("a\"\\\n"), r#""a\"\\\u000A""#);
        assert_eq!([key("a-1"), key("a b")], ["a-1".to_owned(), "\"a b\"".to_owned()]);
    }

    #[test]
    fn an_entry_has_a_name_that_a_unit_can_have() {
        for (name, entry) in
            [("a.b", "a.b"), ("my data;", "my-data-"), ("", "unnamed"), ("ü", "unnamed")]
        {
            assert_eq!(entry_name(name), entry);
        }
    }
}
