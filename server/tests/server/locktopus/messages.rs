//! What a message may look like.

use super::client::{Ended, Locker, broken, server};
use serde_json::json;
use tokio_tungstenite::tungstenite::protocol::Message;

#[test]
fn member_names_and_lock_types_ignore_case() {
    let server = server(&[]);
    let [mut locker, mut other] = ["test"; 2].map(|namespace| Locker::connect(&server, namespace));
    locker.send(r#"{"Action":"lock","Resources":[{"TYPE":"Write","Path":["a"]},{"type":"R","path":["b"]}]}"#);
    locker.acquire();
    assert!(!other.is_free("r a") && other.is_free("read b") && !other.is_free("WRITE b"));
    locker.send(r#"{"ACTION":"release","resources":[{"type":"w","path":["x"]}]}"#);
    locker.expect("release", "ready");
}

#[test]
fn frames_may_be_text_or_binary_and_may_have_trailing_text() {
    let server = server(&[]);
    let mut locker = Locker::connect(&server, "test");
    let text = r#" {"action":"lock","resources":[{"type":"w","path":["a"],"x":1}],"y":{}} and more"#;
    locker.socket.send(Message::binary(text.as_bytes().to_vec())).expect("the server reads");
    locker.acquire();
    locker.send("{\"action\":\"release\"}\n{\"action\":\"release\"}");
    locker.expect("release", "ready");
    locker.expect_nothing();
}

#[test]
fn a_message_may_be_fragmented_with_a_ping_between() {
    let server = server(&[]);
    let mut locker = Locker::connect(&server, "test");
    // FIN, the opcode, the length with the mask bit, and a mask of zeros.
    let fragment =
        |first: u8, text: &str| [&[first, 0x80 | text.len() as u8, 0, 0, 0, 0], text.as_bytes()].concat();
    let mut bytes = fragment(0x01, r#"{"action":"lock","resources":"#);
    bytes.extend(fragment(0x89, "here?"));
    bytes.extend(fragment(0x80, r#"[{"type":"w","path":["a"]}]}"#));
    std::io::Write::write_all(locker.socket.get_mut(), &bytes).expect("the server reads");
    assert!(matches!(locker.read_any(), Ok(Message::Pong(bytes)) if &bytes[..] == b"here?"));
    locker.acquire();
}

#[test]
fn a_segment_may_be_any_string() {
    let server = server(&[]);
    let [mut locker, mut other] = ["test"; 2].map(|namespace| Locker::connect(&server, namespace));
    let lock =
        |path: &[&str]| json!({"action": "lock", "resources": [{"type": "w", "path": path}]}).to_string();
    locker.send(&lock(&["*", "/", "é\u{0}\"\\", "🦀"]));
    locker.acquire();
    other.send(&lock(&["*", "/", "é\u{0}\"\\", "🦀", ""]));
    let id = other.expect("lock", "enqueued");
    assert_eq!(other.release(), id);
    other.send(&lock(&["*", "/", "e\u{301}\u{0}\"\\", "🦀"]));
    other.acquire();
}

#[test]
fn duplicate_resources_are_accepted() {
    let server = server(&[]);
    let mut locker = Locker::connect(&server, "test");
    let mut set = "W test".to_owned();
    for _ in 0..20 {
        locker.take(&set);
        locker.release();
        set.push_str(", W test");
    }
}

#[test]
fn a_set_beyond_a_limit_is_rejected_with_the_limit() {
    let server = server(&[]);
    let lock = |paths: Vec<Vec<String>>| {
        let resources: Vec<_> = paths.iter().map(|path| json!({"type": "w", "path": path})).collect();
        json!({"action": "lock", "resources": resources}).to_string()
    };
    let wide = |count: usize| lock((0..count).map(|number| vec![number.to_string()]).collect());
    let deep = |count: usize| lock(vec![vec!["s".to_owned(); count]]);
    let long = |len: usize| lock(vec![vec!["s".repeat(len)]]);
    for (within, beyond, limit) in
        [(wide(1024), wide(1025), "1024"), (deep(64), deep(65), "64"), (long(1024), long(1025), "1024")]
    {
        let mut locker = Locker::connect(&server, "test");
        locker.send(&within);
        locker.acquire();
        locker.release();
        locker.send(&beyond);
        let ended = locker.ended();
        let text = ended.text.expect("it is told why");
        assert!(text.starts_with("communication error: ") && text.contains(limit), "{text}");
        assert_eq!(ended.close, Some((3000, String::new())));
    }
}

#[test]
fn a_message_is_limited_to_one_mebibyte() {
    let server = server(&[]);
    let message = |len: usize| {
        let text = r#"{"action":"lock","resources":[{"type":"w","path":["a"]}],"x":""}"#;
        text.replace(":\"\"", &format!(":\"{}\"", "x".repeat(len - text.len())))
    };
    let mut locker = Locker::connect(&server, "test");
    locker.send(&message(1 << 20));
    locker.acquire();
    locker.release();
    locker.send(&message((1 << 20) + 1));
    assert_eq!(locker.ended(), Ended { text: None, close: Some((1009, String::new())) });
}

#[test]
fn an_empty_set_or_a_resource_without_a_path_is_rejected() {
    let server = server(&[]);
    for resources in ["[]", "null", r#"[{"type":"w"}]"#, r#"[{"type":"w","path":null}]"#] {
        let mut locker = Locker::connect(&server, "test");
        locker.send(&format!(r#"{{"action":"lock","resources":{resources}}}"#));
        let ended = locker.ended();
        assert!(
            ended
                .text
                .is_some_and(|text| text.starts_with("communication error: cannot build resource lock: "))
        );
        assert_eq!(ended.close, Some((3000, String::new())));
    }
    let mut locker = Locker::connect(&server, "test");
    locker.send(r#"{"action":"lock","resources":[{"type":"rw","path":[]}]}"#);
    assert_eq!(locker.ended(), broken("cannot build resource lock: invalid lock type: rw"));
}
