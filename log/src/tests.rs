//! Tests of the log format: its bytes, and which frames and records a reader accepts. A change of the bytes that breaks
//! one of these tests needs a new format version.

use super::block::BLOCK_LEN;
use super::frame::{self, FORMAT_VERSION, HEADER_LEN, TRAILER_LEN};
use super::*;

/// Fold for tests that keeps every record and every reported durable position.
#[derive(Debug, Default, PartialEq, Eq)]
struct Everything {
    records: Vec<(u64, Vec<u8>)>,
    durable: Vec<Durable>,
}

impl Fold for Everything {
    type Error = &'static str;

    fn apply(&mut self, lsn: u64, record: &[u8]) -> Result<(), &'static str> {
        self.records.push((lsn, record.to_vec()));
        Ok(())
    }

    fn durable(&mut self, durable: Durable) {
        self.durable.push(durable);
    }

    fn write(&self, out: &mut dyn FnMut(&[u8])) {
        self.records.iter().for_each(|(_, record)| out(record));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the fields at the beginning of a block as hexadecimal text. Checks that the bytes after them are zero, and
/// that the block ends with its checksum.
fn shown(block: &[u8; BLOCK_LEN], fields_len: usize) -> String {
    assert!(block[fields_len..BLOCK_LEN - 4].iter().all(|byte| *byte == 0));
    assert_eq!(block[BLOCK_LEN - 4..], crc32c::crc32c(&block[..BLOCK_LEN - 4]).to_le_bytes());
    hex(&block[..fields_len])
}

const ORIGIN: (u64, u64, u64) = (0x0102_0304_0506_0708, 0x11, 0x22);
const FIELDS: FrameFields =
    FrameFields { lsn: 0x33, durable: Durable { lsn: 0x32, at_ms: 0x44 }, block: 0, previous: 0x5555_5555 };

fn origin() -> Origin {
    Origin::segment(ORIGIN.0, ORIGIN.1, ORIGIN.2)
}

fn frame() -> Vec<u8> {
    let mut bytes = vec![0xff; 7];
    frame::encode(&origin(), &FIELDS, b"\x02\0\0\0hi\0\0\0\0", 2, &mut bytes);
    bytes
}

#[test]
fn a_frame_is_encoded_as_documented() {
    let bytes = frame();
    assert_eq!(bytes.len(), BLOCK_LEN);
    let expected = concat!(
        "574d6672",         // magic
        "0200",             // version
        "0000",             //
        "0807060504030201", // log id
        "1100000000000000", // segment
        "2200000000000000", // generation
        "3300000000000000", // LSN
        "3200000000000000", // durable LSN
        "4400000000000000", // durable since, in ms
        "00000000",         // block
        "0a000000",         // bytes of records
        "02000000",         // records
        "55555555",         // checksum of the frame before
    );
    assert_eq!(hex(&bytes[..72]), expected);
    assert_eq!(hex(&bytes[HEADER_LEN..HEADER_LEN + 10]), "02000000686900000000");
    assert!(bytes[HEADER_LEN + 10..BLOCK_LEN - TRAILER_LEN].iter().all(|byte| *byte == 0));
    assert_eq!(bytes[BLOCK_LEN - TRAILER_LEN..], 0x33u64.to_le_bytes());

    // Both checksums of a frame, of the header and of the rest, start from the same seed: the checksum of file kind,
    // log id, number and generation.
    let seed = crc32c::crc32c(&[&[0][..], &bytes[8..32]].concat());
    assert_eq!(bytes[72..76], crc32c::crc32c_append(seed, &bytes[HEADER_LEN..]).to_le_bytes());
    assert_eq!(bytes[76..80], crc32c::crc32c_append(seed, &bytes[..76]).to_le_bytes());
}

#[test]
fn a_frame_is_read_as_it_was_written() {
    let bytes = frame();
    let header = FrameHeader::decode(&origin(), &bytes, 0).unwrap();
    assert_eq!(header.fields, FIELDS);
    assert_eq!((header.payload_len, header.record_count, header.frame_len()), (10, 2, BLOCK_LEN));
    assert_eq!(header.records(&origin(), &bytes).unwrap().collect::<Vec<_>>(), [b"hi".as_slice(), b""]);
}

#[test]
fn a_frame_is_valid_only_where_it_was_written() {
    let bytes = frame();
    let (log_id, number, generation) = ORIGIN;
    for other in [
        Origin::segment(log_id + 1, number, generation),
        Origin::segment(log_id, number + 1, generation),
        Origin::snapshot(log_id, number, generation),
    ] {
        assert_eq!(FrameHeader::decode(&other, &bytes, 0), Err(BadFrame::HeaderChecksum));
    }
    // A segment may have frames of the server start that began it, and of later starts.
    let begun_by = |generation| FrameHeader::decode(&Origin::segment(log_id, number, generation), &bytes, 0);
    assert_eq!(begun_by(generation - 1).map(|header| header.generation), Ok(generation));
    assert_eq!(begun_by(generation + 1), Err(BadFrame::Field("generation")));
    let moved = [vec![0; BLOCK_LEN], bytes].concat();
    assert_eq!(FrameHeader::decode(&origin(), &moved, 0), Err(BadFrame::Blank));
    assert_eq!(FrameHeader::decode(&origin(), &moved, 1), Err(BadFrame::Misplaced(0)));
    assert_eq!(FrameHeader::decode(&origin(), &moved, 2), Err(BadFrame::Short));
    assert_eq!(FrameHeader::decode(&origin(), &moved, u32::MAX), Err(BadFrame::Short));
}

#[test]
fn every_flipped_bit_and_truncation_of_a_frame_is_detected() {
    let whole = frame();
    let read = |bytes: &[u8]| {
        let header = FrameHeader::decode(&origin(), bytes, 0)?;
        header.records(&origin(), bytes).map(drop)
    };
    assert_eq!(read(&whole), Ok(()));
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&bytes).is_err(), "bit {bit}");
    }
    for len in 0..whole.len() {
        assert_eq!(read(&whole[..len]), Err(BadFrame::Short));
    }
}

