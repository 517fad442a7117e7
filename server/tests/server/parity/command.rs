//! The commands of a spec file, as the front ends are given them.

use super::words::{Words, key_of, millis, nanos, signed_millis};

/// One command.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) lane: Lane,
    pub(super) kind: Kind,
    pub(super) ask: Ask,
}

/// Who asks, and in which of the namespaces of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) owner: String,
    pub(super) namespace: u32,
}

/// The rules of a namespace. In the engine they are with the request, in a server with the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Flat,
    Tree,
    Pool,
    Registry,
    Lazy,
    Limit,
    /// Nothing in the file says which, or it says more than one.
    Unclear,
}

/// What is asked.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Acquire(Acquire),
    OnClaim {
        target: String,
        key: Option<String>,
        ask: OnClaim,
    },
    Inspect(String),
    Verify {
        place: String,
        fence: u64,
    },
    List {
        prefix: Option<String>,
        waiting: bool,
    },
    Holds,
    Watch(String),
    Unwatch(String),
    Freeze {
        prefix: String,
        thaw: bool,
    },
    Describe(String),
    SetCapacity {
        pool: String,
        capacity: u64,
        by_time: bool,
    },
    TreeStatistics,
    Register {
        register: Register,
        heartbeat: bool,
    },
    Unregister {
        key: String,
        owner: String,
    },
    LookUp(String),
    Registrations(Option<String>),
    Throttle {
        buckets: Vec<Bucket>,
        refund: bool,
    },
    Close {
        session_ended: bool,
    },
    Advance(u32),
    Counters,
    /// It only looks at what no front end shows, or says what does not matter to one.
    Nothing,
    /// It is about the inside of the engine, or about what befalls a whole server.
    Internal(String),
}

/// What is asked about one claim.
#[derive(Clone, Debug)]
pub(super) enum OnClaim {
    Release { own: bool },
    Extend { lease_ms: u32, own: bool },
    Status,
    Cancel,
    ForceRelease { reason: String },
}

impl OnClaim {
    /// Whether the claim must be of the lane that asks.
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Self::Release { own: true } | Self::Extend { own: true, .. })
    }
}

/// What every acquire may say.
#[derive(Clone, Debug)]
pub(super) struct Acquire {
    pub(super) name: String,
    pub(super) thing: Thing,
    pub(super) lease_ms: u32,
    pub(super) wait_ms: u32,
    pub(super) session: bool,
    pub(super) queued: bool,
    pub(super) release_after_ms: Option<u32>,
    pub(super) priority: u32,
    pub(super) scope: Option<u8>,
    pub(super) request_id: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) metadata: Option<String>,
}

/// What is acquired. Of each key and path it is said whether it is shared.
#[derive(Clone, Debug)]
pub(super) enum Thing {
    Key { key: String, shared: bool },
    Keys(Vec<(String, bool)>),
    Paths(Vec<(String, bool)>),
    Permits { pool: String, permits: u64, capacity: Option<u64>, by_time: bool, at: u64 },
}

#[derive(Clone, Debug)]
pub(super) struct Register {
    pub(super) key: String,
    pub(super) owner: String,
    pub(super) value: String,
    pub(super) type_name: String,
    pub(super) lease_ms: i64,
    pub(super) ephemeral: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub(super) name: String,
    pub(super) rate: u32,
    pub(super) period_ns: u64,
    pub(super) burst: u32,
    pub(super) cost: u32,
}

impl Ask {
    /// Reads what stands behind the lane of a command.
    pub(super) fn read(verb: &str, mut words: Words<'_>) -> Self {
        let internal = || Self::Internal(verb.to_owned());
        let ask = match verb {
            "acquire" | "acquire_keys" | "acquire_set" | "acquire_permits" => {
                Self::Acquire(Acquire::read(verb, &mut words))
            }
            "release" | "extend" | "status" | "cancel" | "force_release" => on_claim(verb, &mut words),
            "inspect" => Self::Inspect(place(&mut words)),
            "verify" => {
                let fence = words.long_number("fence").expect("fence is missing");
                Self::Verify { place: place(&mut words), fence }
            }
            "list" => {
                words.value("count");
                words.value("bytes");
                words.flag("paths");
                let waiting = words.flag("waiting");
                Self::List { prefix: words.next_if_any().map(text), waiting }
            }
            "watch" => Self::Watch(text(words.next("the key"))),
            "unwatch" => Self::Unwatch(text(words.next("the key"))),
            "freeze" | "thaw" => {
                Self::Freeze { prefix: text(words.next("the prefix")), thaw: verb == "thaw" }
            }
            "describe" => Self::Describe(text(words.next("the pool"))),
            "set_capacity" => Self::SetCapacity {
                pool: text(words.next("the pool")),
                capacity: words.long_number("capacity").expect("capacity is missing"),
                by_time: words.flag("by_time"),
            },
            "tree_statistics" => Self::TreeStatistics,
            "register" | "heartbeat" => match Register::read(&mut words) {
                Some(register) => Self::Register { register, heartbeat: verb == "heartbeat" },
                // The engine's own clock has no instants that a client could name.
                None => return internal(),
            },
            "unregister" => {
                // That is in the kind of the namespace.
                words.flag("lazy");
                let owner = words.value("owner").unwrap_or_default().to_owned();
                Self::Unregister { owner, key: text(words.next("the key")) }
            }
            "look_up" => Self::LookUp(text(words.next("the key"))),
            "registrations" => {
                words.value("count");
                words.value("bytes");
                Self::Registrations(words.value("type").map(str::to_owned))
            }
            "throttle" | "throttle_all" if words.value("after").is_some() => return internal(),
            "throttle" => {
                let refund = words.flag("refund");
                Self::Throttle { buckets: vec![Bucket::read(&mut words)], refund }
            }
            "throttle_all" => {
                let texts: Vec<String> = words.list().iter().map(|item| item.join(" ")).collect();
                let buckets = texts.iter().map(|text| Bucket::read(&mut Words::new(text))).collect();
                Self::Throttle { buckets, refund: words.flag("refund") }
            }
            "close" => Self::Close { session_ended: words.flag("session_ended") },
            "holds" => {
                words.value("count");
                words.value("bytes");
                words.flag("paths");
                Self::Holds
            }
            _ => return internal(),
        };
        words.finish();
        ask
    }
}

