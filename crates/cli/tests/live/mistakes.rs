//! Mistakes that are easily made: for each the command, its exit status, what the line says, and the
//! next step that is advised.

use crate::support::Lab;

/// A command in a directory with empty files `m0` to `m3`; the exit status; what the line on stderr
/// says, and its next step.
type Mistake = (&'static str, i32, &'static str, &'static str);

#[test]
fn a_mistake_is_told_with_the_way_out() {
    let lab = Lab::new();
    let members = lab.members("m", 4, 8);
    for (words, code, said, next) in MISTAKES {
        let line = lab.refused(*code, words, &[], &members);
        assert!(line.contains(said), "braid {words}: {line}");
        let (_, step) = line.split_once("; ").expect("a next step");
        assert!(step.contains(next), "braid {words}: {line}");
    }
}

const MISTAKES: &[Mistake] = &[
    // What everybody on the network could write to.
    ("assemble x m0 --export nbd:0.0.0.0:10809", 2, "is unknown", "nbd:tcp:HOST:PORT"),
    ("assemble x m0 --export nbd:tcp:0.0.0.0:10809", 1, "0.0.0.0:10809", "ssh tunnel"),
    ("assemble x m0 --export nbd:tcp:0.0.0.0:10809", 1, "nothing is encrypted", "--insecure"),
    ("assemble x m0 --export nbd:tcp:[::]:10809", 1, "[::]:10809", "loopback address"),
    ("create x -l 1 -n 2 mem:8M mem:8M --export nbd:tcp:0.0.0.0:0", 1, "0.0.0.0:0", "--insecure"),
];
