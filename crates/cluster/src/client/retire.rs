//! A client that abandons its array, as at the death of its process, and its successor in the same
//! process.

use std::collections::BTreeSet;

use braid_array::Refusal;

use super::parts::Parts;
use super::{Client, ClientConfig, ClientMember};
use crate::ids::Epoch;
use crate::member::{VolumeAddress, member_parts};

impl Client {
    /// Returns whether the array cannot continue: more nodes are away than it can do without.
    pub(crate) fn has_too_few(&self) -> bool {
        self.parts.has_too_few()
    }

    /// Returns whether the start failed because the members differ from those in the configuration.
    pub(crate) const fn is_outdated(&self) -> bool {
        self.parts.ownership.is_outdated()
    }

    /// Returns why the client could not start, for a reason other than lost nodes.
    pub(crate) const fn refused(&self) -> Option<&Refusal> {
        self.parts.ownership.refused()
    }

    /// Abandons all connections, and with them everything under way.
    pub(crate) fn retire(&mut self) {
        for key in self.parts.sessions.list.member_keys() {
            self.parts.lose_stranger(key, None);
        }
        self.parts.close_visits();
        self.parts.keeper_mut().give_up();
        self.drain();
    }

    /// Returns whether nothing of the client is in flight any more.
    pub(crate) fn has_retired(&self) -> bool {
        let Parts { out, sessions, engine, shared, .. } = &self.parts;
        let nothing = out.is_empty() && out.ios.is_empty();
        nothing && engine.has_no_requests(shared) && !sessions.list.any_connected()
    }

    /// Returns the addresses of its members, including spares, lost and absent ones.
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
        members.map(place).chain(self.parts.keeper_side.absent_places()).chain(spares).collect()
    }

    pub(crate) const fn is_set_up(&self) -> bool {
        !self.parts.is_starting()
    }

    pub(crate) const fn is_stopping(&self) -> bool {
        self.parts.keeper.view().is_stopping()
    }

    /// Returns whether all data answered before this client is there, given the epochs with losses.
    /// Journals for parts of stripes alone are no proof: they lack writes of whole stripes.
    pub(crate) fn has_kept_all(&self, lossy: &BTreeSet<Epoch>) -> bool {
        self.parts.ownership.fits_after(lossy)
            || self.parts.engine.journals.are_used() && !self.parts.engine.journals.parts.only
    }

    /// Returns the epoch, if a view was recorded in it that may not mention earlier losses.
    pub(crate) fn lossy_epoch(&self, lossy: &BTreeSet<Epoch>) -> Option<Epoch> {
        let ownership = &self.parts.ownership;
        let epoch = ownership.view()?.epoch;
        if ownership.fits_after(lossy) { None } else { Some(epoch) }
    }

    /// Returns the configuration of the successor of this client; no other client may come in
    /// between.
    pub(crate) fn followed_by(&self, config: ClientConfig) -> ClientConfig {
        let params = config.params;
        let params =
            crate::pipeline::Params { epoch: self.parts.shared.params().epoch.next(), ..params };
        ClientConfig { params, follows: true, first_peer: self.parts.out.next_peer(), ..config }
    }
}
