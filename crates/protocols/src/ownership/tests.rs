//! The machines' own tests; `explore` goes through every state of `model`, `replicas` through those
//! with copies.

mod explore;
mod model;
mod replicas;
mod search;
mod steps;
