//! Against a real etcd.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::program::{Server, assert_death_is_noticed, read_json, run, wait_until};
use crate::skip::skip;

/// Reason for skipping a test.
const NOT_INSTALLED: &str = "etcd is not installed; install it with: waymaker-loadgen obtain etcd";

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address")
}

/// Starts a cluster of one, and returns its data directory too. Returns `None` and reports the test as skipped if
/// etcd is not installed.
fn etcd(test: &str) -> Option<(Server, TempDir)> {
    let folder = tempfile::tempdir().expect("a folder");
    let address = free_address();
    let [client, peer] = [address, free_address()].map(|address| format!("http://{address}"));
    let child = Command::new("etcd")
        .args(["--log-level", "error", "--logger", "zap", "--data-dir"])
        .arg(folder.path().join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        skip(test, NOT_INSTALLED);
        return None;
    };
    let server = Server::started(child, address.to_string());
    wait_until("etcd listens", || TcpStream::connect(address).is_ok());
    Some((server, folder))
}

#[test]
fn pairs_of_lock_and_unlock() {
    let Some((server, folder)) = etcd("etcd::pairs_of_lock_and_unlock") else { return };
    let target = format!("etcd://{}", server.address);
    let path = folder.path().join("result.json");
    let json = path.to_str().expect("text");
    let brief = ["--duration", "500ms", "--warmup", "20ms", "--target", &target, "--json", json];
    for shape in [
        &["--connections", "1"][..],
        &["--connections", "5", "--depth", "3", "--threads", "2", "--keys", "15"],
        &["--connections", "2", "--scope", "local", "--key-size", "33", "--keys", "distinct"],
        &["--connections", "3", "--depth", "2", "--workload", "put"],
    ] {
        let ended = run(&[&brief[..], shape].concat());
        ended.assert_success();
        assert!(ended.stdout.contains("all checked, none wrong"), "{ended:#?}");
        let result = &read_json(&path)["result"];
        // Lock and Unlock are one request each, with one latency each.
        assert!(result["latency"]["count"].as_u64() > Some(1), "{result}");
        assert!(result["requests_per_second"].as_f64() > Some(1.0), "{result}");
        assert!(result["cpu"]["server"].is_f64(), "{result}");
    }
}

#[test]
fn reports_a_server_that_dies() {
    let Some((server, _folder)) = etcd("etcd::reports_a_server_that_dies") else { return };
    let target = format!("etcd://{}", server.address);
    assert_death_is_noticed(server, &target, &[]);
}

#[test]
fn recognises_another_protocol() {
    let server = Server::echo(&[]);
    let ended = run(&["--target", &format!("etcd://{}", server.address)]);
    ended.assert_refused("does not speak the protocol of etcd");
}
