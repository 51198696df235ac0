//! Volumes that nobody uses any more.

use std::sync::Arc;

use braid_array::IoOp;
use braid_array::fabric::VolumeOp;

use super::{State, Volumes};
use crate::node::ids::ClientId;
use crate::node::out::{Flight, Out};

impl Volumes {
    /// Closes a volume that nobody uses; removes it when its maker left before it was there.
    pub(super) fn close_if_unused(&mut self, name: &Arc<str>, made: bool, out: &mut Out) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let State::Open(volume) = entry.state else { return };
        if !entry.users.is_empty() {
            return;
        }
        if made {
            entry.state = State::Closing(None);
            out.volume(Arc::clone(name), VolumeOp::Delete { member: volume.member });
        } else {
            entry.state = State::Flushing(volume);
            let flight = Flight::LastFlush { volume: Arc::clone(name) };
            out.io(flight, volume.member, IoOp::Flush);
        }
    }

    /// Whether a volume is the client's own is known: the client is among the users if it has got
    /// the volume.
    pub(super) fn stop_looking(&mut self, name: &Arc<str>, client: ClientId, out: &mut Out) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if let Some(at) = entry.users.iter().position(|&user| user == client) {
            entry.users.remove(at);
        }
        self.close_if_unused(name, false, out);
    }
}
