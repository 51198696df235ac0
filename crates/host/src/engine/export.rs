//! The interface of an export to the engine's loop. An export serves a protocol by which programs
//! use the array.

use std::io;

use braid_array::{Instant, Request, RequestError};

use super::core::Core;
use crate::driver::Completion;
use crate::handover::Handover;
use crate::submission::Done;
use crate::token::{ExportId, ExportToken, JobRef};
use crate::users::User;

/// An export. Operations are started on the engine's driver as `Token::Export` and requests are
/// made as `Owner::Export`, both with the id given to the export. All calls come on the engine's
/// thread, and none may block.
pub(crate) trait Export: Send {
    /// Begins to take clients; called once, before all else.
    fn start(&mut self, core: &mut Core, id: ExportId);

    /// Starts the export and holds it: nothing is taken yet of the clients handed over to it.
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

    /// Does the work that needs no waiting. Called after every turn, and again while it leads to
    /// more.
    fn work(&mut self, core: &mut Core);

    /// Returns whether a write has come in part, with the rest still to be sent by its client.
    fn receives_write(&self) -> bool {
        false
    }

    /// The array has another size from now on. Clients are told where the protocol has a way.
    fn resized(&mut self, _core: &mut Core, _bytes: u64) {}

    /// Sends its answers, when nothing else is to be done: so many share one message.
    fn flush(&mut self, _core: &mut Core) {}

    /// Returns the latest time for the next call of `tick`.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Time has passed, maybe up to the deadline.
    fn tick(&mut self, _core: &mut Core) {}

    /// Disconnects, as memory is short, the client that holds most of it and has long taken
    /// nothing, if there is one. Returns that client. Usually clients have memory of their own.
    fn relieve(&mut self, _core: &mut Core) -> Option<User> {
        None
    }

    /// Returns the users of the array, as far as an export can tell.
    fn clients(&self) -> Vec<User> {
        Vec::new()
    }

    /// Returns the number of clients and the kind of the export; `None` where it cannot tell.
    fn client_count(&self) -> Option<(&'static str, usize)> {
        None
    }

    /// Returns the users of one served part of the array, by the part's name.
    fn clients_of(&self, _part: &str) -> Vec<User> {
        self.clients()
    }

    /// Closes one of several parts, as [`close`](Self::close) does all, and gives its clients up
    /// in the end; tells when it is over. The others go on.
    fn close_part(&mut self, _core: &mut Core, _part: &str, done: Done<()>) {
        done(());
    }

    /// Takes nothing more until it is told to go on; operations in flight are answered. Clients
    /// stay. An export without clients has nothing to hold, and nothing to hand over.
    fn hold(&mut self, _core: &mut Core) {}

    /// Goes on after it was held.
    fn go_on(&mut self, _core: &mut Core) {}

    /// Returns whether a held export has answered all that its clients asked for.
    fn is_held(&self, _core: &Core) -> bool {
        true
    }

    /// Disconnects, on a held export, the clients that still have to take data or to send the rest
    /// of it.
    fn cut_off(&mut self, _core: &mut Core) {}

    /// Gives the clients of a held export to the next process, and keeps them as well in case this
    /// process has to go on. Clients that cannot be given are disconnected at the end.
    ///
    /// # Errors
    /// When the system is out of descriptors. Then the export goes on.
    fn hand_over(&self, _core: &Core, _to: &mut Handover) -> io::Result<()> {
        Ok(())
    }

    /// All is handed over: touches nothing any more that the next process has as well.
    fn leave(&mut self) {}

    /// Takes no more clients and no more requests; those in flight are answered.
    fn close(&mut self, core: &mut Core);

    /// Gives up all clients that are left.
    fn disconnect(&mut self, core: &mut Core);

    /// Returns whether a closed export has nothing left to do. Operations and requests in flight
    /// are counted elsewhere.
    fn is_over(&self) -> bool {
        true
    }

    /// Gives back the memory that it has, of an engine that goes on without it.
    fn end(&mut self, _core: &mut Core) {}
}
