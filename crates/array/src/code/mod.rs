//! Codes, whatever the level: a stripe as cells and equations, and how lost cells come back.

mod choose;
mod codes;
pub mod decode;
mod doubts;
pub mod levels;
mod losses;
pub mod stripe;
pub mod terms;

pub use choose::{Part, Strategy};
pub use codes::{Answers, Codes, KnownCode};
pub use decode::{Recovery, Step, Sums};
pub use doubts::{Doubt, Misfit, doubts};
pub use losses::Losses;
pub use stripe::{Cell, Content, Equation, Kind, StripeCode, Term};
pub use terms::Terms;
