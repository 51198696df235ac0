//! The report as Markdown that reads well as it is, and the same tables for a terminal.

use std::fmt::Write as _;

use super::{about_machine, clean, noise, where_it_is, wrap};
use crate::machine::Machine;
use crate::model::{Chapter, Table};

const WIDTH: usize = 100;

pub(super) fn page(machine: &Machine, chapters: &[Chapter]) -> String {
    let mut page = "# Braid, measured\n\n".to_owned();
    for (name, value) in about_machine(machine) {
        let _ = writeln!(page, "- **{name}**: {}", escape(&value));
    }
    let _ = writeln!(page, "\n{}", noise());
    for chapter in chapters {
        write_chapter(&mut page, chapter);
    }
    page
}

fn write_chapter(page: &mut String, chapter: &Chapter) {
    let _ = writeln!(page, "\n## {}", escape(&chapter.title));
    for paragraph in &chapter.about {
        let _ = writeln!(page, "\n{}", escape(paragraph));
    }
    write_list(page, "What it shows", chapter.says.iter().map(|line| escape(line)));
    for table in &chapter.tables {
        let _ = writeln!(page, "\n### {}\n", escape(&table.title));
        page.push_str(&lines(table, escape, Some(RULE)));
        if !table.note.is_empty() {
            let _ = writeln!(page, "\n{}", escape(&table.note));
        }
    }
    for plot in &chapter.plots {
        let _ = writeln!(page, "\n![{}](plots/{}.svg)", escape(&plot.title), plot.id);
    }
    let gaps = chapter.gaps.iter();
    write_list(
        page,
        "Not measured",
        gaps.map(|gap| {
            let what = where_it_is(gap);
            let why = escape(&gap.reason);
            format!("**{}**: {why}; {}", escape(&what), escape(&gap.next))
        }),
    );
    if !chapter.commands.is_empty() {
        let fence = "`".repeat(longest_fence(&chapter.commands).max(2) + 1);
        let commands: Vec<String> = chapter.commands.iter().map(|line| clean(line)).collect();
        let _ = writeln!(page, "\n### Commands\n\n{fence}sh\n{}\n{fence}", commands.join("\n"));
    }
}

fn write_list(page: &mut String, title: &str, items: impl Iterator<Item = String>) {
    for (index, item) in items.enumerate() {
        if index == 0 {
            let _ = writeln!(page, "\n### {title}\n");
        }
        let _ = writeln!(page, "- {item}");
    }
}

/// A fence has to be longer than what is inside it.
fn longest_fence(lines: &[String]) -> usize {
    let runs = lines.iter().flat_map(|line| line.split(|c| c != '`'));
    runs.map(str::len).max().unwrap_or(0)
}

pub(super) fn terminal(chapters: &[Chapter]) -> String {
    let mut text = String::new();
    for chapter in chapters {
        let title = clean(&chapter.title);
        let _ = writeln!(text, "{title}\n{}\n", "=".repeat(title.chars().count()));
        for table in &chapter.tables {
            let _ = writeln!(text, "{}\n", clean(&table.title));
            text.push_str(&lines(table, clean, None));
            text.push('\n');
            for line in wrap(&clean(&table.note), WIDTH) {
                let _ = writeln!(text, "{line}");
            }
            if !table.note.is_empty() {
                text.push('\n');
            }
        }
        let gaps = chapter
            .gaps
            .iter()
            .map(|gap| format!("not measured: {}: {}; {}", where_it_is(gap), gap.reason, gap.next));
        let says: Vec<String> = chapter.says.iter().cloned().chain(gaps).collect();
        for sentence in &says {
            for (index, line) in wrap(&clean(sentence), WIDTH - 2).iter().enumerate() {
                let _ = writeln!(text, "{} {line}", if index == 0 { '-' } else { ' ' });
            }
        }
        if !says.is_empty() {
            text.push('\n');
        }
    }
    if chapters.iter().flat_map(|chapter| &chapter.cells).any(|cell| cell.noisy) {
        let _ = writeln!(text, "{}", noise());
    }
    text
}

/// Escapes what Markdown would take for its own.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in clean(text).chars() {
        if matches!(c, '\\' | '|' | '<' | '*' | '[' | '`' | '&') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Ends of the line between the head and the rows, at a column of words and of numbers.
const RULE: (&str, &str) = (":-", "-:");

/// The rows, one below the other: words at the left, numbers at the right.
fn lines(table: &Table, escape: fn(&str) -> String, rule: Option<(&str, &str)>) -> String {
    let rows: Vec<Vec<String>> = std::iter::once(&table.head)
        .chain(&table.rows)
        .map(|row| row.iter().map(|word| escape(word)).collect())
        .collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let words = rows.iter().filter_map(|row| row.get(column));
        words.map(|word| word.chars().count()).max().unwrap_or(0).max(3)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        text.push_str(&line(row, &widths, rule.is_some()));
        if index > 0 {
            continue;
        }
        let dashes = |(column, width): (usize, &usize)| match rule {
            Some((words, _)) if column == 0 => words[..1].to_owned() + &"-".repeat(width - 1),
            Some((_, numbers)) => "-".repeat(width - 1) + &numbers[1..],
            None => "-".repeat(*width),
        };
        let dashes: Vec<String> = widths.iter().enumerate().map(dashes).collect();
        text.push_str(&line(&dashes, &widths, rule.is_some()));
    }
    text
}

fn line(row: &[String], widths: &[usize], fenced: bool) -> String {
    let pad = |(column, width): (usize, &usize)| {
        let word = row.get(column).map_or("", String::as_str);
        if column == 0 { format!("{word:<width$}") } else { format!("{word:>width$}") }
    };
    let words: Vec<String> = widths.iter().enumerate().map(pad).collect();
    if fenced {
        return format!("| {} |\n", words.join(" | "));
    }
    words.join("  ").trim_end().to_owned() + "\n"
}
