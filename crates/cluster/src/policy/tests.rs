use std::collections::BTreeMap;
use std::num::NonZeroU64;

use braid_array::format::MoveNote;
use braid_array::level::{Layout, Level};

use super::*;
use crate::assemble::{Options, Start, Startable, decide};
use crate::create::{NewArray, NewBitmap};
use crate::family::XOR2D_MD_LEVEL;
use crate::ids::NodeId;
use crate::view::View;

const LATER: u64 = 99;

/// A volume as bytes: writes are kept by sector.
#[derive(Clone)]
struct Disk {
    bytes: u64,
    sectors: BTreeMap<u64, Vec<u8>>,
}

impl Disk {
    fn write(&mut self, sector: u64, bytes: &[u8]) {
        for (sector, bytes) in (sector..).zip(bytes.chunks(512)) {
            self.sectors.insert(sector, bytes.to_vec());
        }
    }

    fn read(&self, sector: u64, bytes: u64) -> Vec<u8> {
        let one = |sector| self.sectors.get(&sector).cloned().unwrap_or_else(|| vec![0; 512]);
        (sector..sector + bytes / 512).flat_map(one).collect()
    }
}

#[derive(Clone)]
struct Array {
    family: Family,
    disks: Vec<Disk>,
}

impl Array {
    /// Over five nodes, with a spare.
    fn new(family: Family, bitmap: NewBitmap, journal_bytes: u64) -> Self {
        let new = NewArray {
            name: "h:x".to_owned(),
            set_uuid: [7; 16],
            ctime: 1,
            family,
            chunk_bytes: None,
            size_bytes: 64 << 20,
            bitmap,
            journal_bytes,
            parts_only: true,
            note: MoveNote::Apart,
        };
        let uuids: Vec<[u8; 16]> = (0..6).map(|number| [number; 16]).collect();
        let blueprint = new.plan(&uuids[..5], &uuids[5..]).expect("an array");
        let disk = |writes: &Vec<(u64, Vec<u8>)>| {
            let mut disk = Disk { bytes: blueprint.volume_bytes, sectors: BTreeMap::new() };
            writes.iter().for_each(|(sector, bytes)| disk.write(*sector, bytes));
            disk
        };
        Self { family, disks: blueprint.writes.iter().map(disk).collect() }
    }

    fn volumes(&self) -> Vec<Volume> {
        let volume = |(number, disk): (usize, &Disk)| {
            let found = local_candidate(disk);
            let candidate = Candidate {
                address: format!("h{number}:7000"),
                volume: "x".to_owned(),
                bytes: disk.bytes,
                superblock: found.superblock,
                bitmap: found.bitmap,
                bad_blocks: found.bad_blocks,
            };
            let place = headers_byte(disk.bytes).expect("a volume");
            let headers = disk.read(place / 512, HEADERS_BYTES);
            let voter = self.voter(number as u32);
            Volume { candidate, headers, voter: Some(voter) }
        };
        self.disks.iter().enumerate().map(volume).collect()
    }

    /// Each node has granted another epoch; they know of a client that all members were with.
    fn voter(&self, number: u32) -> Voter {
        let view =
            View { epoch: Epoch(1), members: vec![NonZeroU64::new(3); 5], ..View::default() };
        let node = NodeId(number.into());
        Voter { granted: Epoch(number), view: Some(view), incarnation: 1, node }
    }

    fn plan(&self, policy: Policy) -> Result<Vec<Write>, Refusal> {
        let Plan { array, epoch, writes } = plan(&self.volumes(), policy, LATER)?;
        assert_eq!((array, epoch), ([7; 16], Epoch(6)));
        Ok(writes)
    }

    /// The policy of the array, which must start, complete and clean.
    fn policy(&self) -> Policy {
        let volumes = self.volumes();
        let candidates: Vec<_> = volumes.iter().map(|volume| volume.candidate.clone()).collect();
        let assembly = decide(&candidates, Options::default());
        let Start::Ready(plan) = assembly.start else { panic!("{:?}", assembly.start) };
        let Startable { family, dirty, bitmap, .. } = &*plan;
        assert_eq!((*family, *dirty), (self.family, false));
        assert_eq!((plan.degraded(), plan.behind(), plan.spares.len()), (0, 0, 1));
        let headers = volumes[..5].iter().map(|volume| {
            volume.header(volume.candidate.superblock.as_ref().expect("a superblock"))
        });
        let headers: Option<Vec<Header>> = headers.collect();
        match (headers, bitmap) {
            (Some(all), _) if all.iter().all(|header| header.parts_only) => Policy::PartialParity,
            (Some(_), _) => Policy::Journal,
            (None, Some(bitmap)) => {
                assert_eq!(bitmap.superblock.chunk_bytes, 64 << 10);
                Policy::Bitmap
            }
            (None, None) => Policy::Resync,
        }
    }

    fn write(&mut self, writes: Vec<Write>) {
        writes.iter().for_each(|write| self.disks[write.index].write(write.sector, &write.bytes));
    }

