//! The conversation, without a socket.

use super::devices::{Device, SocketDevices};
use super::session::{
    CommandKind, NbdCommand, Session, SessionProgress, SessionStep, fuzz_session,
};
use crate::engine::array_size::ArraySize;
use crate::nbd_proto::{NbdError, put_error_chunk};

const SIZE: u64 = 1 << 20;

fn export(read_only: bool) -> SocketDevices {
    let device = Device::new("array".into(), SIZE, 4096, read_only);
    Device { preferred_block_bytes: 8192, piece_bytes: 65_536, ..device }.into()
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn go(name: &[u8]) -> Vec<u8> {
    option(7, &[&u32::try_from(name.len()).unwrap().to_be_bytes(), name, &[0, 0]].concat())
}

fn contexts(number: u32, queries: &[&[u8]]) -> Vec<u8> {
    let mut data = 0u32.to_be_bytes().to_vec();
    data.extend_from_slice(&u32::try_from(queries.len()).unwrap().to_be_bytes());
    for query in queries {
        data.extend_from_slice(&u32::try_from(query.len()).unwrap().to_be_bytes());
        data.extend_from_slice(query);
    }
    option(number, &data)
}

fn request(flags: u16, kind: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&42u64.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes
}

/// Result of a stream: commands, whether it was closed, answers after the greeting.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    commands: Vec<CommandKind>,
    closed: bool,
    out: Vec<u8>,
}

/// Gives the stream to a session in portions of `portion` bytes.
fn converse(read_only: bool, stream: &[u8], portion: usize) -> Outcome {
    let mut greeting = Vec::new();
    let mut session = Session::new(export(read_only), None, &mut greeting);
    assert_eq!(greeting, b"NBDMAGICIHAVEOPT\0\x03");
    let mut outcome = Outcome::default();
    let mut start = 0;
    let mut end = 0;
    let mut payload = 0;
    loop {
        let taken = usize::min(payload, end - start);
        (start, payload) = (start + taken, payload - taken);
        let (used, step) = session.step(&stream[start..end], &mut outcome.out);
        start += used;
        match step {
            SessionStep::NeedMore if end == stream.len() => return outcome,
            SessionStep::NeedMore => end = usize::min(end + portion, stream.len()),
            SessionStep::Again | SessionStep::StartTls => {}
            SessionStep::Command(NbdCommand { cookie, kind }) => {
                assert_eq!(cookie, 42);
                if let CommandKind::Write { len, .. } = kind {
                    payload = len as usize;
                }
                outcome.commands.push(kind);
            }
            SessionStep::Close => {
                outcome.closed = true;
                return outcome;
            }
        }
    }
}

/// The kinds of the answers to options.
fn option_replies(mut out: &[u8]) -> Vec<(u32, u32)> {
    let mut kinds = Vec::new();
    while let Some(rest) = out.strip_prefix(&0x0003_e889_0455_65a9u64.to_be_bytes()) {
        let field = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
        kinds.push((field(0), field(4)));
        out = &rest[12 + field(8) as usize..];
    }
    assert!(out.is_empty(), "something else behind the answers to options");
    kinds
}

const FLAGS: [u8; 4] = [0, 0, 0, 3];
const UNSUP: u32 = (1 << 31) + 1;
const INVALID: u32 = (1 << 31) + 3;
const UNKNOWN: u32 = (1 << 31) + 6;
const TOO_BIG: u32 = (1 << 31) + 9;

#[test]
fn options_are_answered_whatever_the_portions() {
    let stream = [
        &FLAGS[..],
        &option(5, b""),
        &option(99, &[7; 70_000]),
        &option(3, b""),
        &option(3, b"x"),
        &contexts(10, &[b"base:allocation"]),
        &option(8, b""),
        &contexts(9, &[]),
        &contexts(9, &[b"base:"]),
        &contexts(10, &[b"base:"]),
        &contexts(10, &[b"qemu:x", b"base:allocation"]),
        &option(6, b"\0\0\0\x05other\0\0"),
        &option(6, b"\0\0\0\x05arr"),
        &option(7, &[0; 20_000]),
        &option(6, b"\0\0\0\x05array\0\x01\0\x01"),
        &go(b""),
    ]
    .concat();
    let whole = converse(false, &stream, stream.len());
    assert_eq!(
        option_replies(&whole.out),
        [
            (5, UNSUP),
            (99, UNSUP),
            (3, 2),
            (3, 1),
            (3, INVALID),
            // Not before structured replies.
            (10, INVALID),
            (8, 1),
            (9, 4),
            (9, 1),
            (9, 4),
            (9, 1),
            (10, 1),
            (10, 4),
            (10, 1),
            (6, UNKNOWN),
            (6, INVALID),
            (7, TOO_BIG),
            (6, 3),
            (6, 3),
            (6, 3),
            (6, 1),
            (7, 3),
            (7, 3),
            (7, 1),
        ]
    );
    assert!(!whole.closed);
    for portion in [1, 2, 3, 17, 4096] {
        assert_eq!(converse(false, &stream, portion), whole);
    }
}

