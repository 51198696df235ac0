//! md's logs: in which order what they record, what they tell of and what frees them reaches the
//! members. I/O is served one at a time, in any order; whatever is issued is first held against
//! what a power cut would leave at that moment.

use super::*;
use crate::Role;
use crate::action::{Command, NewMember};
use crate::events::SyncAction;
use crate::format::ppl::{PplArea, place_code};
use crate::geometry::Geometry;
use crate::log::journal::{JournalArea, JournalPage, JournalScan};
use crate::log::ppl::{PplFix, PplScan, fixes};
use crate::status::{ArrayState, JournalMode, MemberState};
use disk::Disk;
use restart::is_superblock;
use resync::unclean;
use world::Fate;

/// Where partial parity logs lie, behind the superblock.
const AREA_OFFSET: i16 = 24;
const AREA: PplArea = PplArea { sector: SUPER_SECTOR + 24, sectors: 32, is_ring: false };

/// Requests under way at most.
const MOST_REQUESTS: usize = 6;

/// The most of a request, in sectors.
const MOST_SECTORS: u64 = 100;

fn mark(config: &mut Config, change: impl Fn(&mut Superblock)) {
    let members = config.members.iter_mut().map(|member| &mut member.superblock);
    members.chain([&mut config.superblock]).for_each(change);
}

/// A raid5 with partial parity logs.
fn add_partial_parity_logs(config: &mut Config) {
    mark(config, |superblock| {
        superblock.feature_map |= feature::PPL;
        superblock.bitmap_offset_sectors = place_code(AREA_OFFSET, AREA.sectors as u16);
    });
    let generations = vec![Some(0); config.members.len()];
    config.log = StartLog::PartialParity { fixes: Vec::new(), generations, closed: false };
}

/// An array with a journal on one more member.
pub(super) fn add_journal(config: &mut Config) {
    let mut journal = config.members[0].clone();
    let member = MemberId(config.members.len() as u16);
    journal.device = format!("disk{}", member.0);
    journal.superblock.dev_number = u32::from(member.0);
    journal.superblock.device_uuid = [member.0 as u8; 16];
    journal.standing = Standing::Journal;
    config.members.push(journal);
    mark(config, |superblock| {
        superblock.feature_map |= feature::JOURNAL;
        superblock.roles.push(DevRole::Journal);
    });
    let scan = JournalScan {
        area: JournalArea { start: DATA_OFFSET, sectors: MEMBER_SECTORS, tail: 0 },
        end: 0,
        next_seq: 100,
        blocks: 1,
        pages: Vec::new(),
        data: Vec::new(),
    };
    config.log = StartLog::Journal { member, scan };
}

/// The array under test, and what is known of it.
struct Order {
    world: World,
    geometry: Geometry,
    disks: usize,
    seed: u64,
    /// Records that writes were held against.
    compared: usize,
    /// Frees of records that were.
    freed: usize,
}

