//! The sentences, of numbers that might have been found.

use super::numbers::{KINDS, Members};
use super::*;
use crate::compare::numbers::Numbers;
use crate::model::Run;
use crate::tool::bonnie::{READ, REWRITE, SEEKS, WRITE};

/// All cases at such a share of their bounds, reads from memory at 2 GB/s.
fn said(share: impl Fn(MembersCase) -> f64, seeks: impl Fn(MembersCase) -> f64) -> String {
    let mut all = Vec::new();
    let mut found = Found::default();
    for case in MembersCase::all() {
        let kb_s = case.class.bound_kb_s(case.members) * share(case);
        for (job, column, value) in [
            (BONNIE, WRITE, kb_s),
            (BONNIE, REWRITE, 0.9 * kb_s),
            (BONNIE, SEEKS, seeks(case)),
            (WARM, READ, 2e6),
            (COLD, READ, kb_s),
        ] {
            all.push((case, job, column.name, value));
        }
        found.runs.push(Run::new(case, BONNIE, 0));
    }
    sentences::sentences(&Members { numbers: Numbers::default().with(all), found: &found })
        .join("\n")
}

#[test]
fn sentences_change_with_the_numbers() {
    let seeks = KINDS[3];
    let good = said(|_| 0.97, |case| seeks.bound(case).expect("one"));
    for part in [
        "Two members double what one writes: 2.00 times on m1.large (published 1.93), 2.00",
        "but not everywhere: 1.29 times on t1.micro (published 1.23), where the host lets no more",
        "as much as the host lets through (0.97 of it)",
        "more members make them no faster",
        "seek less than one on t1.micro is not seen",
        "Braid loses most at \"rewrite\" over 2 members of",
    ] {
        assert!(good.contains(part), "'{part}' is not in\n{good}");
    }
    let slow =
        |case: MembersCase| if case.members == 1 { 1.0 } else { 1.0 / f64::from(case.members) };
    let bad = said(slow, |case| seeks.published(case).expect("a number"));
    for part in [
        "Two members nowhere double what one writes: 0.65 times on t1.micro",
        "less than the limits let through.",
        "Four members stay below what the host lets through (0.25 of it)",
        "seek less than one on t1.micro is seen here, too",
    ] {
        assert!(bad.contains(part), "'{part}' is not in\n{bad}");
    }
}

#[test]
fn nothing_found_says_nothing() {
    let chapter = MembersOptions::usual(false).chapter(&Found::default());
    assert!(chapter.says.is_empty() && chapter.cells.is_empty() && chapter.plots.is_empty());
    assert_eq!(chapter.published.len(), 48);
    assert_eq!(chapter.published.iter().map(|one| one.value).sum::<f64>(), 16_189_938.0);
}
