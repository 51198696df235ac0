//! What is true of a node whenever [`poll`](braid_array::Machine::poll) has got empty.

use braid_array::Machine;

use super::Node;
use super::pipe::Pipe;
use super::session::{Client, Conn};

impl Node {
    pub(super) fn check(&self) -> Result<(), String> {
        let pipes = || self.clients.values().filter_map(|client| client.pipe.as_ref());
        let (count, rings) = (pipes().count(), self.rings.count());
        let journals = pipes().filter(|pipe| pipe.journal.is_some()).count();
        let granted = |pipe: &Pipe| self.rings.granted(pipe.ring) == Some(pipe.granted_bytes());
        if count + journals != rings || !pipes().all(granted) {
            return Err(format!("{count} pipelines, {rings} rings, or not as much of them"));
        }
        if count != self.sessions.len() {
            return Err(format!("{count} pipelines, {} sessions", self.sessions.len()));
        }
        for (peer, conn) in &self.conns {
            let client = |id| self.clients.get(id).filter(|_: &&Client| self.out.is_here(*id));
            let known = match conn {
                Conn::New(_) => true,
                Conn::Client(id) => self.out.peer_of(*id) == Some(*peer),
                Conn::Dialing(id, _) | Conn::Node(id, _) => client(id).is_some(),
            };
            if !known {
                return Err(format!("connection {peer:?} is {conn:?}, which is not there"));
            }
        }
        if self
            .clients
            .iter()
            .any(|(id, client)| !self.out.is_here(*id) && !self.out.uses(*id) && !client.holds())
        {
            return Err("a client is gone, and what it had is not given back".to_owned());
        }
        if !self.idle() && self.out.is_quiet() && self.conns.is_empty() {
            return Err("it waits, and nothing is in flight and nobody connected".to_owned());
        }
        let pages = self.meta.free() + self.out.pages();
        if pages != self.meta.all() {
            return Err(format!("{pages} of {} pages", self.meta.all()));
        }
        let mut here = self.clients.iter().filter(|(id, _)| self.out.is_here(**id));
        here.try_for_each(|(_, client)| {
            client.pipe.as_ref().map_or(Ok(()), |pipe| pipe.check(&self.out))
        })
    }
}