impl Order {
    fn new(level: i32, seed: u64, add_log: fn(&mut Config)) -> Self {
        let disks = if level == 6 { 5 } else { 4 };
        let mut world = World::with(level, 2, disks, 16, add_log);
        let geometry = geometry_of(&config(level, 2, disks, 16)).unwrap();
        world.run();
        world.rule(|_, _| Fate::Hold);
        Self { world, geometry, disks: disks as usize, seed, compared: 0, freed: 0 }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.seed >> 33) % below
    }

    fn submit(&mut self, number: usize) {
        let sectors = 1 + self.draw(MOST_SECTORS);
        // Few stripes, so that logs are overwritten and stripes are written again.
        let sector = self.draw(200);
        let slot = (number % MOST_REQUESTS) as u64 * MOST_SECTORS * SECTOR_BYTES;
        let mut buf = self.world.data_buf((sectors * SECTOR_BYTES) as usize);
        buf.offset += slot;
        let bytes = noise(number as u64 + 1, buf.len as usize);
        self.world.bytes(buf).copy_from_slice(&bytes);
        let fua = self.draw(4) == 0;
        self.world.request(Op::Write { fua }, sector, sectors, buf);
        self.world.run_until_idle();
    }

    /// Writes at random, in waves: what is served is drawn among all that waits.
    fn run(&mut self, check: fn(&mut Self, MemberId, IoOp)) {
        let mut checked = Vec::new();
        for wave in 0..40 {
            for number in 0..MOST_REQUESTS {
                self.submit(wave * MOST_REQUESTS + number);
            }
            loop {
                for (io, member, op) in self.world.held.clone() {
                    if !checked.contains(&io) {
                        check(self, member, op);
                        checked.push(io);
                    }
                }
                if self.world.held.is_empty() {
                    break;
                }
                let next = self.draw(self.world.held.len() as u64) as usize;
                let (io, ..) = self.world.held[next];
                checked.retain(|other| *other != io);
                self.world.release_one(next);
            }
            while self.world.answers.len() < MOST_REQUESTS && self.world.pass_time() {}
            if self.world.held.is_empty() {
                assert_eq!(std::mem::take(&mut self.world.answers).len(), MOST_REQUESTS);
            }
        }
        self.world.hold_nothing();
        assert_eq!(self.world.check(), 0);
    }

    /// Returns the contents that a power cut would leave.
    fn durable(&self, member: MemberId, sector: u64, bytes: u32) -> Vec<u8> {
        self.world.disks[usize::from(member.0)].as_ref().unwrap().durable(sector, bytes as usize)
    }

    /// Returns the contents of a member's log after a power cut.
    fn told(&self, member: MemberId) -> Vec<PplFix> {
        let mut read = |sector, bytes| Ok(self.durable(member, sector, bytes));
        let scan = PplScan::read(AREA, [7; 16], &mut read).unwrap();
        let of =
            |(entry, parity): &(_, Vec<u8>)| fixes(entry, parity, &self.geometry, &|_| 1 << 40);
        scan.entries.iter().flat_map(|entry| of(entry).unwrap()).collect()
    }

    /// Returns the contents of the journal after a power cut, with its tail there.
    fn scan(&self, tail: u64) -> JournalScan {
        let journal = self.journal();
        let area = JournalArea { start: DATA_OFFSET, sectors: MEMBER_SECTORS, tail };
        let mut read = |sector, bytes| Ok(self.durable(journal, sector, bytes));
        let scan = JournalScan::read(area, [7; 16], &self.geometry, &mut read);
        scan.expect("the tail is on a block")
    }

    /// The pages that it brings in place, and those that lack parity.
    fn all_pages(&self, tail: u64) -> Vec<JournalPage> {
        let scan = self.scan(tail);
        let dirty = scan.data.into_iter().map(|(sector, position)| {
            let strip = self.geometry.copy(sector, 0);
            JournalPage { role: strip.role, row: strip.sector, position }
        });
        scan.pages.into_iter().chain(dirty).collect()
    }

    fn journal(&self) -> MemberId {
        MemberId(self.disks as u16)
    }

    fn tail(&self, bytes: &[u8]) -> u64 {
        Superblock::decode(Version::V1_2, SUPER_SECTOR, bytes).unwrap().recovery_offset
    }
}

/// A write to a unit's rows only while the unit is durable; another unit only when all that this
/// one
/// tells of is.
fn check_partial_parity(order: &mut Order, member: MemberId, op: IoOp) {
    let (IoOp::Write { sector, buf, fua, .. }, role) = (op, Role(member.0)) else { return };
    let sectors = u64::from(buf.len) / SECTOR_BYTES;
    if (AREA.sector..AREA.sector + AREA.sectors).contains(&sector) {
        assert!(fua, "a unit that is not durable at once");
        for fix in order.told(member) {
            order.freed += 1;
            for of in fix.data.iter().copied().chain([fix.parity]) {
                let first = DATA_OFFSET + fix.row;
                let disk = order.world.disks[of.index()].as_ref().unwrap();
                let bytes = fix.sectors as usize * SECTOR_BYTES as usize;
                let lasts = disk.read(first, bytes) == disk.durable(first, bytes);
                let end = first + u64::from(fix.sectors);
                let waits = order.world.held.iter().any(|(_, other, op)| match *op {
                    IoOp::Write { sector, buf, .. } => {
                        let behind = sector + u64::from(buf.len) / SECTOR_BYTES;
                        other.0 == of.0 && sector < end && first < behind
                    }
                    _ => false,
                });
                assert!(lasts && !waits, "a unit is overwritten that still counts");
            }
        }
    } else if sector >= DATA_OFFSET {
        let rows = sector - DATA_OFFSET..sector - DATA_OFFSET + sectors;
        for row in rows {
            let (holder, _) = order.geometry.parity_roles(row / 16);
            let covers = |fix: &PplFix| {
                let within = (fix.row..fix.row + u64::from(fix.sectors)).contains(&row);
                within && (fix.parity == role || fix.data.contains(&role))
            };
            assert!(order.told(MemberId(holder.0)).iter().any(covers), "row {row} is not recorded");
            order.compared += 1;
        }
    }
}

