//! Puts over the fabrics beside a plain TCP stream, alternating in one run between the same two
//! processes so that all meet the same weather.
//!
//!     cargo bench -p braid-host --bench fabric [-- FABRIC...]
//!     …/fabric receive HOST:PORT [FABRIC]    and elsewhere    …/fabric send HOST:PORT [FABRIC]
//!
//! With several fabrics, each listens one port above the one before; the plain stream comes last.
//! The bound: a stream of plain `write` and `read`, 1 MiB at a time, over as much memory. CPU is
//! that of both processes over the time, 100 % being one core (of the sender alone when they are
//! apart).

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use braid_array::action::{Command as Order, Event};
use braid_array::array::Scratch;
use braid_array::fabric::{FabricEvent, FabricOp, PeerId};
use braid_array::{Action, AnyMachine, Buf, Instant as Moment, IoId, Machine, Refusal};
use braid_host::arena::Arena;
use braid_host::engine::Engine;
use braid_host::fabric::frame::TransportKind;
use braid_host::submission::{Message, SubmissionQueue};

const RING_BYTES: u64 = 64 << 20;
const IN_FLIGHT_BYTES: u64 = 16 << 20;
const SIZES: [u32; 4] = [1 << 20, 256 << 10, 64 << 10, 4 << 10];
const ROUNDS: usize = 5;

/// Sends puts for a while, or takes them in.
struct Blaster {
    scratch: Scratch,
    actions: VecDeque<Action>,
    role: Role,
}

enum Role {
    Sender(Sending),
    /// How many puts have arrived since the last question, and how many are asked about.
    Receiver {
        placed: u64,
        asked: Option<(PeerId, u64)>,
    },
}

struct Sending {
    put_bytes: u32,
    time: Duration,
    /// When the connection stood.
    begun: Instant,
    started: u64,
    answered: u64,
    asked: bool,
    done: Sender<f64>,
}

const PEER: PeerId = PeerId(1);

impl Blaster {
    fn put(&mut self) {
        let Role::Sender(sending) = &mut self.role else { return };
        let slots = RING_BYTES / u64::from(sending.put_bytes);
        let offset = sending.started % slots * u64::from(sending.put_bytes);
        let from = Buf { offset: self.scratch.offset + offset, len: sending.put_bytes };
        let io = IoId(sending.started);
        sending.started += 1;
        let put = FabricOp::Put { io, peer: PEER, from, to: offset, imm: 0 };
        self.actions.push_back(Action::Fabric(put));
    }

    fn go_on(&mut self) {
        let Role::Sender(sending) = &mut self.role else { return };
        if sending.begun.elapsed() < sending.time {
            self.put();
        } else if sending.answered == sending.started && !sending.asked {
            sending.asked = true;
            let bytes = sending.started.to_le_bytes().to_vec();
            self.actions.push_back(Action::Fabric(FabricOp::Send { peer: PEER, bytes }));
        }
    }

    fn heard(&mut self, peer: PeerId, bytes: &[u8]) {
        match &mut self.role {
            Role::Sender(sending) => {
                let bytes = sending.started * u64::from(sending.put_bytes);
                let _ = sending.done.send(bytes as f64 / sending.begun.elapsed().as_secs_f64());
            }
            Role::Receiver { asked, .. } => {
                *asked = Some((peer, u64::from_le_bytes(bytes.try_into().expect("a number"))));
                self.answer();
            }
        }
    }

    /// Tells the sender when all has arrived.
    fn answer(&mut self) {
        if let Role::Receiver { placed, asked } = &mut self.role
            && let Some((peer, _)) = asked.take_if(|(_, count)| count == placed)
        {
            *placed = 0;
            let bytes = b"all there".to_vec();
            self.actions.push_back(Action::Fabric(FabricOp::Send { peer, bytes }));
        }
    }
}

