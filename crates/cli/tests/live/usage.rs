//! Wrong usage: exit status 2, one line, no byte on any member changed.

use crate::support::{Lab, install, install_script, program, skip};

#[test]
fn wrong_words_are_refused_in_one_line() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 8);
    let table = [
        ("config", "no command"),
        ("--run-dir run", "no command"),
        ("frobnicate", "frobnicate"),
        ("create", "required"),
        ("create x --level 5", "required"),
        ("create x --level 5 --raid-devices three", "three"),
        ("create x --level 5 --raid-devices 3 --frob", "--frob"),
        ("detail", "required"),
        ("detail x --json --export", "cannot be used with"),
        ("sync x --max fast", "none for no limit"),
        ("sync x --min 2M --max 1M", "more than"),
        ("sync x --min 1X", "not a size"),
        ("sync x --pause --resume", "cannot be used with"),
        ("cat", "required"),
        ("completions nosuchshell", "nosuchshell"),
        ("assemble", "which one"),
        ("assemble x --export iscsi:y", "export"),
        ("assemble x --export ublk:y", "has no number"),
        ("assemble x --export nbd:tcp:host", "port"),
        ("assemble .hidden m0", "begin with '.'"),
        ("assemble --rename x:y m0", "cannot contain ':'"),
        ("assemble 123456789012345678901234567890123 m0", "33 bytes"),
        ("create --level 1 -n 2 -- -x m0 m1", "begin with '-'"),
        ("create x:y --level 1 -n 2 m0 m1", "cannot contain ':'"),
        ("create 123456789012345678901234567890123 --level 1 -n 2 m0 m1", "33 bytes"),
        ("layout --level 5 --raid-devices 1", "members"),
        ("layout --level 7 --raid-devices 3", "level"),
    ];
    for (words, said) in table {
        let line = lab.refused(2, words, &[], &members);
        assert!(line.contains(said), "braid {words}: {line}");
    }
}

#[test]
fn options_of_create_out_of_range_are_refused() {
    let lab = Lab::new();
    let members = lab.members("m", 4, 8);
    let table = [
        ("--level 5 --raid-devices 3 --chunk 0", "chunk"),
        ("--level 5 --raid-devices 3 --chunk 3K", "chunk"),
        ("--level 5 --raid-devices 3 --chunk 8388607T", "chunk"),
        ("--level 5 --raid-devices 3 --chunk 64KB", "chunks of 125 sectors"),
        ("--level 1 --raid-devices 3 --chunk 64K", "chunk"),
        ("--level 5 --raid-devices 3 --size 1", "size"),
        ("--level 5 --raid-devices 3 --size 1000", "--size 1000K"),
        ("--level 5 --raid-devices 3 --size 40960", "--size 40960K"),
        ("--level 5 --raid-devices 3 --size 1T", "size"),
        ("--level 0 --raid-devices 3 --size 4M", "size"),
        ("--level 5 --raid-devices 3 --layout n2", "layout"),
        ("--level 6 --raid-devices 3", "members"),
        ("--level 6 --raid-devices 3 --layout xor2d", "nodes"),
        ("--level 10 --raid-devices 3 --layout n4", "layout n4"),
        ("--level 5 --raid-devices 3 --bitmap external", "bitmap"),
        ("--level 0 --raid-devices 3 --bitmap internal", "bitmap"),
        ("--level 4 --raid-devices 3 --consistency-policy ppl", "partial parity logs"),
        ("--level 5 --raid-devices 3 --consistency-policy journal", "--write-journal"),
        ("--level 5 --raid-devices 3 --consistency-policy bitmap --bitmap none", "contradict"),
        ("--level 5 --raid-devices 4", "4 are needed; write 'missing'"),
        ("--level 5 --raid-devices 2", "2 are needed; leave 1 out, or say --raid-devices 3"),
        ("--level riad5 --raid-devices 3", "did you mean raid5?"),
        ("--level 6 --raid-devices 3 --layout left-symetric", "did you mean left-symmetric?"),
        ("--level 5 --raid-devices 3 --spare-devices 1", "spares"),
        ("--level 5 --raid-devices 0", "members"),
        ("--level 5 --raid-devices 4294967295", "members"),
        ("--level linear --raid-devices 2 --spare-devices 1", "spares"),
    ];
    for (words, said) in table {
        let words = format!("create x {words}");
        let line = lab.refused(2, &words, &members[..3], &members);
        assert!(line.contains(said), "braid {words}: {line}");
    }
    for name in [".x", "a:b", "0123456789012345678901234567890123"] {
        let words = format!("create {name} --level 5 --raid-devices 3");
        let line = lab.refused(2, &words, &members[..3], &members);
        assert!(line.contains("name"), "{line}");
    }
}

