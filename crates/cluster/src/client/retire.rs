//! A client that lets its array go, as one that dies does, and who comes after it in the same
//! process.

use braid_array::Refusal;

use super::sessions::setup::SessionState;
use super::{Client, ClientConfig, ClientMember, Phase};
use crate::member::{VolumeAddress, member_parts};

impl Client {
    /// It cannot go on: more nodes are away than the array can do without.
    pub(crate) fn has_too_few(&self) -> bool {
        let ends = self.keeper.view().is_read_only()
            || self.keeper.view().is_stopping()
            || self.ownership.is_fenced();
        self.writes_over() && !ends
    }

    /// It was not started: its members hold something else than what it was made from.
    pub(crate) const fn is_outdated(&self) -> bool {
        self.ownership.is_outdated()
    }

    /// Why it could not start, if it was not for nodes that it lost.
    pub(crate) const fn refused(&self) -> Option<&Refusal> {
        self.ownership.refused()
    }

    /// Gives up all connections, and with them whatever is under way.
    pub(crate) fn retire(&mut self) {
        for role in 0..=self.copy_target() {
            if matches!(self.sessions[usize::from(role)].state, SessionState::Returning(_)) {
                self.return_fails(role);
            }
        }
        self.absents.close(&mut self.out, self.keeper.view().now());
        self.departed.close(&mut self.out, self.keeper.view().now());
        self.ownership.close(&mut self.out);
        self.keeper.give_up();
        self.drain();
    }

    /// Nothing of it is in flight any more.
    pub(crate) fn has_retired(&self) -> bool {
        let connected = self.sessions.iter().any(super::Session::is_connected);
        let nothing = self.out.is_empty() && self.out.ios.is_empty();
        nothing && self.engine.has_no_requests(&self.shared) && !connected
    }

    /// Where its members are, spares and those that it has lost, or not found so far, too.
    pub(crate) fn places(&self) -> Vec<VolumeAddress> {
        let sessions = self.sessions.iter().take(usize::from(self.copy_target()));
        let members = sessions.filter_map(|session| session.member.as_ref());
        let place = |ClientMember { address, volume, .. }: &ClientMember| VolumeAddress {
            address: address.clone(),
            volume: volume.clone(),
        };
        let spares = self.keeper.view().spares().filter_map(|spare| {
            let (address, volume) = member_parts(&spare.device)?;
            Some(VolumeAddress { address: address.to_owned(), volume: volume.to_owned() })
        });
        members.map(place).chain(self.absents.places()).chain(spares).collect()
    }

    pub(crate) const fn is_set_up(&self) -> bool {
        !matches!(self.phase, Phase::Setup)
    }

    pub(crate) const fn is_stopping(&self) -> bool {
        self.keeper.view().is_stopping()
    }

    /// Whatever was answered before it is there. Journals for parts of stripes alone do not have
    /// what gave whole stripes new content.
    pub(crate) fn has_kept_all(&self) -> bool {
        self.ownership.fits() || self.engine.journals.are_used() && !self.engine.journals.parts.only
    }

    /// The client that comes after this one, to which nobody may come in between.
    pub(crate) fn followed_by(&self, config: ClientConfig) -> ClientConfig {
        let params = config.params;
        let params = crate::pipeline::Params { epoch: self.shared.params().epoch + 1, ..params };
        ClientConfig { params, follows: true, first_peer: self.out.next_peer(), ..config }
    }
}
