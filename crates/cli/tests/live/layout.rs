//! `layout` over nodes: the published figure and transfers for five nodes, and for every level and
//! schedule a stripe that the transfers build, as its JSON alone tells it.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::Lab;
use serde_json::Value;

/// Figure 3 of Otsuji and Tatebe, data chunks by letter.
const FIGURE_3: [&str; 4] = [
    "A      B      C      A+B+C  F+H+J",
    "D      E      D+E+F  F      A+I+K",
    "G      G+H+I  H      I      B+D+L",
    "J+K+L  J      K      L      C+E+G",
];

/// Their transfer matrices (1) to (5).
const MATRICES: [&str; 5] = [
    "0>2 G      1>0 B      2>3 K      3>1 F",
    "0>2 A+B    1>0 E+F    2>3 G+H    3>1 K+L",
    "0>2 D+E+F  1>0 J+K+L  2>3 A+B+C  3>1 G+H+I",
    "0>3 B+D    1>2 F+J    2>1 C+G    3>0 I+K",
    "0>4 A+I+K  1>4 C+E+G  2>4 F+H+J  3>4 B+D+L",
];

type Place = (u64, u64);
type Terms = BTreeSet<u64>;

fn layout(lab: &Lab, words: &str) -> Value {
    let json = lab.ok(&format!("layout {words} --json"), &[]);
    serde_json::from_slice(&json).expect("one JSON object")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn place(value: &Value) -> Place {
    (number(&value["row"]), number(&value["member"]))
}

fn terms(transfer: &Value) -> Terms {
    list(&transfer["terms"]).iter().map(number).collect()
}

fn letters(terms: &Terms) -> String {
    let letter = |&index: &u64| char::from(b'A' + u8::try_from(index).unwrap()).to_string();
    terms.iter().map(letter).collect::<Vec<_>>().join("+")
}

/// By place: which data chunks a cell is made of.
fn contents(map: &Value) -> BTreeMap<Place, Terms> {
    let mut contents = BTreeMap::new();
    for cell in list(&map["cells"]).iter().filter(|cell| cell["kind"] == "data") {
        contents.insert(place(cell), Terms::from([number(&cell["index"])]));
    }
    for equation in list(&map["equations"]) {
        let data = list(&equation["terms"]).iter().flat_map(|term| contents[&place(term)].clone());
        let sum = data.collect();
        let twice = contents.insert(place(&equation["parity"]), sum);
        assert_eq!(twice, None, "a parity is no data and has one equation");
    }
    contents
}

#[test]
fn five_nodes_are_the_published_figure() {
    let map = layout(&Lab::new(), "--level 6 --layout xor2d --raid-devices 5");
    assert_eq!((&map["level"], &map["layout"]), (&"raid6".into(), &"xor2d".into()));
    assert_eq!((number(&map["rows"]), number(&map["chunk_bytes"])), (4, 512 << 10));
    assert_eq!(map["schedule"], Value::Null);
    let contents = contents(&map);
    for (row, line) in (0..).zip(FIGURE_3) {
        for (member, expected) in (0..).zip(line.split_whitespace()) {
            assert_eq!(letters(&contents[&(row, member)]), expected, "row {row}, node {member}");
        }
    }
    for cell in list(&map["cells"]) {
        let (row, member) = place(cell);
        let kind = match member {
            4 => "diag",
            _ if row + member == 3 => "parity",
            _ => "data",
        };
        assert_eq!(cell["kind"], kind, "row {row}, node {member}");
    }
    let terms = list(&map["equations"]).iter().flat_map(|equation| list(&equation["terms"]));
    assert!(terms.into_iter().all(|term| term["coef"] == 1), "all sums are xor");
}

#[test]
fn the_chain_over_five_nodes_is_the_published_path() {
    let map = layout(&Lab::new(), "--level 6 --layout xor2d --raid-devices 5 --schedule chain");
    let schedule = &map["schedule"];
    assert_eq!(schedule["name"], "chain");
    assert_eq!(schedule["ingress"], serde_json::json!([7, 7, 7, 7, 4]));
    assert_eq!(schedule["egress"], serde_json::json!([5, 5, 5, 5, 0]));
    let mut stages = BTreeMap::new();
    for transfer in list(&schedule["transfers"]).iter().filter(|t| t["from"] != "client") {
        let arc = format!("{}>{}", number(&transfer["from"]), number(&transfer["to"]));
        stages.insert(format!("{arc} {}", letters(&terms(transfer))), number(&transfer["stage"]));
    }
    // Sets (2) and (4) both need (1), (3) and (5) need those.
    let mut count = 0;
    for (matrix, stage) in MATRICES.into_iter().zip([1, 2, 3, 2, 3]) {
        for arc in matrix.split("  ").map(str::trim).filter(|arc| !arc.is_empty()) {
            let arc = arc.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(stages.get(&arc), Some(&stage), "{arc} in {stages:?}");
            count += 1;
        }
    }
    assert_eq!((count, stages.len()), (20, 20));
}

#[test]
fn schedules_build_every_cell() {
    let lab = Lab::new();
    for schedule in ["client", "chain", "encoder", "static"] {
        let xor2d = [4, 5, 6, 7, 8, 34].into_iter().filter(|&n| schedule != "static" || n != 34);
        for nodes in xor2d {
            let words = format!("--level 6 --layout xor2d --raid-devices {nodes}");
            builds(&lab, &format!("{words} --schedule {schedule}"));
        }
    }
    let levels = ["0", "1", "4", "5", "6", "10", "5 --layout right-asymmetric", "10 --layout o2"];
    for level in levels.into_iter().chain(["6 --layout ddf-N-continue", "10 --layout n3"]) {
        for schedule in ["client", "chain", "encoder"] {
            builds(&lab, &format!("--level {level} --raid-devices 5 --schedule {schedule}"));
        }
    }
}

/// Checks the JSON of one stripe. Data chunks come from the client, nodes send only sums of chunks
/// received before, the node of each parity ends with all its terms, and the loads match the
/// counts.
fn builds(lab: &Lab, words: &str) {
    let map = layout(lab, words);
    let contents = contents(&map);
    let rows = number(&map["rows"]);
    let members = number(&map["raid_devices"]);
    assert_eq!(contents.len() as u64, rows * members, "{words}: every cell");
    let data = list(&map["cells"]).iter().filter(|cell| cell["kind"] == "data");
    let indices: BTreeSet<u64> = data.map(|cell| number(&cell["index"])).collect();
    assert!(indices.iter().copied().eq(0..indices.len() as u64), "{words}: counted from 0");

    let nodes = usize::try_from(members).unwrap();
    let mut ingress = vec![0; nodes];
    let mut egress = vec![0; nodes];
    // By node: what has arrived, and at which stage.
    let mut arrived: Vec<Vec<(u64, Terms)>> = vec![Vec::new(); nodes];
    let mut last = 0;
    for transfer in list(&map["schedule"]["transfers"]) {
        let stage = number(&transfer["stage"]);
        let terms = terms(transfer);
        assert!(stage >= last, "{words}: in order");
        last = stage;
        if transfer["from"] == "client" {
            assert_eq!(stage, 0, "{words}");
        } else {
            let from = usize::try_from(number(&transfer["from"])).unwrap();
            let sender = arrived[from].iter().filter(|(at, _)| *at < stage);
            assert!(adds_up(sender.map(|(_, got)| got), &terms), "{words}: {transfer}");
            egress[from] += 1;
        }
        let to = usize::try_from(number(&transfer["to"])).unwrap();
        ingress[to] += 1;
        arrived[to].push((stage, terms));
    }
    for ((row, member), terms) in &contents {
        let here = &arrived[usize::try_from(*member).unwrap()];
        assert!(adds_up(here.iter().map(|(_, got)| got), terms), "{words}: row {row}, {member}");
    }
    assert_eq!(map["schedule"]["ingress"], serde_json::json!(ingress), "{words}");
    assert_eq!(map["schedule"]["egress"], serde_json::json!(egress), "{words}");
}

/// Returns whether `wanted` is the xor of some of these, by Gaussian elimination with the first
/// term of each as pivot. Transfers name no coefficients, and need none here: no transfer has a
/// chunk cancelled.
fn adds_up<'a>(given: impl Iterator<Item = &'a Terms>, wanted: &Terms) -> bool {
    let mut pivots: BTreeMap<u64, Terms> = BTreeMap::new();
    let reduce = |terms: &Terms, pivots: &BTreeMap<u64, Terms>| {
        let mut rest = terms.clone();
        let mut from = 0;
        while let Some(&first) = rest.range(from..).next() {
            if let Some(pivot) = pivots.get(&first) {
                rest = rest.symmetric_difference(pivot).copied().collect();
            }
            from = first + 1;
        }
        rest
    };
    for terms in given {
        let rest = reduce(terms, &pivots);
        if let Some(&first) = rest.first() {
            pivots.insert(first, rest);
        }
    }
    reduce(wanted, &pivots).is_empty()
}

