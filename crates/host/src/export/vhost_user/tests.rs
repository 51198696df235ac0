//! Hostile and correct input of guests: chains, requests, rings, and notes of requests in flight.
//! No I/O.

use std::sync::Arc;

use vm_memory::{Bytes, GuestAddress};

use super::chain::{Area, BrokenChain, Chain, MAX_DESCRIPTORS};
use super::device::ExportedDevice;
use super::inflight::{InflightRegion, Notes, Track, ring_bytes};
use super::memory::MappedGuest;
use super::request::{BlockOperation, RequestLimits, Status, VirtioRequest, copy_in, copy_out};
use super::ring::{RingSetup, VirtioRing};
use crate::engine::array_size::ArraySize;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// The memory: two regions without a gap.
const START: u64 = 0x1_0000;
const SEAM: u64 = 0x8_0000;
const END: u64 = 0x10_0000;
/// Address of rings of eight.
const TABLE: u64 = START;
const AVAILABLE: u64 = START + 0x1000;
const USED: u64 = START + 0x2000;
const HEADER: u64 = START + 0x3000;
const STATUS: u64 = START + 0x3010;
const SIZE: u16 = 8;

const LIMITS: RequestLimits =
    RequestLimits { size_bytes: 1 << 20, block_bytes: 512, read_only: false };

fn guest() -> MappedGuest {
    let len = |range: std::ops::Range<u64>| usize::try_from(range.end - range.start).unwrap();
    let ranges = [(GuestAddress(START), len(START..SEAM)), (GuestAddress(SEAM), len(SEAM..END))];
    MappedGuest::from_ranges(&ranges).unwrap()
}

/// Address, length, flags, next.
type Descriptor = (u64, u32, u16, u16);

fn describe(guest: &MappedGuest, table: u64, descriptors: &[Descriptor]) {
    for (index, (address, len, flags, next)) in (0..).zip(descriptors) {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        guest.write_slice(&bytes, GuestAddress(table + index * 16)).unwrap();
    }
}

fn put_header(guest: &MappedGuest, kind: u32, sector: u64) {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([0; 4]);
    bytes.extend(sector.to_le_bytes());
    guest.write_slice(&bytes, GuestAddress(HEADER)).unwrap();
}

fn chain(guest: &MappedGuest, descriptors: &[Descriptor]) -> Result<Chain, BrokenChain> {
    describe(guest, TABLE, descriptors);
    Chain::read(guest, GuestAddress(TABLE), SIZE, 0)
}

fn asked(
    guest: &MappedGuest,
    descriptors: &[Descriptor],
    limits: &RequestLimits,
) -> Result<VirtioRequest, BrokenChain> {
    VirtioRequest::of(guest, chain(guest, descriptors)?, limits)
}

fn area(address: u64, len: u32) -> Area {
    Area { address: GuestAddress(address), len }
}

#[test]
fn chains_are_read_whether_they_lie_in_the_ring_or_beside_it() {
    let guest = guest();
    let parts = [(HEADER, 16, NEXT, 2), (0, 0, 0, 0), (SEAM, 512, NEXT | WRITE, 3)];
    let direct = [&parts[..], &[(STATUS, 1, WRITE, 0)]].concat();
    let expected = Chain {
        readable: vec![area(HEADER, 16)],
        writable: vec![area(SEAM, 512), area(STATUS, 1)],
    };
    assert_eq!(chain(&guest, &direct), Ok(expected));
    describe(&guest, SEAM - 32, &direct);
    let whole = chain(&guest, &direct).unwrap();
    // The table crosses from one region to the other.
    assert_eq!(chain(&guest, &[(SEAM - 32, 64, INDIRECT, 0)]).as_ref(), Ok(&whole));
    // The first of the chain lies in the ring.
    describe(&guest, SEAM, &[(SEAM, 512, NEXT | WRITE, 1), (STATUS, 1, WRITE, 0)]);
    let mixed = [(HEADER, 16, NEXT, 1), (SEAM, 32, INDIRECT, 0)];
    assert_eq!(chain(&guest, &mixed).as_ref(), Ok(&whole));
}

