//! The map: `docs/map.md` lists the modules with the first sentence of each module's comment.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{MAX_COLUMNS, at, children, is, numbered, read, report, root, sources, stem};

/// Levels of modules below `src` that the map lists: a module, and those within it.
const LEVELS: usize = 2;

/// Lines of ARCHITECTURE.md.
const PAGE_LINES: usize = 130;

const HEAD: &str = "\
# Map of the modules

This page is made of the first sentence of each module's comment by `make map`; a test compares
them. `ARCHITECTURE.md` tells how the modules work together. Modules further down are found by
`ls`: the comment of the module above them introduces them.
";

#[test]
fn the_map_lists_every_module() {
    let mut made = HEAD.to_owned();
    let mut findings = Vec::new();
    for directory in children(&root().join("crates")) {
        let source = directory.join("src");
        let _ = write!(made, "\n## `{}`\n\n", stem(&directory));
        let _ = writeln!(made, "{}\n", first_sentence(&read(&source.join("lib.rs"))));
        for (module, path) in modules(&source) {
            let sentence = first_sentence(&read(&source.join(&path)));
            if sentence.is_empty() {
                findings.push(format!("{}/src/{path}: no comment of the module", stem(&directory)));
            }
            if module.matches('/').count() < LEVELS {
                let _ = writeln!(made, "- `{path}`: {sentence}");
            }
        }
    }
    report(&findings);
    let page = root().join("docs/map.md");
    if std::env::var_os("BRAID_WRITE_MAP").is_some() {
        fs::write(&page, &made).expect("the page is written");
    }
    let there = read(&page);
    let differing = made.lines().zip(there.lines()).find(|(made, there)| made != there);
    assert_eq!(differing, None, "docs/map.md is old: make map");
    assert_eq!(made.lines().count(), there.lines().count(), "docs/map.md is old: make map");
}

/// Lists the modules of a crate, without those that are tests: a module's path by `/`, and that
/// of its file. A module stands before the modules within it.
fn modules(source: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for path in sources(&["rs"]).iter().filter_map(|path| path.strip_prefix(source).ok()) {
        let name = path.to_string_lossy();
        let module = name.trim_end_matches(".rs").trim_end_matches("/mod");
        let test = |part: &str| part == "tests" || part.ends_with("_tests");
        if ["lib", "main"].contains(&module) || module.split('/').any(test) {
            continue;
        }
        found.insert(module.to_owned(), name.into_owned());
    }
    found
}

/// Returns the first sentence of a module's comment, with links to items as their names.
fn first_sentence(text: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with("//!"));
    let lines = lines.map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let paragraph = without_links(&paragraph.join(" "));
    let ends = paragraph.match_indices(['.', '!', '?']).map(|(at, _)| at + 1);
    let begins = |c: char| c.is_uppercase() || c == '`' || c == '[';
    let is_end = |end: &usize| {
        let rest = paragraph[*end..].strip_prefix(' ');
        rest.is_some_and(|rest| rest.starts_with(begins))
    };
    let end = ends.filter(|end| !paragraph[..*end].ends_with("e.g.")).find(is_end);
    paragraph[..end.unwrap_or(paragraph.len())].to_owned()
}

/// Writes [`name`] and [`name`](path) as `name`.
fn without_links(text: &str) -> String {
    let mut rest = text;
    let mut made = String::new();
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else { break };
        let _ = write!(made, "{before}`{name}`");
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    made + rest
}

#[test]
fn sentences_end_before_the_next_one() {
    let of = |text: &str| first_sentence(&format!("#![x]\n//! {}\nuse a;\n", text.trim()));
    assert_eq!(of("One: 1.5 of\n//! `b.rs`. `c` more."), "One: 1.5 of `b.rs`.");
    let linked = "See [`A`](super::A) and\n//! [`B::c`], then\n//!\n//! No.";
    assert_eq!(of(linked), "See `A` and `B::c`, then");
    assert_eq!(first_sentence("use a;\n"), "");
}

/// ARCHITECTURE.md is a page, and the files and folders that it names are there: below the root,
/// below `crates`, or in the folder of the one before. Other names in code marks are in a file that
/// the same paragraph, or point of a list, names.
#[test]
fn the_page_of_architecture_names_what_is_there() {
    let page = root().join("ARCHITECTURE.md");
    let text = read(&page);
    let mut findings = Vec::new();
    let mut folder = root();
    let mut count = 0;
    let mut paragraph = Paragraph::default();
    for (number, line) in numbered(&text) {
        if number > PAGE_LINES {
            findings.push(at(&page, number, &format!("longer than {PAGE_LINES} lines")));
        }
        if line.chars().count() > MAX_COLUMNS {
            findings.push(at(&page, number, &format!("longer than {MAX_COLUMNS} columns")));
        }
        if line.is_empty() || line.starts_with("- ") {
            findings.extend(std::mem::take(&mut paragraph).unknown(&page));
        }
        for name in line.split('`').skip(1).step_by(2) {
            if !name.ends_with(".rs") && !name.ends_with('/') {
                paragraph.words.push((number, name));
                continue;
            }
            count += 1;
            let places = [root().join("crates").join(name), root().join(name), folder.join(name)];
            let Some(found) = places.iter().find(|place| place.exists()) else {
                findings.push(at(&page, number, &format!("{name} is not there")));
                continue;
            };
            let lies_in = found.parent().expect("a folder");
            folder = if found.is_dir() { found.clone() } else { lies_in.to_owned() };
            let files = if found.is_dir() { children(found) } else { vec![found.clone()] };
            let sources = files.iter().filter(|path| is(path, "rs"));
            paragraph.sources.extend(sources.map(|path| read(path)));
        }
    }
    findings.extend(paragraph.unknown(&page));
    assert!(count > 50, "{count} names");
    report(&findings);
}

/// Words in code marks, by line, and the sources of the files that are named beside them.
#[derive(Default)]
struct Paragraph<'a> {
    words: Vec<(usize, &'a str)>,
    sources: String,
}

impl Paragraph<'_> {
    /// Findings: words that none of the files has.
    fn unknown(self, page: &Path) -> Vec<String> {
        let Self { words, sources } = self;
        let is_word = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
        let is_unknown = |(_, name): &(usize, &str)| {
            is_word(name) && !sources.is_empty() && !sources.contains(name)
        };
        let unknown = words.into_iter().filter(is_unknown);
        unknown.map(|(line, name)| at(page, line, &format!("no file beside has {name}"))).collect()
    }
}
