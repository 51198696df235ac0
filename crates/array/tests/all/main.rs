//! The crate as others see it, in one program.

mod assemble;
mod candidate;
mod create;
mod format_bad_blocks;
mod format_bitmap;
mod format_journal;
mod format_ppl;
mod format_superblock;
mod log;
mod policy;
