use braid_array::MemberId;
use braid_array::action::Event;
use braid_array::fabric::{Volume, VolumeOp};
use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::arena::Arena;
use crate::execute::Executor;

/// A store that waits for each answer.
struct Asked {
    queue: StoreQueue,
    executor: Executor,
}

impl Asked {
    fn new(store: Store) -> Self {
        let wake = || eventfd(0, EventfdFlags::CLOEXEC).unwrap().into();
        let executor = Executor::new(Vec::new(), Arena::new(0, 1).unwrap().zeroes(), wake());
        Self { queue: StoreQueue::start(store, wake()).unwrap(), executor }
    }

    fn answer(&mut self) -> Event {
        self.queue.wait(&mut self.executor)
    }

    fn volume(&mut self, op: VolumeOp) -> Result<Volume, Refusal> {
        self.queue.volume(&mut self.executor, IoId(1), op);
        match self.answer() {
            Event::Volume { io: IoId(1), result } => result,
            other => panic!("{other:?}"),
        }
    }

    fn note(&mut self, op: NoteOp) -> Event {
        self.queue.note(IoId(2), op);
        self.answer()
    }

    fn survey(&mut self, after: &str, most: usize) -> Survey {
        self.queue.survey(IoId(3), after.to_owned(), most);
        match self.answer() {
            Event::Survey { io: IoId(3), result } => result.unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

fn create(name: &str, bytes: u64) -> VolumeOp {
    VolumeOp::Create { name: name.into(), bytes }
}

fn open(name: &str) -> VolumeOp {
    VolumeOp::Open { name: name.into() }
}

#[test]
fn volumes_come_and_go_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let on_disk = Store::directory(&directory.path().join("new/store")).unwrap();
    for store in [on_disk, Store::memory()] {
        let mut store = Asked::new(store);
        let mut ask = |op| store.volume(op);
        let a = ask(create("a", 1 << 20)).unwrap();
        let b = ask(create("b", 8192)).unwrap();
        assert_eq!((a.member, a.bytes), (MemberId(0), 1 << 20));
        assert_eq!((b.member, b.bytes), (MemberId(1), 8192));
        let said = ask(create("a", 8192)).unwrap_err().to_string();
        assert!(said.starts_with("there is a volume of this name; "), "{said}");
        let said = ask(open("a")).unwrap_err().to_string();
        assert_eq!(said, "it is open already; stop the array that uses it");
        // An id is given out again.
        ask(VolumeOp::Close { member: a.member }).unwrap();
        assert_eq!(ask(open("a")), Ok(a));
        ask(VolumeOp::Delete { member: a.member }).unwrap();
        assert_eq!(ask(open("a")), Err(no_volume()));
        let again = ask(create("a", 4096)).unwrap();
        assert_eq!((again.member, again.bytes), (MemberId(0), 4096));
        let said = ask(VolumeOp::Close { member: MemberId(9) }).unwrap_err().to_string();
        assert_eq!(said, "no such volume is open; open it first");
    }
}

#[test]
fn nonsense_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Asked::new(Store::directory(directory.path()).unwrap());
    for name in ["", "../a", ".a", "a/b", "a b"] {
        let said = store.volume(create(name, 4096)).unwrap_err().to_string();
        assert!(said.starts_with("not a name for a volume; "), "{said}");
        assert!(store.volume(open(name)).is_err());
    }
    for bytes in [0, 1000] {
        assert!(store.volume(create("a", bytes)).is_err());
    }
    let said = store.volume(create("a", 1 << 60)).unwrap_err().reason;
    assert!(said.contains("do not fit into the node's file system: "), "{said}");
    let left = std::fs::read_dir(directory.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".lock"]);
    drop(store);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn an_open_volume_becomes_longer_where_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Asked::new(Store::directory(directory.path()).unwrap());
    let a = store.volume(create("a", 16384)).unwrap();
    std::fs::write(directory.path().join("a"), vec![7; 16384]).unwrap();
    let longer = |member, bytes| {
        let tail = vec![9; 512];
        VolumeOp::Lengthen { member, kept_bytes: 8192, bytes, tail }
    };
    assert_eq!(store.volume(longer(a.member, 65536)), Ok(Volume { bytes: 65536, ..a }));
    let content = std::fs::read(directory.path().join("a")).unwrap();
    let same = |range: std::ops::Range<usize>, byte| content[range].iter().all(|it| *it == byte);
    assert!(same(0..8192, 7) && same(8192..65024, 0) && same(65024..65536, 9));
    let said = store.volume(longer(a.member, 1 << 60)).unwrap_err();
    assert!(said.reason.contains("do not fit"), "{said}");
    let said = store.volume(longer(MemberId(9), 65536)).unwrap_err().to_string();
    assert_eq!(said, "no such volume is open; open it first");
    let survey = store.survey("", 9);
    assert_eq!(survey.volumes, [("a".to_owned(), 65536)]);
    assert!(survey.promised_bytes > 0 && survey.promised_bytes <= 65536);

    let mut memory = Asked::new(Store::memory());
    let a = memory.volume(create("a", 16384)).unwrap();
    let said = memory.volume(longer(a.member, 65536)).unwrap_err();
    assert!(said.reason.contains("in memory"), "{said}");
}

