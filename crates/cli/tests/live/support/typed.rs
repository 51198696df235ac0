//! Commands that were printed, typed as they are.

use std::path::{Path, PathBuf};
use std::process::Output;

use super::{Lab, program};

/// The commands in a text that read or start an array.
pub(crate) fn commands(text: &str) -> Vec<String> {
    let command = |line: &str| {
        let at =
            ["braid assemble ", "braid cat "].iter().filter_map(|words| line.find(words)).min();
        at.map(|at| line[at..].split("    #").next().unwrap_or_default().to_owned())
    };
    text.lines().filter_map(command).collect()
}

impl Lab {
    /// Types each command of a text that reads or starts an array, and compares the content that is
    /// then read with `content`, which must be its beginning. Commands that write get copies of the
    /// members. Arrays that serve as members of others are served until all has been read. Returns
    /// the number of commands.
    pub(crate) fn type_all(&self, text: &str, content: &[u8]) -> usize {
        let commands = commands(text);
        let serves = |command: &&String| command.contains(" --export ");
        for command in commands.iter().filter(serves) {
            self.type_and_succeed(command);
        }
        let served = self.typed_arrays();
        for command in commands.iter().filter(|command| !serves(command)) {
            let writes = command.starts_with("braid assemble ")
                && !["--readonly", "--overlay"].iter().any(|option| command.contains(option));
            let typed = if writes { self.copied(command) } else { command.clone() };
            let read = self.read_by(&typed, &served);
            let begins = read.starts_with(content);
            assert!(begins || command.contains("--list"), "{command} reads something else");
        }
        for name in served {
            self.type_and_succeed(&format!("braid stop {name}"));
        }
        commands.len()
    }

    /// Bytes that a command reads, or that can be read of the array that it starts beside others.
    fn read_by(&self, command: &str, others: &[String]) -> Vec<u8> {
        let read = self.type_and_succeed(command);
        if !command.starts_with("braid assemble ") {
            return read;
        }
        let name = self.typed_arrays().into_iter().find(|name| !others.contains(name));
        let name = name.expect("an array");
        let read = self.type_line(&format!("braid cat {name}")).stdout;
        self.type_and_succeed(&format!("braid stop {name}"));
        read
    }

    /// Names of the arrays that were started.
    fn typed_arrays(&self) -> Vec<String> {
        let Ok(sockets) = std::fs::read_dir(self.path("typed")) else { return Vec::new() };
        let names = sockets.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| Some(name.strip_suffix(".sock")?.to_owned())).collect()
    }

    /// Returns the output of a line, which must succeed.
    fn type_and_succeed(&self, line: &str) -> Vec<u8> {
        let output = self.type_line(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        output.stdout
    }

    /// Runs a line in a shell, with a run directory of its own.
    fn type_line(&self, line: &str) -> Output {
        let bin = program();
        let bin = bin.parent().expect("a directory").display();
        let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", line]).env("PATH", path).env("BRAID_RUN_DIR", self.path("typed"));
        shell.current_dir(self.path("")).output().expect("a shell")
    }

    /// A command about copies of the files that it names.
    fn copied(&self, command: &str) -> String {
        let mut copied = command.to_owned();
        for word in command.split_whitespace().filter(|word| Path::new(word).is_file()) {
            let copy = PathBuf::from(format!("{word}.copy"));
            let done = std::process::Command::new("cp").args([Path::new(word), &copy]).status();
            assert!(done.is_ok_and(|status| status.success()), "a copy of {word}");
            copied = copied.replace(word, &copy.display().to_string());
        }
        copied
    }
}
