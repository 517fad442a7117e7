//! The files of a log in memory.

use std::collections::BTreeMap;
use std::rc::Rc;
use waymaker_fuzz::bytes::Bytes;
use waymaker_log::{Damage, FileName, FileReader, Image, SEGMENT_LEN_MIN, Superblock, read_log};

/// The files of a data directory.
#[derive(Debug, Default)]
pub(crate) struct Files(pub(crate) BTreeMap<FileName, Rc<[u8]>>);

impl Files {
    /// Reads the log as a server does. `None` if it is refused.
    pub(crate) fn read(&self) -> Option<Image> {
        let (superblock, _) = Superblock::decode_file(self.0.get(&FileName::Superblock)?).ok()?;
        let segments = self
            .0
            .keys()
            .filter_map(|file| if let FileName::Segment(number) = file { Some(*number) } else { None });
        let newest = segments.max().unwrap_or(0);
        let mut read = |file| match self.0.get(&file) {
            Some(bytes) => Ok(Box::new(Rc::clone(bytes)) as Box<dyn FileReader>),
            None => Err(Damage::Unreadable { file, reason: "there is no such file".to_owned() }),
        };
        match read_log(&superblock, newest, Image::default(), &mut read) {
            Ok(found) => Some(found.fold),
            Err(unread) => {
                assert!(!unread.damage.to_string().is_empty(), "damage is described");
                None
            }
        }
    }
}

/// Returns files with any bytes: the superblock, then others, each behind a byte for its kind and number and a length of two bytes. Segments
/// are filled up with zeros to the shortest length of a segment.
pub(crate) fn any(mut input: Bytes<'_>) -> Files {
    let mut files = Files::default();
    files.0.insert(FileName::Superblock, input.piece().into());
    while !input.is_empty() {
        let choice = input.u8();
        let number = u64::from(choice >> 1);
        let mut bytes = input.piece().to_vec();
        let file = if choice & 1 == 0 {
            bytes.resize(SEGMENT_LEN_MIN as usize, 0);
            FileName::Segment(number)
        } else {
            FileName::Snapshot(number)
        };
        files.0.insert(file, bytes.into());
    }
    files
}