#[test]
fn commands_are_checked_and_their_payload_is_skipped_when_refused() {
    let payload = vec![0xee; 8192];
    let stream = [
        &FLAGS[..],
        &option(8, b""),
        &contexts(10, &[b"base:allocation"]),
        &go(b"array"),
        &request(0, 0, 4096, 4096),
        // Refused, with payload that looks like nothing.
        &request(0, 1, SIZE - 4096, 8192),
        &payload,
        &request(1, 1, 0, 8192),
        &payload,
        // A read that must not be fragmented: as long as possible, and longer.
        &request(4, 0, 0, 65_536),
        &request(4, 0, 0, 69_632),
        &request(1, 6, 0, 4096),
        &request(2, 6, 0, 4096),
        &request(16, 6, 0, 4096),
        &request(1, 4, 0, 1 << 20),
        &request(0, 3, 77, 99),
        &request(0, 7, 0, 4096),
        &request(0, 2, 0, 0),
        &request(0, 3, 0, 0),
    ]
    .concat();
    let whole = converse(false, &stream, stream.len());
    let expected = [
        CommandKind::Read { offset: 4096, len: 4096 },
        CommandKind::Write { offset: 0, len: 8192, fua: true },
        CommandKind::Read { offset: 0, len: 65_536 },
        CommandKind::WriteZeroes { offset: 0, len: 4096, fua: true, unmap: true },
        CommandKind::WriteZeroes { offset: 0, len: 4096, fua: false, unmap: false },
        CommandKind::Trim { offset: 0, len: 1 << 20, fua: true },
        CommandKind::Flush,
    ];
    assert_eq!(whole.commands, expected);
    assert!(whole.closed, "the disconnect was not heeded");
    let mut answers = Vec::new();
    for (error, message) in [
        (NbdError::NoSpace, "range ends beyond the device"),
        (NbdError::Overflow, "too long to be read in one piece"),
        (NbdError::NotSupported, "zeroing may be as slow as writing"),
    ] {
        put_error_chunk(&mut answers, 42, error, message);
    }
    // The block status is last: flags DONE, type 5, 12 bytes: context 1, 4096 bytes of data.
    let status = &whole.out[whole.out.len() - 32..];
    assert_eq!(status[4..8], [0, 1, 0, 5]);
    assert_eq!(status[16..], [0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 16, 0, 0, 0, 0, 0]);
    assert!(whole.out[..whole.out.len() - 32].ends_with(&answers));
    for portion in [1, 5, 28, 1000] {
        assert_eq!(converse(false, &stream, portion), whole);
    }
}

/// A part lies somewhere in the array, and its client sees nothing else.
#[test]
fn commands_are_for_the_part_that_was_chosen() {
    let devices = export(false);
    let part = |name: &str, offset| Device::new(name.into(), 8192, 4096, false).at(offset);
    devices.add(part("one", 16_384).into());
    devices.add(part("two", 24_576).into());
    let stream = [
        &FLAGS[..],
        &option(3, b""),
        &go(b"none"),
        &go(b""),
        &go(b"two"),
        &request(0, 0, 4096, 4096),
        &request(0, 4, 0, 8192),
        &request(0, 0, 4096, 8192),
        &request(0, 0, u64::MAX - 4095, 4096),
        &request(0, 3, 0, 0),
    ]
    .concat();
    let mut out = Vec::new();
    let mut session = Session::new(devices, None, &mut out);
    out.clear();
    let mut commands = Vec::new();
    let mut start = 0;
    while let (used, step) = session.step(&stream[start..], &mut out)
        && step != SessionStep::NeedMore
    {
        start += used;
        if let SessionStep::Command(NbdCommand { kind, .. }) = step {
            commands.push(kind);
        }
    }
    assert_eq!(session.chosen().map(|device| device.name()), Some("two"));
    let expected = [
        CommandKind::Read { offset: 28_672, len: 4096 },
        CommandKind::Trim { offset: 24_576, len: 8192, fua: false },
        CommandKind::Flush,
    ];
    assert_eq!(commands, expected);
    let (options, replies) = out.split_at(out.len() - 2 * 16);
    assert_eq!(replies[4..8], 22u32.to_be_bytes(), "beyond its end");
    assert_eq!(replies[20..24], 22u32.to_be_bytes(), "beyond all ends");
    let kinds = option_replies(options);
    let listed = [(3, 2), (3, 2), (3, 2), (3, 1), (7, UNKNOWN), (7, UNKNOWN)];
    assert_eq!(kinds, [&listed[..], &[(7, 3), (7, 3), (7, 1)]].concat());
}

