//! The documentation: links lead somewhere, the book has every page, and figures agree.

use std::collections::BTreeSet;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{at, children, is, read, report, root};

/// A link, and the line that it is in.
struct Link {
    line: usize,
    to: String,
}

/// What a page has of both ends of links.
#[derive(Default)]
struct Ends {
    links: Vec<Link>,
    /// What GitHub and mdbook make of headings.
    anchors: BTreeSet<String>,
}

fn ends(text: &str) -> Ends {
    let mut ends = Ends::default();
    let mut heading: Option<String> = None;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let line = text[..range.start].matches('\n').count() + 1;
                ends.links.push(Link { line, to: dest_url.into_string() });
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                ends.anchors.insert(anchor(&heading.take().unwrap_or_default()));
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    ends
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.collect::<String>().to_lowercase()
}

#[test]
fn links_lead_somewhere() {
    let pages = children(&root()).into_iter().chain(children(&root().join("docs")));
    let mut findings = Vec::new();
    let mut count = 0;
    for page in pages.filter(|page| is(page, "md")) {
        let directory = page.parent().expect("a directory");
        for Link { line, to } in ends(&read(&page)).links {
            if to.contains("://") {
                continue;
            }
            count += 1;
            let (file, anchor) = to.split_once('#').unwrap_or((&to, ""));
            let target = if file.is_empty() { page.clone() } else { directory.join(file) };
            if !target.exists() {
                findings.push(at(&page, line, &format!("a dead link: {to}")));
            } else if !anchor.is_empty() && !ends(&read(&target)).anchors.contains(anchor) {
                findings.push(at(&page, line, &format!("no such heading: {to}")));
            }
            // The book has nothing that lies elsewhere.
            if directory.ends_with("docs") && file.starts_with("..") {
                findings.push(at(&page, line, &format!("a link out of the book: {to}")));
            }
        }
    }
    assert!(count > 80, "{count} links");
    report(&findings);
}

#[test]
fn the_book_has_every_page_once() {
    let summary = root().join("docs/SUMMARY.md");
    let mut named: Vec<String> = ends(&read(&summary)).links.into_iter().map(|it| it.to).collect();
    named.sort();
    let pages = children(&root().join("docs")).into_iter().filter(|page| is(page, "md"));
    let names = pages.map(|page| page.file_name().expect("a name").to_string_lossy().into_owned());
    let there: Vec<String> = names.filter(|name| name != "SUMMARY.md").collect();
    assert_eq!(named, there, "docs/SUMMARY.md, and what lies there");
}

/// Figures of a text that have a decimal point.
fn figures(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    let words = words.map(|word| word.trim_end_matches('.'));
    words.filter(|word| word.matches('.').count() == 1 && !word.starts_with('.')).collect()
}

/// What the README says of speed was measured, and is told of where it was.
#[test]
fn figures_of_the_readme_are_those_of_the_benchmarks() {
    let readme = read(&root().join("README.md"));
    let performance = read(&root().join("docs/performance.md"));
    let (_, fast) = readme.split_once("\n## How fast it is\n").expect("the section");
    let (fast, _) = fast.split_once("\n## ").expect("one after it");
    let measured = figures(&performance);
    let in_text = figures(fast);
    assert!(in_text.len() >= 10, "{in_text:?}");
    let elsewhere =
        readme.lines().filter(|line| line.contains("MB/s") || line.contains("reach 0."));
    let said: BTreeSet<&str> = elsewhere.flat_map(figures).chain(in_text).collect();
    let unknown: Vec<&&str> = said.difference(&measured).collect();
    assert!(unknown.is_empty(), "not in docs/performance.md: {unknown:?}");
    for row in fast.lines().filter(|line| line.starts_with("| level")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let both = format!("| {} | {} |", cells[2], cells[3]);
        let rows = performance.replace('~', "");
        assert!(rows.contains(&both), "no row of docs/performance.md has {both}");
    }
}

#[test]
fn the_ends_of_links_are_found() {
    let found = ends("# At 3 a.m.: `x`\n\n[a](b.md#c) `[no](no)`\n\n| [t](t.md) |\n| --- |\n");
    assert_eq!(found.anchors, BTreeSet::from(["at-3-am-x".to_owned()]));
    let links: Vec<(usize, &str)> =
        found.links.iter().map(|it| (it.line, it.to.as_str())).collect();
    assert_eq!(links, [(3, "b.md#c"), (5, "t.md")]);
    assert_eq!(figures("59.0 MB/s, of 59.8. 1.2.3 4"), BTreeSet::from(["59.0", "59.8"]));
}
