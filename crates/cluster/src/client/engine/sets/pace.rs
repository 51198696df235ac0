//! Transfer time of data to the nodes, and the resulting length of slices for a writer that waits.

use braid_array::Instant;

/// A slice that takes longer on its way is cut.
const LONG_NANOS: u64 = 500_000;
/// Blocks of the members: nothing is cut within one.
const BLOCK_BYTES: u32 = 4096;
const MIB: u64 = 1 << 20;

/// Transfer times of writes. When the last byte of a write has left the client, its slice still
/// goes from node to node, three hops in all; a writer that waits for the answer sends nothing
/// meanwhile. So the slice-sets of such a write are sent in parts, of which a slice takes half a
/// millisecond at most for a hop. Each part has another encoder, so that no single encoder's link
/// limits the write. Each part costs messages: over fast links, where a whole slice takes no
/// longer, nothing is cut.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes sent in one go that are enough for a measurement.
    enough_bytes: u64,
    /// Start of the current transfer, and its bytes.
    begun: Instant,
    bytes: u64,
    /// Time for a MiB, including the way through the nodes; the recent minimum.
    nanos_per_mib: u64,
}

impl Pace {
    /// Starts without a measurement. `enough_bytes`: bytes sent in one go that are enough for one.
    pub(super) const fn new(enough_bytes: u64) -> Self {
        Self { enough_bytes, begun: Instant(0), bytes: 0, nanos_per_mib: 0 }
    }

    /// Notes that data is sent; `alone` when no other data is on its way.
    pub(super) const fn sent(&mut self, now: Instant, bytes: u64, alone: bool) {
        if alone {
            (self.begun, self.bytes) = (now, 0);
        }
        self.bytes += bytes;
    }

    /// Notes that all data sent has arrived, and parities are made of it.
    pub(super) fn arrived(&mut self, now: Instant) {
        let Self { enough_bytes, begun, bytes, nanos_per_mib } = *self;
        if bytes < enough_bytes {
            return;
        }
        let took = now.0.saturating_sub(begun.0).saturating_mul(MIB) / bytes;
        // A slow one among them was slow for another reason; many mean that the link has become so.
        let worst = nanos_per_mib.saturating_add(nanos_per_mib / 8);
        self.nanos_per_mib = if nanos_per_mib == 0 { took } else { took.min(worst) };
        self.bytes = 0;
    }

    /// Returns the length of the parts of a slice-set whose writer waits.
    pub(super) fn part(&self, len: u32) -> u32 {
        let takes = |len: u32| u64::from(len).saturating_mul(self.nanos_per_mib) / MIB;
        let mut part = len;
        while part > BLOCK_BYTES && takes(part) > LONG_NANOS {
            part = (part / 2).next_multiple_of(BLOCK_BYTES);
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;
    const ENOUGH_BYTES: u64 = 256 << 10;

    /// Returns a pace at which 768 KiB take this long.
    fn measured(pace: &mut Pace, millis: u64) {
        pace.sent(Instant(7 * MILLI), 512 << 10, true);
        pace.sent(Instant(8 * MILLI), 256 << 10, false);
        pace.arrived(Instant((7 + millis) * MILLI));
    }

    #[test]
    fn over_slow_links_slices_become_short() {
        let mut pace = Pace::new(ENOUGH_BYTES);
        assert_eq!(pace.part(65_536), 65_536, "nothing is known");
        measured(&mut pace, 16);
        assert_eq!(pace.part(65_536), 16_384);
        assert_eq!(pace.part(36_864), 20_480);
        assert_eq!(pace.part(12_288), 12_288);
        measured(&mut pace, 1);
        assert_eq!(pace.part(65_536), 65_536, "a fast link");
    }

    #[test]
    fn one_slow_write_does_not_make_a_link_slow_and_many_do() {
        let mut pace = Pace::new(ENOUGH_BYTES);
        measured(&mut pace, 1);
        measured(&mut pace, 1000);
        assert_eq!(pace.part(65_536), 65_536);
        (0..30).for_each(|_| measured(&mut pace, 1000));
        assert!(pace.part(65_536) <= 32_768);
        (0..100).for_each(|_| measured(&mut pace, 1000));
        assert_eq!([65_536, 4096, 512].map(|len| pace.part(len)), [4096, 4096, 512]);
    }

    #[test]
    fn little_data_tell_nothing() {
        let mut pace = Pace::new(ENOUGH_BYTES);
        pace.sent(Instant(0), 4096, true);
        pace.arrived(Instant(MILLI * 100));
        assert_eq!(pace.part(65_536), 65_536);
    }
}
