//! `braid-sim`: runs seeds and tells which of them fail.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use braid_sim::fault::Mutation;
use braid_sim::report::{Options, Report};
use braid_sim::{cluster, local};

const USAGE: &str = "usage: braid-sim [SEED] [--seeds N] [--start S] [--jobs J] [-v]
  SEED         run this one; with -v print every event
  --seeds N    run N seeds (default 1000)
  --start S    from seed S on (default 1)
  --jobs J     on J threads (default: all processors)
  --first      until the first fails
  --nested     seeds of arrays of arrays, not of local ones
  --logs       seeds of local arrays whose write hole is closed
  --old        seeds of local arrays whose superblocks are of version 0.90
  --cluster    seeds of arrays over nodes
  --mutate M   have the executor do something wrong, to see that it is noticed";

/// Returns the names of the mutations, one line for each world.
fn mutations() -> String {
    let names = |all: &[(Mutation, &'static str)]| {
        let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
        names.join(" ")
    };
    let local = names(Mutation::LOCAL);
    let over_nodes = names(Mutation::OVER_NODES);
    format!("mutations of local arrays: {local}\nand over nodes: {over_nodes}")
}

struct Args {
    start: u64,
    seeds: u64,
    jobs: usize,
    first: bool,
    options: Options,
    /// Runs a seed of the world that the seeds are of.
    run_seed: fn(u64, Options) -> Result<Report, String>,
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(reason) => {
            eprintln!("braid-sim: {reason}\n{USAGE}\n{}", mutations());
            return ExitCode::from(2);
        }
    };
    // A panic of the machine is a failure of its seed, told in that seed's line.
    if !args.options.verbose {
        std::panic::set_hook(Box::new(|_| {}));
    }
    // Freeing a large block makes glibc keep large blocks for reuse from now on. Seeds need a few
    // megabytes each; having the kernel map them anew every time takes half of the time.
    drop(std::hint::black_box(vec![1_u8; 24 << 20]));
    let began = Instant::now();
    let [next, passed, failed, events] = [const { AtomicU64::new(0) }; 4];
    // Equal for two builds in which every seed is the same run.
    let digest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let over = args.first && failed.load(Ordering::Relaxed) > 0;
                    if index >= args.seeds || over {
                        break;
                    }
                    match (args.run_seed)(args.start + index, args.options) {
                        Ok(report) => {
                            passed.fetch_add(1, Ordering::Relaxed);
                            events.fetch_add(report.events, Ordering::Relaxed);
                            let seed = report.trace_hash.wrapping_mul(2 * (args.start + index) + 1);
                            digest.fetch_add(seed, Ordering::Relaxed);
                        }
                        Err(line) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("FAILED {line}");
                        }
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let passed = passed.into_inner();
    let failed = failed.into_inner();
    println!(
        "{} seeds, {} events, digest {:016x} in {seconds:.1} s: {:.0} seeds/s",
        passed + failed,
        events.into_inner(),
        digest.into_inner(),
        (passed + failed) as f64 / seconds
    );
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options::default();
    let run_seed = local::run::run_seed;
    let mut args = Args { start: 1, seeds: 1000, jobs, first: false, options, run_seed };
    let mut known = Mutation::LOCAL;
    let mut mutate = None;
    while let Some(word) = words.next() {
        let mut number = |name: &str| {
            let value = words.next().ok_or(format!("{name} needs a number"))?;
            value.parse::<u64>().map_err(|_| format!("{name} {value} is not a number"))
        };
        match word.as_str() {
            "--seeds" => args.seeds = number("--seeds")?,
            "--start" => args.start = number("--start")?,
            "--jobs" => args.jobs = number("--jobs")?.max(1) as usize,
            "--nested" => args.run_seed = local::run::run_nested_seed,
            "--logs" => args.run_seed = local::run::run_log_seed,
            "--old" => args.run_seed = local::run::run_old_seed,
            "--cluster" => {
                args.run_seed = cluster::run::run_seed;
                known = Mutation::OVER_NODES;
            }
            "--first" => args.first = true,
            "--mutate" => mutate = Some(words.next().unwrap_or_default()),
            "-v" | "--verbose" => args.options.verbose = true,
            seed => {
                args.start = seed.parse().map_err(|_| format!("unknown argument {seed:?}"))?;
                args.seeds = 1;
            }
        }
    }
    if args.options.verbose {
        args.jobs = 1;
    }
    let named = |name: String| Mutation::named(known, &name).ok_or(format!("no mutation {name:?}"));
    args.options.mutation = mutate.map(named).transpose()?;
    Ok(args)
}
