//! Tests of guards.

use super::super::course::CourseNext;
use super::*;
use crate::format::Version;
use crate::format::integrity::{IntegrityArea, IntegrityHeader, PageMarks, SuperblockDigest};

/// Guards a member that only we had, of which nothing is marked.
fn guard() -> Guard {
    let area = IntegrityArea::new(7680).expect("a size that can be");
    let on_disk = SuperblockDigest::of(Version::V1_2, &[0; 4096]).expect("a superblock");
    let header = IntegrityHeader::first([1; 16], [2; 16], [3; 16], 2048, area, on_disk);
    let mut marks = PageMarks::all([3; 16], area.pages());
    marks.clear(0);
    let start = area.start(2048).expect("a place");
    let version = Version::V1_2;
    let superblock = 8;
    let place = AreaPlace { area, stored: false, start, data_offset: 2048, superblock, version };
    let found = FoundArea { place, header, on_disk, marks, foreign: false };
    Guard::new(found, false).expect("one that is trusted")
}

/// Carries a course out to its end.
fn carry_out(guard: &mut Guard, kind: CourseKind) {
    while let Some(course) = guard.course(kind)
        && course.next() != CourseNext::Over
    {
        course.answered(Ok(()));
    }
}

#[test]
fn a_member_that_leaves_while_marks_are_being_cleared_comes_to_rest() {
    for waits_for_marks in [false, true] {
        let mut guard = guard();
        let later = Instant(1);
        assert_eq!(guard.begin_write(0..8), 1);
        guard.begin_courses(later, false);
        carry_out(&mut guard, CourseKind::Marking);
        guard.end_course(CourseKind::Marking, later, false);
        guard.marks.end(0..8, false);
        guard.begin_courses(later, true);
        carry_out(&mut guard, CourseKind::Cleaning);
        if waits_for_marks {
            guard.end_course(CourseKind::Cleaning, later, false);
            guard.retire();
        } else {
            guard.retire();
            guard.end_course(CourseKind::Cleaning, later, false);
        }
        guard.begin_courses(later, false);
        assert!(guard.is_at_rest(), "nothing goes on for it, and a removal waits");
    }
}

#[test]
fn a_store_is_not_disowned_by_a_superblock_that_its_header_was_told_of() {
    let mut guard = guard();
    let digest = |utime| {
        let mut bytes = [0; 4096];
        bytes[192] = utime;
        SuperblockDigest::of(Version::V1_2, &bytes).expect("a superblock")
    };
    guard.accepted.as_mut().expect("a header").before_superblock(digest(1));
    // Nobody knows whether it is on the member, and it may be written once more.
    guard.doubt();
    assert!(guard.disown(false), "a superblock is needed");
    assert!(!guard.is_disowned_by(Some(digest(0))), "the one before");
    assert!(!guard.is_disowned_by(Some(digest(1))));
    assert!(!guard.is_disowned_by(None));
    assert!(guard.is_disowned_by(Some(digest(2))));
}
