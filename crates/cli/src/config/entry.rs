//! One table of the file. Its keys are taken one after the other; the rest is unknown.

use std::fmt::Display;
use std::ops::Range;

use braid_array::Refusal;
use braid_array::refusal::Next;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Located, Problem};
use crate::args::similar;

/// Line numbers of bytes in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines<'a>(pub(super) &'a str);

impl Lines<'_> {
    pub(super) fn at(self, offset: usize) -> usize {
        let before = &self.0.as_bytes()[..offset.min(self.0.len())];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
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

    fn span(&self, span: Range<usize>) -> usize {
        self.lines.at(span.start)
    }

    fn get(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.push(key);
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// The value of a key, of one kind.
    fn of_kind<T>(
        &mut self,
        key: &'static str,
        kind: &str,
        take: impl Fn(&'a DeValue<'a>) -> Option<T>,
    ) -> Option<Located<T>> {
        let value = self.get(key)?;
        let line = self.span(value.span());
        let taken = take(value.get_ref()).map(|value| Located { line, value });
        if taken.is_none() {
            let found = value.get_ref().type_str();
            self.wrong(key, line, format!("is no {kind}, but {found}"), format!("write {kind}"));
        }
        taken
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        let found = self.of_kind(key, "true or false", |value| value.as_bool());
        found.map(|flag| flag.value)
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<Located<String>> {
        self.of_kind(key, "\"text in quotes\"", |value| value.as_str().map(str::to_owned))
    }

    /// A list of texts; a single one counts as a list.
    pub(super) fn texts(&mut self, key: &'static str) -> Vec<Located<String>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let lines = self.lines;
        let text = |value: &Spanned<DeValue<'_>>| {
            let line = lines.at(value.span().start);
            value.get_ref().as_str().map(|text| Located { line, value: text.to_owned() })
        };
        let texts = match value.get_ref().as_array() {
            Some(array) => array.iter().map(text).collect::<Option<Vec<_>>>(),
            None => text(value).map(|text| vec![text]),
        };
        texts.unwrap_or_else(|| {
            let line = self.span(value.span());
            self.wrong(key, line, "is no list of texts", "write [\"one\", \"another\"]");
            Vec::new()
        })
    }

    /// A whole number of seconds.
    pub(super) fn seconds(&mut self, key: &'static str, range: Range<u64>) -> Option<u64> {
        let whole = |value: &DeValue<'_>| value.as_integer()?.as_str().parse::<u64>().ok();
        let found = self.of_kind(key, "a whole number of seconds", whole)?;
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
        let Located { line, value } = self.of_kind(key, "\"text in quotes\"", text)?;
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
