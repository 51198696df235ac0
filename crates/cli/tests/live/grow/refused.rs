//! Changes that are refused.

use super::*;

/// Options of `create`, members, and refused options of `grow` with a part of the reason.
type Refused<'a> = (&'a str, usize, &'a [(&'a str, &'a str)]);

const REFUSED: &[Refused<'_>] = &[
    (
        "-l 5 --chunk 64K",
        3,
        &[
            ("--level 6", "would have to move all data"),
            ("--level 6 --layout preserve", "1 role is new, and there is no spare"),
            ("--level 6 --layout preserve --add small", "too small"),
            ("--level 6 --layout preserve --add other", "is a member of another array"),
            ("--level 6 --layout preserve --add m1", "already a member of x"),
            ("--level 6 --layout preserve --add none", "no such file"),
            (
                "--level 6 --layout preserve --raid-devices 5 --add fine",
                "the array would have 4 members, not 5",
            ),
            ("--level 5", "it is a raid5 already"),
            ("--level 10", "raid5 cannot become raid10"),
            ("--raid-devices 2", "nothing tells what lies behind"),
            ("--raid-devices 2 --array-size 1G", "are left, less than 1024.00 mib"),
            ("--raid-devices 1 --array-size 1M", "raid5 cannot have 1 members"),
            ("--size max", "which is all that"),
            ("--size 4M", "nothing tells what lies behind 8.00 mib"),
            ("--size 1T", "has room for"),
            ("--chunk 64K", "its chunks are of 64"),
            ("--chunk 12K", "power of two"),
            ("--chunk 4M", "no whole number of chunks"),
            ("--layout left-symmetric", "its layout is left-symmetric already"),
        ],
    ),
    (
        "-l 1",
        3,
        &[
            ("--level 5", "a mirror of 3 cannot become a raid5"),
            ("--raid-devices 2", "3 members hold the data, and 2 are to stay"),
            ("--raid-devices 3", "it has 3 members already"),
        ],
    ),
    (
        "-l 0",
        2,
        &[
            ("--size max", "raid0 uses all of its members"),
            ("--chunk 16K", "the data of raid0 cannot be laid out anew yet"),
        ],
    ),
    ("-l 6 --chunk 64K", 4, &[("--level 5", "spreads q over all members")]),
    (
        "-l 10 --chunk 64K",
        4,
        &[
            ("--layout f2", "no data move from or to far=2"),
            ("--layout n3", "near=3 has another number of copies than 2"),
            ("--chunk 4M", "no whole number of rows of chunks"),
            ("--raid-devices 1", "raid10 cannot have 1 members"),
            ("--raid-devices 3", "nothing tells what lies behind"),
            ("--raid-devices 5", "1 role is new, and there is no spare"),
        ],
    ),
    (
        "-l 10 --chunk 64K --layout f2",
        4,
        &[("--raid-devices 5 --add fine", "no data move from or to far=2")],
    ),
    ("-l 5 -k ppl", 3, &[("--level 6 --layout preserve --add fine", "partial parity logs")]),
];

#[test]
fn what_cannot_be_is_refused_with_nothing_written() {
    for (shape, count, cases) in REFUSED {
        let x = Served::new(shape, *count);
        x.device("small", 4);
        let fine = x.device("fine", 16);
        let other = x.device("other", 16);
        x.lab.ok("create foreign -l 1 -n 1 --force", std::slice::from_ref(&other));
        x.rest();
        let all = [x.members.as_slice(), &[fine, other]].concat();
        for (words, reason) in *cases {
            let line = x.lab.refused(1, &format!("grow x {words}"), &[], &all);
            assert!(line.starts_with("braid: grow x"), "{shape}: {line}");
            assert!(line.to_lowercase().contains(reason), "{shape}: {words}: {line}");
        }
        let usage = [
            "--size 1x",
            "--level raidz",
            "--add fine",
            "--size 8M --level 6",
            "--undo --chunk 8K",
            "--chunk 8K --array-size 1M",
            "--layout preserve",
            "--layout odd",
            "",
        ];
        for words in usage {
            x.lab.refused(2, &format!("grow x {words}"), &[], &all);
        }
        x.lab.refused(2, "grow x --level 6 --add fine --add ./fine", &[], &all);
    }
}
