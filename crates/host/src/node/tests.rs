use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use braid_array::action::Event;
use braid_array::fabric::{FabricEvent, FabricOp, PeerId, Volume, VolumeOp};
use braid_array::{Action, Buf, Instant, IoId, IoOp};

use super::*;
use crate::fabric::frame::{FrameHeader, HEADER_BYTES, HELLO_BYTES, Hello, TransportKind};
use crate::remote::Remote;

/// Keeps one volume: a put is stored at the sector its number tells, and put back.
struct Keeper {
    scratch: Scratch,
    peer: PeerId,
    volume: Option<Volume>,
    actions: VecDeque<Action>,
}

const BLOCK: u32 = 4096;

impl Keeper {
    fn say(&mut self, text: impl Into<String>) {
        let bytes = text.into().into_bytes();
        self.actions.push_back(Action::Fabric(FabricOp::Send { peer: self.peer, bytes }));
    }
}

impl Machine for Keeper {
    fn handle(&mut self, _: Instant, event: Event) {
        match event {
            Event::Fabric(FabricEvent::Accepted { peer, .. }) => {
                self.peer = peer;
                let window = 0..self.scratch.bytes;
                self.actions.push_back(Action::Fabric(FabricOp::Admit { peer, window }));
            }
            Event::Fabric(FabricEvent::Message { bytes, .. }) => {
                let name = String::from_utf8(bytes).unwrap();
                let op = VolumeOp::Create { name, bytes: 1 << 20 };
                self.actions.push_back(Action::Volume { io: IoId(0), op });
            }
            Event::Volume { result, .. } => match result {
                Ok(volume) => {
                    self.volume = Some(volume);
                    self.say("made");
                }
                Err(why) => self.say(why.to_string()),
            },
            Event::Fabric(FabricEvent::Placed { imm, .. }) => {
                let buf = Buf { offset: self.scratch.offset, len: BLOCK };
                let member = self.volume.unwrap().member;
                let op = IoOp::Write { sector: imm.into(), buf, fua: false, fill: false };
                self.actions.push_back(Action::Io { io: IoId(1), member, op });
            }
            Event::Done { io: IoId(1), result } => {
                assert!(result.is_ok());
                let from = Buf { offset: self.scratch.offset, len: BLOCK };
                let peer = self.peer;
                let io = IoId(2);
                let put = FabricOp::Put { io, peer, from, to: 77, imm: 5 };
                self.actions.push_back(Action::Fabric(put));
            }
            Event::Command { id, .. } => {
                self.say("farewell");
                self.actions.push_back(Action::Reply { id, result: Ok(()) });
            }
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<Action> {
        assert!(self.scratch.bytes >= 1 << 20, "too little to work with");
        self.actions.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn idle(&self) -> bool {
        true
    }
}

fn keeper(scratch: Scratch, _id: u64) -> Box<dyn Machine + Send> {
    let peer = PeerId(0);
    let actions = VecDeque::new();
    Box::new(Keeper { scratch, peer, volume: None, actions })
}

fn setup(storage: Storage) -> NodeSetup {
    let listen = "127.0.0.1:0".to_owned();
    NodeSetup {
        listen,
        storage,
        witness: false,
        ring_bytes: 1 << 20,
        network: TransportKind::Tcp.into(),
    }
}

fn frame(stream: &mut TcpStream) -> (FrameHeader, Vec<u8>) {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let header = FrameHeader::decode(&header).unwrap();
    let mut payload = vec![0; header.payload_bytes() as usize];
    stream.read_exact(&mut payload).unwrap();
    (header, payload)
}

fn say(stream: &mut TcpStream, header: FrameHeader, payload: &[u8]) {
    stream.write_all(&header.encode()).unwrap();
    stream.write_all(payload).unwrap();
}

fn call(stream: &mut TcpStream, text: &[u8]) -> String {
    say(stream, FrameHeader::Message { bytes: text.len() as u32 }, text);
    String::from_utf8(frame(stream).1).unwrap()
}

#[test]
fn what_is_put_is_stored_and_the_last_word_arrives() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let setup = setup(Storage::Directory(store.clone()));
    let node = RunningNode::launch(&setup, keeper, None).unwrap();
    let mut stream = TcpStream::connect(node.address()).unwrap();
    stream
        .write_all(
            &Hello {
                kind: TransportKind::Tcp,
                keyed: false,
                encrypt: false,
                array: None,
                blob: Vec::new(),
            }
            .encode(),
        )
        .unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.read_exact(&mut [0; HELLO_BYTES]).unwrap();
    assert!(call(&mut stream, b"../evil").starts_with("not a name for a volume"));
    assert_eq!(call(&mut stream, b"precious"), "made");
    let content: Vec<u8> = (0..BLOCK).map(|i| (i * 7 % 251) as u8).collect();
    say(&mut stream, FrameHeader::Put { bytes: BLOCK, to: 0, imm: 16 }, &content);
    let (header, payload) = frame(&mut stream);
    assert_eq!(header, FrameHeader::Put { bytes: BLOCK, to: 77, imm: 5 });
    assert!(payload == content);

    // The machine is stopped, says its last word, and only then the connection ends.
    let stopper = std::thread::spawn(move || node.stop());
    assert_eq!(frame(&mut stream).1, b"farewell");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    drop(stream);
    stopper.join().unwrap().unwrap();
    let stored = std::fs::read(store.join("precious")).unwrap();
    assert_eq!(stored.len(), 1 << 20);
    assert!(stored[16 * 512..][..BLOCK as usize] == content);
    // The store is free.
    RunningNode::launch(&setup, keeper, None).unwrap().stop().unwrap();
}

#[test]
fn a_node_that_cannot_be_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(directory.path().to_owned());
    let first = RunningNode::launch(&setup(storage.clone()), keeper, None).unwrap();
    let said = RunningNode::launch(&setup(storage), keeper, None).unwrap_err().to_string();
    assert!(said.contains("is the store of a running node"), "{said}");
    let taken = NodeSetup { listen: first.address().to_string(), ..setup(Storage::Memory) };
    let said = RunningNode::launch(&taken, keeper, None).unwrap_err().to_string();
    assert!(said.starts_with(&format!("cannot listen on {}: address", first.address())), "{said}");
    assert!(said.ends_with("; stop who listens there, or choose another port"), "{said}");
}

#[test]
fn a_node_that_does_not_start_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let first = RunningNode::start(&setup(Storage::Memory)).unwrap();
    let store = directory.path().join("made/for/it");
    let listen = first.address().to_string();
    let taken = NodeSetup { listen, ..setup(Storage::Directory(store.clone())) };
    RunningNode::start(&taken).unwrap_err();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    // Nor does one whose readiness nobody hears of, and what was there stays.
    std::fs::create_dir(directory.path().join("made")).unwrap();
    let here = setup(Storage::Directory(store.clone()));
    serve_node(&here, |_| Err(io::Error::other("nobody waits"))).unwrap_err();
    assert_eq!(std::fs::read_dir(directory.path().join("made")).unwrap().count(), 0);
    let node = RunningNode::start(&here).unwrap();
    RunningNode::start(&here).unwrap_err();
    node.stop().unwrap();
    assert!(store.is_dir());
}

