//! One connection, and what is heard on it.

use super::shown::{answer, event};
use crate::harness::{Received, default_hello};
use crate::parity::command::Lane;
use crate::parity::heard::Heard;
use crate::parity::words::{mode, shown};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, oneshot};
use tokio::task::{AbortHandle, spawn_local};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Event, Hello, NamespaceKind, Request, Response, next_frame};

pub(super) struct Connection {
    writing: Mutex<Option<OwnedWriteHalf>>,
    next_number: Cell<u32>,
    asked: Rc<RefCell<BTreeMap<u32, OpenRequest>>>,
    reader: RefCell<Option<AbortHandle>>,
    heard: Heard,
    lane: String,
}

/// What a number stands for.
enum OpenRequest {
    /// A question, whose answer is said of this name unless it is read by whoever asked.
    Call { name: Option<String>, answer: oneshot::Sender<Received> },
    /// An acquire or a watch, of which more may be told.
    Followed { number: usize, is_told: bool },
}

impl Connection {
    pub(super) async fn open(
        address: &str,
        namespace: &str,
        kind: NamespaceKind,
        lane: &Lane,
        heard: &Heard,
    ) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server accepts");
        stream.set_nodelay(true).expect("a socket");
        let (reading, writing) = stream.into_split();
        let connection = Self {
            writing: Mutex::new(Some(writing)),
            next_number: Cell::new(1),
            asked: Rc::default(),
            reader: RefCell::new(None),
            heard: heard.clone(),
            lane: lane.name.clone(),
        };
        let reader =
            Reader { asked: Rc::clone(&connection.asked), heard: heard.clone(), lane: lane.name.clone() };
        *connection.reader.borrow_mut() = Some(spawn_local(reader.read(reading)).abort_handle());
        let (namespace, owner) = (namespace.as_bytes(), lane.owner.as_bytes());
        let hello = Hello { kind, namespace, owner, notify_taken_up: true, ..default_hello() };
        let welcome = connection.read(Request::Hello(hello)).await;
        assert!(matches!(welcome.response(), Response::Welcome(_)), "{:?}", welcome.response());
        connection
    }

    /// Closes the socket, as a client does that is gone.
    pub(super) fn close(&self) {
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
        if let Ok(mut writing) = self.writing.try_lock() {
            *writing = None;
        }
    }

    async fn send(&self, request: Request<'_>, asked: OpenRequest) -> u32 {
        let number = self.next_number.replace(self.next_number.get() + 1);
        self.asked.borrow_mut().insert(number, asked);
        let mut bytes = Vec::new();
        request.encode(number, &mut bytes);
        let mut writing = self.writing.lock().await;
        writing.as_mut().expect("it is open").write_all(&bytes).await.expect("the server reads");
        number
    }

    /// Asks, and reads the answer.
    pub(super) async fn read(&self, request: Request<'_>) -> Received {
        self.call(request, None).await
    }

    /// Asks, and lets the answer be said.
    pub(super) async fn ask(&self, name: &str, request: Request<'_>) {
        self.call(request, Some(name.to_owned())).await;
    }

    async fn call(&self, request: Request<'_>, name: Option<String>) -> Received {
        let (answer, answered) = oneshot::channel();
        self.send(request, OpenRequest::Call { name, answer }).await;
        answered.await.expect("the server answers")
    }

    /// Asks for something of which more may be told than one answer.
    pub(super) async fn follow(&self, number: usize, is_told: bool, request: Request<'_>) -> u32 {
        self.send(request, OpenRequest::Followed { number, is_told }).await
    }

    pub(super) fn say(&self, text: impl Into<String>) {
        self.heard.say(&self.lane, text);
    }
}

/// Reads what the server sends, and says it.
struct Reader {
    asked: Rc<RefCell<BTreeMap<u32, OpenRequest>>>,
    heard: Heard,
    lane: String,
}

impl Reader {
    async fn read(self, mut socket: OwnedReadHalf) {
        let mut bytes = Vec::new();
        while socket.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
            while let Some(frame) = next_frame(&bytes, FRAME_LEN_MAX).expect("frames are whole") {
                let len = frame.len();
                self.hear(Received::new(bytes.drain(..len).collect()));
            }
        }
    }

    fn say(&self, text: impl Into<String>) {
        self.heard.say(&self.lane, text);
    }

    fn hear(&self, received: Received) {
        let number = received.number();
        let followed = match self.asked.borrow().get(&number) {
            Some(OpenRequest::Followed { number, is_told }) => Some((*number, *is_told)),
            _ => None,
        };
        if let Some((number, is_told)) = followed {
            self.hear_of(number, is_told, &received.response());
        } else if number == 0 {
            let Response::Event(told) = received.response() else { panic!("{:?}", received.response()) };
            self.say(event(&told, "", &|id| self.heard.name_of(&id.to_string(), &self.lane)));
        } else if let Some(OpenRequest::Call { name, answer: waiting }) =
            self.asked.borrow_mut().remove(&number)
        {
            if let Some(name) = name {
                let known = |id: &str| self.heard.known_name(id, &self.lane);
                self.say(answer(&received.response(), &name, &known));
            }
            // Whoever asked may be gone.
            let _ = waiting.send(received);
        }
    }

    /// Something was told of an acquire or a watch.
    fn hear_of(&self, number: usize, is_told: bool, response: &Response<'_>) {
        let name = self.heard.claim(number).name;
        match response {
            Response::Event(Event::Queued { id, position, ticket }) => {
                self.heard.tell_id(number, &id.to_string(), is_told);
                self.say("(waits)");
                if is_told {
                    self.say(format!("queued {name} position={position} ticket={ticket}"));
                }
            }
            Response::Event(told) => {
                self.say(event(told, &name, &|id| self.heard.name_of(&id.to_string(), &self.lane)));
            }
            Response::Granted(granted) => {
                self.say(answer(response, &name, &|_| None));
                self.heard.granted(number, &granted.id.to_string());
            }
            Response::GrantedKeys(granted) => {
                let mut text = format!("granted {name}");
                for key in &granted.keys {
                    let clamped = if granted.clamped { " clamped" } else { "" };
                    let waited = if granted.waited { " waited" } else { "" };
                    let repeated = if granted.repeated { " repeated" } else { "" };
                    let (key_name, mode) = (shown(key.key), mode(key.shared));
                    let remaining = crate::parity::words::shown_millis(u64::from(key.remaining_ms));
                    let flags = format!("{clamped}{waited}{repeated}");
                    text += &format!("\n{key_name} {mode} fence={} remaining={remaining}{flags}", key.fence);
                    self.heard.part_granted(number, &key_name, &key_name, &key.id.to_string());
                }
                self.say(text);
            }
            _ => self.say(answer(response, &name, &|_| None)),
        }
        self.heard.answered(number);
    }
}
