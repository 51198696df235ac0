//! Check and repair of arrays over nodes: a byte flipped anywhere is found and named, a repair
//! mends it, and writes that go on meanwhile mislead neither.

use braid_array::MemberId;
use braid_array::code::{Cell, Content};
use braid_array::events::{ArrayEvent, StripeBlock, SyncEnd};
use braid_array::level::{Layout, Level};
use braid_cluster::Family;
use braid_sim::cluster::content::{self, DATA_SECTOR, VOLUME};
use braid_sim::cluster::session::Session;
use braid_sim::oracle::Range;
use braid_sim::rng::Rng;
use braid_sim::workload::{Kind, Workload};

use super::CHUNK_BYTES;

/// Half a chunk.
const SLICE_BYTES: u32 = 8192;
const STRIPES: u64 = 3;
/// The stripe in which bytes flip.
const STRIPE: u64 = 1;

const fn md(level: Level, layout: Layout) -> Family {
    Family::Md { level, layout }
}

fn raid10(layout: u32, nodes: u16) -> Family {
    md(Level::Raid10, Layout::decode(Level::Raid10, layout, nodes.into()).expect("a layout"))
}

/// An array over nodes, written from end to end.
fn array(family: Family, nodes: u16) -> Session {
    let mut session = super::array(family, nodes, STRIPES, SLICE_BYTES);
    // On the nodes' volumes, not in their memory, when it is answered.
    everything(&mut session, Kind::Write { fua: true });
    session
}

/// Writes or reads the whole array. Reads are compared with the written content.
fn everything(session: &mut Session, kind: Kind) {
    let mut sector = 0;
    while sector < session.cluster.layout.sectors() {
        let sectors = 2048.min(session.cluster.layout.sectors() - sector);
        while !session.submit_one(kind, Range { sector, sectors }) {
            assert!(session.step().expect("no fault"), "nothing is due");
        }
        sector += sectors;
    }
    while session.in_flight() > 0 {
        session.step().expect("no fault");
    }
}

/// Flips a bit of a byte of a block of [`STRIPE`].
fn flip(session: &mut Session, cell: Cell, byte: u64) {
    let rows = u64::from(session.cluster.layout.code(STRIPE).rows());
    let block = (STRIPE * rows + u64::from(cell.row)) * CHUNK_BYTES;
    let sector = DATA_SECTOR + (block + byte) / 512;
    let node = session.cluster.nodes[cell.node.index()];
    let disk = &mut session.cluster.world.processes[node].volume_mut(VOLUME).disk;
    let mut bytes = [0; 512];
    disk.read(sector, &mut bytes).expect("it can be read");
    bytes[(byte % 512) as usize] ^= 4;
    disk.put(sector, &bytes);
}

/// Returns the findings of a check or repair: mismatches, and the number of sectors.
fn scrub(session: &mut Session, repair: bool) -> (Vec<ArrayEvent>, u64) {
    session.scrubs.clear();
    session.scrub(repair);
    loop {
        session.outputs().expect("no fault");
        if let Some(ArrayEvent::SyncFinished { mismatch_sectors, end, .. }) = session.scrubs.last()
        {
            assert_eq!(*end, SyncEnd::Complete);
            let mismatch_sectors = *mismatch_sectors;
            session.scrubs.pop();
            return (std::mem::take(&mut session.scrubs), mismatch_sectors);
        }
        assert!(session.step().expect("no fault"), "it stands still");
    }
}

/// First sector in the array of the 4 KiB that have this byte of a data block of [`STRIPE`].
fn sector(session: &Session, index: u32, byte: u64) -> u64 {
    let block = STRIPE * session.cluster.layout.data_blocks() + u64::from(index);
    (block * CHUNK_BYTES + byte / 4096 * 4096) / 512
}

fn agree(session: &Session) {
    assert_eq!(content::misfit(&session.cluster.layout, &session.cluster.disks()), None);
}

#[test]
fn a_flipped_byte_is_named_and_mended_wherever_it_is() {
    let raid6 = md(Level::Raid6, Layout::default_for(Level::Raid6));
    let raid1 = md(Level::Raid1, Layout::default_for(Level::Raid1));
    let xor2d = [4, 5, 6, 9].map(|nodes| (Family::Xor2d, nodes));
    let others = [(raid6, 4), (raid6, 6), (raid1, 3), (raid1, 4), (raid10(0x103, 4), 4)];
    for (family, nodes) in xor2d.into_iter().chain(others) {
        let mut session = array(family, nodes);
        assert_eq!(scrub(&mut session, false), (Vec::new(), 0), "{family:?} over {nodes}");
        let code = session.cluster.layout.code(STRIPE).clone();
        // Of many cells, some of each row and each node.
        let step = if nodes > 6 { 5 } else { 1 };
        for (number, cell) in (0..).zip(code.cells()).step_by(step) {
            let byte = number * 5003 % CHUNK_BYTES;
            flip(&mut session, cell, byte);
            let ArrayEvent::Mismatch { array_sector, sectors: 8, member, block } =
                found_once(&mut session, false)
            else {
                panic!("{family:?} over {nodes}, {cell:?}: not eight sectors");
            };
            assert_eq!(member, Some(MemberId(cell.node.0)), "{family:?} over {nodes}, {cell:?}");
            assert_eq!(block, Some(StripeBlock { stripe: STRIPE, row: Some(cell.row) }));
            let data = match code.content(cell) {
                Content::Data(index) => index,
                Content::Sum(equation) => {
                    let terms = code.equations()[equation].terms.iter();
                    let data = terms.map(|term| code.data().iter().position(|c| *c == term.cell));
                    data.flatten().min().expect("a sum of data") as u32
                }
            };
            assert_eq!(array_sector, sector(&session, data, byte));
            found_once(&mut session, true);
            agree(&session);
            assert_eq!(scrub(&mut session, false), (Vec::new(), 0), "{family:?} over {nodes}");
        }
        everything(&mut session, Kind::Read);
    }
}

