//! A conversation with arbitrary bytes.

use super::{CommandKind, Device, NbdCommand, Session, SessionStep, SocketDevices};

/// Feeds arbitrary bytes to a conversation, in pieces whose sizes follow from the bytes, and checks
/// its guarantees. When a guarantee is broken.
///
/// # Panics
/// When a promise is broken.
pub fn fuzz_session(data: &[u8]) {
    let Some((&first, stream)) = data.split_first() else { return };
    let size_bytes = 64 << 20;
    let offset_bytes = 1 << 20;
    let part = Device::new("fuzz".into(), size_bytes, 512, first & 1 != 0).at(offset_bytes);
    let devices = SocketDevices::from(Device::new("whole".into(), offset_bytes, 512, false));
    devices.add(part.into());
    let mut out = Vec::new();
    let mut session = Session::new(devices, None, &mut out);
    let mut start = 0;
    let mut end = 0;
    let mut payload = 0usize;
    loop {
        let taken = payload.min(end - start);
        (start, payload) = (start + taken, payload - taken);
        let before = out.len();
        let (used, step) = session.step(&stream[start..end], &mut out);
        assert!(used <= end - start, "consumed more than there is");
        assert!(out.len() - before <= 4096, "answered too much at once");
        start += used;
        match step {
            SessionStep::NeedMore if end == stream.len() => return,
            SessionStep::NeedMore => {
                end = stream.len().min(end + 1 + usize::from(first >> 1));
                assert!(used == 0);
            }
            SessionStep::Again => assert!(used > 0, "no progress"),
            SessionStep::StartTls => unreachable!("there is none"),
            SessionStep::Command(NbdCommand { kind, .. }) => {
                if let Some((offset, len)) = kind.range() {
                    let chosen = session.chosen().expect("a device");
                    let from = chosen.offset_bytes;
                    let to = from + chosen.size_bytes;
                    assert!(len > 0 && offset >= from && offset + u64::from(len) <= to);
                    assert!(offset % 512 == 0 && len % 512 == 0);
                }
                if let CommandKind::Write { len, .. } = kind {
                    payload = len as usize;
                }
            }
            SessionStep::Close => return,
        }
    }
}
