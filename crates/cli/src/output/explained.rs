//! Output of `braid assemble --explain`: the text, and the same as JSON.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use braid_array::Condition;
use braid_array::assemble::Verdict;
use braid_array::format::Superblock;
use serde_json::{Value, json};

use super::json::SCHEMA;
use super::{conditions, shape};

/// A device, and its verdict.
pub(crate) type Judged = (String, Verdict);

/// Everything.
#[derive(Debug, Default)]
pub(crate) struct Explained {
    /// Each array.
    pub(crate) arrays: Vec<Explanation>,
    /// Devices in none of them.
    pub(crate) others: Vec<Judged>,
    /// The next step where there is no array.
    pub(crate) next: Option<String>,
    /// The command that lists volumes spanning several arrays, if there are several.
    pub(crate) together: Option<String>,
}

/// An array, or one that is a member of it.
#[derive(Debug)]
pub(crate) struct Explanation {
    /// The newest superblock, if any can be trusted.
    pub(crate) superblock: Option<Superblock>,
    /// Verdict on each device.
    pub(crate) verdicts: Vec<Judged>,
    /// The arrays that are members of it, and those that could be.
    pub(crate) within: Vec<Self>,
    /// Outcome of a start.
    pub(crate) prospect: Prospect,
    /// The safe next command, or advice; none for an array within another.
    pub(crate) next: Option<String>,
    /// Next step after that command has shown the expected content.
    pub(crate) later: Option<Later>,
}

/// A command that writes to members, while the next step only reads.
#[derive(Debug)]
pub(crate) struct Later {
    /// The command.
    pub(crate) command: String,
    /// Description of its writes.
    pub(crate) writes: String,
}

/// Outcome of a start.
#[derive(Debug)]
pub(crate) enum Prospect {
    /// The array runs already.
    Runs {
        /// Under this name.
        name: String,
        /// In this process.
        pid: u32,
    },
    /// Not as it is.
    Refused {
        /// Reason.
        reason: String,
        /// The condition behind it.
        condition: Option<Condition>,
    },
    /// The array can start.
    Ready {
        /// Condition of the started array.
        condition: String,
        /// Log entries to be replayed before the array serves requests.
        replay: Option<Replay>,
    },
}

/// Log entries to be replayed.
#[derive(Debug)]
pub(crate) enum Replay {
    /// Partial parity logs of these devices.
    PartialParity {
        /// Their paths.
        devices: Vec<String>,
        /// Ranges of rows whose parity is recomputed.
        ranges: usize,
    },
    /// A journal.
    Journal {
        /// Its path.
        device: String,
        /// Blocks of it that count.
        blocks: u64,
        /// Pages that are written to members, and pages of data that lack their parity.
        pages: usize,
    },
}

impl Replay {
    fn text(&self) -> String {
        match self {
            Self::PartialParity { devices, ranges } => {
                let what = plural(*ranges as u64, "range of parity", "ranges of parity");
                let logs = if devices.len() == 1 { "log" } else { "logs" };
                let devices = devices.join(", ");
                format!("{what} made anew from the partial parity {logs} of {devices}")
            }
            Self::Journal { device, blocks, pages } => {
                let blocks = plural(*blocks, "block", "blocks");
                let pages = plural(*pages as u64, "page", "pages");
                format!("{pages} of {blocks} of the journal {device} brought in place")
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::PartialParity { devices, ranges } => {
                json!({ "kind": "ppl", "devices": devices, "entries": ranges })
            }
            Self::Journal { device, blocks, pages } => json!({
                "kind": "journal",
                "devices": [device],
                "blocks": blocks,
                "pages": pages,
            }),
        }
    }
}

impl Prospect {
    const fn condition(&self) -> Option<Condition> {
        match self {
            Self::Refused { condition, .. } => *condition,
            Self::Runs { .. } | Self::Ready { .. } => None,
        }
    }
}

/// Returns the conditions that leave devices out.
fn of_verdicts(verdicts: &[Judged]) -> impl Iterator<Item = Condition> {
    verdicts.iter().filter_map(|(_, verdict)| verdict.condition())
}

fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

impl Explained {
    /// Returns whether there are arrays, and each of them runs or can be started.
    pub(crate) fn is_good(&self) -> bool {
        let cannot = |array: &Explanation| matches!(array.prospect, Prospect::Refused { .. });
        !self.arrays.is_empty() && !self.arrays.iter().any(cannot)
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut parts: Vec<String> = self.arrays.iter().map(Explanation::text).collect();
        if !self.others.is_empty() {
            let mut text = "in no array:\n".to_owned();
            list(&self.others, &mut text);
            text.push_str(&conditions::see(&of_verdicts(&self.others).collect()));
            parts.push(text);
        }
        let mut text = parts.join("\n");
        if let Some(next) = &self.next {
            let _ = writeln!(text, "next: {next}");
        }
        if let Some(command) = &self.together {
            let _ = writeln!(text, "\nall of them: {command}    # a volume may lie on several");
        }
        text
    }

