//! A round: an array that was filled is written to until the power fails, and is assembled without
//! the members that are lost with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::dice::Dice;
use super::disk::{Disk, SECTOR_BYTES};
use super::fuse::{self, Mount};
use super::history::{History, Verdict};
use super::rack::Rack;
use super::shape::{Policy, Shape};
use crate::braid_to_md::create;
use crate::logs::cat;
use crate::nbd::Client;
use crate::served::Served;
use crate::support::{self, Run};

/// Room for the metadata and, of a member, for a log of partial parity; of a journal, for its ring.
const MEMBER_BYTES: usize = 4 << 20;
const JOURNAL_BYTES: usize = 5 << 20;
/// What the array uses of each member: little, so that writes meet.
const USED: &str = "512K";
/// The power fails at most so many writes and flushes of the disks after the first write.
const LONGEST: u64 = 500;
/// The same while it is assembled.
const LONGEST_START: u64 = 60;
/// Why an array without members is not started, where nothing vouches for parity.
const UNCLEAN: &str = "was not stopped cleanly";
/// Nothing is asked for so long: after more than 5 s of that, memory is given back to the system.
const REST: Duration = Duration::from_secs(6);
const MOST_UNDER_WAY: u64 = 12;

/// An array that is ready for rounds.
#[derive(Debug)]
pub(super) struct Bench {
    shape: Shape,
    members: Vec<PathBuf>,
    journal: Option<PathBuf>,
    log: PathBuf,
    rack: Rack,
    filled: Vec<(String, Disk)>,
    sectors: u64,
    _mount: Mount,
}

/// What came of a round.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) history: History,
    pub(super) lost: Vec<u64>,
    /// Did the power fail again?
    pub(super) again: bool,
    /// Did it take force?
    pub(super) forced: bool,
    /// Before anything was written to the members again, where the log allows that.
    pub(super) read_only: Option<Verdict>,
    /// Once it was assembled.
    pub(super) assembled: Verdict,
}

impl Bench {
    /// Creates the array and fills it.
    pub(super) fn new(shape: Shape) -> Self {
        let directory = support::base().join(shape.name());
        let mounted = directory.join("disks");
        fuse::clear(&mounted);
        let directory = support::directory(&shape.name());
        std::fs::create_dir(&mounted).expect("a directory");
        let mut disks: Vec<(String, Disk)> =
            (0..shape.members).map(|role| (format!("m{role}"), Disk::new(MEMBER_BYTES))).collect();
        let members: Vec<PathBuf> = disks.iter().map(|(name, _)| mounted.join(name)).collect();
        let has_journal = matches!(shape.policy, Policy::Journal { .. });
        let journal = has_journal.then(|| mounted.join("journal"));
        if journal.is_some() {
            disks.push(("journal".into(), Disk::new(JOURNAL_BYTES)));
        }
        let rack = Rack::new(disks);
        let mount = Mount::new(rack.clone(), &mounted);
        let name = shape.name();
        let chunk = format!("{}K", shape.chunk_kib);
        // Zeroes fit.
        let mut arguments = vec!["--chunk", &chunk, "--size", USED, "--assume-clean"];
        match &journal {
            Some(journal) => arguments.extend(["--write-journal", path(journal)]),
            None => arguments.extend(["--consistency-policy", shape.policy.name()]),
        }
        create(&name, &shape.level.to_string(), &members, &arguments);
        let log = directory.join("log");
        let mut bench =
            Self { shape, members, journal, log, rack, filled: vec![], sectors: 0, _mount: mount };
        bench.fill();
        bench
    }

    fn fill(&mut self) {
        let served = self.assemble(&[], &[]);
        let mut client = Client::connect(&served.socket()).expect("the array's socket");
        self.sectors = client.size_bytes() / SECTOR_BYTES as u64;
        let content = History::of_filled(self.sectors).fill();
        client.write(0, 0, &content, false).expect("a write");
        assert!(client.answer().expect("an answer").done, "filling failed");
        client.flush(1).expect("a flush");
        assert!(client.answer().expect("an answer").done, "flushing failed");
        client.close().expect("the end of the connection");
        served.stop();
        self.filled = self.rack.copy();
    }

