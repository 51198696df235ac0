//! What `make install` puts where: shells take the completions, and the programs run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Run, braid, directory};

fn content(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn programs_man_pages_and_completions_are_installed_below_a_directory() {
    let to = directory("installed");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install.sh");
    let programs = PathBuf::from(braid().get_program());
    let programs = programs.parent().expect("a directory");
    let install = |from: &Path| {
        let mut command = Command::new(&script);
        command.env("DESTDIR", &to).env("PREFIX", "/usr").arg(from);
        Run::of(&mut command)
    };
    let refused = install(&to);
    assert!(refused.stderr.contains("no braid in"), "{}", refused.stderr);
    assert!(!to.join("usr").exists(), "something was installed all the same");
    install(programs).expect_success("install.sh");

    for program in ["braid", "braid-bench"] {
        let installed = to.join("usr/bin").join(program);
        let said = Run::of(Command::new(&installed).arg("--version"));
        let said = said.expect_success("the installed program").stdout;
        assert_eq!(said.trim(), format!("{program} {}", env!("CARGO_PKG_VERSION")));
        let share = to.join("usr/share");
        let completions = share.join("bash-completion/completions").join(program);
        Run::of(Command::new("bash").arg("-n").arg(&completions)).expect_success("bash -n");
        assert!(content(&completions).contains("complete "), "bash completes nothing");
        let fish = share.join("fish/vendor_completions.d").join(format!("{program}.fish"));
        assert!(content(&fish).contains(&format!("complete -c {program}")));
        let zsh = share.join("zsh/site-functions").join(format!("_{program}"));
        assert!(content(&zsh).starts_with(&format!("#compdef {program}")));
    }
    let page = content(&to.join("usr/share/man/man1/braid-assemble.1"));
    assert!(page.contains(".TH braid-assemble 1"), "{page}");
    let page = content(&to.join("usr/share/man/man5/arrays.toml.5"));
    assert!(page.contains(".TH arrays.toml 5") && page.contains("members"), "{page}");
    assert!(content(&to.join("usr/share/man/man7/braid.7")).contains("EXIT CODES"));
    assert!(content(&to.join("etc/braid/arrays.toml")).contains("# [array.home]"));
    let page = content(&to.join("usr/share/man/man1/braid-bench.1"));
    assert!(page.contains("braid\\-bench\\-levels(1)"), "not that of braid-bench: {page}");
    assert_eq!(broken_links(&to.join("usr/share/doc/braid")), [""; 0]);
}

/// Returns the links of the pages below a directory that lead to no file.
pub(crate) fn broken_links(pages: &Path) -> Vec<String> {
    let mut broken = Vec::new();
    let mut links = 0;
    for directory in [pages.to_owned(), pages.join("docs")] {
        for entry in std::fs::read_dir(&directory).expect("a directory of pages") {
            let page = entry.expect("an entry").path();
            if page.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = content(&page);
            for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
                let file = link.0.split_once('#').map_or(link.0, |(file, _)| file);
                let here = !file.is_empty() && !file.contains("://");
                links += usize::from(here);
                if here && !directory.join(file).exists() {
                    broken.push(format!("{}: {file}", page.display()));
                }
            }
        }
    }
    assert!(links > 50, "the pages were not found: {links} links");
    broken
}
