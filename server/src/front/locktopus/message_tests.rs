use super::message::{Action, Answer, Message, MessageError, State};
use waymaker_protocol::limits::{ITEM_COUNT_MAX, SEGMENT_COUNT_MAX, SEGMENT_LEN_MAX};

/// Decodes a message to its resources. Each has a flag, whether it is locked for writing, and the segments of its path.
fn set(text: &str) -> Result<Vec<(bool, Vec<String>)>, MessageError> {
    let set = Message::decode(text.as_bytes())?.into_set()?;
    let segments = |segment: &[u8]| String::from_utf8(segment.to_vec()).expect("the samples are UTF-8");
    Ok(set.items().map(|item| (item.write, item.path.segments().map(segments).collect())).collect())
}

fn action(text: &str) -> Result<Action, MessageError> {
    Message::decode(text.as_bytes())?.action()
}

/// Returns the error text for a lock request with these resources.
fn refusal(resources: &str) -> String {
    set(&format!(r#"{{"action":"lock","resources":{resources}}}"#)).unwrap_err().to_string()
}

fn resource(write: bool, path: &[&str]) -> (bool, Vec<String>) {
    (write, path.iter().map(|&segment| segment.to_owned()).collect())
}

#[test]
fn a_set_has_its_types_and_paths_in_order() {
    let text = r#"{"action":"lock","resources":[{"type":"read","path":["a","b"]},{"type":"w","path":[]}]}"#;
    assert_eq!(set(text).unwrap(), [resource(false, &["a", "b"]), resource(true, &[])]);
    assert_eq!(action(text).unwrap(), Action::Lock);
    assert_eq!(action(r#"{"action":"release"}"#).unwrap(), Action::Release);
}

#[test]
fn member_names_and_lock_types_ignore_case_but_actions_do_not() {
    let text = r#"{"ACTION":"lock","Resources":[{"Type":"WRITE","pAth":["A"]},{"tYPE":"R","PATH":["a"]}]}"#;
    assert_eq!(set(text).unwrap(), [resource(true, &["A"]), resource(false, &["a"])]);
    assert_eq!(action(text).unwrap(), Action::Lock);
    assert_eq!(action(r#"{"action":"Lock"}"#).unwrap_err().to_string(), "invalid action: Lock");
}

#[test]
fn the_last_duplicate_member_counts_and_unknown_members_are_ignored() {
    let text = r#"{"action":"release","x":{"action":[1e9]},"action":"lock",
        "resources":[{"type":"r","path":["a"]}],
        "RESOURCES":[{"type":"r","Type":"w","path":["b"],"path":["c"],"y":null}]}"#;
    assert_eq!(action(text).unwrap(), Action::Lock);
    assert_eq!(set(text).unwrap(), [resource(true, &["c"])]);
}

#[test]
fn a_null_value_is_treated_as_absent() {
    assert_eq!(action(r#"{"action":"lock","action":null}"#).unwrap(), Action::Lock);
    let text = r#"{"resources":[{"type":"w","path":[null,"a"]}]}"#;
    assert_eq!(set(text).unwrap(), [resource(true, &["", "a"])]);
    for text in ["null", "{}", r#"{"action":null}"#] {
        assert_eq!(action(text).unwrap_err().to_string(), "invalid action: ", "{text}");
    }
    assert_eq!(refusal("[null]"), "cannot build resource lock: invalid lock type: ");
    assert!(refusal("null").contains("no resources"));
}

#[test]
fn text_after_the_json_value_is_ignored() {
    for text in ["  {\"action\":\"release\"}\n", "{\"action\":\"release\"} }{", "{\"action\":\"release\"}x"] {
        assert_eq!(action(text).unwrap(), Action::Release, "{text}");
    }
}

#[test]
fn a_truncated_message_is_an_unexpected_eof() {
    let whole = r#"{"action":"lock","resources":[{"type":"r","path":["a"]}]}"#;
    for end in 0..whole.len() {
        let error = Message::decode(&whole.as_bytes()[..end]).unwrap_err();
        assert_eq!(error.to_string(), "unexpected EOF", "{}", &whole[..end]);
    }
    assert_eq!(Message::decode(b" \n ").unwrap_err().to_string(), "unexpected EOF");
}

#[test]
fn invalid_json_and_wrong_types_are_rejected() {
    for text in [
        "x",
        "[]",
        "5",
        "\"lock\"",
        "{action:\"lock\"}",
        r#"{"action":5}"#,
        r#"{"action":["lock"]}"#,
        r#"{"resources":{}}"#,
        r#"{"resources":["a"]}"#,
        r#"{"resources":[{"type":1}]}"#,
        r#"{"resources":[{"path":"a"}]}"#,
        r#"{"resources":[{"path":[1]}]}"#,
        r#"{"resources":[{"path":[["a"]]}]}"#,
    ] {
        assert!(matches!(Message::decode(text.as_bytes()), Err(MessageError::Json(_))), "{text}");
    }
    let deep = format!("{}{}", "{\"x\":".repeat(100_000), "}".repeat(100_000));
    // Only termination matters here, not the result.
    let _ = Message::decode(deep.as_bytes());
}

#[test]
fn segments_may_contain_any_bytes() {
    let set = |text: &[u8]| Message::decode(text).unwrap().into_set().unwrap();
    let in_a_binary_frame = set(b"{\"resources\":[{\"type\":\"w\",\"path\":[\"\xff\"]}]}");
    let path = in_a_binary_frame.items().next().unwrap().path;
    assert_eq!(path.segments().collect::<Vec<_>>(), [b"\xff"]);
    let [high, low] = ["d800", "dc00"].map(|surrogate| {
        set(format!("{{\"resources\":[{{\"type\":\"w\",\"path\":[\"\\u{surrogate}\"]}}]}}").as_bytes())
    });
    assert_ne!(high, low);
    let escaped = set(br#"{"resources":[{"type":"w","path":["\u0061\n"]}]}"#);
    assert_eq!(escaped, set(b"{\"resources\":[{\"type\":\"w\",\"path\":[\"a\\n\"]}]}"));
}

#[test]
fn an_invalid_set_is_rejected() {
    assert!(refusal("[]").contains("no resources"));
    assert!(refusal(r#"[{"type":"w"}]"#).contains("no path"));
    assert!(refusal(r#"[{"type":"w","path":null}]"#).contains("no path"));
    let text = refusal(r#"[{"type":"r","path":["a"]},{"type":"rw","path":["a"]}]"#);
    assert_eq!(text, "cannot build resource lock: invalid lock type: rw");
}

#[test]
fn a_message_beyond_a_limit_is_rejected_with_the_limit() {
    let list = |item: &str, count| format!("[{}]", vec![item; count].join(","));
    let resources = |count| list(r#"{"type":"r","path":["a"]}"#, count);
    let segments = |count| format!(r#"[{{"type":"r","path":{}}}]"#, list("\"s\"", count));
    let long = |len| format!(r#"[{{"type":"r","path":["{}"]}}]"#, "s".repeat(len));
    for (within, beyond, limit) in [
        (resources(ITEM_COUNT_MAX), resources(ITEM_COUNT_MAX + 1), "1024"),
        (segments(SEGMENT_COUNT_MAX), segments(SEGMENT_COUNT_MAX + 1), "64"),
        (long(SEGMENT_LEN_MAX), long(SEGMENT_LEN_MAX + 1), "1024"),
    ] {
        assert!(set(&format!(r#"{{"resources":{within}}}"#)).is_ok());
        assert!(refusal(&beyond).contains(limit), "{}", refusal(&beyond));
    }
    assert!(refusal(&resources(40_000)).contains("1024"), "however many there are");
}

#[test]
fn an_answer_is_a_line_of_json() {
    let answer = |id, action, state| Answer { id, action, state }.encode();
    assert_eq!(
        answer(1, Action::Lock, State::Enqueued),
        "{\"id\":\"1\",\"action\":\"lock\",\"state\":\"enqueued\"}\n"
    );
    assert_eq!(
        answer(u64::MAX, Action::Lock, State::Acquired),
        "{\"id\":\"18446744073709551615\",\"action\":\"lock\",\"state\":\"acquired\"}\n"
    );
    assert_eq!(
        answer(7, Action::Release, State::Ready),
        "{\"id\":\"7\",\"action\":\"release\",\"state\":\"ready\"}\n"
    );
}
