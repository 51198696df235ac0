//! The four machines that were measured, as published, and the limits that make one of this
//! machine.
//!
//! The rate at which one volume wrote is the limit of a member. The highest rate of any number of
//! volumes is the limit of the host: two members then write `min(2 x member, host)`. Seeks were
//! served from memory, like reads, but for the one block in ten that bonnie++ writes back. The
//! requests that one volume's seeks left to be written are therefore the rate of a member in
//! requests a second. The requests of the most seeks are the rate of a host.

use crate::rig::{Limits, Rate};
use crate::tool::bonnie::{BonnieColumn, READ, REWRITE, SEEKS, WRITE};

/// Numbers of volumes.
pub(super) const MEMBERS: [u16; 3] = [1, 2, 4];
/// Metrics that were published of each, in this order.
pub(super) const METRICS: [BonnieColumn; 4] = [WRITE, REWRITE, READ, SEEKS];
/// Bytes of the kB of bonnie++.
pub(super) const KB: f64 = 1024.0;
/// Seeks that bonnie++ makes.
const SEEKS_MADE: f64 = 8192.0;
/// One of so many writes.
const SEEKS_FOR_A_WRITE: f64 = 10.0;
/// A MiB holds so many of the blocks that are sought.
const BLOCKS_A_MIB: f64 = 128.0;
/// Processes of bonnie++ that seek at the same time. Where their number divides that of the blocks,
/// they seek the same ones.
const SEEKERS: u64 = 5;

/// A type of machine.
#[derive(Debug, PartialEq)]
pub(super) struct Class {
    /// Name as its provider has it.
    pub(super) name: &'static str,
    /// Price an hour in 2011, with Linux, in Tokyo.
    pub(super) dollars: f64,
    /// Figures for [`MEMBERS`] and [`METRICS`].
    published: [[f64; 4]; 3],
}

/// Machines in the order of the document.
pub(super) const CLASSES: [Class; 4] = [
    Class {
        name: "t1.micro",
        dollars: 0.027,
        published: [
            [28395.0, 21940.0, 138_660.0, 7528.0],
            [34970.0, 27271.0, 162_178.0, 4549.0],
            [36763.0, 26447.0, 173_878.0, 4507.0],
        ],
    },
    Class {
        name: "m1.large",
        dollars: 0.40,
        published: [
            [40685.0, 47039.0, 1_141_063.0, 9474.0],
            [78498.0, 75381.0, 1_123_610.0, 10670.0],
            [86972.0, 80442.0, 1_135_758.0, 11368.0],
        ],
    },
    Class {
        name: "m1.xlarge",
        dollars: 0.80,
        published: [
            [34706.0, 42305.0, 1_625_674.0, 7723.0],
            [81722.0, 86559.0, 1_573_818.0, 12684.0],
            [113_565.0, 107_232.0, 1_551_414.0, 14466.0],
        ],
    },
    Class {
        name: "m2.2xlarge",
        dollars: 1.20,
        published: [
            [42641.0, 50221.0, 2_066_364.0, 13876.0],
            [70917.0, 71262.0, 1_961_041.0, 13252.0],
            [82137.0, 80513.0, 1_961_634.0, 16166.0],
        ],
    },
];

impl Class {
    /// Published figure for so many volumes.
    pub(super) fn published(&self, members: u16, metric: BonnieColumn) -> Option<f64> {
        let row = MEMBERS.iter().position(|&other| other == members)?;
        let column = METRICS.iter().position(|&other| other == metric)?;
        Some(self.published[row][column])
    }

    /// The most that was published for any number of volumes.
    fn most(&self, metric: BonnieColumn) -> f64 {
        let all = MEMBERS.iter().filter_map(|&members| self.published(members, metric));
        all.fold(0.0, f64::max)
    }

    fn one(&self, metric: BonnieColumn) -> f64 {
        self.published(1, metric).unwrap_or_default()
    }

    /// Limits that make it of this machine, if seeks go to a file of this size.
    pub(super) fn limits(&self, file_mib: u64) -> Limits {
        let writes = requests_a_seek(file_mib);
        let rate =
            |kb_s: f64, seeks: f64| Rate { bytes_s: Some(kb_s * KB), iops: Some(seeks * writes) };
        Limits {
            disk: rate(self.one(WRITE), self.one(SEEKS)),
            host: rate(self.most(WRITE), self.most(SEEKS)),
        }
    }

