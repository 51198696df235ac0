//! Arrays whose data begin to move by Braid and end by md, or begin by md and end by Braid, handed
//! over at places all over their length: stopped or killed, whole, or with a member that failed on
//! the way, one of before or the one that was added.
//!
//! `GROWN_PLACES`: so many, drawn by `GROWN_SEED`.

use crate::braid_to_md::{available, create, members};
use crate::handoff::Left;
use crate::served::Served;
use crate::support::{self, Run, guest, read, skip, until};
use braid_judges::Content;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const MEMBER_BYTES: u64 = 12 << 20;

/// Level and members | options of grow | devices that are added | what mdadm is told
const CHANGES: [(&str, &str, usize, &str); 9] = [
    ("5 3", "--raid-devices 4", 1, "--raid-devices=4"),
    ("5 3", "--raid-devices 5", 2, "--raid-devices=5"),
    ("6 4", "--raid-devices 5", 1, "--raid-devices=5"),
    ("4 3", "--raid-devices 4", 1, "--raid-devices=4"),
    ("5 4", "--chunk 16K", 0, "--chunk=16"),
    ("5 3", "--chunk 128K", 0, "--chunk=128"),
    ("6 4", "--chunk 32K", 0, "--chunk=32"),
    ("6 4", "--layout right-symmetric", 0, "--layout=right-symmetric"),
    ("5 3", "--layout left-asymmetric", 0, "--layout=left-asymmetric"),
];

/// One hand-over.
#[derive(Debug)]
struct Place {
    name: String,
    by_md: bool,
    killed: bool,
    change: usize,
    percent: u64,
    /// A member that fails half way to that place.
    faulty: Option<usize>,
    members: Vec<PathBuf>,
    content: Content,
}

/// Numbers that follow from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}

impl Place {
    fn drawn(number: usize, dice: &mut Dice) -> Self {
        let change = dice.below(CHANGES.len());
        let before = Self::counts(change).1;
        let added = CHANGES[change].2;
        let faulty = match dice.below(3) {
            0 => Some(dice.below(before)),
            1 if added > 0 => Some(before + dice.below(added)),
            _ => None,
        };
        let name = format!("place-{number}");
        Self {
            // Every other one, so that few see both.
            by_md: number % 2 == 1,
            killed: dice.below(2) == 1,
            change,
            percent: 1 + dice.below(98) as u64,
            faulty,
            members: members(&name, before + added, MEMBER_BYTES),
            content: Content::of(5000 + number as u64),
            name,
        }
    }

    /// Level, and members before.
    fn counts(change: usize) -> (&'static str, usize) {
        let (level, count) = CHANGES[change].0.split_once(' ').expect("two words");
        (level, count.parse().expect("a number"))
    }

    fn directory(&self) -> &Path {
        self.members[0].parent().expect("a directory")
    }

    fn faulty_text(&self) -> String {
        self.faulty.map_or_else(|| "-".to_owned(), |number| number.to_string())
    }

    fn left(&self) -> Vec<PathBuf> {
        let members = self.members.iter().enumerate();
        members.filter(|(at, _)| Some(*at) != self.faulty).map(|(_, path)| path.clone()).collect()
    }

    /// Data begin to move by Braid. Returns the guest's call, by which md ends that.
    fn begun_by_braid(&self) -> String {
        let Self { name, members, content, percent, .. } = self;
        let (level, before) = Self::counts(self.change);
        create(name, level, &members[..before], &["--chunk", "64K", "--assume-clean"]);
        let served = Served::in_foreground(name, &members[..before], &[]);
        let kib = served.size_bytes() >> 10;
        served.fill(content);
        Run::of(served.braid("limit").args(["--max", "4M"])).expect_success("limit");
        let mut grow = served.braid("grow");
        grow.args(CHANGES[self.change].1.split(' '));
        members[before..].iter().for_each(|device| _ = grow.arg("--add").arg(device));
        Run::of(&mut grow).expect_success("grow");
        let until_moved = |percent| {
            until("a part has moved", || {
                let sync = &served.status()["sync"];
                let [done, total] = ["done_bytes", "total_bytes"].map(|field| sync[field].as_u64());
                let is_over = sync["action"] == "idle";
                is_over || done.zip(total).is_some_and(|(d, t)| d * 100 >= t * percent)
            });
        };
        if let Some(faulty) = self.faulty {
            until_moved(percent / 2);
            served.manage("fail", &members[faulty]);
        }
        until_moved(*percent);
        if self.killed {
            served.kill()
        } else {
            served.stop()
        }
        let faulty = self.faulty_text();
        let directory = self.directory().display();
        format!("place ends {name} {directory} {content} {kib} {faulty}")
    }

