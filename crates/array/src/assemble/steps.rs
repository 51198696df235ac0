//! Decisions, with the steps that are advised: each is tried as it would be then.

use super::table::{decide_alike, newest, without_superblocks};
use super::{Assembly, Candidate, Options, Start, reshape};
use crate::refusal::Invocation;

/// More steps than lead from one refusal to what works.
const MOST_STEPS: usize = 4;

/// Decides who is in, and whether the array can be started. Where the next step is to start it
/// otherwise, that works.
#[must_use]
pub fn decide(candidates: Vec<Candidate>, options: Options) -> Assembly {
    let mut assembly = decide_once(candidates.clone(), options, false);
    for _ in 0..MOST_STEPS {
        let Start::Refused { next, .. } = &mut assembly.start else { break };
        let Some(Invocation::Assemble { options, devices, .. }) = next.invocation.as_deref() else {
            break;
        };
        let named = |candidate: &&Candidate| devices.contains(&candidate.device);
        let named = candidates.iter().filter(named).cloned().collect();
        match decide_once(named, *options, false).start {
            Start::Ready { .. } | Start::Halfway(_) => break,
            Start::Refused { next: further, .. } => *next = further.of(next.condition),
        }
    }
    assembly
}

/// Decides the same where there is a device beside the members that a move in place may save to.
#[must_use]
pub fn decide_saving(candidates: Vec<Candidate>, options: Options) -> Assembly {
    decide_once(candidates, options, true)
}

fn decide_once(candidates: Vec<Candidate>, options: Options, saves: bool) -> Assembly {
    let candidates = reshape::as_stripes(candidates);
    let Some(index) = newest(&candidates) else { return without_superblocks(&candidates) };
    if let Ok(superblock) = &candidates[index].superblock
        && reshape::is_halfway(superblock)
    {
        return reshape::decide(&candidates, index, superblock, options, saves);
    }
    let newest = candidates[index].superblock.clone();
    let candidates = match &newest {
        Ok(newest) => reshape::settled(candidates, newest),
        Err(_) => candidates,
    };
    decide_alike(&candidates, index, options)
}