#[test]
fn what_was_probably_meant_is_said() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 8);
    for (words, said) in [
        ("staus", "did you mean status?"),
        ("help staus", "did you mean status?"),
        ("create x --levl 5", "did you mean --level?"),
        ("layout -l 5 -n 3 --schedule chian", "did you mean chain?"),
    ] {
        let line = lab.refused(2, words, &[], &[]);
        assert!(line.contains(said), "braid {words}: {line}");
    }
    let words = "create x -l 5 -n 4 mising";
    let line = lab.refused(1, words, &members, &members);
    assert!(line.contains("mising: no such file or device; did you mean missing?"), "{line}");
}

#[test]
fn members_are_counted_where_nobody_says_how_many() {
    let lab = Lab::new();
    let members = lab.members("m", 4, 8);
    for (options, count, spares) in [
        ("-l 5", ", 4 members, ", 0),
        ("-l 5 -x 1", ", 3 members, ", 1),
        ("-l 6 missing", ", 5 members, ", 0),
    ] {
        let text = lab.ok_text(&format!("create x --dry-run {options}"), &members);
        assert!(text.contains(count) && text.matches("  spare: ").count() == spares, "{text}");
    }
    let line = lab.refused(2, "create x -l 5 -x 4", &members, &members);
    assert!(line.contains("0 members"), "{line}");
}

#[test]
fn a_forgotten_name_is_noticed() {
    let lab = Lab::new();
    let members = lab.members("m", 4, 8);
    for words in ["create m0 -l 5 -n 3", "create ./m0 -l 5 -n 4", "create node://h:1 -l 5 -n 3"] {
        let line = lab.refused(2, words, &members[1..], &members);
        assert!(line.contains("the name of the array is missing"), "{line}");
    }
}

/// Comparisons are another program, which may be missing; `braid` has no part of it.
#[test]
fn measurements_need_the_program_that_makes_them() {
    let lab = Lab::new();
    let alone = lab.path("braid");
    install(&program(), &alone);
    let output = lab.braid_at(&alone).env("PATH", "").args(["bench", "levels"]).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.starts_with("braid: bench braid-bench: it is not installed; install"), "{line}");

    // Whatever stands there is given the words and the run directory.
    let script = "#!/bin/sh\necho \"$BRAID_RUN_DIR $*\"\n";
    let other = lab.path("braid-bench");
    install_script(script, &other);
    let words = ["--run-dir", "here", "bench", "levels", "--quick", "--help"];
    let output = lab.braid_at(&alone).args(words).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.ends_with("/here levels --quick --help\n"), "{said}");
}

#[test]
fn help_version_completions_and_man_pages_are_answers() {
    let lab = Lab::new();
    assert!(lab.ok_text("--help", &[]).contains("Exit status"));
    let version = lab.ok_text("--version", &[]);
    assert!(version.starts_with("braid ") && version.lines().count() == 1, "{version}");
    assert_eq!([lab.ok_text("-V", &[]), lab.ok_text("-v", &[])], [version.clone(), version]);
    // Without a word, help is no answer: nothing was asked for.
    let output = lab.run("", &[]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("Usage: braid "));
    let help = lab.ok_text("create --help", &[]);
    assert!(help.contains("--raid-devices"));
    assert_eq!(lab.ok_text("help create", &[]), help);
    assert!(lab.ok_text("help", &[]).contains("Exit status"));
    for shell in ["bash", "zsh", "fish"] {
        let script = lab.ok_text(&format!("completions {shell}"), &[]);
        assert!(script.contains("raid-devices") && script.contains("braid completions --names"));
    }
    let dir = lab.path("man");
    std::fs::create_dir(&dir).unwrap();
    lab.ok("man", std::slice::from_ref(&dir));
    let page = std::fs::read_to_string(dir.join("braid-create.1")).unwrap();
    assert!(page.contains("assume\\-clean"));
    let page = std::fs::read_to_string(dir.join("braid.1")).unwrap();
    assert!(
        page.contains("braid\\-bench(1)"),
        "the page of the other program is not named: {page}"
    );
    assert!(!dir.join("braid-bench.1").exists(), "that page is the other program's");
    assert!(dir.join("braid-node-status.1").exists());
    assert!(dir.join("arrays.toml.5").exists() && dir.join("braid.7").exists());
    assert!(dir.join("braid-messages.7").exists());
}

