//! The search through all states of a model, and backwards from the ends.
//!
//! Breadth first, each state once; a violation comes with the shortest way to it. Then backwards
//! from the states in which everything is over: a state that is not met could go on for ever, or
//! stands still.

use core::fmt::Debug;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::string::String;
use std::vec::Vec;
use std::{format, vec};

/// A model that is searched: its whole state at a moment.
pub(super) trait Model: Clone + Hash + Debug {
    /// The actions that may happen, and how often.
    type Bounds;
    type Action: Copy + Debug;

    fn first(bounds: &Self::Bounds) -> Self;
    /// Everything that can happen next.
    fn actions(&self, bounds: &Self::Bounds) -> Vec<Self::Action>;
    fn step(&mut self, action: Self::Action, bounds: &Self::Bounds) -> Result<(), String>;
    /// Whether everything is over.
    fn is_end(&self, bounds: &Self::Bounds) -> bool;
    fn check_end(&self, bounds: &Self::Bounds) -> Result<(), String>;
    /// For a story.
    fn told(&self) -> String;
}

/// The result of a search.
#[derive(Debug)]
pub(super) struct Explored {
    pub states: usize,
    pub ends: usize,
}

/// All states within the bounds, or a violation and the shortest way to it.
pub(super) fn explore<M: Model>(bounds: &M::Bounds) -> Result<Explored, String> {
    let hashers = [RandomState::new(), RandomState::new()];
    let name = |world: &M| {
        let [a, b] = hashers.each_ref().map(|hasher| hasher.hash_one(world));
        u128::from(a) << 64 | u128::from(b)
    };
    let first = M::first(bounds);
    let mut numbers = HashMap::from([(name(&first), 0_u32)]);
    let mut ways: Vec<Option<(u32, M::Action)>> = vec![None];
    let mut edges: Vec<(u32, u32)> = vec![];
    let mut ends: Vec<u32> = vec![];
    let mut frontier = VecDeque::from([(0_u32, first)]);
    while let Some((number, world)) = frontier.pop_front() {
        if world.is_end(bounds) {
            world
                .check_end(bounds)
                .map_err(|why| story::<M>(bounds, &ways, number, None, &why))?;
            ends.push(number);
        }
        for action in world.actions(bounds) {
            let mut next = world.clone();
            next.step(action, bounds)
                .map_err(|why| story::<M>(bounds, &ways, number, Some(action), &why))?;
            let new = numbers.len() as u32;
            let at = *numbers.entry(name(&next)).or_insert(new);
            if at == new {
                ways.push(Some((number, action)));
                frontier.push_back((at, next));
            }
            edges.push((at, number));
        }
    }
    let reached = reachable(ways.len(), &mut edges, &ends);
    match reached.iter().position(|reached| !reached) {
        Some(stuck) => Err(story::<M>(
            bounds,
            &ways,
            stuck as u32,
            None,
            "the end cannot be reached",
        )),
        None => Ok(Explored {
            states: ways.len(),
            ends: ends.len(),
        }),
    }
}

/// From where an end can be reached: `edges` lead backwards.
fn reachable(count: usize, edges: &mut Vec<(u32, u32)>, ends: &[u32]) -> Vec<bool> {
    edges.sort_unstable();
    edges.dedup();
    let mut reached = vec![false; count];
    let mut open = ends.to_vec();
    ends.iter().for_each(|end| reached[*end as usize] = true);
    while let Some(state) = open.pop() {
        let from = edges.partition_point(|(at, _)| *at < state);
        for (_, before) in edges[from..].iter().take_while(|(at, _)| *at == state) {
            if !core::mem::replace(&mut reached[*before as usize], true) {
                open.push(*before);
            }
        }
    }
    reached
}

/// A violation, told from the start.
fn story<M: Model>(
    bounds: &M::Bounds,
    ways: &[Option<(u32, M::Action)>],
    state: u32,
    last: Option<M::Action>,
    why: &str,
) -> String {
    let mut actions = Vec::from_iter(last);
    let mut at = state;
    while let Some((before, action)) = ways[at as usize] {
        actions.push(action);
        at = before;
    }
    actions.reverse();
    let mut world = M::first(bounds);
    let mut story = String::new();
    for (index, action) in actions.iter().enumerate() {
        let _ = world.step(*action, bounds);
        let told = world.told();
        story += &format!("{index:3} {action:?}: {told}\n");
    }
    format!("{why}\n{story}{world:?}")
}
