//! Places for connections that say nothing of themselves yet: so many, and none is kept by silence.
//!
//! When all are taken, the next one gets the oldest place of the address that has most. So silent
//! connections send each other away, and a connection from another address is not sent away by
//! them.

use std::net::IpAddr;
use tokio::sync::oneshot;

/// Ready when its owner is to go. The place is free when this is dropped.
pub type Place = oneshot::Receiver<()>;

pub struct House {
    most: usize,
    /// By the order in which they came.
    taken: Vec<(IpAddr, oneshot::Sender<()>)>,
}

impl House {
    pub fn new(most: usize) -> Self {
        let taken = Vec::with_capacity(most);
        House { most, taken }
    }

    /// Whether more than half of the places are taken.
    pub fn is_crowded(&self) -> bool {
        2 * self.taken.len() > self.most
    }

    /// A place, and from where the connection was that it was taken from.
    pub fn enter(&mut self, from: IpAddr) -> (Place, Option<IpAddr>) {
        self.taken.retain(|(_, sender)| !sender.is_closed());
        let of = |address: &IpAddr| self.taken.iter().filter(|(other, _)| other == address).count();
        let oldest = (0..self.taken.len())
            .rev()
            .max_by_key(|at| of(&self.taken[*at].0));
        let gone = oldest.filter(|_| self.taken.len() >= self.most);
        let gone = gone.map(|at| self.taken.remove(at).0);
        let (sender, place) = oneshot::channel();
        self.taken.push((from, sender));
        (place, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_address_that_has_most_goes() {
        let [one, other]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let mut house = House::new(4);
        let is_gone = |place: &mut Place| place.try_recv() == Err(oneshot::error::TryRecvError::Closed);
        let (mut rare, _) = house.enter(other);
        let mut many: Vec<Place> = (0..3).map(|_| house.enter(one).0).collect();
        assert!(house.is_crowded());
        for round in 0..10 {
            let (place, gone) = house.enter(one);
            assert_eq!(gone, Some(one), "{round}");
            assert!(is_gone(&mut many[round]) && !is_gone(&mut many[round + 1]));
            many.push(place);
        }
        assert!(
            !is_gone(&mut rare),
            "by those of another address none is sent away"
        );
        drop(many);
        let (_place, gone) = house.enter(other);
        assert_eq!(gone, None, "places of those that went are free");
        assert!(!house.is_crowded());
    }
}