/// A write only of what the journal would write, too; a tail only behind what is durable in place.
fn check_journal(order: &mut Order, member: MemberId, op: IoOp) {
    let IoOp::Write { sector, buf, .. } = op else { return };
    let journal = order.journal();
    let tail = order.tail(&order.durable(journal, SUPER_SECTOR, 4096));
    let sectors = u64::from(buf.len) / SECTOR_BYTES;
    let position = |page: &JournalPage| DATA_OFFSET + page.position;
    if member == journal && sector == SUPER_SECTOR {
        let bytes = order.world.bytes(buf).to_vec();
        let kept = order.all_pages(order.tail(&bytes));
        for page in order.all_pages(tail) {
            if kept.iter().any(|other| (other.role, other.row) == (page.role, page.row)) {
                continue;
            }
            let recorded = order.durable(journal, position(&page), 4096);
            let there = order.durable(MemberId(page.role.0), DATA_OFFSET + page.row, 4096);
            assert!(recorded == there, "freed before it is durable in place: {page:?}");
            order.freed += 1;
        }
    } else if member != journal && sector >= DATA_OFFSET {
        let bytes = order.world.bytes(buf).to_vec();
        let pages = order.scan(tail).pages;
        let row = sector - DATA_OFFSET;
        for (at, block) in (row..row + sectors).step_by(8).zip(bytes.chunks(4096)) {
            let page = pages.iter().find(|page| (page.role, page.row) == (Role(member.0), at));
            let Some(page) = page else {
                // What lies between dirty pages is written as it is.
                let disk = order.world.disks[usize::from(member.0)].as_ref().unwrap();
                let there = disk.read(DATA_OFFSET + at, 4096);
                assert!(there == block, "row {at} of {member:?} is not recorded");
                continue;
            };
            let recorded = order.durable(journal, position(page), 4096);
            assert!(recorded == block, "row {at} of {member:?} is recorded otherwise");
            order.compared += 1;
        }
    }
}

#[test]
fn partial_parity_is_durable_before_a_write_and_until_that_is() {
    for seed in 1..=8 {
        let mut order = Order::new(5, seed, add_partial_parity_logs);
        order.run(check_partial_parity);
        assert!(order.compared > 1000 && order.freed > 50, "{} {}", order.compared, order.freed);
    }
}

#[test]
fn the_journal_has_a_write_before_it_is_in_place_and_until_that_is_durable() {
    for seed in 1..=8 {
        let level = if seed % 2 == 0 { 6 } else { 5 };
        let mut order = Order::new(level, seed, add_journal);
        order.run(check_journal);
        assert!(order.compared > 1000 && order.freed > 50, "{} {}", order.compared, order.freed);
    }
}

#[test]
fn a_journal_that_writes_back_has_data_until_they_are_durable_in_place() {
    for seed in 1..=8 {
        let level = if seed % 2 == 0 { 6 } else { 5 };
        let mut order = Order::new(level, seed, add_journal);
        order.world.hold_nothing();
        order.world.command(Command::JournalMode(JournalMode::WriteBack));
        order.world.rule(|_, _| Fate::Hold);
        order.run(check_journal);
        assert!(order.compared > 500 && order.freed > 50, "{} {}", order.compared, order.freed);
    }
}

/// As much as fits in memory and in the ring is admitted; the rest gets room at once, and not when
/// something is due anyway.
#[test]
fn writes_that_wait_for_room_in_a_journal_get_it_with_no_time_passing() {
    for (level, disks) in [(5, 4), (6, 4), (6, 5)] {
        for at_once in [1, 16] {
            let mut world = World::with(level, 2, disks, 16, add_journal);
            world.run();
            world.command(Command::JournalMode(JournalMode::WriteBack));
            let geometry = geometry_of(&config(level, 2, disks, 16)).unwrap();
            let writes = geometry.array_sectors() / 16;
            for number in 0..4 * writes {
                let buf = world.data_buf(8 << 10);
                let sector = number % writes * 16;
                world.request(Op::Write { fua: false }, sector, 16, buf);
                if number % at_once == at_once - 1 {
                    world.run_until_idle();
                    let answered = std::mem::take(&mut world.answers).len() as u64;
                    assert_eq!(answered, at_once, "level {level} of {disks}, write {number}");
                }
            }
        }
    }
}

