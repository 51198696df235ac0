//! A member device: an image and the writes in its volatile cache.
//!
//! Reads return everything written. A flush makes earlier answered writes durable, a FUA write is
//! durable when answered. At a power cut every cached sector goes back to any of its contents since
//! it was last durable; of a write in flight any subset of the sectors arrives. A sector is written
//! whole or not at all, as disks promise.

use braid_array::{IoError, IoErrorKind, SECTOR_BYTES};

use crate::rng::Rng;

const SECTOR: usize = SECTOR_BYTES as usize;

/// Sectors of a block of a file with holes.
const BLOCK_SECTORS: u64 = 8;

/// Cached bytes beyond which the device writes its cache back by itself.
const CACHE_BYTES: usize = 1 << 20;

/// A simulated device: its content, the part that a power cut may take back, and its faults. The
/// executor decides when an I/O happens; nothing here takes time.
#[derive(Clone, Debug)]
pub struct Disk {
    image: Vec<u8>,
    /// Writes not yet durable, oldest first; `old` holds what they replaced.
    cached: Vec<Cached>,
    old: Vec<u8>,
    /// Number of the first entry of `cached` since power-on.
    first: u64,
    /// Sectors that cannot be read until rewritten.
    unreadable: Vec<u64>,
    /// Sectors that cannot be written, and then not be read either.
    unwritable: Vec<u64>,
    gone: bool,
    /// Is gone after so many more writes.
    writes_left: Option<u64>,
    /// Takes writes, and cannot read any of it.
    blind: bool,
    /// Answers nothing.
    hung: bool,
    /// Full: writes fail for lack of space.
    full: bool,
    /// By block, whether it has room although the disk is full: it is a file with holes.
    room: Option<Vec<bool>>,
    /// Answers writes without storing them.
    forgetful: bool,
    /// Store beside it.
    beside: Option<Box<Self>>,
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    sector: u64,
    sectors: u64,
    /// Where in `old` the replaced bytes are; none for a write that is durable already.
    old_at: Option<usize>,
}

/// Fate of a device's cache in a power cut.
#[derive(Clone, Copy, Debug)]
enum Cut {
    KeepAll,
    DropAll,
    /// Writes reach the medium in order up to some moment.
    Prefix(u64),
    /// Each cached version of a sector is lost this many times in a hundred.
    Percent(u64),
}

impl Disk {
    /// A device of zeroes.
    pub fn new(sectors: u64) -> Self {
        Self {
            image: vec![0; sectors as usize * SECTOR],
            cached: Vec::new(),
            old: Vec::new(),
            first: 0,
            unreadable: Vec::new(),
            unwritable: Vec::new(),
            gone: false,
            writes_left: None,
            blind: false,
            hung: false,
            full: false,
            room: None,
            forgetful: false,
            beside: None,
        }
    }

    /// Puts a store beside it.
    pub fn set_beside(&mut self, store: Self) {
        self.beside = Some(Box::new(store));
    }

    /// The store beside it.
    pub fn beside(&self) -> Option<&Self> {
        self.beside.as_deref()
    }

    /// The store beside it.
    pub fn beside_mut(&mut self) -> Option<&mut Self> {
        self.beside.as_deref_mut()
    }

    /// Size.
    pub fn sectors(&self) -> u64 {
        (self.image.len() / SECTOR) as u64
    }

    /// The whole device as reads see it.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// Returns the content, to be changed before the device is in use.
    pub fn image_mut(&mut self) -> &mut [u8] {
        &mut self.image
    }

