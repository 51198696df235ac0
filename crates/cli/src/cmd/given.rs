//! Options typed for members in addition to their names. Advised commands repeat them.

use std::path::Path;

use braid_array::refusal::{Invocation, Next};

use super::maps;
use crate::args::{MapArgs, ReshapeArgs};
use crate::invocation::{next_step_with, shell_word};

/// Options for members, as they were typed.
pub(super) struct Given<'a> {
    pub(super) maps: &'a MapArgs,
    pub(super) overlay: Option<&'a Path>,
    pub(super) reshape: Option<&'a ReshapeArgs>,
}

impl Given<'_> {
    /// Adds the options to the next step.
    pub(super) fn put_into(&self, next: Next) -> Next {
        let Some(invocation) = next.invocation.as_deref() else { return next };
        let words = self.words(invocation);
        let condition = next.condition;
        if words.is_empty() {
            next
        } else {
            Next::from(next_step_with(&next, &words)).of(condition)
        }
    }

    fn words(&self, invocation: &Invocation) -> String {
        let overlay = self.overlay.map(|dir| shell_word(&dir.display().to_string()));
        let overlay = overlay.map(|dir| format!(" --overlay {dir}")).unwrap_or_default();
        let reshape = self.reshape.map(ReshapeArgs::words).unwrap_or_default();
        match invocation {
            Invocation::Assemble { devices, .. } | Invocation::Explain { devices } => {
                self.maps_of(devices) + &overlay + &reshape
            }
            Invocation::Cat { devices, .. } => self.maps_of(devices) + &reshape,
            Invocation::Examine { devices } => self.maps_of(devices),
            _ => String::new(),
        }
    }

    /// The maps of these devices, each with a space in front.
    pub(super) fn maps_of(&self, devices: &[impl AsRef<str>]) -> String {
        let devices: Vec<&Path> = devices.iter().map(|device| Path::new(device.as_ref())).collect();
        maps::words(self.maps, &devices)
    }
}
