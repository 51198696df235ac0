//! Members and background work of a running array, as administrators see them: one suite, run over
//! both lanes, *here* (devices in this process) and *nodes*.
//!
//! A test is written once, for any [`Lane`](lane::Lane) and [`Code`](lane::Code), against the
//! common interface: requests, commands, `status()`, events.

mod array;
mod copies;
mod here;
mod lane;
mod limits;
mod nodes;
mod recovery_targets;
mod refusals;
mod resync;
mod returns;
mod scrub;
mod states;

/// Makes tests of functions: one for each lane, over all codes of it.
macro_rules! over_both_lanes {
    ($($name:ident)*) => {
        mod here {
            use crate::members::here::{Here, codes};

            $(#[test] fn $name() {
                codes().into_iter().for_each(super::$name::<Here>);
            })*
        }

        mod nodes {
            use crate::members::nodes::{Nodes, codes};

            $(#[test] fn $name() {
                codes().into_iter().for_each(super::$name::<Nodes>);
            })*
        }
    };
}

use over_both_lanes;
