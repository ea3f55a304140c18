//! The drivers, one file each.

#[cfg(feature = "cassandra")]
pub mod cassandra;
pub mod memory;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(feature = "redis")]
pub mod redis;