#[test]
fn a_frame_fills_whole_blocks_up_to_its_limit() {
    let limit = frame::payload_limit(FRAME_LIMIT);
    assert_eq!((frame::frame_len(0), frame::frame_len(limit)), (BLOCK_LEN, FRAME_LIMIT));
    let one_block = BLOCK_LEN - HEADER_LEN - TRAILER_LEN;
    assert_eq!((frame::frame_len(one_block), frame::frame_len(one_block + 1)), (BLOCK_LEN, 2 * BLOCK_LEN));
}

#[test]
fn records_must_fit_their_bytes_exactly() {
    for (bytes, count) in [
        (b"\x01\0\0\0a".as_slice(), 0),
        (b"\x01\0\0\0a", 2),
        (b"\x02\0\0\0a", 1),
        (b"\x01\0\0", 1),
        (b"\xff\xff\xff\xff", 1),
        (b"", 1),
        (b"", u32::MAX),
    ] {
        assert!(Records::check(bytes, count).is_none(), "{bytes:?} {count}");
    }
    assert_eq!(Records::check(b"\x01\0\0\0a", 1).unwrap().next(), Some(b"a".as_slice()));
}

fn segment_header() -> SegmentHeader {
    let after = Position { lsn: 0x44, checksum: 0x5566_7788 };
    SegmentHeader { log_id: ORIGIN.0, number: 0x11, generation: 0x22, len: SEGMENT_LEN_MIN, after }
}

#[test]
fn a_segment_header_is_encoded_as_documented() {
    let expected = concat!(
        "574d7367",         // magic
        "0200",             // version
        "0000",             //
        "0807060504030201", // log id
        "1100000000000000", // number
        "2200000000000000", // generation
        "0000010000000000", // length of the file
        "4500000000000000", // first LSN
        "4400000000000000", // last LSN before
        "88776655",         // checksum of that frame
    );
    let block = segment_header().encode();
    assert_eq!(shown(&block, 60), expected);
    assert_eq!(SegmentHeader::decode(&block), Ok(segment_header()));
    let odd = SegmentHeader { len: SEGMENT_LEN_MIN + 1, ..segment_header() };
    assert_eq!(SegmentHeader::decode(&odd.encode()), Err(BadBlock::Field("length")));
    let beyond = SegmentHeader { number: 1 << 62, ..segment_header() };
    assert_eq!(SegmentHeader::decode(&beyond.encode()), Err(BadBlock::Field("number")));
}

