//! A redis-server of a test's own: on a free port of the loopback, with its data in a temporary
//! folder, ended with the test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Server {
    pub child: Option<Child>,
    pub port: u16,
    pub folder: tempfile::TempDir,
    settings: Vec<String>,
    program: &'static str,
}

impl Server {
    /// Starts it with further settings, as `--name value` has them. The error says why it cannot be
    /// had.
    pub fn start(settings: &[&str]) -> Result<Self, String> {
        Self::start_program("redis-server", settings)
    }

    /// As [`Self::start`], with a server of another name.
    pub fn start_program(program: &'static str, settings: &[&str]) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        // Free now; whatever takes it in between fails the test, and not silently.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        // A shell runs it, and would say only by its end that the program is not there.
        Command::new(program)
            .arg("--version")
            .output()
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => format!("needs {program}"),
                _ => error.to_string(),
            })?;
        let mut server = Server {
            child: None,
            port: port.map_err(|error| error.to_string())?.port(),
            folder,
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
            program,
        };
        server.launch().map_err(|error| error.to_string())?;
        Ok(server)
    }

    /// Starts the process, on the data that there is, and waits until it answers.
    pub fn launch(&mut self) -> std::io::Result<()> {
        // A signal that the shell ignores stays ignored: a limit of files is an error then, and no
        // end.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh", self.program]);
        command.args(["--bind", "127.0.0.1", "--save", "", "--port"]);
        command
            .arg(self.port.to_string())
            .arg("--dir")
            .arg(self.folder.path());
        command.args(&self.settings).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn()?);
        self.await_answer();
        Ok(())
    }

    pub fn uri(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Waits until it answers anything but that it is loading.
    fn await_answer(&self) {
        let began = Instant::now();
        loop {
            let said = self.try_say("PING").unwrap_or_default();
            if said.starts_with("+PONG") || said.starts_with("-NOAUTH") {
                return;
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "redis-server does not answer: {said}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Says a command, and gives the answer's first bytes.
    pub fn try_say(&self, command: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("{command}\r\n").as_bytes())?;
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // A stopped process dies of this too.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
