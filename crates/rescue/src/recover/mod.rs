//! An array whose superblocks are lost, found again by what lies on its members: which of them
//! belong together, how, and in which order.
//!
//! File systems have blocks that tell where they belong. Each that is found is an equation between
//! a place on a member and one in the array. The geometry that meets them is meant; sums over rows
//! of the members confirm it, or refute it.
//!
//! The caller reads: [`structures`] of all members first, then a [`Harvest`] of each, which may be
//! done at the same time; [`search`] answers, [`targets`] says what else is worth reading, and
//! [`sums`] checks what was found.

mod begins;
mod btrfs;
mod clues;
mod contrast;
mod crc32c;
mod equations;
mod explain;
mod ext4;
mod gathered;
mod guess;
mod hypothesis;
mod judged;
mod kept;
mod legs;
mod marks;
mod nested;
mod ntfs;
mod places;
mod proven;
mod rank;
mod ranked;
mod redundancy;
mod relation;
mod remains;
mod rivals;
mod same;
mod samples;
mod score;
mod shapes;
mod sums;
mod targets;
mod votes;
mod walk;
mod walked;
mod weights;
mod xfs;

pub use gathered::Gathered;
pub use hypothesis::{Hints, Hypothesis, MemberInRole};
pub use marks::{Harvest, Mark, Structure, add, structures};
pub use nested::{Arrays, Nested, arrays};
pub use rank::rank;
pub use ranked::{Confidence, Ranked};
pub use samples::{beginning, samples};
pub use shapes::Shape;
pub use sums::{Members, Sums, compared, sums};
pub use targets::targets;
pub use votes::search;
