use super::*;
use crate::maximum::Maximum;
use crate::tls::{TlsOptions, TlsVersion};
use clap::CommandFactory as _;

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// Reads the options from these flags and from a file with this text.
fn read(flags: &[&str], text: &str) -> Result<Configuration, OptionsError> {
    let file = file(text);
    let path = file.path().to_str().unwrap();
    Configuration::read(["waymaker-server", "--config", path].iter().chain(flags))
}

fn options(flags: &[&str], text: &str) -> Options {
    read(flags, text).unwrap().options
}

#[test]
fn flags_override_the_file_and_the_file_overrides_defaults() {
    let options =
        options(&["--workers", "5"], "listen = \"127.0.0.1:9\"\nworkers = 3\nbusy_poll = \"50us\"\n");
    assert_eq!(options.listen, "127.0.0.1:9");
    assert_eq!(options.worker_count(), 5);
    assert_eq!(options.busy_poll, Duration::from_micros(50));
    assert_eq!(options.drain, Duration::from_secs(5));
}

#[test]
fn an_invalid_file_is_rejected_by_line_and_key() {
    for (text, message) in [
        ("lisen = \"x\"", "line 1: unknown key `lisen`; did you mean `listen`?"),
        ("\n\nzzz = 1", "line 3: unknown key `zzz`"),
        (
            "[quorum]\nendpoint = \"x:1\"",
            "line 2: unknown key `quorum.endpoint`; did you mean `quorum.endpoints`?",
        ),
        ("[qorum]\nuser = \"x\"", "line 1: unknown key `qorum`; did you mean `quorum`?"),
        ("quorum = 1", "line 1: quorum: use a table"),
        ("config = \"x\"", "line 1: unknown key `config`"),
        (
            "busy_poll = \"soon\"",
            "line 1: busy_poll: \"soon\" is not valid; use a duration such as 50us, 250ms, 5s or 1m",
        ),
        ("workers = 0", "line 1: workers: \"0\" is not valid; use a number from 1 to 1024"),
        ("workers = true", "line 1: workers: use a whole number"),
        ("pin = 1", "line 1: pin: use true or false"),
        ("listen = 7420", "line 1: listen: use a string"),
        ("http_hosts = \"a\"", "line 1: http_hosts: use an array of strings"),
        ("http_hosts = [\"a,b\"]", "line 1: http_hosts: use an array of strings"),
        ("memory_limit = \"much\"", "memory_limit: \"much\" is not valid; use bytes such as 512MiB"),
        (
            "connections_per_address = 0",
            "connections_per_address: \"0\" is not valid; use a number from 1 to 1000000",
        ),
        ("log_segment_len = 5", "log_segment_len: \"5\" is not valid; use a multiple of 4096"),
        ("http_hosts = [\"http://a\"]", "http_hosts: \"http://a\" is not valid; use a host name"),
        ("http_origins = [\"a\"]", "http_origins: \"a\" is not valid; use an origin"),
        ("tls_min_version = \"1.4\"", "tls_min_version: \"1.4\" is not valid; use `1.2` or `1.3`"),
        (
            "[locket]\ncompatibility = \"documentd\"",
            "line 2: locket.compatibility: \"documentd\" is not valid; use `documented` or `2024`; did you mean `documented`?",
        ),
        ("namespace = 1", "line 1: namespace: use an array of tables, [[namespace]]"),
        ("[namespaces]\nname = \"a\"", "line 1: unknown key `namespaces`; did you mean `namespace`?"),
        ("[[namespace]]\nkind = \"flat\"", "line 1: namespace: `name` is missing"),
        ("[[namespace]]\nname = \"a\"", "line 1: namespace: `kind` is missing"),
        (
            "[[namespace]]\nname = \"\"\nkind = \"flat\"",
            "line 2: namespace.name: the name is 0 bytes long; use 1 to 256",
        ),
        (
            "[[namespace]]\nname = \"a\"\nkind = \"tre\"",
            "line 3: namespace.kind: \"tre\" is not valid; use `flat` or `tree` or `registry` or `lazy` or `pool` or `limit`; did you mean `tree`?",
        ),
        (
            "[[namespace]]\nname = \"a\"\nkind = \"flat\"\ndefault_leas = \"1s\"",
            "line 4: unknown key `namespace.default_leas`; did you mean `default_lease`?",
        ),
        (
            "[[namespace]]\nname = \"a\"\nkind = \"flat\"\ndefault_lease = \"1ms\"",
            "line 4: namespace.default_lease: \"1ms\" is not valid; use a duration from 10ms to 1day",
        ),
        (
            "[[namespace]]\nname = \"a\"\nkind = \"flat\"\nmin_scope = \"global\"",
            "line 4: namespace.min_scope: \"global\" is not valid; use `ephemeral` or `local` or `quorum`",
        ),
        (
            "[[namespace]]\nname = \"a\"\nkind = \"flat\"\n[namespace.quotas]\nclaim = 1",
            "line 5: unknown key `namespace.quotas.claim`; did you mean `claims`?",
        ),
        (
            "[[namespace]]\nname = \"a\"\nkind = \"flat\"\n[namespace.quotas]\nclaims = -1",
            "line 5: namespace.quotas.claims: use a whole number from 0",
        ),
        (
            "[[namespace]]\nname = \"default\"\nkind = \"tree\"",
            "line 1: namespace \"default\": it is built in and has kind flat, not tree",
        ),
        (
            "[[namespace]]\nname = \"a\"\nkind = \"flat\"\n[[namespace]]\nname = \"a\"\nkind = \"pool\"",
            "line 4: namespace: \"a\" is declared in line 1 too",
        ),
        (
            "[[namespace]]\nname = \"a\"\nkind = \"registry\"\ndefault_lease = \"1s\"",
            "line 1: namespace \"a\": kind registry has no default lease; leave `default_lease` out",
        ),
        (
            "[[namespace]]\nname = \"a\"\nkind = \"lazy\"\nmin_scope = \"quorum\"",
            "line 1: namespace \"a\": kind lazy has no scope quorum; use `local` or `ephemeral`",
        ),
        (
            "[[namespace]]\nname = \"a\"\nkind = \"limit\"\nquotas = { claims = 1 }",
            "line 1: namespace \"a\": kind limit has no claims; leave `quotas` out",
        ),
        ("listen = ", "line 1: "),
        ("drain = 2020-02-02", "line 1: drain: use a string"),
    ] {
        let error = read(&[], text).unwrap_err().to_string();
        assert!(error.starts_with("--config: /") && error.contains(message), "{text}: {error}");
    }
}

