//! The page *Messages* of the book: a section for each condition, by its id.

use crate::failure::Failure;

/// The page.
pub(crate) const PAGE: &str = include_str!("../../../docs/messages.md");
/// Beginning of each id.
const PREFIX: &str = "BRAID-";

/// Returns the sections of these ids; `None` where the words are none.
pub(crate) fn sections(words: &[String]) -> Result<Option<String>, Failure> {
    let ids: Vec<String> = words.iter().map(|word| word.to_uppercase()).collect();
    if ids.is_empty() || !ids.iter().all(|id| id.starts_with(PREFIX)) {
        return Ok(None);
    }
    let sections = ids.iter().map(|id| {
        let text = section(id).map(without_links);
        text.ok_or_else(|| Failure::usage("help", id, "no such id", "see man braid-messages"))
    });
    let sections: Vec<String> = sections.collect::<Result<_, _>>()?;
    Ok(Some(sections.join("\n")))
}

/// Returns a section with its heading.
fn section(id: &str) -> Option<&'static str> {
    let heading = format!("## {id}: ");
    let start = PAGE.find(&heading)? + "## ".len();
    let text = &PAGE[start..];
    Some(text.find("\n## ").map_or(text, |end| &text[..end]))
}

/// Returns Markdown with the words of its links alone.
pub(crate) fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((words, after)) = link.split_once("](") else { break };
        let Some((_, after)) = after.split_once(')') else { break };
        plain.push_str(before);
        plain.push_str(words);
        rest = after;
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_array::Condition;

    #[test]
    fn each_id_has_a_section_and_each_section_an_id() {
        let headings = PAGE.lines().filter_map(|line| line.strip_prefix("## BRAID-"));
        let headings = headings.filter_map(|line| line.split_once(": "));
        let documented: Vec<String> = headings.map(|(id, _)| format!("{PREFIX}{id}")).collect();
        let all: Vec<String> = Condition::ALL.iter().map(Condition::to_string).collect();
        assert_eq!(documented, all);
        for id in all {
            let text = section(&id).unwrap();
            for part in ["**At risk:** ", "**To do:** ", "**Well again:** "] {
                assert_eq!(text.matches(part).count(), 1, "{id} {part}");
            }
        }
    }

    #[test]
    fn sections_are_found_by_id_in_either_case() {
        let found = |words: &[&str]| {
            sections(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        let text = found(&["braid-104", "BRAID-101"]).unwrap().unwrap();
        assert!(text.starts_with("BRAID-104: ") && text.contains("\nBRAID-101: "), "{text}");
        assert!(!text.contains("](") && !text.contains("BRAID-105: "), "{text}");
        assert!(matches!(found(&["status"]), Ok(None)));
        assert!(matches!(found(&[]), Ok(None)));
        assert_eq!(found(&["BRAID-10"]).unwrap_err().code(), Failure::USAGE);
    }
}