#[test]
fn what_is_no_chain_is_found_out() {
    let circle: Vec<Descriptor> = vec![(HEADER, 16, NEXT, 1), (HEADER, 16, NEXT, 0)];
    let long = u32::from(u16::MAX) * 16;
    let cases: &[(&str, Vec<Descriptor>, BrokenChain)] = &[
        ("a circle", circle, BrokenChain::TooLong),
        ("of one", vec![(HEADER, 16, NEXT, 0)], BrokenChain::TooLong),
        ("beyond the table", vec![(HEADER, 16, NEXT, SIZE)], BrokenChain::Index),
        (
            "more than 4 GiB",
            vec![(HEADER, 1 << 31, NEXT, 1), (0, 1 << 31, 0, 0)],
            BrokenChain::TooLong,
        ),
        ("read after write", vec![(0, 1, NEXT | WRITE, 1), (0, 16, 0, 0)], BrokenChain::Order),
        ("a table nowhere", vec![(END, 16, INDIRECT, 0)], BrokenChain::Table),
        ("a table at the end of all", vec![(u64::MAX, 32, INDIRECT, 0)], BrokenChain::Table),
        ("an empty table", vec![(SEAM, 0, INDIRECT, 0)], BrokenChain::Indirect),
        ("half a descriptor", vec![(SEAM, 24, INDIRECT, 0)], BrokenChain::Indirect),
        ("more behind a table", vec![(SEAM, 16, INDIRECT | NEXT, 1)], BrokenChain::Indirect),
        ("a table in itself", vec![(TABLE, 16, INDIRECT, 0)], BrokenChain::Indirect),
        ("a long table", vec![(SEAM, long, INDIRECT, 0)], BrokenChain::TooLong),
    ];
    for (case, descriptors, expected) in cases {
        assert_eq!(chain(&guest(), descriptors), Err(*expected), "{case}");
    }
    let guest = guest();
    assert_eq!(Chain::read(&guest, GuestAddress(TABLE), SIZE, SIZE), Err(BrokenChain::Index));
    assert_eq!(Chain::read(&guest, GuestAddress(END - 8), SIZE, 0), Err(BrokenChain::Table));
    let circle: Vec<Descriptor> = (0..MAX_DESCRIPTORS)
        .map(|index| (HEADER, 1, NEXT, ((index + 1) % MAX_DESCRIPTORS) as u16))
        .collect();
    describe(&guest, SEAM, &circle);
    let table = [(SEAM, MAX_DESCRIPTORS * 16, INDIRECT, 0)];
    assert_eq!(chain(&guest, &table), Err(BrokenChain::TooLong));
}

