//! Where no block says where it belongs: what rows of the members say alone. Rows tell the level,
//! and the members that belong together, and no order.

use braid_array::level::{Layout, Level};

use super::begins::USUAL_OFFSETS;
use super::explain::{Told, explain};
use super::gathered::Gathered;
use super::hypothesis::{Hypothesis, MemberInRole};
use super::marks::Structure;
use super::ranked::{Confidence, Ranked};
use super::shapes::Shape;
use super::sums::{Members, sums};
use crate::kind::Kind;

/// The chunk that is named where it cannot be told: mdadm's usual one.
const CHUNK_SECTORS: u32 = 1024;

/// All members as a mirror, or with one parity.
pub(super) fn guess(
    members: &mut Members<'_, '_>,
    gathered: &Gathered,
    known: &[Structure],
    names: &[String],
) -> Option<Ranked> {
    let structure = known.iter().position(Structure::is_whole)?;
    let headers = gathered.marks.iter().filter(|mark| mark.structure == structure);
    let header = headers.min_by_key(|mark| mark.place);
    let begins = header.and_then(|mark| mark.sector.checked_sub(mark.place));
    let offsets = begins.map_or_else(|| USUAL_OFFSETS.to_vec(), |begins| vec![begins]);
    // What the array begins with is in the first role, in the usual layout.
    let all = match &gathered.redundancy {
        Some(proven) => proven.members.clone(),
        None => (0..members.sizes().len()).collect(),
    };
    let first = header.map_or_else(|| all.first().copied(), |mark| Some(mark.member))?;
    let rest = all.into_iter().filter(|member| *member != first);
    let order: Vec<usize> = std::iter::once(first).chain(rest).collect();
    for data_offset in offsets {
        // What md left tells who is of another array.
        let there: Vec<(usize, u64)> = order.iter().map(|&member| (member, data_offset)).collect();
        let strangers = gathered.remains.strangers(&there);
        let own = || order.iter().copied().filter(|member| !strangers.contains(member));
        let raid_disks = u32::try_from(own().count()).ok()?;
        for (level, chunk_sectors) in [(Level::Raid1, 0), (Level::Raid5, CHUNK_SECTORS)] {
            if raid_disks < 2 {
                return None;
            }
            let layout = Layout::default_for(level);
            let shape = Shape { level, layout, chunk_sectors, raid_disks };
            let places = own().map(|member| Some(MemberInRole { member, data_offset }));
            let one =
                Hypothesis { roles: places.collect(), ..Hypothesis::empty(shape, structure, 0) };
            let said = sums(members, &one, gathered, known);
            if !said.confirm() {
                continue;
            }
            let mirror = level == Level::Raid1;
            // Whose metadata are alike at the ends of members may have nothing else to compare.
            let foreign = own().find_map(|member| Some((member, foreign(members, member)?)));
            let is_likely = mirror && foreign.is_none();
            let confidence = if is_likely { Confidence::Likely } else { Confidence::Guess };
            let mut ranked = explain(one, said, confidence, None, Told { gathered, known, names });
            if let Some((member, kind)) = foreign {
                ranked.evidence.push(format!("{} is {}", names[member], kind.name()));
            }
            if !mirror {
                let encrypted = header.is_some_and(|mark| mark.place == 0);
                let why = if encrypted {
                    "the content is encrypted (LUKS)"
                } else {
                    "no block says where it belongs"
                };
                ranked.evidence.push(format!("order, layout and chunk cannot be told: {why}"));
            }
            return Some(ranked);
        }
    }
    None
}

/// The kind of a member of whose array something else than md tells.
fn foreign(members: &mut Members<'_, '_>, member: usize) -> Option<Kind> {
    let mut found = members.look(member).findings.into_iter().map(|finding| finding.kind);
    found.find(|kind| matches!(kind, Kind::Ddf | Kind::Imsm))
}
