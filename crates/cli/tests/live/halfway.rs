//! Arrays that stopped in the middle of a reshape, in cases with more than one of them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::Lab;
use crate::support::export::{ask, connect, noise};

/// Changes the superblock of a RAID 5 as if a reshape to another layout had begun and moved nothing
/// so far.
pub(crate) fn begin_a_reshape(member: &Path) {
    const AT: u64 = 4096;
    let file = File::options().read(true).write(true).open(member).unwrap();
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, AT).unwrap();
    let word = |block: &[u8], at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
    let new_offset = (-1000_i32).cast_unsigned();
    let fields = [
        (8, word(&block, 8) | 4 | 64),
        (100, 5),
        (104, 0),
        (108, 0),
        (112, 0),
        (116, 1),
        (120, word(&block, 88)),
        (124, new_offset),
        (216, 0),
    ];
    for (at, value) in fields {
        block[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let length = 256 + 2 * word(&block, 220) as usize;
    block[length..].fill(0);
    let words = (0..length.next_multiple_of(4)).step_by(4);
    let sum: u64 = words.map(|at| u64::from(word(&block, at))).sum();
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    block[216..220].copy_from_slice(&(sum as u32).to_le_bytes());
    file.write_all_at(&block, AT).unwrap();
}

fn uri(socket: &Path) -> PathBuf {
    PathBuf::from(format!("nbd+unix:///?socket={}", socket.display()))
}

/// A mirror `top` of two arrays `left` and `right` with a mebibyte of noise at its beginning. The
/// members of both, and their sockets.
struct Mirror {
    left: Vec<PathBuf>,
    right: Vec<PathBuf>,
    sockets: [PathBuf; 2],
}

impl Mirror {
    fn new(lab: &Lab) -> Self {
        let create = |name: &str| {
            let members = lab.members(name, 3, 16);
            lab.ok(&format!("create {name} --level 5 --raid-devices 3 --assume-clean"), &members);
            members
        };
        let left = create("left");
        let right = create("right");
        let sockets = ["left.nbd", "right.nbd"].map(|name| lab.path(name));
        let mirror = Self { left, right, sockets };
        mirror.serve(lab, "");
        // What is at servers is only read: the mirror is made of files, which are then copied.
        let size = size_bytes(lab, "left");
        let halves = lab.members("half", 2, 0);
        for half in &halves {
            File::create(half).and_then(|file| file.set_len(size as u64)).unwrap();
        }
        lab.ok("create top --level 1 --raid-devices 2 --assume-clean", &halves);
        let socket = lab.path("top.nbd");
        lab.ok(&format!("assemble top --export nbd:unix:{}", socket.display()), &halves);
        let mut export = connect(&socket, "top", size_bytes(lab, "top"));
        ask(&mut export, 1, 0, &noise(1 << 20)).unwrap();
        drop(export);
        lab.ok("stop --force top", &[]);
        for (half, (name, socket)) in
            halves.iter().zip(["left", "right"].iter().zip(&mirror.sockets))
        {
            let mut export = connect(socket, name, size);
            let content = std::fs::read(half).unwrap();
            for (number, part) in content[..8 << 20].chunks(1 << 16).enumerate() {
                ask(&mut export, 1, (number as u64) << 16, part).unwrap();
            }
        }
        for name in ["left", "right"] {
            lab.ok(&format!("stop --force {name}"), &[]);
        }
        mirror
    }

    fn serve(&self, lab: &Lab, options: &str) {
        for (name, socket, members) in
            [("left", &self.sockets[0], &self.left), ("right", &self.sockets[1], &self.right)]
        {
            let export = socket.display();
            lab.ok(&format!("assemble {name} {options} --export nbd:unix:{export}"), members);
        }
    }

    fn uris(&self) -> Vec<PathBuf> {
        self.sockets.iter().map(|socket| uri(socket)).collect()
    }
}

fn size_bytes(lab: &Lab, name: &str) -> usize {
    let status = lab.ok(&format!("status {name} --json"), &[]);
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    status["size_bytes"].as_u64().unwrap() as usize
}

#[test]
fn an_array_of_arrays_of_which_one_stopped_in_a_reshape_is_read() {
    let lab = Lab::new();
    let mirror = Mirror::new(&lab);
    mirror.left.iter().for_each(|member| begin_a_reshape(member));
    let all = [&mirror.left[..], &mirror.right].concat();
    let content = noise(1 << 20);
    assert!(lab.ok("cat --length 1M", &all) == content);

    let line = lab.refused(1, "assemble --readonly", &all, &all);
    assert!(line.contains("), a member: the array stopped in a reshape"), "{line}");
    let members: Vec<String> = mirror.left.iter().map(|path| path.display().to_string()).collect();
    let serve = format!("braid assemble --readonly left {}", members.join(" "));
    assert!(line.contains("nbd+unix:///?socket=SOCKET") && line.contains(&serve), "{line}");
    let line = lab.refused(1, "assemble", &all, &all);
    assert!(line.contains("until that is over, it is only read"), "{line}");
    assert!(line.contains("braid assemble --readonly"), "{line}");

    // As it says.
    mirror.serve(&lab, "--readonly");
    lab.ok("assemble top --readonly", &mirror.uris());
    assert!(lab.ok("cat top --length 1M", &[]) == content);
}

#[test]
fn no_other_program_goes_on_with_a_reshape_that_is_read() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    lab.ok("create home --level 5 --raid-devices 3 --assume-clean", &members);
    members.iter().for_each(|member| begin_a_reshape(member));
    let socket = lab.path("home.nbd");
    lab.ok(&format!("assemble home --readonly --export nbd:unix:{}", socket.display()), &members);
    for words in ["upgrade home", "upgrade --check home"] {
        let line = lab.refused(1, words, &[], &members);
        assert!(line.contains("pieces of other arrays, with which no other program"), "{line}");
        assert!(line.contains("braid stop home"), "{line}");
    }
    lab.ok("cat home --length 1M", &[]);
    lab.ok("stop home", &[]);
    lab.ok("assemble home --readonly", &members);
}
