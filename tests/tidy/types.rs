//! What the methods of a type are, in which files they stand, and which of them they call.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The methods and fields of one type.
#[derive(Debug, Default)]
pub(crate) struct Type {
    /// By method: the file it stands in.
    pub(crate) methods: BTreeMap<String, PathBuf>,
    /// By file: the methods that are called there of the same value.
    calls: BTreeMap<PathBuf, BTreeSet<String>>,
    pub(crate) fields: usize,
}

impl Type {
    /// By file: the other files whose methods it calls.
    pub(crate) fn arrows(&self) -> BTreeMap<String, BTreeSet<String>> {
        let name = |path: &Path| path.display().to_string();
        let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for file in self.methods.values() {
            arrows.entry(name(file)).or_default();
        }
        for (file, called) in &self.calls {
            let others = called.iter().filter_map(|method| self.methods.get(method));
            let others = others.filter(|other| *other != file).map(|other| name(other));
            arrows.entry(name(file)).or_default().extend(others);
        }
        arrows
    }
}

/// The name of the type, trait or alias that a line declares, outside functions.
pub(crate) fn named(line: &str) -> Option<&str> {
    let seen = line.strip_prefix("pub").map(|rest| match rest.strip_prefix('(') {
        Some(within) => within.split_once(')').map_or("", |(_, rest)| rest),
        None => rest,
    });
    let (kind, rest) = seen.unwrap_or(line).trim_start_matches(' ').split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&kind);
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (is_type && !line.starts_with(' ')).then_some(&rest[..end])
}

/// The types that have methods in these sources, each with its folder: types of one name in
/// different folders are different ones, but a type may have methods in the folders below its own.
pub(crate) fn types(sources: &[(PathBuf, String)]) -> BTreeMap<(PathBuf, String), Type> {
    let mut types: BTreeMap<(PathBuf, String), Type> = BTreeMap::new();
    let mut homes: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (path, text) in sources {
        for (name, fields) in declared(text) {
            homes.entry(name.clone()).or_default().push(path.clone());
            types.entry((path.clone(), name)).or_default().fields = fields;
        }
    }
    for (path, text) in sources {
        for (name, body) in impls(text) {
            let Some(home) = home(homes.get(&name), path) else { continue };
            let found = types.entry((home, name)).or_default();
            for method in methods(&body) {
                found.methods.insert(method, path.clone());
            }
            found.calls.entry(path.clone()).or_default().extend(calls(&body));
        }
    }
    types
}

/// The file, among those that declare a type of this name, whose type a file means: the one that
/// has most of its path in common.
fn home(homes: Option<&Vec<PathBuf>>, path: &Path) -> Option<PathBuf> {
    let common = |home: &&PathBuf| {
        let same = home.components().zip(path.components()).take_while(|(a, b)| a == b).count();
        (*home == path, same)
    };
    homes?.iter().max_by_key(common).cloned()
}

/// Structs and enums, and how many named fields each has.
fn declared(text: &str) -> Vec<(String, usize)> {
    let mut declared = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split([' ', '<', '(', ';', '{']).collect();
        let Some(at) = words.iter().position(|word| matches!(*word, "struct" | "enum")) else {
            continue;
        };
        if line.starts_with([' ', '/']) || words.len() < at + 2 {
            continue;
        }
        let mut fields = 0;
        if words[at] == "struct" && line.ends_with('{') {
            for line in lines.by_ref().take_while(|line| *line != "}") {
                let field = line.strip_prefix("    ").unwrap_or_default();
                fields += usize::from(!field.starts_with([' ', '/', '#']) && field.contains(": "));
            }
        }
        declared.push((words[at + 1].to_owned(), fields));
    }
    declared
}

/// The name of the type and the text of each block of methods.
fn impls(text: &str) -> Vec<(String, String)> {
    let mut impls = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(header) = line.strip_prefix("impl") else { continue };
        let mut header = header.to_owned();
        while !header.ends_with('{') && !header.ends_with('}') {
            let Some(more) = lines.next() else { break };
            header.push_str(more);
        }
        let whom = header.rsplit_once(" for ").map_or(header.as_str(), |(_, whom)| whom);
        let whom = without_parameters(whom.trim_start());
        let name =
            word(whom.split(['<', ' ']).next().and_then(|p| p.rsplit("::").next()).unwrap_or(""));
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
        impls.push((name, body.join("\n")));
    }
    impls
}

/// Without `<...>` in front.
fn without_parameters(text: &str) -> &str {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return text[at + usize::from(c == '>')..].trim_start();
        }
    }
    text
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn methods(body: &str) -> impl Iterator<Item = String> {
    let heads = body.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
    heads.filter_map(|line| Some(word(line.split_once("fn ")?.1)))
}

/// What is called of `self` or of the type itself.
fn calls(body: &str) -> BTreeSet<String> {
    let code: String = body.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code: String = code.split_whitespace().collect();
    let mut called = BTreeSet::new();
    for start in ["self.", "Self::"] {
        for (at, _) in code.match_indices(start) {
            let name = word(&code[at + start.len()..]);
            let end = at + start.len() + name.len();
            if code[end..].starts_with('(') {
                called.insert(name);
            }
        }
    }
    called
}

#[test]
fn calls_between_files_are_seen() {
    let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let one = "pub struct A {\n    b: u8,\n    c: u8,\n}\n\nimpl A {\n    pub fn go(&mut self) {\n";
    let one = format!("{one}        self.stop();\n        // self.rest();\n    }}\n}}\n");
    let two = "impl fmt::Debug for A {\n    fn stop(&self) {\n        self\n            .go();\n";
    let two = format!("{two}    }}\n}}\n");
    let all = types(&[file("x/mod.rs", &one), file("x/two.rs", &two), file("y.rs", "struct A;")]);
    let found = &all[&(PathBuf::from("x/mod.rs"), "A".to_owned())];
    assert_eq!((found.fields, found.methods.len(), all.len()), (2, 2, 2));
    let arrows = found.arrows();
    assert_eq!(arrows["x/mod.rs"], BTreeSet::from(["x/two.rs".to_owned()]));
    assert_eq!(arrows["x/two.rs"], BTreeSet::from(["x/mod.rs".to_owned()]));
}