/// A client of a node that reported to be ready too early would wait for ever.
#[test]
fn a_node_is_ready_when_its_engine_answers() {
    let setup = NodeSetup { ring_bytes: 1 << 11, ..setup(Storage::Memory) };
    let said = RunningNode::launch(&setup, keeper, None).unwrap_err().to_string();
    assert!(said.starts_with("the engine panicked"), "{said}");
}

#[test]
fn the_real_node_keeps_volumes_for_commands() {
    let directory = tempfile::tempdir().unwrap();
    let on_disk = Storage::Directory(directory.path().to_owned());
    for (storage, lasts) in [(on_disk, true), (Storage::Memory, false)] {
        let setup = NodeSetup { ring_bytes: 16 << 20, ..setup(storage) };
        let node = RunningNode::start(&setup).unwrap();
        let mut remote = Remote::connect(&node.address().to_string(), TransportKind::Tcp).unwrap();
        remote.create_volume("v", 1 << 20).unwrap();
        remote.write(8, vec![7; 4096]).unwrap();
        assert_eq!(remote.read(8, 4096).unwrap(), [7; 4096]);
        assert_eq!(remote.read(16, 512).unwrap(), [0; 512]);
        drop(remote);
        node.stop().unwrap();
        let node = RunningNode::start(&setup).unwrap();
        let mut remote = Remote::connect(&node.address().to_string(), TransportKind::Tcp).unwrap();
        assert_eq!(remote.has_volume("v").unwrap(), lasts);
        if lasts {
            let mut remote =
                Remote::connect(&node.address().to_string(), TransportKind::Tcp).unwrap();
            assert_eq!(remote.open_volume("v", true).unwrap(), 1 << 20);
            assert_eq!(remote.read(8, 4096).unwrap(), [7; 4096]);
        }
        // It stops with the connection open, too.
        node.stop().unwrap();
    }
}
