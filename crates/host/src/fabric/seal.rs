//! Use of the cluster key on a connection. Both sides prove that they have it, and seal their
//! messages from then on with keys of this connection alone. Slices are sealed, too, if either side
//! wants it: see `slices`. A side that dials may have the key of one array instead, as its hello
//! announces; the other side derives that key from the cluster key.
//!
//! The proof is Noise's pattern NN with the key mixed in first. The side that dialled sends 48
//! bytes and the other answers with 48; 16 more, sealed, show that the first were no recording.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_array::Refusal;
use snow::{Builder, HandshakeState, StatelessTransportState};

pub(crate) use super::slices::{BrokenSlice, SEAL_BYTES};
use super::slices::{SliceSeal, SliceSeals};
use crate::key::Key;

/// A message of the proof.
const PROOF_BYTES: usize = 32 + SEAL_BYTES;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Seal of one direction of a connection. Nothing can be left out, repeated or exchanged: each
/// message has its number.
#[derive(Debug)]
pub(crate) struct Seal {
    keys: Arc<StatelessTransportState>,
    next: u64,
}

/// Seals of both directions: sending and receiving.
#[derive(Debug)]
pub(crate) struct Seals {
    pub(crate) out: Seal,
    pub(crate) into: Seal,
    /// Seals of slices, where these are sealed too.
    pub(crate) slices: Option<SliceSeals>,
}

impl Seal {
    /// Seals the next message to be sent.
    pub(crate) fn close(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut sealed = vec![0; plain.len() + SEAL_BYTES];
        let written = self.keys.write_message(self.next, plain, &mut sealed);
        assert_eq!(written, Ok(sealed.len()), "messages are short");
        self.next += 1;
        sealed
    }

    /// Opens the next message received.
    pub(crate) fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, BrokenSlice> {
        let mut plain = vec![0; sealed.len()];
        let read =
            self.keys.read_message(self.next, sealed, &mut plain).map_err(|_| BrokenSlice)?;
        self.next += 1;
        plain.truncate(read);
        Ok(plain)
    }
}

impl Seals {
    fn of(mut proof: HandshakeState, dialled: bool, slices: bool) -> Result<Self, snow::Error> {
        let (there, back) = proof.dangerously_get_raw_split();
        let (out, into) = if dialled { (there, back) } else { (back, there) };
        let [out, into] = [&out, &into].map(SliceSeal::of);
        let slices = slices.then_some(SliceSeals { out, into });
        let keys = Arc::new(proof.into_stateless_transport_mode()?);
        let [out, into] = [Arc::clone(&keys), keys].map(|keys| Seal { keys, next: 0 });
        Ok(Self { out, into, slices })
    }

    /// Proves to each other that both have the key. The proof covers all that was sent before. With
    /// `slices`, those are sealed as well.
    ///
    /// # Errors
    /// The reason continues a sentence that begins with the other's name.
    pub(super) fn prove(
        stream: &TcpStream,
        key: &Key,
        said: &[u8],
        (dialled, slices): (bool, bool),
        deadline: Instant,
    ) -> Result<Self, Refusal> {
        let other = || match key.array() {
            None => Refusal::new(
                "has another cluster key",
                "give the same file with --key on all sides",
            ),
            Some(_) => Refusal::new(
                "has another cluster key than the one that this array's key is derived from",
                "derive it with `braid key derive` from the cluster key of the nodes",
            ),
        };
        let wrong = |_: snow::Error| other();
        // That says nothing of keys: the other may have died.
        let ended = || Refusal::new("ends the connection during the handshake", "try again");
        let lost = |_: io::Error| ended();
        let builder = PATTERN.parse().map(Builder::new).map_err(wrong)?;
        let builder = builder.prologue(said).map_err(wrong)?.psk(0, key.bytes()).map_err(wrong)?;
        let hear = |bytes: &mut [u8]| match read_until(stream, bytes, deadline) {
            Ok(got) if got == bytes.len() => Ok(()),
            _ => Err(ended()),
        };
        let mut heard = [0; PROOF_BYTES];
        let mut told = [0; PROOF_BYTES];
        let mut none = [0; 0];
        if dialled {
            let mut proof = builder.build_initiator().map_err(wrong)?;
            proof.write_message(&[], &mut told).map_err(wrong)?;
            (&mut &*stream).write_all(&told).map_err(lost)?;
            hear(&mut heard)?;
            proof.read_message(&heard, &mut none).map_err(wrong)?;
            let mut seals = Self::of(proof, dialled, slices).map_err(wrong)?;
            (&mut &*stream).write_all(&seals.out.close(&[])).map_err(lost)?;
            return Ok(seals);
        }
        let mut proof = builder.build_responder().map_err(wrong)?;
        hear(&mut heard)?;
        if proof.read_message(&heard, &mut none).is_err() {
            // Zeroes prove nothing, and tell who has dialled that it is the key.
            let _ = (&mut &*stream).write_all(&told);
            return Err(other());
        }
        proof.write_message(&[], &mut told).map_err(wrong)?;
        (&mut &*stream).write_all(&told).map_err(lost)?;
        let mut seals = Self::of(proof, dialled, slices).map_err(wrong)?;
        let mut fresh = [0; SEAL_BYTES];
        hear(&mut fresh)?;
        seals.into.open(&fresh).map_err(|BrokenSlice| other())?;
        Ok(seals)
    }
}

/// Fills `bytes`, or less at the end of the stream or, if something was there, at the deadline.
pub(super) fn read_until(
    mut stream: &TcpStream,
    bytes: &mut [u8],
    deadline: Instant,
) -> io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if got > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
