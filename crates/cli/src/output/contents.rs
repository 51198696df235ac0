//! Contents of an array, as `braid cat --list` prints them.

use std::fmt::Write as _;

use braid_rescue::contents::{Content, ContentKind};
use braid_rescue::kind::Finding;
use serde::Serialize;

use super::human::size_binary;
use super::json::SCHEMA;

/// Returns a line for each content, indented below the content that holds it, with its remarks
/// below it.
pub(crate) fn tree(contents: &[Content]) -> String {
    let mut text = String::new();
    for content in contents {
        put(&mut text, content, 0);
    }
    text
}

fn put(text: &mut String, content: &Content, depth: usize) {
    let indent = "  ".repeat(depth);
    let size = size_binary(content.size_bytes);
    let what = match &content.kind {
        ContentKind::Array => String::new(),
        ContentKind::Partition { purpose, label: None } => format!(", {purpose}"),
        ContentKind::Partition { purpose, label: Some(label) } => {
            format!(", {purpose} \"{label}\"")
        }
        ContentKind::Group { physical_volumes } => {
            format!(", a group of LVM2 on {}", physical_volumes.join(", "))
        }
        ContentKind::Volume => ", a volume of LVM2".to_owned(),
    };
    let found: String =
        content.findings.iter().map(|found| format!(": {}", finding(found))).collect();
    let _ = writeln!(text, "{indent}{}  {size}{what}{found}", content.name);
    for remark in &content.remarks {
        let _ = writeln!(text, "{indent}  note: {remark}");
    }
    for content in &content.contents {
        put(text, content, depth + 1);
    }
}

fn finding(found: &Finding) -> String {
    let label = found.label.as_ref().map(|label| format!(" \"{label}\""));
    let uuid = found.uuid.as_ref().map(|uuid| format!(" {uuid}"));
    format!("{}{}{}", found.kind, label.unwrap_or_default(), uuid.unwrap_or_default())
}

/// The answer as JSON.
#[derive(Serialize)]
pub(crate) struct ContentsJson<'a> {
    schema: u32,
    contents: Vec<ContentJson<'a>>,
}

#[derive(Serialize)]
struct ContentJson<'a> {
    name: &'a str,
    kind: &'static str,
    size_bytes: u64,
    /// Offset of contents in one piece.
    offset_bytes: Option<u64>,
    partition_type: Option<&'a str>,
    partition_name: Option<&'a str>,
    physical_volumes: Option<&'a [String]>,
    readable: bool,
    found: Vec<FoundJson<'a>>,
    remarks: &'a [String],
    contents: Vec<Self>,
}

#[derive(Serialize)]
struct FoundJson<'a> {
    kind: &'static str,
    uuid: Option<&'a str>,
    label: Option<&'a str>,
}

impl<'a> ContentsJson<'a> {
    pub(crate) fn new(contents: &'a [Content]) -> Self {
        let contents = contents.iter().map(ContentJson::new).collect();
        Self { schema: SCHEMA, contents }
    }
}

impl<'a> ContentJson<'a> {
    fn new(content: &'a Content) -> Self {
        let (partition_type, partition_name) = match &content.kind {
            ContentKind::Partition { purpose, label } => (Some(purpose.as_str()), label.as_deref()),
            _ => (None, None),
        };
        let physical_volumes = match &content.kind {
            ContentKind::Group { physical_volumes } => Some(physical_volumes.as_slice()),
            _ => None,
        };
        let whole = content.place.as_ref().and_then(|place| place.whole());
        let found = content.findings.iter().map(|found| FoundJson {
            kind: found.kind.word(),
            uuid: found.uuid.as_deref(),
            label: found.label.as_deref(),
        });
        Self {
            name: &content.name,
            kind: content.kind.word(),
            size_bytes: content.size_bytes,
            offset_bytes: whole.map(|piece| piece.offset_bytes),
            partition_type,
            partition_name,
            physical_volumes,
            readable: content.place.is_some(),
            found: found.collect(),
            remarks: &content.remarks,
            contents: content.contents.iter().map(Self::new).collect(),
        }
    }
}
