//! Fuzz targets for the parsers that only this folder sees.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use braid_array::SECTOR_BYTES;

use super::open::memory;
use super::overlay::{BLOCK_BYTES, Overlay, OverlayHeader};
use super::probe;

/// Decodes bytes as an overlay behind its header, or behind a header with a wrong bit; then writes
/// to it.
///
/// # Panics
/// When a guarantee is broken.
pub fn fuzz_overlay(bytes: &[u8]) {
    const SECTORS: u64 = 4096;
    let Some(([kind, at], rest)) = bytes.split_first_chunk::<2>() else { return };
    let member = memory("/member".into(), SECTORS * SECTOR_BYTES).expect("memory");
    let mut header = OverlayHeader::of(SECTORS, &probe(&member)).encode();
    if kind.is_multiple_of(4) {
        header[usize::from(*at)] ^= kind | 1;
    }
    let file = rustix::fs::memfd_create("overlay", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(file.expect("memory"));
    file.write_all_at(&header, 0).expect("memory");
    file.write_all_at(rest, BLOCK_BYTES).expect("memory");
    let dir = Path::new("/changes");
    let Ok(overlay) = Overlay::of(dir, &member, file.into(), &dir.join("member")) else { return };
    let mut found = vec![0; (SECTORS * SECTOR_BYTES) as usize];
    // A file that ends before what it says was changed is an error.
    let _ = overlay.read_over(0, &mut found);
    let sector = u64::from(*at) * 7;
    let wanted = [*kind; 3 * SECTOR_BYTES as usize];
    overlay.write(sector, &wanted).and_then(|()| overlay.flush()).expect("memory");
    let mut found = [0; 3 * SECTOR_BYTES as usize];
    overlay.read_over(sector, &mut found).expect("what was written");
    assert_eq!(found, wanted);
}
