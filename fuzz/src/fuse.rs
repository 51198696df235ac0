//! Requests of the kernel to the FUSE export.

#![expect(clippy::host_endian_bytes, reason = "kernel and program are on one machine")]

use braid_host::export::fuse::proto::{FuseRequest, HEAD_BYTES, Operation};
use braid_host::export::fuse::{FileOperation, FileOutcome, Tree};

use crate::mutate::{Random, mutate};

const SIZE_BYTES: u64 = 64 << 20;

/// A request of any kind, which may have been changed.
pub(crate) fn make(random: &mut Random) -> Vec<u8> {
    let code = random.below(54) as u32;
    let len = [0, 8, 16, 24, 32, 40, 64, 88, 300, 5000][random.below(10)];
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&(40 + len as u32).to_ne_bytes());
    bytes.extend_from_slice(&code.to_ne_bytes());
    bytes.extend_from_slice(&random.next().to_ne_bytes());
    bytes.extend_from_slice(&(random.below(4) as u64).to_ne_bytes());
    bytes.resize(40, 0);
    while bytes.len() < 40 + len {
        // Large numbers and small ones.
        let word = random.next() >> random.below(64);
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes.truncate(40 + len);
    if code == 16 && random.below(8) > 0 && len >= 40 {
        // As long as it says.
        bytes[56..60].copy_from_slice(&(len as u32 - 40).to_ne_bytes());
    }
    if random.below(2) == 0 {
        mutate(random, &mut bytes, 128);
    }
    bytes
}

/// Whatever comes is refused, or asks for what there is.
pub(crate) fn run(bytes: &[u8]) {
    let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES));
    let Some(request) = FuseRequest::decode(head, rest) else { return };
    for read_only in [false, true] {
        let tree = Tree::new(vec![("a0".into(), SIZE_BYTES)], read_only);
        match tree.take(&request) {
            FileOutcome::Nothing => {}
            FileOutcome::Answer(answer) => {
                let mut out = Vec::new();
                answer.encode(request.unique, &mut out);
                assert!(out.len() >= 16 && out[8..16] == request.unique.to_ne_bytes());
            }
            FileOutcome::Ask { file, ask } => {
                assert_eq!(file, 0, "there is no other");
                check(&request, &ask, rest.len() as u64);
            }
        }
    }
}

fn check(request: &FuseRequest, ask: &FileOperation, data_bytes: u64) {
    let range = match ask {
        FileOperation::Read(range)
        | FileOperation::Write { range, .. }
        | FileOperation::Zero { range, .. } => range,
        FileOperation::Flush => return,
    };
    assert!(range.start < range.end && range.end <= SIZE_BYTES, "{range:?}");
    if let Operation::Write { .. } = request.operation {
        assert!(range.end - range.start <= data_bytes, "there are not so many data");
    }
}
