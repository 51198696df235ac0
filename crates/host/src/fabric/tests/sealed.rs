//! Visibility of slices on their way.

use super::*;

const KEYED: Make = Make { keyed: true, ..PLAIN };
const ENCRYPTED: Make = Make { encrypts: true, ..KEYED };

/// Passes a connection on, and keeps the bytes of the dialling side.
fn tapped(address: &str) -> (String, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().to_string();
    let address = address.to_owned();
    let relay = std::thread::spawn(move || {
        let (mut from, _) = listener.accept().unwrap();
        let mut to = TcpStream::connect(address).unwrap();
        let mut back = to.try_clone().unwrap();
        let mut to_dialler = from.try_clone().unwrap();
        std::thread::spawn(move || std::io::copy(&mut back, &mut to_dialler));
        let mut said = Vec::new();
        let mut some = vec![0; 1 << 16];
        while let Ok(got @ 1..) = from.read(&mut some) {
            said.extend(&some[..got]);
            if to.write_all(&some[..got]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
        said
    });
    (own, relay)
}

/// Returns whether a part of a slice is seen on its way from one side to the other, where it
/// arrives.
fn is_seen(dials: Make, listens: Make) -> bool {
    let mut a = dials.side(false);
    let mut b = listens.side(true);
    let (address, relay) = tapped(&b.address);
    let to_b = a.connect(PeerId(1), &address);
    wait_for(&mut [&mut a, &mut b], |sides| !sides[0].events.is_empty());
    a.events.clear();
    a.send(to_b, b"hello".to_vec());
    wait_for(&mut [&mut a, &mut b], |sides| sides[1].events.len() >= 2);
    let FabricEvent::Accepted { peer: to_a, .. } = fabric_event(b.events.pop_front()) else {
        panic!("nobody was accepted");
    };
    b.events.clear();
    b.admit(to_a, INBOX..2 * INBOX);
    let slice = pattern(3, 100_000);
    let from = Buf { offset: 0, len: 100_000 };
    a.bytes(from).copy_from_slice(&slice);
    a.put(to_b, from, INBOX, 7);
    wait_for(&mut [&mut a, &mut b], |sides| !sides[1].events.is_empty());
    let placed = FabricEvent::Placed { peer: to_a, imm: 7 };
    assert_eq!(fabric_event(b.events.pop_front()), placed);
    assert!(b.bytes(Buf { offset: INBOX, ..from }) == slice);
    assert!(a.bytes(from) == slice, "others may need it as it is");
    a.ask(FabricOp::HangUp { peer: to_b });
    wait_for(&mut [&mut a, &mut b], |sides| !sides[1].events.is_empty());
    drop((a, b));
    let said = relay.join().unwrap();
    said.windows(32).any(|some| some == &slice[5000..5032])
}

#[test]
fn slices_are_seen_unless_either_side_encrypts() {
    assert!(is_seen(KEYED, KEYED));
    assert!(!is_seen(KEYED, ENCRYPTED));
    assert!(!is_seen(ENCRYPTED, KEYED));
}

#[test]
fn nothing_is_encrypted_without_a_key() {
    let network = Network { kind: TransportKind::Tcp, key: None, encrypt: true };
    let arena = Arena::for_fabric(MIB, MIB).unwrap();
    let Err(why) = super::super::new(network, arena.place(), None) else { panic!("it is") };
    assert!(why.to_string().contains("give --key"), "{why}");
}
