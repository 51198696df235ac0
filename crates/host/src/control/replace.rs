//! Replacing a member of a running array while it serves, by a spare, which may be named. Over
//! nodes, a named volume that is no spare yet is made one first.

use std::path::Path;

use braid_array::Refusal;
use braid_array::action::Command;
use braid_array::refusal::{Invocation, Next};
use braid_array::status::{MemberState, Status};

use super::served::{Served, find_member};

impl Served {
    pub(super) fn replace(&self, member: &str, with: Option<&str>) -> Result<(), Refusal> {
        let old = self.member(member)?;
        let Some(with) = with else { return self.command(Command::Replace(old)) };
        let status = self.status()?;
        let Some(network) = self.network else {
            let spare = self.spare(&status, with)?;
            return self.command(Command::ReplaceWith { old, spare });
        };
        let known = find_member(&status, Path::new(with)).is_some();
        if !known && status.degraded > 0 {
            let next = "add it in the place of the member that is missing";
            return Err(Refusal::new(format!("{} lacks members", self.name), next));
        }
        if !known {
            self.add_node(with, &status, network, false, false)?;
        }
        let spare = self.spare(&self.status()?, with)?;
        let replaced = self.command(Command::ReplaceWith { old, spare });
        replaced.map_err(|Refusal { reason, next }| {
            if known {
                return Refusal { reason, next };
            }
            // It was added, and may be of use as such.
            Refusal { reason: format!("{reason} ({with} is a spare now)"), next }
        })
    }

    fn spare(&self, status: &Status, with: &str) -> Result<braid_array::MemberId, Refusal> {
        let found = find_member(status, Path::new(with));
        let spare = found.filter(|found| found.state == MemberState::Spare);
        let why = || {
            let reason = format!("{with} is no spare of {}", self.name);
            let array = Some(self.name.clone());
            let next = match found {
                Some(_) => Next::by("see which are", Invocation::Detail { array }),
                None => {
                    Next::by("add it first", Invocation::Add { array, device: with.to_owned() })
                }
            };
            Refusal::new(reason, next)
        };
        spare.map(|spare| spare.member).ok_or_else(why)
    }
}