#[test]
fn a_superblock_is_encoded_as_documented() {
    let losses = Some(Losses { fence_floor: Fence::new(11), wait_ms: 12 });
    let superblock = Superblock {
        losses,
        sequence: 1,
        log_id: ORIGIN.0,
        generation: 2,
        segment_len: 3,
        first_segment: 4,
        last_segment: 5,
        snapshot: 6,
        fence_floor: Fence::new(7),
        longest_lease_ms: 8,
        clean_lsn: 9,
        start: Position { lsn: 13, checksum: 0x5566_7788 },
    };
    let expected = concat!(
        "574d7362",         // magic
        "0200",             // version
        "0000",             //
        "0100000000000000", // sequence
        "0807060504030201", // log id
        "0200000000000000", // generation
        "0300000000000000", // length of new segments
        "0400000000000000", // first segment
        "0500000000000000", // last segment
        "0600000000000000", // snapshot
        "0700000000000000", // fence floor
        "0800000000000000", // longest lease, in ms
        "0900000000000000", // last LSN of a clean stop
        "0100000000000000", // losses
        "0b00000000000000", // their floor
        "0c00000000000000", // their wait
        "0d00000000000000", // last LSN before the start
        "88776655",         // its checksum
    );
    let block = superblock.encode();
    assert_eq!(shown(&block, 124), expected);
    assert_eq!(Superblock::decode(&block), Ok(superblock));
    let beyond = Superblock { last_segment: u64::MAX, ..superblock };
    assert_eq!(Superblock::decode(&beyond.encode()), Err(BadBlock::Field("number")));
}

#[test]
fn the_newest_valid_superblock_copy_is_used_and_the_other_overwritten_first() {
    let older = Superblock { sequence: 1, ..Default::default() };
    let newer = Superblock { sequence: 2, ..Default::default() };
    let bad = [1; BLOCK_LEN];
    let decode =
        |first: [u8; BLOCK_LEN], second: [u8; BLOCK_LEN]| Superblock::decode_file(&[first, second].concat());
    assert_eq!(decode(newer.encode(), newer.encode()), Ok((newer, None)));
    assert_eq!(decode(newer.encode(), older.encode()), Ok((newer, Some(Copy::Second))));
    assert_eq!(decode(older.encode(), newer.encode()), Ok((newer, Some(Copy::First))));
    assert_eq!(decode(older.encode(), bad), Ok((older, Some(Copy::Second))));
    assert_eq!(decode(bad, older.encode()), Ok((older, Some(Copy::First))));
    assert!(matches!(decode(bad, bad), Err(SuperblockError::NoGoodCopy(..))));
    assert!(matches!(Superblock::decode_file(&[]), Err(SuperblockError::NoGoodCopy(..))));
    let other_kind = segment_header().encode();
    assert!(matches!(decode(other_kind, bad), Err(SuperblockError::NoGoodCopy(BadBlock::Magic, _))));
}

/// Every kind of block has its version at the same offset, covered by the same checksum.
#[test]
fn a_newer_format_version_is_distinguished_from_damage() {
    let mut block = Superblock::default().encode();
    block[4] = FORMAT_VERSION as u8 + 1;
    assert_eq!(Superblock::decode(&block), Err(BadBlock::Checksum));
    let checksum = crc32c::crc32c(&block[..BLOCK_LEN - 4]);
    block[BLOCK_LEN - 4..].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(Superblock::decode(&block), Err(BadBlock::NewerVersion(FORMAT_VERSION + 1)));
    let file = [block, Superblock::default().encode()].concat();
    assert_eq!(Superblock::decode_file(&file), Err(SuperblockError::NewerVersion(FORMAT_VERSION + 1)));
}

fn snapshot_header() -> SnapshotHeader {
    let covers = Position { lsn: 0x44, checksum: 0x5566_7788 };
    SnapshotHeader { log_id: ORIGIN.0, number: 0x11, generation: 0x22, covers, next_segment: 0x33 }
}

fn snapshot(records: &[Vec<u8>]) -> Vec<u8> {
    let records = records.iter().map(|record| (0, record.clone())).collect();
    let everything = Everything { records, durable: Vec::new() };
    let mut file = Vec::new();
    write_snapshot(&snapshot_header(), &Grouped::new(everything), &mut |bytes| file.extend_from_slice(bytes));
    file
}