#[test]
fn all_errors_of_a_file_are_reported_in_their_order() {
    let error = read(&[], "worker = 1\npin = 3\nlisten = \"127.0.0.1:0\"\nbusypoll = \"1s\"").unwrap_err();
    let OptionsError::BadFile { problems, .. } = error else { panic!("{error}") };
    assert_eq!(problems.iter().map(|problem| problem.line).collect::<Vec<_>>(), [1, 2, 4]);
}

#[test]
fn tls_options_may_be_combined_from_flags_and_file() {
    let options =
        options(&["--tls-cert", "server.pem"], "tls_key = \"server.key\"\ntls_min_version = \"1.2\"\n");
    let expected = TlsOptions {
        cert: "server.pem".into(),
        key: "server.key".into(),
        client_ca: None,
        client_crl: None,
        min_version: TlsVersion::V1_2,
    };
    assert_eq!(options.tls.resolve().unwrap(), Some(expected));
}

#[test]
fn options_of_a_cluster_need_its_members() {
    let error = options(&[], "[quorum]\nuser = \"me\"").quorum.configured().unwrap_err().to_string();
    assert_eq!(error, "--quorum-user needs --quorum-endpoints");
    assert_eq!(options(&[], "").quorum.configured().unwrap(), None);
}

#[test]
fn a_value_of_the_wrong_form_is_named_with_the_right_form() {
    for (flag, value, form) in [
        ("--workers", "x", "use a number from 1 to 1024"),
        ("--workers", "-1", "use a number from 1 to 1024"),
        ("--log-segment-len", "64KiB", "use a number of bytes without a unit, such as 67108864"),
        ("--drain", "x", "use a duration such as 50us, 250ms, 5s or 1m"),
        ("--busy-poll", "-1s", "use a duration such as 50us, 250ms, 5s or 1m"),
        ("--connections-per-address", "-1", "use a number from 1 to 1000000, or `none`"),
        ("--new-connections-per-second", "0", "use a number from 1 to 1000000, or `none`"),
        ("--locktopus-abandon-timeout", "7", "use a duration such as 50us, 250ms, 5s or 1m"),
    ] {
        let error = Configuration::read(["waymaker-server", flag, value]).unwrap_err().to_string();
        assert!(error.contains(&format!("'{value}' for '{flag}")) && error.contains(form), "{error}");
    }
}

