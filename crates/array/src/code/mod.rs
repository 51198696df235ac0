//! Codes, whatever the level: a stripe as cells and equations, and how lost cells come back.

pub mod decode;
pub mod levels;
mod losses;
mod solve;
pub mod stripe;
pub mod terms;

pub use decode::{Recovery, Step};
pub use losses::Losses;
pub use solve::{Solution, StripName, solve};
pub use stripe::{Cell, Content, Equation, Kind, StripeCode, Term};
pub use terms::Terms;
