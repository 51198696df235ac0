//! The content that test arrays hold: cheap to make, different in every sector, and checked while
//! it streams by, so that no test keeps or hashes whole arrays.
//!
//! Sector `s` under seed `k` repeats one 64-bit word, a mix of both; in the first sector of every
//! 64 KiB each word is a mix of its own. So a misplaced sector and a mixed-up byte both show, and
//! the images still compress well.

use std::io::{self, Read, Write};

pub mod packed;

/// Bytes in a sector.
pub const SECTOR_BYTES: u64 = 512;
/// The seed of what may hold anything: a write that was never acknowledged.
pub const ANYTHING: u64 = u64::MAX;
const RICH_EVERY_SECTORS: u64 = 128;
const BLOCK_BYTES: u64 = 1 << 20;

/// Bytes `offset .. offset + length` were written with `seed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Which pattern.
    pub seed: u64,
    /// First byte, a multiple of a sector.
    pub offset: u64,
    /// Number of bytes, a multiple of a sector.
    pub length: u64,
}

/// What an array holds: one seed throughout, then later writes over parts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The seed of the first fill.
    pub seed: u64,
    /// Later writes, in order.
    pub over: Vec<Written>,
}

impl Content {
    /// One fill.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self { seed, over: Vec::new() }
    }

    /// Then this was written over it.
    #[must_use]
    pub fn then(mut self, seed: u64, offset: u64, length: u64) -> Self {
        self.over.push(Written { seed, offset, length });
        self
    }

    /// The bytes at `offset`, a multiple of a sector.
    pub fn fill(&self, offset: u64, buffer: &mut [u8]) {
        fill(self.seed, offset, buffer);
        let end = offset + buffer.len() as u64;
        for write in &self.over {
            let from = write.offset.max(offset);
            let until = (write.offset + write.length).min(end);
            if from < until {
                let range = (from - offset) as usize..(until - offset) as usize;
                fill(write.seed, from, &mut buffer[range]);
            }
        }
    }

    /// Write `length` bytes of it from `offset` on.
    pub fn write(&self, to: &mut impl Write, offset: u64, length: u64) -> io::Result<()> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        let mut done = 0;
        while done < length {
            let part = &mut block[..(length - done).min(BLOCK_BYTES) as usize];
            self.fill(offset + done, part);
            to.write_all(part)?;
            done += part.len() as u64;
        }
        Ok(())
    }

    /// What may hold anything holds what it holds.
    fn excuse(&self, offset: u64, expected: &mut [u8], found: &[u8]) {
        let end = offset + expected.len() as u64;
        for write in self.over.iter().filter(|write| write.seed == ANYTHING) {
            let from = write.offset.max(offset);
            let until = (write.offset + write.length).min(end);
            if from < until {
                let range = (from - offset) as usize..(until - offset) as usize;
                expected[range.clone()].copy_from_slice(&found[range]);
            }
        }
    }

    /// Compare a stream that starts at `offset` and must hold `length` bytes and no more.
    pub fn check(&self, from: &mut impl Read, offset: u64, length: u64) -> Result<(), String> {
        let mut expected = vec![0; BLOCK_BYTES as usize];
        let mut found = Vec::with_capacity(BLOCK_BYTES as usize);
        let mut done = 0;
        while done < length {
            let part = (length - done).min(BLOCK_BYTES);
            found.clear();
            from.take(part).read_to_end(&mut found).map_err(|error| error.to_string())?;
            if found.len() as u64 != part {
                return Err(format!("{} of {length} bytes", done + found.len() as u64));
            }
            let expected = &mut expected[..part as usize];
            self.fill(offset + done, expected);
            self.excuse(offset + done, expected, &found);
            if *found != *expected {
                let at = found.iter().zip(expected.iter()).position(|(a, b)| a != b).unwrap_or(0);
                return Err(format!("wrong byte at {}", offset + done + at as u64));
            }
            done += part;
        }
        match from.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(format!("more than {length} bytes")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// As [`spelled`](Content) on a command line: `SEED[,SEED:OFFSET:LENGTH]...`.
impl std::fmt::Display for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.seed)?;
        for write in &self.over {
            write!(f, ",{}:{}:{}", write.seed, write.offset, write.length)?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Content {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |word: &str| word.parse::<u64>().map_err(|_| format!("no number: {word}"));
        let mut parts = text.split(',');
        let mut content = Self::of(number(parts.next().unwrap_or(""))?);
        for part in parts {
            let words: Vec<u64> = part.split(':').map(number).collect::<Result<_, _>>()?;
            let [seed, offset, length] = words[..] else { return Err(format!("no write: {part}")) };
            content = content.then(seed, offset, length);
        }
        Ok(content)
    }
}

fn fill(seed: u64, offset: u64, buffer: &mut [u8]) {
    for (index, sector) in buffer.chunks_mut(SECTOR_BYTES as usize).enumerate() {
        let number = offset / SECTOR_BYTES + index as u64;
        let first = mix(seed, number << 6).to_le_bytes();
        if number.is_multiple_of(RICH_EVERY_SECTORS) {
            for (position, bytes) in sector.chunks_mut(8).enumerate() {
                let word = mix(seed, (number << 6) + position as u64);
                bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
            }
            continue;
        }
        let mut done = first.len().min(sector.len());
        sector[..done].copy_from_slice(&first[..done]);
        // Twice as much each time, as this takes a good part of the time of tests.
        while done < sector.len() {
            let more = done.min(sector.len() - done);
            sector.copy_within(..more, done);
            done += more;
        }
    }
}

/// The finalizer of `SplitMix64`.
const fn mix(seed: u64, position: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ position.wrapping_add(1);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sector_is_unlike_the_others() {
        let mut bytes = vec![0; 1 << 20];
        Content::of(7).fill(0, &mut bytes);
        let mut sectors: Vec<&[u8]> = bytes.chunks(512).collect();
        sectors.sort();
        sectors.dedup();
        assert_eq!(sectors.len(), 2048);
    }

    #[test]
    fn a_check_finds_a_wrong_byte_a_short_and_a_long_stream() {
        let content: Content = "3,9:1024:512".parse().unwrap();
        assert_eq!(content, Content::of(3).then(9, 1024, 512));
        let mut bytes = Vec::new();
        content.write(&mut bytes, 512, 4096).unwrap();
        assert_eq!(content.check(&mut &bytes[..], 512, 4096), Ok(()));
        assert!(Content::of(3).check(&mut &bytes[..], 512, 4096).unwrap_err().contains("1024"));
        let lenient = Content::of(3).then(ANYTHING, 1024, 512);
        assert_eq!(lenient.check(&mut &bytes[..], 512, 4096), Ok(()));
        assert!(content.check(&mut &bytes[..], 512, 4608).unwrap_err().starts_with("4096 of"));
        assert!(content.check(&mut &bytes[..], 512, 3584).unwrap_err().starts_with("more than"));
    }
}