fn text(word: &str) -> String {
    String::from_utf8(key_of(word)).expect("files are text")
}

fn place(words: &mut Words<'_>) -> String {
    match words.value("path") {
        Some(path) => path.to_owned(),
        None => text(words.next("the key")),
    }
}

fn on_claim(verb: &str, words: &mut Words<'_>) -> Ask {
    let target = words.next("the claim").to_owned();
    let key = words.value("key").map(text);
    let ask = match verb {
        "release" => OnClaim::Release { own: words.flag("own") },
        "extend" => {
            let lease_ms = words.millis("lease").expect("lease is missing");
            OnClaim::Extend { lease_ms, own: words.flag("own") }
        }
        "cancel" => OnClaim::Cancel,
        "status" => OnClaim::Status,
        _ => OnClaim::ForceRelease { reason: words.value("reason").expect("reason is missing").to_owned() },
    };
    Ask::OnClaim { target, key, ask }
}

impl Acquire {
    fn read(verb: &str, words: &mut Words<'_>) -> Self {
        let word = words.next("what to acquire");
        let is_list = matches!(verb, "acquire_keys" | "acquire_set");
        let name = if !is_list && words.flag("as") { words.next("a name") } else { word }.to_owned();
        let thing = match verb {
            "acquire" => Thing::Key { key: text(word), shared: words.flag("shared") },
            "acquire_keys" => Thing::Keys(items(words).map(|(key, shared)| (text(key), shared)).collect()),
            "acquire_set" => {
                Thing::Paths(items(words).map(|(path, shared)| (path.to_owned(), shared)).collect())
            }
            _ => Thing::Permits {
                pool: text(word),
                permits: words.long_number("permits").unwrap_or(1),
                capacity: words.long_number("capacity"),
                by_time: words.flag("by_time"),
                at: words.long_number("at").unwrap_or(0),
            },
        };
        let owned = |value: Option<&str>| value.map(str::to_owned);
        Self {
            name,
            thing,
            lease_ms: words.millis("lease").unwrap_or(0),
            wait_ms: words.millis("wait").unwrap_or(0),
            session: words.flag("session"),
            queued: words.flag("queued"),
            release_after_ms: words.millis("release_after"),
            priority: words.number("priority").unwrap_or(0),
            scope: words.value("scope").map(|scope| if scope == "local" { 2 } else { 3 }),
            request_id: owned(words.value("request")),
            owner: owned(words.value("owner")),
            metadata: owned(words.value("metadata")),
        }
    }
}

/// The items of a list, and whether each only reads.
fn items<'a>(words: &mut Words<'a>) -> impl Iterator<Item = (&'a str, bool)> + use<'a> {
    words.list().into_iter().map(|item| (item[0], item.get(1) == Some(&"r")))
}

impl Register {
    fn read(words: &mut Words<'_>) -> Option<Self> {
        let key = text(words.next("the key"));
        let lease_ms = signed_millis(words.value("lease")?);
        let mut value = |name| words.value(name).unwrap_or_default().to_owned();
        let (owner, value, type_name) = (value("owner"), value("value"), value("type"));
        words.flag("lazy");
        Some(Self { key, owner, value, type_name, lease_ms, ephemeral: words.flag("ephemeral") })
    }
}

impl Bucket {
    fn read(words: &mut Words<'_>) -> Self {
        let name = text(words.next("the bucket"));
        let mut number = |what| words.number(what).unwrap_or_else(|| panic!("{what} is missing"));
        let (rate, burst, cost) = (number("rate"), number("burst"), number("cost"));
        let period_ns = nanos(words.value("per").expect("per is missing"));
        Self { name, rate, period_ns, burst, cost }
    }
}

/// The length of an `advance`; none after which the sockets were not read.
pub(super) fn advance(mut words: Words<'_>) -> Option<u32> {
    if words.flag("stalled") {
        return None;
    }
    let length_ms = millis(words.next("a time"));
    words.finish();
    Some(length_ms)
}

/// The segments of a path.
pub(super) fn segments(path: &str) -> Vec<String> {
    if path == "/" { Vec::new() } else { path.split('/').map(text).collect() }
}