    /// The size of the file, the same for any number of members: what the host lets through in so
    /// many milliseconds. bonnie++ wants twice the memory of the machine, in MiB.
    pub(super) fn file_mib(&self, write_ms: u64) -> u64 {
        let bytes = self.most(WRITE) * KB * write_ms as f64 / 1000.0;
        let even_mib = ((bytes / (2 << 20) as f64).ceil() as u64 * 2).max(2);
        if even_mib.is_multiple_of(SEEKERS) { even_mib + 2 } else { even_mib }
    }

    /// Bound of the limits; `None` for what is served from memory. Rewriting reads from memory,
    /// too: only its writes count.
    pub(super) fn bound(&self, members: u16, metric: BonnieColumn) -> Option<f64> {
        let limited = if metric == SEEKS { SEEKS } else { WRITE };
        let bound = (f64::from(members) * self.one(limited)).min(self.most(limited));
        (metric != READ).then_some(bound)
    }

    /// kB/s through the members, read or written.
    pub(super) fn bound_kb_s(&self, members: u16) -> f64 {
        self.bound(members, WRITE).unwrap_or_default()
    }

    /// The host holds so many members back.
    pub(super) fn host_binds(&self, members: u16) -> bool {
        f64::from(members) * self.one(WRITE) >= self.most(WRITE)
    }
}

/// Requests to write that a seek leaves on average: a tenth, and less in a small file, where some
/// blocks are written twice and some lie side by side; half of those go with their neighbour.
fn requests_a_seek(file_mib: u64) -> f64 {
    let blocks = file_mib as f64 * BLOCKS_A_MIB;
    let written = 1.0 - (-SEEKS_MADE / SEEKS_FOR_A_WRITE / blocks).exp();
    blocks * written * (1.0 - written / 2.0) / SEEKS_MADE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_bring_out_what_was_published() {
        let of = |name: &str| CLASSES.iter().find(|class| class.name == name).expect("a class");
        let large = of("m1.large");
        let limits = large.limits(1 << 20);
        assert_eq!(limits.disk.bytes_s, Some(40685.0 * 1024.0));
        assert_eq!(limits.host.bytes_s, Some(86972.0 * 1024.0));
        let iops = limits.host.iops.expect("a limit");
        assert!((1130.0..1137.0).contains(&iops), "a tenth of 11368: {iops}");
        for class in &CLASSES {
            for metric in [WRITE, SEEKS] {
                for members in [1, 4] {
                    let bound = class.bound(members, metric).expect("a bound");
                    let published = class.published(members, metric).expect("a number");
                    let is_slower = (class.name, members, metric) == ("t1.micro", 4, SEEKS);
                    assert_eq!(bound != published, is_slower, "{} {members}", class.name);
                }
            }
            assert_eq!((class.host_binds(1), class.host_binds(4)), (false, true));
        }
        let ratio = |class: &Class| class.bound_kb_s(2) / class.bound_kb_s(1);
        assert_eq!((ratio(large), ratio(of("m1.xlarge"))), (2.0, 2.0));
        assert!((ratio(of("t1.micro")) - 1.29).abs() < 0.01);
        assert!((ratio(of("m2.2xlarge")) - 1.93).abs() < 0.01);
        assert_eq!((large.bound(4, READ), large.published(3, WRITE)), (None, None));
    }

    #[test]
    fn writes_of_seeks_lie_nearer_to_each_other_in_smaller_files() {
        // MiB, and the requests that one run of bonnie++ 2.00a left, on XFS of Linux 6.18.
        let seen = [(16, 588.0), (22, 617.0), (32, 658.0), (48, 705.0), (64, 735.0), (124, 792.0)];
        for (file_mib, seen) in seen {
            let computed = requests_a_seek(file_mib) * SEEKS_MADE;
            assert!((computed / seen - 1.0).abs() < 0.05, "{file_mib} MiB: {computed}");
        }
        assert!((requests_a_seek(1 << 20) - 0.1).abs() < 0.001);
        let sizes = CLASSES.map(|class| class.file_mib(540));
        assert_eq!(sizes, [22, 46, 62, 44], "none is a multiple of 5");
    }
}
