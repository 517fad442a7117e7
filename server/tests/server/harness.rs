//! A server process and clients that speak frames.

mod deadline;
mod encrypted;
mod flag;
mod processor;
mod watchdog;
mod witness;

pub(crate) use deadline::{
    Deadline, again_if_given_up, assert_not_early, assert_remaining, give_up, with_short_lease, within,
};
pub(crate) use encrypted::Relays;
pub(crate) use flag::SetWhenDropped;
pub(crate) use processor::{
    WorkerTime, anonymous_len, let_run, memory_len, peak_len, processor_time, wait_until_rested,
    wait_until_rested_while, wait_until_stopped, workers,
};
pub(crate) use watchdog::{WATCHDOG, Watchdog, is_nothing_yet, wait_for, wait_until};
pub(crate) use witness::{LOOK, Witness};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX};
use waymaker_protocol::{
    Acquire, AcquireTerms, ErrorAnswer, ErrorCode, ErrorDetail, Event, Frame, Granted, Hello, LockId,
    LockState, NamespaceKind, Release, Request, Response, SessionRequest, Status, VERSION, Welcome,
    next_frame,
};

/// A running `waymaker-server`, killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    ready: String,
    /// What it logs, where that is kept.
    log: Option<tempfile::NamedTempFile>,
    /// Encrypts for clients that do not, if the server is encrypted.
    relays: Option<encrypted::Relays>,
}

/// What a server is told that is tested by its binary protocol alone: no log, and no ports that others may want too.
pub(crate) const QUIET: [(&str, &str); 4] = [
    ("WAYMAKER_DATA_DIR", "none"),
    ("WAYMAKER_GRPC_LISTEN", "none"),
    ("WAYMAKER_HTTP_LISTEN", "none"),
    // A server that looks at its memory is never at rest.
    ("WAYMAKER_MEMORY_LIMIT", "none"),
];

/// The command that starts a server on a free port.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waymaker-server"));
    command.args(["--listen", "127.0.0.1:0"]).args(arguments).envs(QUIET);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server with one worker, which has one shard, and one with several.
pub(crate) fn each_size() -> impl Iterator<Item = Server> {
    ["1", "3"].into_iter().map(|workers| Server::start(&["--workers", workers]))
}

/// An address of this machine that no other test uses. A port of it stays free while the process that listened there is down.
pub(crate) fn own_host() -> String {
    let [second, third, fourth] = [(); 3].map(|()| rand::random_range(1..255));
    format!("127.{second}.{third}.{fourth}")
}

/// What a server that does not start says, and how it ends.
pub(crate) fn refused(arguments: &[&str]) -> (ExitStatus, String) {
    let output = command(arguments).output().expect("the server runs");
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Lets this process, and those that it starts, open so many files more than tests open anyway.
pub(crate) fn allow_files(count: u64) {
    let need = 1_000 + count;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit of open files");
    if soft < need {
        setrlimit(Resource::RLIMIT_NOFILE, need, hard)
            .unwrap_or_else(|error| panic!("{need} open files are needed, {hard} are allowed: {error}"));
    }
}

/// The address of this name in a line `ready`.
fn address_in<'a>(ready: &'a str, name: &str) -> &'a str {
    let prefix = format!("{name}=");
    let found = ready.split(' ').find_map(|word| word.strip_prefix(prefix.as_str()));
    found.unwrap_or_else(|| panic!("no {name} in {ready:?}"))
}

/// Lets a thread run only when no other thread needs the processor.
pub(crate) fn yield_to_others(thread: Pid) {
    let arguments = ["-n", "19", "-p", &thread.to_string()];
    let output = Command::new("renice").args(arguments).output().expect("renice runs");
    assert!(output.status.success(), "{output:?}");
}

