//! Checks of exports, without opening them: of their places, which can be made before an array
//! starts, and of the bytes that each one is to show.

use std::ops::Range;
use std::path::Path;

use braid_array::Refusal;
use rustix::net::SocketAddrUnix;

use super::part::Extent;
use super::{ExportPlace, ExportSpec};
use crate::export::{fuse, nbd, ublk};

/// An array that is exported.
#[derive(Clone, Copy, Debug)]
pub struct ExportedArray {
    /// Its size.
    pub size_bytes: u64,
    /// Requests are multiples of this.
    pub block_bytes: u32,
    /// Nothing is written to it.
    pub read_only: bool,
}

/// Checks exports as a start does, and opens none; only their places where the array is not known.
/// Returns the index of each one that could not be opened, and the reason.
#[must_use]
pub fn check_exports(
    exports: &[ExportSpec],
    array: Option<ExportedArray>,
    run_dir: &Path,
) -> Vec<(usize, Refusal)> {
    let mut refused = Vec::new();
    let mut extents: Vec<(String, Extent)> = Vec::new();
    let mut has_device = false;
    for (index, export) in exports.iter().enumerate() {
        let is_device = matches!(export.place, ExportPlace::Ublk(_));
        let checked = if is_device && has_device {
            Err(second_device())
        } else {
            check_place(export, run_dir)
        };
        has_device |= is_device;
        let beside = extents.iter().cloned();
        let extent = array.map(|array| extent_beside(export, array, beside)).transpose();
        match checked.and(extent) {
            Ok(extent) => extents.extend(extent.map(|extent| (export.to_string(), extent))),
            Err(why) => refused.push((index, why)),
        }
    }
    refused
}

/// Checks the place of an export.
fn check_place(spec: &ExportSpec, run_dir: &Path) -> Result<(), Refusal> {
    let said = |Refusal { reason, next }| Refusal::new(format!("{spec}: {reason}"), next);
    match &spec.place {
        ExportPlace::NbdUnix(path) | ExportPlace::VhostUser(path) => {
            check_socket(spec, path, run_dir)?;
        }
        ExportPlace::Fuse(path) => fuse::check_mountpoint(path)
            .map_err(|error| said(Refusal::new(error.reason, error.next)))?,
        ExportPlace::Ublk(_) => ublk::check_driver()?,
        ExportPlace::NbdTcp(_) => {}
    }
    spec.tls.as_deref().map_or(Ok(()), |dir| nbd::load(dir).map(drop).map_err(said))
}

/// Checks the path of a socket. The run directory is made at the start.
pub(super) fn check_socket(spec: &ExportSpec, path: &Path, run_dir: &Path) -> Result<(), Refusal> {
    if SocketAddrUnix::new(path).is_err() {
        let reason = format!("{spec}: the path of a socket has at most 107 bytes");
        return Err(Refusal::new(reason, "name a shorter path"));
    }
    let dir = path.parent().unwrap_or(path);
    if dir == run_dir || dir.is_dir() {
        return Ok(());
    }
    let dir = dir.display();
    Err(Refusal::new(
        format!("{spec}: there is no directory {dir}"),
        format!("make it: mkdir -p {dir}"),
    ))
}

/// Returns the refusal of a second block device.
pub(super) fn second_device() -> Refusal {
    Refusal::new("ublk: the array has a device already", "name one")
}

/// Returns the bytes of an export, which none of the others `beside` it may write: each with its
/// text for people.
pub(super) fn extent_beside(
    spec: &ExportSpec,
    array: ExportedArray,
    beside: impl IntoIterator<Item = (String, Extent)>,
) -> Result<Extent, Refusal> {
    let extent = array.extent(spec)?;
    let whole = array.whole();
    let Some((shown, other)) = beside.into_iter().find(|(_, other)| other.clashes(&extent, &whole))
    else {
        return Ok(extent);
    };
    let bytes = &other.bytes;
    let reason = format!(
        "{spec}: {shown} can write bytes {} to {} of the array, and some of these are its own too",
        bytes.start,
        bytes.end - 1
    );
    let next = "choose another offset and size, or add readonly to one of the two";
    Err(Refusal::new(reason, next))
}

impl ExportedArray {
    /// Returns the bytes of an export.
    pub(super) fn extent(&self, spec: &ExportSpec) -> Result<Extent, Refusal> {
        let Self { size_bytes, block_bytes, read_only } = *self;
        let extent = spec.part.extent(size_bytes, block_bytes, read_only);
        extent.map_err(|Refusal { reason, next }| Refusal::new(format!("{spec}: {reason}"), next))
    }

    /// Returns whether an export shows all of the array.
    pub(super) fn is_shown_by(&self, spec: &ExportSpec) -> bool {
        self.extent(spec).is_ok_and(|extent| extent.bytes == self.whole())
    }

    /// Returns all of the array that can be asked for.
    pub(super) const fn whole(&self) -> Range<u64> {
        0..self.size_bytes - self.size_bytes % self.block_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAY: ExportedArray =
        ExportedArray { size_bytes: 10 << 20, block_bytes: 512, read_only: false };

    #[test]
    fn what_a_start_would_refuse_is_told_before() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run");
        let checked = |specs: &[&str]| {
            let specs = specs.iter().map(|spec| spec.replace("DIR", dir.path().to_str().unwrap()));
            let specs: Vec<ExportSpec> = specs.map(|spec| spec.parse().unwrap()).collect();
            let refused = check_exports(&specs, Some(ARRAY), &run_dir).into_iter();
            refused.map(|(index, why)| format!("{index} {why}")).collect::<Vec<_>>()
        };
        assert_eq!(checked(&["nbd:unix:DIR/a", "nbd:unix:DIR/run/a", "nbd:tcp:h:1"]), [""; 0]);
        for (specs, index, said) in [
            (&["nbd:unix:DIR/no/a"][..], 0, "/no; make it: mkdir -p "),
            (&["vhost-user:DIR/no/a"], 0, "there is no directory "),
            (&["fuse:DIR/no"], 0, "no such directory; make it: mkdir "),
            (&["nbd:unix:DIR/a,offset=1000"], 0, "multiple of the array's blocks of 512 bytes"),
            (&["nbd:unix:DIR/a,size=11M"], 0, "ends 1048576 bytes beyond the end"),
            (&["nbd:unix:DIR/a", "nbd:unix:DIR/b,size=1M"], 1, "a can write bytes 0 to 10485759"),
            (&["nbd:tcp:h:1,tls=DIR"], 0, "server-cert.pem"),
        ] {
            let refused = checked(specs);
            assert_eq!(refused.len(), 1, "{refused:?}");
            let expected =
                refused[0].starts_with(&format!("{index} ")) && refused[0].contains(said);
            assert!(expected, "{specs:?}: {refused:?}");
        }
        let long = format!("nbd:unix:/{}", "a".repeat(120));
        assert!(checked(&[&long])[0].contains("at most 107 bytes; name a shorter path"));
        assert!(checked(&["ublk", "ublk:1"]).last().unwrap().ends_with("already; name one"));
    }
}
