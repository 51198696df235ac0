//! The codec and the file system, byte by byte, and with bytes that no kernel sends.
#![expect(clippy::host_endian_bytes, reason = "kernel and program are on one machine")]

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::proto::{
    FuseAnswer, FuseRequest, HEAD_BYTES, MAX_TRANSFER_BYTES, Operation, put_longer, put_stale,
    resend,
};
use super::tree::{FileOperation, FileOutcome, Tree};

const SIZE: u64 = 1 << 20;
const FILE: u64 = 2;

/// Returns the request with this number and this body behind its header, as the kernel lays it out.
fn message(code: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let len = 40 + body.len() as u32;
    let mut bytes = [len.to_ne_bytes(), code.to_ne_bytes()].concat();
    bytes.extend([7u64, node].iter().flat_map(|word| word.to_ne_bytes()));
    // Who asks, and how long extensions are.
    bytes.extend([0; 16]);
    bytes.extend(body);
    bytes
}

fn decode(bytes: &[u8]) -> Option<FuseRequest> {
    let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES));
    FuseRequest::decode(head, rest)
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Two numbers of 32 bits, in the order in which they lie.
fn pair(first: u32, second: u32) -> u64 {
    u64::from_ne_bytes([first.to_ne_bytes(), second.to_ne_bytes()].concat().try_into().unwrap())
}

fn operation(code: u32, body: &[u8]) -> Operation {
    let request = decode(&message(code, FILE, body)).unwrap();
    assert_eq!((request.unique, request.node), (7, FILE));
    request.operation
}

fn tree(read_only: bool) -> Tree {
    Tree::new(vec![("a0".into(), SIZE)], read_only)
}

fn take(tree: &Tree, code: u32, node: u64, body: &[u8]) -> FileOutcome {
    tree.take(&decode(&message(code, node, body)).unwrap())
}

fn refused(errno: Errno) -> FileOutcome {
    FileOutcome::Answer(FuseAnswer::Error(errno))
}

#[test]
fn requests_are_read_as_the_kernel_writes_them() {
    let read = words(&[1, 4096, pair(8192, 0), 0, pair(0, 0)]);
    assert_eq!(operation(15, &read), Operation::Read { offset: 4096, len: 8192 });
    let mut write = words(&[1, 4096, pair(5, 0), 0, pair(0o10000, 0)]);
    write.extend(b"bytes");
    assert_eq!(operation(16, &write), Operation::Write { offset: 4096, len: 5, flags: 0o10000 });
    let allocate = words(&[1, 512, 1024, pair(3, 0)]);
    assert_eq!(operation(43, &allocate), Operation::Allocate { offset: 512, len: 1024, mode: 3 });
    let mut change = words(&[pair(8, 0), 0, 99]);
    change.resize(88, 0);
    assert_eq!(operation(4, &change), Operation::Change { access: false, size: Some(99) });
    change[..8].copy_from_slice(&words(&[pair(2, 0)]));
    assert_eq!(operation(4, &change), Operation::Change { access: true, size: None });
    assert_eq!(operation(14, &words(&[pair(2, 0)])), Operation::Open { flags: 2 });
    assert_eq!(operation(20, &words(&[1, 0])), Operation::Sync);
    for code in [2, 36, 42] {
        assert_eq!(operation(code, &[0; 16]), Operation::Unanswered);
    }
    for code in [22, 47, 52, 4095, u32::MAX] {
        assert_eq!(operation(code, &[]), Operation::Other);
    }
    // A name may reach beyond the head.
    for len in [0, 1, 39, 40, 255] {
        let name = vec![b'n'; len];
        assert_eq!(operation(1, &[&name[..], &[0]].concat()), Operation::Lookup { name });
    }
}