/// The one mismatch that a check or repair tells of.
fn found_once(session: &mut Session, repair: bool) -> ArrayEvent {
    let (mut found, sectors) = scrub(session, repair);
    let family = session.cluster.scenario.params.family;
    assert_eq!((found.len(), sectors), (1, 8), "{family:?}: {found:?}");
    found.remove(0)
}

#[test]
fn where_nobody_can_tell_the_data_or_the_first_copy_is_believed() {
    let raid5 = md(Level::Raid5, Layout::default_for(Level::Raid5));
    let raid1 = md(Level::Raid1, Layout::default_for(Level::Raid1));
    for (family, nodes) in [(raid5, 3), (raid5, 5), (raid1, 2), (raid10(0x102, 4), 4)] {
        let mut session = array(family, nodes);
        let code = session.cluster.layout.code(STRIPE).clone();
        for (number, cell) in (0..).zip(code.cells()) {
            let byte = number * 5003 % CHUNK_BYTES;
            flip(&mut session, cell, byte);
            let told = found_once(&mut session, false);
            let ArrayEvent::Mismatch { array_sector, member: None, block, .. } = told else {
                panic!("{family:?}: {told:?}");
            };
            assert_eq!(block, Some(StripeBlock { stripe: STRIPE, row: None }));
            let equation = &code.equations()[code.involved(cell)[0]];
            let first = code.data().iter().position(|c| *c == equation.terms[0].cell);
            assert_eq!(array_sector, sector(&session, first.expect("data") as u32, byte));
            found_once(&mut session, true);
            agree(&session);
            if let Content::Data(_) = code.content(cell) {
                flip(&mut session, cell, byte);
                found_once(&mut session, true);
                agree(&session);
            }
            assert_eq!(scrub(&mut session, false), (Vec::new(), 0), "{family:?}");
        }
        everything(&mut session, Kind::Read);
    }
}

#[test]
fn several_blocks_of_a_slice_are_judged_each_for_itself() {
    let mut session = array(Family::Xor2d, 5);
    let code = session.cluster.layout.code(STRIPE).clone();
    let one = code.data()[0];
    let other = code.data()[7];
    flip(&mut session, one, 10);
    flip(&mut session, other, 4100);
    let (found, sectors) = scrub(&mut session, true);
    let members = |found: &[ArrayEvent]| {
        let member = |event: &ArrayEvent| match event {
            ArrayEvent::Mismatch { member, .. } => *member,
            _ => None,
        };
        let mut members: Vec<_> = found.iter().map(member).collect();
        members.sort_unstable();
        members
    };
    let mut expected = vec![Some(MemberId(one.node.0)), Some(MemberId(other.node.0))];
    expected.sort_unstable();
    assert_eq!((members(&found), sectors), (expected, 16));
    agree(&session);
    everything(&mut session, Kind::Read);

    // In the sums of one block as if that were wrong, but they do not say the same of it.
    let involved = code.involved(one).iter();
    let parities: Vec<Cell> = involved.map(|&number| code.equations()[number].parity).collect();
    flip(&mut session, parities[0], 100);
    flip(&mut session, parities[1], 200);
    let (found, sectors) = scrub(&mut session, true);
    assert_eq!((members(&found), sectors), (vec![None], 8));
    agree(&session);
    everything(&mut session, Kind::Read);
}

#[test]
fn writes_that_go_on_mislead_no_check_and_no_repair() {
    for (family, nodes) in [(Family::Xor2d, 5), (raid10(0x102, 4), 4)] {
        for repair in [false, true] {
            let mut session = array(family, nodes);
            let cell = session.cluster.layout.code(STRIPE).equations()[0].parity;
            flip(&mut session, cell, 9000);
            session.scrubs.clear();
            let sectors = session.cluster.layout.sectors();
            let mut workload = Workload::new(Rng::new(7), sectors, 8);
            workload.largest(64);
            session.scrub(repair);
            let mut submitted = 0;
            let over = |event: &ArrayEvent| matches!(event, ArrayEvent::SyncFinished { .. });
            while !session.scrubs.iter().any(over) {
                while session.submit(&mut workload) {
                    submitted += 1;
                }
                assert!(session.step().expect("no fault"), "it stands still");
            }
            assert!(submitted > 20, "{submitted}: too few to mislead anybody");
            // Unless a write came first, which made the parity anew.
            assert!(session.scrubs.len() <= 2, "{:?}", session.scrubs);
            while session.in_flight() > 0 {
                session.step().expect("no fault");
            }
            if repair {
                // Reads wait until what is in the nodes' memories is stored.
                everything(&mut session, Kind::Read);
                agree(&session);
            }
        }
    }
}
