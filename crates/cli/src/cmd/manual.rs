//! Man pages made of pages of the book: `arrays.toml(5)`, `braid(7)` with what all commands have in
//! common, and `braid-messages(7)`.

use std::path::Path;

use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::failure::{Failure, system_error};
use crate::messages::{self, without_links};

/// A page of the book as a man page.
struct Manual {
    file: &'static str,
    name: &'static str,
    section: &'static str,
    about: &'static str,
    markdown: &'static str,
}

const MANUALS: [Manual; 3] = [
    Manual {
        file: "arrays.toml.5",
        name: "arrays.toml",
        section: "5",
        about: "arrays and storage nodes of a machine, for braid up",
        markdown: include_str!("../../../../docs/config.md"),
    },
    Manual {
        file: "braid.7",
        name: "braid",
        section: "7",
        about: "exit codes, ports and files of Braid",
        markdown: include_str!("../../../../docs/facts.md"),
    },
    Manual {
        file: "braid-messages.7",
        name: "braid-messages",
        section: "7",
        about: "what messages of Braid mean, by their ids",
        markdown: messages::PAGE,
    },
];

/// Writes the pages that are no command's.
pub(super) fn write(dir: &Path) -> Result<(), Failure> {
    for manual in &MANUALS {
        let path = dir.join(manual.file);
        std::fs::write(&path, manual.page()).map_err(|error| {
            let reason = system_error(&error);
            Failure::refused("man", path.display(), reason, "name a directory you may write to")
        })?;
    }
    Ok(())
}

impl Manual {
    fn page(&self) -> String {
        let mut page = Roff::new();
        page.control("TH", [self.name, self.section]);
        page.control("SH", ["NAME"]);
        page.text([roman(format!("{} - {}", self.name, self.about))]);
        page.control("SH", ["DESCRIPTION"]);
        let mut blocks = Blocks { page, open: Block::None };
        self.markdown.lines().for_each(|line| blocks.line(line));
        blocks.end();
        blocks.page.control("SH", ["SEE ALSO"]);
        blocks.page.text([bold("braid"), roman("(1)")]);
        blocks.page.to_roff()
    }
}

/// A block of Markdown that goes on with the next line.
#[derive(Debug, PartialEq, Eq)]
enum Block {
    None,
    Paragraph(String),
    Item(String),
    /// Between fences, or indented.
    Code {
        fenced: bool,
    },
    /// With the headings of its columns.
    Table(Vec<String>),
}

struct Blocks {
    page: Roff,
    open: Block,
}

impl Blocks {
    fn line(&mut self, line: &str) {
        let fence = line.starts_with("```");
        if let Block::Code { fenced: true } = self.open
            && !fence
        {
            self.page.text([roman(line)]);
        } else if fence {
            let begins = self.open != Block::Code { fenced: true };
            self.end();
            if begins {
                self.begin_code(true);
            }
        } else if let Some(code) = line.strip_prefix("    ") {
            if self.open != (Block::Code { fenced: false }) {
                self.end();
                self.begin_code(false);
            }
            self.page.text([roman(code)]);
        } else if line.is_empty() || line.starts_with('#') {
            self.end();
            if let Some(heading) = line.strip_prefix("## ") {
                self.page.control("SH", [heading.to_uppercase().as_str()]);
            }
        } else if let Some(row) = line.strip_prefix('|') {
            self.row(row);
        } else if let Some(item) = line.strip_prefix("- ") {
            self.end();
            self.open = Block::Item(item.to_owned());
        } else {
            self.text(line);
        }
    }

    fn text(&mut self, line: &str) {
        if let Block::Paragraph(text) | Block::Item(text) = &mut self.open {
            *text = format!("{text} {}", line.trim_start());
        } else {
            self.end();
            self.open = Block::Paragraph(line.to_owned());
        }
    }

    /// Adds a row of a table. The headings of the third column and those after it stay.
    fn row(&mut self, row: &str) {
        let row = row.trim_end_matches('|');
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let Block::Table(headings) = &self.open else {
            self.end();
            self.open = Block::Table(cells.into_iter().map(str::to_owned).collect());
            return;
        };
        let [first, second, others @ ..] = cells.as_slice() else { return };
        if first.starts_with("---") {
            return;
        }
        let others =
            others.iter().zip(headings.iter().skip(2)).filter(|(cell, _)| !cell.is_empty());
        let others = others.map(|(cell, heading)| format!("{heading}: {cell}"));
        let second = Some((*second).to_owned()).filter(|cell| !cell.is_empty());
        let text: Vec<String> = second.into_iter().chain(others).collect();
        self.page.control("TP", []).text(inlines(first)).text(inlines(&text.join("; ")));
    }

    fn begin_code(&mut self, fenced: bool) {
        self.open = Block::Code { fenced };
        self.page.control("RS", ["4"]).control("nf", []);
    }

    fn end(&mut self) {
        match std::mem::replace(&mut self.open, Block::None) {
            Block::None => {}
            Block::Paragraph(text) => {
                self.page.control("PP", []).text(inlines(&text));
            }
            Block::Item(text) => {
                self.page.control("IP", ["-", "2"]).text(inlines(&text));
            }
            Block::Code { .. } => {
                self.page.control("fi", []).control("RE", []);
            }
            Block::Table(_) => {
                self.page.control("PP", []);
            }
        }
    }
}

/// Returns text with its code and strong words in bold, and links without where they lead.
fn inlines(text: &str) -> Vec<Inline> {
    let plain = without_links(text);
    let plain = plain.replace("**", "`");
    let words = plain.split('`').enumerate().filter(|(_, words)| !words.is_empty());
    words.map(|(at, words)| if at % 2 == 1 { bold(words) } else { roman(words) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_a_page() {
        let markdown = "# Title\n\nOne `two`\n[three](four.md).\n\n## Keys\n\n\
                        | key | | else |\n| --- | --- | --- |\n\
                        | `uuid` | selects it | by `name` |\n\n```toml\na = 1\n```\n\n\
                        - **first**\n  goes on\n\n    typed -x\n";
        let manual = Manual { file: "", name: "n", section: "5", about: "about", markdown };
        let page = manual.page();
        for part in [
            ".SH NAME\nn \\- about\n",
            "One \\fBtwo\\fR three.\n",
            ".SH KEYS\n",
            ".TP\n\\fBuuid\\fR\nselects it; else: by \\fBname\\fR\n",
            ".RS 4\n.nf\na = 1\n.fi\n.RE\n",
            ".IP - 2\n\\fBfirst\\fR goes on\n",
            "typed \\-x\n.fi\n",
        ] {
            assert!(page.contains(part), "{part:?} is not in\n{page}");
        }
        assert!(!page.contains("---") && !page.contains("four.md"), "{page}");
    }
}
