//! Judgement of nodes' answers: facts for [`judge`] out of the machines, and its verdicts carried
//! out.

use braid_array::format::{Superblock, Version};
use braid_array::{Role, SECTOR_BYTES};

use super::keeper_side::KeeperSide;
use super::parts::Parts;
use super::session_key::SessionKey;
use super::sessions::Answer;
use super::sessions::judge::{Facts, JournalFacts, NodeVerdict, VoterOnNode, judge};
use super::sessions::negotiation::NegotiationStep;
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::ids::NodeId;

impl Parts {
    /// Judges an answer of a node on which further negotiation depends.
    pub(super) fn judge(&mut self, key: SessionKey, answer: &Answer) {
        let Some(negotiation) = self.session(key).negotiation() else { return };
        let facts = self.note(key, negotiation.step, answer);
        self.obey(key, judge(negotiation, answer, &facts));
    }

    /// Notes what an answer tells, whatever the verdict. Returns the facts for the judgement.
    fn note(&mut self, key: SessionKey, step: NegotiationStep, answer: &Answer) -> Facts {
        match answer {
            &Answer::Identity(node) => {
                Facts { voters: voters_on(self, key, node), ..Facts::default() }
            }
            Answer::Granted(grant) => {
                self.session_mut(key).grant = Some(grant.clone());
                if let Some(role) = key.role()
                    && self.keeper_side.target(key).is_none()
                {
                    self.ownership.has_granted(role, Some(grant.clone()));
                }
                Facts::default()
            }
            Answer::Volume { bytes, .. } => {
                let sectors = self.engine.journals.sectors_before(bytes / SECTOR_BYTES);
                self.keeper_side.target_opened(sectors);
                let candidate = self.keeper_side.target(key).map(|(new, place)| {
                    self.candidate(new, place).map(|(_, superblock)| superblock)
                });
                Facts { candidate, ..Facts::default() }
            }
            Answer::Content(bytes) => content_facts(self, key, step, bytes),
            &Answer::Pipeline { ring, journal_bytes, parts_only } => {
                let journals = &mut self.engine.journals;
                journals.told(key, journal_bytes, parts_only);
                // Where all sums are known they tell all that it has recorded.
                let keeper = self.keeper.view();
                let needed = keeper.has_bad_blocks() || keeper.has_to_resync();
                let journal = JournalFacts {
                    used: journals.are_used(),
                    suffices: journals.suffices(key),
                    replays: needed && journals.decided.is_some(),
                };
                let session = self.session_mut(key);
                session.ring = ring;
                session.replayed = false;
                Facts { journal, ..Facts::default() }
            }
            _ => {
                let patient = self.keeper.view().now() < self.session(key).patient_until;
                Facts { patient, ..Facts::default() }
            }
        }
    }

    fn obey(&mut self, key: SessionKey, verdict: NodeVerdict) {
        let (sessions, mut net) = self.sessions();
        match verdict {
            NodeVerdict::Ask(step) => sessions.go_on(&mut net, key, step),
            NodeVerdict::Hold(step) => {
                sessions.hold(key, step);
                self.holds(key, step);
            }
            NodeVerdict::Keep(superblock, step) => {
                sessions.list.get_mut(key).returned = Some(superblock);
                sessions.go_on(&mut net, key, step);
            }
            NodeVerdict::Accept(superblock) => {
                if let Some(member) = &mut sessions.list.get_mut(key).member {
                    member.superblock = *superblock;
                }
                sessions.go_on(&mut net, key, NegotiationStep::Preparing);
            }
            NodeVerdict::Absent(found, bad_blocks) => {
                let id = self.keeper.view().free_id();
                let new = id.and_then(|id| self.session(key).new_member(id, found, bad_blocks));
                let facts = self.join_facts();
                self.join(|side| side.absent_found(&facts, new));
            }
            NodeVerdict::KeepAway(why) => {
                sessions.refuse(&mut net, key, why);
                self.join(KeeperSide::absent_kept_away);
            }
            NodeVerdict::Replaced(why) => {
                sessions.refuse(&mut net, key, why);
                self.join(KeeperSide::absent_replaced);
            }
            NodeVerdict::Over => {
                sessions.end(&mut net, key);
                self.keeper_side.departed.done();
            }
            NodeVerdict::Again => sessions.repeat_later(&net, key),
            NodeVerdict::Lose(why) => net.out.lose(key, why),
            NodeVerdict::GiveUp(why) => self.give_up(key, why),
            NodeVerdict::Refuse(why) => sessions.refuse(&mut net, key, why),
            NodeVerdict::Fail => sessions.fail(&mut net, key, None),
            NodeVerdict::Violation(why) => net.out.violates(key, why),
        }
    }
}

/// Returns the voters that are known to be on a node.
fn voters_on(parts: &Parts, key: SessionKey, node: NodeId) -> Vec<VoterOnNode> {
    let nodes = parts.shared.params().nodes;
    let member = |role: Role| VoterOnNode::Member {
        taken: key != role.into() && !parts.keeper.view().is_vacant(role),
        connected: parts.session(role).is_connected(),
    };
    let voters = parts.ownership.voters_on(node);
    voters.map(|voter| voter.role(nodes).map_or(VoterOnNode::Witness, member)).collect()
}

/// Returns the facts about content that was read from a volume: the superblock, or the bad-block
/// log of one that was read before.
fn content_facts(parts: &mut Parts, key: SessionKey, step: NegotiationStep, bytes: &[u8]) -> Facts {
    let session = parts.session_mut(key);
    let volume_sectors = session.volume_bytes / SECTOR_BYTES;
    let kept = session.returned.take_if(|_| step == NegotiationStep::Listing);
    let found = match kept {
        Some(found) => Ok(*found),
        None => Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, bytes),
    };
    let member = session.member.as_ref().map(|member| member.superblock.clone());
    let faulty = |found: &Superblock| parts.keeper.view().was_made_faulty(found.dev_number);
    Facts {
        array: parts.ownership.array(),
        member,
        made_faulty: found.as_ref().is_ok_and(faulty),
        found: Some(found),
        volume_sectors,
        nodes: parts.shared.params().nodes,
        open: parts.join_facts().open_roles(),
        ..Facts::default()
    }
}
