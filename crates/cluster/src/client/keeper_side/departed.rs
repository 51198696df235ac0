//! Departed nodes: nodes whose members have left the array are told to drop its slice-sets.
//!
//! Such a node may keep prepared slice-sets, with their rings and volumes, until a client resolves
//! these, and no takeover asks it any more. So each is told to drop them, on a connection of its
//! own, one node at a time. The order waits until no view that a later client may take for the
//! newest has its member in sync. An absent node is tried again a limited number of times. After
//! that it keeps the slice-sets until it restarts or is added again.

use super::KeeperSide;
use super::command::{JoinCommand, JoinFacts};
use crate::client::session_key::SessionKey;
use crate::member::VolumeAddress;

/// Number of tries, about ten minutes.
pub(super) const MAX_TRIES: u32 = 60;

impl KeeperSide {
    /// Notes that the member at this address has left the array, or is abandoned.
    pub(in crate::client) fn departs(&mut self, address: String) {
        let place = VolumeAddress { address, volume: String::new() };
        self.departed.forget(&place);
        if !braid_array::broken("departed-told") {
            self.departed.add(place, 0, self.now);
        }
    }

    /// Connects to the next departed node whose time has come. `members`: their sessions and
    /// addresses, and whether they are there or are to return.
    pub(super) fn look_for_departed(
        &mut self,
        facts: &JoinFacts,
        members: &[(SessionKey, String, bool)],
    ) {
        let now = self.now;
        while let Some(place) = self.departed.next(now)
            && facts.may_return
        {
            match members.iter().find(|(_, address, _)| *address == place.address) {
                Some(&(key, ..)) if self.target(key).is_some() => {
                    self.departed.postpone(&place, now);
                }
                // It is told on its way back.
                Some((.., true)) => self.departed.forget(&place),
                _ => {
                    self.departed.begin(place.clone());
                    self.commands.push_back(JoinCommand::Visit(SessionKey::DepartedVisit, place));
                }
            }
        }
    }
}
