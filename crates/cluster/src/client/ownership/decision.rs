//! Decision on the holders of an array, from the voters' grants and the superblocks. A client that
//! was granted the array decides; every later client decides the same.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use braid_array::refusal::Next;
use braid_array::{Condition, Refusal, Role};

use crate::ids::{Epoch, NodeId, SetVersion, VoterNo};
use crate::set::Set;
use crate::view::{View, Witness, majority};
use crate::wire::Leftover;

const DOUBT: &str = "members are missing and the array was not stopped cleanly, and too few of \
                     the others have run ever since, so parity that is needed to compute the \
                     missing data may be wrong";
const BEHIND: &str =
    "of those who hold all that was written too few are there; the others missed writes";
pub(in crate::client) const START: &str = "start the other nodes, or use --force";

/// Grant of a node.
#[derive(Clone, Debug)]
pub(in crate::client) struct NodeGrant {
    /// The newest view that the node holds.
    pub(in crate::client) view: Option<View>,
    /// Incarnation by which views list the node as a member in sync.
    pub(in crate::client) incarnation: u64,
    /// Identity as a voter.
    pub(in crate::client) node: NodeId,
}

impl NodeGrant {
    /// Returns the incarnation in the form of views.
    pub(super) const fn member(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.incarnation)
    }
}

/// Present holders of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::client) struct Decision {
    /// To be recorded.
    pub(in crate::client) view: View,
    /// Roles that are there and missed something.
    pub(in crate::client) stale: Vec<Role>,
    /// Enough holders have run ever since the newest view was recorded, so that no parity is in
    /// doubt.
    pub(in crate::client) intact: bool,
    /// Also true if journals hold everything that the holders may have lost.
    pub(in crate::client) fits: bool,
    /// Epoch of the newest view that was found.
    pub(in crate::client) before: Option<Epoch>,
}

/// Test of whether all data is there without the roles that the argument selects.
pub(in crate::client) type Survives<'a> = &'a dyn Fn(&dyn Fn(Role) -> bool) -> bool;

/// Findings of a client that was granted an epoch.
#[derive(Clone, Copy)]
pub(in crate::client) struct Findings<'a> {
    pub(in crate::client) epoch: Epoch,
    pub(in crate::client) nodes: u16,
    /// Grants of the voters that are there.
    pub(in crate::client) grants: &'a BTreeMap<VoterNo, NodeGrant>,
    /// The superblocks say of this role that it has all that belongs to it.
    pub(in crate::client) in_sync: &'a dyn Fn(Role) -> bool,
    /// Voters lost since the start began: the array continues without them, as after a later loss.
    pub(in crate::client) lost: &'a BTreeSet<VoterNo>,
    /// A majority is not asked for.
    pub(in crate::client) alone: bool,
    /// The operator vouches for the parities.
    pub(in crate::client) vouched: bool,
    /// Tests whether the array can do without these roles.
    pub(in crate::client) survives: Survives<'a>,
    /// Lost data is computed from parities.
    pub(in crate::client) parities: bool,
    /// The superblocks say that parts of the array may not fit.
    pub(in crate::client) marked: bool,
    /// Journals hold everything that members may have lost.
    pub(in crate::client) recorded: bool,
    /// The journals record parts of stripes only. Unrecorded parities in doubt are then not
    /// trusted, but do not prevent the start.
    pub(in crate::client) ppl: bool,
}

/// Returns the grants of members' nodes, by role, in an array with this many roles.
pub(super) fn of_members(
    grants: &BTreeMap<VoterNo, NodeGrant>,
    nodes: u16,
) -> impl Iterator<Item = (Role, &NodeGrant)> {
    grants.iter().filter_map(move |(voter, grant)| Some((voter.role(nodes)?, grant)))
}

