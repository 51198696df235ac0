//! A client that lets its array go, as one that dies does, and who comes after it in the same
//! process.

use std::collections::BTreeSet;

use braid_array::Refusal;

use super::parts::Parts;
use super::{Client, ClientConfig, ClientMember};
use crate::ids::Epoch;
use crate::member::{VolumeAddress, member_parts};

impl Client {
    /// It cannot go on: more nodes are away than the array can do without.
    pub(crate) fn has_too_few(&self) -> bool {
        self.parts.has_too_few()
    }

    /// It was not started: its members hold something else than what it was made from.
    pub(crate) const fn is_outdated(&self) -> bool {
        self.parts.ownership.is_outdated()
    }

    /// Why it could not start, if it was not for nodes that it lost.
    pub(crate) const fn refused(&self) -> Option<&Refusal> {
        self.parts.ownership.refused()
    }

    /// Gives up all connections, and with them whatever is under way.
    pub(crate) fn retire(&mut self) {
        self.keeper_side.retire(&mut self.parts);
        self.parts.close_visits();
        self.parts.keeper_mut().give_up();
        self.drain();
    }

    /// Nothing of it is in flight any more.
    pub(crate) fn has_retired(&self) -> bool {
        let Parts { out, sessions, engine, shared, .. } = &self.parts;
        let nothing = out.is_empty() && out.ios.is_empty();
        nothing && engine.has_no_requests(shared) && !sessions.list.any_connected()
    }

    /// Where its members are, spares and those that it has lost, or not found so far, too.
    pub(crate) fn places(&self) -> Vec<VolumeAddress> {
        let list = &self.parts.sessions.list;
        let members = list.roles().filter_map(|role| list.get(role).member.as_ref());
        let place = |ClientMember { address, volume, .. }: &ClientMember| VolumeAddress {
            address: address.clone(),
            volume: volume.clone(),
        };
        let spares = self.parts.keeper.view().spares().filter_map(|spare| {
            let (address, volume) = member_parts(&spare.device)?;
            Some(VolumeAddress { address: address.to_owned(), volume: volume.to_owned() })
        });
        members.map(place).chain(self.keeper_side.absent_places()).chain(spares).collect()
    }

    pub(crate) const fn is_set_up(&self) -> bool {
        !self.parts.is_starting()
    }

    pub(crate) const fn is_stopping(&self) -> bool {
        self.parts.keeper.view().is_stopping()
    }

    /// Whatever was answered before it is there, if in these epochs it was not. Journals for parts
    /// of stripes alone do not have what gave whole stripes new content.
    pub(crate) fn has_kept_all(&self, lossy: &BTreeSet<Epoch>) -> bool {
        self.parts.ownership.fits_after(lossy)
            || self.parts.engine.journals.are_used() && !self.parts.engine.journals.parts.only
    }

    /// Its epoch, if it may have recorded a view that says nothing of what was lost before it.
    pub(crate) fn lossy_epoch(&self, lossy: &BTreeSet<Epoch>) -> Option<Epoch> {
        let ownership = &self.parts.ownership;
        let epoch = ownership.view()?.epoch;
        if ownership.fits_after(lossy) { None } else { Some(epoch) }
    }

    /// The client that comes after this one, to which nobody may come in between.
    pub(crate) fn followed_by(&self, config: ClientConfig) -> ClientConfig {
        let params = config.params;
        let params =
            crate::pipeline::Params { epoch: self.parts.shared.params().epoch.next(), ..params };
        ClientConfig { params, follows: true, first_peer: self.parts.out.next_peer(), ..config }
    }
}
