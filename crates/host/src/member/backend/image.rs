//! Images of other kinds, read by the crate `imago`. Other files that an image names are opened
//! only for VMDK, whose data lie in files beside the descriptor, and only there: an image may come
//! from a guest, which must not read other files of the host.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use imago::file::File as Stored;
use imago::format::gate::ImplicitOpenGate;
use imago::qcow2::Qcow2;
use imago::storage::StorageOpenOptions;
use imago::vmdk::Vmdk;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder};
use rustix::fs::{Mode, OFlags};

use super::Backend;
use super::kind::ImageKind;

/// An open image.
pub(super) struct Image(FormatAccess<Stored>);

impl Image {
    pub(super) fn open(kind: ImageKind, path: &Path, file: File) -> io::Result<Self> {
        let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if kind == ImageKind::SparseVmdk || kind == ImageKind::Vmdk && has_sparse_extents(&file)? {
            return Err(io::Error::other(SPARSE));
        }
        let options = StorageOpenOptions::new().filename(path);
        let stored = Stored::from_open_file(file, options)?;
        let access = match kind {
            ImageKind::Qcow2 => {
                let builder = Qcow2::<Stored>::builder(stored).write(false);
                FormatAccess::new(builder.open(DenyImplicitOpenGate::default())?)
            }
            ImageKind::Vmdk | ImageKind::SparseVmdk => {
                let dir = path.parent().unwrap_or(Path::new("/")).to_owned();
                let builder = Vmdk::<Stored>::builder(stored).write(false);
                FormatAccess::new(builder.open(Beside(dir))?)
            }
        };
        Ok(Self(access))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.size()
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Image").field(&self.bytes()).finish()
    }
}

impl Backend for Image {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.bytes()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.0.read(bytes, offset)
    }
}

/// Lets files of one directory be opened, for reading.
struct Beside(PathBuf);

impl ImplicitOpenGate<Stored> for Beside {
    fn open_format<F: FormatDriverBuilder<Stored>>(
        &mut self,
        _: F,
    ) -> io::Result<FormatAccess<Stored>> {
        Err(io::Error::other("it is based on another image"))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<Stored> {
        let path = options.get_filename().ok_or(io::ErrorKind::NotFound)?.to_owned();
        if path.parent() != Some(&self.0) {
            let reason = format!("{} does not lie beside it", path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        Stored::from_open_file(regular(&path)?, options.write(false))
    }
}

/// Opens a regular file, and nothing by way of a link. A FIFO or a device is not opened: that has
/// effects, and may wait for ever.
fn regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !found.metadata()?.is_file() {
        let reason = format!("{} is no regular file", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

const SPARSE: &str = "its data are sparse, or compressed, and only flat ones are read here";

/// Returns whether a descriptor names sparse extents, in which only written data take space.
fn has_sparse_extents(file: &File) -> io::Result<bool> {
    const MOST_BYTES: u64 = 2 << 20;
    let mut text = vec![0; file.metadata()?.len().min(MOST_BYTES) as usize];
    file.read_exact_at(&mut text, 0)?;
    let text = String::from_utf8_lossy(&text);
    let kind = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
    let extents =
        text.lines().filter(|line| line.starts_with("RW ") || line.starts_with("RDONLY "));
    Ok(extents.filter_map(kind).any(|kind| kind.contains("SPARSE")))
}