    /// For scripts.
    pub(crate) fn json(&self) -> Value {
        json!({
            "schema": SCHEMA,
            "arrays": self.arrays.iter().map(Explanation::json).collect::<Vec<_>>(),
            "others": devices(&self.others),
            "next": self.next,
            "together": self.together,
        })
    }
}

impl Explanation {
    fn text(&self) -> String {
        let mut text = String::new();
        for inner in &self.within {
            text.push_str(&inner.text());
            text.push('\n');
        }
        if let Some(sb) = &self.superblock {
            head(sb, &mut text);
        }
        list(&self.verdicts, &mut text);
        let _ = match &self.prospect {
            Prospect::Runs { name, pid } => writeln!(text, "runs as {name}, process {pid}"),
            Prospect::Refused { reason, .. } => writeln!(text, "cannot start: {reason}"),
            // Of an array within another it goes without saying.
            Prospect::Ready { .. } if self.next.is_none() => Ok(()),
            Prospect::Ready { condition, .. } => writeln!(text, "can start: {condition}"),
        };
        if let Prospect::Ready { replay: Some(replay), .. } = &self.prospect {
            let what = replay.text();
            let _ = writeln!(text, "before it serves: {what}; nothing is written by --explain");
        }
        text.push_str(&conditions::see(&self.conditions()));
        if let Some(next) = &self.next {
            let _ = writeln!(text, "next: {next}");
        }
        if let Some(Later { command, writes }) = &self.later {
            let _ = writeln!(text, "later: {command}    # writes {writes}");
        }
        text
    }

    /// The conditions that keep it or devices of it from running.
    fn conditions(&self) -> BTreeSet<Condition> {
        let all = of_verdicts(&self.verdicts).chain(self.prospect.condition());
        all.collect()
    }

    /// The devices that are in, if it can be started and is made of devices.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &str> {
        let is_ready = matches!(self.prospect, Prospect::Ready { .. }) && self.within.is_empty();
        let verdicts = self.verdicts.iter().filter(move |_| is_ready);
        verdicts.filter(|(_, verdict)| verdict.attached()).map(|(device, _)| device.as_str())
    }

    fn json(&self) -> Value {
        let later = self.later.as_ref();
        let later = later.map(|later| json!({ "command": later.command, "writes": later.writes }));
        let sb = self.superblock.as_ref();
        let mut array = json!({
            "name": sb.map(Superblock::name),
            "uuid": sb.map(Superblock::uuid_text),
            "level": sb.map(|sb| shape::level_name(sb.level)),
            "layout": sb.and_then(shape::layout_option),
            "raid_devices": sb.map(|sb| sb.raid_disks),
            "metadata": sb.map(|sb| shape::version_name(sb.version)),
            "events": sb.map(|sb| sb.events),
            "members": devices(&self.verdicts),
            "children": self.within.iter().map(Self::json).collect::<Vec<_>>(),
            "can_start": matches!(self.prospect, Prospect::Ready { .. }),
            "runs_as": null,
            "pid": null,
            "condition": null,
            "replay": null,
            "reason": null,
            "id": self.prospect.condition().map(|condition| condition.to_string()),
            "next": self.next,
            "later": later,
        });
        match &self.prospect {
            Prospect::Runs { name, pid } => {
                array["runs_as"] = json!(name);
                array["pid"] = json!(pid);
                array["reason"] = json!("it runs");
            }
            Prospect::Refused { reason, .. } => array["reason"] = json!(reason),
            Prospect::Ready { condition, replay } => {
                array["condition"] = json!(condition);
                array["replay"] = json!(replay.as_ref().map(Replay::json));
            }
        }
        array
    }
}

fn head(sb: &Superblock, text: &mut String) {
    let level = shape::level_name(sb.level);
    let version = shape::version_name(sb.version);
    let _ = write!(text, "array {} ({}): {level}", sb.name(), sb.uuid_text());
    if sb.level != 4
        && let Some(layout) = shape::layout_name(sb)
    {
        let _ = write!(text, ", {layout}");
    }
    let _ = writeln!(
        text,
        ", {} members, metadata {version}, newest event count {}",
        sb.raid_disks, sb.events
    );
}

fn list(verdicts: &[Judged], text: &mut String) {
    for (device, verdict) in verdicts {
        let place = if verdict.attached() { "in " } else { "out" };
        let _ = writeln!(text, "  {place}  {device}: {verdict}");
    }
}

fn devices(verdicts: &[Judged]) -> Vec<Value> {
    let device = |(device, verdict): &Judged| {
        let text = verdict.to_string();
        let id = verdict.condition().map(|condition| condition.to_string());
        json!({ "device": device, "in": verdict.attached(), "verdict": text, "id": id })
    };
    verdicts.iter().map(device).collect()
}