/// Returns a directory in which an array `home` runs, with the completions of a shell in a file.
fn completing(shell: &str, file: &str) -> Lab {
    let lab = Lab::new();
    let members = lab.members("m", 2, 8);
    lab.ok("create home -l 1 --assume-clean", &members);
    lab.ok("assemble home", &members);
    std::fs::write(lab.path(file), lab.ok(&format!("completions {shell}"), &[])).unwrap();
    lab
}

/// Returns the output of a shell, which finds `braid`; nothing if there is no such shell.
fn typed_into(lab: &Lab, shell: &[&str]) -> Option<String> {
    let dir = program().parent().unwrap().display().to_string();
    // One that waits for more is ended.
    let mut command = std::process::Command::new("timeout");
    command.arg("60").args(shell).current_dir(lab.path(""));
    command.env("PATH", format!("{dir}:/usr/bin:/bin")).env("BRAID_RUN_DIR", lab.path("run"));
    command.env("BRAID_CONFIG", lab.path("arrays.toml")).env("HOME", lab.path(""));
    let output = command.output().unwrap();
    if output.status.code() == Some(127) {
        return None;
    }
    assert!(output.status.success(), "{shell:?}: {output:?}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Completions of bash know the arrays that run.
#[test]
fn names_of_arrays_are_completed() {
    let lab = completing("bash", "completions");
    let completed = |words: &str, current: &str| {
        let script = format!(
            "source ./completions; COMP_WORDS=({words} '{current}'); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _braid_with_names braid '{current}' x; \
             echo \"${{COMPREPLY[@]}}\""
        );
        typed_into(&lab, &["bash", "-c", &script]).expect("bash")
    };
    assert_eq!(completed("braid stop", ""), "home\n");
    assert_eq!(completed("braid scrub", "ho"), "home\n");
    assert!(completed("braid stop", "--f").contains("--force"));
    assert!(!completed("braid create", "").contains("home"));
    assert!(completed("braid", "sta").contains("status"));
}

/// Has zsh complete a line, and prints the line. It is typed when the prompt is there, which is not
/// what was typed to set it, and Control-X prints it.
const ZSH: &str = r#"
    zmodload zsh/zpty
    zpty shell zsh -f -i
    zpty -w shell "fpath=($PWD \$fpath); autoload -Uz compinit; compinit -u -D
        line-is() { print -r -- LI''NE \$BUFFER. }; zle -N line-is; bindkey '^X' line-is
        PS1=RE''ADY"
    zpty -r shell typed '*READY*'
    zpty -w -n shell "$1"$'\t\x18'
    zpty -r shell typed '*LINE*.*'
    print -r -- "$typed"
    zpty -d shell
"#;
const FISH: &str = "source ./braid.fish; complete -C \"$argv\"";

#[test]
fn zsh_and_fish_complete_names_too() {
    let shells = [
        ("zsh", "_braid", &["zsh", "-f", "-c", ZSH, "zsh"][..]),
        ("fish", "braid.fish", &["fish", "-N", "-c", FISH, "--"][..]),
    ];
    for (shell, file, words) in shells {
        let lab = completing(shell, file);
        for (command, start, expected) in [
            ("braid stop ", "", "home"),
            ("braid scrub ", "ho", "home"),
            ("braid ", "sta", "status"),
            ("braid stop ", "--f", "--force"),
        ] {
            let line = format!("{command}{start}");
            let Some(said) = typed_into(&lab, &[words, &[&line]].concat()) else {
                return skip(
                    "zsh_and_fish_complete_names_too",
                    &format!("no {shell} is installed"),
                );
            };
            let expected = if shell == "zsh" {
                format!("LINE {command}{expected} .")
            } else {
                expected.to_owned()
            };
            assert!(said.contains(&expected), "{shell}: {line}: {said:?}");
        }
    }
}
