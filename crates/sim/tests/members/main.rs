//! Members and background work of a running array, as administrators see them: one suite, run over
//! both lanes, *here* (devices in this process) and *nodes*.
//!
//! A test is written once, for any [`Lane`](lane::Lane) and [`Code`](lane::Code), against what both
//! have: requests, commands, `status()`, events. What does not work over nodes yet is in
//! [`here_only!`] with the command that asks for it: over nodes that one has to be refused clearly.

mod array;
mod here;
mod lane;
mod limits;
mod newcomers;
mod nodes;
mod refusals;
mod resync;
mod returns;
mod scrub;
mod states;

/// Makes tests of functions: one for each lane, over all codes of it.
macro_rules! over_both_lanes {
    ($($name:ident)*) => {
        mod here {
            $(#[test] fn $name() {
                crate::here::codes().into_iter().for_each(super::$name::<crate::here::Here>);
            })*
        }

        mod nodes {
            $(#[test] fn $name() {
                crate::nodes::codes().into_iter().for_each(super::$name::<crate::nodes::Nodes>);
            })*
        }
    };
}

/// Makes tests of functions that work here alone. Over nodes, what they are about is to be refused.
macro_rules! here_only {
    ($($name:ident: $refused:expr;)*) => {
        mod here_only {
            $(#[test] fn $name() {
                crate::here::codes().into_iter().for_each(super::$name::<crate::here::Here>);
            })*
        }

        mod not_over_nodes_yet {
            use super::*;

            $(#[test] fn $name() {
                crate::nodes::codes().into_iter().for_each(|code| {
                    crate::refusals::is_refused(code, $refused);
                });
            })*
        }
    };
}

use {here_only, over_both_lanes};
