//! Tests that reading the log restores every record that writing split into parts or grouped. The tests also replace
//! the frames up to any frame by a snapshot.

use super::frame::Durable;
use super::split::{Payload, Splitter, split_batch};
use super::*;

/// State for tests: a list of all valid records, each with the number of the frame that makes it durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counted(Vec<(u64, Vec<u8>)>);

impl Fold for Counted {
    type Error = BadRecord;

    fn apply(&mut self, lsn: u64, record: &[u8]) -> Result<(), BadRecord> {
        self.0.push((lsn, record.to_vec()));
        Ok(())
    }

    fn durable(&mut self, _durable: Durable) {}

    fn write(&self, out: &mut dyn FnMut(&[u8])) {
        self.0.iter().for_each(|(_, record)| out(record));
    }
}

impl Counted {
    fn records(&self) -> Vec<&[u8]> {
        self.0.iter().map(|(_, record)| &**record).collect()
    }
}

/// Returns a batch of records with these lengths and different contents, in encoded form, and the number of records.
fn batch(lens: &[usize]) -> (Vec<u8>, u32) {
    let mut bytes = Vec::new();
    for (number, len) in lens.iter().enumerate() {
        bytes.extend_from_slice(&(*len as u32).to_le_bytes());
        bytes.extend((0..*len).map(|at| 0x80 | (number * 31 + at) as u8));
    }
    (bytes, lens.len() as u32)
}

fn split(lens: &[usize], limit: usize) -> Vec<Payload> {
    let (bytes, count) = batch(lens);
    let mut payloads = Vec::new();
    split_batch(&bytes, count, limit, &mut |payload| payloads.push(payload));
    payloads
}

fn whole(lens: &[usize]) -> Vec<Vec<u8>> {
    record::each(&batch(lens).0).map(|record| record.unwrap().to_vec()).collect()
}

fn read(grouped: &mut Grouped<Counted>, lsn: u64, payload: &Payload) {
    assert!(Records::check(&payload.bytes, payload.count).is_some());
    for stored in record::each(&payload.bytes) {
        grouped.take(lsn, stored.unwrap()).unwrap();
    }
}

/// Writes this state as a snapshot, and returns the state that a server reads back from it.
fn through_a_snapshot(grouped: &Grouped<Counted>, covers: u64) -> Grouped<Counted> {
    let covers = Position { lsn: covers, checksum: 1 };
    let header = SnapshotHeader { log_id: 1, number: 2, generation: 3, covers, next_segment: 4 };
    let mut file = Vec::new();
    write_snapshot(&header, grouped, &mut |bytes| file.extend_from_slice(bytes));
    let mut again = Grouped::default();
    assert_eq!(read_snapshot(1, 2, &mut &file[..], &mut again), Ok(header));
    again
}

/// Lengths of the records of batches. For the tested frame limits, the records fit into one frame, fill it exactly, or
/// need several frames.
const BATCHES: [&[usize]; 8] = [
    &[],
    &[0],
    &[1, 2, 3],
    &[59, 60, 61, 0, 120],
    &[500],
    &[7, 500, 7],
    &[300, 300, 300],
    &[40, 40, 40, 40, 40, 40, 40],
];
const LIMITS: [usize; 6] = [Splitter::LIMIT_MIN, 11, 16, 64, 100, 4_000];

#[test]
fn split_payloads_respect_the_limit_and_reassemble_the_batch() {
    for limit in LIMITS {
        for lens in BATCHES {
            let payloads = split(lens, limit);
            let mut grouped = Grouped::<Counted>::default();
            for (lsn, payload) in (1..).zip(&payloads) {
                assert!(payload.bytes.len() <= limit, "{lens:?}: {} of {limit}", payload.bytes.len());
                assert!(payload.count > 0);
                // No record is applied before the last frame of the batch is read.
                assert_eq!(grouped.fold().0, []);
                read(&mut grouped, lsn, payload);
            }
            let counted = grouped.into_fold();
            assert_eq!(counted.records(), whole(lens), "{lens:?} in {limit}");
            assert!(counted.0.iter().all(|(lsn, _)| *lsn == payloads.len() as u64));
        }
    }
}

#[test]
fn a_snapshot_after_any_frame_plus_later_frames_equals_the_log() {
    for limit in LIMITS {
        let payloads: Vec<_> = BATCHES.iter().flat_map(|lens| split(lens, limit)).collect();
        let expected: Vec<_> = BATCHES.iter().flat_map(|lens| whole(lens)).collect();
        for cut in 0..=payloads.len() {
            let mut grouped = Grouped::default();
            for (lsn, payload) in (1..).zip(&payloads[..cut]) {
                read(&mut grouped, lsn, payload);
            }
            let before = grouped.fold().clone();
            let mut again = through_a_snapshot(&grouped, cut as u64);
            assert_eq!(again.fold().records(), before.records(), "after {cut} frames of {limit}");
            // The state that was read from a snapshot is written as a snapshot again. That must not change the result
            // either.
            let mut again = through_a_snapshot(&again, cut as u64);
            for (lsn, payload) in (cut as u64 + 1..).zip(&payloads[cut..]) {
                read(&mut again, lsn, payload);
            }
            assert_eq!(again.into_fold().records(), expected, "after {cut} frames of {limit}");
        }
    }
}

