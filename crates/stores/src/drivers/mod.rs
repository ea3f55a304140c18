//! The drivers, one module each.

#[cfg(feature = "cassandra")]
pub mod cassandra;
pub mod memory;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(feature = "redis")]
pub mod redis;
