//! Discarded ranges, and ranges that are made to read as zeroes.

use super::*;
use braid_array::Role;

/// Submits a request without a buffer, and lets all nodes answer. Returns the stripes that are made
/// blank, and the number of slices sent.
fn ask(op: Op, sector: u64, sectors: u64) -> (Vec<u64>, usize) {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let request = Request { id: RequestId(7), op, sector, sectors, buf: Buf { offset: 0, len: 0 } };
    client.submit(Instant(2), request).expect("the array runs");
    let mut blank = Vec::new();
    let mut puts = 0;
    let mut answer = None;
    for _ in 0..10 {
        let mut opened = Vec::new();
        for action in run(&mut client, |_, _| false) {
            match action {
                Action::Fabric(FabricOp::Put { io, .. }) => {
                    puts += 1;
                    client.handle(Instant(2), Event::Done { io, result: Ok(Outcome::Done) });
                }
                Action::Fabric(FabricOp::Send { peer, bytes }) => {
                    if let Ok((_, Message::BeginSet { set })) = Message::decode(&bytes) {
                        opened.push((peer.0 as u16, set));
                    }
                }
                Action::Complete { result, .. } => answer = Some(result),
                _ => {}
            }
        }
        for (role, set) in &opened {
            prepared(&mut client, Role(*role), (set.position, set.generation), true);
        }
        for (role, Set { position, generation, strategy, stripe, .. }) in opened {
            if strategy == WriteStrategy::Zero && role == 0 {
                blank.push(stripe.0);
            }
            hear(
                &mut client,
                Role(role),
                &Message::Finished { position, generation, ok: true, no_room: false },
            );
        }
        if answer.is_some() {
            break;
        }
        let due = client.deadline().map_or(Instant(2), |due| due);
        client.handle(due, Event::Tick);
    }
    assert_eq!(answer.or_else(|| completed(&run(&mut client, |_, _| false))), Some(Ok(())));
    (blank, puts)
}

#[test]
fn whole_stripes_that_are_trimmed_are_made_blank_and_nothing_is_sent() {
    // From the middle of stripe 0 to the middle of stripe 3.
    assert_eq!(ask(Op::Discard, 8, 48), (vec![1, 2], 0));
    assert_eq!(ask(Op::Discard, 8, 16), (vec![], 0));
}

#[test]
fn what_is_to_read_as_zeroes_does_at_its_ends_too() {
    let (blank, puts) = ask(Op::WriteZeroes { fua: false, unmap: true }, 8, 48);
    assert_eq!(blank, [1, 2]);
    assert!(puts > 0);
    // Where the space is to be kept, it is written.
    let (blank, puts) = ask(Op::WriteZeroes { fua: false, unmap: false }, 16, 16);
    assert_eq!((blank, puts), (vec![], 2));
}
