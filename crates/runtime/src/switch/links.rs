//! A switch's links, for whoever drives it: keys that change, figures, descriptors.
//!
//! Not here: sessions (`sessions`), what goes over a link.

use super::Switch;
use crate::env::{LinkTo, Port};

impl<P: Port, L: Port> Switch<P, L> {
    /// Its number.
    pub fn number(&self) -> u8 {
        self.settings.switch
    }

    /// Shows each link, and to whom it is.
    pub fn each_link(&mut self, mut show: impl FnMut(LinkTo, &mut L)) {
        for (number, runtime) in self.runtimes.iter_mut().enumerate() {
            show(LinkTo::Runtime(number as u16), &mut runtime.link);
        }
        for (number, peer) in self.peers.iter_mut().enumerate() {
            if let Some(link) = peer {
                show(LinkTo::Switch(number as u16), link);
            }
        }
    }
}
