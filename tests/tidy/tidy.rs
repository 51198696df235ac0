//! Style as a test: the direction of dependencies, sizes, paths, sentences, and the map of modules.
//! Each test collects all its findings before it fails, as `file:line: what`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

mod circles;
mod english;
mod features;
mod map;
mod pages;
mod types;

const MAX_COLUMNS: usize = 100;
const MAX_FUNCTION_LINES: usize = 70;
const MAX_FILE_LINES: usize = 800;

/// Which crates of ours each crate may depend on, and whether it may depend on any others at all.
const ARROWS: &[(&str, &[&str], Outside)] = &[
    ("parity", &[], Outside::None),
    (
        "array",
        &["parity"],
        Outside::Only(&["crc32c", "slab", "smallvec", "thiserror", "uuid", "serde"]),
    ),
    ("cluster", &["array", "parity"], Outside::Only(&["crc32c", "slab", "smallvec", "thiserror"])),
    ("rescue", &["array", "parity"], Outside::Only(&["crc32c", "thiserror", "uuid"])),
    ("sim", &["array", "cluster", "parity"], Outside::Any),
    ("host", &["array", "cluster", "parity", "rescue"], Outside::Any),
    ("cli", &["host", "cluster", "array", "rescue"], Outside::Any),
    ("bench", &["cli", "host", "cluster", "array"], Outside::Any),
];

/// Methods and fields that a type has at most.
const MAX_METHODS: usize = 60;
const MAX_FIELDS: usize = 25;
/// What lies on members has the fields that md's formats have, and JSON those of its contract.
const FORMATS: &[&str] = &["crates/array/src/format", "crates/cli/src/output/json.rs"];

enum Outside {
    None,
    Only(&'static [&'static str]),
    Any,
}

#[test]
fn dependencies_point_one_way() {
    let mut findings = Vec::new();
    for (name, ours, outside) in ARROWS {
        let path = root().join("crates").join(name).join("Cargo.toml");
        for (section, dependency) in dependencies(&read(&path)) {
            let allowed = match (dependency.strip_prefix("braid-"), outside) {
                (Some(crate_of_ours), _) => ours.contains(&crate_of_ours),
                (None, _) if section == "dev-dependencies" => true,
                (None, Outside::None) => false,
                (None, Outside::Only(names)) => names.contains(&dependency.as_str()),
                (None, Outside::Any) => true,
            };
            if !allowed {
                findings.push(format!("crates/{name}/Cargo.toml: must not use {dependency}"));
            }
        }
    }
    let known = |name: &str| ARROWS.iter().any(|(known, ..)| *known == name);
    for name in children(&root().join("crates")).iter().map(|path| stem(path)) {
        if !known(&name) {
            findings.push(format!("crates/{name}: not in the table of arrows in tests/tidy"));
        }
    }
    report(&findings);
}

#[test]
fn lines_functions_and_files_are_short() {
    let mut findings = Vec::new();
    for path in sources(&["rs", "sh", "c", "py"]) {
        let text = read(&path);
        for (number, line) in numbered(&text) {
            if line.chars().count() > MAX_COLUMNS {
                findings.push(at(&path, number, &format!("longer than {MAX_COLUMNS} columns")));
            }
        }
        if is(&path, "rs") {
            if text.lines().count() > MAX_FILE_LINES {
                findings.push(at(&path, 1, &format!("longer than {MAX_FILE_LINES} lines")));
            }
            for (number, lines) in functions(&text) {
                if lines > MAX_FUNCTION_LINES {
                    findings.push(at(&path, number, &format!("a function of {lines} lines")));
                }
            }
        }
    }
    report(&findings);
}

/// One binding a line, `if` for a flag: what is pressed into one line counts as one, and reads as
/// three.
#[test]
fn lines_say_one_thing() {
    let mut findings = Vec::new();
    for path in sources(&["rs"]) {
        findings.extend(terse(&read(&path)).iter().map(|(line, what)| at(&path, *line, what)));
    }
    report(&findings);
}

