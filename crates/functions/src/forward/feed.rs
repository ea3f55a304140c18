//! How tables reach the workers: one publisher, all instances of all runtimes.
//!
//! ```text
//!   netlink thread ──publish──► Feed: generation 8, tables 8 ◄──is the generation still 7?── worker, each packet
//!                                                            ──take the new ones──────────► worker, once
//!                  ◄──wanted: 10.0.0.9 on interface 3────────────────────────────────────── worker
//! ```
//!
//! Whether there is anything new is one number that workers read. Only when it has changed do they
//! ask for the tables, and then they do not wait: while the publisher is at it, they keep the old
//! ones for another packet. An instance begins with the tables in force, for which it waits. Tables
//! that are replaced are kept until no worker has them, so no
//! worker ever frees any.
//!
//! A flow takes what it knows of its way along when it moves to another host, whose tables are
//! others. So numbers of tables are told apart by feed ([`Feed::distinguish`]): numbers of two
//! feeds are the same by chance alone, once in 2³².
//!
//! Invariant: a worker's tables only become newer; wanted neighbours are bounded by [`WANTED_MAX`].

use super::tables::{Interface, Neighbour, Route, Tables};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use nf::Addr;
use spin::Mutex;

/// The most neighbours that are wanted and not asked for yet.
pub const WANTED_MAX: usize = 256;

/// The way from the publisher, which knows routes and neighbours, to the workers.
pub struct Feed {
    generation: AtomicU32,
    /// How many tables there were.
    count: AtomicU32,
    /// The value that tells this feed's numbers from others'; 0: there is none.
    origin: AtomicU64,
    tables: Mutex<Arc<Tables>>,
    replaced: Mutex<Vec<Arc<Tables>>>,
    wanted: Mutex<Vec<(u32, Addr)>>,
}

impl Default for Feed {
    fn default() -> Self {
        Feed {
            generation: AtomicU32::new(0),
            count: AtomicU32::new(0),
            origin: AtomicU64::new(0),
            tables: Mutex::new(Arc::new(Tables::empty())),
            replaced: Mutex::new(Vec::new()),
            wanted: Mutex::new(Vec::with_capacity(WANTED_MAX)),
        }
    }
}

impl Feed {
    /// For the one publisher, before its first tables: a number that no other host's has.
    pub fn distinguish(&self, origin: u64) {
        if !wire::planted::is("way_taken_along") {
            self.origin.store(origin, Ordering::Relaxed);
        }
    }

    /// The number of the next tables: another one than that of those in force, and not 0.
    fn next_generation(&self) -> u32 {
        let known = self.generation.load(Ordering::Relaxed);
        let origin = self.origin.load(Ordering::Relaxed);
        loop {
            let count = self.count.load(Ordering::Relaxed).wrapping_add(1);
            self.count.store(count, Ordering::Relaxed);
            let generation = match origin {
                0 => count,
                // Each bit of the product's middle is of all bits of both.
                origin => {
                    let product = u128::from(origin | 1 << 63)
                        * u128::from(0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(count) << 32 ^ u64::from(count));
                    (product >> 48) as u32
                }
            };
            if generation != known && generation != 0 {
                return generation;
            }
        }
    }

    /// For the one publisher: these tables are in force from now on.
    pub fn publish(&self, interfaces: Vec<Interface>, routes: Vec<Route>, neighbours: &[Neighbour]) {
        let generation = self.next_generation();
        let tables = Arc::new(Tables::new(generation, interfaces, routes, neighbours));
        let old = core::mem::replace(&mut *self.tables.lock(), tables);
        self.generation.store(generation, Ordering::Release);
        let mut replaced = self.replaced.lock();
        replaced.push(old);
        replaced.retain(|tables| Arc::strong_count(tables) > 1);
    }

    /// For workers: the number of the tables in force; 0 before there are any.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// For instances that begin, behind no packet: the tables in force. Waits while another takes
    /// them or they are being replaced.
    pub fn in_force(&self) -> Arc<Tables> {
        self.tables.lock().clone()
    }

    /// For workers: the tables in force, unless they are just being replaced or another takes them.
    /// Never waits.
    pub fn tables(&self) -> Option<Arc<Tables>> {
        self.tables.try_lock().map(|tables| tables.clone())
    }

    /// For workers: a neighbour's link address is wanted. Never waits; `false` if it was not heard,
    /// and is to be said again.
    pub fn want(&self, interface: u32, neighbour: Addr) -> bool {
        let Some(mut wanted) = self.wanted.try_lock() else {
            return false;
        };
        if wanted.contains(&(interface, neighbour)) {
            return true;
        }
        let has_room = wanted.len() < WANTED_MAX;
        if has_room {
            wanted.push((interface, neighbour));
        }
        has_room
    }

    /// For the publisher: takes the wanted neighbours, appending them.
    pub fn take_wanted(&self, into: &mut Vec<(u32, Addr)>) {
        into.append(&mut self.wanted.lock());
    }
}

impl core::fmt::Debug for Feed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Feed({})", self.generation())
    }
}