#[test]
fn limits_per_address_may_be_combined_from_flags_and_file() {
    let text = "connections_per_address = 7\nnew_connections_per_second = \"none\"\nfailed_logins_per_second = 7\n\
                limit_loopback = true\n";
    let options = options(&["--connections-per-address", "none"], text);
    let expected = AddressLimits {
        connections: Maximum::NONE,
        new_per_second: Maximum::NONE,
        handshakes: Maximum::new(64),
        include_loopback: true,
    };
    assert_eq!(options.address_limits(), expected);
    let expected = LoginLimits { failed_per_second: Maximum::new(7), include_loopback: true };
    assert_eq!(options.login_limits(), expected);
}

#[test]
fn none_switches_the_unix_socket_off() {
    assert_eq!(options(&["--unix", "none"], "unix = \"/run/waymaker.sock\"").unix, None);
}

#[test]
fn the_flags_are_well_formed() {
    Options::command().debug_assert();
}

#[test]
fn a_printed_configuration_is_a_file_with_the_same_options() {
    let text = "listen = \"127.0.0.1:9\"\nconnections_per_address = \"none\"\nhttp_hosts = [\"a\", \"b\"]\nunix = \"a \\\" b\"\n\
                [locket]\ndurable = false\n[quorum]\nendpoints = [\"http://a:1\"]\n\
                [[namespace]]\nname = \"a \\\" b\"\nkind = \"tree\"\ndefault_lease = \"90s\"\nmin_scope = \"local\"\n\
                [namespace.quotas]\nclaims = 10000\nbytes = 0\n\
                [[namespace]]\nname = \"c\"\nkind = \"limit\"\n";
    let first = read(&["--workers", "3", "--pin"], text).unwrap();
    assert_eq!(first.options.namespaces.len(), 2);
    let second = Configuration::from_text(&first.to_string()).unwrap();
    let without_config = Options { config: None, ..first.options.clone() };
    assert_eq!(format!("{:?}", second.options), format!("{without_config:?}"));
}

#[test]
fn a_printed_configuration_names_the_source_of_each_value() {
    let printed = read(&["--workers", "3"], "pin = true\n[quorum]\nprefix = \"a/\"").unwrap().to_string();
    for line in [
        "workers = 3 # flag --workers",
        "pin = true # file",
        "prefix = \"a/\" # file",
        "drain = \"5s\" # default",
        "# tls_cert is not set # default",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
}

#[test]
fn a_printed_configuration_has_no_secrets() {
    let text = "otlp_endpoint = \"http://me:pass3@c:1\"\n[quorum]\nendpoints = [\"http://me:pass1@a:1\"]\nuser = \"me\"\npassword = \"pass2\"\n";
    let printed = read(&[], text).unwrap().to_string();
    assert!(
        !printed.contains("pass1") && !printed.contains("pass2") && !printed.contains("pass3"),
        "{printed}"
    );
    assert!(printed.contains("otlp_endpoint = \"http://***@c:1\""), "{printed}");
    assert!(printed.contains("# password is set and not shown # file"), "{printed}");
}