/// A raid5 with a journal that writes back and a resync that is paused, with data of the first unit
/// in the journal alone: parity may not fit there, and a sector that it takes cannot be read.
fn with_data_that_cannot_go_in_place() -> World {
    let mut world = World::with(5, 2, 3, 128, |config| {
        unclean(config);
        add_journal(config);
    });
    world.hold(|_, op| op == IoOp::Flush);
    world.begin_command(Command::Pause(true));
    world.hold_nothing();
    world.run();
    world.command(Command::JournalMode(JournalMode::WriteBack));
    world.bad.push((MemberId(1), DATA_OFFSET));
    assert_eq!(write_page(&mut world, 0, 1), Some(Ok(())));
    world
}

/// Writes a page with no time passing: the answer.
fn write_page(world: &mut World, sector: u64, seed: u64) -> Option<Result<(), RequestError>> {
    let buf = world.data_buf(4096);
    world.bytes(buf).copy_from_slice(&noise(seed, 4096));
    world.request(Op::Write { fua: false }, sector, 8, buf);
    world.run_until_idle();
    std::mem::take(&mut world.answers).pop().map(|(_, result)| result)
}

/// Data that cannot go in place count in the journal for ever, so that there is no more room.
#[test]
fn writes_are_refused_when_the_journal_is_full_of_what_cannot_go_in_place() {
    let mut world = with_data_that_cannot_go_in_place();
    let refused =
        (0..400).find_map(|number| match write_page(&mut world, 256 + number % 64 * 8, number) {
            Some(Ok(())) => None,
            other => Some(other),
        });
    assert_eq!(refused, Some(Some(Err(RequestError::Medium))));
    world.bad.clear();
    world.run();
    assert_eq!(write_page(&mut world, 256, 7), Some(Ok(())));
    assert_eq!(world.read(256, 8).unwrap(), noise(7, 4096));
    assert_eq!(world.read(0, 8).unwrap(), noise(1, 4096));
}

/// After that no superblock tells that what is in place need not be in the journal any more.
#[test]
fn a_write_that_waits_for_room_in_the_journal_ends_when_the_array_fails() {
    let mut world = World::with(5, 2, 3, 16, add_journal);
    world.run();
    let in_first_stripe = |sector| (DATA_OFFSET..DATA_OFFSET + 16).contains(&sector);
    world.hold(move |member, op| {
        member == MemberId(0) && matches!(op, IoOp::Write { sector, .. } if in_first_stripe(sector))
    });
    let first = write_page(&mut world, 0, 1);
    let waits = (1..128).find(|number| write_page(&mut world, number * 32, *number).is_none());
    assert!(first.is_none() && waits.is_some(), "the journal is never full");
    world.disks[1] = None;
    world.disks[2] = None;
    world.request(Op::Read, 0, 64, world.data_buf(32 << 10));
    world.run_until_idle();
    assert_eq!(world.array.status().state, ArrayState::Failed);
    world.hold_nothing();
    assert_eq!(world.run().len(), 3, "two writes and a read");
}

/// What a journal records are whole blocks: their rest is read, and is the old content for the sum.
#[test]
fn a_write_of_a_part_of_a_block_reads_each_sector_once() {
    for level in [5, 6] {
        let mut world = World::with(level, 2, 6, 16, add_journal);
        let mut content = fill(&mut world);
        for (number, sector) in [(1, 0), (2, 3), (3, 21), (4, 300)] {
            world.issued.clear();
            let new = noise(number, 512);
            world.write(sector, &new).unwrap();
            content[sector as usize * 512..][..512].copy_from_slice(&new);
            assert!(each_is_read_once(&world.issued), "level {level}: {:?}", world.issued);
        }
        assert_eq!(world.check(), 0);
        compare(&mut world, &content, "parts of blocks");
    }
}

#[test]
fn a_new_journal_that_fails_at_once_is_refused() {
    let mut world = World::with(5, 2, 3, 16, add_journal);
    world.run();
    world.command(Command::Fail(MemberId(3)));
    world.command(Command::Remove(MemberId(3)));
    let new = new_journal(&mut world);
    world.disks[3] = None;
    let refusal = world.refused(new);
    assert!(refusal.contains("failed"), "{refusal}");
}

