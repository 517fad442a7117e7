//! PostgreSQL: advisory locks, through prepared statements of protocol 3.
//!
//! A lock belongs to its connection. PostgreSQL grants it again to the same connection, so a connection has one
//! request at a time. There is no lease: a lock ends with its connection.

use std::io::{self, Read, Write};

use super::{Answer, Broken, Claim, Codec, Parsed, refused};
use crate::address::Login;
use crate::key::KeyIndex;
use crate::plan::Plan;

/// Protocol version 3.0.
const PROTOCOL: u32 = 3 << 16;
/// Maximum length of a message.
const MESSAGE_LEN_MAX: usize = 64 << 10;
/// Length of the type and length fields of a message.
const HEAD_LEN: usize = 5;
/// Codes of authentication messages: success, and the methods that need a password.
const AUTHENTICATED: u32 = 0;
const WANT_PASSWORD: [u32; 3] = [3, 5, 10];
/// Type id of bigint.
const BIGINT: u32 = 20;

/// A connection to PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    exclusive: Call,
    shared: Call,
    release: Call,
    release_shared: Call,
    /// Whether an acquire waits; otherwise it tries.
    waits: bool,
    /// Number and kind of the request in flight.
    number: u32,
    sent: Sent,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sent {
    /// No request is in flight, so any response is an error.
    #[default]
    Nothing,
    /// The response is `true` or `false`.
    Try,
    /// The response is empty and arrives once the lock is held.
    Wait,
    Release,
}

/// The messages that call one function with a key. The key is in the last eight bytes before the constant end.
#[derive(Debug)]
struct Call {
    messages: Vec<u8>,
    key_offset: usize,
}

impl Call {
    /// Creates the call of the prepared statement with this name.
    fn new(name: &str) -> Self {
        let mut bind = vec![0];
        bind.extend_from_slice(name.as_bytes());
        bind.push(0);
        // One format for all parameters, binary; one parameter of eight bytes.
        bind.extend_from_slice(&[0, 1, 0, 1, 0, 1, 0, 0, 0, 8]);
        let key_offset = HEAD_LEN + bind.len();
        bind.extend_from_slice(&[0; 8]);
        // One format for all results, binary.
        bind.extend_from_slice(&[0, 1, 0, 1]);
        let mut messages = Vec::new();
        put_message(b'B', &bind, &mut messages);
        // Fetch all rows.
        put_message(b'E', &[0; 5], &mut messages);
        put_message(b'S', &[], &mut messages);
        Self { messages, key_offset }
    }

    #[inline]
    fn append(&self, key: KeyIndex, out: &mut Vec<u8>) {
        let start = out.len() + self.key_offset;
        out.extend_from_slice(&self.messages);
        out[start..start + 8].copy_from_slice(&key.scrambled().to_be_bytes());
    }
}

fn put_message(kind: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    put_sized(body, out);
}

/// Writes the length, which includes itself, and the body.
fn put_sized(body: &[u8], out: &mut Vec<u8>) {
    let len = u32::try_from(body.len() + 4).expect("messages of a load are short");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(body);
}

