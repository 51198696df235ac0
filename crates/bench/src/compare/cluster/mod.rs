//! Arrays over nodes: who makes the parity, on links that are the limit.

mod bounds;
mod chapter;
mod entry;
mod gluster;
pub mod line;
pub mod load;
mod nodes;
mod options;
mod plots;
mod rig;
mod sentences;
mod setting;
mod words;

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use serde::{Deserialize, Serialize};

use self::gluster::Volume;
use self::nodes::Nodes;
use self::options::ClusterCase;
use self::rig::{MeasurementKind, Rig, Turns};
use crate::compare::{Plan, Wishes, kept, named};
use crate::failure::Failure;
use crate::model::{Chapter, Comparison, Found, Group, Standing};
use crate::rig::{Room, Stack};

pub use options::{ClusterOptions, ClusterSweep};
pub use setting::{Done, Setting};
pub use words::{Pattern, Policy, Storage, WriteSchedule};

/// File that a run of a job leaves.
const RAW: &str = "counted.json";

/// The comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cluster {
    options: ClusterOptions,
    /// The nodes that stand: those who write them in different ways share them.
    #[serde(skip)]
    standing: RefCell<Option<(Setting, Weak<RefCell<Turns>>)>>,
}

type Shared = Rc<RefCell<Turns>>;

impl Cluster {
    /// Creates the comparison with these options.
    pub const fn new(options: ClusterOptions) -> Self {
        Self { options, standing: RefCell::new(None) }
    }

    /// Returns the rig of a case: the one that stands, or a new one.
    fn rig(&self, case: &ClusterCase, room: &Room) -> Result<Shared, Failure> {
        let ClusterCase { setting, schedule } = case;
        let standing = self.standing.borrow().clone();
        if let Some((same, rig)) = standing
            && same == *setting
            && let Some(rig) = rig.upgrade()
        {
            return Ok(rig);
        }
        let seconds = self.options.seconds;
        let rig: Box<dyn Rig> = match schedule {
            Some(_) => Box::new(Nodes::start(setting, seconds, room)?),
            None => Box::new(Volume::start(setting, seconds, room)?),
        };
        let rig = Rc::new(RefCell::new(Turns::of(rig)));
        *self.standing.borrow_mut() = Some((setting.clone(), Rc::downgrade(&rig)));
        Ok(rig)
    }
}

impl Plan for Cluster {
    const NAME: &'static str = "cluster";

    fn of(wishes: &Wishes) -> Self {
        let runs = wishes.runs();
        let options = if wishes.quick { ClusterOptions::quick() } else { ClusterOptions::full() };
        Self::new(ClusterOptions { runs, ..options })
    }
}

impl Comparison for Cluster {
    kept!();

    fn groups(&self) -> Vec<Group> {
        self.options.groups()
    }

    fn set_up(&self, name: &str, room: &Room) -> Result<Standing, Failure> {
        let case = named(self.options.cases(), name)?;
        let rig = self.rig(&case, room)?;
        let seconds = self.options.seconds;
        Ok(Standing::on(Stack::new(room, name), move |_, job, note| {
            let pattern = named(Pattern::ALL, job)?;
            let schedule = case.schedule.unwrap_or(WriteSchedule::Client);
            let kind = MeasurementKind { pattern, schedule };
            note.commands.push(case.command(kind, seconds));
            let raw = rig.borrow_mut().measure(kind)?;
            note.file(RAW, serde_json::to_vec_pretty(&raw).unwrap_or_default());
            Ok(())
        }))
    }

    fn chapter(&self, found: &Found) -> Chapter {
        chapter::chapter(found)
    }
}