/// Decides the holders of the array.
pub(in crate::client) fn decide(findings: &Findings<'_>) -> Result<Decision, Refusal> {
    let Findings { epoch, nodes, grants, in_sync, alone, marked, recorded, .. } = *findings;
    let newest = grants.values().filter_map(|grant| grant.view.as_ref()).max_by_key(|view| {
        let (epoch, count) = view.order();
        if braid_array::broken("view-order") { (count, epoch.0) } else { (epoch.0, count) }
    });
    let majority = majority(nodes.into());
    let grant_of = |role: Role| grants.get(&VoterNo::from(role));
    let of_members = || of_members(grants, nodes).map(|(_, grant)| grant.node);
    let lacks = match newest {
        Some(view) => view.lacks(&grants.values().map(|grant| grant.node).collect()),
        // Who votes besides members' nodes, a view has to say.
        None => Some((of_members().count(), majority)).filter(|(here, majority)| here < majority),
    };
    if let Some((asked, majority)) = lacks
        && !alone
    {
        let reason = format!("{asked} nodes that vote are there, and {majority} are needed");
        let witnesses = newest.map_or(&[][..], |view| &view.witnesses);
        let next = Next::from(who_to_start(grants, witnesses));
        return Err(Refusal::new(reason, next.of(Condition::TooFewMembers)));
    }
    let holds = |role: Role| in_sync(role) && newest.is_none_or(|view| view.has(role));
    let enough = (findings.survives)(&|role| !holds(role) || grant_of(role).is_none());
    if !enough && !alone {
        let next = Next::from("start the nodes that went on without them");
        return Err(Refusal::new(BEHIND, next.of(Condition::TooFewMembers)));
    }
    // Whoever answers for those who are not there has them back as they are here.
    let holds = |role: Role| if enough { holds(role) } else { in_sync(role) };
    // Those who have been there ever since lack nothing. If they are enough, others who died and
    // are there again are given what they missed, and no parity is in doubt.
    let kept = |role: Role| {
        let same = |grant: &NodeGrant| {
            let known = newest.and_then(|view| view.members.get(role.index()));
            braid_array::broken("restart-noticed")
                || known.is_some_and(|&member| member == grant.member())
        };
        holds(role) && grant_of(role).is_some_and(same)
    };
    let intact = newest.is_some_and(|view| !view.torn) && (findings.survives)(&|role| !kept(role));
    // What those have lost who died is in their journals.
    let fits = intact || recorded && newest.is_some_and(|view| !view.torn);
    let alone_hold = intact && marked && !recorded;
    let holds = |role: Role| if alone_hold { kept(role) } else { holds(role) };
    let member = |role| if holds(role) { grant_of(role).and_then(NodeGrant::member) } else { None };
    let was_lost = |role: Role| findings.lost.contains(&VoterNo::from(role));
    let whole = Role::all(nodes).all(|role| member(role).is_some() || was_lost(role));
    let doubtful = marked
        && !fits
        && findings.parities
        && !findings.ppl
        && !recorded
        && !braid_array::broken("dirty-degraded");
    if doubtful && !whole && !findings.vouched {
        let next = Next::from("bring the others back, or accept the risk with --force");
        return Err(Refusal::new(DOUBT, next.of(Condition::DirtyDegraded)));
    }
    let sorted = || of_members().collect::<BTreeSet<NodeId>>().into_iter().collect();
    let voters = newest.map_or_else(sorted, |view| view.voters.clone());
    let members = Role::all(nodes).map(member).collect();
    let stale = |&role: &Role| in_sync(role) && !holds(role);
    let stale = Role::all(nodes).filter(|&role| grant_of(role).is_some()).filter(stale).collect();
    let voted = newest.map_or_else(Vec::new, |view| view.voted.clone());
    let witnesses = newest.map_or_else(Vec::new, |view| view.witnesses.clone());
    let view = View {
        epoch,
        count: 1,
        torn: marked && !fits && !braid_array::broken("torn-recorded"),
        members,
        voters,
        voted,
        witnesses,
    };
    let before = newest.map(|view| view.epoch);
    Ok(Decision { view, stale, intact, fits, before })
}

/// Returns the advice for a start with too few voters.
fn who_to_start(grants: &BTreeMap<VoterNo, NodeGrant>, witnesses: &[Witness]) -> String {
    let here = |node: NodeId| grants.values().any(|grant| grant.node == node);
    let away = witnesses.iter().filter(|witness| !here(witness.node));
    let away: Vec<&str> = away.map(|witness| witness.address.as_str()).collect();
    match away.as_slice() {
        [] => START.to_owned(),
        away => format!("start the witness at {}, or {START}", away.join(" or ")),
    }
}

/// Returns the slice-sets to commit: those that every node `here` with a part in them holds. A
/// slice-set that excludes a node `here` as lost is not committed: no view had recorded that loss,
/// so the slice-set cannot have been answered.
pub(in crate::client) fn committed(
    leftovers: &BTreeMap<Role, Vec<Leftover>>,
    here: impl Fn(Role) -> bool,
    parts: impl Fn(&Set) -> Option<Vec<Role>>,
) -> Vec<SetVersion> {
    let prepared = leftovers
        .values()
        .flatten()
        .filter_map(|item| Some((item.version, item.prepared.as_ref()?)));
    let sets: BTreeMap<SetVersion, &Set> = prepared.collect();
    let held = |role: &Role, version| {
        let has = |item: &Leftover| item.version == version && item.ok;
        leftovers.get(role).is_some_and(|leftovers| leftovers.iter().any(has))
    };
    let stored = |role: &Role, version| {
        let has = |item: &Leftover| item.version == version && item.ok && item.prepared.is_none();
        leftovers.get(role).is_some_and(|leftovers| leftovers.iter().any(has))
    };
    let goes = |&(version, set): &(SetVersion, &Set)| {
        let whole = !set.missing.iter().any(&here);
        whole
            && parts(set).is_some_and(|roles| {
                let mut roles = roles.iter().filter(|role| here(**role));
                if braid_array::broken("all-hold") {
                    roles.any(|role| held(role, version))
                } else if braid_array::broken("prepared-counts") {
                    roles.any(|role| stored(role, version))
                } else {
                    roles.all(|role| held(role, version))
                }
            })
    };
    sets.into_iter().filter(goes).map(|(version, _)| version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Planner;
    use crate::ids::{Generation, Position, StripeNo};
    use crate::set::{Roles, Touched, WriteStrategy};

    #[test]
    fn what_left_one_out_who_holds_the_array_was_not_answered() {
        let set = Set {
            position: Position(0),
            generation: Generation(0),
            number: 7,
            stripe: StripeNo(0),
            offset: 0,
            len: 4096,
            strategy: WriteStrategy::FullStripe,
            planner: Planner::Client,
            fua: false,
            touched: Touched::all(1),
            missing: Roles(0b100),
            log: false,
            relay: false,
        };
        let item =
            Leftover { version: SetVersion::new(Epoch(1), 7), prepared: Some(set), ok: true };
        let leftovers = BTreeMap::from([(Role(0), vec![item.clone()]), (Role(1), vec![item])]);
        let parts = |_: &Set| Some(vec![Role(0), Role(1)]);
        assert_eq!(
            committed(&leftovers, |role| role < Role(2), parts),
            [SetVersion::new(Epoch(1), 7)]
        );
        assert_eq!(committed(&leftovers, |role| role < Role(3), parts), []);
    }
}
