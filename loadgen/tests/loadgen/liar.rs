//! Servers that respond wrongly. The load generator must detect them, so that it does not praise a fast but wrong
//! server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{
    ErrorAnswer, ErrorCode, ErrorDetail, Granted, LockId, Released, Request, Response, Welcome, next_frame,
};

use crate::program::run;

/// Kind of wrong behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// No fault: fences rise and numbers match. Keys are not really held, which no pair of a single client can
    /// detect.
    None,
    /// Every grant has the same fence.
    SameFence,
    /// Responses carry the number of another request.
    WrongNumber,
    /// Every response arrives twice.
    Twice,
    /// All keys are busy.
    AlwaysBusy,
    /// Every release gets an error.
    ReleaseFails,
    /// A release gets a grant as its response.
    WrongKind,
    /// An unsolicited event says that a lease expired.
    Expired,
    /// Bytes that are not a frame.
    Garbage,
    /// The connection closes in the middle.
    HangsUp,
    /// No fault, but every acquire must request scope local.
    Durable,
    /// No fault, but responses arrive in fragments.
    Fragments,
}

/// Starts a correct server that grants every request.
pub(crate) fn honest() -> String {
    start(Lie::None)
}

/// Starts a server that sends garbage after a few responses.
pub(crate) fn garbage() -> String {
    start(Lie::Garbage)
}

/// Starts a server that reports every key as busy, so its first response is already wrong.
pub(crate) fn always_busy() -> String {
    start(Lie::AlwaysBusy)
}

/// Serves until the test ends.
fn start(lie: Lie) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // The thread ends when the client disconnects.
            thread::spawn(move || serve(stream, lie));
        }
    });
    address
}

fn serve(mut stream: TcpStream, lie: Lie) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut received = Vec::new();
    let mut fence = 0;
    let mut answered_count = 0;
    loop {
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).ok()? {
            0 => return None,
            count => received.extend_from_slice(&chunk[..count]),
        }
        let mut answers = Vec::new();
        let mut offset = 0;
        while let Some(frame) = next_frame(&received[offset..], FRAME_LEN_MAX).ok()? {
            offset += frame.len();
            let request = Request::decode(frame).expect("what the load generator sends is valid");
            if lie != Lie::SameFence || fence == 0 {
                fence += 1;
            }
            let number = if lie == Lie::WrongNumber { frame.number() ^ 0x4000_0000 } else { frame.number() };
            let error = |code| {
                let detail = ErrorDetail::Text { value: 0, field: b"", message: b"so it is" };
                Response::Error(ErrorAnswer { code, detail })
            };
            let granted = Response::Granted(Granted {
                id: LockId { place: 1, secret: 2 },
                fence,
                ..Granted::default()
            });
            let response = match request {
                Request::Hello(_) => {
                    let welcome = Welcome { version: 1, in_flight_max: 1024, ..Welcome::default() };
                    Response::Welcome(welcome).encode(frame.number(), &mut answers);
                    continue;
                }
                Request::Acquire(acquire)
                    if lie == Lie::Durable && acquire.terms.options.scope != Some(2) =>
                {
                    error(ErrorCode::BadInput)
                }
                Request::Acquire(_) if lie == Lie::AlwaysBusy => error(ErrorCode::Busy),
                Request::Acquire(_) => granted,
                Request::Release(_) if lie == Lie::ReleaseFails => error(ErrorCode::NotFound),
                Request::Release(_) if lie == Lie::WrongKind => granted,
                Request::Release(_) => Response::Released(Released::default()),
                other => panic!("{other:?} is not expected"),
            };
            response.encode(number, &mut answers);
            answered_count += 1;
            match lie {
                Lie::Twice => response.encode(number, &mut answers),
                Lie::Expired if answered_count == 5 => {
                    let id = LockId { place: 1, secret: 2 };
                    Response::Event(waymaker_protocol::Event::Expired { id }).encode(0, &mut answers);
                }
                Lie::Garbage if answered_count == 5 => answers.extend_from_slice(&[0xff; 64]),
                Lie::HangsUp if answered_count == 5 => return None,
                _ => {}
            }
        }
        received.drain(..offset);
        if lie == Lie::Fragments && answers.len() > 60 {
            for piece in answers.chunks(answers.len() / 2 + 1) {
                stream.write_all(piece).ok()?;
                thread::sleep(std::time::Duration::from_millis(1));
            }
        } else {
            stream.write_all(&answers).ok()?;
        }
    }
}

fn load(lie: Lie, more: &[&str]) -> crate::program::Ended {
    let target = format!("waymaker://{}", start(lie));
    let brief = ["--target", &target, "--duration", "500ms", "--warmup", "10ms", "--seed", "1"];
    run(&[&brief[..], more].concat())
}

#[test]
fn accepts_a_correct_server() {
    for lie in [Lie::None, Lie::Fragments] {
        for shape in [
            &["--connections", "1", "--depth", "1"][..],
            &["--connections", "4", "--depth", "16"],
            &["--connections", "4", "--depth", "16", "--window", "sliding", "--threads", "3"],
        ] {
            load(lie, shape).assert_success();
        }
    }
}

#[test]
fn a_durable_load_requests_scope_local_in_every_acquire() {
    for shape in [&["--depth", "16"][..], &["--workload", "pair", "--key-size", "33"]] {
        load(Lie::Durable, &[&["--connections", "2", "--scope", "local"], shape].concat()).assert_success();
    }
    load(Lie::Durable, &["--connections", "2"]).assert_wrong("bad_input: so it is");
}

#[test]
fn wrong_responses_are_named_and_fail_the_run() {
    let lies = [
        (Lie::SameFence, "a fence that did not rise"),
        (Lie::WrongNumber, "a response without a matching request"),
        (Lie::Twice, "a response without a matching request"),
        (Lie::AlwaysBusy, "busy, although no other client can hold the key"),
        (Lie::ReleaseFails, "not_found: so it is"),
        (Lie::WrongKind, "a grant in response to the release of key"),
        (Lie::Expired, "unexpected response Event(Expired"),
        (Lie::Garbage, "length: a frame of"),
        (Lie::HangsUp, "the server closed the connection"),
    ];
    // In parallel, because a server that never responds takes several seconds.
    thread::scope(|scope| {
        for (lie, words) in lies {
            for depth in ["1", "8"] {
                scope.spawn(move || {
                    load(lie, &["--connections", "2", "--depth", depth, "--keys", "64"]).assert_wrong(words);
                });
            }
        }
    });
}

#[test]
fn detects_a_key_granted_to_all_waiters() {
    // Fences rise on each connection, so only the ledger of holds can detect it.
    let shape = ["--connections", "1", "--depth", "4", "--workload", "hot"];
    load(Lie::None, &shape).assert_wrong("a grant that conflicts with a hold");
    let shape = ["--connections", "1", "--depth", "16", "--workload", "rw", "--keys", "2"];
    load(Lie::None, &shape).assert_wrong("a grant that conflicts with a hold");
    // With two connections, each has its own fence counter.
    let shape = ["--connections", "2", "--depth", "1", "--workload", "hot"];
    load(Lie::None, &shape).assert_wrong("a fence that did not rise");
}
