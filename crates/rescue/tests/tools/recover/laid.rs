//! Arrays without superblocks, laid out as md does.

use braid_array::geometry::{Geometry, Shape};
use braid_array::level::{Layout, Level};

fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(512).all(|sector| *sector == [0; 512][..sector.len()])
}

/// An array to be found.
pub(super) struct Case {
    pub(super) level: Level,
    pub(super) layout: Layout,
    pub(super) chunk_sectors: u32,
    pub(super) offsets: Vec<u64>,
}

impl Case {
    pub(super) fn new(level: Level, layout: &str, chunk_kib: u32, members: usize) -> Self {
        let layout = match layout {
            "" if level == Level::Raid0 => Layout::None,
            "" => Layout::default_for(level),
            name => Layout::parse(level, name).unwrap(),
        };
        Self { level, layout, chunk_sectors: chunk_kib * 2, offsets: vec![2048; members] }
    }

    /// The bytes of the members, by role. Zeroes are not written: most of a content is zeroes, and
    /// memory that nobody has written to costs nothing.
    pub(super) fn lay(&self, content: &[u8]) -> Vec<Vec<u8>> {
        let count = self.offsets.len();
        let copies = match self.layout {
            Layout::Raid10(layout) => layout.copies() as usize,
            _ => 1,
        };
        let data =
            if self.level == Level::Raid1 { 1 } else { count - self.level.parity_disks() as usize };
        let chunk = u64::from(self.chunk_sectors.max(8)) * 8;
        let used = ((content.len() * copies / data) as u64 / 512 + 1).next_multiple_of(chunk);
        let geometry = Geometry::new(&Shape {
            level: self.level,
            layout: self.layout,
            raid_disks: count as u32,
            chunk_sectors: self.chunk_sectors,
            size_sectors: used,
            member_data_sectors: &vec![used; count],
        })
        .unwrap();
        let size = |offset: &u64| ((offset + used) * 512) as usize;
        let mut members: Vec<Vec<u8>> = self.offsets.iter().map(|o| vec![0; size(o)]).collect();
        for (index, bytes) in content.chunks(4096).enumerate() {
            if is_zero(bytes) {
                continue;
            }
            for copy in 0..geometry.copies() {
                let strip = geometry.copy(index as u64 * 8, copy);
                let role = strip.role.index();
                let at = ((self.offsets[role] + strip.sector) * 512) as usize;
                members[role][at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        if self.level.parity_disks() > 0 {
            self.add_parity(&geometry, &mut members);
        }
        members
    }

    fn add_parity(&self, geometry: &Geometry, members: &mut [Vec<u8>]) {
        let chunk = u64::from(self.chunk_sectors);
        for stripe in 0..geometry.member_sectors() / chunk {
            let (p, q) = geometry.parity_roles(stripe);
            let range = |role: usize| {
                let start = ((self.offsets[role] + stripe * chunk) * 512) as usize;
                start..start + (chunk * 512) as usize
            };
            let roles: Vec<usize> = (0..geometry.data_disks())
                .map(|index| geometry.data_role(stripe, index).index())
                .collect();
            let strips: Vec<&[u8]> = roles.iter().map(|r| &members[*r][range(*r)]).collect();
            if strips.iter().copied().all(is_zero) {
                continue;
            }
            let ones = vec![1; strips.len()];
            let coefs: Vec<u8> = match q {
                Some(_) => (0..geometry.data_disks()).map(|i| geometry.q_coef(stripe, i)).collect(),
                None => Vec::new(),
            };
            let mut sums = vec![vec![0; (chunk * 512) as usize]; 2];
            let [p_sum, q_sum] = &mut sums[..] else { unreachable!() };
            braid_parity::combine(&mut [p_sum], &ones, &strips, false);
            if q.is_some() {
                braid_parity::combine(&mut [q_sum], &coefs, &strips, false);
            }
            let at = range(p.index());
            members[p.index()][at].copy_from_slice(&sums[0]);
            if let Some(q) = q {
                let at = range(q.index());
                members[q.index()][at].copy_from_slice(&sums[1]);
            }
        }
    }
}
