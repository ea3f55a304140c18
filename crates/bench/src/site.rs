//! The common parts of benches of several workers: where their links meet, and pools of workers
//! that are linked to other processes.

use adapters::report::Reports;
use adapters::shm::{self, ShmLink};
use runtime::message::FRAME_MAX;
use std::path::{Path, PathBuf};
use wire::Pool;

/// Buffers that a link leaves alone, as in production.
const SPARED: usize = 2048;

/// Where links meet.
pub struct Meeting {
    path: PathBuf,
    /// Removed when dropped.
    is_own: bool,
}

impl Meeting {
    pub fn new(name: &str) -> Self {
        let name = format!("flowkeep-bench-{}-{name}", std::process::id());
        let shared = Path::new("/dev/shm");
        let path = match shared.is_dir() {
            true => shared.join(name),
            false => std::env::temp_dir().join(name),
        };
        std::fs::create_dir_all(&path).expect("a directory for links");
        Meeting { path, is_own: true }
    }

    /// A place that another process has made.
    pub fn at(path: &Path) -> Self {
        Meeting {
            path: path.to_owned(),
            is_own: false,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn link(&self, near: u16, far: u16) -> ShmLink {
        let settings = shm::ShmSettings {
            spared: SPARED,
            ..shm::ShmSettings::new(self.path.join("links"), near, far)
        };
        ShmLink::open(settings, Reports::default()).expect("a link through shared memory")
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        if self.is_own {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A pool as workers have it that are linked to other processes.
pub fn pool(count: usize, origin: u8) -> Pool {
    adapters::buffers::pool(count, FRAME_MAX, origin).expect("memory for buffers")
}