/// Lets a thread run before all others, but not the threads that it starts. Works only for root.
pub(crate) fn run_first(thread: Pid) {
    let arguments = ["--fifo", "--reset-on-fork", "--pid", "2", &thread.to_string()];
    let output = Command::new("chrt").args(arguments).output().expect("chrt runs");
    assert!(output.status.success(), "{output:?}");
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(command(arguments).env("WAYMAKER_LOG", "error").stderr(Stdio::inherit()), None)
    }

    /// A server whose log can be read with [`Server::log_places`].
    pub(crate) fn start_logged(arguments: &[&str]) -> Self {
        let log = tempfile::NamedTempFile::new().expect("a file for the log");
        let stderr = log.reopen().expect("a file for the log");
        Self::start_with(command(arguments).stderr(stderr), Some(log))
    }

    pub(crate) fn start_with(command: &mut Command, log: Option<tempfile::NamedTempFile>) -> Self {
        Self::try_start_with(command, log)
            .unwrap_or_else(|status| panic!("the server is not ready: {status}"))
    }

    /// A server, or how it ended instead of being ready.
    pub(crate) fn try_start_with(
        command: &mut Command,
        log: Option<tempfile::NamedTempFile>,
    ) -> Result<Self, ExitStatus> {
        let mut child = command.spawn().expect("the server starts");
        let mut ready = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut ready).expect("the server says that it is ready");
        if ready.is_empty() {
            return Err(child.wait().expect("it is our child"));
        }
        assert!(ready.starts_with("ready "), "{ready:?}");
        Ok(Self { child, ready: ready.trim().to_owned(), log, relays: None })
    }

    /// The address of this name in the line `ready`.
    pub(crate) fn address(&self, name: &str) -> &str {
        if let Some(relayed) = self.relays.as_ref().and_then(|relays| relays.address(name)) {
            return relayed;
        }
        address_in(&self.ready, name)
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address("binary")).expect("the server accepts");
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(WATCHDOG)).expect("a socket");
        socket
    }

    /// A connection that said nothing yet.
    pub(crate) fn stranger(&self) -> Client<TcpStream> {
        Client::new(self.socket())
    }

    /// An open connection without a session.
    pub(crate) fn client(&self, owner: &str) -> Client<TcpStream> {
        let mut client = self.stranger();
        client.hello(owner, SessionRequest::None);
        client
    }

    /// An open connection without a session to the namespace of this kind that is named like it.
    pub(crate) fn client_of(&self, kind: NamespaceKind, owner: &str) -> Client<TcpStream> {
        let mut client = self.stranger();
        client.open(hello_of(kind, owner));
        client
    }

    /// An open connection with a session, or a part in one.
    pub(crate) fn session_client(&self, session: SessionRequest) -> (Client<TcpStream>, Welcome) {
        let mut client = self.stranger();
        let welcome = client.hello("session", session);
        (client, welcome)
    }

    /// Begins a witness that ends after `length` of the server's time.
    pub(crate) fn witness(&self, length: Duration) -> Witness<TcpStream> {
        let client = self.client("witness");
        client.socket.set_read_timeout(Some(LOOK)).expect("a socket");
        Witness::begin(client, length)
    }

    /// Waits for the lines of the log that contain all of these words, and says where they begin, in the order of the
    /// words.
    pub(crate) fn log_places(&self, lines: &[&[&str]]) -> Vec<usize> {
        let log = self.log.as_ref().expect("the log is kept");
        wait_for(&format!("{lines:?} in the log at {}", log.path().display()), || {
            let text = std::fs::read_to_string(log.path()).expect("the log is text");
            let place = |words: &&[&str]| {
                let line = text.lines().find(|line| words.iter().all(|word| line.contains(word)))?;
                Some(line.as_ptr() as usize - text.as_ptr() as usize)
            };
            lines.iter().map(place).collect()
        })
    }

    /// Returns the log.
    pub(crate) fn log(&self) -> String {
        let log = self.log.as_ref().expect("the log is kept");
        std::fs::read_to_string(log.path()).expect("the log is text")
    }

    /// Sends the signal of this name, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let signal: Signal = format!("SIG{name}").parse().expect("the name of a signal");
        kill(self.pid(), signal).expect("it is our child");
    }

    /// Stops the process with a signal. All its threads have stopped when this returns.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
        self.wait_until_paused();
    }

    /// Waits until a signal has stopped the process.
    pub(crate) fn wait_until_paused(&self) {
        wait_until_stopped(self.pid());
    }

    /// Lets a paused process go on.
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Whether the server has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Waits for the server to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for("the end of the server", || self.child.try_wait().expect("it is our child"))
    }

    /// Asserts that the server is there and serves others.
    pub(crate) fn assert_serves(&self) {
        let mut client = self.client("someone else");
        let granted = client.acquire(b"still serving", 0);
        client.release(granted.id);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Client<S> {
    pub(crate) socket: S,
    received: Vec<u8>,
    next_number: u32,
}

/// One frame from the server.
#[derive(Clone, Debug)]
pub(crate) struct Received(Vec<u8>);

impl Received {
    /// These bytes, which are one frame.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    fn frame(&self) -> Frame<'_> {
        next_frame(&self.0, FRAME_LEN_MAX).expect("a frame").expect("a whole frame")
    }

    /// All of it, as it came.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn number(&self) -> u32 {
        self.frame().number()
    }

    pub(crate) fn response(&self) -> Response<'_> {
        Response::decode(self.frame()).expect("a response")
    }

    pub(crate) fn granted(&self) -> Granted {
        match self.response() {
            Response::Granted(granted) => granted,
            other => panic!("expected a grant, got {other:?}"),
        }
    }

    pub(crate) fn error(&self) -> ErrorAnswer<'_> {
        match self.response() {
            Response::Error(error) => error,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    /// The code, the field and the value of an error in words.
    pub(crate) fn refusal(&self) -> (ErrorCode, &str, u64) {
        let error = self.error();
        let ErrorDetail::Text { value, field, message } = error.detail else { panic!("{error:?}") };
        assert!(!message.is_empty(), "an error says what is wrong");
        (error.code, std::str::from_utf8(field).expect("fields have names"), value)
    }

    pub(crate) fn event(&self) -> Event<'_> {
        match self.response() {
            Response::Event(event) => event,
            other => panic!("expected an event, got {other:?}"),
        }
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, received: Vec::new(), next_number: 1 }
    }

    pub(crate) fn hello(&mut self, owner: &str, session: SessionRequest) -> Welcome {
        self.open(Hello { owner: owner.as_bytes(), session, ..default_hello() })
    }

    pub(crate) fn open(&mut self, hello: Hello<'_>) -> Welcome {
        self.send(Request::Hello(hello));
        match self.receive().response() {
            Response::Welcome(welcome) => welcome,
            other => panic!("expected a welcome, got {other:?}"),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server reads");
    }

    /// Sends a request and says which number it has.
    pub(crate) fn send(&mut self, request: Request<'_>) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        self.send_numbered(number, request);
        number
    }

    /// Numbers later requests from `number` on. A client that resumes a session goes on with its numbers.
    pub(crate) fn number_from(&mut self, number: u32) {
        self.next_number = number;
    }

    pub(crate) fn send_numbered(&mut self, number: u32, request: Request<'_>) {
        let mut bytes = Vec::new();
        request.encode(number, &mut bytes);
        self.write(&bytes);
    }

    /// The next frame, or `None` if the server closed the connection.
    pub(crate) fn try_receive(&mut self) -> Option<Received> {
        self.read_frame().unwrap_or_else(|error| panic!("the server did not answer: {error}"))
    }

    /// The next frame, or `None` if the server closed the connection. A half frame is kept if a read of the socket times out.
    pub(crate) fn read_frame(&mut self) -> io::Result<Option<Received>> {
        loop {
            if let Some(frame) =
                next_frame(&self.received, FRAME_LEN_MAX).expect("frames from the server are whole")
            {
                let len = frame.len();
                return Ok(Some(Received(self.received.drain(..len).collect())));
            }
            let mut buffer = [0; 4096];
            match self.socket.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(len) => self.received.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
                // An encrypted connection that ended without a goodbye.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
                // With a timeout the kernel does not go on by itself after the process stood still.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn receive(&mut self) -> Received {
        self.try_receive().expect("the server closed the connection")
    }

    /// Sends a request and waits for its answer, which must come next.
    pub(crate) fn ask(&mut self, request: Request<'_>) -> Received {
        let number = self.send(request);
        let received = self.receive();
        assert_eq!(received.number(), number, "{:?}", received.response());
        received
    }

    /// Takes a key that must be free.
    pub(crate) fn acquire(&mut self, key: &[u8], lease_ms: u32) -> Granted {
        self.ask(Request::Acquire(Acquire {
            key,
            terms: AcquireTerms { lease_ms, ..AcquireTerms::default() },
            ..Acquire::default()
        }))
        .granted()
    }

    /// Queues for a key and says which number the acquire has.
    pub(crate) fn wait_for(&mut self, key: &[u8], wait_ms: u32) -> u32 {
        let acquire = Acquire {
            key,
            terms: AcquireTerms { wait_ms, notify_queued: true, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        let number = self.send(Request::Acquire(acquire));
        let queued = self.receive();
        assert!(matches!(queued.event(), Event::Queued { .. }));
        assert_eq!(queued.number(), number);
        number
    }

    /// Whether there is a hold with this id.
    pub(crate) fn is_held(&mut self, id: LockId) -> bool {
        let answer = self.ask(Request::Status(Status { id, key: None }));
        matches!(answer.response(), Response::Status(status) if status.state == LockState::Held)
    }

    pub(crate) fn release(&mut self, id: LockId) {
        let answer = self.ask(Request::Release(Release { id, key: None, own: false }));
        assert!(matches!(answer.response(), Response::Released(_)), "{:?}", answer.response());
    }
}

pub(crate) fn default_hello() -> Hello<'static> {
    Hello {
        version_min: VERSION,
        version_max: VERSION,
        worker: ANY_WORKER,
        namespace: b"default",
        ..Hello::default()
    }
}

/// A greeting for the namespace of this kind that is named like it.
pub(crate) fn hello_of(kind: NamespaceKind, owner: &str) -> Hello<'_> {
    Hello { kind, namespace: kind.name().as_bytes(), owner: owner.as_bytes(), ..default_hello() }
}
