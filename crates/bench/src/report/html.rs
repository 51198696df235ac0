//! One page that holds everything and asks for nothing: no script, no address outside.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{TOOLS, about_machine, clean, noise, plot, where_it_is};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::model::{Chapter, Gap, Plot, Table};

const STYLE: &str = include_str!("style.css");

/// A browser that reads it runs nothing and loads nothing, whatever a name tries.
const POLICY: &str = "script-src 'none'; img-src data:; connect-src 'none'; font-src 'none'; \
    media-src 'none'; object-src 'none'; frame-src 'none'; form-action 'none'; base-uri 'none'";

pub(super) fn page(machine: &Machine, chapters: &[Chapter]) -> Result<String, Failure> {
    let sections: Vec<Markup> = chapters.iter().map(section).collect::<Result<_, Failure>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                link rel="icon" href="data:,";
                title { "Braid, measured" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Braid, measured" }
                    p.lead { "The comparisons that people make of arrays, on this machine." }
                    dl.machine {
                        @for (name, value) in about_machine(machine) {
                            div class=[(name == TOOLS).then_some("tools")] {
                                dt { (name) }
                                dd { (clean(&value)) }
                            }
                        }
                    }
                    (contents(chapters))
                    p.small { (noise()) }
                    p.small {
                        "The numbers for machines: "
                        a href="results.json" { "results.json" } ", "
                        a href="results.csv" { "results.csv" }
                        ". What the tools said: " a href="raw/" { "raw/" } "."
                    }
                }
                main { @for section in &sections { (section) } }
            }
        }
    };
    Ok(page.into_string() + "\n")
}

fn contents(chapters: &[Chapter]) -> Markup {
    html! {
        nav aria-label="Contents" {
            ol {
                @for chapter in chapters {
                    li {
                        a href=(format!("#{}", chapter.name)) { (clean(&chapter.title)) }
                        @if !chapter.gaps.is_empty() {
                            " " span.badge { (chapter.gaps.len()) " not measured" }
                        }
                    }
                }
            }
        }
    }
}

/// Number of sentences that are shown; the others are unfolded.
const FIRST: usize = 3;

fn section(chapter: &Chapter) -> Result<Markup, Failure> {
    let (first, more) = chapter.says.split_at(chapter.says.len().min(FIRST));
    let plots: Vec<Markup> = chapter.plots.iter().map(figure).collect::<Result<_, Failure>>()?;
    Ok(html! {
        section id=(chapter.name) {
            h2 { (clean(&chapter.title)) }
            @for paragraph in &chapter.about { p.about { (clean(paragraph)) } }
            @if !chapter.says.is_empty() {
                div.says {
                    h3 { "What it shows" }
                    @for sentence in first { p { (clean(sentence)) } }
                    @if !more.is_empty() {
                        details {
                            summary { (more.len()) " more" }
                            @for sentence in more { p { (clean(sentence)) } }
                        }
                    }
                }
            }
            @if !chapter.gaps.is_empty() { (gaps(&chapter.gaps)) }
            @if !plots.is_empty() {
                div.plots { @for plot in &plots { (plot) } }
            }
            @for part in &chapter.tables { (table(part)) }
            @if !chapter.commands.is_empty() {
                details {
                    summary { "Commands (" (chapter.commands.len()) ")" }
                    pre tabindex="0" {
                        @for command in &chapter.commands { (clean(command)) "\n" }
                    }
                }
            }
        }
    })
}

fn gaps(gaps: &[Gap]) -> Markup {
    html! {
        div.gaps {
            h3 { "Not measured" }
            ul {
                @for gap in gaps {
                    li {
                        b { (clean(&where_it_is(gap))) } ": " (clean(&gap.reason)) ". "
                        span.next { (clean(&gap.next)) }
                    }
                }
            }
        }
    }
}

fn figure(of: &Plot) -> Result<Markup, Failure> {
    let drawn = plot::svg(of)?;
    Ok(html! {
        figure id=(of.id) class=[plot::is_wide(of).then_some("wide")] { (PreEscaped(drawn)) }
    })
}

fn table(table: &Table) -> Markup {
    let is_published: Vec<bool> =
        table.head.iter().map(|head| head.to_lowercase().contains("published")).collect();
    let class = |column: usize, word: &str| match is_published.get(column) {
        Some(true) => Some("published"),
        _ => word.ends_with('~').then_some("noisy"),
    };
    html! {
        h3 { (clean(&table.title)) }
        div.table tabindex="0" role="region" aria-label=(clean(&table.title)) {
            table {
                thead {
                    tr { @for head in &table.head { th scope="col" { (clean(head)) } } }
                }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (column, word) in row.iter().enumerate() {
                                @if column == 0 { th scope="row" { (clean(word)) } }
                                @else {
                                    td class=[class(column, word)] {
                                        (clean(word))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        @if !table.note.is_empty() { p.small { (clean(&table.note)) } }
    }
}
