//! As much of header compression as it takes to say something and to read the status of a call.

/// Adds a header in the plainest form: both as they are, and nothing to be remembered.
pub(super) fn put(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for text in [name, value] {
        put_len(block, text.len());
        block.extend_from_slice(text);
    }
}

fn put_len(block: &mut Vec<u8>, len: usize) {
    if len < 127 {
        return block.push(len as u8);
    }
    block.push(127);
    let mut rest = len - 127;
    while rest >= 128 {
        block.push(rest as u8 | 128);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// The headers of a block whose names are written out, and an unusual status. Others of the static table are left out.
pub(super) fn read(block: &[u8]) -> Vec<(String, String)> {
    let mut reader = Reader(block);
    let mut headers = Vec::new();
    while let Some(&first) = reader.0.first() {
        let prefix_len = match first {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => 5,
            _ => 4,
        };
        let index = reader.integer(prefix_len);
        // An entry of the table, or the size of the table.
        if first & 0x80 != 0 || first & 0xe0 == 0x20 {
            continue;
        }
        let name = match index {
            0 => Some(reader.string()),
            // Places of the static table, each with a value of its own.
            8..=14 => Some(":status".to_owned()),
            _ => None,
        };
        let value = reader.string();
        headers.extend(name.map(|name| (name, value)));
    }
    headers
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        let (&first, rest) = self.0.split_first().expect("a block ends with a header");
        self.0 = rest;
        first
    }

    fn integer(&mut self, prefix_len: u32) -> usize {
        let max = (1 << prefix_len) - 1;
        let mut value = usize::from(self.byte()) & max;
        if value == max {
            for shift in (0..).step_by(7) {
                let byte = self.byte();
                value += usize::from(byte & 0x7f) << shift;
                if byte < 128 {
                    break;
                }
            }
        }
        value
    }

    fn string(&mut self) -> String {
        let is_compressed = self.0.first().is_some_and(|first| first & 0x80 != 0);
        let len = self.integer(7);
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        if is_compressed { expanded(text) } else { String::from_utf8_lossy(text).into_owned() }
    }
}

/// The characters of the Huffman code that occur, by the bits that they take: codes of one length rise with the character, and
/// each length goes on where the one before it ended.
const CODE: [(u32, &str); 10] = [
    (5, "012aceiost"),
    (6, " %-./3456789=A_bdfghlmnpru"),
    (7, ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, "&*,;XZ"),
    (10, "!\"()?"),
    (11, "'+|"),
    (12, "#>"),
    (13, "\0$@[]~"),
    (14, "^}"),
    (15, "<`{"),
];

fn expanded(text: &[u8]) -> String {
    let mut bits = text.iter().flat_map(|byte| (0..8).rev().map(move |bit| u32::from(byte >> bit & 1)));
    let mut expanded = String::new();
    loop {
        let (mut code, mut code_len, mut first) = (0, 0, 0);
        let character = CODE.iter().find_map(|&(len, characters)| {
            first <<= len - code_len;
            while code_len < len {
                // What is left over is padding of ones, which is no character.
                code = code << 1 | bits.next().unwrap_or(1);
                code_len += 1;
            }
            let character = characters.chars().nth((code - first) as usize);
            first += characters.len() as u32;
            character
        });
        match character {
            Some(character) => expanded.push(character),
            None => return expanded,
        }
    }
}