    /// Cuts the power as a seed says. In the first round nothing is asked for a while, of an array
    /// whose journal writes back.
    pub(super) fn round(&self, seed: u64, is_first: bool) -> Outcome {
        let mut dice = Dice::new(seed);
        self.rack.exchange(&self.filled);
        let writes_back = self.shape.policy == (Policy::Journal { back: true });
        let rests = is_first && self.shape.level == 5 && writes_back;
        let history = self.write_until_cut(&mut dice, rests);
        let lost = self.lost(&mut dice);
        let judge = |content: &[u8]| {
            history.judge(content, &|sector| lost.contains(&self.shape.role_of(sector)))
        };
        self.rack.power_on();
        let bare = self.has_recorded_nothing(&history, &lost);
        // What a journal has without parity is written before it can be read.
        let policy = self.shape.policy;
        let readable = !policy.is_open() && !bare && policy != (Policy::Journal { back: true });
        let read_only = readable.then(|| judge(&cat(&self.devices(&lost))));
        let again = !policy.is_open() && dice.percent(40);
        if again {
            self.cut_again(&lost, &mut dice);
        }
        let may_refuse = policy.is_open() || policy == Policy::PartialParity && (bare || again);
        let (served, forced) = match self.try_to_assemble(&lost, &["--run"]) {
            Err(said) if may_refuse && said.contains(UNCLEAN) => {
                (self.assemble(&lost, &["--run", "--force"]), true)
            }
            result => (result.unwrap_or_else(|said| panic!("{said}")), false),
        };
        let mut client = Client::connect(&served.socket()).expect("the array's socket");
        let content = client.read_all();
        served.kill();
        let assembled = judge(&content.expect("the array's content"));
        Outcome { history, lost, again, forced, read_only, assembled }
    }

    /// May logs of partial parity, of members that are left, have nothing that was recorded since
    /// the array was started? They look so, too, while a resync is due, and so a degraded array
    /// that was not stopped does not start by them.
    fn has_recorded_nothing(&self, history: &History, lost: &[u64]) -> bool {
        if self.shape.policy != Policy::PartialParity {
            return false;
        }
        let stripe = self.shape.stripe_sectors();
        let stripes = history.answered_stripes(stripe);
        stripes.iter().all(|number| lost.contains(&self.shape.parity_of(number * stripe)))
    }

    /// The power fails again while what the log tells is brought in place, or soon after.
    fn cut_again(&self, lost: &[u64], dice: &mut Dice) {
        self.rack.cut_after(dice.within(1..LONGEST_START), Dice::new(dice.next()));
        if let Ok(served) = self.try_to_assemble(lost, &["--run"]) {
            served.kill();
        }
        self.rack.power_on();
    }

    /// The devices without lost members.
    fn devices(&self, lost: &[u64]) -> Vec<PathBuf> {
        let left = (0..).zip(&self.members).filter(|(role, _)| !lost.contains(role));
        left.map(|(_, member)| member).chain(&self.journal).cloned().collect()
    }

    fn assemble(&self, lost: &[u64], arguments: &[&str]) -> Served {
        self.try_to_assemble(lost, arguments).unwrap_or_else(|said| panic!("assembling: {said}"))
    }

    fn try_to_assemble(&self, lost: &[u64], arguments: &[&str]) -> Result<Served, String> {
        Served::logging_to(&self.log, &self.shape.name(), &self.devices(lost), arguments)
    }

    fn lost(&self, dice: &mut Dice) -> Vec<u64> {
        let mut roles: Vec<u64> = (0..self.shape.members).collect();
        let take = |_| roles.swap_remove(dice.within(0..roles.len() as u64) as usize);
        (0..self.shape.lost).map(take).collect()
    }

