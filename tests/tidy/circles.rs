//! Which files of a folder use each other in a circle. Nobody can read such files one by one.
//!
//! Looked at are paths that begin with `crate`, `super` or `self`, tests left out. A file and the
//! folder of its name are one. What the file above a folder hands on of its files counts as theirs;
//! what is its own belongs to all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{children, is, read, stem};

/// The parts of a folder, and which of them each uses.
pub(crate) type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The arrows between what lies in `folder` of a crate, whose sources are in `src`.
pub(crate) fn arrows(src: &Path, folder: &Path) -> Arrows {
    let above = module(src, folder);
    let mut files: BTreeMap<String, Vec<(Vec<String>, String)>> = BTreeMap::new();
    for path in children(folder) {
        let name = stem(&path);
        if ["lib", "main", "mod", "tests", "testing"].contains(&name.as_str()) {
            continue;
        }
        let of = files.entry(name).or_default();
        let mut pending = vec![path];
        while let Some(path) = pending.pop() {
            if path.is_dir() && stem(&path) != "tests" {
                pending.extend(children(&path));
            } else if is(&path, "rs") && stem(&path) != "tests" {
                of.push((module(src, &path), read(&path)));
            }
        }
    }
    let entry = ["lib.rs", "main.rs", "mod.rs"].map(|name| folder.join(name));
    let entry = entry.into_iter().chain([folder.with_extension("rs")]).find(|path| path.exists());
    let handed_on = entry.map(|path| handed_on(&read(&path), &above)).unwrap_or_default();
    let uses = |(at, text): &(Vec<String>, String)| {
        let of = |path: Vec<String>| {
            let rest = absolute(path, at)?;
            let name = rest.strip_prefix(above.as_slice())?.first()?.clone();
            Some(handed_on.get(&name).cloned().unwrap_or(name))
        };
        paths(text).into_iter().filter_map(of).collect::<Vec<_>>()
    };
    let mut arrows = Arrows::new();
    for (name, of) in &files {
        let used = of.iter().flat_map(uses).filter(|used| used != name && files.contains_key(used));
        arrows.insert(name.clone(), used.collect());
    }
    arrows
}

/// Files that use one another, directly or by others: each circle in order, the largest first.
pub(crate) fn circles(arrows: &Arrows) -> Vec<Vec<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|from| (from.as_str(), reached(arrows, from))).collect();
    let mut found = BTreeSet::new();
    for (from, to) in &reached {
        let back: Vec<&str> = to.iter().copied().filter(|to| reached[to].contains(from)).collect();
        if !back.is_empty() {
            found.insert(back);
        }
    }
    let mut found: Vec<Vec<&str>> = found.into_iter().collect();
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

fn reached<'a>(arrows: &'a Arrows, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut pending: Vec<&str> = arrows[from].iter().map(String::as_str).collect();
    while let Some(next) = pending.pop() {
        if found.insert(next) {
            pending.extend(arrows[next].iter().map(String::as_str));
        }
    }
    found
}

/// `["a", "b"]` for `src/a/b.rs` and `src/a/b/mod.rs`.
fn module(src: &Path, path: &Path) -> Vec<String> {
    let inside = path.strip_prefix(src).expect("a path in the sources").with_extension("");
    let mut parts: Vec<String> =
        inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// The path from the crate's root on.
fn absolute(path: Vec<String>, at: &[String]) -> Option<Vec<String>> {
    let mut base = at.to_vec();
    let mut rest = path.into_iter().peekable();
    match rest.next()?.as_str() {
        "crate" => base.clear(),
        "super" => drop(base.pop()?),
        _ => {}
    }
    while rest.next_if(|part| part == "super").is_some() {
        base.pop()?;
    }
    base.extend(rest);
    Some(base)
}

/// The names that a file takes from the files below it: `Array` is in `array`.
fn handed_on(text: &str, above: &[String]) -> BTreeMap<String, String> {
    let text = code(text);
    let uses = text.match_indices("use ").map(|(at, word)| &text[at + word.len()..]);
    let mut found = BTreeMap::new();
    for path in uses.flat_map(|rest| tree(&mut rest.trim_start())) {
        let path = match path.first().map(String::as_str) {
            Some("crate" | "super" | "self") => absolute(path, above)
                .and_then(|path| path.strip_prefix(above).map(<[String]>::to_vec))
                .unwrap_or_default(),
            _ => path,
        };
        if let [below, .., name] = path.as_slice() {
            found.insert(name.clone(), below.clone());
        }
    }
    found
}

/// The code without comments and without the tests, which end a file.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// All paths that begin at the crate or relative to the file, of `use` and elsewhere.
fn paths(text: &str) -> Vec<Vec<String>> {
    let text = code(text);
    let mut found = Vec::new();
    for word in ["crate::", "super::", "self::"] {
        for (at, _) in text.match_indices(word) {
            let before = text[..at].chars().next_back().unwrap_or(' ');
            if !before.is_alphanumeric() && !"_:$".contains(before) {
                found.extend(tree(&mut &text[at..]));
            }
        }
    }
    found
}

/// The paths of a tree as it stands behind `use`: `a::{b, c::d}` are two.
fn tree(rest: &mut &str) -> Vec<Vec<String>> {
    let mut path = Vec::new();
    loop {
        *rest = rest.trim_start();
        if let Some(inner) = rest.strip_prefix('{') {
            *rest = inner;
            let mut all = Vec::new();
            while !rest.trim_start().starts_with('}') && !rest.trim_start().is_empty() {
                let branches = tree(rest);
                all.extend(branches.into_iter().map(|branch| [path.clone(), branch].concat()));
                let Some(comma) = rest.find([',', '}']) else { return all };
                *rest = &rest[comma + usize::from(rest[comma..].starts_with(','))..];
            }
            *rest = rest.trim_start().strip_prefix('}').unwrap_or_default();
            return all;
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end > 0 {
            path.push(rest[..end].to_owned());
        }
        *rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(more) => *rest = more,
            None => return vec![path],
        }
    }
}

#[test]
fn paths_are_read() {
    let text = "use crate::a::{self, b::{C, D}, e as f};\nuse super::g;\n// use crate::no;\n\
                fn x() -> crate::h::I { self::j::k() }\n#[cfg(test)]\nmod tests { use crate::t; }";
    let found: BTreeSet<String> = paths(text).iter().map(|path| path.join("::")).collect();
    let expected = [
        "crate::a::self",
        "crate::a::b::C",
        "crate::a::b::D",
        "crate::a::e",
        "super::g",
        "crate::h::I",
        "self::j::k",
    ];
    assert_eq!(found, expected.map(str::to_owned).into());
    let handed = handed_on("pub use array::{Array, x::Y};\nuse crate::z::Q;\n", &[]);
    let of = |name: &str| handed.get(name).map(String::as_str);
    assert_eq!((of("Array"), of("Y"), of("Q")), (Some("array"), Some("array"), Some("z")));
}

#[test]
fn circles_are_found() {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let arrows: Arrows = [
        ("a", set(&["b"])),
        ("b", set(&["c"])),
        ("c", set(&["a", "d"])),
        ("d", set(&[])),
        ("e", set(&["a", "f"])),
        ("f", set(&["e"])),
    ]
    .map(|(name, used)| (name.to_owned(), used))
    .into();
    assert_eq!(circles(&arrows), [vec!["a", "b", "c"], vec!["e", "f"]]);
}