impl Machine for Blaster {
    fn handle(&mut self, _: Moment, event: Event) {
        match event {
            Event::Fabric(FabricEvent::Accepted { peer, .. }) => {
                let window = 0..u64::MAX;
                self.actions.push_back(Action::Fabric(FabricOp::Admit { peer, window }));
            }
            Event::Fabric(FabricEvent::Connected { .. }) => {
                if let Role::Sender(sending) = &mut self.role {
                    sending.begun = Instant::now();
                    (0..IN_FLIGHT_BYTES / u64::from(sending.put_bytes)).for_each(|_| self.put());
                }
            }
            Event::Done { result, .. } => {
                result.expect("the other side is there");
                if let Role::Sender(sending) = &mut self.role {
                    sending.answered += 1;
                }
                self.go_on();
            }
            Event::Fabric(FabricEvent::Placed { .. }) => {
                if let Role::Receiver { placed, .. } = &mut self.role {
                    *placed += 1;
                }
                self.answer();
            }
            Event::Fabric(FabricEvent::Message { peer, bytes }) => self.heard(peer, &bytes),
            Event::Fabric(FabricEvent::Lost { peer, why }) if peer == PEER => panic!("{why}"),
            Event::Command { id, command } => {
                let other = || Refusal::new("no", "stop");
                let result = matches!(command, Order::Stop).then_some(()).ok_or_else(other);
                self.actions.push_back(Action::Reply { id, result });
            }
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn deadline(&self) -> Option<Moment> {
        None
    }

    fn idle(&self) -> bool {
        true
    }
}

/// An engine with a blaster in it.
fn engine(
    kind: TransportKind,
    role: Role,
    dial: Option<String>,
    listener: Option<TcpListener>,
) -> io::Result<Engine> {
    let arena = Arena::for_fabric(RING_BYTES, 1 << 20).expect("memory");
    let scratch = arena.scratch();
    let connect = |address| Action::Fabric(FabricOp::Connect { peer: PEER, address });
    let machine = Blaster { scratch, actions: dial.map(connect).into_iter().collect(), role };
    let machine = AnyMachine::Plain(Box::new(machine));
    let mut engine = Engine::new(machine, Vec::new(), arena).expect("an engine");
    engine.set_fabric(kind, listener).map_err(io::Error::other)?;
    Ok(engine)
}

fn stop(submissions: &SubmissionQueue) {
    let stop = |done| Message::Command { command: Order::Stop, device: None, done };
    let _ = submissions.call(stop);
}

/// Bytes a second of puts of this size.
fn puts(kind: TransportKind, address: SocketAddr, put_bytes: u32, time: Duration) -> f64 {
    let (done, finished) = mpsc::channel();
    let begun = Instant::now();
    let sending = Sending { put_bytes, time, begun, started: 0, answered: 0, asked: false, done };
    let engine = engine(kind, Role::Sender(sending), Some(address.to_string()), None);
    let engine = engine.expect("a fabric");
    let submissions = engine.submissions();
    let run = std::thread::spawn(move || engine.run());
    let rate = finished.recv().expect("it ends");
    stop(&submissions);
    run.join().expect("no panic").expect("an engine");
    rate
}

/// Bytes a second of a plain stream.
fn stream(address: SocketAddr, time: Duration) -> f64 {
    let mut socket = TcpStream::connect(address).expect("a stream");
    let ring = vec![1; RING_BYTES as usize];
    let begun = Instant::now();
    let mut bytes = 0;
    for piece in ring.chunks(1 << 20).cycle().take_while(|_| begun.elapsed() < time) {
        socket.write_all(piece).expect("a stream");
        bytes += piece.len();
    }
    socket.shutdown(std::net::Shutdown::Write).expect("a stream");
    socket.read_exact(&mut [0]).expect("an answer");
    bytes as f64 / begun.elapsed().as_secs_f64()
}

/// Takes in puts at this address and those above it, and plain streams above them.
fn receive(address: &str, kinds: &[TransportKind]) {
    let mut next: SocketAddr = address.parse().expect("an address");
    let mut first = None;
    let mut listen = || {
        let listener = TcpListener::bind(next).expect("an address");
        let local = listener.local_addr().expect("an address");
        first.get_or_insert(local);
        next.set_port(local.port() + 1);
        listener
    };
    for kind in kinds {
        let role = Role::Receiver { placed: 0, asked: None };
        let engine = engine(*kind, role, None, Some(listen())).expect("a fabric");
        std::thread::spawn(move || engine.run());
    }
    let plain = listen();
    println!("{}", first.expect("it listens"));
    let mut ring = vec![0; RING_BYTES as usize];
    for socket in plain.incoming() {
        let mut socket = socket.expect("a stream");
        let mut start = 0;
        loop {
            // Piece by piece, as puts go to one place after another.
            let end = (start / (1 << 20) + 1) << 20;
            match socket.read(&mut ring[start..end]).expect("a stream") {
                0 => break,
                more => start = (start + more) % (RING_BYTES as usize),
            }
        }
        socket.write_all(&[1]).expect("a stream");
    }
}

/// Seconds of CPU that processes have used.
fn cpu_seconds(processes: &[u32]) -> f64 {
    let ticks = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>()
    };
    processes.iter().map(ticks).sum::<f64>() / 100.0
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What is measured.
#[derive(Clone, Copy)]
enum Way {
    Stream,
    Puts(TransportKind, u32),
}

fn send(address: &str, kinds: &[TransportKind], time: Duration, processes: &[u32]) {
    let address: SocketAddr = address.parse().expect("an address");
    let above = |ports: usize| {
        SocketAddr::new(address.ip(), address.port() + u16::try_from(ports).expect("a few"))
    };
    let mut ways = vec![(Way::Stream, above(kinds.len()))];
    for (index, &kind) in kinds.iter().enumerate() {
        ways.extend(SIZES.map(|put_bytes| (Way::Puts(kind, put_bytes), above(index))));
    }
    let mut rates = vec![Vec::new(); ways.len()];
    let mut loads = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for (index, &(way, address)) in ways.iter().enumerate() {
            let cpu = cpu_seconds(processes);
            let begun = Instant::now();
            rates[index].push(match way {
                Way::Stream => stream(address, time),
                Way::Puts(kind, put_bytes) => puts(kind, address, put_bytes, time),
            });
            loads[index].push((cpu_seconds(processes) - cpu) / begun.elapsed().as_secs_f64());
        }
    }
    let bound = median(&mut rates[0]);
    println!("{:<20} {:>9} {:>7} {:>6} {:>12}", "", "MB/s", "ratio", "CPU", "CPU per GB");
    for (index, (way, _)) in ways.iter().enumerate() {
        let name = match way {
            Way::Stream => "plain stream".into(),
            Way::Puts(kind, bytes) => format!("{kind}, puts of {}K", bytes >> 10),
        };
        let rate = median(&mut rates[index]);
        let load = median(&mut loads[index]);
        println!(
            "{name:<20} {:>9.1} {:>7.3} {:>5.0}% {:>10.2} s",
            rate / 1e6,
            rate / bound,
            load * 100.0,
            load / rate * 1e9
        );
    }
}

/// Both in one, with a process of its own for the other end.
fn send_to_myself(kinds: &[TransportKind]) {
    let program = std::env::current_exe().expect("this program");
    let mut other = Command::new(program)
        .args(["receive", "127.0.0.1:0"])
        .args(kinds.iter().map(TransportKind::to_string))
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let mut address = String::new();
    let output = other.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut address).expect("its address");
    let processes = [std::process::id(), other.id()];
    send(address.trim(), kinds, Duration::from_secs(1), &processes);
    let _ = other.kill();
    let _ = other.wait();
}

/// Those that there are here.
fn fabrics(names: &[&str]) -> Vec<TransportKind> {
    let kinds = names.iter().map(|name| name.parse().unwrap_or_else(|why| panic!("{why}")));
    let here = |kind: &TransportKind| {
        let role = Role::Receiver { placed: 0, asked: None };
        match engine(*kind, role, None, None) {
            Ok(_) => true,
            Err(why) => {
                eprintln!("SKIPPED {kind}: {why}");
                false
            }
        }
    };
    kinds.filter(here).collect()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["receive", address, names @ ..] => receive(address, &fabrics(or_tcp(names))),
        ["send", address, names @ ..] => {
            let kinds = fabrics(or_tcp(names));
            send(address, &kinds, Duration::from_secs(2), &[std::process::id()]);
        }
        [] => send_to_myself(&fabrics(&["tcp", "ofi:tcp", "ofi:shm"])),
        names => send_to_myself(&fabrics(names)),
    }
}

fn or_tcp<'a>(names: &'a [&'a str]) -> &'a [&'a str] {
    if names.is_empty() { &["tcp"] } else { names }
}
