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
pub mod rebuild;
mod rig;
mod sentences;
mod setting;
mod tables;
mod words;

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use serde::{Deserialize, Serialize};

use self::gluster::Volume;
use self::nodes::Nodes;
use self::options::ClusterCase;
use self::rig::{MeasurementKind, Rig, Turns};
use crate::compare::{Plan, kept, named};
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
    standing: RefCell<Option<(Setting, Shared<Nodes>)>>,
}

type Shared<R> = Weak<RefCell<Turns<R>>>;

impl Cluster {
    /// Creates the comparison with these options.
    #[must_use]
    pub const fn new(options: ClusterOptions) -> Self {
        Self { options, standing: RefCell::new(None) }
    }

    fn nodes(&self, setting: &Setting, room: &Room) -> Result<Rc<RefCell<Turns<Nodes>>>, Failure> {
        let standing = self.standing.borrow().clone();
        if let Some((same, nodes)) = standing
            && same == *setting
            && let Some(nodes) = nodes.upgrade()
        {
            return Ok(nodes);
        }
        let nodes = Nodes::start(setting, self.options.seconds, room)?;
        let nodes = Rc::new(RefCell::new(Turns::of(nodes)));
        *self.standing.borrow_mut() = Some((setting.clone(), Rc::downgrade(&nodes)));
        Ok(nodes)
    }

    fn stands<R: Rig + 'static>(
        &self,
        case: ClusterCase,
        room: &Room,
        shared: Rc<RefCell<Turns<R>>>,
    ) -> Standing {
        let seconds = self.options.seconds;
        Standing::on(Stack::new(room, Self::NAME), move |_, job, note| {
            let pattern = named(Pattern::ALL, job)?;
            let schedule = match case {
                ClusterCase::Ours(_, schedule) => schedule,
                ClusterCase::Gluster(_) => WriteSchedule::Client,
            };
            let kind = MeasurementKind { pattern, schedule };
            note.commands.push(case.command(kind, seconds));
            let raw = shared.borrow_mut().measure(kind)?;
            note.file(RAW, serde_json::to_vec_pretty(&raw).unwrap_or_default());
            Ok(())
        })
    }
}

impl Plan for Cluster {
    const NAME: &'static str = "cluster";

    fn usual(quick: bool) -> Self {
        Self::new(if quick { ClusterOptions::quick() } else { ClusterOptions::full() })
    }

    fn runs(&mut self) -> &mut u16 {
        &mut self.options.runs
    }
}

impl Comparison for Cluster {
    kept!();

    fn groups(&self) -> Vec<Group> {
        self.options.groups()
    }

    fn set_up(&self, name: &str, room: &Room) -> Result<Standing, Failure> {
        let case = named(self.options.cases(), name)?;
        let seconds = self.options.seconds;
        Ok(match &case {
            ClusterCase::Ours(setting, _) => {
                let nodes = self.nodes(setting, room)?;
                self.stands(case, room, nodes)
            }
            ClusterCase::Gluster(setting) => {
                let volume = Turns::of(Volume::start(setting, seconds, room)?);
                self.stands(case, room, Rc::new(RefCell::new(volume)))
            }
        })
    }

    fn chapter(&self, found: &Found) -> Chapter {
        chapter::chapter(found)
    }
}
