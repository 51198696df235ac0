//! Promises of the protocol, given the events so far.

use braid_array::Role;

/// An event that changes the promises.
#[derive(Clone, Copy, Debug)]
pub(super) enum Happened<'a> {
    /// A client begins; if `all_fits`, nothing was lost since the last one.
    ClientBegins { all_fits: bool },
    /// The client begins with a member. `clean`: its superblock says clean; `recorded`: journals
    /// hold the writes that were in flight.
    MemberFound { clean: bool, recorded: bool },
    /// The client has taken its first request.
    ClientServes,
    /// The client is gone, or about to be: nodes may keep leftovers for the next one.
    ClientGone,
    /// A write has failed.
    WriteFailed,
    /// A trouble is imminent. `syncing`: a resync is running.
    Trouble { syncing: bool },
    /// A node is dead, hangs, or is cut off from the client.
    NodeLost(Role),
    /// Some sectors of a node cannot be read.
    NodeDamaged(Role),
    /// Nodes do not come back.
    NodesDie,
    /// Clients go on without this role from now on.
    Missing(Role),
    /// The client goes on without a role: it was replaced by another member, or lost.
    GoneWithout { role: Role, replaced: bool, parities_fit: bool },
    /// The member of a role has its whole content. `readable`: the client can read it; `knows_all`:
    /// it has no list of bad blocks.
    HasAll { role: Role, readable: bool, knows_all: bool },
    /// The member of a role has its whole content, but no superblock and no view records that yet.
    HasNotAll(Role),
    /// Only these of the left-out roles are known to be left out.
    OnlyKnown(&'a [Role]),
    /// Blocks of lost nodes were recorded as lost.
    DataLost,
    /// A resync has ended.
    Resynced,
    /// Nodes that were only cut off are back, except those that were left out.
    Revived { left_out: &'a [Role], unnoticed: bool },
    /// The content is judged without these nodes.
    LookedAtWithout(&'a [Role]),
}

/// Promises of an array over nodes, and the exceptions: requests that may fail, sectors that may be
/// lost. All changes are made by [`heard`](Self::heard), except for a start that is
/// [refused](Self::take_back).
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// Nodes that are dead, cut off from the client or damaged.
    pub lost: Vec<Role>,
    /// Roles that a client has left out: their nodes lack later writes.
    pub dropped: Vec<Role>,
    /// Roles of nodes that came back or were replaced when some of their content was lost.
    pub(super) unknowing: Vec<Role>,
    /// A node is dead or cut off.
    pub(super) dead: bool,
    /// Something broke: writes may fail.
    pub(super) troubled: bool,
    /// The only trouble was a replacement of members.
    pub(super) mild: bool,
    /// A write has failed: the client writes no more, and its unfinished writes are torn.
    pub(super) failed: bool,
    /// A trouble came during a resync: the client does not decode from the stripes under resync.
    pub(super) half_synced: bool,
    /// Blocks of lost nodes were recorded as lost: a resync does not bring them back.
    pub(super) told_lost: bool,
    /// All parities fit except those being written: no resync is due.
    pub(super) in_step: bool,
    /// Nothing was lost since the last client: its unfinished writes are complete or get resolved.
    pub(super) all_fits: bool,
    /// As `all_fits`, until the client takes its first request.
    pub(super) mended: bool,
    /// Clients were lost, and may have left leftovers on nodes for the next one.
    pub(super) left: bool,
}

impl Promises {
    pub(super) fn heard(&mut self, happened: Happened<'_>) {
        match happened {
            Happened::ClientBegins { all_fits } => {
                self.all_fits = all_fits;
                self.mended = all_fits;
                self.in_step = true;
            }
            Happened::MemberFound { clean, recorded } => {
                // Nothing is decoded from parities that may not fit.
                self.half_synced |= !clean && !recorded;
                self.in_step &= self.all_fits || clean;
            }
            Happened::ClientServes => self.mended = false,
            Happened::ClientGone => self.left = true,
            Happened::WriteFailed => self.failed = true,
            Happened::Trouble { syncing } => {
                self.troubled = true;
                self.mild = false;
                self.left = true;
                self.half_synced |= syncing;
            }
            Happened::NodeLost(role) => {
                self.lost.push(role);
                self.dead = true;
            }
            Happened::NodeDamaged(role) => self.lost.push(role),
            Happened::NodesDie => {
                self.dead = true;
                self.troubled = true;
                self.mild = false;
            }
            Happened::Missing(role) => self.miss(role),
            Happened::GoneWithout { role, replaced, parities_fit } => {
                if replaced && !self.troubled {
                    self.troubled = true;
                    self.mild = true;
                }
                self.half_synced |= !parities_fit;
                self.dead = true;
                self.miss(role);
            }
            Happened::HasAll { role, readable, knows_all } => {
                self.has_all(role, readable, knows_all);
            }
            Happened::HasNotAll(role) => {
                if !self.dropped.contains(&role) {
                    self.lost.retain(|&lost| lost != role);
                    self.miss(role);
                }
            }
            Happened::OnlyKnown(roles) => self.dropped = roles.to_vec(),
            Happened::DataLost => self.told_lost = true,
            Happened::Resynced => {
                self.half_synced = false;
                self.in_step = true;
            }
            Happened::Revived { left_out, unnoticed } => {
                // Who was left out when the array was started has to be brought up to date first.
                self.lost = [left_out, &self.dropped].concat();
                self.dead = !self.lost.is_empty();
                self.troubled = self.dead || unnoticed;
                self.failed = false;
                self.half_synced = false;
            }
            Happened::LookedAtWithout(missing) => {
                self.lost = missing.to_vec();
                self.dead |= !missing.is_empty();
            }
        }
    }

    fn has_all(&mut self, role: Role, readable: bool, knows_all: bool) {
        if self.told_lost && !knows_all {
            self.unknowing.push(role);
        }
        // What it cannot read is still lost.
        if readable {
            self.lost.retain(|&lost| lost != role);
        }
        self.dropped.retain(|&dropped| dropped != role);
    }

    /// Records that a node was killed without notice.
    pub fn killed(&mut self, role: Role) {
        self.heard(Happened::NodesDie);
        self.heard(Happened::NodeLost(role));
    }

    fn miss(&mut self, role: Role) {
        for list in [&mut self.lost, &mut self.dropped] {
            if !list.contains(&role) {
                list.push(role);
            }
        }
    }

    /// A client was refused, which has given nodes up that are not lost.
    pub(super) fn take_back(&mut self, before: Self) {
        self.lost = before.lost;
        self.dropped = before.dropped;
        self.dead = before.dead;
    }

    /// All that may be missing, these roles included.
    pub(super) fn missing_with(&self, roles: &[Role]) -> Vec<Role> {
        [&self.lost, &self.dropped, roles].concat()
    }
}
