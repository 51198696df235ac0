//! A machine around another one: what that reads from members is verified by checksums, and what it
//! writes changes them. By which rules: [`integrity`](crate::integrity).

mod area_io;
mod blocks;
mod cached;
mod checks;
mod confirmed;
mod course;
mod guard;
mod known;
mod machine;
mod op;
mod rot;

pub use machine::IntegrityMachine;