/// Returns the type and body of the first message of a buffer; `None` if it is incomplete.
#[inline]
fn next_message(bytes: &[u8]) -> Result<Option<(u8, &[u8])>, Broken> {
    let Some((&[kind, a, b, c, d], rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let len = u32::from_be_bytes([a, b, c, d]) as usize;
    if !kind.is_ascii_alphanumeric() || !(4..=MESSAGE_LEN_MAX).contains(&len) {
        return Err(Broken(format!("not a PostgreSQL message: type {kind:#04x}, {len} bytes")));
    }
    Ok(rest.get(..len - 4).map(|body| (kind, body)))
}

/// Returns the only value of a row.
#[inline]
fn row_value(body: &[u8]) -> Result<&[u8], Broken> {
    match body {
        [0, 1, a, b, c, d, value @ ..] if u32::from_be_bytes([*a, *b, *c, *d]) as usize == value.len() => {
            Ok(value)
        }
        _ => Err(Broken("a row with more than one value".into())),
    }
}

/// Formats severity, code and message of an error.
fn error_words(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0).filter_map(|field| field.split_first());
    let words = fields.filter(|(name, _)| matches!(name, b'S' | b'C' | b'M'));
    words.map(|(_, text)| String::from_utf8_lossy(text)).collect::<Vec<_>>().join(" ")
}

/// Whether a message may arrive at any time without a request: a notice, or the value of a setting.
fn is_aside(kind: u8) -> bool {
    matches!(kind, b'N' | b'S')
}

/// Sends the request, and passes each message of the response on until the server waits for the next request.
fn converse(
    stream: &mut (impl Read + Write),
    request: &[u8],
    mut hear: impl FnMut(u8, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    stream.write_all(request)?;
    let mut received = Vec::new();
    loop {
        let mut chunk = [0; 1024];
        match stream.read(&mut chunk)? {
            0 => return Err(refused("the server closed the connection during the login")),
            count => received.extend_from_slice(&chunk[..count]),
        }
        let mut start = 0;
        while let Some((kind, body)) = next_message(&received[start..]).map_err(|broken| refused(broken.0))? {
            start += HEAD_LEN + body.len();
            match kind {
                b'E' => return Err(refused(error_words(body))),
                b'Z' if start == received.len() => return Ok(()),
                b'Z' => return Err(refused("more messages than expected")),
                kind if is_aside(kind) => {}
                kind => hear(kind, body)?,
            }
        }
        received.drain(..start);
    }
}

/// Logs in.
pub(crate) fn log_in(stream: &mut (impl Read + Write), login: &Login) -> io::Result<()> {
    let mut start_up = PROTOCOL.to_be_bytes().to_vec();
    let Login { user, database } = login;
    for word in ["user", user, "database", database, "application_name", "waymaker-loadgen", ""] {
        start_up.extend_from_slice(word.as_bytes());
        start_up.push(0);
    }
    let mut request = Vec::new();
    put_sized(&start_up, &mut request);
    let mut is_authenticated = false;
    converse(stream, &request, |kind, body| {
        match (kind, body.first_chunk().map(|way| u32::from_be_bytes(*way))) {
            (b'R', Some(AUTHENTICATED)) => {
                is_authenticated = true;
                Ok(())
            }
            (b'R', Some(way)) if WANT_PASSWORD.contains(&way) => Err(refused(format!(
                "the server requires a password for {user}, which this program does not support; set trust in \
                 pg_hba.conf"
            ))),
            (b'R', way) => {
                Err(refused(format!("the server requires an unsupported authentication method: {way:?}")))
            }
            // Key for cancelling requests; not used.
            (b'K', _) if is_authenticated => Ok(()),
            _ => Err(refused(unexpected(kind))),
        }
    })?;
    if is_authenticated { Ok(()) } else { Err(refused("the server never confirmed the login")) }
}

fn unexpected(kind: u8) -> String {
    format!("an unexpected message of type {:?}", char::from(kind))
}

impl Codec for Postgres {
    type Hold = ();
    const HAS_FENCES: bool = false;
    /// Used if clients contend for a key. Otherwise the acquire tries once, and busy is a wrong response.
    const WAITS: bool = true;

    fn open(plan: &Plan, stream: &mut (impl Read + Write)) -> io::Result<Self> {
        log_in(stream, &plan.login)?;
        let names = [
            ("exclusive", if plan.workload.contends() { "pg_advisory_lock" } else { "pg_try_advisory_lock" }),
            ("shared", "pg_advisory_lock_shared"),
            ("release", "pg_advisory_unlock"),
            ("release_shared", "pg_advisory_unlock_shared"),
        ];
        let mut request = Vec::new();
        for (name, function) in names {
            let mut parse = format!("{name}\0SELECT {function}($1)\0").into_bytes();
            parse.extend_from_slice(&1_u16.to_be_bytes());
            parse.extend_from_slice(&BIGINT.to_be_bytes());
            put_message(b'P', &parse, &mut request);
        }
        put_message(b'S', &[], &mut request);
        let mut prepared_count = 0;
        converse(stream, &request, |kind, _| {
            prepared_count += 1;
            if kind == b'1' { Ok(()) } else { Err(refused(unexpected(kind))) }
        })?;
        if prepared_count != names.len() {
            return Err(refused(format!(
                "only {prepared_count} of {} statements were prepared",
                names.len()
            )));
        }
        let [exclusive, shared, release, release_shared] = names.map(|(name, _)| Call::new(name));
        let (waits, sent) = (plan.workload.contends(), Sent::Nothing);
        Ok(Self { exclusive, shared, release, release_shared, waits, number: 0, sent })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        (self.number, self.sent) = (number, if self.waits { Sent::Wait } else { Sent::Try });
        let call = if claim.shared { &self.shared } else { &self.exclusive };
        call.append(claim.key, out);
    }

    #[inline]
    fn put_release(&mut self, number: u32, claim: Claim, _hold: &(), out: &mut Vec<u8>) {
        (self.number, self.sent) = (number, Sent::Release);
        let call = if claim.shared { &self.release_shared } else { &self.release };
        call.append(claim.key, out);
    }

    fn put_close(&mut self, out: &mut Vec<u8>) {
        put_message(b'X', &[], out);
    }

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<()>, Broken> {
        // Expected messages: bind complete, row, command complete, ready for query.
        let mut expected: &[u8] = b"2DCZ";
        let mut value: &[u8] = &[];
        let mut error = None;
        let mut len = 0;
        while let Some(&kind_expected) = expected.first() {
            let Some((kind, body)) = next_message(&bytes[len..])? else { return Ok(None) };
            len += HEAD_LEN + body.len();
            match kind {
                kind if is_aside(kind) => continue,
                b'E' if kind_expected != b'Z' => {
                    error = Some(error_words(body));
                    expected = b"Z";
                    continue;
                }
                kind if kind != kind_expected => return Err(Broken(unexpected(kind))),
                b'D' => value = row_value(body)?,
                _ => {}
            }
            expected = &expected[1..];
        }
        let number = self.number;
        let refused = |message: String| Answer::Refused { number: Some(number), message };
        let answer = match (std::mem::take(&mut self.sent), error, value) {
            (Sent::Nothing, ..) => return Err(Broken("a response without a request".into())),
            (_, Some(words), _) => refused(words),
            (Sent::Try, None, [1]) | (Sent::Wait, None, []) => Answer::Granted { number, hold: (), fence: 0 },
            (Sent::Try, None, [0]) => Answer::Busy { number },
            (Sent::Release, None, [1]) => Answer::Released { number },
            (Sent::Release, None, [0]) => {
                refused("the connection does not hold the lock; the lock was lost".into())
            }
            (sent, None, value) => {
                return Err(Broken(format!("unexpected value in the response to {sent:?}: {value:?}")));
            }
        };
        Ok(Some((answer, len)))
    }
}
