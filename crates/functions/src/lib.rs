//! To be filled.

pub mod load_balancer;