    /// Gives it the policy, and looks at the array after each write; the same again does the rest
    /// then.
    fn change(&mut self, to: Policy) {
        let from = self.policy();
        let mut between = vec![from];
        let writes = self.plan(to).expect("a change");
        for write in writes {
            self.write(vec![write]);
            between.push(self.policy());
            let mut again = self.clone();
            let rest = again.plan(to).expect("the rest of a change");
            again.write(rest);
            assert_eq!((again.policy(), again.plan(to)), (to, Ok(Vec::new())));
            let events = |volume: &Volume| volume.candidate.superblock.as_ref().unwrap().events;
            let volumes = again.volumes();
            assert!(volumes.iter().all(|volume| events(volume) == events(&volumes[0])));
        }
        between.dedup();
        match between.as_slice() {
            [all] => assert_eq!((*all, from), (to, to)),
            [_, last] => assert_eq!(*last, to),
            [Policy::Resync, Policy::Bitmap, last] => assert_eq!(*last, to),
            odd => panic!("{odd:?}"),
        }
        assert_eq!(self.plan(to), Ok(Vec::new()), "not done");
        let spare = self.volumes().pop().expect("a spare");
        let superblock = spare.candidate.superblock.clone().expect("a superblock");
        assert_eq!(spare.header(&superblock).map(|header| header.parts_only), to.journals());
        assert_eq!(superblock.level == XOR2D_MD_LEVEL, self.family == Family::Xor2d);
    }
}

fn local_candidate(disk: &Disk) -> braid_array::assemble::Candidate {
    let read = |sector: u64, bytes: u32| Ok(disk.read(sector, bytes.into()));
    let mut found = braid_array::assemble::Candidate::read("x".into(), disk.bytes / 512, read);
    // Of a level that only nodes have, nothing else is read there.
    if let Ok(superblock) = &found.superblock {
        let sector = superblock.bitmap_sector();
        let mut read = |sector: u64, bytes: u32| Ok(disk.read(sector, bytes.into()));
        found.bitmap =
            sector.map(|at| braid_array::assemble::read_bitmap(at, disk.bytes / 512, &mut read));
    }
    found
}

fn md(level: Level) -> Family {
    Family::Md { level, layout: Layout::default_for(level) }
}

#[test]
fn whichever_writes_were_done_the_array_starts() {
    for family in [Family::Xor2d, md(Level::Raid5), md(Level::Raid6)] {
        let mut array = Array::new(family, NewBitmap::Default, LEAST_BYTES);
        assert_eq!(array.policy(), Policy::PartialParity);
        let order = [
            Policy::Journal,
            Policy::PartialParity,
            Policy::Bitmap,
            Policy::Journal,
            Policy::Bitmap,
            Policy::Resync,
            Policy::Journal,
            Policy::Resync,
            Policy::Bitmap,
            Policy::Resync,
            Policy::PartialParity,
        ];
        for policy in order {
            array.change(policy);
        }
    }
    let mut mirror = Array::new(md(Level::Raid1), NewBitmap::Default, LEAST_BYTES);
    let said = mirror.plan(Policy::PartialParity).unwrap_err();
    assert!(said.reason.contains("levels with parity"), "{said}");
    [Policy::Bitmap, Policy::Resync].into_iter().for_each(|policy| mirror.change(policy));
}

#[test]
fn records_of_a_journal_that_was_taken_away_never_count_again() {
    let mut array = Array::new(md(Level::Raid5), NewBitmap::Default, LEAST_BYTES);
    array.change(Policy::Bitmap);
    array.change(Policy::Journal);
    for volume in array.volumes() {
        let superblock = volume.candidate.superblock.clone().expect("a superblock");
        let header = volume.header(&superblock).expect("a journal");
        // Behind all that any client has written, and before all that the next one writes.
        assert_eq!(header.mark, SetVersion::new(Epoch(6), 0));
        assert_eq!(header.log_bytes, LEAST_BYTES - HEADERS_BYTES);
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let array = Array::new(md(Level::Raid5), NewBitmap::Default, 0);
    let said = array.plan(Policy::Journal).unwrap_err();
    assert!(said.reason.contains("ends with its data"), "{said}");
    assert_eq!(array.plan(Policy::Bitmap), Ok(Vec::new()));

    let mut unclean = Array::new(md(Level::Raid5), NewBitmap::Default, LEAST_BYTES);
    for disk in &mut unclean.disks {
        let mut superblock = local_candidate(disk).superblock.expect("a superblock");
        superblock.feature_map |= feature::NODE_JOURNALS;
        superblock.resync_offset = 0;
        disk.write(SUPERBLOCK_SECTOR, &superblock.encode());
    }
    let said = unclean.plan(Policy::Bitmap).unwrap_err();
    assert!(said.reason.contains("journals of nodes"), "{said}");

    let mut volumes = array.volumes();
    volumes.remove(2);
    let said = plan(&volumes, Policy::Resync, LATER).unwrap_err();
    assert!(said.reason.contains("1 of its members are not named"), "{said}");

    let mut went_on = array.volumes();
    let view = went_on[3].voter.as_mut().and_then(|voter| voter.view.as_mut()).expect("a view");
    (view.count, view.members[1]) = (2, None);
    let said = plan(&went_on, Policy::Resync, LATER).unwrap_err();
    assert!(said.reason.contains("went on without member 1"), "{said}");
}

#[test]
fn another_change_waits_for_the_one_that_was_cut_off() {
    let mut array = Array::new(md(Level::Raid5), NewBitmap::Default, 0);
    let mut writes = array.plan(Policy::Resync).expect("a change");
    writes.truncate(2);
    array.write(writes);
    let said = array.plan(Policy::Bitmap).unwrap_err();
    assert!(said.reason.contains("was cut off") && !said.next.is_empty(), "{said}");
    array.change(Policy::Resync);
    array.change(Policy::Bitmap);
}
