//! Membership, explored and step by step.

mod explore;
mod silence;
mod steps;
