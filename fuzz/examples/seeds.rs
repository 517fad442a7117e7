//! Writes the inputs that the kept corpus was made from: `cargo run --example seeds -- FOLDER` fills `FOLDER/TARGET` for each target.
//! `fuzz/README.md` says how the corpus is made of them.

#[path = "../../log/tests/fixtures/fixture.rs"]
mod fixture;

use fixture::Fixture;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use waymaker_fuzz::{contracts, web_socket};
use waymaker_log::{Durable, FileName, FileReader, Fold, Superblock, read_log};
use waymaker_protocol::frame::HEADER_LEN;

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("usage: seeds FOLDER"));
    let frames = golden_frames();
    write(&folder, "frames", frames.clone());
    write(&folder, "session", sessions(&frames));
    write(&folder, "log_reader", logs());
    write(&folder, "grpc", calls());
    write(&folder, "web_socket", web_sockets());
    write(&folder, "dynamodb", dynamodb());
    write(&folder, "configuration", configurations());
}

fn write(folder: &Path, target: &str, seeds: Vec<Vec<u8>>) {
    let folder = folder.join(target);
    std::fs::create_dir_all(&folder).expect("a folder");
    for (index, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(format!("{index:04}")), seed).expect("a file");
    }
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Appends bytes behind their length, as targets read them.
fn put_piece(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u16::try_from(bytes.len()).expect("a short piece").to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The messages of the golden files.
fn golden_frames() -> Vec<Vec<u8>> {
    let golden = project().join("protocol/tests/golden");
    let mut paths = Vec::new();
    for folder in [golden.clone(), golden.join("v1"), golden.join("v2")] {
        let entries = std::fs::read_dir(folder).expect("the golden files");
        paths.extend(entries.map(|entry| entry.expect("an entry").path()));
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "hex"));
    paths.sort();
    let parse = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("text");
        let digits = text.lines().filter_map(|line| line.split('#').next()).flat_map(str::split_whitespace);
        digits.map(|digits| u8::from_str_radix(digits, 16).expect("two digits")).collect()
    };
    paths.iter().map(parse).collect()
}

/// Runs of the session machine in which clients send the requests of the golden files.
fn sessions(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let requests: Vec<_> = frames.iter().filter(|frame| frame[8] & 0x80 == 0).collect();
    let mut seeds = Vec::new();
    for config in [0x00, 0x13, 0x02, 0x1d, 0x0f] {
        for kind in 0..6 {
            let mut run = vec![config];
            // A client without a session, a client with a session, and a client that joins the session.
            for choice in [kind, kind | 1 << 4, kind | 3 << 4] {
                run.extend_from_slice(&[0, choice & 1, choice, 200, 0x36]);
            }
            for (index, request) in requests.iter().enumerate() {
                let index = index as u8;
                // Every third request uses an id that a client has learned.
                let choice = if index.is_multiple_of(3) { 0x40 | index & 0x3f } else { 0 };
                run.extend_from_slice(&[1, index % 3, choice, index, request[8], request[10], request[11]]);
                put_piece(&mut run, &request[HEADER_LEN..]);
                if index.is_multiple_of(8) {
                    run.extend_from_slice(&[12, 6, 1]);
                }
            }
            run.extend_from_slice(&[8, 1, 6, 13, 10, 0, 0, 0, 2, 1, 0x36, 11, 1, 12, 6, 15, 14]);
            seeds.push(run);
        }
    }
    seeds
}

/// The stored records of a log, in their order.
#[derive(Debug, Default)]
struct Stored(Vec<Vec<u8>>);

impl Fold for Stored {
    type Error = Infallible;

    fn record(&mut self, record: &[u8]) {
        self.0.push(record.to_vec());
    }

    fn apply(&mut self, _: u64, _: &[u8]) -> Result<(), Infallible> {
        Ok(())
    }

    fn durable(&mut self, _: Durable) {}

    fn write(&self, _: &mut dyn FnMut(&[u8])) {}
}

