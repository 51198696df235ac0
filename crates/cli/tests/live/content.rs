//! Agreement of `layout` and `cat`: members are filled as `layout` prints, with parity by its
//! equations, and read by `cat`; all of them, and all but the members that may be missing.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;

use crate::support::Lab;
use serde_json::Value;

const CHUNK: usize = 8192;
const MIB: u64 = 8;

type Place = (u64, u64);

/// Multiplication in GF(2^8) modulo 0x11d.
fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = (a << 1) ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    product
}

fn chunk_of(index: u64) -> Vec<u8> {
    let mut state = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..CHUNK)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

fn place(value: &Value) -> Place {
    (value["row"].as_u64().unwrap(), value["member"].as_u64().unwrap())
}

/// Every chunk of one period of the pattern.
fn cells(map: &Value) -> BTreeMap<Place, Vec<u8>> {
    let mut cells = BTreeMap::new();
    for cell in map["cells"].as_array().unwrap() {
        if cell["kind"] == "data" {
            cells.insert(place(cell), chunk_of(cell["index"].as_u64().unwrap()));
        }
    }
    for equation in map["equations"].as_array().unwrap() {
        let mut sum = vec![0; CHUNK];
        for term in equation["terms"].as_array().unwrap() {
            let coef = u8::try_from(term["coef"].as_u64().unwrap()).unwrap();
            for (sum, byte) in sum.iter_mut().zip(&cells[&place(term)]) {
                *sum ^= times(coef, *byte);
            }
        }
        cells.insert(place(&equation["parity"]), sum);
    }
    cells
}

/// Makes an array of this shape, fills one period of its pattern and reads it, also without up to
/// `missing` members.
fn check(level: &str, layout: Option<&str>, count: usize, missing: usize) {
    let lab = Lab::new();
    let members = lab.members("m", count, MIB);
    let layout = layout.map_or_else(String::new, |name| format!("--layout {name}"));
    let shape = format!("--level {level} --raid-devices {count} {layout} --chunk {CHUNK}");
    lab.ok(&format!("create x {shape} --assume-clean"), &members);
    let map: Value =
        serde_json::from_slice(&lab.ok(&format!("layout {shape} --json"), &[])).unwrap();
    let examined: Value = serde_json::from_slice(&lab.ok("examine --json", &members[..1])).unwrap();
    let offset = examined[0]["data_offset_sectors"].as_u64().unwrap() * 512;
    // Far copies lie in the second part of each member, which layout shows close by.
    let used = examined[0]["used_dev_size_sectors"].as_u64().unwrap() * 512;
    let rows = map["rows"].as_u64().unwrap();
    let far = map["layout"].as_str().is_some_and(|name| name.starts_with("far"));
    for ((row, member), bytes) in cells(&map) {
        let at = match (far, row >= rows / 2) {
            (true, true) => {
                used / 2 / CHUNK as u64 * CHUNK as u64 + (row - rows / 2) * CHUNK as u64
            }
            _ => row * CHUNK as u64,
        };
        let path = &members[usize::try_from(member).unwrap()];
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&bytes, offset + at).unwrap();
    }
    let data = map["cells"].as_array().unwrap().iter().filter(|cell| cell["kind"] == "data");
    let indices: Vec<u64> = data.map(|cell| cell["index"].as_u64().unwrap()).collect();
    let chunks = indices.iter().max().unwrap() + 1;
    let expected: Vec<u8> = (0..chunks).flat_map(chunk_of).collect();
    for left_out in combinations(count, missing) {
        let kept = members.iter().enumerate().filter(|(i, _)| !left_out.contains(i));
        let kept: Vec<PathBuf> = kept.map(|(_, path)| path.clone()).collect();
        let read = lab.ok(&format!("cat --length {}", expected.len()), &kept);
        assert!(read == expected, "level {level} {layout} without {left_out:?}");
        let part = lab.ok("cat --offset 5000 --length 9000", &kept);
        assert!(part == expected[5000..14000], "level {level} {layout} without {left_out:?}");
    }
}

/// Every choice of at most `missing` of `count`.
fn combinations(count: usize, missing: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for first in 0..count {
        if missing > 0 {
            all.push(vec![first]);
        }
        if missing > 1 {
            all.extend((first + 1..count).map(|second| vec![first, second]));
        }
    }
    all
}

#[test]
fn striped_and_mirrored() {
    check("0", None, 3, 0);
    check("10", Some("n2"), 4, 1);
    check("10", Some("n2"), 3, 1);
    check("10", Some("n3"), 5, 2);
    check("10", Some("f2"), 3, 1);
    check("10", Some("o2"), 4, 1);
}

#[test]
fn parity() {
    check("4", None, 3, 1);
    let layouts = ["left-symmetric", "right-asymmetric", "parity-first", "ra", "ls"];
    for layout in layouts {
        check("5", Some(layout), 4, 1);
    }
}

#[test]
fn double_parity() {
    for layout in ["left-symmetric", "left-asymmetric", "ddf-N-continue", "right-symmetric-6"] {
        check("6", Some(layout), 5, 2);
    }
}

#[test]
fn arrays_of_arrays_are_read() {
    let lab = Lab::new();
    let inner = [lab.members("a", 2, MIB), lab.members("b", 2, MIB)];
    for (name, members) in ["a", "b"].iter().zip(&inner) {
        let words = format!("create {name} --level 1 --raid-devices 2 --assume-clean");
        lab.ok(&words, members);
    }
    // The outer array is made on copies of the inner arrays' content, and put into both mirrors.
    let outer = lab.members("content", 2, MIB - 1);
    for (content, members) in outer.iter().zip(&inner) {
        std::fs::write(content, lab.ok("cat", members)).unwrap();
    }
    lab.ok("create outer --level 0 --raid-devices 2 --chunk 64K --assume-clean", &outer);
    let mut stripe = Vec::new();
    for (i, (content, members)) in outer.iter().zip(&inner).enumerate() {
        let file = OpenOptions::new().write(true).open(content).unwrap();
        let chunk = vec![u8::try_from(i).unwrap() + 1; 65536];
        file.write_all_at(&chunk, 1 << 20).unwrap();
        stripe.extend(chunk);
        let bytes = std::fs::read(content).unwrap();
        for member in members {
            OpenOptions::new()
                .write(true)
                .open(member)
                .unwrap()
                .write_all_at(&bytes, 1 << 20)
                .unwrap();
        }
    }
    let all = inner.concat();
    assert!(lab.ok("cat --length 128K", &all) == stripe);
    let degraded = [all[1].clone(), all[2].clone()];
    assert!(lab.ok("cat --length 128K", &degraded) == stripe);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 64);
    lab.ok("create x --level 0 --raid-devices 2", &members);
    let mut child = lab
        .braid()
        .arg("cat")
        .args(&members)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
