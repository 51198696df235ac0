//! Delivery of results from one machine of a node to another.

use super::ids::{ArrayId, ClientId};
use super::volumes::{self, OpenRequest, VolumeCheck};
use super::votes::{self, Request, RequestPurpose, SearchStep};
use super::{Life, Node};

impl Node {
    /// Passes a request to the vote file of an array.
    pub(super) fn request_vote(&mut self, array: ArrayId, request: Request) {
        self.votes.request(array, request, &mut self.out);
        self.drive_votes(array, None);
    }

    /// Advances the votes of an array, after handling the event `first`.
    pub(super) fn drive_votes(&mut self, array: ArrayId, first: Option<votes::VoteEvent>) {
        let mut event = first.or_else(|| self.votes.run_ready(array, &mut self.out));
        while let Some(current) = event {
            match current {
                votes::VoteEvent::Granted { client, grant } => {
                    if !braid_array::broken("epoch-refused") {
                        self.end_older(grant, client);
                    }
                    self.votes.confirm_grants(&mut self.out);
                }
                votes::VoteEvent::Forget(request) => {
                    let against = self.searches.finish(request.client);
                    self.votes.forget(array, request, against, &mut self.out);
                }
            }
            event = self.votes.run_ready(array, &mut self.out);
        }
    }

    /// Advances a client's search.
    pub(super) fn drive_search(&mut self, client: ClientId) {
        match self.searches.step(client, &mut self.out) {
            Some(SearchStep::Look { tag, name }) => {
                let check = VolumeCheck::Search;
                let request = OpenRequest { client, tag, write: false, create: None, check };
                self.volumes.open(name.into(), request, &mut self.out);
            }
            Some(SearchStep::Forget { tag, array }) => {
                self.request_vote(array, Request { client, tag, want: RequestPurpose::Forget });
            }
            None => {}
        }
    }

    /// Delivers the events of the volumes.
    pub(super) fn drive_volumes(&mut self) {
        while let Some(event) = self.volumes.next_event() {
            match event {
                volumes::VolumeEvent::Searched { client, name, found } => {
                    self.searches.looked(client, &name, found.as_deref(), &mut self.out);
                    self.drive_search(client);
                }
                volumes::VolumeEvent::SearchFailed { client } => self.searches.retire(client),
                volumes::VolumeEvent::Failed(why) => {
                    if let Life::Stopping { trouble, .. } = &mut self.life {
                        trouble.get_or_insert(why);
                    }
                }
            }
        }
    }
}
