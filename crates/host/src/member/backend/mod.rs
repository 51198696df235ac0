//! Members whose bytes are in no file as they are: disks at NBD servers, and disk images of other
//! kinds. Such members are only read; changes go to an overlay.

#[cfg(feature = "images")]
mod image;
mod kind;
mod nbd;
mod uri;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "images")]
use rustix::fs::OFlags;

use super::error::OpenError;

pub(super) use self::kind::ImageKind;
pub(crate) use self::uri::is_nbd;

/// Source of such a member's bytes.
pub(crate) trait Backend: std::fmt::Debug + Send + Sync {
    /// Fills `bytes` from a byte of the member on. The read may have to wait for another machine.
    ///
    /// # Errors
    /// When the bytes cannot be read.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

/// A disk that is read through a backend.
pub(super) struct BackendDisk {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) bytes: u64,
}

/// Connects to the disk that an NBD URI names. The file is the socket, which stands for it.
///
/// # Errors
/// When the URI is none, the server cannot be reached or has no such export.
pub(super) fn connect(name: &Path) -> Result<(BackendDisk, File), OpenError> {
    let uri = uri::parse(name)?;
    let (disk, socket) = nbd::ServerDisk::connect(uri).map_err(|error| {
        let next = "check that a server listens there and has that export: nbdinfo --list URI";
        OpenError::new(name, error.to_string(), next)
    })?;
    let bytes = disk.bytes();
    Ok((BackendDisk { backend: Arc::new(disk), bytes }, socket))
}

/// The disk in an image file of this kind.
///
/// # Errors
/// When the image is broken, or has parts that are not read.
#[cfg(feature = "images")]
pub(super) fn image(kind: ImageKind, path: &Path, file: &File) -> Result<BackendDisk, OpenError> {
    // Its metadata lie anywhere.
    let plain = || rustix::fs::fcntl_setfl(file, rustix::fs::fcntl_getfl(file)? & !OFlags::DIRECT);
    let opened = plain().map_err(io::Error::from).and_then(|()| file.try_clone());
    let opened = opened.and_then(|file| image::Image::open(kind, path, file));
    let image = opened.map_err(|error| {
        let reason = format!("cannot be read as {kind}: {error}");
        OpenError::new(path, reason, by_nbd(path))
    })?;
    let bytes = image.bytes();
    Ok(BackendDisk { backend: Arc::new(image), bytes })
}

#[cfg(not(feature = "images"))]
pub(super) fn image(kind: ImageKind, path: &Path, _: &File) -> Result<BackendDisk, OpenError> {
    let reason = format!("is a {kind} image, which this build of Braid does not read by itself");
    Err(OpenError::new(path, reason, by_nbd(path)))
}

/// Returns the advice to serve other images by QEMU as NBD.
fn by_nbd(path: &Path) -> String {
    format!(
        "serve it, `qemu-nbd --read-only --persistent --socket=/tmp/disk.sock {}`, and name \
         nbd+unix:///?socket=/tmp/disk.sock",
        path.display()
    )
}

/// Opens bytes as an image, if they begin like one, and reads some of the disk in it.
///
/// # Panics
/// When a promise is broken.
pub fn fuzz_image(bytes: &[u8]) {
    use std::io::Write as _;
    const READ_BYTES: u64 = 4096;
    let file = rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC);
    let mut file = File::from(file.expect("memory"));
    file.write_all(bytes).expect("memory");
    let Some(kind) = ImageKind::of(&file) else { return };
    let Ok(disk) = image(kind, Path::new("/nowhere/image"), &file) else { return };
    let last = disk.bytes.saturating_sub(READ_BYTES);
    let mut read = vec![0; READ_BYTES.min(disk.bytes) as usize];
    for offset in [0, last / 3, last / 2, last] {
        // What a broken image says is an error or content.
        let _ = disk.backend.read_exact_at(&mut read, offset);
    }
    let beyond = disk.backend.read_exact_at(&mut [0; 512], disk.bytes);
    assert!(beyond.is_err(), "a read beyond the end");
}
