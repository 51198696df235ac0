//! Codes, whatever the level: a stripe as cells and equations, and how lost cells come back.

mod choose;
mod codes;
pub mod decode;
mod doubts;
pub mod levels;
mod losses;
pub mod stripe;
pub mod terms;

pub use choose::{Strategy, WriteChoice};
pub use codes::{Answers, Codes, KnownCode};
pub use decode::{DecodeStep, Recovery, Sums};
pub use doubts::{Doubt, Misfit, doubts};
pub use losses::Losses;
pub use stripe::{BlockKind, Cell, Content, Equation, StripeCode, Term};
pub use terms::Terms;
