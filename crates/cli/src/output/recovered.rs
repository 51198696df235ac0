//! Results of `braid recover`.

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
    pub(crate) roles: Vec<Option<PlacedMember>>,
    pub(crate) evidence: Vec<String>,
    /// End of the content found on the array, if known.
    pub(crate) needed_sectors: Option<u64>,
    /// Options that its members need, each with a space in front.
    pub(crate) options: String,
    /// Number of this array among the results, from 1.
    pub(crate) array: u32,
    /// The arrays that are its members, in the order of their roles, if these are arrays.
    pub(crate) legs: Vec<Leg>,
}

/// An array that is a member of another one, and is served to be one.
pub(crate) struct Leg {
    /// Name under which the leg is served.
    pub(crate) name: String,
    pub(crate) array: Recovered,
}

impl Leg {
    /// The member that it is while it is served.
    pub(crate) fn member(name: &str) -> String {
        format!("nbd+unix:///?socket=$PWD/{name}.nbd")
    }

    fn command(&self) -> String {
        let Self { name, array } = self;
        let words = array.words();
        let geometry = array.geometry();
        format!("braid assemble {name} --readonly{geometry} {words} --export nbd:unix:{name}.nbd")
    }
}

/// A member, and where its data begin.
#[derive(Clone, Debug)]
pub(crate) struct PlacedMember {
    pub(crate) member: String,
    pub(crate) data_offset_bytes: u64,
}

impl Recovered {
    /// The command that serves it.
    pub(crate) fn command(&self) -> String {
        format!("braid assemble --readonly{} {}", self.geometry(), self.words())
    }

    /// The commands that are typed for it, this one last.
    fn commands(&self) -> Vec<String> {
        self.legs.iter().map(Leg::command).chain([self.command()]).collect()
    }

    /// Returns the options of its geometry, with a space in front.
    fn geometry(&self) -> String {
        let layout = layout(self.shape.layout);
        let layout = layout.map(|layout| format!(",layout={layout}")).unwrap_or_default();
        let chunk = match self.shape.chunk_sectors {
            0 => String::new(),
            sectors => format!(",chunk={}", size::typed(u64::from(sectors) * SECTOR_BYTES)),
        };
        let offset = self.offsets();
        let level = self.shape.level.to_md();
        format!("{} --geometry level={level}{layout}{chunk}{offset}", self.options)
    }

    /// Returns the members as they are typed. Names of served legs are expanded by the shell.
    fn words(&self) -> String {
        let typed = |role: &Option<PlacedMember>| {
            let word = word(role);
            if self.legs.is_empty() { shell_word(&word) } else { format!("\"{word}\"") }
        };
        self.roles.iter().map(typed).collect::<Vec<_>>().join(" ")
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

fn word(role: &Option<PlacedMember>) -> String {
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
    array: u32,
    confidence: &'static str,
    #[serde(flatten)]
    made_of: MadeOf,
    evidence: Vec<String>,
    legs: Vec<LegAnswer>,
    command: String,
}

#[derive(Serialize)]
struct LegAnswer {
    #[serde(flatten)]
    made_of: MadeOf,
    command: String,
}

/// The geometry of an array, and its members.
#[derive(Serialize)]
struct MadeOf {
    level: &'static str,
    layout: Option<String>,
    chunk_bytes: u64,
    raid_devices: u32,
    members: Vec<String>,
    data_offset_bytes: Vec<Option<u64>>,
}

pub(crate) fn json(found: &[Recovered]) -> Answer {
    let leg = |leg: &Leg| LegAnswer { made_of: leg.array.made_of(), command: leg.command() };
    let each = found.iter().map(|one| Hypothesis {
        array: one.array,
        confidence: one.confidence.name(),
        made_of: one.made_of(),
        evidence: one.evidence.clone(),
        legs: one.legs.iter().map(leg).collect(),
        command: one.command(),
    });
    Answer { schema: 1, hypotheses: each.collect() }
}

pub(crate) fn text(found: &[Recovered]) -> String {
    let mut text = String::new();
    let mut array = found.first().map_or(0, |one| one.array);
    for (index, one) in found.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        if one.array != array {
            array = one.array;
            text.push_str("another array:\n");
        }
        let _ = writeln!(text, "{}: {}", one.confidence.name(), one.told());
        if one.legs.is_empty() {
            one.tell_roles(&mut text, "  ");
        }
        for (role, leg) in one.legs.iter().enumerate() {
            let _ = writeln!(text, "  role {role}: {}", leg.array.told());
            leg.array.tell_roles(&mut text, "    ");
        }
        for line in &one.evidence {
            let _ = writeln!(text, "  {line}");
        }
        for command in one.commands() {
            let _ = writeln!(text, "  {command}");
        }
    }
    text
}

impl Recovered {
    fn chunk_bytes(&self) -> u64 {
        u64::from(self.shape.chunk_sectors) * SECTOR_BYTES
    }

    fn all_offsets(&self) -> Vec<Option<u64>> {
        self.roles.iter().map(|role| role.as_ref().map(|place| place.data_offset_bytes)).collect()
    }

    fn made_of(&self) -> MadeOf {
        MadeOf {
            level: self.shape.level.name(),
            layout: layout(self.shape.layout),
            chunk_bytes: self.chunk_bytes(),
            raid_devices: self.shape.raid_disks,
            members: self.roles.iter().map(word).collect(),
            data_offset_bytes: self.all_offsets(),
        }
    }

    /// Level, layout and chunk.
    fn told(&self) -> String {
        let layout = layout(self.shape.layout);
        let layout = layout.map(|layout| format!(", layout {layout}")).unwrap_or_default();
        let chunk = match self.chunk_bytes() {
            0 => String::new(),
            bytes => format!(", chunk {}", size::typed(bytes)),
        };
        format!("{}{layout}{chunk}", self.shape.level.name())
    }

    /// A line for each role.
    fn tell_roles(&self, text: &mut String, indent: &str) {
        for (number, role) in self.roles.iter().enumerate() {
            let _ = match role {
                Some(PlacedMember { member, data_offset_bytes }) => writeln!(
                    text,
                    "{indent}role {number}: {member}, data from {} on",
                    size::typed(*data_offset_bytes)
                ),
                None => writeln!(text, "{indent}role {number}: missing"),
            };
        }
    }
}

/// Progress bar of reading, on a terminal.
pub(crate) struct ReadingProgress(ProgressBar);

impl ReadingProgress {
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
