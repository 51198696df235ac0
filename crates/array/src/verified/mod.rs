//! A machine around another one: what that reads from members is verified by checksums, and what it
//! writes changes them. By which rules: [`integrity`](crate::integrity).

mod area_io;
mod blocks;
mod cached;
mod checks;
mod course;
mod guard;
mod machine;
mod op;

pub use machine::IntegrityMachine;
