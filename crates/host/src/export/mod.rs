//! Exports: ways for programs to use an array. Exports know requests and nothing of levels.

pub mod fuse;
pub mod load;
pub mod nbd;
pub mod ublk;
pub mod vhost_user;
