//! Mutated bytes for every decoder. No nightly compiler, no corpus to keep: each target starts from
//! bytes that a real md wrote and mends the checksum after most mutations, so that the code behind
//! the checksum is reached.
//!
//! A finding prints the line that replays it.

use braid_fuzz::mutate::Random;
use braid_fuzz::{TARGETS, Target, strangers};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

const USAGE: &str = "usage: braid-fuzz [--seconds N] [--target NAME] [--case NUMBER]\n       \
                     braid-fuzz --strangers HOST:PORT,... [--seconds N] [--case NUMBER]";

#[derive(Default)]
struct Arguments {
    seconds: Option<u64>,
    target: Option<String>,
    case: Option<u64>,
    strangers: Vec<SocketAddr>,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("braid-fuzz: {reason}; {USAGE}");
            return ExitCode::from(2);
        }
    };
    if !arguments.strangers.is_empty() {
        return knock(&arguments);
    }
    let chosen = |target: &&Target| arguments.target.as_ref().is_none_or(|n| n == target.name);
    let mut failed = false;
    for target in TARGETS.iter().filter(chosen) {
        failed |= match arguments.case {
            Some(case) => !passes(target, case),
            None => !run(target, Duration::from_secs(arguments.seconds.unwrap_or(3))),
        };
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        let number = |text: String| text.parse().map_err(|_| format!("no number: {text}"));
        match word.as_str() {
            "--seconds" => arguments.seconds = Some(number(value()?)?),
            "--case" => arguments.case = Some(number(value()?)?),
            "--strangers" => {
                let port = |text: &str| text.parse().map_err(|_| format!("no port: {text}"));
                arguments.strangers = value()?.split(',').map(port).collect::<Result<_, _>>()?;
            }
            "--target" => {
                let name = value()?;
                if !TARGETS.iter().any(|target| target.name == name) {
                    return Err(format!("no target {name}"));
                }
                arguments.target = Some(name);
            }
            _ => return Err(format!("what is {word}?")),
        }
    }
    Ok(arguments)
}

/// Knocks at the ports of nodes.
fn knock(arguments: &Arguments) -> ExitCode {
    let seed = arguments.case.unwrap_or_else(|| Random::new(seconds_since_1970()).next());
    let limit = Duration::from_secs(arguments.seconds.unwrap_or(3));
    match strangers::run(&arguments.strangers, limit, seed) {
        Ok(tried) => {
            println!("{tried} strangers from {seed}: each was hung up on, and told nothing");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why} (from {seed})");
            ExitCode::FAILURE
        }
    }
}

fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Cases one after the other, from a new beginning each time.
fn run(target: &Target, limit: Duration) -> bool {
    let first = Random::new(seconds_since_1970()).next() >> 16;
    let began = Instant::now();
    let mut case = first;
    while began.elapsed() < limit {
        if !passes(target, case) {
            return false;
        }
        case += 1;
    }
    println!("fuzz {}: {} cases from {first}", target.name, case - first);
    true
}

/// One case: its number decides its bytes.
fn passes(target: &Target, case: u64) -> bool {
    let mut random = Random::new(case);
    let bytes = (target.make)(&mut random);
    if catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes))).is_ok() {
        return true;
    }
    let name = target.name;
    println!("fuzz {name}: a panic; cargo run -p braid-fuzz -- --target {name} --case {case}");
    false
}
