//! Text that is no TOML: the first mistake, its place, and the missing part. Those after it mostly
//! follow from it.

use toml::de::Error;

use super::Problem;
use super::entry::Lines;

/// Returns the first mistake of a text in which the parser found errors.
pub(super) fn mistake(text: &str, errors: &[Error]) -> Option<Problem> {
    let first = errors.iter().min_by_key(|error| error.span().map_or(0, |span| span.start))?;
    let span = first.span().unwrap_or_default();
    let at = |offset: usize, reason: String, next: String| {
        let lines = Lines(text);
        let column = Some(lines.column(offset));
        Problem { column, ..Problem::new(lines.at(offset), "", reason, next) }
    };
    if let Some(list) = open_list(text).filter(|list| list.begin <= span.start) {
        let reason = format!("the list {} = [ has no ]", list.key);
        return Some(at(list.end, reason, "write ] behind its last text".to_owned()));
    }
    if first.message() == "duplicate key" {
        let typed = text.get(span.clone()).unwrap_or_default();
        let reason = format!("{typed} is there twice");
        return Some(at(span.start, reason, "leave one of them out".to_owned()));
    }
    let (begin, line) = line_at(text, span.start);
    if let Some((key, value)) = bare_text(line) {
        let offset = begin + line.rfind(value).unwrap_or(0);
        let (reason, meant) = match value.to_ascii_lowercase().as_str() {
            "yes" | "on" | "true" => (format!("{value} is not true or false"), "true".to_owned()),
            "no" | "off" | "false" => (format!("{value} is not true or false"), "false".to_owned()),
            _ => (format!("text has no quotes: {value}"), format!("\"{value}\"")),
        };
        return Some(at(offset, reason, format!("write {key} = {meant}")));
    }
    let (what, expected) =
        first.message().split_once(", expected ").unwrap_or((first.message(), ""));
    let next = match expected.replace('`', "").as_str() {
        "" => "mend the line; docs/config.md has examples".to_owned(),
        "newline, #" => "begin a new line there".to_owned(),
        missing => format!("write {missing} there"),
    };
    Some(at(span.start, what.to_owned(), next))
}

/// A list that goes on into the next key or table.
struct OpenList<'a> {
    key: &'a str,
    begin: usize,
    /// Behind its last character.
    end: usize,
}

/// Returns the first list without an end.
fn open_list(text: &str) -> Option<OpenList<'_>> {
    let mut open: Option<OpenList<'_>> = None;
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let code = without_comment(line).trim_end();
        let key = code.split_once('=').map(|(key, value)| (key.trim(), value.trim_start()));
        let key = key.filter(|(key, _)| is_bare(key));
        let is_table = code.trim_start().starts_with('[');
        if open.is_some() && (key.is_some() || is_table) {
            return open;
        }
        if let Some((key, _)) = key.filter(|(_, value)| value.starts_with('[')) {
            open = Some(OpenList { key, begin, end: begin });
        }
        if let Some(list) = &mut open
            && !code.is_empty()
        {
            list.end = begin + code.len();
        }
        if outside_quotes(code).any(|(_, c)| c == ']') {
            open = None;
        }
        begin += line.len();
    }
    open
}

/// The characters of a line outside texts in quotes, with their offsets.
fn outside_quotes(line: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut quote = None;
    line.char_indices().filter(move |(_, c)| match quote {
        Some(closing) => {
            if *c == closing {
                quote = None;
            }
            false
        }
        None => {
            quote = Some(*c).filter(|c| matches!(c, '"' | '\''));
            quote.is_none()
        }
    })
}

fn without_comment(line: &str) -> &str {
    let comment = outside_quotes(line).find(|(_, c)| *c == '#');
    comment.map_or(line, |(begin, _)| &line[..begin])
}

fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

/// Returns key and value of a line whose value is text that lacks its quotes.
fn bare_text(line: &str) -> Option<(&str, &str)> {
    let (key, value) = without_comment(line).split_once('=')?;
    let key = key.trim();
    let value = value.trim();
    let is_text = !value.is_empty() && !value.contains(['"', '\'', '[', '{', '=']);
    (is_bare(key) && is_text).then_some((key, value))
}

/// Returns the line at an offset, and the offset of its beginning.
fn line_at(text: &str, offset: usize) -> (usize, &str) {
    let offset = (0..=offset.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    let (before, after) = text.split_at(offset.unwrap_or(0));
    let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
    let end = after.find('\n').map_or(text.len(), |newline| before.len() + newline);
    (begin, &text[begin..end])
}

#[cfg(test)]
mod tests {
    use toml::de::DeTable;

    use super::*;

    fn said(text: &str) -> String {
        let (_, errors) = DeTable::parse_recoverable(text);
        let problem = mistake(text, &errors).expect("a mistake");
        let column = problem.column.expect("a column");
        format!("{}:{column}: {}; {}", problem.line, problem.reason, problem.next.advice)
    }

    #[test]
    fn the_first_mistake_is_told_with_its_place_and_the_missing_part() {
        for (text, expected) in [
            ("[array.a\nexports = []", "1:9: unclosed table; write ] there"),
            (
                "[array.a]\nmembers = [\"/a\", \"/b\"\nexports = []\n[array.b]\n",
                "2:22: the list members = [ has no ]; write ] behind its last text",
            ),
            (
                "[array.a]\nmembers = [ # two\n  \"/a\", # one\n  \"/b]\",\n\n[array.b]\n",
                "4:9: the list members = [ has no ]; write ]",
            ),
            ("[array.a]\nmembers = [\"/a\"", "2:16: the list members = [ has no ]"),
            (
                "[array.a]\nmembers = [\"/a\" \"/b\"]\nexports = [\n\"ublk\"\n]\n",
                "2:17: missing comma between array elements; write , there",
            ),
            ("[array.a]\nmax = 200M # all", "2:7: text has no quotes: 200M; write max = \"200M\""),
            ("[array.a]\nboot = yes", "2:8: yes is not true or false; write boot = true"),
            ("[array.a]\n[array.a]", "2:8: a is there twice; leave one of them out"),
            ("[array.a]\nwait = 1\nwait = 2", "3:1: wait is there twice; leave one"),
            ("[array.a]\nboot", "2:5: key with no value; write = there"),
        ] {
            assert!(said(text).starts_with(expected), "{text}: {}", said(text));
        }
    }
}