#[test]
fn requests_are_understood_in_any_pieces() {
    let guest = guest();
    put_header(&guest, 0, 3);
    let halves = [
        (HEADER, 5, NEXT, 1),
        (HEADER + 5, 11, NEXT, 2),
        (SEAM - 100, 1000, NEXT | WRITE, 3),
        (START, 0, NEXT | WRITE, 4),
        // The status is the last byte of what also takes data.
        (SEAM + 1000, 25, WRITE, 0),
    ];
    let into = vec![area(SEAM - 100, 1000), area(SEAM + 1000, 24)];
    let status = GuestAddress(SEAM + 1024);
    let ask = Ok(BlockOperation::Read { range: 1536..2560, into: into.clone() });
    assert_eq!(asked(&guest, &halves, &LIMITS), Ok(VirtioRequest { status, ask }));
    let data: Vec<u8> = (0..1024).map(|i| (i % 251) as u8).collect();
    copy_in(&guest, &into, 0, &data[..300]).unwrap();
    copy_in(&guest, &into, 300, &data[300..]).unwrap();
    let mut found = vec![0; 724];
    copy_out(&guest, &into, 300, &mut found).unwrap();
    assert!(found == data[300..]);
    assert!(copy_out(&guest, &into, 301, &mut found).is_err(), "there is less");

    put_header(&guest, 1, 0);
    let write = [(HEADER, 16, NEXT, 1), (SEAM, 512, NEXT, 2), (STATUS, 1, WRITE, 0)];
    let ask = Ok(BlockOperation::Write { range: 0..512, from: vec![area(SEAM, 512)] });
    let status = GuestAddress(STATUS);
    let before = asked(&guest, &write, &LIMITS).unwrap();
    // What the guest does to it afterwards changes nothing.
    put_header(&guest, 4, 77);
    assert_eq!(before, VirtioRequest { status, ask });
    let flush = asked(&guest, &write, &LIMITS).unwrap();
    assert_eq!(flush.ask, Ok(BlockOperation::Flush));
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let guest = guest();
    let end = (1 << 20) / 512;
    let data = |len| [(HEADER, 16, NEXT, 1), (SEAM, len, NEXT | WRITE, 2), (STATUS, 1, WRITE, 0)];
    let written = |len| [(HEADER, 16, NEXT, 1), (SEAM, len, NEXT, 2), (STATUS, 1, WRITE, 0)];
    let mut outside = written(1024);
    outside[1].0 = END - 1023;
    let mut wraps = written(1024);
    wraps[1].0 = u64::MAX - 10;
    let mut headless = written(0);
    headless[0].1 = 15;
    let cases = [
        ("a piece of a block", 0, 0, data(100), Status::IoError),
        ("nothing", 0, 0, data(0), Status::IoError),
        ("beyond the end", 0, end - 1, data(1024), Status::IoError),
        ("at the end of all", 0, u64::MAX, data(512), Status::IoError),
        ("data that are to be written", 1, 0, data(512), Status::IoError),
        ("data outside the memory", 1, 0, outside, Status::IoError),
        ("data at the end of all", 1, 0, wraps, Status::IoError),
        ("half a header", 4, 0, headless, Status::IoError),
        ("an unknown type", 5, 0, written(512), Status::Unsupported),
        ("half a segment", 11, 0, written(24), Status::IoError),
        ("no segment", 13, 0, written(0), Status::IoError),
        ("many segments", 13, 0, written(17 * 16), Status::IoError),
    ];
    for (case, kind, sector, descriptors, expected) in cases {
        put_header(&guest, kind, sector);
        let found = asked(&guest, &descriptors, &LIMITS).unwrap();
        assert_eq!((found.status, found.ask), (GuestAddress(STATUS), Err(expected)), "{case}");
    }
    let read_only = RequestLimits { read_only: true, ..LIMITS };
    for kind in [1, 11, 13] {
        put_header(&guest, kind, 0);
        assert_eq!(asked(&guest, &written(512), &read_only).unwrap().ask, Err(Status::IoError));
    }
    let nowhere: [&[Descriptor]; 4] = [
        &[(HEADER, 16, 0, 0)],
        &[(HEADER, 16, NEXT, 1), (STATUS, 0, WRITE, 0)],
        &[(HEADER, 16, NEXT, 1), (END, 1, WRITE, 0)],
        &[(HEADER, 16, NEXT, 1), (u64::MAX, 2, WRITE, 0)],
    ];
    for descriptors in nowhere {
        assert_eq!(asked(&guest, descriptors, &LIMITS), Err(BrokenChain::NoStatus));
    }
}

