//! Tests of the engine's counters.

use std::fs::OpenOptions;

use super::*;
use braid_array::figures::{
    BOUNDS, Figures, IoFigures, Latencies, OperationKind, Operations, SHORTEST_NS,
};

fn figures(served: &Served) -> Figures {
    served.submissions.figures().expect("the engine runs")
}

/// Returns the number of operations, their bytes, and the number that failed.
const fn counted(of: &Operations) -> (u64, u64, u64) {
    (of.operations, of.bytes, of.errors)
}

#[test]
fn requests_and_io_on_members_are_counted_by_kind() {
    for (dir, threads) in places() {
        let served = Served::start(mirror(dir.path(), 2, 8 * MIB, 4 * MIB), threads);
        assert_eq!(figures(&served).requests, IoFigures::default());
        // Three requests: one takes a mebibyte at the most.
        write(&served.submissions, 0, noise(7, 2 * MIB as usize + 512)).recv().unwrap().unwrap();
        read(&served.submissions, 512, 4096).recv().unwrap().unwrap();
        ask(&served.submissions, |done| Message::Flush { done }).recv().unwrap().unwrap();
        let range = |offset, len| move |done| Message::Discard { offset, len, done };
        ask(&served.submissions, range(MIB, 4096)).recv().unwrap().unwrap();
        let zeroes = |done| Message::WriteZeroes { offset: 0, len: 8192, unmap: false, done };
        ask(&served.submissions, zeroes).recv().unwrap().unwrap();
        let all = figures(&served);
        let requests = &all.requests;
        let of_members = [0, 1].map(|id| all.of(MemberId(id)).expect("a member"));
        assert_eq!((all.members.len(), all.clients.len()), (2, 0));
        // The second half of the mirror is read where the first cannot be.
        for (figures, reads) in [(requests, 1), (of_members[0], 1), (of_members[1], 0)] {
            assert_eq!(figures.in_flight, 0);
            assert_eq!(counted(&figures.write), (3, 2 * MIB + 512, 0));
            assert_eq!(counted(&figures.read), (reads, reads * 4096, 0));
            assert_eq!(counted(&figures.zero), (1, 8192, 0));
            assert_eq!(counted(&figures.discard), (1, 4096, 0));
            assert_eq!(figures.flush.operations, 1);
            for (kind, operations) in figures.kinds() {
                let all: u64 = operations.latency_counts.counts().iter().sum();
                assert_eq!(all, operations.operations, "{kind}");
            }
        }
        served.stop();
    }
}

#[test]
fn what_fails_on_a_member_is_counted_there() {
    for (dir, threads) in places() {
        let served = Served::start(mirror(dir.path(), 2, 8 * MIB, 4 * MIB), threads);
        let first = OpenOptions::new().write(true).open(dir.path().join("0")).unwrap();
        first.set_len(4 * MIB).unwrap();
        read(&served.submissions, 5 * MIB, 4096).recv().unwrap().unwrap();
        write(&served.submissions, 6 * MIB, vec![1; 512]).recv().unwrap().unwrap();
        let all = figures(&served);
        let member = |id| all.of(MemberId(id)).expect("a member");
        assert_eq!(counted(&all.requests.read), (1, 4096, 0));
        assert_eq!(counted(&member(0).read), (1, 0, 1));
        assert_eq!(counted(&member(0).write), (1, 0, 1));
        assert_eq!(counted(&member(1).read), (1, 4096, 0));
        command(&served.submissions, Command::Fail(MemberId(0)), None).unwrap();
        command(&served.submissions, Command::Remove(MemberId(0)), None).unwrap();
        assert_eq!(figures(&served).of(MemberId(0)), None);
        served.stop();
    }
}

#[test]
fn what_takes_long_is_in_flight_and_then_in_a_later_bucket() {
    let served = Served::start(memory(MIB, MIB, |double| double.flush_millis(30)), false);
    let flushed = ask(&served.submissions, |done| Message::Flush { done });
    assert_eq!(figures(&served).requests.in_flight, 1);
    flushed.recv().unwrap().unwrap();
    let flush = figures(&served).requests.flush;
    assert!(flush.total_ns >= 30_000_000, "{flush:?}");
    // Up to 16.4 ms.
    let short = &flush.latency_counts.counts()[..9];
    assert!(short.iter().all(|count| *count == 0), "{flush:?}");
    served.stop();
}

#[test]
fn json_has_no_zeroes_at_the_end_and_longer_lists_are_taken() {
    let at = braid_array::Instant;
    let mut figures = IoFigures::default();
    figures.note((OperationKind::Write, 512), at(5), at(5 + 2 * SHORTEST_NS), true);
    figures.note((OperationKind::Write, 512), at(5), at(6), false);
    let json = serde_json::to_value(&figures).expect("JSON");
    let expected = serde_json::json!({
        "operations": 2, "bytes": 512, "errors": 1, "total_ns": 2 * SHORTEST_NS + 1,
        "latency_counts": [1, 1],
    });
    assert_eq!(json["write"], expected);
    assert_eq!(serde_json::from_value::<IoFigures>(json).expect("figures"), figures);
    let longer = Latencies::from(vec![1; BOUNDS + 3]);
    assert_eq!(longer.counts()[BOUNDS - 1..], [1, 3]);
}
