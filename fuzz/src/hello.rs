//! What a process says first.

use braid_host::fabric::frame::{HELLO_BYTES, Hello, MAX_BLOB_BYTES, TransportKind};

use crate::mutate::{Random, mutate};

/// A process with any key, or none, that says hello.
pub(crate) fn make(random: &mut Random) -> Vec<u8> {
    let [keyed, encrypt, limited] = [(); 3].map(|()| random.below(2) == 0);
    let array = limited.then(|| [random.next() as u8; 16]);
    let blob = vec![b'x'; random.below(40)];
    let mut bytes = Hello { kind: TransportKind::Tcp, keyed, encrypt, array, blob }.encode();
    if random.below(2) == 0 {
        mutate(random, &mut bytes, HELLO_BYTES);
    }
    bytes
}

/// Nobody is waited for long, and what is understood is what was said.
pub(crate) fn run(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<HELLO_BYTES>() else { return };
    for keyed in [false, true] {
        let kind = TransportKind::Tcp;
        let blob = Vec::new();
        let ours = Hello { kind, keyed, encrypt: false, array: None, blob };
        let Ok(length) = ours.check(head) else { continue };
        assert!(length <= MAX_BLOB_BYTES + 16, "it takes too much");
        let Ok((array, blob)) = Hello::rest(head, &rest[..length.min(rest.len())]) else {
            assert!(rest.len() < 16, "what it says is enough");
            continue;
        };
        if rest.len() < length {
            continue;
        }
        let encrypt = Hello::encrypts(head);
        let blob = blob.to_vec();
        let heard = Hello { kind, keyed, encrypt, array, blob }.encode();
        assert_eq!(heard, bytes[..HELLO_BYTES + length], "encoding changed it");
    }
}
