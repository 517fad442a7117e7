//! The words of a command, and what they stand for.

/// The words of a command, taken out one after the other.
pub(super) struct Words<'a> {
    words: Vec<&'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn new(command: &'a str) -> Self {
        Self { words: command.split_whitespace().collect() }
    }

    pub(super) fn next(&mut self, what: &str) -> &'a str {
        assert!(!self.words.is_empty(), "{what} is missing");
        self.words.remove(0)
    }

    pub(super) fn next_if_any(&mut self) -> Option<&'a str> {
        (!self.words.is_empty()).then(|| self.words.remove(0))
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        let found = self.words.iter().position(|word| *word == name);
        found.map(|index| self.words.remove(index)).is_some()
    }

    pub(super) fn value(&mut self, name: &str) -> Option<&'a str> {
        let value = |word: &&'a str| word.strip_prefix(name)?.strip_prefix('=');
        let index = self.words.iter().position(|word| value(word).is_some())?;
        value(&self.words.remove(index))
    }

    pub(super) fn number(&mut self, name: &str) -> Option<u32> {
        self.long_number(name)
            .map(|number| u32::try_from(number).unwrap_or_else(|_| panic!("{name}={number}")))
    }

    pub(super) fn long_number(&mut self, name: &str) -> Option<u64> {
        self.value(name).map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
    }

    pub(super) fn millis(&mut self, name: &str) -> Option<u32> {
        self.value(name).map(millis)
    }

    /// What stands behind a colon, separated by commas.
    pub(super) fn list(&mut self) -> Vec<Vec<&'a str>> {
        let colon = self.words.iter().position(|word| *word == ":").expect("a list begins with a colon");
        let mut items = vec![Vec::new()];
        for word in self.words.drain(colon..).skip(1) {
            let (word, ends) = word.strip_suffix(',').map_or((word, false), |word| (word, true));
            items.last_mut().expect("there is one").push(word);
            if ends {
                items.push(Vec::new());
            }
        }
        items.retain(|item| !item.is_empty());
        items
    }

    pub(super) fn finish(self) {
        assert!(self.words.is_empty(), "too many words: {:?}", self.words);
    }
}

pub(super) fn millis(text: &str) -> u32 {
    if text == "forever" {
        return u32::MAX;
    }
    u32::try_from(nanos(text) / 1_000_000).unwrap_or_else(|_| panic!("{text} is too long"))
}

/// Below zero with a minus in front.
pub(super) fn signed_millis(text: &str) -> i64 {
    let (text, sign) = text.strip_prefix('-').map_or((text, 1), |text| (text, -1));
    sign * i64::try_from(nanos(text) / 1_000_000).unwrap_or_else(|_| panic!("{text} is too long"))
}

pub(super) fn nanos(text: &str) -> u64 {
    let units = [("ns", 1), ("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000), ("h", 3_600_000_000_000)];
    let value = |(unit, nanos): (&str, u64)| Some(text.strip_suffix(unit)?.parse::<u64>().ok()? * nanos);
    let value = units.into_iter().find_map(value);
    value.unwrap_or_else(|| panic!("{text} is not a time: 5ns, 5us, 5ms, 5s, 5h, forever"))
}

pub(super) fn key_of(word: &str) -> Vec<u8> {
    word.replace("\\0", "\0").replace("\"\"", "").into_bytes()
}

/// The shard of a key: what stands behind its `@`.
pub(super) fn shard_of(key: &str) -> u16 {
    key.split_once('@').map_or(0, |(_, shard)| shard.parse().unwrap_or_else(|_| panic!("{key}: no shard")))
}

/// The bytes of a path: `/` is the whole namespace, `""` an empty segment.
pub(super) fn path_of(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if word != "/" {
        for segment in word.split('/').map(key_of) {
            bytes.extend((segment.len() as u16).to_le_bytes());
            bytes.extend(segment);
        }
    }
    bytes
}

/// A path as it is written.
pub(super) fn shown_path(mut bytes: &[u8]) -> String {
    let mut segments = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk() {
        let (segment, rest) = rest.split_at(usize::from(u16::from_le_bytes(*len)));
        segments.push(if segment.is_empty() { "\"\"".to_owned() } else { shown(segment) });
        bytes = rest;
    }
    if segments.is_empty() { "/".to_owned() } else { segments.join("/") }
}

pub(super) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\\0")
}

pub(super) fn shown_millis(millis: u64) -> String {
    match millis {
        4_294_967_295 => "forever".to_owned(),
        _ if millis.is_multiple_of(3_600_000) && millis > 0 => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(1000) => format!("{}s", millis / 1000),
        _ => format!("{millis}ms"),
    }
}

pub(super) fn shown_signed_millis(millis: i64) -> String {
    let sign = if millis < 0 { "-" } else { "" };
    format!("{sign}{}", shown_millis(millis.unsigned_abs()))
}

pub(super) fn shown_nanos(nanos: u64) -> String {
    match nanos {
        u64::MAX => "never".to_owned(),
        _ if nanos.is_multiple_of(1_000_000) => shown_millis(nanos / 1_000_000),
        _ if nanos.is_multiple_of(1000) => format!("{}us", nanos / 1000),
        _ => format!("{nanos}ns"),
    }
}

pub(super) fn mode(shared: bool) -> &'static str {
    if shared { "shared" } else { "exclusive" }
}
