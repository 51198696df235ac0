//! What the engine asks of an export that lives in its loop: a server of a protocol by which
//! programs use the array.

use std::io;

use braid_array::{Instant, Request, RequestError};

use super::core::Core;
use crate::door::Done;
use crate::driver::Completion;
use crate::handover::Handover;
use crate::token::{ExportId, ExportToken, JobRef};
use crate::users::User;

/// An export. It starts its operations on the engine's driver as `Token::Export` and makes its
/// requests as `Owner::Export`, both with the id it was given. All is called on the engine's
/// thread, and nothing may block.
pub(crate) trait Export: Send {
    /// Begins to take clients; called once, before all else.
    fn start(&mut self, core: &mut Core, id: ExportId);

    /// The same, and it is held from then on: of what was handed over to it nothing is taken.
    fn start_held(&mut self, core: &mut Core, id: ExportId) {
        self.start(core, id);
        self.hold(core);
    }

    /// An operation of its own has ended.
    fn take_in(&mut self, core: &mut Core, completion: Completion<ExportToken>);

    /// A request of its own is done; the request's buffer is the export's again.
    fn completed(
        &mut self,
        core: &mut Core,
        job: JobRef,
        request: Request,
        result: Result<(), RequestError>,
    );

    /// Does what can be done without waiting: after every turn, and for as long as anything comes
    /// of it.
    fn work(&mut self, core: &mut Core);

    /// Has a part of a write come, the rest of which a client is about to send?
    fn receives_write(&self) -> bool {
        false
    }

    /// Sends its answers, when nothing else is to be done: so many share one message.
    fn flush(&mut self, _core: &mut Core) {}

    /// When to call `tick` at the latest.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Time has passed, maybe up to the deadline.
    fn tick(&mut self, _core: &mut Core) {}

    /// Memory is short somewhere. Parts with the client who has most of it and has long taken
    /// nothing, if there is one; tells who that was. Usually clients have memory of their own.
    fn relieve(&mut self, _core: &mut Core) -> Option<User> {
        None
    }

    /// Who uses the array, as far as an export can tell.
    fn clients(&self) -> Vec<User> {
        Vec::new()
    }

    /// How many those are, and the kind of the export; `None` where it cannot tell.
    fn client_count(&self) -> Option<(&'static str, usize)> {
        None
    }

    /// Who uses one of the parts of the array that it serves, by the part's name.
    fn clients_of(&self, _part: &str) -> Vec<User> {
        self.clients()
    }

    /// Closes one of several parts, as [`close`](Self::close) does all, and gives its clients up
    /// in the end; tells when it is over. The others go on.
    fn close_part(&mut self, _core: &mut Core, _part: &str, done: Done<()>) {
        done(());
    }

    /// Takes nothing more until it is told to go on; what is under way is answered. Clients stay.
    /// One that has no clients has nothing to hold, and nothing to hand over.
    fn hold(&mut self, _core: &mut Core) {}

    /// Goes on after it was held.
    fn go_on(&mut self, _core: &mut Core) {}

    /// Of one that is held: is nothing under way any more of what clients have asked for?
    fn is_held(&self, _core: &Core) -> bool {
        true
    }

    /// Of one that is held: hangs up on clients that are waited for, to take their data or to send
    /// the rest of it.
    fn cut_off(&mut self, _core: &mut Core) {}

    /// Of one that is held: gives its clients to the process that comes after this one, and keeps
    /// them, as it may have to go on. Those of a kind that cannot be given are hung up on at the
    /// end.
    ///
    /// # Errors
    /// When the system is out of descriptors: then it goes on.
    fn hand_over(&self, _core: &Core, _to: &mut Handover) -> io::Result<()> {
        Ok(())
    }

    /// All is handed over: touches nothing any more that the next process has as well.
    fn leave(&mut self) {}

    /// Takes no more clients and no more of what they ask for; what is under way is answered.
    fn close(&mut self, core: &mut Core);

    /// Gives up all clients that are left.
    fn disconnect(&mut self, core: &mut Core);

    /// Of one that was closed: is nothing left to be done of what it took? Operations and requests
    /// that are under way are known without it.
    fn is_over(&self) -> bool {
        true
    }

    /// Gives back the memory that it has, of an engine that goes on without it.
    fn end(&mut self, _core: &mut Core) {}
}