#[test]
fn no_machine_paths_and_no_orphaned_todo() {
    // Spelled in pieces so that this file passes its own test.
    let paths = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let stubs = [concat!("todo", "!("), concat!("unimplemented", "!(")];
    let todo = concat!("TO", "DO");
    let mut findings = Vec::new();
    for path in sources(&["rs", "sh", "c", "py", "toml", "md", "yml"]) {
        for (number, line) in numbered(&read(&path)) {
            for found in paths.iter().filter(|path| line.contains(**path)) {
                findings.push(at(&path, number, &format!("a path of one machine: {found}")));
            }
            if line.contains(todo) && !line.contains(&format!("{todo}(")) && !is(&path, "md") {
                findings.push(at(&path, number, &format!("a {todo} without an owner")));
            }
            if stubs.iter().any(|stub| line.contains(stub)) {
                findings.push(at(&path, number, "a stub"));
            }
        }
    }
    report(&findings);
}

#[test]
fn files_use_each_other_one_way() {
    let mut findings = Vec::new();
    for folder in source_folders() {
        let src = folder.ancestors().find(|path| path.ends_with("src")).expect("a crate's folder");
        let arrows = circles::arrows(src, &folder);
        for circle in circles::circles(&arrows) {
            let uses = circle.iter().map(|name| {
                let used = arrows[*name].iter().filter(|used| circle.contains(&used.as_str()));
                format!("{name} uses {}", used.cloned().collect::<Vec<_>>().join(", "))
            });
            let uses = uses.collect::<Vec<_>>().join("; ");
            findings.push(at(&folder, 1, &format!("a circle: {uses}")));
        }
    }
    report(&findings);
}

/// Folders of the crates' sources, each with all below it but tests.
fn source_folders() -> Vec<PathBuf> {
    let mut found = crates();
    let mut seen = 0;
    while let Some(folder) = found.get(seen) {
        let below = children(folder);
        found.extend(below.into_iter().filter(|path| path.is_dir() && stem(path) != "tests"));
        seen += 1;
    }
    found
}

/// Folders of sources, one of each crate.
fn crates() -> Vec<PathBuf> {
    let crates = children(&root().join("crates"));
    let found: Vec<PathBuf> = crates.iter().map(|path| path.join("src")).collect();
    assert!(found.iter().all(|src| src.is_dir()), "a crate without sources: {found:?}");
    found
}

/// Sources of a crate, without tests.
fn without_tests(src: &Path) -> Vec<(PathBuf, String)> {
    let within = |path: &PathBuf| {
        let Ok(below) = path.strip_prefix(src) else { return false };
        let tests = below.components().any(|part| part.as_os_str() == "tests");
        !tests && stem(path) != "tests"
    };
    let all = sources(&["rs"]).into_iter().filter(within);
    let found: Vec<_> = all.map(|path| (path.clone(), untested(&read(&path)))).collect();
    assert!(!found.is_empty(), "{} holds no files", src.display());
    found
}

/// Two types of a crate have two names, so that a search for one finds it. Tests are left out.
#[test]
fn types_of_a_crate_have_names_of_their_own() {
    let mut findings = Vec::new();
    let mut count = 0;
    for src in crates() {
        let mut first: BTreeMap<String, PathBuf> = BTreeMap::new();
        for (path, text) in without_tests(&src) {
            for (number, line) in numbered(&text) {
                let Some(name) = types::named(line) else { continue };
                count += 1;
                if let Some(other) = first.insert(name.to_owned(), path.clone()) {
                    let text = format!("{name} is also a type of {}", other.display());
                    findings.push(at(&path, number, &text));
                }
            }
        }
    }
    assert!(count > 1000, "{count} types");
    report(&findings);
}

