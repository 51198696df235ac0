//! Judgement of nodes' answers: facts for [`judge`] out of the machines, and its verdicts carried
//! out.

use braid_array::format::{Superblock, Version};
use braid_array::{Role, SECTOR_BYTES};

use super::KeeperSide;
use super::absent::is_open;
use super::recovery::moved;
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::client::parts::Parts;
use crate::client::session_key::SessionKey;
use crate::client::sessions::Answer;
use crate::client::sessions::judge::{Facts, JournalFacts, NodeVerdict, VoterOnNode, judge};
use crate::client::sessions::negotiation::NegotiationStep;
use crate::ids::NodeId;

impl KeeperSide {
    /// Judges an answer of a node on which further negotiation depends.
    pub(in crate::client) fn judge(&mut self, parts: &mut Parts, key: SessionKey, answer: &Answer) {
        let Some(negotiation) = parts.session(key).negotiation() else { return };
        self.note(parts, key, answer);
        let facts = self.facts(parts, key, negotiation.step, answer);
        self.obey(parts, key, judge(negotiation, answer, &facts));
    }

    /// Notes what an answer tells, whatever the verdict.
    fn note(&mut self, parts: &mut Parts, key: SessionKey, answer: &Answer) {
        match answer {
            Answer::Granted(grant) if key == SessionKey::DepartedVisit => {
                self.departed.granted = Some(grant.incarnation);
            }
            Answer::Granted(grant) => match self.recovery.as_mut().filter(|one| one.key == key) {
                Some(recovery) => recovery.grant = Some(grant.clone()),
                None => {
                    if let Some(role) = key.role() {
                        parts.ownership.has_granted(role, Some(grant.clone()));
                    }
                }
            },
            Answer::Volume { bytes, .. } => {
                let Some(recovery) = &mut self.recovery else { return };
                let sectors = bytes / SECTOR_BYTES;
                recovery.new.device_sectors = parts.engine.journals.sectors_before(sectors);
                if let Some(id) = parts.keeper.view().id_for(&recovery.new.device) {
                    recovery.new.member = id;
                }
            }
            &Answer::Pipeline { ring, journal_bytes, parts_only } => {
                parts.engine.journals.told(key, journal_bytes, parts_only);
                let session = parts.session_mut(key);
                session.ring = ring;
                session.replayed = false;
            }
            _ => {}
        }
    }

    /// Returns the facts for the judgement of an answer.
    fn facts(
        &self,
        parts: &mut Parts,
        key: SessionKey,
        step: NegotiationStep,
        answer: &Answer,
    ) -> Facts {
        match answer {
            &Answer::Identity(node) => {
                Facts { voters: voters_on(parts, key, node), ..Facts::default() }
            }
            Answer::Volume { .. } => {
                let candidate = self.recovery.as_ref().map(|recovery| {
                    let keeper = parts.keeper.view();
                    keeper.id_for(&recovery.new.device).ok_or_else(moved)?;
                    keeper.candidate(&recovery.new, recovery.place)
                });
                Facts { candidate, ..Facts::default() }
            }
            Answer::Content(bytes) => content_facts(parts, key, step, bytes),
            Answer::Pipeline { .. } => {
                let journals = &parts.engine.journals;
                // Where all sums are known they tell all that it has recorded.
                let keeper = parts.keeper.view();
                let needed = keeper.has_bad_blocks() || keeper.has_to_resync();
                let journal = JournalFacts {
                    used: journals.are_used(),
                    suffices: journals.suffices(key),
                    replays: needed && journals.decided.is_some(),
                };
                Facts { journal, ..Facts::default() }
            }
            _ => {
                let patient = parts.keeper.view().now() < parts.session(key).patient_until;
                Facts { patient, ..Facts::default() }
            }
        }
    }

    fn obey(&mut self, parts: &mut Parts, key: SessionKey, verdict: NodeVerdict) {
        let (sessions, mut net) = parts.sessions();
        match verdict {
            NodeVerdict::Ask(step) => sessions.go_on(&mut net, key, step),
            NodeVerdict::Hold(step) => {
                sessions.hold(key, step);
                self.holds(parts, key, step);
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
            NodeVerdict::Absent(found, bad_blocks) => self.absent_found(parts, found, bad_blocks),
            NodeVerdict::KeepAway(why) => {
                sessions.refuse(&mut net, key, why);
                if let Some(place) = self.absents.visits.visited() {
                    self.absents.visits.forget(&place);
                }
            }
            NodeVerdict::Replaced(why) => {
                sessions.refuse(&mut net, key, why);
                if let Some(place) = self.absents.visits.visited() {
                    self.departed.add(place.address, parts.keeper.view().now());
                }
            }
            NodeVerdict::Over => {
                sessions.end(&mut net, key);
                self.over();
            }
            NodeVerdict::Again => sessions.repeat_later(&net, key),
            NodeVerdict::Lose(why) => net.out.lose(key, why),
            NodeVerdict::GiveUp(why) => parts.give_up(key, why),
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
    let list = &parts.sessions.list;
    Facts {
        array: parts.ownership.array(),
        member,
        made_faulty: found.as_ref().is_ok_and(faulty),
        found: Some(found),
        volume_sectors,
        nodes: parts.shared.params().nodes,
        open: list.roles().filter(|&role| is_open(parts, role)).collect(),
        ..Facts::default()
    }
}
