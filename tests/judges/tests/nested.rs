//! Arrays of arrays that md made: Braid reads them whole and with a member of each inner array left
//! out, serves them in one process, and md takes them back.

use crate::handoff::Left;
use crate::served::Served;
use crate::support::{self, directory, guest, read, skip, sparse_file};
use braid_judges::Content;
use std::fmt::Write as _;
use std::path::PathBuf;

const GUEST: &str = include_str!("nested.sh");
const MEMBER_BYTES: u64 = 12 << 20;
/// What Braid writes: seed, offset, length.
const BY_BRAID: (u64, u64, u64) = (78, 5 << 20, 3 << 20);

/// Name, outer level, inner level, members of an inner array, inner arrays.
const SHAPES: [(&str, u32, u32, usize, usize); 4] = [
    ("nested-10", 0, 1, 2, 2),
    ("nested-50", 0, 5, 3, 2),
    ("nested-60", 0, 6, 4, 2),
    ("nested-66", 6, 6, 4, 4),
];

#[test]
fn arrays_of_arrays_go_to_braid_and_back() {
    let test = "arrays_of_arrays_go_to_braid_and_back";
    if let Err(reason) = guest::available().and_then(|()| support::program("nbdcopy")) {
        return skip(test, &reason);
    }
    let mut script = format!("PATTERN={}\n{GUEST}\n", env!("CARGO_BIN_EXE_pattern"));
    let mut back = script.clone();
    let mut arrays = Vec::new();
    for (seed, (name, outer, inner, each, count)) in support::drawn((300u64..).zip(SHAPES)) {
        let place = directory(name);
        let names: Vec<String> = (0..each * count).map(|i| format!("m{i}")).collect();
        let members: Vec<PathBuf> = names.iter().map(|name| place.join(name)).collect();
        members.iter().for_each(|member| sparse_file(member, MEMBER_BYTES));
        let place = place.display();
        let names = names.join(" ");
        let _ = writeln!(script, "nest {name} {seed} {outer} {inner} {each} {place} {names}");
        let content = Content::of(seed);
        let written = content.clone().then(BY_BRAID.0, BY_BRAID.1, BY_BRAID.2);
        let _ = writeln!(back, "unnest {name} {written} {count} {each} {place} {names}");
        arrays.push((Left { name: name.into(), members, content, size_bytes: 0 }, each));
    }
    guest::run("nested", &script).expect_success("md nests arrays");
    for (array, each) in &mut arrays {
        let size = read(&array.members[0].with_file_name("size"));
        array.size_bytes = size.trim().parse().expect("a size");
        read_and_write(array, *each);
    }
    guest::run("nested-back", &back).expect_success("md takes nested arrays back");
}

fn read_and_write(array: &Left, each: usize) {
    array.expect_by_cat("as md left it");
    let without = |position: usize| {
        let numbered = array.members.iter().enumerate();
        let kept = numbered.filter(|(number, _)| number % each != position);
        let members = kept.map(|(_, member)| member.clone()).collect();
        Left { members, ..array.clone() }
    };
    for position in 0..each {
        without(position).expect_by_cat(&format!("without member {position} of each array"));
    }
    let served = Served::start(&array.name, &array.members, &[]);
    served.expect(&array.content, "served as md left it");
    let (seed, offset, length) = BY_BRAID;
    served.write(&Content::of(seed), offset, length);
    served.expect(&array.content.clone().then(seed, offset, length), "with what was written");
    served.stop();
}