/// The methods of one type call each other from file to file in one direction, and no type is more
/// than one machine.
#[test]
fn types_are_one_machine_each() {
    let mut findings = Vec::new();
    for src in crates() {
        let sources = without_tests(&src);
        for ((path, name), found) in types::types(&sources) {
            let format = FORMATS.iter().any(|format| path.starts_with(root().join(format)));
            if found.methods.len() > MAX_METHODS || found.fields > MAX_FIELDS && !format {
                let size = format!("{} methods, {} fields", found.methods.len(), found.fields);
                findings.push(at(&path, 1, &format!("{name} has {size}")));
            }
            let arrows = found.arrows();
            let circles = circles::circles(&arrows);
            let told = circles.iter().map(|circle| circle.join(", "));
            findings.extend(told.map(|files| at(&path, 1, &format!("{name}: {files}"))));
        }
    }
    report(&findings);
}

/// A source without its tests.
fn untested(text: &str) -> String {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
}

/// A plain `cargo build` is for users: it builds the command alone. What we call names more.
#[test]
fn cargo_is_told_what_to_build() {
    assert!(read(&root().join("Cargo.toml")).contains("\ndefault-members = [\"crates/cli\"]\n"));
    let builds = ["build", "test", "run", "bench", "clippy", "check"];
    let mut calls = 0;
    let mut findings = Vec::new();
    for path in
        sources(&["sh"]).into_iter().chain([root().join("Makefile"), root().join(".ci/run")])
    {
        for (number, line) in numbered(&read(&path)) {
            let of_cargo = line.split("cargo ").skip(1).filter_map(|rest| rest.split(' ').next());
            for call in of_cargo.filter(|word| builds.contains(word)) {
                calls += 1;
                if !line.contains("--workspace") && !line.contains(" -p ") {
                    findings.push(at(&path, number, &format!("cargo {call} of which package?")));
                }
            }
        }
    }
    assert!(calls > 5, "the calls of cargo were not found");
    report(&findings);
}

#[test]
fn unsafe_only_in_parity_and_host() {
    let allowed = [root().join("crates/parity"), root().join("crates/host")];
    let mut findings = Vec::new();
    for path in sources(&["rs"]) {
        if allowed.iter().any(|allowed| path.starts_with(allowed)) || path.ends_with("tidy.rs") {
            continue;
        }
        for (number, line) in numbered(&read(&path)) {
            let code = line.split("//").next().unwrap_or("");
            let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            if words.into_iter().any(|word| word == "unsafe") {
                findings.push(at(&path, number, "unsafe belongs in parity or host"));
            }
        }
    }
    report(&findings);
}

#[test]
fn the_measures_measure() {
    let function = "fn f() {\n    a();\n\n    // why\n    b();\n}\n\nfn g() {}\n";
    assert_eq!(functions(function), [(1, 4)]);
    assert_eq!(
        dependencies("[dependencies]\na = \"1\"\nb.workspace = true\n[lints]\nc = 1\n"),
        [("dependencies".into(), "a".into()), ("dependencies".into(), "b".into())]
    );
    let line = |text: &str| terse(text).iter().map(|(line, _)| *line).collect::<Vec<_>>();
    assert_eq!(
        line("\nlet (a, mut b) = (x(1, 2), y);\nlet (a, b): (u8, _) =\n    (x, y);\n"),
        [2, 3]
    );
    assert_eq!(line("let (a, b) = f(x, y);\nlet (a, b) = (x, y) else {\n"), [0; 0]);
    assert_eq!(line("a.filter(|_| b)\n(0..9).filter(|_| b)\nmatch a {\n    true => b,\n"), [1, 4]);
}

/// Each rule that can be switched off is told of, and each one told of can be switched off.
#[test]
fn rules_that_can_be_broken_are_those_of_the_table() {
    let told = read(&root().join("docs/simulation.md"));
    let told = told.split_once("| rule | what it says | first seed").expect("the table").1;
    let rows = told.lines().skip(2).take_while(|line| line.starts_with("| "));
    let told: BTreeSet<&str> = rows.filter_map(|row| row.split(' ').nth(1)).collect();
    let text: String = sources(&["rs"])
        .iter()
        .filter(|path| path.starts_with(root().join("crates")))
        .map(|path| read(path))
        .collect();
    let named = text.split("broken(\"").skip(1).filter_map(|rest| rest.split('"').next());
    assert_eq!(named.collect::<BTreeSet<&str>>(), told);
}