/// Logs of released servers, whole and as records.
fn logs() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (index, fixture) in Fixture::all().enumerate() {
        seeds.push(vec![1, index as u8, 0]);
        // A change of the superblock that is sealed again.
        seeds.push(vec![1, index as u8, 1, 0, 8, 0, 0, 1, 9]);
        let files: BTreeMap<_, _> = fixture
            .files
            .into_iter()
            .filter_map(|(name, bytes)| FileName::parse(&name).map(|name| (name, bytes)))
            .collect();
        let (superblock, _) = Superblock::decode_file(&files[&FileName::Superblock]).expect("a superblock");
        let numbers = files.keys().filter_map(|file| match file {
            FileName::Segment(number) => Some(*number),
            _ => None,
        });
        let newest = numbers.max().unwrap_or(0);
        let mut read = |file| Ok(Box::new(files[&file].clone()) as Box<dyn FileReader>);
        let found = read_log(&superblock, newest, Stored::default(), &mut read).expect("a log");
        let records = found.fold.0;
        for snapshot_count in [0, 4, 127] {
            let mut seed = vec![2, snapshot_count];
            for (index, record) in records.iter().enumerate() {
                seed.push(u8::from(index.is_multiple_of(5)) | (index as u8) << 1);
                put_piece(&mut seed, record);
            }
            seeds.push(seed);
        }
        let mut seed = vec![0];
        put_piece(&mut seed, &files[&FileName::Superblock]);
        for (name, bytes) in &files {
            let choice = match name {
                FileName::Segment(number) => (*number as u8) << 1,
                FileName::Snapshot(number) => (*number as u8) << 1 | 1,
                _ => continue,
            };
            seed.push(choice);
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            put_piece(&mut seed, &bytes[..end.min(usize::from(u16::MAX))]);
        }
        seeds.push(seed);
    }
    seeds
}

/// Messages and calls with a value in each field.
fn calls() -> Vec<Vec<u8>> {
    let samples = contracts::samples();
    let mut seeds = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        for message_type in 0..64 {
            seeds.push([&[0, message_type], &sample[..]].concat());
        }
        let mut call = vec![1];
        // Twice, since the second call finds the hold of the first call.
        for _ in 0..2 {
            call.push(index as u8);
            put_piece(&mut call, sample);
        }
        seeds.push(call);
    }
    let mut all = vec![1];
    for (index, sample) in samples.iter().take(30).enumerate() {
        all.push(index as u8);
        put_piece(&mut all, sample);
    }
    seeds.push(all);
    let mut frames = vec![2];
    let mut call = Vec::new();
    waymaker_fuzz::http2::put_call(&mut call, 1, "/waymaker.v1.LockService/TryAcquire", &samples[0]);
    put_piece(&mut frames, &call);
    // PING, WINDOW_UPDATE, RST_STREAM and GOAWAY.
    for (kind, stream, payload) in
        [(6, 0, vec![0; 8]), (8, 0, vec![0, 0, 1, 0]), (3, 1, vec![0, 0, 0, 8]), (7, 0, vec![0; 8])]
    {
        let mut frame = Vec::new();
        waymaker_fuzz::http2::put_frame(&mut frame, kind, 0, stream, &payload);
        put_piece(&mut frames, &frame);
    }
    seeds.push(frames);
    seeds
}