#[test]
fn a_snapshot_header_and_trailer_are_encoded_as_documented() {
    let file = snapshot(&[b"one".to_vec(), b"two".to_vec()]);
    assert_eq!(file.len(), 3 * BLOCK_LEN);
    let expected = concat!(
        "574d736e",         // magic
        "0200",             // version
        "0000",             //
        "0807060504030201", // log id
        "1100000000000000", // number
        "2200000000000000", // generation
        "4400000000000000", // last LSN that is in it
        "3300000000000000", // next segment
        "88776655",         // checksum of the last frame that is in it
        "00000000",         //
    );
    assert_eq!(shown(file.first_chunk().unwrap(), 56), expected);
    let frame_checksum = &file[BLOCK_LEN + 72..BLOCK_LEN + 76];
    let expected = [
        "574d7365",                                          // magic
        "0200",                                              // version
        "0000",                                              //
        "0807060504030201",                                  // log id
        "1100000000000000",                                  // number
        "0100000000000000",                                  // frames
        "0200000000000000",                                  // records
        &hex(&crc32c::crc32c(frame_checksum).to_le_bytes()), // checksum of all checksums
    ];
    assert_eq!(shown(file.last_chunk().unwrap(), 44), expected.concat());
}

#[test]
fn a_snapshot_of_any_size_is_read_as_it_was_written() {
    for count in [0, 1, 2000] {
        let records: Vec<_> = (0..count).map(|number| vec![number as u8 | 0x80; number]).collect();
        assert_is_read(&records);
    }
    let frame_len = frame::payload_limit(FRAME_LIMIT) - 4;
    for len in [frame_len, frame_len + 1, 2 * frame_len, 1 << 20] {
        assert_is_read(&[vec![0xff; len], b"after it".to_vec()]);
    }
}

fn assert_is_read(records: &[Vec<u8>]) {
    let mut found = Grouped::<Everything>::default();
    let file = snapshot(records);
    assert_eq!(read_snapshot(ORIGIN.0, 0x11, &mut &file[..], &mut found), Ok(snapshot_header()));
    let found = found.into_fold().records;
    assert!(found.iter().all(|(lsn, _)| *lsn == 0x44));
    assert!(found.iter().map(|(_, record)| record).eq(records));
}

/// Returns a segment whose frames have this format version, with one frame for each pair. Each frame has one record,
/// and the LSN and instant of the pair as its durable position.
fn segment_of(version: u16, pairs: &[(u64, u64)]) -> Vec<u8> {
    let header = SegmentHeader { after: Position::default(), ..segment_header() };
    let mut file = header.encode().to_vec();
    let mut previous = 0;
    for (lsn, &(durable_lsn, at_ms)) in (1..).zip(pairs) {
        let block = (file.len() / BLOCK_LEN) as u32;
        let fields = FrameFields { lsn, durable: Durable { lsn: durable_lsn, at_ms }, block, previous };
        let mut frame = Vec::new();
        previous = frame::encode(&header.origin(), &fields, b"\x01\0\0\0a", 1, &mut frame);
        frame[4..6].copy_from_slice(&version.to_le_bytes());
        let (kind, log_id_number_generation) = ([0], &frame[8..32]);
        let seed = crc32c::crc32c_append(crc32c::crc32c(&kind), log_id_number_generation);
        let checksum = crc32c::crc32c_append(seed, &frame[..HEADER_LEN - 4]);
        frame[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&checksum.to_le_bytes());
        file.extend_from_slice(&frame);
    }
    file.resize(SEGMENT_LEN_MIN as usize, 0);
    file
}

fn read_segment(file: &[u8]) -> (Position, Everything) {
    let mut recovery = Recovery::<Everything>::new(ORIGIN.0, Grouped::default(), Position::default());
    let header = recovery.header(0x11, &mut &file[..]).unwrap();
    assert_eq!(
        recovery.last(&header, &mut &file[..], &Superblock::default()).map(|end| end.tail),
        Ok(Tail::Clean)
    );
    (recovery.position(), recovery.into_fold())
}

