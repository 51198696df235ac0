//! A byte that changes on a volume by itself, while the array is idle. A check finds it, and names
//! the block if the code can tell. A repair restores the byte.

use braid_array::Role;
use braid_array::events::{ArrayEvent, StripeBlock};
use braid_array::level::Level;
use braid_cluster::Family;

use super::content::VOLUME;
use super::session::Session;
use crate::report::Failure;
use crate::rng::Rng;

/// Blocks that a check tells apart.
const BLOCK_SECTORS: u32 = 8;

/// At times, of an array that is whole.
pub(super) fn flip_a_bit(session: &mut Session) -> Result<(), Failure> {
    let mut rng = Rng::new(session.cluster.world.trace.hash());
    let whole = !session.promises.troubled
        && !session.promises.told_lost
        && session.promises.dropped.is_empty()
        && !session.syncing()
        && session.cluster.scenario.params.family.is_redundant()
        && !session.cluster.disks().iter().any(|disk| disk.damaged())
        && session.cluster.status_of(session.client).degraded == 0;
    if !whole || !rng.percent(25) {
        return Ok(());
    }
    // Nothing is on its way to the volumes after that.
    scrub(session, false)?;
    expect(session, "nothing", |told| told.is_empty())?;

    let params = session.cluster.scenario.params;
    let tells = match params.family {
        Family::Xor2d => true,
        Family::Md { level, .. } => level == Level::Raid6,
    };
    let stripe = rng.below(params.stripes);
    let code = session.cluster.layout.code(stripe);
    // Of data of which there is but one sum, a repair takes what they say.
    let cells: Vec<_> = if tells {
        code.cells().collect()
    } else {
        code.equations().iter().map(|equation| equation.parity).collect()
    };
    let cell = rng.pick(&cells);
    let at = rng.below(u64::from(params.chunk_bytes));
    let sector = session.cluster.layout.sector(stripe, cell) + at / 512;
    session.cluster.note(&[55, stripe, at], || format!("ROT of stripe {stripe} {cell:?} at {at}"));
    let node = session.cluster.node(cell.node);
    let disk = &mut session.cluster.world.processes[node].volume_mut(VOLUME).disk;
    let mut bytes = disk.image()[sector as usize * 512..][..512].to_vec();
    bytes[at as usize % 512] ^= 1 << rng.below(8);
    disk.put(sector, &bytes);

    for repair in [false, true] {
        scrub(session, repair)?;
        let right = |&(sectors, role, block): &(u32, Option<Role>, Option<StripeBlock>)| {
            let named = block == Some(StripeBlock { stripe, row: Some(cell.row) });
            sectors == BLOCK_SECTORS
                && match role {
                    Some(role) => role == cell.node && named,
                    None => !tells,
                }
        };
        expect(session, "what has changed", |told| told.len() == 1 && told.iter().all(right))?;
    }
    scrub(session, false)?;
    expect(session, "nothing", |told| told.is_empty())
}

/// Runs a check or repair to its end: it must end regardless of earlier events.
pub(super) fn scrub(session: &mut Session, repair: bool) -> Result<(), Failure> {
    session.scrub(repair);
    session.outputs()?;
    session.until("a check stands still", |session| !session.syncing())
}

/// Reported mismatches: sectors, role of the wrong block, and the block.
type Told = Vec<(u32, Option<Role>, Option<StripeBlock>)>;

fn expect(
    session: &mut Session,
    what: &str,
    is_right: impl Fn(&Told) -> bool,
) -> Result<(), Failure> {
    let mut told = Told::new();
    for event in std::mem::take(&mut session.scrubs) {
        if let ArrayEvent::Mismatch { sectors, member, block, .. } = event {
            let role = member.and_then(|member| session.cluster.role_of(session.client, member));
            told.push((sectors, role, block));
        }
    }
    if is_right(&told) {
        Ok(())
    } else {
        Err(Failure(format!("a check was to tell of {what}, and told of {told:?}")))
    }
}