/// A device that is to hold the journal is put in the place of the last one.
fn new_journal(world: &mut World) -> Command {
    let member = world.array.free_member().unwrap();
    world.places.insert(member, 3);
    let device_sectors = 16 << 10;
    world.disks[3] = Some(Disk::filled(device_sectors, 0x55));
    Command::AddJournal(Box::new(NewMember {
        member,
        device: format!("new{}", member.0),
        device_sectors,
        superblock: None,
        bad_blocks: None,
        readd: false,
        device_uuid: [9; 16],
    }))
}

/// An array that has lost its journal while a page from there is written in place, which a member
/// does not answer; and the command that gives it another one, which waits.
fn with_writes_on_their_way() -> World {
    let mut world = World::with(5, 2, 3, 16, add_journal);
    world.run();
    world.command(Command::JournalMode(JournalMode::WriteBack));
    assert_eq!(write_page(&mut world, 0, 1), Some(Ok(())));
    world.hold(|member, op| member == MemberId(0) && matches!(op, IoOp::Write { .. }));
    world.begin_command(Command::Fail(MemberId(3)));
    assert!(!world.held.is_empty(), "what the journal had alone goes in place");
    let new = new_journal(&mut world);
    assert!(!world.begin_command(new));
    world
}

#[test]
fn a_new_journal_waits_for_what_the_last_one_let_pass() {
    let mut world = with_writes_on_their_way();
    assert_eq!(world.refusals, [""; 0], "it waits");
    let another = world.array.free_member();
    let refused = new_journal(&mut world);
    assert_eq!(world.refused(refused), "another device becomes its journal already");
    assert_ne!(another, Some(MemberId(4)), "the place is given away twice");
    world.hold_nothing();
    world.run();
    assert_eq!(world.refusals, [""; 0]);
    assert!(world.array.status().journal.is_some(), "there is none");
    assert_eq!(world.read(0, 8).unwrap(), noise(1, 4096));
    world.write(64, &noise(2, 4096)).unwrap();
    assert_eq!(world.read(64, 8).unwrap(), noise(2, 4096));
    assert_eq!(world.check(), 0);
}

#[test]
fn a_new_journal_does_not_wait_for_ever() {
    let mut world = with_writes_on_their_way();
    let begun = world.now;
    while world.refusals.is_empty() && world.pass_time() {}
    let reason = "a member has not answered for 5 s what is still written to it";
    assert_eq!(world.refusals, [reason]);
    assert_eq!(world.now, begun.plus_millis(5_000));
    world.hold_nothing();
    world.run();
    let new = new_journal(&mut world);
    world.command(new);
}

/// Commands that come before the log is in place wait for that.
#[test]
fn commands_wait_while_logs_are_brought_in_place() {
    let logs: [fn(&mut Config); 2] = [add_journal, add_partial_parity_logs];
    for (number, log) in logs.into_iter().enumerate() {
        let spare = MemberId(if number == 0 { 5 } else { 4 });
        for command in [
            Command::Fail(MemberId(0)),
            Command::Remove(spare),
            Command::Replace(MemberId(0)),
            Command::Scrub { repair: true },
        ] {
            let what = format!("log {number}, {command:?}");
            let mut world = World::with(5, 2, 4, 16, |config| {
                log(config);
                let mut member = config.members[0].clone();
                member.device = format!("disk{}", spare.0);
                member.superblock.dev_number = u32::from(spare.0);
                member.superblock.device_uuid = [spare.0 as u8; 16];
                member.standing = Standing::Spare;
                config.members.push(member);
            });
            world.hold(|_, _| true);
            world.run_until_idle();
            assert!(!world.held.is_empty(), "{what}: it has started");
            world.begin_command(command.clone());
            assert_eq!(world.refusals, [""; 0], "{what}");
            world.hold_nothing();
            world.run();
            let members = world.array.status().members;
            let is_faulty = members.iter().any(|member| member.state == MemberState::Faulty);
            let is_replaced = matches!(command, Command::Fail(_) | Command::Replace(_));
            assert_eq!(is_faulty, is_replaced, "{what}");
            let is_there = members.iter().any(|member| member.member == spare);
            assert_eq!(is_there, !matches!(command, Command::Remove(_)), "{what}");
            assert_eq!(world.check(), 0, "{what}");
        }
    }
}