#[test]
fn recovery_reports_each_record_with_its_lsn_and_each_durable_point_once() {
    let (position, found) = read_segment(&segment_of(2, &[(0, 0), (0, 0), (2, 103), (2, 103), (4, 103)]));
    assert_eq!(position.lsn, 5);
    assert_eq!(found.records.iter().map(|(lsn, _)| *lsn).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(found.durable, [Durable { lsn: 2, at_ms: 103 }, Durable { lsn: 4, at_ms: 103 }]);
}

/// Returns a segment with one frame for each of these server starts, the position before the first frame, and the
/// positions of the frames. The record of each frame is the number of its start.
fn segment_of_starts(generations: &[u8]) -> (Vec<u8>, Vec<Position>) {
    let header = SegmentHeader { after: Position::default(), generation: 1, ..segment_header() };
    let mut file = header.encode().to_vec();
    let mut positions = vec![Position::default()];
    for (lsn, &generation) in (1..).zip(generations) {
        let block = (file.len() / BLOCK_LEN) as u32;
        let previous = positions[positions.len() - 1].checksum;
        let fields = FrameFields { lsn, durable: Durable::default(), block, previous };
        let origin = Origin::segment(header.log_id, header.number, generation.into());
        let mut frame = Vec::new();
        let checksum = frame::encode(&origin, &fields, &[1, 0, 0, 0, generation], 1, &mut frame);
        positions.push(Position { lsn, checksum });
        file.extend_from_slice(&frame);
    }
    file.resize(SEGMENT_LEN_MIN as usize, 0);
    (file, positions)
}

/// Reads a last segment with frames of these server starts, and returns its records. The superblock says that the start
/// `generation` appended behind frame `lsn`.
fn read_starts(generations: &[u8], generation: u64, lsn: usize) -> Result<Vec<u8>, Damage> {
    let (file, positions) = segment_of_starts(generations);
    let superblock = Superblock { generation, start: positions[lsn], ..Default::default() };
    let mut recovery = Recovery::<Everything>::new(ORIGIN.0, Grouped::default(), Position::default());
    let header = recovery.header(0x11, &mut &file[..])?;
    recovery.last(&header, &mut &file[..], &superblock)?;
    Ok(recovery.into_fold().records.iter().map(|(_, record)| record[0]).collect())
}

#[test]
fn frames_after_the_start_position_count_only_if_that_start_wrote_them() {
    assert_eq!(read_starts(&[1, 1, 2, 4], 4, 3), Ok(vec![1, 1, 2, 4]));
    // Start 4 dropped the frames of start 2 behind frame 2. In the first assertion below, start 4 has written no frame
    // yet. In the second, it has written one.
    assert_eq!(read_starts(&[1, 1, 2, 2], 4, 2), Ok(vec![1, 1]));
    assert_eq!(read_starts(&[1, 1, 4, 2, 2], 4, 2), Ok(vec![1, 1, 4]));
    let evidence = |read: Result<Vec<u8>, Damage>| match read {
        Err(Damage::Frame { lsn, evidence, .. }) => (lsn, evidence),
        other => panic!("{other:?}"),
    };
    // Generations never decrease from frame to frame.
    assert_eq!(evidence(read_starts(&[1, 2, 1, 4], 4, 3)), (3, Evidence::LaterStart(3)));
    // A start writes its number to the superblock before it writes its first frame.
    assert!(matches!(evidence(read_starts(&[1, 1, 5], 4, 2)), (3, Evidence::LaterFrame { lsn: 3, .. })));
}

#[test]
fn all_frames_up_to_the_start_position_must_be_present() {
    let (mut file, positions) = segment_of_starts(&[1, 1, 2]);
    let read = |file: &[u8], start| {
        let superblock = Superblock { generation: 3, start, ..Default::default() };
        let mut recovery = Recovery::<Everything>::new(ORIGIN.0, Grouped::default(), Position::default());
        let header = recovery.header(0x11, &mut &file[..])?;
        recovery.last(&header, &mut &file[..], &superblock).map(|end| end.block)
    };
    assert_eq!(read(&file, positions[3]), Ok(4));
    let another = Position { lsn: 3, checksum: positions[3].checksum ^ 1 };
    let damage = read(&file, another).unwrap_err();
    assert!(damage.to_string().contains("the server started again after frame 3"), "{damage}");
    file[3 * BLOCK_LEN..].fill(0);
    let damage = read(&file, positions[3]).unwrap_err();
    assert_eq!(damage.offset(), 3 * BLOCK_LEN as u64);
}

/// Servers of format version 1 raised the durable LSN in the middle of a flush, but left the instant of the previous
/// flush beside it.
#[test]
fn a_version_1_durable_lsn_counts_only_with_a_later_timestamp() {
    let (_, found) =
        read_segment(&segment_of(1, &[(0, 100), (1, 150), (2, 150), (2, 150), (4, 300), (5, 300)]));
    assert_eq!(found.durable, [Durable { lsn: 1, at_ms: 150 }, Durable { lsn: 4, at_ms: 300 }]);
}
