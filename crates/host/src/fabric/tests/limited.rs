//! Clients with the key of one array alone.

use super::strangers::{goes_on, greeting_with, greets, message, say_in_vain};
use super::*;
use crate::fabric::greet::connect;

const KEYED: Make = Make { keyed: true, ..PLAIN };
const ARRAY: [u8; 16] = [7; 16];

/// The cluster key of the sides here.
fn cluster() -> Key {
    Key::of([1; KEY_BYTES])
}

fn hello(array: Option<[u8; 16]>) -> Hello {
    Hello { kind: TransportKind::Tcp, keyed: true, encrypt: false, array, blob: Vec::new() }
}

/// Returns the array to which the next accepted peer is limited.
fn limit(side: &mut Side) -> Option<[u8; 16]> {
    match fabric_event(Some(side.event())) {
        FabricEvent::Accepted { limit, .. } => limit,
        other => panic!("nobody was accepted: {other:?}"),
    }
}

#[test]
fn a_node_knows_to_which_array_a_key_is_limited() {
    let mut side = KEYED.side(true);
    for array in [Some(ARRAY), None, Some([8; 16])] {
        let key = array.map_or_else(cluster, |array| cluster().limited_to(array));
        let mut greeted = greets(&mut side, greeting_with(Some(key))).unwrap();
        assert_eq!(greeted.limit, None, "nodes are not");
        let sealed = greeted.seals.as_mut().unwrap().out.close(b"!");
        message(&mut greeted.stream, &sealed);
        assert_eq!(limit(&mut side), array);
        assert!(matches!(side.event(), Event::Fabric(FabricEvent::Message { .. })));
        drop(greeted);
        lost(side.event());
    }
    goes_on(side);
}

#[test]
fn the_key_of_an_array_of_another_cluster_gets_nobody_in() {
    let mut side = KEYED.side(true);
    let key = Key::of([2; KEY_BYTES]).limited_to(ARRAY);
    let error = greets(&mut side, greeting_with(Some(key))).unwrap_err();
    let expected = "has another cluster key than the one that this array's key is derived from; \
                    derive it with `braid key derive` from the cluster key of the nodes";
    assert_eq!(error, expected);
    goes_on(side);
}

/// Passes a connection on, with a change to the first bytes of the dialling side.
fn meddling(node: String, change: fn(&mut Vec<u8>)) -> String {
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = middle.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut client, _) = middle.accept().unwrap();
        let mut node = TcpStream::connect(node).unwrap();
        let mut back = node.try_clone().unwrap();
        let mut to_client = client.try_clone().unwrap();
        std::thread::spawn(move || std::io::copy(&mut back, &mut to_client));
        let mut said = vec![0; hello(Some(ARRAY)).encode().len()];
        client.read_exact(&mut said).unwrap();
        change(&mut said);
        node.write_all(&said).unwrap();
        let _ = std::io::copy(&mut client, &mut node);
    });
    address
}

#[test]
fn nobody_becomes_another_on_the_way() {
    // Another array; all of them; the cluster key in place of the array's.
    let changes: [fn(&mut Vec<u8>); 3] =
        [|said| said[HELLO_BYTES] ^= 1, |said| *said = hello(None).encode(), |said| said[11] = 4];
    let mut side = KEYED.side(true);
    for change in changes {
        let address = meddling(side.address.clone(), change);
        let greeting = greeting_with(Some(cluster().limited_to(ARRAY)));
        let dial = std::thread::spawn(move || connect(&address, &greeting));
        while !dial.is_finished() {
            side.turn(Duration::from_millis(1));
        }
        let error = dial.join().unwrap().unwrap_err().to_string();
        assert!(error.starts_with("has another cluster key than"), "{error}");
    }
    goes_on(side);
}

#[test]
fn the_key_of_one_array_is_not_that_of_another() {
    let mut side = KEYED.side(true);
    let own = cluster().limited_to([8; 16]);
    for key in [own.said_of(ARRAY), cluster().said_of(ARRAY), Key::of(*own.bytes())] {
        let error = greets(&mut side, greeting_with(Some(key))).unwrap_err();
        assert!(error.starts_with("has another cluster key"), "{error}");
    }
    goes_on(side);
}

#[test]
fn half_an_array_gets_nobody_in() {
    let mut side = KEYED.side(true);
    let whole = hello(Some(ARRAY)).encode();
    let cuts = [HELLO_BYTES, HELLO_BYTES + 1, whole.len() - 1, whole.len()];
    let mut said: Vec<Vec<u8>> = cuts.map(|bytes| whole[..bytes].to_vec()).into();
    for length in [15_u32, u32::MAX] {
        let mut wrong = whole.clone();
        wrong[12..16].copy_from_slice(&length.to_le_bytes());
        said.push(wrong);
    }
    say_in_vain(&mut side, &said);
    goes_on(side);
}

#[test]
fn whoever_is_dialled_has_the_cluster_key() {
    let said = dial_stranger(KEYED, hello(Some(ARRAY)).encode());
    let expected = "has the key of one array alone, which makes it no node; start it with the \
                    cluster key";
    assert_eq!(said, expected);
    let arena = Arena::for_fabric(MIB, MIB).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let key = Some(cluster().limited_to(ARRAY));
    let network = Network { kind: TransportKind::Tcp, key, encrypt: false };
    let Err(why) = super::super::new(network, arena.place(), Some(listener)) else {
        panic!("it listens")
    };
    let expected = "the key is good for array 07070707:07070707:07070707:07070707 alone; give \
                    nodes the cluster key";
    assert_eq!(why.to_string(), expected);
}