    /// Put bytes on the device before it is in use.
    pub fn put(&mut self, sector: u64, bytes: &[u8]) {
        let at = sector as usize * SECTOR;
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Fill the device before it is in use.
    pub fn fill(&mut self, byte: u8) {
        self.image.fill(byte);
    }

    /// Sectors that cannot be read.
    pub fn unreadable(&self) -> &[u64] {
        &self.unreadable
    }

    /// Makes it answer or not.
    pub fn set_gone(&mut self, gone: bool) {
        self.gone = gone;
    }

    /// Makes it answer nothing after so many more writes.
    pub const fn go_after(&mut self, writes: u64) {
        self.writes_left = Some(writes);
    }

    /// Returns whether the device is gone.
    pub const fn gone(&self) -> bool {
        self.gone
    }

    /// Returns whether some sectors fail.
    pub fn damaged(&self) -> bool {
        self.blind || !self.unreadable.is_empty() || !self.unwritable.is_empty()
    }

    /// From now on nothing can be read, while writes are taken.
    pub const fn go_blind(&mut self) {
        self.blind = true;
    }

    /// Makes it answer nothing, or again.
    pub const fn set_hung(&mut self, hung: bool) {
        self.hung = hung;
    }

    /// Answers nothing.
    pub const fn hung(&self) -> bool {
        self.hung
    }

    /// Makes the device full, or ends that.
    pub const fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Makes the device a file with holes: blocks of zeroes have no room before they are written.
    pub fn has_holes(&mut self) {
        let blocks = self.image.chunks(BLOCK_SECTORS as usize * SECTOR);
        self.room = Some(blocks.map(|block| block.iter().any(|&byte| byte != 0)).collect());
    }

    /// Gives these sectors room, written or not, in a file with holes.
    pub fn give_room(&mut self, sector: u64, sectors: u64) {
        let Some(room) = &mut self.room else { return };
        let end = (sector + sectors).div_ceil(BLOCK_SECTORS);
        for block in sector / BLOCK_SECTORS..end {
            if let Some(block) = room.get_mut(block as usize) {
                *block = true;
            }
        }
    }

    /// Returns whether these sectors can be written.
    fn has_room(&self, sector: u64, sectors: u64) -> bool {
        let Some(room) = &self.room else { return !self.full };
        let mut blocks = sector / BLOCK_SECTORS..(sector + sectors).div_ceil(BLOCK_SECTORS);
        !self.full || blocks.all(|block| room.get(block as usize) == Some(&true))
    }

    /// Returns whether some or all of it does not work.
    pub fn fails(&self) -> bool {
        self.gone || self.hung || self.full || self.writes_left.is_some() || self.damaged()
    }

    /// Makes the device lose all later writes silently.
    pub const fn go_forgetful(&mut self) {
        self.forgetful = true;
    }

    /// Returns whether nothing can be read.
    pub const fn blind(&self) -> bool {
        self.blind
    }

    /// The sector cannot be read until it is written again.
    pub fn lose_sector(&mut self, sector: u64) {
        self.unreadable.push(sector);
    }

    /// Makes unreadable sectors readable again, except unwritable ones.
    pub fn read_again(&mut self) {
        self.unreadable.retain(|sector| self.unwritable.contains(sector));
        self.blind = false;
    }

    /// Ends all faults.
    pub fn mend(&mut self) {
        self.unwritable.clear();
        self.read_again();
        self.writes_left = None;
        (self.gone, self.hung, self.full) = (false, false, false);
        if let Some(store) = &mut self.beside {
            store.mend();
        }
    }

    /// The sector can be neither written nor read from now on.
    pub fn break_sector(&mut self, sector: u64) {
        self.unwritable.push(sector);
        self.unreadable.push(sector);
    }

    /// # Errors
    /// Gone, or a sector of the range cannot be read.
    pub fn read(&self, sector: u64, out: &mut [u8]) -> Result<(), IoError> {
        self.reachable(sector, out.len())?;
        let end = sector + (out.len() / SECTOR) as u64;
        if self.blind || self.unreadable.iter().any(|bad| (sector..end).contains(bad)) {
            return Err(IoError::MEDIUM);
        }
        let at = sector as usize * SECTOR;
        out.copy_from_slice(&self.image[at..at + out.len()]);
        Ok(())
    }

    /// Reads bytes from this sector on.
    ///
    /// # Errors
    /// The error of the device, for people.
    pub fn bytes(&self, sector: u64, len: u32) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; len as usize];
        let read = self.read(sector, &mut bytes);
        read.map(|()| bytes).map_err(|error| format!("{error:?}"))
    }

    /// Checks that this range can be written.
    ///
    /// # Errors
    /// Returns an error if the device is gone or full, or a sector of the range cannot be written.
    pub fn writable(&self, sector: u64, sectors: u64) -> Result<(), IoError> {
        self.reachable(sector, sectors as usize * SECTOR)?;
        if self.unwritable.iter().any(|bad| (sector..sector + sectors).contains(bad)) {
            return Err(IoError::MEDIUM);
        }
        if sectors > 0 && !self.has_room(sector, sectors) {
            return Err(IoError { kind: IoErrorKind::Full, errno: None });
        }
        Ok(())
    }

    fn reachable(&self, sector: u64, bytes: usize) -> Result<(), IoError> {
        let end = sector as usize * SECTOR + bytes;
        if self.gone || end > self.image.len() { Err(IoError::GONE) } else { Ok(()) }
    }

    /// Writes a range that is writable.
    pub fn write(&mut self, sector: u64, bytes: &[u8], fua: bool) {
        if self.forgetful {
            return;
        }
        if let Some(left) = &mut self.writes_left {
            *left = left.saturating_sub(1);
            self.gone = *left == 0;
        }
        self.remember(sector, bytes.len(), fua);
        self.give_room(sector, (bytes.len() / SECTOR) as u64);
        let at = sector as usize * SECTOR;
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Gives the disk another length, all at once and durably: the first bytes stay, the last ones
    /// are the tail, and zeroes lie between.
    pub fn lengthen(&mut self, kept_bytes: u64, bytes: u64, tail: &[u8]) {
        let kept = kept_bytes as usize;
        self.image.truncate(kept);
        self.image.resize(bytes as usize - tail.len(), 0);
        self.image.extend_from_slice(tail);
        let is_kept = |sector: &u64| *sector < kept_bytes / SECTOR as u64;
        self.unreadable.retain(is_kept);
        self.unwritable.retain(is_kept);
        // Nothing is cached of what was cut off.
        self.flush(self.mark());
    }

    /// Zeroes a range that is writable.
    pub fn write_zeroes(&mut self, sector: u64, sectors: u64, fua: bool) {
        if self.forgetful {
            return;
        }
        let bytes = sectors as usize * SECTOR;
        self.remember(sector, bytes, fua);
        self.give_room(sector, sectors);
        let at = sector as usize * SECTOR;
        self.image[at..at + bytes].fill(0);
    }

    fn remember(&mut self, sector: u64, bytes: usize, durable: bool) {
        if self.old.len() + bytes > CACHE_BYTES {
            self.flush(self.mark());
        }
        let sectors = (bytes / SECTOR) as u64;
        self.unreadable.retain(|bad| {
            !(sector..sector + sectors).contains(bad) || self.unwritable.contains(bad)
        });
        let old_at = (!durable).then_some(self.old.len());
        if !durable {
            let at = sector as usize * SECTOR;
            self.old.extend_from_slice(&self.image[at..at + bytes]);
        } else if self.cached.is_empty() {
            return;
        }
        self.cached.push(Cached { sector, sectors, old_at });
    }

    /// All that was answered so far, for [`Self::flush`].
    pub fn mark(&self) -> u64 {
        self.first + self.cached.len() as u64
    }

    /// Everything up to the mark is durable.
    pub fn flush(&mut self, mark: u64) {
        let count = usize::try_from(mark.saturating_sub(self.first)).unwrap_or(0);
        if count >= self.cached.len() {
            self.first += self.cached.len() as u64;
            self.cached.clear();
            self.old.clear();
        } else {
            // The bytes stay until the cache is empty; only the entries go.
            self.first += count as u64;
            self.cached.drain(..count);
        }
    }

    /// Makes only this part durable, of the writes up to the mark.
    pub fn flush_only(&mut self, mark: u64, part: std::ops::Range<u64>) {
        let count = usize::try_from(mark.saturating_sub(self.first)).unwrap_or(0);
        let entries = self.cached.iter_mut().take(count);
        entries.filter(|entry| part.contains(&entry.sector)).for_each(|entry| entry.old_at = None);
    }

    /// The ranges that a power cut may take back.
    pub fn pending(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.cached.iter().filter(|c| c.old_at.is_some()).map(|c| (c.sector, c.sectors))
    }

    /// Cuts the power: the content that remains is durable.
    pub fn power_cut(&mut self, rng: &mut Rng) {
        let cut = match rng.below(6) {
            0 => Cut::KeepAll,
            1 => Cut::DropAll,
            2 | 3 => Cut::Prefix(self.first + rng.below(self.cached.len() as u64 + 1)),
            _ => Cut::Percent(rng.between(5, 95)),
        };
        let mut kept =
            vec![false; if self.cached.is_empty() { 0 } else { self.sectors() as usize }];
        for (at, entry) in self.cached.iter().enumerate().rev() {
            for i in 0..entry.sectors {
                let sector = (entry.sector + i) as usize;
                if kept[sector] {
                    continue;
                }
                let lost = match (entry.old_at, cut) {
                    (None, _) | (_, Cut::KeepAll) => false,
                    (_, Cut::DropAll) => true,
                    (_, Cut::Prefix(end)) => self.first + at as u64 >= end,
                    (_, Cut::Percent(percent)) => rng.percent(percent),
                };
                kept[sector] = !lost;
                if !lost {
                    continue;
                }
                let Some(old_at) = entry.old_at else { continue };
                let from = old_at + i as usize * SECTOR;
                self.image[sector * SECTOR..(sector + 1) * SECTOR]
                    .copy_from_slice(&self.old[from..from + SECTOR]);
            }
        }
        self.flush(self.mark());
        if let Some(store) = &mut self.beside {
            store.power_cut(rng);
        }
    }

    /// Any subset of the sectors of a write arrives.
    pub fn write_some(&mut self, sector: u64, bytes: &[u8], rng: &mut Rng) {
        let percent = rng.pick(&[0, 30, 60, 100]);
        for (at, chunk) in (sector..).zip(bytes.chunks_exact(SECTOR)) {
            if rng.percent(percent) && self.writable(at, 1).is_ok() {
                self.write(at, chunk, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_byte(disk: &Disk, sector: usize) -> u8 {
        disk.image()[sector * SECTOR]
    }

    #[test]
    fn a_cut_takes_back_only_what_is_not_durable() {
        let mut seen = [0_u32; 4];
        for seed in 0..200 {
            let mut disk = Disk::new(8);
            disk.write(1, &[1; SECTOR], false);
            disk.flush(disk.mark());
            disk.write(1, &[2; SECTOR], false);
            disk.write(1, &[3; SECTOR], false);
            disk.write(2, &[4; SECTOR], true);
            disk.write(3, &[5; SECTOR], false);
            disk.write(3, &[6; SECTOR], true);
            disk.power_cut(&mut Rng::new(seed));
            seen[usize::from(first_byte(&disk, 1))] += 1;
            assert_eq!((first_byte(&disk, 2), first_byte(&disk, 3)), (4, 6));
            assert_eq!(disk.pending().count(), 0);
        }
        assert!(seen[0] == 0 && seen[1..].iter().all(|&count| count > 10), "{seen:?}");
    }

    #[test]
    fn of_a_full_file_only_what_has_room_can_be_written() {
        let mut disk = Disk::new(32);
        disk.has_holes();
        disk.write(9, &[1; SECTOR], false);
        disk.give_room(16, 8);
        disk.set_full(true);
        let full = IoError { kind: IoErrorKind::Full, errno: None };
        assert_eq!([disk.writable(8, 16), disk.writable(0, 9)], [Ok(()), Err(full)]);
        assert_eq!([disk.writable(23, 2), disk.writable(0, 0)], [Err(full), Ok(())]);
        disk.set_full(false);
        assert_eq!(disk.writable(0, 32), Ok(()));
    }

    #[test]
    fn a_flush_covers_what_was_answered_before_it() {
        let mut disk = Disk::new(8);
        disk.write(1, &[1; SECTOR], false);
        let mark = disk.mark();
        disk.write(2, &[2; SECTOR], false);
        disk.flush(mark);
        assert_eq!(disk.pending().collect::<Vec<_>>(), [(2, 1)]);
    }

    #[test]
    fn an_unreadable_sector_is_readable_once_written() {
        let mut disk = Disk::new(8);
        disk.lose_sector(3);
        let mut out = [0; 2 * SECTOR];
        assert_eq!(disk.read(2, &mut out), Err(IoError::MEDIUM));
        disk.write(3, &[7; SECTOR], false);
        assert_eq!(disk.read(2, &mut out), Ok(()));
        disk.break_sector(3);
        assert_eq!(disk.writable(2, 2), Err(IoError::MEDIUM));
        disk.set_gone(true);
        assert_eq!(disk.read(0, &mut out), Err(IoError::GONE));
    }
}
