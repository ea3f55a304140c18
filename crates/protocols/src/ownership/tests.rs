//! The machines' own tests; `explore` goes through every state of `model`.

mod explore;
mod model;
mod steps;