/// Returns the size that a conversation goes on with in a process whose array is of this size.
fn goes_on_with(progress: SessionProgress, array_bytes: u64) -> u64 {
    let device = Device::new("array".into(), array_bytes, 4096, false);
    let device = device.reaching_to(ArraySize::new(array_bytes));
    Session::at(progress, device.into(), None).unwrap().chosen().unwrap().size_bytes
}

#[test]
fn a_client_that_is_handed_over_keeps_the_size_that_it_was_told() {
    let array = ArraySize::new(SIZE);
    let device = Device::new("array".into(), SIZE, 4096, false).reaching_to(array);
    let mut out = Vec::new();
    let mut session = Session::new(device.into(), None, &mut out);
    let (used, _) = session.step(&FLAGS, &mut out);
    assert_eq!(used, FLAGS.len());
    session.step(&go(b""), &mut out);
    let mut told = serde_json::to_value(session.progress().unwrap()).unwrap();
    let progress = |told| serde_json::from_value(told).unwrap();
    assert_eq!(goes_on_with(progress(told.clone()), 2 * SIZE), SIZE);
    // As a program before this one gave it.
    told.as_object_mut().unwrap().remove("size_bytes").unwrap();
    assert_eq!(goes_on_with(progress(told), 2 * SIZE), 2 * SIZE);
}

#[test]
fn a_read_only_export_says_so_and_refuses_writes() {
    let name = option(1, b"array");
    let writes = [request(0, 1, 0, 4096), vec![0; 4096], request(0, 4, 0, 4096)].concat();
    let outcome = converse(true, &[&[0; 4][..], &name, &writes].concat(), 9);
    assert_eq!(outcome.commands, []);
    // Size, flags, and zeroes because the client did not ask to leave them out.
    assert_eq!(outcome.out[..8], SIZE.to_be_bytes());
    assert_eq!(outcome.out[9] & 3, 3, "has flags, read-only");
    assert_eq!(outcome.out.len(), 10 + 124 + 2 * 16);
    assert_eq!(outcome.out[134 + 4..134 + 8], 1u32.to_be_bytes(), "EPERM");
}

#[test]
fn what_cannot_be_understood_ends_the_conversation() {
    let cases = [
        ("unknown client flags", vec![0, 0, 0, 4]),
        ("bad option magic", [&FLAGS[..], &[0; 16]].concat()),
        ("unknown export name", [&FLAGS[..], &option(1, b"other")].concat()),
        ("endless export name", [&FLAGS[..], &option(1, &[b'a'; 20_000])].concat()),
        ("abort", [&FLAGS[..], &option(2, b"")].concat()),
        ("bad request magic", [&FLAGS[..], &option(1, b""), &[0; 28]].concat()),
    ];
    for (case, stream) in cases {
        assert!(converse(false, &stream, 3).closed, "{case}");
    }
}

#[test]
fn noise_breaks_no_promise() {
    let good = [
        &[6][..],
        &FLAGS,
        &option(8, b""),
        &contexts(10, &[b"base:allocation"]),
        &go(b"fuzz"),
        &request(0, 1, 0, 512),
        &[0; 512],
        &request(0, 0, 0, 512),
        &request(0, 7, 0, 512),
    ]
    .concat();
    let mut state = 88_172_645_463_325_252u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    for _ in 0..20_000 {
        let mut stream = good.clone();
        for _ in 0..=random(4) {
            let at = random(stream.len());
            stream[at] = u8::try_from(random(256)).unwrap();
        }
        stream.truncate(1 + random(stream.len()));
        fuzz_session(&stream);
    }
}
