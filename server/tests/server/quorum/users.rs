//! Members that ask who one is.

use super::asking::{Asking, create, options};
use super::fences::{flags, quorum};
use super::has_etcd;
use super::members::Members;
use crate::harness::{Server, command, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use waymaker_proto::etcd::authpb::Permission;
use waymaker_proto::etcd::authpb::permission::Type;
use waymaker_proto::etcd::etcdserverpb::auth_client::AuthClient;
use waymaker_proto::etcd::etcdserverpb::kv_client::KvClient;
use waymaker_proto::etcd::etcdserverpb::{
    AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest, AuthenticateRequest, RangeRequest,
};
use waymaker_protocol::{Acquire, ErrorCode, Request, Response};
use waymaker_server::quorum::cluster::ClusterError;
use waymaker_server::quorum::options::QuorumOptions;

/// Lets in `root`, who may do all, and `waymaker`, who may do all below `waymaker/`.
fn enable(members: &Members) {
    enable_below(members, ["waymaker/", "waymaker0"]);
}

/// The same, for a user that may do all in this range.
fn enable_below(members: &Members, range: [&str; 2]) {
    let mut client = AuthClient::new(members.channel(0));
    members.block_on(async {
        for name in ["root", "waymaker"] {
            let name = || name.to_owned();
            let user = AuthUserAddRequest { name: name(), password: "secret".to_owned() };
            client.user_add(user).await.unwrap();
            client.role_add(AuthRoleAddRequest { name: name() }).await.unwrap();
            client.user_grant_role(AuthUserGrantRoleRequest { user: name(), role: name() }).await.unwrap();
        }
        let [key, range_end] = range.map(Vec::from);
        let permission = Permission { perm_type: Type::Readwrite.into(), key, range_end };
        let grant = AuthRoleGrantPermissionRequest { name: "waymaker".to_owned(), perm: Some(permission) };
        client.role_grant_permission(grant).await.unwrap();
        client.auth_enable(AuthEnableRequest {}).await.unwrap();
    });
}

fn known(members: &Members, password: &str) -> QuorumOptions {
    let [user, password] = ["waymaker", password].map(|text| Some(text.to_owned()));
    QuorumOptions { user, password, ..options(members) }
}

fn refused(options: &QuorumOptions, key: &str) -> String {
    match Asking::with(options).txn(create(key, "v")) {
        Err(ClusterError::Refused { reason } | ClusterError::Unauthenticated { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn etcd_users_have_only_their_permissions() {
    if !has_etcd("users") {
        return;
    }
    let members = Members::start(1);
    // Whoever has a name may come in where none is asked for, and goes on once one is.
    let early = Asking::with(&known(&members, "secret"));
    assert!(early.txn(create("waymaker/early", "v")).unwrap().succeeded);
    enable(&members);
    assert!(early.txn(create("waymaker/late", "v")).unwrap().succeeded);

    let endpoint = &members.endpoints()[0];
    assert_eq!(
        refused(&known(&members, "guessed"), "waymaker/key"),
        format!(
            "{endpoint}: cannot authenticate: etcdserver: authentication failed, invalid user ID or password"
        )
    );
    let nobody = refused(&options(&members), "waymaker/key");
    assert_eq!(nobody, format!("{endpoint}: etcdserver: user name is empty"));
    let elsewhere = refused(&known(&members, "secret"), "other/key");
    assert_eq!(elsewhere, format!("{endpoint}: etcdserver: permission denied"));
    assert_eq!(early.get("waymaker/key").unwrap(), None);
}

#[test]
fn expired_etcd_tokens_are_renewed() {
    if !has_etcd("tokens") {
        return;
    }
    let mut members = Members::start_with(3, &["--auth-token-ttl=1"]);
    enable(&members);
    let asking = Asking::with(&known(&members, "secret"));
    assert!(asking.txn(create("waymaker/0", "v")).unwrap().succeeded);

    // These tokens show when the client's token has expired, which is of the same age. Using a token prolongs it, so each is used
    // once.
    let mut auth = AuthClient::new(members.channel(0));
    let mut tokens: Vec<String> = (0..60)
        .map(|_| {
            let [name, password] = ["waymaker", "secret"].map(str::to_owned);
            let asked = auth.authenticate(AuthenticateRequest { name, password });
            members.block_on(asked).unwrap().into_inner().token
        })
        .collect();
    let mut client = KvClient::new(members.channel(0));
    let status = loop {
        std::thread::sleep(Duration::from_secs(1));
        let token = tokens.pop().expect("tokens of this age expire");
        let mut range =
            tonic::Request::new(RangeRequest { key: b"waymaker/0".to_vec(), ..Default::default() });
        range.metadata_mut().insert("token", token.parse().unwrap());
        if let Err(status) = members.block_on(client.range(range)) {
            break status;
        }
    };
    assert_eq!(status.message(), "etcdserver: invalid auth token");
    let answers =
        asking.all((1..9).map(|index| create(&format!("waymaker/{index}"), "v")), crate::harness::WATCHDOG);
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.succeeded)), "{answers:?}");

    // Members forget all tokens when they end.
    (0..3).for_each(|index| members.kill(index));
    members.restart_all(&[0, 1, 2]);
    assert!(asking.txn(create("waymaker/9", "v")).unwrap().succeeded);
}

/// Starts a server that has its fences counted by these, as user `waymaker`.
fn start(members: &Members, password: &str) -> Server {
    let [endpoints, url] = flags(members);
    let mut command = command(&[&endpoints, &url, "--quorum-user", "waymaker"]);
    command.env("WAYMAKER_QUORUM_PASSWORD", password);
    Server::start_with(&mut command, None)
}

/// The server looks whether etcd answers again by a key that this user may not read.
#[test]
fn grants_resume_for_a_user_who_may_not_read_the_prefix() {
    if !has_etcd("a user with few rights") {
        return;
    }
    let mut members = Members::start(1);
    enable_below(&members, ["waymaker/default/", "waymaker/default0"]);
    let server = start(&members, "secret");
    let mut client = server.client("somebody");
    let mut ask = || client.ask(Request::Acquire(Acquire { shared: true, ..quorum(b"key") }));
    assert!(matches!(ask().response(), Response::Granted(_)));
    members.kill(0);
    assert_eq!(ask().refusal().0, ErrorCode::QuorumUnavailable);
    members.restart(0);
    wait_until("a grant", || matches!(ask().response(), Response::Granted(_)));
}

/// Returns how many passwords the member has checked.
fn authentications(members: &Members) -> u64 {
    let address = members.endpoints()[0].clone();
    let address = address.strip_prefix("http://").expect("a URL");
    let mut socket = TcpStream::connect(address).expect("the member");
    write!(socket, "GET /metrics HTTP/1.0\r\nhost: {address}\r\n\r\n").expect("a socket");
    let mut metrics = String::new();
    socket.read_to_string(&mut metrics).expect("an answer");
    let is_asked = |line: &&str| line.starts_with("grpc_server_started_total{grpc_method=\"Authenticate\"");
    let line = metrics.lines().find(is_asked).expect("etcd counts calls");
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

#[test]
fn a_wrong_password_is_not_tried_for_each_acquire() {
    if !has_etcd("a wrong password") {
        return;
    }
    let members = Members::start(1);
    enable(&members);
    let server = start(&members, "guessed");
    let mut client = server.client("somebody");
    let before = authentications(&members);
    for number in 0..200 {
        let key = format!("key-{number}");
        let refused = client.ask(Request::Acquire(quorum(key.as_bytes())));
        assert_eq!(refused.refusal().0, ErrorCode::QuorumUnavailable);
    }
    let tried = authentications(&members) - before;
    assert!(tried <= 10, "{tried} attempts for 200 acquires");
}
