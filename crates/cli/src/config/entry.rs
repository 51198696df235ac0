//! One table of the file. Its keys are taken one after the other; the rest is unknown.

use std::fmt::Display;
use std::ops::Range;

use braid_array::Refusal;
use braid_array::refusal::Next;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Located, Problem};
use crate::args::similar;

/// Line and column numbers of bytes in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines<'a>(pub(super) &'a str);

impl<'a> Lines<'a> {
    pub(super) fn at(self, offset: usize) -> usize {
        self.before(offset).bytes().filter(|byte| *byte == b'\n').count() + 1
    }

    pub(super) fn column(self, offset: usize) -> usize {
        let before = self.before(offset);
        before.chars().rev().take_while(|c| *c != '\n').count() + 1
    }

    fn before(self, offset: usize) -> &'a str {
        self.0.get(..offset).unwrap_or(self.0)
    }
}

/// A kind of values: its name, and examples of it.
struct ValueKind {
    name: &'static str,
    examples: &'static [&'static str],
}

const FLAG: ValueKind = ValueKind { name: "true or false", examples: &["true", "false"] };
const TEXT: ValueKind = ValueKind { name: "text in quotes", examples: &["\"...\""] };
const TEXTS: ValueKind =
    ValueKind { name: "a list of texts in quotes", examples: &["[\"...\", \"...\"]"] };
const SECONDS: ValueKind = ValueKind { name: "a whole number of seconds", examples: &["30"] };

/// Returns what a value is, in English.
fn described(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or a time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A table while it is read.
pub(super) struct Entry<'a> {
    lines: Lines<'a>,
    /// `array.home`.
    path: String,
    table: &'a DeTable<'a>,
    known: Vec<&'static str>,
    pub(super) line: usize,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Entry<'a> {
    pub(super) fn new(lines: Lines<'a>, path: String, line: usize, table: &'a DeTable<'a>) -> Self {
        Self { lines, path, table, known: Vec::new(), line, problems: Vec::new() }
    }

    /// Something is wrong with the value of a key, in a line.
    pub(super) fn wrong(
        &mut self,
        key: &str,
        line: usize,
        reason: impl Display,
        next: impl Into<Next>,
    ) {
        let key = format!("{}.{key}", self.path);
        self.problems.push(Problem::new(line, key, reason, next));
    }

    /// The keys that were asked for.
    #[cfg(test)]
    pub(super) fn known(&self) -> &[&'static str] {
        &self.known
    }

    /// Something is odd about the value of a key, and does not stop a start.
    pub(super) fn odd(&mut self, key: &str, line: usize, reason: &str, next: impl Into<Next>) {
        let key = format!("{}.{key}", self.path);
        self.problems.push(Problem::new(line, key, reason, next).warning());
    }

    /// A value is not of the kind that its key takes.
    fn not_of(&mut self, kind: &ValueKind, key: &str, value: &Spanned<DeValue<'_>>) {
        let found = described(value.get_ref());
        let written = kind.examples.iter().map(|example| format!("{key} = {example}"));
        let written: Vec<String> = written.collect();
        let reason = format!("must be {}, and is {found}", kind.name);
        let line = self.span(value.span());
        self.wrong(key, line, reason, format!("write {}", written.join(" or ")));
    }

    fn span(&self, span: Range<usize>) -> usize {
        self.lines.at(span.start)
    }

    /// The line of a key's value, if the key is there.
    pub(super) fn line_of(&self, key: &str) -> Option<usize> {
        let (_, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(self.span(value.span()))
    }

    fn get(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.push(key);
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// The value of a key, of one kind.
    fn of_kind<T>(
        &mut self,
        key: &'static str,
        kind: &ValueKind,
        take: impl Fn(&'a DeValue<'a>) -> Option<T>,
    ) -> Option<Located<T>> {
        let value = self.get(key)?;
        let line = self.span(value.span());
        let taken = take(value.get_ref()).map(|value| Located { line, value });
        if taken.is_none() {
            self.not_of(kind, key, value);
        }
        taken
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        let found = self.of_kind(key, &FLAG, |value| value.as_bool());
        found.map(|flag| flag.value)
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<Located<String>> {
        self.of_kind(key, &TEXT, |value| value.as_str().map(str::to_owned))
    }

    /// A list of texts; a single one counts as a list.
    pub(super) fn texts(&mut self, key: &'static str) -> Vec<Located<String>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let lines = self.lines;
        let text = |value: &Spanned<DeValue<'_>>| {
            let line = lines.at(value.span().start);
            value.get_ref().as_str().map(|text| Located { line, value: text.to_owned() })
        };
        let values: Vec<&'a Spanned<DeValue<'a>>> =
            value.get_ref().as_array().map_or_else(|| vec![value], |all| all.iter().collect());
        if let Some(other) = values.iter().find(|value| text(value).is_none()) {
            self.not_of(&TEXTS, key, other);
            return Vec::new();
        }
        values.into_iter().filter_map(text).collect()
    }

    /// A whole number of seconds.
    pub(super) fn seconds(&mut self, key: &'static str, range: Range<u64>) -> Option<u64> {
        let whole = |value: &DeValue<'_>| value.as_integer()?.as_str().parse::<u64>().ok();
        let found = self.of_kind(key, &SECONDS, whole)?;
        if range.contains(&found.value) {
            return Some(found.value);
        }
        let reason = format!("{} seconds", found.value);
        let next = format!("write a number from {} to {}", range.start, range.end - 1);
        self.wrong(key, found.line, reason, next);
        None
    }

    /// Parses the text of a key. Numbers are taken as text.
    pub(super) fn parsed<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Refusal>,
    ) -> Option<Located<T>> {
        let text = |value: &DeValue<'_>| match value {
            DeValue::Integer(number) => Some(number.as_str().to_owned()),
            value => value.as_str().map(str::to_owned),
        };
        let Located { line, value } = self.of_kind(key, &TEXT, text)?;
        self.made(key, line, &value, parse(&value))
    }

    /// Parses each text of a list.
    pub(super) fn all_parsed<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, Refusal>,
    ) -> Vec<Located<T>> {
        let texts = self.texts(key).into_iter();
        texts
            .filter_map(|Located { line, value }| self.made(key, line, &value, parse(&value)))
            .collect()
    }

    fn made<T>(
        &mut self,
        key: &str,
        line: usize,
        typed: &str,
        made: Result<T, Refusal>,
    ) -> Option<Located<T>> {
        match made {
            Ok(value) => Some(Located { line, value }),
            Err(Refusal { reason, next }) => {
                self.wrong(key, line, format!("\"{typed}\": {reason}"), next);
                None
            }
        }
    }

    /// Reports the keys that were not taken as unknown.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        for (name, value) in self.table {
            let name = name.get_ref().as_ref();
            if self.known.contains(&name) {
                continue;
            }
            let line = self.span(value.span());
            let known = self.known.join(", ");
            // Of a letter or two anything could have been meant.
            let typed = if name.len() > 2 { name } else { "" };
            let next = match similar(typed, self.known.iter().copied()) {
                Some(meant) => format!("did you mean {meant}? the keys are {known}"),
                None => format!("the keys are {known}"),
            };
            self.wrong(name, line, "there is no such key", next);
        }
        self.problems
    }
}