#[test]
fn a_start_drops_the_unfinished_batch_of_the_previous_run() {
    let mut started = Vec::new();
    Record::Started(Started::default()).encode(&mut started);
    for limit in LIMITS {
        for lens in BATCHES {
            let payloads = split(lens, limit);
            for cut in 0..payloads.len() {
                let mut grouped = Grouped::default();
                payloads[..cut].iter().for_each(|payload| read(&mut grouped, 1, payload));
                let mut grouped = through_a_snapshot(&grouped, 1);
                grouped.take(2, &started[4..]).unwrap();
                payloads.iter().for_each(|payload| read(&mut grouped, 3, payload));
                let counted = grouped.into_fold();
                assert_eq!(counted.records()[1..], whole(lens), "{lens:?}, {cut} frames of {limit}");
            }
        }
    }
}

#[test]
fn invalid_parts_and_groups_are_rejected() {
    let part = |left, bytes| Record::Part { left, bytes };
    let refused = |records: &[Record<'_>]| {
        let mut grouped = Grouped::<Counted>::default();
        let taken: Result<(), String> = records.iter().try_for_each(|record| {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            grouped.take(1, &bytes[4..])
        });
        taken.unwrap_err()
    };
    let missing = "a part of the previous record is missing";
    assert!(refused(&[part(5, b"\xff"), Record::Stopped]).contains(missing));
    assert!(refused(&[part(5, b"\xff"), Record::Group { count: 1 }]).contains(missing));
    for next in [part(5, b"\xff"), part(3, b"\xff"), part(0, b"123456"), part(u32::MAX, b"1")] {
        assert!(refused(&[part(5, b"\xff"), next]).contains("a part of another record"));
    }
    assert!(refused(&[Record::Group { count: 2 }, Record::Group { count: 1 }]).contains("a group inside"));
    let mut group = Vec::new();
    Record::Group { count: 1 }.encode(&mut group);
    let parts = [part(1, &group[4..group.len() - 1]), part(0, &group[group.len() - 1..])];
    assert!(refused(&parts).contains("records of this kind are not stored in parts"));
}

/// The state must be the same whether all records are read from the log, or the first ones are replaced by a snapshot.
#[test]
fn a_snapshot_after_any_frame_preserves_the_image() {
    let records = [
        Record::Floor { fence: Fence::new(3) },
        Record::Counter {
            namespace: 0,
            scope: crate::ids::Scope::Local,
            fence: Fence::new(9),
            key: &[7; 300],
        },
        Record::Folded { namespace: 0, key: &[7; 300] },
        Record::Namespace { number: 1, kind: 0, name: &[8; 90] },
        Record::Frozen { namespace: 1, frozen: true, prefix: &[9; 30] },
    ];
    let mut bytes = Vec::new();
    records.iter().for_each(|record| record.encode(&mut bytes));
    let mut payloads = Vec::new();
    for _ in 0..2 {
        split_batch(&bytes, records.len() as u32, 64, &mut |payload| payloads.push(payload));
    }
    let written = |image: &Image| {
        let mut records = Vec::new();
        image.write(&mut |record| records.push(record.to_vec()));
        records
    };
    let take = |grouped: &mut Grouped<Image>, payload: &Payload| {
        record::each(&payload.bytes).for_each(|stored| grouped.take(1, stored.unwrap()).unwrap());
    };
    let mut whole = Grouped::default();
    payloads.iter().for_each(|payload| take(&mut whole, payload));
    let whole = written(&whole.into_fold());
    for cut in 0..=payloads.len() {
        let mut grouped = Grouped::<Image>::default();
        payloads[..cut].iter().for_each(|payload| take(&mut grouped, payload));
        let covers = Position { lsn: 1, checksum: 1 };
        let header = SnapshotHeader { log_id: 1, number: 2, generation: 3, covers, next_segment: 4 };
        let mut file = Vec::new();
        write_snapshot(&header, &grouped, &mut |bytes| file.extend_from_slice(bytes));
        let mut again = Grouped::default();
        read_snapshot(1, 2, &mut &file[..], &mut again).unwrap();
        payloads[cut..].iter().for_each(|payload| take(&mut again, payload));
        assert_eq!(written(&again.into_fold()), whole, "after {cut} frames");
    }
}