    /// The guest's call by which data begin to move by md.
    fn begun_by_md(&self) -> String {
        let Self { name, content, percent, .. } = self;
        let (level, before) = Self::counts(self.change);
        let how = if self.killed { "cut" } else { "stop" };
        let directory = self.directory().display();
        let faulty = self.faulty_text();
        let grow = CHANGES[self.change].3;
        format!(
            "place begins {name} {directory} {content} {before} {percent} {faulty} {how} \
             '-l{level} -c64 --bitmap=none' '{grow}'"
        )
    }

    /// Braid moves the rest of what md began, or says that it does not, and reads it.
    fn ended_by_braid(&self) {
        let size = read(&self.directory().join("size.txt"));
        let before: u64 = size.trim().parse().expect("a size");
        let members = self.left();
        let is_refused = support::attempt(|| Served::start(&self.name, &members, &["--run"]));
        let served = match is_refused {
            Ok(served) => served,
            Err(why) => {
                assert!(why.contains("--readonly") || why.contains("braid cat"), "{why}");
                println!("{}: not gone on with: {why}", self.name);
                let content = self.content.clone();
                let name = self.name.clone();
                return Left { name, members, content, size_bytes: before }.expect_by_cat("md");
            }
        };
        until("an end", || served.status()["sync"]["action"] == "idle" && !moves(&served));
        let after = served.size_bytes();
        if after > before {
            served.write(&self.content, before, after - before);
        }
        served.expect(&self.content, "begun by md");
        if self.faulty.is_none() {
            served.wait_until_whole();
            assert_eq!(served.check(), 0, "mismatches");
        }
        served.stop();
    }
}

fn moves(served: &Served) -> bool {
    !served.status()["sync"]["from"].is_null()
}

fn numbered(variable: &str, otherwise: u64) -> u64 {
    let value = std::env::var(variable);
    value.map_or(otherwise, |value| value.parse().expect("a number"))
}

#[test]
#[ignore = "scripts/soak.sh hands over at many places"]
fn moves_are_handed_over_anywhere() {
    if let Err(reason) = available() {
        return skip("moves_are_handed_over_anywhere", &reason);
    }
    let mut dice = Dice(numbered("GROWN_SEED", 1));
    let count = numbered("GROWN_PLACES", 8) as usize;
    let places: Vec<Place> = (0..count).map(|number| Place::drawn(number, &mut dice)).collect();
    let mut findings = Vec::new();
    let mut script = format!(
        "PATTERN={}\n{}\n{}\n",
        env!("CARGO_BIN_EXE_pattern"),
        include_str!("reshape.sh"),
        include_str!("grown_places.sh")
    );
    for place in &places {
        let begun = if place.by_md {
            Ok(place.begun_by_md())
        } else {
            support::attempt(|| place.begun_by_braid())
        };
        match begun {
            Ok(call) => _ = writeln!(script, "{call}"),
            Err(why) => findings.push(format!("{place:?}: {why}")),
        }
    }
    let run = guest::run("grown-places", &script);
    println!("{run}");
    for place in &places {
        let verdict = fs::read_to_string(place.directory().join("verdict.txt")).unwrap_or_default();
        if !verdict.ends_with("right\n") {
            findings.push(format!("{place:?}: {verdict}"));
        } else if place.by_md
            && let Err(why) = support::attempt(|| place.ended_by_braid())
        {
            findings.push(format!("{place:?}: {why}"));
        }
    }
    support::report(&findings);
}
