//! A disk in memory with a cache that a power cut forgets.

use crate::SECTOR_BYTES;

/// A member's device.
#[derive(Clone)]
pub(super) struct Disk {
    /// As reads see it.
    pub(super) image: Vec<u8>,
    /// Contents after a power cut.
    durable: Vec<u8>,
    /// Where the two may differ.
    cached: Vec<std::ops::Range<usize>>,
}

impl Disk {
    pub(super) fn filled(sectors: u64, byte: u8) -> Self {
        let image = vec![byte; (sectors * SECTOR_BYTES) as usize];
        Self { durable: image.clone(), image, cached: Vec::new() }
    }

    pub(super) const fn sectors(&self) -> u64 {
        self.image.len() as u64 / SECTOR_BYTES
    }

    pub(super) fn read(&self, sector: u64, bytes: usize) -> &[u8] {
        &self.image[(sector * SECTOR_BYTES) as usize..][..bytes]
    }

    /// Returns the contents that a power cut would leave.
    pub(super) fn durable(&self, sector: u64, bytes: usize) -> Vec<u8> {
        self.durable[(sector * SECTOR_BYTES) as usize..][..bytes].to_vec()
    }

    pub(super) fn write(&mut self, sector: u64, bytes: &[u8], fua: bool) {
        let start = (sector * SECTOR_BYTES) as usize;
        let range = start..start + bytes.len();
        self.image[range.clone()].copy_from_slice(bytes);
        if fua {
            self.durable[range].copy_from_slice(bytes);
        } else {
            self.cached.push(range);
        }
    }

    pub(super) fn flush(&mut self) {
        for range in self.cached.drain(..) {
            self.durable[range.clone()].copy_from_slice(&self.image[range]);
        }
    }

    pub(super) fn cut_power(&mut self) {
        for range in self.cached.drain(..) {
            self.image[range.clone()].copy_from_slice(&self.durable[range]);
        }
    }
}
