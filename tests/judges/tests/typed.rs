//! What README, book and help tell people to type and needs block devices, mounts or the kernel's
//! ublk is typed in a guest that has them (`ublk.rs` starts it). The rest is typed by the tests of
//! the command itself.

#[path = "../../../crates/cli/tests/live/documented/pages.rs"]
mod pages;

const STAGE: &str = include_str!("typed.sh");

/// Lines below a heading.
struct Part {
    page: &'static str,
    heading: &'static str,
    /// Those that begin so.
    lines: &'static str,
    /// What is done before the first one.
    before: &'static str,
    /// What is done after lines that begin so, to see what came of them.
    after: &'static [(&'static str, &'static str)],
}

const FRESH: &str = "rm -f *.img; truncate -s 24M a.img b.img c.img; stored a.img b.img c.img";

const PARTS: &[Part] = &[
    Part {
        page: "docs/start.md",
        heading: "The first array",
        lines: "",
        before: "",
        after: &[("mkfs.ext4", "[ -e /mnt/etc/passwd ]")],
    },
    Part {
        page: "docs/start.md",
        heading: "Lose a disk, and put another in",
        lines: "",
        before: "",
        after: &[("braid add", "cmp /etc/passwd /mnt/etc/passwd")],
    },
    Part {
        page: "docs/start.md",
        heading: "Stop it",
        lines: "",
        before: "",
        after: &[("umount", "[ ! -e /mnt/etc/passwd ]")],
    },
    Part {
        page: "docs/block-device.md",
        heading: "Arrays as block devices of the kernel's",
        lines: "",
        before: FRESH,
        after: &[
            (
                "braid assemble home a.img b.img c.img --export ublk   ",
                "is_disk /dev/ublkb0; braid stop home",
            ),
            ("braid assemble home a.img b.img c.img --export ublk:3", "is_disk /dev/ublkb3"),
        ],
    },
    Part {
        page: "docs/block-device.md",
        heading: "When the process dies",
        lines: "",
        before: "braid stop home; braid assemble home a.img b.img c.img --export ublk
            mkfs.ext4 -q /dev/ublkb0; mount /dev/ublkb0 /mnt; echo here >/mnt/file
            (sync; : >synced) & killed",
        after: &[(
            "braid assemble",
            "wait; [ -e synced ]; [ \"$(cat /mnt/file)\" = here ]; umount /mnt; braid stop home",
        )],
    },
    Part {
        page: "docs/commands.md",
        heading: "braid assemble",
        lines: "braid assemble home --scan",
        before: "stored /dev/sda /dev/sdb /dev/sdc",
        after: &[("braid assemble", "is_disk /dev/ublkb0")],
    },
    Part {
        page: "docs/commands.md",
        heading: "braid examine",
        lines: "braid examine --scan",
        before: "",
        after: &[],
    },
    Part {
        page: "docs/commands.md",
        heading: "braid config probe",
        lines: "",
        before: "echo '[array.home]' >$BRAID_CONFIG",
        after: &[],
    },
    Part {
        page: "docs/commands.md",
        heading: "braid identify",
        lines: "",
        before: "",
        after: &[(
            "braid identify home /dev/sdb ",
            "braid identify home /dev/sdb --json --seconds 0 >said.json
                grep -q '\"model\": \".*scsi_debug' said.json
                grep -q '\"light\": \"activity\"' said.json",
        )],
    },
    Part {
        page: "docs/at-3-am.md",
        heading: "A disk failed",
        lines: "braid identify",
        before: "",
        after: &[],
    },
];

/// What the guest prints when all was typed.
pub(crate) const SAID: [&str; 3] = ["ARRAY /dev/md/home", "scsi_debug", "BRAID_ARRAY=home"];

/// What the guest types. BRAID is the command.
pub(crate) fn script() -> String {
    let mut script = STAGE.to_owned();
    let blocks = pages::all_blocks();
    for part in PARTS {
        let here = |block: &&pages::Block| block.page == part.page && block.heading == part.heading;
        let lines = blocks.iter().filter(here).flat_map(pages::Block::typed);
        let lines: Vec<&str> = lines.filter(|line| line.starts_with(part.lines)).collect();
        assert!(!lines.is_empty(), "{}: {}: nothing is typed", part.page, part.heading);
        script += &format!("step \"{}: {}\"\n{}\n", part.page, part.heading, part.before);
        for line in lines {
            // The guest is slow, and its disks are small.
            script += &line.replace("100M", "24M").replace("--seconds 600", "--seconds 1");
            script.push('\n');
            for (start, after) in part.after {
                if line.starts_with(start) {
                    script += &format!("{after}\n");
                }
            }
        }
    }
    script + "braid stop home\n"
}