#[test]
fn of_a_discard_whole_blocks_count_and_zeroes_are_as_asked() {
    let guest = guest();
    let limits = RequestLimits { block_bytes: 4096, ..LIMITS };
    let ask = |kind: u32, segments: &[(u64, u32, u32)]| {
        put_header(&guest, kind, 0);
        let bytes: Vec<u8> = segments
            .iter()
            .flat_map(|(sector, sectors, flags)| {
                [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
            })
            .collect();
        guest.write_slice(&bytes, GuestAddress(SEAM)).unwrap();
        let len = bytes.len() as u32;
        let chain = [(HEADER, 16, NEXT, 1), (SEAM, len, NEXT, 2), (STATUS, 1, WRITE, 0)];
        asked(&guest, &chain, &limits).unwrap().ask
    };
    let whole = BlockOperation::Discard(vec![4096..8192, 65536..69632]);
    assert_eq!(ask(11, &[(7, 10, 0), (128, 8, 0), (1, 7, 0)]), Ok(whole));
    assert_eq!(ask(11, &[(8, 8, 1)]), Err(Status::Unsupported));
    assert_eq!(ask(11, &[(2048, 1, 0)]), Err(Status::IoError));
    assert_eq!(ask(11, &[(u64::MAX, 1, 0)]), Err(Status::IoError));
    let zeroes = BlockOperation::Zero(vec![(4096..8192, false), (0..4096, true)]);
    assert_eq!(ask(13, &[(8, 8, 0), (0, 8, 1)]), Ok(zeroes));
    assert_eq!(ask(13, &[(7, 8, 0)]), Err(Status::IoError));
    assert_eq!(ask(13, &[(0, 0, 0)]), Err(Status::IoError));
    assert_eq!(ask(13, &[(0, 8, 2)]), Err(Status::Unsupported));
    assert_eq!(ask(13, &[(0, u32::MAX, 0)]), Err(Status::IoError));
}

fn setup(notes: Option<&Notes>, base: u16) -> RingSetup {
    RingSetup {
        size: SIZE,
        descriptors: GuestAddress(TABLE),
        available: GuestAddress(AVAILABLE),
        used: GuestAddress(USED),
        base,
        event_index: true,
        inflight: notes.map(|notes| (notes.clone(), 1)),
    }
}

/// Makes heads available, as the first ones, up to index `index`.
fn offer(guest: &MappedGuest, heads: &[u16], index: u16) {
    for (place, head) in (0..).zip(heads) {
        guest.write_obj(*head, GuestAddress(AVAILABLE + 4 + place * 2)).unwrap();
    }
    guest.write_obj(index, GuestAddress(AVAILABLE + 2)).unwrap();
}

/// A ring whose descriptors are a flush each.
fn flushes(guest: &MappedGuest, notes: Option<&Notes>) -> VirtioRing {
    put_header(guest, 4, 0);
    describe(guest, START + 0x4000, &[(HEADER, 16, NEXT, 1), (STATUS, 1, WRITE, 0)]);
    describe(guest, TABLE, &[(START + 0x4000, 32, INDIRECT, 0); SIZE as usize]);
    VirtioRing::new(&setup(notes, 0), Arc::new(guest.clone())).unwrap()
}

#[test]
fn requests_come_in_order_and_go_in_any() {
    let guest = guest();
    let mut ring = flushes(&guest, None);
    assert_eq!(ring.next(&LIMITS), Ok(None));
    assert_eq!(ring.listen(), Ok(false));
    offer(&guest, &[5, 2, 7], 3);
    assert_eq!(ring.listen(), Ok(true));
    let mut take = || ring.next(&LIMITS).unwrap().map(|(head, _)| head);
    assert_eq!([take(), take(), take(), take()], [Some(5), Some(2), Some(7), None]);
    assert_eq!((ring.under_way(), ring.base()), (3, 3));
    for (number, head) in (1u16..).zip([7, 5, 2]) {
        ring.answered(head, 1).unwrap();
        let used: u16 = guest.read_obj(GuestAddress(USED + 2)).unwrap();
        let place = GuestAddress(USED + 4 + u64::from(number - 1) * 8);
        let found: u32 = guest.read_obj(place).unwrap();
        assert_eq!((used, found), (number, u32::from(head)));
    }
    // The guest asked to be told of the first.
    assert!(ring.wants_call() && !ring.wants_call());
    assert_eq!(ring.under_way(), 0);
}

#[test]
fn rings_that_make_no_sense_are_given_up() {
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    let cases: [(&str, &[u16], u16, usize, BrokenChain); 4] = [
        ("more than fits", &all, SIZE + 1, 0, BrokenChain::Rings),
        ("backwards", &all, u16::MAX, 0, BrokenChain::Rings),
        ("a head beyond the table", &[3, SIZE], 2, 1, BrokenChain::Index),
        ("one that is under way", &[3, 3], 2, 1, BrokenChain::Twice),
    ];
    for (case, heads, index, good, expected) in cases {
        let guest = guest();
        let mut ring = flushes(&guest, None);
        offer(&guest, heads, index);
        for _ in 0..good {
            assert!(matches!(ring.next(&LIMITS), Ok(Some(_))), "{case}");
        }
        assert_eq!(ring.next(&LIMITS), Err(expected), "{case}");
        assert_eq!(ring.next(&LIMITS), Ok(None), "{case}: nothing comes after that");
        assert_eq!(usize::from(ring.under_way()), good, "{case}");
    }
    let guest = guest();
    let outside = |change: fn(&mut RingSetup)| {
        let mut setup = setup(None, 0);
        change(&mut setup);
        VirtioRing::new(&setup, Arc::new(guest.clone())).map(drop)
    };
    assert_eq!(outside(|_| ()), Ok(()));
    let changes: [fn(&mut RingSetup); 5] = [
        |setup| setup.descriptors = GuestAddress(END - 64),
        |setup| setup.available = GuestAddress(END - 16),
        |setup| setup.used = GuestAddress(0),
        |setup| setup.used = GuestAddress(USED + 1),
        |setup| setup.size = 7,
    ];
    for change in changes {
        assert_eq!(outside(change), Err(BrokenChain::Rings));
    }
    let mut ring = flushes(&guest, None);
    offer(&guest, &[1], 1);
    let elsewhere = MappedGuest::from_ranges(&[(GuestAddress(END), 4096)]).unwrap();
    assert_eq!(ring.move_to(Arc::new(elsewhere)), Err(BrokenChain::Rings));
    assert_eq!(ring.next(&LIMITS), Ok(None));
}

fn notes() -> Notes {
    let region = InflightRegion::new(2 * ring_bytes(SIZE)).unwrap();
    Notes { region: Arc::new(region), size: SIZE }
}

#[test]
fn what_is_under_way_is_found_again_in_the_order_in_which_it_came() {
    let guest = guest();
    let notes = notes();
    let mut ring = flushes(&guest, Some(&notes));
    offer(&guest, &[5, 2, 7, 1], 4);
    for _ in 0..3 {
        ring.next(&LIMITS).unwrap().unwrap();
    }
    ring.answered(2, 1).unwrap();
    drop(ring);
    // The front end knows of one answer only: that is what it says is next.
    let mut ring = VirtioRing::new(&setup(Some(&notes), 1), Arc::new(guest.clone())).unwrap();
    let mut take = || ring.next(&LIMITS).unwrap().map(|(head, _)| head);
    assert_eq!([take(), take(), take(), take()], [Some(5), Some(7), Some(1), None]);
    for head in [1, 7, 5] {
        ring.answered(head, 1).unwrap();
    }
    drop(ring);
    let mut ring = VirtioRing::new(&setup(Some(&notes), 4), Arc::new(guest.clone())).unwrap();
    assert_eq!((ring.next(&LIMITS), ring.base()), (Ok(None), 4));
    // Of another size than the front end says.
    let other = Notes { size: 4, ..notes.clone() };
    assert!(VirtioRing::new(&setup(Some(&other), 4), Arc::new(guest.clone())).is_err());
    let beyond = RingSetup { inflight: Some((notes, 2)), ..setup(None, 4) };
    assert!(VirtioRing::new(&beyond, Arc::new(guest)).is_err());
}

#[test]
fn a_crash_between_any_two_steps_of_an_answer_loses_and_repeats_nothing() {
    let open = |notes: &Notes, used| Track::open(notes.clone(), 0, used).unwrap();
    let begun = || {
        let notes = notes();
        let (mut track, found) = open(&notes, 41);
        assert_eq!(found, [0u16; 0]);
        [4, 6, 2].into_iter().for_each(|head| track.begin(head));
        track.ending(6);
        track.ended(6, 42);
        (notes, track)
    };
    let (notes, _) = begun();
    assert_eq!(open(&notes, 42).1, [4, 2]);
    // It is the last batch, and was not answered yet.
    let (notes, track) = begun();
    track.ending(4);
    assert_eq!(open(&notes, 42).1, [4, 2]);
    // It was answered, and that is not noted.
    let (notes, track) = begun();
    track.ending(4);
    assert_eq!(open(&notes, 43).1, [2]);
    assert_eq!(open(&notes, 43).1, [2]);
    // The one that comes next is behind those that are left.
    let (notes, track) = begun();
    track.ending(4);
    let (mut track, _) = open(&notes, 43);
    track.begin(0);
    assert_eq!(open(&notes, 43).1, [2, 0]);
    // Numbers that nobody has written do no harm.
    let (notes, track) = begun();
    track.ending(4);
    assert_eq!(open(&notes, 43 + SIZE).1, [2]);
}

#[test]
fn a_guest_is_told_of_the_array() {
    let mut device = ExportedDevice {
        name: "a name of more than twenty bytes".into(),
        size: ArraySize::new((1 << 30) + 512),
        block_bytes: 4096,
        read_only: false,
        chunk_bytes: 512 << 10,
        stripe_bytes: 3 * (512 << 10),
        rings: 3,
    };
    assert_eq!(&device.id(), b"a name of more than ");
    let number = |device: &ExportedDevice, at, len| {
        let bytes = device.config(at, len).unwrap();
        bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    assert_eq!(number(&device, 0, 8), 1 << 21, "whole blocks only");
    assert_eq!(number(&device, 34, 2), 3, "rings");
    assert_eq!((number(&device, 20, 4), number(&device, 24, 1)), (4096, 0));
    assert_eq!((number(&device, 26, 2), number(&device, 28, 4)), (128, 384));
    assert_eq!((number(&device, 36, 4), number(&device, 44, 4)), (1 << 22, 8));
    device.chunk_bytes = 1 << 30;
    assert_eq!(number(&device, 26, 2), 0, "more than can be told");
    device.read_only = true;
    assert_eq!(number(&device, 36, 4), 0);
    assert_eq!(device.config(0, 256).unwrap().len(), 256);
    assert_eq!(device.config(u32::MAX, u32::MAX), None);
    assert_eq!(device.config(200, 57), None);
}