    /// Writes and flushes, several at once, until the power is off and the process is dead.
    fn write_until_cut(&self, dice: &mut Dice, rests: bool) -> History {
        let served = self.assemble(&[], &[]);
        if self.shape.policy == (Policy::Journal { back: true }) {
            let mut mode = served.braid("sync");
            Run::of(mode.args(["--journal-mode", "write-back"])).expect_success("writing back");
        }
        let client = Client::connect(&served.socket()).expect("the array's socket");
        let mut writer = Writer::new(client, self, dice);
        if rests {
            writer.rest(dice);
        }
        self.rack.cut_after(dice.within(1..LONGEST), Dice::new(dice.next()));
        while !self.rack.is_off() && writer.turn(dice) {}
        assert!(self.rack.is_off(), "a write failed before the power did");
        served.kill();
        writer.hear_the_rest();
        writer.history
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of words")
}

/// Who writes at random.
struct Writer {
    client: Client,
    history: History,
    /// By cookie.
    asked: Vec<Asked>,
    under_way: u64,
    at_once: u64,
    /// Where most writes go: a few stripes.
    piled_up: std::ops::Range<u64>,
    sectors: u64,
    sizes: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Write { number: usize, fua: bool },
    Flush { began: u64 },
}

impl Writer {
    fn new(client: Client, bench: &Bench, dice: &mut Dice) -> Self {
        let stripe = bench.shape.stripe_sectors();
        let stripes = bench.sectors / stripe;
        let first = dice.within(0..stripes);
        let end = (first + dice.within(1..5)).min(stripes);
        Self {
            client,
            history: History::of_filled(bench.sectors),
            asked: Vec::new(),
            under_way: 0,
            at_once: dice.within(1..MOST_UNDER_WAY + 1),
            piled_up: first * stripe..end * stripe,
            sectors: bench.sectors,
            sizes: vec![1, 3, 8, 8, 8, 16, 24, stripe / 2, stripe, dice.within(1..2 * stripe)],
        }
    }

    /// One request more, and answers where there are too many. False when it is of no use.
    fn turn(&mut self, dice: &mut Dice) -> bool {
        let cookie = self.asked.len() as u64;
        let asked = if dice.percent(8) {
            self.asked.push(Asked::Flush { began: self.history.flush() });
            self.client.flush(cookie)
        } else {
            let range = self.range(dice);
            let fua = dice.percent(5);
            let offset = range.start * SECTOR_BYTES as u64;
            let (number, data) = self.history.begin(range);
            self.asked.push(Asked::Write { number, fua });
            self.client.write(cookie, offset, &data, fua)
        };
        self.under_way += 1;
        asked.is_ok() && (self.under_way < self.at_once || self.hear())
    }

    fn range(&self, dice: &mut Dice) -> std::ops::Range<u64> {
        let within = if dice.percent(70) { self.piled_up.clone() } else { 0..self.sectors };
        let length = dice.one_of(&self.sizes).min(within.end - within.start);
        let start = dice.within(within.start..within.end - length + 1);
        // Blocks of 4 KiB more often than not.
        let start = if dice.percent(60) { start / 8 * 8 } else { start };
        start..start + length
    }

    /// An answer; false if it is a bad one, or none comes any more.
    fn hear(&mut self) -> bool {
        let Ok(answer) = self.client.answer() else { return false };
        self.under_way -= 1;
        match self.asked[answer.cookie as usize] {
            _ if !answer.done => return false,
            Asked::Write { number, fua } => self.history.answered(number, fua),
            Asked::Flush { began } => self.history.flushed(began),
        }
        true
    }

    /// Writes, asks for nothing for a while, and finds what it wrote.
    fn rest(&mut self, dice: &mut Dice) {
        for _ in 0..2 * MOST_UNDER_WAY {
            assert!(self.turn(dice), "a write failed, and the power did not");
        }
        self.hear_the_rest();
        std::thread::sleep(REST);
        let content = self.client.read_all().expect("the array's content");
        let lost = self.history.judge(&content, &|_| false).there;
        assert!(lost.is_empty(), "lost after {REST:?} in which nothing was asked for: {lost:?}");
    }

    /// What a process that is dead has still said.
    fn hear_the_rest(&mut self) {
        while self.under_way > 0 {
            let before = self.under_way;
            if !self.hear() && self.under_way == before {
                return;
            }
        }
    }
}
