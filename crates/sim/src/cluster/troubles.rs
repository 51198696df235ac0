//! Troubles in a life, and when they happen.

use braid_array::Role;
use braid_cluster::client::NODE_TIMEOUT_MS;
use braid_cluster::journal::HEADERS_BYTES;

use super::content;
use super::nodes::Cluster;
use super::promises::Happened;
use super::scenario::End;
use super::session::Session;

/// Something that breaks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    /// A node dies.
    Kill(Role),
    /// The connection of the client to a node breaks.
    Cut(Role),
    /// The connection between two nodes breaks.
    CutPeers(Role, Role),
    /// Sectors of a node cannot be read.
    BadSectors(Role),
    /// A node hangs for longer than it is waited for.
    Hang(Role),
    /// A node is frozen for a while, too short to be noticed.
    Pause(Role),
    /// A witness dies, and is started again or not, or the client loses the connection to it.
    Witness(usize),
}

impl Trouble {
    /// Returns the roles of nodes that this trouble may lose.
    pub(super) fn roles(self) -> Vec<Role> {
        match self {
            Self::Kill(role) | Self::Cut(role) | Self::Hang(role) | Self::BadSectors(role) => {
                vec![role]
            }
            Self::CutPeers(a, b) => vec![a, b],
            Self::Pause(_) | Self::Witness(_) => Vec::new(),
        }
    }
}

/// Draws the troubles of a life with this end, each with the number of the request that it
/// precedes.
pub(super) fn troubles(session: &mut Session, end: End) -> Vec<(u64, Trouble)> {
    let mut troubles = losses(session, end);
    // Nobody may miss it, even where all are lost of which that is so.
    let lost = session.promises.lost.len() + troubles.len();
    if session.cluster.can_lose_a_witness(lost) && session.cluster.rng.percent(30) {
        let number = session.cluster.rng.below(session.cluster.witnesses.len() as u64) as usize;
        troubles.push((
            session.cluster.rng.below(session.cluster.scenario.requests),
            Trouble::Witness(number),
        ));
    }
    troubles
}

/// Draws the troubles of the array itself.
fn losses(session: &mut Session, end: End) -> Vec<(u64, Trouble)> {
    let Cluster { scenario, rng, .. } = &mut session.cluster;
    let mut troubles = Vec::new();
    if rng.percent(10) {
        let node = Role(rng.below(u64::from(scenario.params.nodes)) as u16);
        troubles.push((rng.below(scenario.requests), Trouble::Pause(node)));
    }
    let mut lost = Vec::new();
    if scenario.bad_sectors {
        for node in scenario.more_losses(rng, &lost).into_iter().take(1) {
            lost.push(node);
            troubles.push((rng.below(scenario.requests), Trouble::BadSectors(node)));
        }
    }
    let cuts = scenario.journal_bytes > 0 && !scenario.replaces;
    if end == End::PowerCut && cuts && rng.percent(40) {
        // It comes back, if there is time, and what it had recorded counts no more.
        let cut = scenario.more_losses(rng, &lost).into_iter().take(1);
        troubles.extend(cut.map(|node| (rng.below(scenario.requests), Trouble::Cut(node))));
    }
    if end != End::Loss {
        return troubles;
    }
    let losses = scenario.more_losses(rng, &lost);
    // Of two that do not see each other either may go.
    let mut ends = vec![[lost, losses.clone()].concat()];
    for node in losses {
        let other = Role((node.0 + 1) % scenario.params.nodes);
        let swapped =
            |end: &Vec<Role>| end.iter().map(|&n| if n == node { other } else { n }).collect();
        let swapped: Vec<Vec<Role>> = ends.iter().map(swapped).collect();
        let either = swapped.iter().all(|end| scenario.survives(end));
        let trouble = match rng.below(10) {
            0..4 => Trouble::Kill(node),
            4..7 => Trouble::Cut(node),
            7 => Trouble::Hang(node),
            _ if either => {
                ends.extend(swapped);
                Trouble::CutPeers(node, other)
            }
            _ => Trouble::Cut(node),
        };
        // At times both at once, or at the very beginning.
        let at = match troubles.last() {
            Some((at, _)) if rng.percent(30) => *at,
            _ if rng.percent(8) => 0,
            _ => rng.below(scenario.requests),
        };
        troubles.push((at, trouble));
    }
    troubles
}

pub(super) fn inject(session: &mut Session, trouble: Trouble) {
    session.cluster.note(&[50], || format!("TROUBLE {trouble:?}"));
    if let Trouble::Witness(number) = trouble {
        // While a member is exchanged its vote is missing, too.
        if !session.is_replacing() {
            session.cluster.lose_witness(session.client, number);
        }
        return;
    }
    if let Trouble::Pause(role) = trouble {
        return session.cluster.pause(session.cluster.node(role));
    }
    session.drop_guest();
    session.cluster.freeze_a_witness();
    session.cluster.world.signs.lost += 1;
    let syncing = session.syncing();
    session.promises.heard(Happened::Trouble { syncing });
    match trouble {
        Trouble::Kill(role) => {
            session.promises.heard(Happened::NodeLost(role));
            session.cluster.kill(role);
        }
        Trouble::Cut(role) => {
            session.promises.heard(Happened::NodeLost(role));
            let node = session.cluster.node(role);
            session.cluster.world.disconnect(node, session.client);
        }
        Trouble::Hang(role) => {
            session.promises.heard(Happened::NodeLost(role));
            let millis = NODE_TIMEOUT_MS * session.cluster.rng.between(2, 20);
            let node = session.cluster.node(role);
            session.cluster.world.freeze(node, millis * 1_000_000);
        }
        Trouble::Pause(_) | Trouble::Witness(_) => {}
        Trouble::CutPeers(a, b) => {
            let [a, b] = [a, b].map(|role| session.cluster.node(role));
            session.cluster.world.disconnect(a, b);
        }
        Trouble::BadSectors(role) => {
            session.promises.heard(Happened::NodeDamaged(role));
            let node = session.cluster.node(role);
            for device in &mut session.cluster.world.processes[node].devices {
                for _ in 0..session.cluster.rng.between(1, 20) {
                    // Without its headers a volume has no journal.
                    let headers = device.disk.sectors() - HEADERS_BYTES / 512;
                    let data = headers - content::DATA_SECTOR;
                    device.disk.lose_sector(content::DATA_SECTOR + session.cluster.rng.below(data));
                }
            }
        }
    }
}
