//! Next steps as they are typed.

use braid_array::assemble::Options;
use braid_array::refusal::{Invocation, Next};

/// Advice, the command, or the advice and then the command that carries it out.
pub(crate) fn next_step(next: &Next) -> String {
    next_step_with(next, "")
}

/// Returns the next step with these options of the command, each with a space in front.
pub(crate) fn next_step_with(next: &Next, options: &str) -> String {
    match (&*next.advice, next.invocation.as_deref()) {
        (advice, None) => advice.to_owned(),
        ("", Some(invocation)) => spelled(invocation, options),
        (advice, Some(invocation)) => format!("{advice}: {}", spelled(invocation, options)),
    }
}

/// The command line.
fn spelled(invocation: &Invocation, more: &str) -> String {
    let line = |command: &str, words: &[String]| {
        let words = words.iter().map(|word| shell_word(word));
        [format!("braid {command}{more}")].into_iter().chain(words).collect::<Vec<_>>().join(" ")
    };
    // Only an array that was asked has no name here, and is known by then.
    let array = |name: &Option<String>| -> Vec<String> { name.iter().cloned().collect() };
    match invocation {
        Invocation::Assemble { name, rename, options, devices } => {
            let rename = if *rename { " --rename" } else { "" };
            let scan = if name.is_none() && devices.is_empty() { " --scan" } else { "" };
            let words = [array(name), devices.clone()].concat();
            line(&format!("assemble{rename}{}{scan}", flags(*options)), &words)
        }
        Invocation::Cat { force, devices } => {
            line(if *force { "cat --force" } else { "cat" }, devices)
        }
        Invocation::Explain { devices } => line("assemble --explain", devices),
        Invocation::Examine { devices } => line("examine", devices),
        Invocation::Create => "braid create --help".to_owned(),
        Invocation::Status { array: name } => line("status", &array(name)),
        Invocation::Watch { array: name } => line("status --watch", &array(name)),
        Invocation::Detail { array: name } => line("detail", &array(name)),
        Invocation::Stop { array: name, force } => {
            line(if *force { "stop --force" } else { "stop" }, &array(name))
        }
        Invocation::Fail { array: name, device } => {
            line("fail", &[array(name), vec![device.clone()]].concat())
        }
        Invocation::Remove { array: name, device } => {
            line("remove", &[array(name), vec![device.clone()]].concat())
        }
        Invocation::Add { array: name, device } => {
            line("add", &[array(name), vec![device.clone()]].concat())
        }
    }
}

/// Returns the options of an assembly, each with a space in front.
fn flags(options: Options) -> String {
    let flags =
        [(options.read_only, " --readonly"), (options.run, " --run"), (options.force, " --force")];
    flags.iter().filter(|(set, _)| *set).map(|(_, flag)| *flag).collect()
}

/// A word that a shell takes as one.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,=@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_needed() {
        assert_eq!(shell_word("/dev/sda1"), "/dev/sda1");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn next_steps_are_advice_and_commands() {
        let options = Options { run: true, ..Options::default() };
        let devices = vec!["a".to_owned(), "it's".to_owned()];
        let assemble = Invocation::Assemble { name: None, rename: false, options, devices };
        assert_eq!(next_step(&"wait".into()), "wait");
        assert_eq!(next_step(&assemble.clone().into()), r"braid assemble --run a 'it'\''s'");
        let find = Next::by("find the others, or do without", assemble);
        let expected = r"find the others, or do without: braid assemble --run a 'it'\''s'";
        assert_eq!(next_step(&find), expected);
        let remove = Invocation::Remove { array: None, device: "/dev/b".to_owned() };
        assert_eq!(next_step(&Next::from(remove).about("home")), "braid remove home /dev/b");
    }
}