/// Where several values are bound at once, a filter does not look at what it filters, or a flag is
/// matched: lines, in order.
fn terse(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for (index, line) in lines.iter().enumerate() {
        let code = line.split("// ").next().unwrap_or_default();
        let number = index + 1;
        if code.starts_with("let (") && is_tuple(&lines[index..]) {
            found.push((number, "one binding a line"));
        }
        // Numbers are filtered to count how often something holds.
        if code.contains(concat!(".filter(|", "_|")) && !code.contains("..") {
            found.push((number, "a filter by what is known before: use `if`"));
        }
        if code.starts_with(concat!("true ", "=> ")) || code.contains(concat!("{ true ", "=> ")) {
            found.push((number, "a match of a flag: use `if`"));
        }
    }
    found
}

/// Is what the statement at the beginning binds a tuple that is written there? What a call makes,
/// or `else` matches, is one value.
fn is_tuple(lines: &[&str]) -> bool {
    let ends = |line: &&str| line.ends_with([';', '{']);
    let length = lines.iter().position(ends).unwrap_or(lines.len() - 1) + 1;
    let statement = lines[..length].join(" ");
    let Some((_, value)) = statement.split_once("= (") else { return false };
    let mut depth = 1;
    let close = value.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    close.is_some_and(|at| value[at..] == *");")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn is(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn at(path: &Path, line: usize, what: &str) -> String {
    format!("{}:{line}: {what}", path.strip_prefix(root()).unwrap_or(path).display())
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn report(findings: &[String]) {
    let mut all = String::new();
    for finding in findings {
        let _ = writeln!(all, "{finding}");
    }
    assert!(findings.is_empty(), "{} findings:\n{all}", findings.len());
}

/// What lies in a directory, sorted, build products and hidden files left out.
fn children(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    found.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with('.') && name != "target"
    });
    found.sort();
    found
}

/// Every file of ours with one of these extensions.
fn sources(extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(children(&path));
        } else if extensions.iter().any(|extension| is(&path, extension)) {
            found.push(path);
        }
    }
    found.sort();
    assert!(found.len() > 10 || extensions.len() == 1, "the sources were not found");
    found
}

/// The functions of a rustfmt-ed file: first line, and lines of code (neither blank nor comment).
/// A function ends at the first closing brace with the indentation of its first line.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let qualifiers = ["pub ", "pub(crate) ", "pub(super) ", "const ", "async ", "unsafe "];
        let bare = qualifiers.iter().fold(code, |rest, word| rest.trim_start_matches(word));
        if !bare.starts_with("fn ") || code.ends_with(['}', ';']) {
            continue;
        }
        let close = format!("{}}}", &line[..line.len() - code.len()]);
        let Some(length) = lines[start..].iter().position(|line| **line == close) else { continue };
        let counted = lines[start..=start + length].iter().map(|line| line.trim());
        let counted = counted.filter(|line| !line.is_empty() && !line.starts_with("//"));
        found.push((start + 1, counted.count()));
    }
    found
}

/// The dependencies a manifest names: section and crate.
fn dependencies(manifest: &str) -> Vec<(String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in manifest.lines() {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            if let Some((table, name)) = header.split_once("dependencies.") {
                found.push((format!("{table}dependencies"), name.to_string()));
            }
            section = header.rsplit('.').next().unwrap_or("").to_string();
            continue;
        }
        let name = line.split(['=', '.']).next().unwrap_or("").trim();
        let named = !name.is_empty() && !name.starts_with('#');
        if named && line.contains('=') && section.ends_with("dependencies") {
            found.push((section.clone(), name.to_string()));
        }
    }
    found
}
