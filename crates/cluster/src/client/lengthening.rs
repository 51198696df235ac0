//! Volumes of members become longer, when the keeper asks for that. This client then ends, whatever
//! came of it, and another one begins with the members as they are: nodes let this one store
//! nothing any more.

use braid_array::action::CommandId;
use braid_array::keeper::{LaneReport, Traffic};
use braid_array::{Instant, MemberId, Refusal, SECTOR_BYTES};

use super::Client;
use super::engine::Space;
use super::out::RequestKind;
use super::parts::Parts;
use super::session_key::SessionKey;
use crate::grow;
use crate::pipeline::{Params, Pipeline};
use crate::wire::Message;

impl Client {
    /// Begins to use more of each member, at most so many sectors. The command is answered when
    /// superblocks tell of that. If the client is [at rest](Self::is_at_rest) then, it is to be
    /// followed by another one.
    pub(crate) fn grow(&mut self, now: Instant, id: CommandId, sectors: u64) {
        self.parts.keeper.at(now);
        if let Err(why) = begin_growth(&mut self.parts, id, sectors) {
            self.parts.out.reply(id, Err(why));
        }
        self.drain();
        self.parts.refresh();
    }

    /// Returns whether requests are to be held: the array is being given another size.
    pub(crate) const fn holds_requests(&self) -> bool {
        self.parts.keeper.view().holds_requests() || self.is_at_rest()
    }

    /// Returns whether nodes let this client store nothing any more.
    pub(crate) const fn is_at_rest(&self) -> bool {
        self.parts.shared.at_rest
    }
}

impl Parts {
    /// Asks a member for room for so many sectors of data.
    pub(super) fn lengthen(&mut self, member: MemberId, data_sectors: u64) {
        self.shared.at_rest = true;
        let Some(role) = self.alive_role_of(member) else {
            let why = Refusal::new("its node is not there", "try again when it is back");
            return self.keeper_mut().hear(LaneReport::Lengthened(member, Err(why)));
        };
        let data_bytes = data_sectors * SECTOR_BYTES;
        let message = |tag| Message::LengthenVolume { tag, data_bytes };
        let (sessions, mut net) = self.sessions();
        sessions.request(&mut net, role, RequestKind::Lengthen, message);
    }

    /// Takes the answer of a member. One that is lost meanwhile has failed already.
    pub(super) fn lengthened(&mut self, key: SessionKey, result: Result<(), Refusal>) {
        let role = key.role().and_then(|role| self.sessions.list.id(role));
        if let Some(member) = role {
            self.keeper_mut().hear(LaneReport::Lengthened(member, result));
        }
    }
}

/// Drives the keeper's change of the members' length. No record or trim of journals may be under
/// way then.
pub(super) fn drive_growing(parts: &mut Parts) {
    let rest = parts.engine.journals.rest();
    parts.with_traffic(|keeper, traffic| {
        keeper.drive_growing(Traffic { quiet: traffic.quiet && rest, ..traffic });
    });
}

fn begin_growth(parts: &mut Parts, id: CommandId, sectors: u64) -> Result<(), Refusal> {
    parts.may_change()?;
    let keeper = parts.keeper.view();
    if keeper.holds_requests() || parts.keeper_side.is_busy() {
        let reason = "the array is being given another size, or another node";
        return Err(Refusal::new(reason, "try again when that is over"));
    }
    let new = grow::plan(&keeper.status(), sectors)?;
    let params = Params { stripes: new.stripes, ..*parts.shared.params() };
    let space = Space::new(&Pipeline::new(params)?)?;
    parts.keeper_mut().lengthen(id, new.member_sectors, Box::new(space));
    Ok(())
}