#[test]
fn a_directory_is_the_store_of_one_node() {
    let directory = tempfile::tempdir().unwrap();
    let first = Store::directory(directory.path()).unwrap();
    let error = Store::directory(directory.path()).unwrap_err();
    let us = crate::users::Process::of(std::process::id());
    let expected = format!("/.lock is locked by {us}; stop that one, or name another directory");
    assert!(error.reason.contains("is the store of a running node: "), "{error}");
    assert!(error.to_string().ends_with(&expected), "{error}");
    drop(first);
    Store::directory(directory.path()).unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Store::directory(&file).unwrap_err();
    assert!(error.reason.contains("cannot be made a directory"), "{error}");
}

#[test]
fn a_volume_in_use_elsewhere_is_not_opened() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Asked::new(Store::directory(directory.path()).unwrap());
    let a = store.volume(create("a", 4096)).unwrap();
    store.volume(VolumeOp::Close { member: a.member }).unwrap();
    let held = member::open(&directory.path().join("a"), Mode::ReadWrite, true).unwrap();
    let said = store.volume(open("a")).unwrap_err().to_string();
    let us = format!("(process {}); ", std::process::id());
    assert!(said.starts_with("in use by ") && said.contains(&us), "{said}");
    drop(held);
    store.volume(open("a")).unwrap();
}

#[test]
fn a_store_has_the_same_number_at_each_start() {
    let directory = tempfile::tempdir().unwrap();
    let id = |name: &str| Store::directory(&directory.path().join(name)).unwrap().id();
    let first = id("a").unwrap();
    assert_eq!(id("a").unwrap(), first);
    assert_ne!(id("b").unwrap(), first);
    std::fs::write(directory.path().join("a/.id"), [1, 2]).unwrap();
    let error = id("a").unwrap_err().to_string();
    assert!(error.contains("holds 2 bytes where the node's number has 8; put it back"), "{error}");
}

#[test]
fn a_number_that_was_never_durable_is_drawn_anew_unless_the_node_has_voted() {
    let directory = tempfile::tempdir().unwrap();
    let id = || Store::directory(directory.path()).unwrap().id();
    std::fs::write(directory.path().join(".id"), []).unwrap();
    let drawn = id().unwrap();
    assert_eq!(id().unwrap(), drawn);
    std::fs::write(directory.path().join(".id"), []).unwrap();
    std::fs::write(directory.path().join("00-00.vote"), [0; 8192]).unwrap();
    let error = id().unwrap_err().to_string();
    assert!(error.contains("holds 0 bytes") && error.contains("another voter"), "{error}");
}

#[test]
fn notes_are_listed_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    for store in [Store::directory(directory.path()).unwrap(), Store::memory()] {
        let mut store = Asked::new(store);
        for name in ["a", "c"] {
            store.volume(create(name, 4096)).unwrap();
        }
        let note = |name: &str| format!("{name}{NOTE_ENDING}");
        for name in ["b", "d"] {
            let op = NoteOp::Write { name: note(name), at: 0, bytes: vec![1; 512] };
            store.note(op);
        }
        let first = store.survey("", 3);
        assert_eq!((first.volumes.len(), &first.notes, first.more), (2, &vec![note("b")], true));
        let rest = store.survey("c", 3);
        assert_eq!((rest.volumes.len(), &rest.notes, rest.more), (0, &vec![note("d")], false));
        let done = |store: &mut Asked| match store.note(NoteOp::Remove { name: note("b") }) {
            Event::Done { result, .. } => result,
            other => panic!("{other:?}"),
        };
        assert_eq!(done(&mut store), Ok(Outcome::Done));
        assert_eq!(store.survey("", 9).notes, [note("d")]);
        // Said again after the directory could not be made durable.
        assert_eq!(done(&mut store), Ok(Outcome::Done));
        let read = store.note(NoteOp::Read { name: note("b") });
        assert!(matches!(&read, Event::Loaded { bytes, .. } if bytes.is_empty()), "{read:?}");
    }
}

#[test]
fn what_volumes_may_take_of_an_unreadable_directory_is_not_known() {
    let dir = tempfile::tempdir().unwrap();
    File::create(dir.path().join("volume")).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(promised(dir.path()), Ok(1 << 20));
    assert!(promised(&dir.path().join("none")).unwrap_err().reason.contains("looked at"));
}

/// A file that takes no data until somebody reads it stands for a disk that hangs.
#[test]
fn a_disk_that_hangs_does_not_keep_the_engine() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Asked::new(Store::directory(directory.path()).unwrap());
    let a = store.volume(create("a", 4096)).unwrap();
    let name = format!("slow{NOTE_ENDING}");
    let path = directory.path().join(&name);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, 0o600.into(), 0).unwrap();
    store.queue.note(IoId(4), NoteOp::Write { name, at: 0, bytes: vec![1; 512] });
    assert_eq!(store.volume(VolumeOp::Close { member: a.member }), Ok(Volume { bytes: 0, ..a }));
    let reader = File::open(&path).unwrap();
    // A position means nothing there, so the write fails.
    assert!(matches!(store.answer(), Event::Done { io: IoId(4), result: Err(_) }));
    drop(reader);
    assert_eq!(store.volume(open("a")), Ok(a));
}
