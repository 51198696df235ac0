//! Bounds of links of equal rates, computed from the schedules before anything is measured. All
//! results are in lines: 1 is what one link carries in one direction.
//!
//! For a schedule let `c` be the blocks that a client sends for each block of data, and `v` what
//! the busiest node receives or sends of it, on average over stripes and encoders. Then `k` clients
//! write at most `min(k / c, 1 / v)`. A mix makes a part of the stripes one way and the rest the
//! other; its bound is that of the best part.

use braid_array::Role;
use braid_cluster::{Family, Planner};

use super::words::WriteSchedule;

/// Blocks for each block of data.
#[derive(Clone, Debug, PartialEq)]
struct Loads {
    client: f64,
    /// Received by each node, then sent by each.
    nodes: Vec<f64>,
    /// Among the nodes, in all.
    exchanged: f64,
}

impl Loads {
    /// Averages over a period of stripes, and over all encoders; `None` for a mix.
    fn of(family: Family, nodes: u16, schedule: WriteSchedule) -> Option<Self> {
        let planners = planners(nodes, schedule)?;
        let mut sum =
            Self { client: 0.0, nodes: vec![0.0; 2 * usize::from(nodes)], exchanged: 0.0 };
        let mut blocks = 0;
        for stripe in 0..u64::from(family.period(nodes)) {
            for &planner in &planners {
                blocks += family.code(nodes, stripe).ok()?.data().len();
                let schedule = family.schedule(nodes, stripe, planner)?;
                sum.client += f64::from(schedule.client_egress());
                sum.exchanged += schedule.node_transfers() as f64;
                let carried = schedule.ingress().into_iter().chain(schedule.egress());
                sum.nodes.iter_mut().zip(carried).for_each(|(sum, load)| *sum += f64::from(load));
            }
        }
        Some(sum.combined(0.0, &sum, 1.0 / blocks as f64))
    }

    /// A part of this, and a part of `other`.
    fn combined(&self, part: f64, other: &Self, part_of_other: f64) -> Self {
        let mix = |(a, b): (&f64, &f64)| a * part + b * part_of_other;
        Self {
            client: mix((&self.client, &other.client)),
            nodes: self.nodes.iter().zip(&other.nodes).map(mix).collect(),
            exchanged: mix((&self.exchanged, &other.exchanged)),
        }
    }

    fn rate(&self, clients: u16) -> f64 {
        let busiest = self.nodes.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        (f64::from(clients) / self.client).min(1.0 / busiest)
    }
}

/// The planners that take turns: each node is the encoder of another slice-set. A mix is none of
/// its own.
fn planners(nodes: u16, schedule: WriteSchedule) -> Option<Vec<Planner>> {
    Some(match schedule {
        WriteSchedule::Client => vec![Planner::Client],
        WriteSchedule::Chain => vec![Planner::Chain],
        WriteSchedule::Static => vec![Planner::Static],
        WriteSchedule::Encoder => Role::all(nodes).map(|node| Planner::Encoder { node }).collect(),
        WriteSchedule::Mix => return None,
    })
}

/// Returns whether the code has such a schedule: a mix, where there is one of the encoder.
pub(super) fn has(family: Family, nodes: u16, schedule: WriteSchedule) -> bool {
    let planners = planners(nodes, schedule).unwrap_or(vec![Planner::Encoder { node: Role(0) }]);
    planners.first().is_some_and(|&planner| family.schedule(nodes, 0, planner).is_some())
}

/// Returns what `clients` can write in all; `None` when the code has no such schedule.
pub(super) fn write(
    family: Family,
    nodes: u16,
    schedule: WriteSchedule,
    clients: u16,
) -> Option<f64> {
    const STEPS: u32 = 1000;
    if schedule != WriteSchedule::Mix {
        return Some(Loads::of(family, nodes, schedule)?.rate(clients));
    }
    let encoder = Loads::of(family, nodes, WriteSchedule::Encoder)?;
    let client = Loads::of(family, nodes, WriteSchedule::Client)?;
    let rate = |step| {
        let part = f64::from(step) / f64::from(STEPS);
        encoder.combined(1.0 - part, &client, part).rate(clients)
    };
    Some((0..=STEPS).map(rate).fold(0.0, f64::max))
}

