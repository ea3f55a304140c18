//! A runtime's links, for its caller: keys that change, figures, descriptors.
//!
//! Not here: sessions (`sessions`), the content of links.

use super::Runtime;
use crate::env::{LinkTo, Port};

impl<P: Port> Runtime<P> {
    /// Its number.
    pub fn number(&self) -> u16 {
        self.core.settings.info.runtime
    }

    /// Shows each link, and the worker at its other end.
    pub fn each_link(&mut self, mut show: impl FnMut(LinkTo, &mut P)) {
        for (number, link) in self.links.iter_mut().enumerate() {
            show(LinkTo::Switch(number as u16), link);
        }
        for (number, peer) in self.peers.iter_mut().enumerate() {
            if let Some(link) = peer {
                show(LinkTo::Runtime(number as u16), link);
            }
        }
    }
}