#[test]
fn kernel_and_program_agree_on_what_both_know() {
    let all = pair(u32::MAX, u32::MAX);
    let mut body = words(&[pair(7, 45), all]);
    body.extend(u32::MAX.to_ne_bytes());
    body.resize(64, 0);
    let Operation::Init { version, readahead, flags } = operation(26, &body) else { panic!() };
    assert_eq!((version, readahead, flags), ((7, 45), u32::MAX, u64::MAX));
    let answer = FuseAnswer::to_init(version, 4096, flags).unwrap();
    let mut out = Vec::new();
    answer.encode(7, &mut out);
    assert_eq!(out.len(), 80);
    let word = |at: usize| u32::from_ne_bytes(out[at..at + 4].try_into().unwrap());
    assert_eq!([word(0), word(4)], [80, 0]);
    assert_eq!([word(16), word(20), word(24)], [7, 45, 4096]);
    let flags = word(28);
    assert_eq!(flags & 1 << 16, 0, "the kernel would keep what was written to itself");
    assert_ne!(flags & 1 << 22, 0);
    assert_eq!(word(36), MAX_TRANSFER_BYTES);
    assert_eq!(u16::from_ne_bytes([out[44], out[45]]), 256, "pages");
    assert_eq!(word(48), 1 << 4, "mappings, and nothing else of the second word");
    // A kernel without a second word of flags says nothing of it.
    body[12..16].copy_from_slice(&(!(1u32 << 30)).to_ne_bytes());
    let Operation::Init { flags, .. } = operation(26, &body) else { panic!() };
    assert_eq!(flags >> 30, 2);
    assert_eq!(FuseAnswer::to_init((7, 22), 0, 0), None);
    assert_eq!(FuseAnswer::to_init((8, 0), 0, 0), None);
}

#[test]
fn answers_are_as_long_as_they_say() {
    let attributes = match take(&tree(false), 3, FILE, &[0; 16]) {
        FileOutcome::Answer(FuseAnswer::Attributes(attributes)) => attributes,
        other => panic!("{other:?}"),
    };
    assert_eq!((attributes.size, attributes.mode, attributes.links), (SIZE, 0o100_600, 1));
    for (answer, len) in [
        (FuseAnswer::Done, 16),
        (FuseAnswer::Error(Errno::IO), 16),
        (FuseAnswer::Found(attributes), 16 + 128),
        (FuseAnswer::Attributes(attributes), 16 + 104),
        (FuseAnswer::Opened { flags: 1 }, 32),
        (FuseAnswer::Written { len: 9 }, 24),
        (FuseAnswer::FileSystem, 96),
        (FuseAnswer::Names(vec![1; 40]), 56),
    ] {
        let mut out = vec![0xee];
        answer.encode(u64::MAX, &mut out);
        assert_eq!(out.len(), 1 + len, "{answer:?}");
        assert_eq!(out[1..5], (len as u32).to_ne_bytes());
        let error = if answer == FuseAnswer::Error(Errno::IO) { -5i32 } else { 0 };
        assert_eq!(out[5..9], error.to_ne_bytes());
        assert_eq!(out[9..17], u64::MAX.to_ne_bytes());
    }
    let mut out = Vec::new();
    FuseAnswer::Data { len: 4096 }.encode(1, &mut out);
    assert_eq!((out.len(), &out[..4]), (16, &4112u32.to_ne_bytes()[..]), "the data follow");
    assert_eq!(resend(), words(&[pair(16, 7), 0]));
}

#[test]
fn a_notification_is_as_the_kernel_reads_it() {
    let mut out = Vec::new();
    put_stale(&mut out, FILE);
    // Length and code, no request, the inode, no range of data.
    assert_eq!(out, words(&[pair(40, 2), 0, FILE, u64::MAX, 0]));
    let mut out = Vec::new();
    put_longer(&mut out, FILE, 8192);
    // The last byte alone, of which there is one.
    assert_eq!(out, [words(&[pair(41, 4), 0, FILE, 8191, pair(1, 0)]), vec![0]].concat());
}

#[test]
fn what_does_not_fit_its_length_is_no_request() {
    let read = message(15, FILE, &words(&[1, 0, pair(4096, 0), 0, 0]));
    for len in 0..read.len() {
        assert_eq!(decode(&read[..len]), None, "{len} bytes");
    }
    let mut longer = read.clone();
    longer.push(0);
    assert_eq!(decode(&longer), None);
    // Headers that say what they are, and structures that are too short.
    for code in [1, 4, 14, 15, 16, 26, 28, 43] {
        assert_eq!(
            operation(code, &[1; 7][..if code == 14 { 3 } else { 7 }]),
            Operation::Malformed
        );
    }
    assert_eq!(operation(1, &[b'n'; 2000]), Operation::Malformed, "a name without an end");
    let long = words(&[1, 0, pair(MAX_TRANSFER_BYTES + 1, 0), 0, 0]);
    assert_eq!(operation(15, &long), Operation::Malformed);
    // More or fewer data than it says.
    for len in [0, 4, 6] {
        let mut write = words(&[1, 0, pair(5, 0), 0, 0]);
        write.resize(40 + len, 1);
        assert_eq!(operation(16, &write), Operation::Malformed);
    }
    assert_eq!(take(&tree(false), 16, FILE, &[0; 7]), refused(Errno::INVAL));
}

