//! Exports over NBD, as a client uses them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Opens an export of this size, as an NBD client does.
pub(crate) fn connect(socket: &Path, name: &str, bytes: usize) -> UnixStream {
    let (stream, found) = connect_any(socket, name);
    assert_eq!(found, bytes as u64);
    stream
}

/// Opens an export, as an NBD client does. Returns its size as well.
pub(crate) fn connect_any(socket: &Path, name: &str) -> (UnixStream, u64) {
    let mut stream = UnixStream::connect(socket).expect("an export");
    let mut head = [0; 18];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head[..16], b"NBDMAGICIHAVEOPT");
    // Fixed newstyle, no zeroes; then the option EXPORT_NAME.
    stream.write_all(&3u32.to_be_bytes()).unwrap();
    let name_len = (name.len() as u32).to_be_bytes();
    let option = [b"IHAVEOPT".as_slice(), &1u32.to_be_bytes(), &name_len, name.as_bytes()];
    stream.write_all(&option.concat()).unwrap();
    let mut export = [0; 10];
    stream.read_exact(&mut export).unwrap();
    let size = export[..8].try_into().expect("eight bytes");
    (stream, u64::from_be_bytes(size))
}

/// Asks for a write (1) or a flush (3), and waits for the answer.
pub(crate) fn ask(
    stream: &mut UnixStream,
    kind: u16,
    offset: u64,
    data: &[u8],
) -> std::io::Result<()> {
    request(stream, kind, (offset, data.len()), data)
}

/// Reads a range; `None` where that is an error.
pub(crate) fn read(stream: &mut UnixStream, offset: u64, len: usize) -> Option<Vec<u8>> {
    send(stream, 0, (offset, len), &[]).unwrap();
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).unwrap();
    let failed = reply[4..8] != [0; 4];
    let mut data = vec![0; if failed { 0 } else { len }];
    stream.read_exact(&mut data).unwrap();
    (!failed).then_some(data)
}

/// Trims a range.
pub(crate) fn trim(stream: &mut UnixStream, offset: u64, len: usize) {
    request(stream, 4, (offset, len), &[]).unwrap();
}

fn request(
    stream: &mut UnixStream,
    kind: u16,
    (offset, len): (u64, usize),
    data: &[u8],
) -> std::io::Result<()> {
    send(stream, kind, (offset, len), data)?;
    let mut reply = [0; 16];
    stream.read_exact(&mut reply)?;
    assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "at {offset}");
    Ok(())
}

fn send(
    stream: &mut UnixStream,
    kind: u16,
    (offset, len): (u64, usize),
    data: &[u8],
) -> std::io::Result<()> {
    let mut request = vec![];
    request.extend(0x2560_9513_u32.to_be_bytes());
    request.extend([0, 0]);
    request.extend(kind.to_be_bytes());
    request.extend([7; 8]);
    request.extend(offset.to_be_bytes());
    request.extend((len as u32).to_be_bytes());
    request.extend(data);
    stream.write_all(&request)
}

/// Writes everywhere through the socket of an export, and flushes.
pub(crate) fn fill(socket: &Path, name: &str, content: &[u8]) {
    const PART: usize = 256 << 10;
    let mut stream = connect(socket, name, content.len());
    for (number, part) in content.chunks(PART).enumerate() {
        ask(&mut stream, 1, (number * PART) as u64, part).unwrap();
    }
    ask(&mut stream, 3, 0, &[]).unwrap();
}

/// Bytes that are different everywhere.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}
