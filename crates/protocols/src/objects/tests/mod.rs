//! The machines' own tests; `explore` goes through every state of `world`, `long` through random
//! runs of larger ones.

mod asks;
mod conductor;
mod explore;
mod long;
mod messages;
mod namer;
mod sharing;
mod steps;
mod world;
