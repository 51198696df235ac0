//! Comparison of members, once the votes are granted, with the content on which they were judged.

use braid_array::Role;
use std::sync::{Arc, Mutex};

use braid_array::format::Bitmap;
use braid_array::format::bitmap::PAGE_BYTES;
use braid_array::format::superblock::feature;

use super::*;
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::failover::{FailoverClient, Finder};
use crate::ids::Epoch;
use crate::member::VolumeAddress;

/// More than a page has the bits of.
const SECTORS: u64 = 400_000;

fn superblock() -> Superblock {
    let blank = Superblock::blank();
    let raid_disks = NODES.into();
    let feature_map = blank.feature_map | feature::BITMAP_OFFSET;
    let data_offset = 64;
    let super_offset = SUPERBLOCK_SECTOR;
    let resync_offset = MAX_SECTOR;
    let own = Superblock { raid_disks, data_offset, super_offset, resync_offset, ..blank };
    Superblock { bitmap_offset_sectors: 8, data_size: SECTORS, feature_map, ..own }
}

fn bitmap(marked: &[u64]) -> Bitmap {
    let mut bitmap = Bitmap::new([7; 16], SECTORS, Some(4096), 48).expect("a bitmap");
    marked.iter().for_each(|&bit| {
        bitmap.set(bit);
    });
    bitmap
}

/// Returns the content that is read from a member.
fn read(superblock: &Superblock, bitmap: &Bitmap, sector: u64, bytes: u32) -> Vec<u8> {
    let mut page = match sector - SUPERBLOCK_SECTOR {
        0 => superblock.encode(),
        rest => bitmap.encode_page((rest - 8) * 512 / PAGE_BYTES as u64),
    };
    page.resize(bytes as usize, 0);
    page
}

/// Returns a configuration that was judged when the members held `superblock` and `bitmap` with
/// this bit.
fn judged() -> ClientConfig {
    let found = Some(Found { superblock: superblock(), bitmap: Some(bitmap(&[35_000])) });
    ClientConfig { found: vec![found; NODES.into()], ..config(Planner::Encoder { node: Role(0) }) }
}

/// Runs a machine with nodes whose last one holds this, until no more messages come. Returns its
/// messages and events.
fn talk(
    machine: &mut dyn Machine,
    last: (&Superblock, &Bitmap),
    epochs: &mut Vec<Epoch>,
) -> (Vec<Message>, Vec<ArrayEvent>) {
    let mut said = Vec::new();
    let mut events = Vec::new();
    while let Some(action) = machine.poll() {
        let event = match action {
            Action::Fabric(FabricOp::Connect { peer, .. }) => FabricEvent::Connected { peer },
            Action::Fabric(FabricOp::Send { peer, bytes }) => {
                let (epoch, message) = Message::decode(&bytes).expect("a message");
                let role = (peer.0 % u32::from(NODES)) as u16;
                let own = (&superblock(), &bitmap(&[35_000]));
                let (superblock, bitmap) = if role == NODES - 1 { last } else { own };
                let answered = match message {
                    Message::ReadMeta { tag, sector, bytes } => {
                        Some(Message::Meta { tag, bytes: read(superblock, bitmap, sector, bytes) })
                    }
                    ref other => answer(Role(role), other),
                };
                said.push(message);
                epochs.push(epoch);
                let Some(answered) = answered else { continue };
                FabricEvent::Message { peer, bytes: answered.encode(epoch) }
            }
            Action::Notify(event) => {
                events.push(event);
                continue;
            }
            _ => continue,
        };
        machine.handle(Instant(2), Event::Fabric(event));
    }
    (said, events)
}

fn recorded(said: &[Message]) -> usize {
    said.iter().filter(|message| matches!(message, Message::StoreView { .. })).count()
}

#[test]
fn members_that_are_as_they_were_are_gone_on_with() {
    let mut client = made(judged());
    let superblock = superblock();
    let bitmap = bitmap(&[35_000]);
    let (said, events) = talk(&mut client, (&superblock, &bitmap), &mut Vec::new());
    let reads = |message: &&Message| matches!(message, Message::ReadMeta { .. });
    let first_record = said.iter().position(|said| matches!(said, Message::StoreView { .. }));
    let last_read = said.iter().rposition(|said| matches!(said, Message::ReadMeta { .. }));
    assert!(first_record > last_read, "{said:?}");
    // A superblock, and two pages of a bitmap, of each.
    assert_eq!((said.iter().filter(reads).count(), events), (9, Vec::new()));
    assert!(matches!(client.parts.phase, ClientPhase::Running) && !client.has_too_few());
}

#[test]
fn nothing_is_recorded_over_what_another_client_has_changed_meanwhile() {
    let clean = superblock();
    let active = Superblock { resync_offset: 0, events: clean.events + 1, ..clean.clone() };
    for (superblock, bitmap) in [(&active, bitmap(&[35_000])), (&clean, bitmap(&[35_000, 35_001]))]
    {
        let mut client = made(judged());
        let (said, events) = talk(&mut client, (superblock, &bitmap), &mut Vec::new());
        assert_eq!((recorded(&said), &events[0]), (0, &ArrayEvent::MembersChanged));
        assert!(client.is_outdated() && client.has_too_few());
    }
}

/// Finds the array as the other client has left it.
#[derive(Clone, Debug, Default)]
struct Board(Arc<Mutex<Option<ClientConfig>>>);

impl Finder for Board {
    fn look(&mut self, _: Vec<VolumeAddress>) {
        let left = Found { superblock: superblock(), bitmap: Some(bitmap(&[])) };
        let mut config = judged();
        config.found[usize::from(NODES) - 1] = Some(left);
        *self.0.lock().expect("a board") = Some(config);
    }

    fn found(&mut self) -> Option<Result<ClientConfig, Refusal>> {
        self.0.lock().expect("a board").take().map(Ok)
    }
}

#[test]
fn another_client_begins_with_what_they_hold_now() {
    let config = judged();
    let scratch = Scratch { offset: 1 << 20, bytes: Client::scratch_bytes(&config) };
    let mut lasting =
        FailoverClient::new(config, scratch, Box::new(Board::default()), 60_000).expect("a raid5");
    let superblock = superblock();
    let bitmap = bitmap(&[]);
    let mut epochs = Vec::new();
    let (said, events) = talk(&mut lasting, (&superblock, &bitmap), &mut epochs);
    assert_eq!((recorded(&said), events), (0, Vec::new()));
    // Set while there is no client: it holds for the next one.
    let limits = Command::SpeedLimits { min_bytes_s: Some(5), max_bytes_s: Some(7) };
    for (id, command) in [(1, limits), (2, Command::Pause(true))] {
        let id = CommandId(id);
        lasting.handle(Instant(2), Event::Command { id, command });
        assert!(matches!(lasting.poll(), Some(Action::Reply { result: Ok(()), .. })));
    }
    let looks = lasting.deadline().expect("it looks for the nodes");
    lasting.handle(looks, Event::Tick);
    let (said, events) = talk(&mut lasting, (&superblock, &bitmap), &mut epochs);
    assert_eq!((recorded(&said), events), (usize::from(NODES), Vec::new()));
    assert_eq!((epochs.first(), epochs.last()), (Some(&Epoch(1)), Some(&Epoch(2))));
    let sync = lasting.status().sync;
    assert_eq!((sync.min_bytes_per_s, sync.max_bytes_per_s, sync.paused), (5, Some(7), true));
}
