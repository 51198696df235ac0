//! Mutated bytes for every decoder. No nightly compiler, no corpus to keep: each target starts from
//! bytes that a real md wrote and mends the checksum after most mutations, so that the code behind
//! the checksum is reached.
//!
//! A finding prints the line that replays it.

use braid_fuzz::mutate::Random;
use braid_fuzz::{TARGETS, Target};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

const USAGE: &str = "usage: braid-fuzz [--seconds N] [--target NAME] [--case NUMBER]";

#[derive(Default)]
struct Arguments {
    seconds: Option<u64>,
    target: Option<String>,
    case: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("braid-fuzz: {reason}; {USAGE}");
            return ExitCode::from(2);
        }
    };
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

/// Cases one after the other, from a new beginning each time.
fn run(target: &Target, limit: Duration) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let first = Random::new(now.as_secs()).next() >> 16;
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