/// What Locktopus clients and browsers send.
fn web_sockets() -> Vec<Vec<u8>> {
    let messages: [&[u8]; 6] = [
        br#"{"action":"lock","resources":[{"type":"write","path":["a","b"]},{"type":"r","path":["c"]}]}"#,
        br#"{"action":"release"}"#,
        br#"{"Action":"lock","Resources":[{"Type":"WRITE","Path":[]}],"other":{"x":[1,2.5e3,null,true,"\u00e9\ud83d\ude00"]}}"#,
        br#"{"action":"lock","resources":[{"type":"x","path":["a"]}]} {"action":"release"}"#,
        b"null",
        br#"{"action":"lock","resources":[{"path":null}]}"#,
    ];
    let mut seeds: Vec<Vec<u8>> = messages.iter().map(|message| [&[0], *message].concat()).collect();
    let mut conversation = vec![4];
    let (mut frames, mut pieces) = (vec![1], vec![3]);
    for message in messages {
        conversation.push(0x81);
        put_piece(&mut conversation, message);
        let mut frame = Vec::new();
        web_socket::put_frame(&mut frame, 0x81, message);
        put_piece(&mut pieces, &frame);
        frames.extend_from_slice(&frame);
    }
    for first in [0x89, 0x8a, 0x01, 0x80, 0x88] {
        conversation.push(first);
        put_piece(&mut conversation, &[3, 232]);
        web_socket::put_frame(&mut frames, first, b"xy");
    }
    seeds.extend([conversation, frames, pieces]);
    for first in messages {
        seeds.push([&[4, 0x81], &(first.len() as u16).to_le_bytes()[..], first].concat());
    }
    for path in ["/metrics", "/healthz", "/readyz", "/", "/stats_v1?namespace=a", "/v1?namespace=a", "/x"] {
        seeds.push([&[2], format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").as_bytes()].concat());
    }
    seeds
}

/// The requests of Clever's package, alone and after each other.
fn dynamodb() -> Vec<Vec<u8>> {
    let take = r##""ConditionExpression":"(attribute_not_exists (#0)) OR (#1 < :0) OR (#2 = :1)","ExpressionAttributeNames":{"#0":"key","#1":"leasedUntil","#2":"owner"},"ExpressionAttributeValues":{":0":{"S":"2026-11-29T21:00:00.5Z"},":1":{"S":"o"}}"##;
    let keep = r##""ConditionExpression":"#0 = :0","ExpressionAttributeNames":{"#0":"owner"},"ExpressionAttributeValues":{":0":{"S":"o"}}"##;
    let other = r##""ConditionExpression":"NOT (attribute_exists(key) AND owner <> :o AND leasedUntil >= :t)","ExpressionAttributeValues":{":t":{"S":"2026-11-29T21:00:00.5Z"},":o":{"S":"o"}}"##;
    let item = r#""Item":{"key":{"S":"k"},"owner":{"S":"o"},"leasedUntil":{"S":"2096-11-29T21:00:00+01:00"},"n":{"L":[{"NS":["1"]},{"M":{"a":{"B":"AA=="}}}]}}"#;
    let key = r#""Key":{"key":{"S":"k"}}"#;
    let table = r#""TableName":"locks""#;
    let requests = [
        (0, format!("{{{table},{item},{take}}}")),
        (0, format!("{{{table},{item},{keep}}}")),
        (0, format!("{{{table},{item},{other}}}")),
        (1, format!("{{{table},{key},{take}}}")),
        (2, format!("{{{table},{key},\"ConsistentRead\":true}}")),
        (4, format!("{{{table}}}")),
        (5, format!("{{{table}}}")),
        (6, r#"{"Limit":2,"ExclusiveStartTableName":"a"}"#.to_owned()),
    ];
    let mut seeds = Vec::new();
    let mut all = vec![2];
    for (operation, body) in requests {
        seeds.push([&[0, operation], body.as_bytes()].concat());
        all.push(operation);
        put_piece(&mut all, body.as_bytes());
    }
    seeds.push(all);
    seeds.push(b"\x01POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: DynamoDB_20120810.ListTables\r\nContent-Length: 2\r\n\r\n{}".to_vec());
    let scope = "Credential=WAYMAKERBILLING1/20261129/eu-west-1/dynamodb/aws4_request";
    let signature = "0".repeat(64);
    seeds.push(format!("\x03AWS4-HMAC-SHA256 {scope}, SignedHeaders=host;x-amz-date, Signature={signature}\n20261129T210000Z").into_bytes());
    seeds
}

/// The examples of the documents, and a file with all options.
fn configurations() -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(project().join("docs/reference/configuration.md")).expect("text");
    let examples = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut seeds: Vec<_> = examples.map(|example| example.as_bytes().to_vec()).collect();
    let all = r#"listen = "127.0.0.1:0"
grpc_listen = "none"
http_listen = "[::1]:7422"
locktopus_listen = "none"
dynamodb_listen = "none"
locktopus_abandon_timeout = "1m 30s"
workers = 2
pin = false
busy_poll = "50us"
memory_limit = "75%"
unix = "none"
data_dir = "none"
log_segment_len = 65536
accept_damage = true
drain = "5s"
tls_cert = "cert.pem"
tls_key = "key.pem"
tls_client_ca = "ca.pem"
tls_min_version = "1.2"
insecure = true

[locket]
compatibility = "2024"
durable = false

[quorum]
endpoints = ["http://10.0.0.1:2379", "https://[::1]:2379"]
prefix = "p/"
user = "u"
password = "p"
ca = "ca.pem"
cert = "cert.pem"
key = "key.pem"
"#;
    seeds.push(all.as_bytes().to_vec());
    seeds.extend(all.lines().filter(|line| !line.is_empty()).map(|line| line.as_bytes().to_vec()));
    seeds.extend(
        ["512MiB", "1GB", "none", "100%", "0"]
            .map(|limit| format!("memory_limit = \"{limit}\"").into_bytes()),
    );
    seeds
}
