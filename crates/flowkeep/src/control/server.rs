//! The cluster's end of the control socket.
//!
//! One thread accepts, one thread per connection answers; all are gone when the [`Server`] is
//! dropped, and so is the socket's file.
//!
//! The socket is made in a fresh directory that only this user may enter, gets its mode there, and
//! is then moved to its place: at no time can another user open it.
//!
//! A process that becomes another user once its ports are open (`user`) may then be without a right
//! to the socket's folder. The socket answers all the same, since it is bound. Its file stays at
//! the end, which is said, and the next start replaces it.

use super::{REQUEST_MAX, Reply, service};
use crate::cluster::Cluster;
use crate::log::{self, Level};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The most connections at once; further ones are told so and closed.
pub const CONNECTIONS_MAX: usize = 16;

/// Connections that wait to be accepted.
const WAITING_MAX: i32 = 64;

/// How long a connection may be silent, or slow to take its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a socket is named.
const NAMED: &str = "--socket counts first, then FLOWKEEP_SOCKET, then [control] socket";

/// Why there is no control socket.
#[derive(Debug)]
pub enum ServerError {
    /// Another process answers there.
    Taken(PathBuf),
    /// Its directory is not this user's alone.
    Foreign(PathBuf),
    /// The system refused.
    Io(PathBuf, io::Error),
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServerError::Taken(path) => write!(
                f,
                "{}: another Flowkeep answers here; stop it, or give this one a socket of its own: {NAMED}",
                path.display()
            ),
            ServerError::Foreign(path) => write!(
                f,
                "{}: this directory is not only yours; remove it, or name another socket: {NAMED}",
                path.display()
            ),
            ServerError::Io(path, error) => write!(
                f,
                "{}: the control socket cannot be made: {error}; name another: {NAMED}",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ServerError {}

/// A control socket that answers as long as this lives.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    /// The device and number of its file.
    file: (u64, u64),
    ended: Arc<AtomicBool>,
    /// The socket that the thread listens at.
    socket: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// A control socket that is there and refuses connections until it is served; its file goes with
/// it.
#[derive(Debug)]
pub struct Bound {
    path: PathBuf,
    /// The device and number of its file.
    file: (u64, u64),
    socket: Option<OwnedFd>,
}

impl Bound {
    /// Makes the socket.
    pub fn at(path: &Path) -> Result<Self, ServerError> {
        let socket = bound(path)?;
        let file = file_of(path).map_err(|error| ServerError::Io(path.to_owned(), error))?;
        Ok(Bound {
            path: path.to_owned(),
            file,
            socket: Some(socket),
        })
    }

    /// Whether another process has taken the name over. A user that may not look there any more
    /// does not know of any.
    fn is_anothers(&self) -> bool {
        match file_of(&self.path) {
            Ok(file) => file != self.file,
            Err(error) => error.kind() != io::ErrorKind::PermissionDenied,
        }
    }
}

fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Removes a socket's file, if it is still this one's. That it stays is said.
fn remove(path: &Path, own: (u64, u64)) {
    let removed = match file_of(path) {
        Ok(file) if file == own => fs::remove_file(path),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = removed {
        let path = path.display();
        log::say(
            Level::Info,
            format_args!("the control socket's file {path} stays: {error}; the next start replaces it"),
        );
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.socket.is_some() {
            remove(&self.path, self.file);
        }
    }
}

impl Server {
    /// Makes the socket and begins to answer.
    pub fn start(path: &Path, cluster: Arc<dyn Cluster>) -> Result<Self, ServerError> {
        Self::serve(Bound::at(path)?, cluster)
    }

    /// Begins to answer.
    pub fn serve(mut bound: Bound, cluster: Arc<dyn Cluster>) -> Result<Self, ServerError> {
        let path = &bound.path.clone();
        if bound.is_anothers() {
            return Err(ServerError::Taken(path.clone()));
        }
        let Some(socket) = bound.socket.take() else {
            return Err(ServerError::Io(path.clone(), io::ErrorKind::NotConnected.into()));
        };
        let says = |error| ServerError::Io(path.clone(), error);
        rustix::net::listen(&socket, WAITING_MAX).map_err(|error| says(error.into()))?;
        let own = socket.try_clone().map_err(says)?;
        let listener = UnixListener::from(socket);
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let thread = thread::Builder::new()
            .name("flowkeep-control".into())
            .spawn(move || accept(&listener, &cluster, &seen))
            .map_err(says)?;
        Ok(Server {
            path: path.to_owned(),
            file: bound.file,
            ended,
            socket: own,
            thread: Some(thread),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // The thread waits for a connection: its wait ends, also where the socket's file is gone.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        remove(&self.path, self.file);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Why no socket can be made there now; nothing is made.
pub fn look(path: &Path) -> Result<(), ServerError> {
    free(path)?;
    let says = |error| ServerError::Io(path.to_owned(), io::Error::from(error));
    let directory = directory_of(path);
    if super::is_default(path) {
        // The default directory is made with it.
        if !directory.exists() {
            return Ok(());
        }
        check_owner(directory)?;
    }
    // An error of the name itself: it is too long.
    match accessat(CWD, path, Access::EXISTS, AtFlags::EACCESS) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(says(error)),
    }
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, directory, rights, AtFlags::EACCESS).map_err(says)
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Where a socket is made, in the directory that it is to be in.
fn private_in(directory: &Path) -> PathBuf {
    directory.join(format!(".flowkeep-{}", std::process::id()))
}

/// Checks that nothing is there but the socket of a killed process.
fn free(path: &Path) -> Result<(), ServerError> {
    if path.exists() {
        if super::client::reach(path).is_ok() {
            return Err(ServerError::Taken(path.to_owned()));
        }
        // No process answers: a killed one left the socket. A file that is no socket stays.
        let is_socket =
            fs::symlink_metadata(path).is_ok_and(|metadata| metadata.mode() & 0o170_000 == 0o140_000);
        if !is_socket {
            let error = io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket");
            return Err(ServerError::Io(path.to_owned(), error));
        }
    }
    Ok(())
}

/// Makes the socket where no other user can have it open.
fn bound(path: &Path) -> Result<OwnedFd, ServerError> {
    let says = |error| ServerError::Io(path.to_owned(), error);
    let directory = directory_of(path);
    if super::is_default(path) {
        see_to_directory(directory)?;
    }
    free(path)?;
    let private = private_in(directory);
    DirBuilder::new().mode(0o700).create(&private).map_err(says)?;
    let made = (|| {
        let inner = private.join("s");
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let (reachable, _folder) = super::reachable(&inner)?;
        bind(&socket, &SocketAddrUnix::new(&reachable)?)?;
        fs::set_permissions(&inner, Permissions::from_mode(0o600))?;
        fs::rename(&inner, path)?;
        io::Result::Ok(socket)
    })();
    let _ = fs::remove_dir_all(&private);
    made.map_err(says)
}

/// Makes the default directory, or sees that it is this user's alone.
fn see_to_directory(directory: &Path) -> Result<(), ServerError> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_owner(directory),
        Err(error) => Err(ServerError::Io(directory.to_owned(), error)),
    }
}

/// Sees that a directory is this user's, and that no other user can put a socket there.
fn check_owner(directory: &Path) -> Result<(), ServerError> {
    let user = fs::metadata("/proc/self").map(|metadata| metadata.uid());
    let metadata = fs::symlink_metadata(directory);
    match (user, metadata) {
        (Ok(user), Ok(metadata))
            if metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o022 == 0 =>
        {
            Ok(())
        }
        _ => Err(ServerError::Foreign(directory.to_owned())),
    }
}

fn accept(listener: &UnixListener, cluster: &Arc<dyn Cluster>, ended: &AtomicBool) {
    let serving = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if ended.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of file descriptors, most likely: others may close theirs.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if serving.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            serving.fetch_sub(1, Ordering::AcqRel);
            let _ = send(&stream, &Reply::Error("too many connections; try again".into()));
            continue;
        }
        let cluster = Arc::clone(cluster);
        let serves = Arc::clone(&serving);
        let spawned = thread::Builder::new()
            .name("flowkeep-control-connection".into())
            .spawn(move || {
                // A peer that goes away in the middle is no failure.
                let _ = serve(&stream, cluster.as_ref());
                serves.fetch_sub(1, Ordering::AcqRel);
            });
        if spawned.is_err() {
            serving.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Answers a connection's requests until it closes.
fn serve(stream: &UnixStream, cluster: &dyn Cluster) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut watching = None;
    loop {
        let mut line = Vec::new();
        (&mut reader).take(REQUEST_MAX + 1).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.len() as u64 > REQUEST_MAX {
            let problem = format!("a request has at most {REQUEST_MAX} bytes");
            return send(stream, &Reply::Error(problem));
        }
        let reply = match serde_json::from_slice(&line) {
            Ok(request) => service::answer(request, cluster, &mut watching),
            Err(error) => Reply::Error(format!("this is no request: {error}")),
        };
        send(stream, &reply)?;
    }
}

fn send(mut stream: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake::Fake;

    #[test]
    fn a_server_ends_though_its_file_is_gone_or_is_anothers() {
        let path = std::env::temp_dir().join(format!("flowkeep-server-{}", std::process::id()));
        let cluster: Arc<dyn Cluster> = Arc::new(Fake::default());
        let gone = Server::start(&path, Arc::clone(&cluster)).unwrap();
        fs::remove_file(&path).unwrap();
        let other = Server::start(&path, cluster).unwrap();
        drop(gone);
        assert!(UnixStream::connect(&path).is_ok(), "the other's file stays");
        drop(other);
        assert!(!path.exists());
    }

    /// Says to this test that it runs in a process of its own, with an environment of its own.
    const ALONE: &str = "FLOWKEEP_TEST_IS_ALONE";

    /// A member's socket, where neither the configuration nor the environment says a folder: the
    /// folder is made, and refused where it is another user's or open to others. A socket of
    /// another name is there since the operator has named it.
    #[test]
    fn the_folder_of_default_sockets_is_made_and_is_this_users_alone() {
        let name = "the_folder_of_default_sockets_is_made_and_is_this_users_alone";
        if std::env::var_os(ALONE).is_none() {
            let place = std::env::temp_dir().join(format!("flowkeep-folder-{}", std::process::id()));
            fs::create_dir(&place).unwrap();
            let test = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", &format!("control::server::tests::{name}")])
                .env_remove("XDG_RUNTIME_DIR")
                .env("TMPDIR", &place)
                .env(ALONE, "")
                .output()
                .unwrap();
            fs::remove_dir_all(&place).unwrap();
            let said = String::from_utf8_lossy(&test.stdout);
            assert!(test.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let socket = crate::member::socket_of("a");
        let folder = socket.parent().unwrap();
        assert!(!folder.exists(), "{}", folder.display());
        look(&socket).unwrap();
        drop(Bound::at(&socket).unwrap());
        assert_eq!(fs::metadata(folder).unwrap().mode() & 0o777, 0o700);
        let sockets = [socket.clone(), super::super::default_path()];
        let is_refused = |path: &PathBuf| {
            matches!(look(path), Err(ServerError::Foreign(of)) if of == folder)
                && matches!(Bound::at(path), Err(ServerError::Foreign(of)) if of == folder)
        };
        fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        assert!(sockets.iter().all(is_refused));
        drop(Bound::at(&folder.join("mine.sock")).unwrap());
        fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
        assert!(!sockets.iter().any(is_refused));
        // Only root can give a folder away.
        if std::os::unix::fs::chown(folder, Some(65_534), None).is_ok() {
            assert!(sockets.iter().all(is_refused));
        }
    }
}
