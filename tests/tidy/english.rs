//! English: sentences of doc comments begin with a verb or a noun.

use std::path::Path;

use super::{at, children, read, report, root, sources, stem};

/// Sentences of a crate's doc comments that may begin otherwise, in percent.
const LIMIT: usize = 4;
/// Doc comments that are shown to users, as help.
const HELP: &str = "crates/cli/src/args";
/// Places that a finding lists.
const MAX_PLACES: usize = 20;

/// Words that begin a question, or a sentence whose subject is to be guessed.
const WORDS: &[&str] = &[
    "What", "Who", "Whom", "Whose", "It", "That", "Those", "They", "Is", "Are", "Was", "Were",
    "Does", "Do", "Did", "Has", "Have", "Of", "May", "Must", "Can", "Whoever", "Whatever", "Why",
    "How", "Which", "Nobody", "Somebody",
];

#[test]
fn doc_comments_begin_with_a_verb_or_a_noun() {
    let mut findings = Vec::new();
    for directory in children(&root().join("crates")) {
        let mut count = 0;
        let mut places = Vec::new();
        for path in sources(&["rs"]) {
            if !path.starts_with(directory.join("src")) || path.starts_with(root().join(HELP)) {
                continue;
            }
            for (line, sentence) in sentences(&read(&path)) {
                count += 1;
                if is_unclear(&sentence) {
                    places.push(at(&path, line, &sentence));
                }
            }
        }
        if places.len() * 100 > LIMIT * count {
            findings.push(told(&directory, &places, count));
        }
    }
    report(&findings);
}

/// Returns the finding of a crate: the share of such sentences, and the first of them.
fn told(directory: &Path, places: &[String], count: usize) -> String {
    let share = (places.len() * 1000).div_ceil(count.max(1));
    let share = format!("{}.{} %", share / 10, share % 10);
    let first = places.iter().take(MAX_PLACES).map(String::as_str).collect::<Vec<_>>();
    let of = format!("{share} of {count} sentences, at most {LIMIT} %; the first of them:");
    format!("crates/{}: {of}\n  {}", stem(directory), first.join("\n  "))
}

/// Returns whether a sentence is a question, or begins with one of the words.
fn is_unclear(sentence: &str) -> bool {
    let word = sentence.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    WORDS.contains(&word) || sentence.ends_with('?')
}

/// Lists the sentences of doc comments, each with the first line of its comment.
fn sentences(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut comment = Comment::default();
    for (index, line) in text.lines().chain([""]).enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let Some(doc) = doc.filter(|doc| !doc.starts_with('/')) {
            comment.take(index + 1, doc.trim());
        } else {
            found.append(&mut comment.end());
        }
    }
    found
}

/// A comment, as far as it is read.
#[derive(Default)]
struct Comment {
    line: usize,
    is_code: bool,
    paragraph: String,
    sentences: Vec<String>,
}

impl Comment {
    fn take(&mut self, number: usize, line: &str) {
        if self.line == 0 {
            self.line = number;
        }
        if line.starts_with("```") {
            self.is_code = !self.is_code;
            return self.end_paragraph();
        }
        if self.is_code {
            return;
        }
        if line.is_empty() || line.starts_with(['|', '#']) || is_numbered(line) {
            self.end_paragraph();
        } else if let Some(item) = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
            self.end_paragraph();
            item.clone_into(&mut self.paragraph);
        } else {
            if !self.paragraph.is_empty() {
                self.paragraph.push(' ');
            }
            self.paragraph.push_str(line);
        }
    }

    fn end_paragraph(&mut self) {
        let paragraph = std::mem::take(&mut self.paragraph);
        let mut begin = 0;
        for (end, _) in paragraph.match_indices(['.', '!', '?', ':', ';']) {
            let rest = &paragraph[end + 1..];
            let next = rest.trim_start();
            let begins = |c: char| c.is_ascii_uppercase() || c == '`' || c == '[';
            if next.len() < rest.len() && next.starts_with(begins) {
                self.sentences.push(paragraph[begin..=end].to_owned());
                begin = paragraph.len() - next.len();
            }
        }
        if begin < paragraph.len() {
            self.sentences.push(paragraph[begin..].to_owned());
        }
    }

    fn end(&mut self) -> Vec<(usize, String)> {
        self.end_paragraph();
        let ended = std::mem::take(self);
        ended.sentences.into_iter().map(|sentence| (ended.line, sentence)).collect()
    }
}

fn is_numbered(line: &str) -> bool {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < line.len() && rest.starts_with('.')
}

#[test]
fn sentences_are_found_and_judged() {
    let text = concat!(
        "//! Reads a. It\n//! is b: `c`?\n//!\n//! - Of\n//!   d\n//! | It |\nx\n\n",
        "    /// ```\n    /// It.\n    /// ```\n    //// No\n    /// Item. Thus.\n",
    );
    let found = sentences(text);
    let all: Vec<(usize, &str)> = found.iter().map(|(line, it)| (*line, it.as_str())).collect();
    let expected =
        [(1, "Reads a."), (1, "It is b:"), (1, "`c`?"), (1, "Of d"), (13, "Item."), (13, "Thus.")];
    assert_eq!(all, expected);
    let unclear: Vec<bool> = all.iter().map(|(_, sentence)| is_unclear(sentence)).collect();
    assert_eq!(unclear, [false, true, true, true, false, false]);
}