#[test]
fn people_read_the_grid_the_transfers_and_the_loads() {
    let words = "layout --level 6 --layout xor2d --raid-devices 5 --schedule chain";
    let text = Lab::new().ok_text(words, &[]);
    let lines: Vec<&str> = text.lines().collect();
    let words_of = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let has = |wanted: &str| lines.iter().any(|line| words_of(line) == wanted);
    assert_eq!(lines[0], "raid6, 5 members, xor2d, chunk 512K, first stripe");
    assert_eq!(words_of(lines[2]), "row m0 m1 m2 m3 m4");
    assert_eq!(words_of(lines[3]), "0 D0 D1 D2 P0 Q0");
    assert!(has("P0 = D0 + D1 + D2") && has("Q0 = D5 + D7 + D9"), "{text}");
    assert!(has("client -> m0 D0, D3, D6") && has("m2 -> m1 D2+D6"), "{text}");
    assert!(has("client 0 12") && has("m3 7 5") && has("m4 4 0"), "{text}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let lab = Lab::new();
    let table = [
        ("--level 6 --layout xor2d --raid-devices 3", "4 to 34"),
        ("--level 6 --layout xor2d --raid-devices 35", "4 to 34"),
        ("--level 6 --layout xor2d --raid-devices 4294967295", "4 to 34"),
        ("--level 6 --layout xor2d --raid-devices 9 --schedule static", "static"),
        ("--level 6 --layout xor2d --raid-devices 5 --chunk 3K", "chunk"),
        ("--level 6 --layout xor2d --raid-devices 5 --schedule mix", "mix"),
        ("--level 5 --layout xor2d --raid-devices 5", "raid5 has no layout xor2d"),
        ("--level 7 --layout xor2d --raid-devices 5", "level"),
        ("--level 6 --raid-devices 5 --schedule static", "raid6 has no static schedule"),
        ("--level linear --raid-devices 5 --schedule client", "no stripes"),
        ("--level 10 --layout f2 --raid-devices 5 --schedule chain", "far copies"),
    ];
    for (words, said) in table {
        let line = lab.refused(2, &format!("layout {words}"), &[], &[]);
        assert!(line.contains(said), "braid layout {words}: {line}");
    }
}
