//! The crate as others see it, in one program.

mod losses;
mod plans;
mod reference;
mod restores;
mod schedules;
