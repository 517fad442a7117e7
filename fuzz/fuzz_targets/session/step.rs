//! One step of a run, read from the input.
//!
//! The first byte of a step selects what happens, by its lower bits; with its highest bit set, workers do not settle afterwards.

use crate::rig::Rig;
use waymaker_fuzz::bytes::Bytes;
use waymaker_protocol::frame::header;
use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX};
use waymaker_protocol::{
    Capabilities, Extend, ForceRelease, Hello, NamespaceKind, Release, Request, SessionRequest, Status,
    VERSION, next_frame,
};

/// Bit of the first byte of a step: workers do not settle.
const UNSETTLED: u8 = 0x80;
/// Lengths of time that a step may pass, in milliseconds.
const PERIODS_MS: [u64; 16] =
    [0, 1, 9, 10, 99, 100, 250, 999, 1_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 600_000];

/// Runs the next step of the input.
pub(crate) fn run(rig: &mut Rig, input: &mut Bytes<'_>) {
    let tag = input.u8();
    match tag & !UNSETTLED & 0x0f {
        0 => greet(rig, input),
        // Requests are what matters most, so several values select them.
        1..=4 => request(rig, input),
        5 => bytes(rig, input),
        6 | 7 => rig.pass_ms(PERIODS_MS[input.below(PERIODS_MS.len())]),
        8 => {
            if let Some(connection) = rig.connection(input.u8()) {
                rig.lose(connection);
            }
        }
        9 => {
            let (connection, stalls) = (input.u8(), input.u8() & 1 != 0);
            if let Some(connection) = rig.connection(connection) {
                rig.stall(connection, stalls);
            }
        }
        10 => rig.take_turn(usize::from(input.u8())),
        11 => rig.pass_turn(usize::from(input.u8())),
        12 | 13 => rig.sync(false),
        14 => rig.sync(true),
        _ => match input.u8() & 0x07 {
            0 | 1 => rig.delay_log(true),
            2 | 3 => rig.delay_log(false),
            4 => rig.fill_memory(true),
            5 => rig.fill_memory(false),
            6 => rig.stop(),
            _ => {}
        },
    }
    if tag & UNSETTLED == 0 {
        rig.settle();
    }
    rig.verify();
}

/// A client connects and says HELLO.
fn greet(rig: &mut Rig, input: &mut Bytes<'_>) {
    let connection = rig.open(usize::from(input.u8()));
    let choice = input.u8();
    let kind = NamespaceKind::ALL[usize::from(choice & 0x0f) % NamespaceKind::ALL.len()];
    let index = input.u8();
    let learned = rig.session(index).unwrap_or_default();
    let session = match choice >> 4 & 3 {
        0 => SessionRequest::None,
        1 => SessionRequest::New { lease_ms: u32::from(index) * 100 },
        2 => SessionRequest::Resume { id: learned.0, lane: learned.1 },
        _ => SessionRequest::Join { id: learned.0 },
    };
    let flags = input.u8();
    // Two names for each kind.
    let namespace = format!("{}{}", kind.name(), flags & 1);
    let hello = Hello {
        version_min: VERSION,
        version_max: VERSION,
        kind,
        session,
        worker: if flags & 2 == 0 { ANY_WORKER } else { u16::from(flags >> 6) },
        namespace: namespace.as_bytes(),
        owner: if flags & 4 == 0 { b"" } else { b"owner" },
        credentials: b"",
        attempt: (flags & 8 != 0).then_some(u32::from(index)),
        notify_taken_up: flags & 16 != 0,
        capabilities: (flags & 32 != 0).then_some(Capabilities::from_bits(u64::MAX)),
    };
    let mut bytes = Vec::new();
    Request::Hello(hello).encode(1, &mut bytes);
    rig.send(connection, &bytes);
    rig.read(connection);
}

/// A client sends a whole frame. An id in the frame may be replaced by an id that a client learned, since no input can guess an id.
fn request(rig: &mut Rig, input: &mut Bytes<'_>) {
    let (connection, choice, number) = (input.u8(), input.u8(), input.u8());
    let (opcode, flags) = (input.u8(), input.u16());
    let body = input.piece();
    let Some(connection) = rig.connection(connection) else { return };
    let mut bytes = header(opcode, flags, number.into(), body.len()).to_vec();
    bytes.extend_from_slice(body);
    if choice & 0x40 != 0
        && let Some(id) = rig.id(choice)
        && let Some(request) = next_frame(&bytes, FRAME_LEN_MAX).ok().flatten().map(Request::decode)
    {
        let request = match request {
            Ok(Request::Release(release)) => Some(Request::Release(Release { id, ..release })),
            Ok(Request::Extend(extend)) => Some(Request::Extend(Extend { id, ..extend })),
            Ok(Request::Status(status)) => Some(Request::Status(Status { id, ..status })),
            Ok(Request::ForceRelease(release)) => Some(Request::ForceRelease(ForceRelease { id, ..release })),
            _ => None,
        };
        if let Some(request) = request {
            let mut replaced = Vec::new();
            request.encode(number.into(), &mut replaced);
            bytes = replaced;
        }
    }
    rig.send(connection, &bytes);
    // With this bit the next request comes in the same read.
    if choice & 0x80 == 0 {
        rig.read(connection);
    }
}

/// A client sends any bytes.
fn bytes(rig: &mut Rig, input: &mut Bytes<'_>) {
    let connection = input.u8();
    let bytes = input.piece();
    if let Some(connection) = rig.connection(connection) {
        rig.send(connection, bytes);
        rig.read(connection);
    }
}