#[test]
fn ranges_are_cut_to_the_file_whatever_they_are() {
    let tree = tree(false);
    let read = |offset, len| take(&tree, 15, FILE, &words(&[1, offset, pair(len, 0), 0, 0]));
    let file = |ask| FileOutcome::Ask { file: 0, ask };
    let nothing = FileOutcome::Answer(FuseAnswer::Data { len: 0 });
    assert_eq!(read(SIZE - 1, 4096), file(FileOperation::Read(SIZE - 1..SIZE)));
    assert_eq!(read(SIZE, 4096), nothing);
    assert_eq!(read(u64::MAX, MAX_TRANSFER_BYTES), nothing);
    let write = |offset, len: u32, flags| {
        let mut body = words(&[1, offset, pair(len, 0), 0, pair(flags, 0)]);
        body.resize(40 + len as usize, 1);
        take(&tree, 16, FILE, &body)
    };
    let part = FileOperation::Write { range: SIZE - 2..SIZE, fua: false };
    assert_eq!(write(SIZE - 2, 9, 0), file(part));
    assert_eq!(write(u64::MAX, 9, 0), refused(Errno::NOSPC));
    assert_eq!(write(SIZE, 0, 0), FileOutcome::Answer(FuseAnswer::Written { len: 0 }));
    for flags in [0o10_000, 0o4_010_000] {
        assert_eq!(write(0, 1, flags), file(FileOperation::Write { range: 0..1, fua: true }));
    }
    let allocate =
        |offset, len, mode| take(&tree, 43, FILE, &words(&[1, offset, len, pair(mode, 0)]));
    let punch = (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE).bits();
    let whole = FileOperation::Zero { range: 0..SIZE, unmap: true };
    assert_eq!(allocate(0, u64::MAX, punch), file(whole));
    assert_eq!(allocate(u64::MAX, u64::MAX, punch), FileOutcome::Answer(FuseAnswer::Done));
    let zero = FallocateFlags::ZERO_RANGE.bits();
    assert_eq!(allocate(1, u64::MAX, zero), refused(Errno::FBIG));
    assert_eq!(allocate(0, SIZE, u32::MAX), refused(Errno::OPNOTSUPP));
    assert_eq!(take(&tree, 15, 1, &words(&[1, 0, 1, 0, 0])), refused(Errno::ISDIR));
    assert_eq!(take(&tree, 15, u64::MAX, &words(&[1, 0, 1, 0, 0])), refused(Errno::ISDIR));
}

#[test]
fn a_read_only_file_takes_no_changes() {
    let tree = tree(true);
    for (flags, refused_too) in [(0, false), (1, true), (2, true)] {
        let outcome = take(&tree, 14, FILE, &words(&[pair(flags, 0)]));
        assert_eq!(outcome == refused(Errno::ROFS), refused_too, "{outcome:?}");
    }
    let zero = FallocateFlags::ZERO_RANGE.bits();
    assert_eq!(take(&tree, 43, FILE, &words(&[1, 0, 4096, pair(zero, 0)])), refused(Errno::ROFS));
    let FileOutcome::Answer(FuseAnswer::Attributes(attributes)) = take(&tree, 3, FILE, &[0; 16])
    else {
        panic!()
    };
    assert_eq!(attributes.mode & 0o777, 0o400);
}

#[test]
fn names_come_as_far_as_there_is_room() {
    let tree = tree(false);
    let names = |offset, len| match take(&tree, 28, 1, &words(&[1, offset, pair(len, 0), 0, 0])) {
        FileOutcome::Answer(FuseAnswer::Names(names)) => names,
        other => panic!("{other:?}"),
    };
    let all = names(0, 4096);
    // Three entries: a structure of 24 bytes each, and a name in 8.
    assert_eq!(all.len(), 3 * 32);
    assert_eq!(all[64..], [words(&[2, 3, pair(2, 8)]), b"a0\0\0\0\0\0\0".to_vec()].concat());
    assert_eq!(names(0, 95), all[..64]);
    assert_eq!(names(2, 4096), all[64..]);
    assert!(names(0, 31).is_empty());
    assert!(names(u64::MAX, 4096).is_empty());
    assert_eq!(take(&tree, 28, FILE, &words(&[1, 0, 4096, 0, 0])), refused(Errno::NOTDIR));
}
