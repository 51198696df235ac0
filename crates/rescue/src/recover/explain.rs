//! Evidence for a hypothesis, for people.

use std::collections::HashSet;

use braid_array::SECTOR_BYTES;

use super::gathered::Gathered;
use super::hypothesis::{Hypothesis, MemberInRole};
use super::marks::Structure;
use super::ranked::{Confidence, Ranked};
use super::sums::Sums;

/// The facts from which evidence is told.
#[derive(Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) gathered: &'a Gathered,
    pub(super) known: &'a [Structure],
    pub(super) names: &'a [String],
}

/// Returns whether the file system was made for this chunk and so many data disks.
pub(super) fn fits_the_content(one: &Hypothesis, known: &[Structure]) -> bool {
    let for_this = (u64::from(one.shape.chunk_sectors), one.shape.data_disks());
    known[one.structure].made_for() == Some(for_this)
}

pub(super) fn explain(
    mut hypothesis: Hypothesis,
    sums: Sums,
    confidence: Confidence,
    next: Option<(usize, usize)>,
    told: Told<'_>,
) -> Ranked {
    let Told { gathered, known, names } = told;
    let structure = &known[hypothesis.structure];
    let remains = gathered.remains.evidence(&hypothesis, names);
    let Hypothesis { met, of, origin, .. } = hypothesis;
    let mut evidence = Vec::new();
    let next_best = match next {
        Some((met, of)) => format!(", next best {met} of {of}"),
        None => String::new(),
    };
    let blocks = if structure.is_whole() { "marks of a " } else { "" };
    let unit = if structure.is_whole() { "" } else { " blocks" };
    if !hypothesis.hinted.is_empty() {
        let of: Vec<&str> = hypothesis.hinted.iter().map(|m| names[*m].as_str()).collect();
        evidence.push(format!("the superblock of {} says so", of.join(", ")));
    }
    if of > 0 {
        evidence.push(format!("{met} of {of} {blocks}{}{unit} agree{next_best}", structure.name()));
    }
    if origin > 0 && !structure.is_whole() {
        let at = origin * SECTOR_BYTES;
        evidence.push(format!("the {} begins at byte {at} of the array", structure.name()));
    }
    if fits_the_content(&hypothesis, known) {
        evidence.push(format!("the {} was made for this chunk", structure.name()));
    }
    let stale = compared(&mut hypothesis, &sums, names, &mut evidence);
    let used: HashSet<usize> =
        hypothesis.roles.iter().flatten().map(|place| place.member).collect();
    for (member, name) in names.iter().enumerate() {
        if !used.contains(&member) && stale != Some(member) {
            evidence.push(format!("{name} is none of its members"));
        }
    }
    evidence.extend(remains);
    let needed_sectors = structure.sectors().map(|sectors| origin + sectors);
    Ranked { hypothesis, confidence, sums, stale, next, needed_sectors, evidence }
}

/// Tells what rows of the members say, and takes the role of one that is behind. Returns that one.
fn compared(
    hypothesis: &mut Hypothesis,
    sums: &Sums,
    names: &[String],
    evidence: &mut Vec<String>,
) -> Option<usize> {
    let complete = hypothesis.missing() == 0;
    let what = if hypothesis.shape.level.parity_disks() > 0 { "parity" } else { "copies" };
    let verb = if what == "parity" { "agrees" } else { "agree" };
    if sums.rows > 0 {
        let percent = floor_percent(sums.agree, sums.rows);
        evidence.push(format!("{what} {verb} in {percent}% of {} rows", sums.rows));
    } else if !hypothesis.shape.is_redundant() {
        evidence.push("there is no redundancy that could confirm it".into());
    } else {
        evidence.push("too little is there to compare redundancy".into());
    }
    let mut stale = None;
    let differ = sums.rows - sums.agree;
    let behind = |role: &Option<MemberInRole>| {
        let member = role.as_ref()?.member;
        hypothesis.behind.contains(&member).then_some(member)
    };
    let redundant = hypothesis.shape.is_redundant();
    let behind = if redundant { hypothesis.roles.iter().find_map(behind) } else { None };
    if let (true, 0, Some(member)) = (complete, differ, behind) {
        stale = behind;
        evidence.push(format!("{} is stale by its superblock and left out", names[member]));
    }
    if differ > 0 {
        let percent = ceil_percent(differ, sums.rows);
        stale = if complete { behind.or_else(|| sums.stale()) } else { None };
        evidence.push(match stale {
            Some(member) => format!("{} is stale by {percent}% and left out", names[member]),
            None => format!("some member is stale by {percent}%, and nothing tells which"),
        });
    }
    if let Some(member) = stale {
        for role in &mut hypothesis.roles {
            *role = role.filter(|place| place.member != member);
        }
    }
    stale
}

/// Never 100 unless all agree.
fn floor_percent(part: usize, all: usize) -> String {
    let hundredths = part * 10_000 / all.max(1);
    digits(hundredths)
}

/// Never 0 where something differs.
fn ceil_percent(part: usize, all: usize) -> String {
    digits((part * 10_000).div_ceil(all.max(1)))
}

fn digits(hundredths: usize) -> String {
    match (hundredths / 100, hundredths % 100) {
        (whole, 0) => whole.to_string(),
        (whole, part) if part % 10 == 0 => format!("{whole}.{}", part / 10),
        (whole, part) => format!("{whole}.{part:02}"),
    }
}
