//! What `braid recover` has found.

use std::fmt::Write as _;

use braid_array::SECTOR_BYTES;
use braid_array::level::{Layout, Raid10Layout};
use braid_host::size;
use braid_rescue::recover::{Confidence, Shape};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::invocation::shell_word;

/// A hypothesis.
pub(crate) struct Recovered {
    pub(crate) confidence: Confidence,
    pub(crate) shape: Shape,
    /// The member in each role.
    pub(crate) roles: Vec<Option<Placed>>,
    pub(crate) evidence: Vec<String>,
    /// Where in the array what was found on it ends, where that is known.
    pub(crate) needed_sectors: Option<u64>,
    /// Options that its members need, each with a space in front.
    pub(crate) options: String,
}

/// A member, and where its data begin.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) member: String,
    pub(crate) data_offset_bytes: u64,
}

impl Recovered {
    /// The command that serves it.
    pub(crate) fn command(&self) -> String {
        let layout = layout(self.shape.layout);
        let layout = layout.map(|layout| format!(",layout={layout}")).unwrap_or_default();
        let chunk = match self.shape.chunk_sectors {
            0 => String::new(),
            sectors => format!(",chunk={}", size::typed(u64::from(sectors) * SECTOR_BYTES)),
        };
        let offset = self.offsets();
        let level = self.shape.level.to_md();
        let geometry = format!("level={level}{layout}{chunk}{offset}");
        let words: Vec<String> = self.roles.iter().map(|role| shell_word(&word(role))).collect();
        let options = format!("{} --geometry {geometry}", self.options);
        format!("braid assemble --readonly{options} {}", words.join(" "))
    }

    /// The size of the array where so much of each member is used.
    pub(crate) fn array_sectors(&self, member_sectors: u64) -> u64 {
        self.shape.geometry(member_sectors).map_or(0, |geometry| geometry.array_sectors())
    }

    /// `,offset=1M`, or one for each member where they differ.
    fn offsets(&self) -> String {
        let there = self.roles.iter().flatten().map(|place| place.data_offset_bytes);
        let first = there.clone().next().unwrap_or(0);
        if there.clone().all(|offset| offset == first) {
            return format!(",offset={}", size::typed(first));
        }
        let each = self
            .roles
            .iter()
            .map(|role| size::typed(role.as_ref().map_or(first, |place| place.data_offset_bytes)));
        format!(",offset={}", each.collect::<Vec<_>>().join(":"))
    }
}

fn word(role: &Option<Placed>) -> String {
    role.as_ref().map_or_else(|| "missing".to_owned(), |place| place.member.clone())
}

/// The layout as `--geometry` takes it.
fn layout(layout: Layout) -> Option<String> {
    match layout {
        Layout::None | Layout::Raid0(_) => None,
        Layout::Parity(layout) => Some(layout.name().to_owned()),
        Layout::Raid10(Raid10Layout { near, far: 1, .. }) => Some(format!("n{near}")),
        Layout::Raid10(Raid10Layout { far, offset: true, .. }) => Some(format!("o{far}")),
        Layout::Raid10(Raid10Layout { far, .. }) => Some(format!("f{far}")),
    }
}

#[derive(Serialize)]
pub(crate) struct Answer {
    schema: u32,
    hypotheses: Vec<Hypothesis>,
}

#[derive(Serialize)]
struct Hypothesis {
    confidence: &'static str,
    level: &'static str,
    layout: Option<String>,
    chunk_bytes: u64,
    raid_devices: u32,
    members: Vec<String>,
    data_offset_bytes: Vec<Option<u64>>,
    evidence: Vec<String>,
    command: String,
}

pub(crate) fn json(found: &[Recovered]) -> Answer {
    let each = found.iter().map(|one| Hypothesis {
        confidence: one.confidence.name(),
        level: one.shape.level.name(),
        layout: layout(one.shape.layout),
        chunk_bytes: u64::from(one.shape.chunk_sectors) * SECTOR_BYTES,
        raid_devices: one.shape.raid_disks,
        members: one.roles.iter().map(word).collect(),
        data_offset_bytes: one
            .roles
            .iter()
            .map(|role| role.as_ref().map(|place| place.data_offset_bytes))
            .collect(),
        evidence: one.evidence.clone(),
        command: one.command(),
    });
    Answer { schema: 1, hypotheses: each.collect() }
}

pub(crate) fn text(found: &[Recovered]) -> String {
    let mut text = String::new();
    for (index, one) in found.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let mut line = format!("{}: {}", one.confidence.name(), one.shape.level.name());
        if let Some(layout) = layout(one.shape.layout) {
            let _ = write!(line, ", layout {layout}");
        }
        if one.shape.chunk_sectors > 0 {
            let chunk = size::typed(u64::from(one.shape.chunk_sectors) * SECTOR_BYTES);
            let _ = write!(line, ", chunk {chunk}");
        }
        let _ = writeln!(text, "{line}");
        for (number, role) in one.roles.iter().enumerate() {
            let _ = match role {
                Some(Placed { member, data_offset_bytes }) => writeln!(
                    text,
                    "  role {number}: {member}, data from {} on",
                    size::typed(*data_offset_bytes)
                ),
                None => writeln!(text, "  role {number}: missing"),
            };
        }
        for line in &one.evidence {
            let _ = writeln!(text, "  {line}");
        }
        let _ = writeln!(text, "  {}", one.command());
    }
    text
}

/// How much of what is to be read was read, on a terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(bytes: u64) -> Self {
        let shown = super::shows_progress();
        let bar = if shown { ProgressBar::new(bytes) } else { ProgressBar::hidden() };
        let template = "reading samples [{wide_bar}] {percent}% {bytes}";
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        Self(bar)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.0.inc_length(bytes);
    }

    pub(crate) fn read(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    pub(crate) fn done(&self) {
        self.0.finish_and_clear();
    }
}