/// Returns what `clients` can read in all without `lost` nodes: from a whole stripe as many blocks
/// as it has of data, whichever those are. While no node is missing, they are the data themselves.
pub(super) fn read(family: Family, nodes: u16, lost: u16, clients: u16) -> Option<f64> {
    if lost > 0 {
        return Some(f64::from(clients.min(nodes - lost)));
    }
    let mut held = vec![0_u32; usize::from(nodes)];
    for stripe in 0..u64::from(family.period(nodes)) {
        for cell in family.code(nodes, stripe).ok()?.data() {
            held[cell.node.index()] += 1;
        }
    }
    let all = held.iter().sum::<u32>();
    let most = held.iter().max()?;
    Some(f64::from(clients).min(f64::from(all) / f64::from(*most)))
}

/// Returns whether all can be read without the first so many nodes.
pub(super) fn survives(family: Family, nodes: u16, lost: u16) -> bool {
    family.losses(nodes).is_ok_and(|losses| losses.survives(|node| node.0 < lost))
}

/// Bytes that nodes send each other for a byte of data; `None` for a mix, of which it depends.
pub(super) fn exchanged(family: Family, nodes: u16, schedule: WriteSchedule) -> Option<f64> {
    Some(Loads::of(family, nodes, schedule)?.exchanged)
}

#[cfg(test)]
mod tests {
    use braid_array::level::{Layout, Level};

    use super::*;

    const RAID4: Family = Family::Md { level: Level::Raid4, layout: Layout::None };

    fn close(found: Option<f64>, expected: f64) {
        let found = found.expect("a bound");
        assert!((found - expected).abs() < 0.006, "{found} is not {expected}");
    }

    /// The table of the specification, section 5: client, encoder and mix by number of clients.
    #[test]
    fn several_clients_are_bound_by_the_nodes() {
        let table: [(u16, [[f64; 3]; 4]); 4] = [
            (4, [[0.5, 1.0, 1.0], [1.0, 1.6, 1.67], [1.5, 1.6, 1.83], [2.0, 1.6, 2.0]]),
            (5, [[0.6, 1.0, 1.0], [1.2, 2.0, 2.0], [1.8, 2.14, 2.4], [2.4, 2.14, 2.7]]),
            (6, [[0.67, 1.0, 1.0], [1.33, 2.0, 2.0], [2.0, 2.67, 2.8], [2.67, 2.67, 3.2]]),
            (12, [[0.83, 1.0, 1.0], [1.67, 2.0, 2.0], [2.5, 3.0, 3.0], [3.33, 4.0, 4.0]]),
        ];
        for (nodes, rows) in table {
            for (clients, row) in (1..).zip(rows) {
                let bound = |schedule| write(Family::Xor2d, nodes, schedule, clients);
                close(bound(WriteSchedule::Client), row[0]);
                close(bound(WriteSchedule::Encoder), row[1]);
                close(bound(WriteSchedule::Mix), row[2]);
            }
        }
        // The chain saturates at D over the largest ingress.
        close(write(Family::Xor2d, 5, WriteSchedule::Chain, 4), 12.0 / 7.0);
    }

    #[test]
    fn two_data_nodes_and_one_for_parity() {
        close(write(RAID4, 3, WriteSchedule::Client, 1), 0.667);
        close(write(RAID4, 3, WriteSchedule::Chain, 1), 1.0);
        close(write(RAID4, 3, WriteSchedule::Encoder, 1), 1.0);
        close(read(RAID4, 3, 0, 1), 1.0);
        close(read(RAID4, 3, 0, 3), 2.0);
        close(read(RAID4, 3, 1, 3), 2.0);
        assert!(survives(RAID4, 3, 1) && !survives(RAID4, 3, 2));
        assert!(survives(Family::Xor2d, 5, 2) && !survives(Family::Xor2d, 5, 3));
    }

    #[test]
    fn no_schedule_exchanges_less_than_the_encoder() {
        for nodes in [4, 5, 6, 9, 12] {
            let family = Family::Xor2d;
            let code = family.code(nodes, 0).expect("a code");
            let bound = f64::from(code.rows()) * f64::from(nodes - 1) / code.data().len() as f64;
            close(exchanged(family, nodes, WriteSchedule::Encoder), bound);
        }
        close(exchanged(Family::Xor2d, 5, WriteSchedule::Chain), 20.0 / 12.0);
        close(exchanged(Family::Xor2d, 5, WriteSchedule::Client), 0.0);
    }
}
