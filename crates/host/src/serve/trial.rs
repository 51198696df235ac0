//! Whether a file is a program of Braid that can be started here, before an array stops for it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use braid_array::Refusal;
use rustix::fs::Access;

use crate::system::describe;

/// Limit on the time in which a program reports its version.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// First bytes of programs: of native ones, and of scripts with an interpreter.
const HEADS: [&[u8]; 2] = [b"\x7fELF", b"#!"];

/// Checks a program by running it with `--version`.
pub(super) fn check_program(program: &Path) -> Result<(), Refusal> {
    let refused = |why: String| {
        let reason = format!("{} {why}", program.display());
        Refusal::new(reason, "name a program of braid that the array's process may start")
    };
    let cannot = |error: io::Error| refused(format!("cannot be started: {}", describe(&error)));
    rustix::fs::access(program, Access::EXEC_OK).map_err(|error| cannot(error.into()))?;
    let mut head = Vec::new();
    let read = File::open(program).and_then(|file| file.take(4).read_to_end(&mut head));
    read.map_err(cannot)?;
    if !HEADS.iter().any(|known| head.starts_with(known)) {
        return Err(refused("is no program".to_owned()));
    }
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(cannot)?;
    let ended = wait(&mut child).map_err(cannot)?;
    let mut said = String::new();
    if let Some(stdout) = &mut child.stdout
        && ended == Some(true)
    {
        // What it says is less than a pipe holds, so it ends without being heard.
        let _ = stdout.take(1024).read_to_string(&mut said);
    }
    match ended {
        Some(true) if said.starts_with("braid ") => Ok(()),
        Some(true) => Err(refused("is a program, but not braid".to_owned())),
        Some(false) => Err(refused("fails when it is asked for its version".to_owned())),
        None => Err(refused(format!("has not said its version in {} s", PATIENCE.as_secs()))),
    }
}

/// Waits for the end of a program, and returns whether it succeeded. `None`: it was killed after
/// the limit.
fn wait(child: &mut Child) -> io::Result<Option<bool>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if begun.elapsed() >= PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn tried(content: &[u8]) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        // Written by another process: a child that another test forks may have it open for writing.
        std::fs::write(dir.path().join("content"), content).unwrap();
        let copied =
            Command::new("cp").args(["content", "program"]).current_dir(dir.path()).status();
        assert!(copied.unwrap().success());
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        check_program(&path).map_err(|refusal| refusal.reason)
    }

    #[test]
    fn only_what_says_that_it_is_braid_is_started() {
        tried(b"#!/bin/sh\necho braid 9.9.9\n").unwrap();
        for (content, why) in [
            (&b"echo braid 9.9.9\n"[..], "is no program"),
            (b"", "is no program"),
            (b"\x7fELF and then nothing of the kind", "cannot be started"),
            (b"#!/bin/sh\nexit 0\n", "not braid"),
            (b"#!/bin/sh\necho braid 9.9.9\nexit 1\n", "fails"),
            (b"#!/nowhere/sh\n", "cannot be started"),
        ] {
            let found = tried(content).unwrap_err();
            assert!(found.contains(why), "{found}, not {why}");
        }
        let found = check_program(Path::new("/nowhere")).unwrap_err().reason;
        assert!(found.contains("cannot be started"), "{found}");
    }
}
