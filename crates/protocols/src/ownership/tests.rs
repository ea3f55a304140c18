//! The machines' own tests; `explore` goes through every state of `model`, `replicas` through those
//! with copies, `views` through those with membership.

mod explore;
mod model;
mod replicas;
mod search;
mod steps;
mod views;
