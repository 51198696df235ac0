//! The 2-D XOR code and its schedules beside a model written independently, for every number of
//! nodes. `xor2d.txt` has the model's counts and digests of all it says.
//!
//! Digests are FNV-1a of lines: for a code `row,node:data+data+...` for every cell, for a schedule
//! `stage from>to data+data+...` for every transfer between nodes, sorted, then the ingress and the
//! egress of all nodes. For `encoder` they run over the schedules of all encoders, and the table
//! has the worst of them.

use braid_array::Role;
use std::fmt::Write as _;

use braid_cluster::schedule::{Endpoint, ScheduleError};
use braid_cluster::{Planner, Schedule, Xor2d};

const TABLE: &str = include_str!("../xor2d.txt");

#[test]
fn code_and_schedules_are_the_models() {
    let mut compared = 0;
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let nodes: u32 = fields[0].parse().expect("a number of nodes");
        let xor2d = Xor2d::new(nodes).expect("4 to 34 nodes");
        let found = match fields[1] {
            "code" => describe_code(&xor2d),
            "chain" => describe(&[plan(&xor2d, Planner::Chain)]),
            "static" => describe(&[plan(&xor2d, Planner::Static)]),
            "encoder" => describe(&encoders(&xor2d)),
            other => panic!("{other} in the table"),
        };
        assert_eq!(format!("{nodes} {} {found}", fields[1]), line);
        compared += 1;
    }
    assert_eq!(compared, 31 * 3 + 19, "codes, chains and encoders to 34, static for primes");
}

#[test]
fn every_schedule_builds_every_parity_exactly() {
    for nodes in 4..=34 {
        let xor2d = Xor2d::new(nodes).expect("4 to 34 nodes");
        let mut schedules = encoders(&xor2d);
        schedules.extend([plan(&xor2d, Planner::Client), plan(&xor2d, Planner::Chain)]);
        schedules.extend(xor2d.schedule(Planner::Static).ok());
        for schedule in schedules {
            assert_eq!(schedule.verify(xor2d.code()), Ok(()), "{nodes} nodes");
        }
    }
}

/// The path published for five nodes: matrices (1) to (5), sender, receiver and sum.
#[test]
fn the_chain_over_five_nodes_is_the_published_path() {
    let published = "0>2 G,1>0 B,2>3 K,3>1 F,\
        0>2 A+B,1>0 E+F,2>3 G+H,3>1 K+L,0>2 D+E+F,1>0 J+K+L,2>3 A+B+C,3>1 G+H+I,\
        0>3 B+D,1>2 F+J,2>1 C+G,3>0 I+K,0>4 A+I+K,1>4 C+E+G,2>4 F+H+J,3>4 B+D+L";
    let mut published: Vec<String> = published.split(',').map(str::to_owned).collect();
    let letters = |line: &str| {
        let (_, arc_and_terms) = line.split_once(' ').expect("a stage");
        let (arc, terms) = arc_and_terms.split_once(' ').expect("terms");
        let letter = |index: &str| char::from(b'A' + index.parse::<u8>().expect("an index"));
        let terms: Vec<String> = terms.split('+').map(|term| letter(term).to_string()).collect();
        format!("{arc} {}", terms.join("+"))
    };
    let chain = plan(&Xor2d::new(5).expect("5 nodes"), Planner::Chain);
    let mut ours: Vec<String> = transfers(&chain).iter().map(|line| letters(line)).collect();
    published.sort();
    ours.sort();
    assert_eq!(ours, published);
    assert_eq!((chain.ingress(), chain.egress()), (vec![7, 7, 7, 7, 4], vec![5, 5, 5, 5, 0]));
}

