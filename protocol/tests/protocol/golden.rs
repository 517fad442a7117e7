//! The bytes of every sample in files that people can read. A change of them breaks existing clients.
//!
//! Files of released versions are frozen, in one folder for each version. Unreleased files are beside these folders and
//! may be rewritten.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Once;

use waymaker_protocol::frame::HEADER_LEN;
use waymaker_protocol::{Acquire, Granted, Request, Response};

use crate::direction::{Message, only_frame};
use crate::frozen::{frozen_path, frozen_paths};
use crate::layout::{Field, layout};
use crate::samples::{Sample, samples};

const REWRITE: &str = "WAYMAKER_REWRITE_GOLDEN";
const BYTES_PER_LINE: usize = 16;

#[test]
fn every_message_has_the_bytes_of_its_golden_file() {
    for sample in samples() {
        let bytes = sample.message.encode(sample.number);
        let golden = read(sample.name);
        assert_eq!(
            parse(&golden),
            bytes,
            "\n{} no longer has the bytes that clients know.\ngolden file:\n{golden}\nencoded now:\n{}\n\
             If this message was never released, rewrite its file with {REWRITE}=1; released files are frozen.\n",
            sample.name,
            print(&sample, &bytes),
        );
        assert_eq!(
            golden,
            print(&sample, &bytes),
            "{}: the comments of the golden file are stale",
            sample.name
        );
    }
}

#[test]
fn every_golden_file_decodes_to_its_message() {
    for sample in samples() {
        let bytes = parse(&read(sample.name));
        let frame = only_frame(&bytes);
        assert_eq!(frame.number(), sample.number, "{}", sample.name);
        assert_eq!(Message::decode(sample.message.sender(), frame), Ok(sample.message), "{}", sample.name);
    }
}

#[test]
fn every_golden_file_belongs_to_a_message() {
    let names: Vec<_> = samples().iter().map(|sample| path(sample.name)).collect();
    let entries = std::fs::read_dir(folder()).expect("the golden files are there");
    let unreleased = entries.map(|entry| entry.expect("the folder can be read").path());
    for path in unreleased.filter(|path| path.is_file()).chain(frozen_paths()) {
        assert!(names.contains(&path), "{} has no sample", path.display());
    }
}

#[test]
fn acquire_and_granted_messages_stay_small() {
    let acquire = Request::Acquire(Acquire { key: &[b'k'; 16], ..Acquire::default() });
    assert_eq!(HEADER_LEN, 12);
    assert!(Message::Request(acquire).encode(1).len() <= 64);
    let granted = Message::Response(Response::Granted(Granted::default())).encode(1);
    assert_eq!(granted.len(), Granted::FRAME_LEN);
    assert!(granted.len() <= 48);
}

/// Returns the folder of unreleased golden files, which has a folder for each released version.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn path(name: &str) -> PathBuf {
    let file = format!("{name}.hex");
    frozen_path(&file).unwrap_or_else(|| folder().join(file))
}

/// Returns the text of a golden file.
pub(crate) fn read(name: &str) -> String {
    static REWRITTEN: Once = Once::new();
    if std::env::var_os(REWRITE).is_some() {
        REWRITTEN.call_once(rewrite);
    }
    let path = path(name);
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; write it with {REWRITE}=1", path.display()))
}

/// Writes the files of all unreleased samples.
fn rewrite() {
    for sample in samples() {
        let file = format!("{}.hex", sample.name);
        if frozen_path(&file).is_none() {
            let text = print(&sample, &sample.message.encode(sample.number));
            std::fs::write(folder().join(file), text).expect("the golden file can be written");
        }
    }
}

/// Parses the bytes of a golden file: hexadecimal digits, with comments that start with `#`.
pub(crate) fn parse(text: &str) -> Vec<u8> {
    let digits = text.lines().filter_map(|line| line.split('#').next()).flat_map(str::split_whitespace);
    digits.map(|digits| u8::from_str_radix(digits, 16).expect("two hexadecimal digits")).collect()
}

/// Returns a golden file: a line with the name of the message, then a line for each field of header and body.
fn print(sample: &Sample, bytes: &[u8]) -> String {
    let mut text = format!("# {}\n", sample.about);
    for field in layout(sample.message.sender(), bytes) {
        let Field { name, offset, len } = field;
        for (index, line) in bytes[offset..offset + len].chunks(BYTES_PER_LINE).enumerate() {
            let hex: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let width = 3 * BYTES_PER_LINE;
            let comment = if index == 0 { format!("# {offset} {name}") } else { "#".to_owned() };
            writeln!(text, "{:width$}{comment}", hex.join(" ")).expect("a string takes all");
        }
    }
    text
}