/// A new device may get the number of a member that is missing, and that number is listed as active
/// until the next update. An array with a journal takes devices in before its first one.
#[test]
fn a_new_device_is_never_told_to_hold_what_a_missing_member_held() {
    let mut world = World::with(5, 2, 3, 16, |config| {
        config.members[0].superblock.events -= 1;
        config.members.remove(2);
        add_journal(config);
        config.members[2].superblock.dev_number = 3;
    });
    let new = world.array.free_member().unwrap();
    world.hold(move |member, op| member == new && is_superblock(op));
    world.add_disk();
    let mut told = 0;
    while let Some((_, member, op)) = world.held.first().copied() {
        let IoOp::Write { buf, .. } = op else { panic!("{op:?}") };
        let bytes = world.bytes(buf).to_vec();
        let superblock = Superblock::decode(Version::V1_2, SUPER_SECTOR, &bytes).unwrap();
        assert_eq!((member, superblock.dev_number), (new, 2));
        let whole = !superblock.has(feature::RECOVERY_OFFSET);
        let in_sync = world.array.status().degraded == 0;
        assert!(superblock.role() == DevRole::Spare || !whole || in_sync, "{superblock:?}");
        told += 1;
        world.release_one(0);
    }
    assert!(told > 1);
}

/// The device of a member may hold units from another time, which would count at the next start.
#[test]
fn the_log_of_a_member_is_empty_before_it_is_in_sync() {
    let mut world = World::with(5, 2, 3, 16, add_partial_parity_logs);
    world.run();
    for number in 0..12 {
        world.write(number * 8, &noise(number, 4096)).unwrap();
    }
    let area = |world: &World, disk: usize| {
        let bytes = AREA.sectors as usize * SECTOR_BYTES as usize;
        world.disks[disk].as_ref().unwrap().read(AREA.sector, bytes).to_vec()
    };
    let stale = area(&world, 0);
    let entries = |bytes: &[u8]| {
        let mut read = |sector: u64, len: u32| {
            let from = ((sector - AREA.sector) * SECTOR_BYTES) as usize;
            Ok(bytes[from..from + len as usize].to_vec())
        };
        PplScan::read(AREA, [7; 16], &mut read).unwrap().entries.len()
    };
    assert!(entries(&stale) > 0, "something is recorded");
    world.command(Command::Fail(MemberId(2)));
    world.command(Command::Remove(MemberId(2)));
    world.rule(move |_, op| match op {
        IoOp::Write { sector, .. } if sector >= DATA_OFFSET => Fate::Hold,
        _ => Fate::Serve,
    });
    let mut device = Disk::filled(DATA_OFFSET + MEMBER_SECTORS, 0x55);
    device.write(AREA.sector, &stale, true);
    world.disks.push(Some(device));
    let disk = world.disks.len() - 1;
    let new = world.add(disk, false);
    world.release_until(|world| world.events.contains(&ArrayEvent::MemberActive(new)));
    assert_eq!(entries(&area(&world, disk)), 0);
}

/// Contents of the log are brought in place first; meanwhile a check that is asked for is not over.
#[test]
fn a_check_asked_for_while_the_array_starts_waits() {
    let mut world = World::with(5, 2, 4, 16, add_journal);
    world.hold(|_, op| op == IoOp::Flush);
    assert!(world.begin_command(Command::Scrub { repair: false }));
    let sync = world.array.status().sync;
    assert_eq!((sync.action, sync.next), (SyncAction::Idle, Some(SyncAction::Check)));
    world.hold_nothing();
    world.run();
    let status = world.array.status();
    assert!(status.sync.is_idle());
    assert_eq!(status.mismatch_sectors, Some(0));
}

/// Then the array can be given another policy.
#[test]
fn a_journal_tells_of_nothing_after_a_stop() {
    let mut order = Order::new(5, 1, add_journal);
    order.world.hold_nothing();
    for number in 0..3 {
        order.world.write(number * 8, &noise(number, 4096)).unwrap();
    }
    let journal = order.journal();
    let tail = |order: &Order| order.tail(&order.durable(journal, SUPER_SECTOR, 4096));
    assert!(!order.all_pages(tail(&order)).is_empty(), "something was recorded");
    order.world.command(Command::Stop);
    assert_eq!(order.all_pages(tail(&order)), []);
}