/// No way to build the parities moves fewer blocks than R(n-1), nor loads the busiest node with
/// fewer than R(2n-3)/n; a rotating encoder does with just that.
#[test]
fn the_encoder_meets_the_bounds_and_nothing_is_below_them() {
    for nodes in 4..=34u32 {
        let xor2d = Xor2d::new(nodes).expect("4 to 34 nodes");
        let rows = u32::from(xor2d.code().rows());
        let fewest = (rows * (nodes - 1)) as usize;
        let data = rows * (nodes - 2);
        let mut ingress = vec![0; nodes as usize];
        let mut egress = vec![0; nodes as usize];
        for schedule in encoders(&xor2d) {
            assert_eq!((schedule.node_transfers(), schedule.hops()), (fewest, 3));
            assert_eq!(schedule.client_egress(), data);
            ingress.iter_mut().zip(schedule.ingress()).for_each(|(sum, blocks)| *sum += blocks);
            egress.iter_mut().zip(schedule.egress()).for_each(|(sum, blocks)| *sum += blocks);
        }
        let balanced = rows * (2 * nodes - 3);
        assert_eq!(ingress, vec![balanced; nodes as usize], "{nodes} nodes, over n stripes");
        assert!(egress.iter().all(|&blocks| blocks <= balanced));
        let others = [xor2d.schedule(Planner::Chain).ok(), xor2d.schedule(Planner::Static).ok()];
        for schedule in others.into_iter().flatten() {
            assert!(schedule.node_transfers() >= fewest, "{nodes} nodes");
            assert!(schedule.ingress().into_iter().max() >= Some(balanced.div_ceil(nodes)));
            assert_eq!(schedule.client_egress(), data);
        }
        let client = plan(&xor2d, Planner::Client);
        assert_eq!((client.node_transfers(), client.client_egress()), (0, rows * nodes));
        assert_eq!(client.hops(), 1);
    }
}

#[test]
fn what_there_is_not_is_refused() {
    let xor2d = Xor2d::new(9).expect("9 nodes");
    assert_eq!(xor2d.schedule(Planner::Static).err(), Some(ScheduleError::NoStatic(9)));
    let error = xor2d.schedule(Planner::Encoder { node: Role(9) }).expect_err("nodes are 0 to 8");
    assert_eq!(error.to_string(), "node 9 cannot encode for 9 nodes");
}

fn plan(xor2d: &Xor2d, planner: Planner) -> Schedule {
    xor2d.schedule(planner).expect("this schedule exists")
}

fn encoders(xor2d: &Xor2d) -> Vec<Schedule> {
    let nodes = 0..xor2d.code().nodes();
    nodes.map(|node| plan(xor2d, Planner::Encoder { node: Role(node) })).collect()
}

fn describe_code(xor2d: &Xor2d) -> String {
    let code = xor2d.code();
    let mut text = String::new();
    for cell in code.cells() {
        let _ = writeln!(text, "{},{}:{}", cell.row, cell.node, code.terms(cell));
    }
    let reads = xor2d.fewest_reads(Role(0)).reads().len();
    format!("{} {} {reads} 0 {:016x}", code.rows(), code.data().len(), fnv(&text))
}

fn describe(schedules: &[Schedule]) -> String {
    let mut text = String::new();
    for schedule in schedules {
        for line in transfers(schedule) {
            let _ = writeln!(text, "{line}");
        }
        let loads = [schedule.ingress(), schedule.egress()].concat();
        let loads: Vec<String> = loads.iter().map(u32::to_string).collect();
        let _ = writeln!(text, "{}", loads.join(" "));
    }
    let worst = |load: fn(&Schedule) -> Vec<u32>| schedules.iter().flat_map(load).max();
    format!(
        "{} {} {} {} {:016x}",
        schedules[0].node_transfers(),
        schedules.iter().map(Schedule::hops).max().unwrap_or(0),
        worst(Schedule::ingress).unwrap_or(0),
        worst(Schedule::egress).unwrap_or(0),
        fnv(&text)
    )
}

/// `stage from>to terms` of the transfers between nodes, sorted as the numbers they are.
fn transfers(schedule: &Schedule) -> Vec<String> {
    let mut lines = Vec::new();
    for transfer in schedule.transfers() {
        let Endpoint::Node(from) = transfer.from else { continue };
        let indices: Vec<u32> = transfer.terms.iter().map(|(index, _)| index).collect();
        let line = format!("{} {from}>{} {}", transfer.stage, transfer.to, transfer.terms);
        lines.push(((transfer.stage, from, transfer.to, indices), line));
    }
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

fn fnv(text: &str) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}
