//! Peers that leave their messages unread.

use std::io::ErrorKind;

use super::*;
use crate::fabric::frame::HEADER_BYTES;

/// A question is short, and an answer long.
const QUESTION_BYTES: usize = 1000;
/// More than lies in the kernel, with those of its buffers that these tests set.
const MUCH: usize = 2 << 20;

/// Connects from outside, with a small receive buffer.
fn narrow(side: &mut Side) -> (TcpStream, PeerId) {
    let stream = raw(side, TransportKind::Tcp);
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 32 << 10).unwrap();
    let peer = accepted(side);
    (stream, peer)
}

fn question() -> Vec<u8> {
    let mut frame = FrameHeader::Message { bytes: QUESTION_BYTES as u32 }.encode().to_vec();
    frame.resize(frame.len() + QUESTION_BYTES, b'?');
    frame
}

fn answer() -> Vec<u8> {
    vec![b'!'; MAX_MESSAGE_BYTES]
}

/// Returns the amount that could be done at once.
fn at_once(done: std::io::Result<usize>) -> usize {
    match done {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        done => done.unwrap(),
    }
}

#[test]
fn who_takes_answers_slowly_is_listened_to_as_slowly_and_gets_them_all() {
    let mut side = PLAIN.side(true);
    let (mut stream, peer) = narrow(&mut side);
    stream.set_nonblocking(true).unwrap();
    let answers = (18 << 20) / MAX_MESSAGE_BYTES;
    let questions = question().repeat(answers);
    let answer_bytes = HEADER_BYTES + MAX_MESSAGE_BYTES;
    let begun = Instant::now();
    let mut asked = 0;
    let mut answered = 0;
    let mut taken = 0;
    let mut most = 0;
    let mut some = vec![0; 16 << 10];
    while taken < answers * answer_bytes {
        assert!(begun.elapsed() < PATIENCE, "{asked} asked, {answered} answered, {taken} taken");
        asked += at_once(stream.write(&questions[asked..]));
        side.turn(Duration::from_micros(100));
        while let Some(event) = side.events.pop_front() {
            let FabricEvent::Message { .. } = fabric_event(Some(event)) else {
                panic!("it is lost")
            };
            side.send(peer, answer());
            answered += 1;
        }
        most = most.max(answered * answer_bytes - taken);
        taken += at_once(stream.read(&mut some));
    }
    assert!(most < MUCH, "{most} bytes waited for it");
    drop(stream);
    lost(side.event());
    side.end();
}

#[test]
fn the_last_word_arrives_where_nobody_was_listened_to() {
    let mut side = PLAIN.side(true);
    let (mut stream, peer) = narrow(&mut side);
    let answers = MUCH / MAX_MESSAGE_BYTES;
    for _ in 0..answers {
        side.send(peer, answer());
    }
    stream.write_all(&question().repeat(100)).unwrap();
    assert!(matches!(side.event(), Event::Fabric(FabricEvent::Message { .. })));
    side.send(peer, b"the end".to_vec());
    side.ask(FabricOp::HangUp { peer });
    let client = std::thread::spawn(move || {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    });
    let begun = Instant::now();
    while !client.is_finished() {
        assert!(begun.elapsed() < PATIENCE);
        side.turn(Duration::from_millis(1));
    }
    assert!(client.join().unwrap().ends_with(b"the end"));
    side.events.clear();
    side.end();
}
