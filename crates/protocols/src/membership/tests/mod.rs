//! Membership, explored and step by step.

mod explore;
mod silence;
mod standings;
mod steps;
