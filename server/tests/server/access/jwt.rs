//! JSON web tokens of an identity provider, from the key set in a file to the rights of a connection.

use super::fronts::by;
use super::policy::assert_ended;
use super::{Office, hello_with, unix_s};
use crate::harness::{Server, wait_until};
use base64ct::{Base64UrlUnpadded, Encoding};
use rcgen::{KeyPair, PKCS_ED25519, SigningKey};
use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Channel;
use waymaker_proto::v1;
use waymaker_proto::v1::lock_service_client::LockServiceClient;
use waymaker_protocol::{Acquire, ErrorCode, Inspect, KeepAlive, NamespaceKind, Request, Response};

/// Seconds for which a token is accepted after it has expired: clocks differ.
const LEEWAY_S: u64 = 60;

/// Alice may acquire, and the members of a group may inspect.
const RULES: &str = "
    [[rule]]
    identity = \"alice\"
    allow = [\"acquire\"]
    [[rule]]
    group = \"readers\"
    allow = [\"inspect\"]
";

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    Base64UrlUnpadded::encode_string(bytes.as_ref())
}

/// An identity provider.
struct Provider {
    key: KeyPair,
}

impl Provider {
    fn new() -> Self {
        Self { key: KeyPair::generate_for(&PKCS_ED25519).expect("a key") }
    }

    /// Returns its key set.
    fn jwks(&self) -> String {
        let x = encoded(self.key.public_key_raw());
        json!({ "keys": [{ "kty": "OKP", "kid": "key", "crv": "Ed25519", "x": x }] }).to_string()
    }

    /// Returns a token for Alice with these changes to its claims.
    fn token(&self, changes: &Value) -> String {
        let mut claims = json!({ "iss": "https://login.example", "aud": "waymaker", "sub": "alice", "exp": unix_s() + 600 });
        for (claim, value) in changes.as_object().expect("claims") {
            claims[claim] = value.clone();
        }
        let header = json!({ "alg": "EdDSA", "kid": "key" });
        let signed = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = self.key.sign(signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", encoded(signature))
    }

    /// Returns an office that accepts its tokens.
    fn office(&self) -> Office {
        let office = Office::new("");
        let jwks = self.publish(&office);
        office.set_rules(&format!(
            "[jwt]\njwks = {jwks:?}\nissuer = \"https://login.example\"\naudience = \"waymaker\"\n\
             groups_claim = \"groups\"\n{RULES}"
        ));
        office
    }

    /// Writes its key set to the file that the server reads.
    fn publish(&self, office: &Office) -> String {
        office.write("keys.json", &self.jwks()).to_str().expect("a path of text").to_owned()
    }
}

/// Returns how a server answers a HELLO with these credentials: `None` if it accepts them.
fn refusal(server: &Server, token: &str) -> Option<(ErrorCode, String)> {
    let mut client = server.stranger();
    let answer = client.ask(Request::Hello(hello_with(NamespaceKind::Flat, token)));
    match answer.response() {
        Response::Welcome(_) => None,
        _ => Some((answer.refusal().0, answer.refusal().1.to_owned())),
    }
}

/// Returns how gRPC answers a call with these credentials.
async fn grpc_code(server: &Server, token: &str) -> Code {
    let url = format!("http://{}", server.address("grpc"));
    let channel = Channel::from_shared(url).expect("a url").connect().await.expect("the server accepts");
    let key = v1::LockKey { key: "key".to_owned(), shared: true };
    let acquire = v1::AcquireKeysRequest { keys: vec![key], ..Default::default() };
    let answer = LockServiceClient::new(channel).try_acquire(by(token, acquire)).await;
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn a_json_web_token_is_accepted_if_its_signature_issuer_audience_and_time_are_right() {
    let (provider, other) = (Provider::new(), Provider::new());
    let office = provider.office();
    let alice = office.token("alice");
    let server = office.server(&["--grpc-listen", "127.0.0.1:0"]);
    let mut changed = provider.token(&json!({}));
    changed.replace_range(..1, "f");
    for (what, token, is_accepted) in [
        ("a token of the provider", provider.token(&json!({})), true),
        ("a token that expired within the leeway", provider.token(&json!({ "exp": unix_s() - 30 })), true),
        ("an expired token", provider.token(&json!({ "exp": unix_s() - LEEWAY_S - 1 })), false),
        ("a token of the future", provider.token(&json!({ "nbf": unix_s() + 2 * LEEWAY_S })), false),
        ("a token for another audience", provider.token(&json!({ "aud": "other" })), false),
        ("a token of another issuer", provider.token(&json!({ "iss": "https://other.example" })), false),
        ("a token that another key has signed", other.token(&json!({})), false),
        ("a token with a changed header", changed, false),
        ("a token of the server", alice, true),
    ] {
        let refused = Some((ErrorCode::Unauthorized, "credentials".to_owned()));
        assert_eq!(refusal(&server, &token), if is_accepted { None } else { refused }, "{what}");
        let expected = if is_accepted { Code::Ok } else { Code::Unauthenticated };
        assert_eq!(grpc_code(&server, &token).await, expected, "{what}");
    }
}

#[test]
fn the_groups_of_a_json_web_token_give_rights() {
    let provider = Provider::new();
    let office = provider.office();
    let server = office.server(&[]);
    let acquire = Request::Acquire(Acquire { key: b"key", ..Acquire::default() });
    let inspect = Request::Inspect(Inspect { key: b"key" });
    let refused = Some(ErrorCode::Unauthorized);
    for (claims, acquires, inspects) in [
        (json!({}), None, refused),
        (json!({ "groups": ["writers"] }), None, refused),
        (json!({ "sub": "bob", "groups": ["writers", "readers"] }), refused, None),
        (json!({ "groups": "readers" }), None, None),
    ] {
        let mut client = server.client_with(NamespaceKind::Flat, &provider.token(&claims));
        assert_eq!(
            (client.code_of(acquire) == refused).then_some(ErrorCode::Unauthorized),
            acquires,
            "{claims}"
        );
        assert_eq!(client.code_of(inspect), inspects, "{claims}");
    }
    let without_rights = provider.token(&json!({ "sub": "bob" }));
    let refused = Some((ErrorCode::Unauthorized, "namespace".to_owned()));
    assert_eq!(refusal(&server, &without_rights), refused);
}

#[test]
fn a_connection_ends_when_its_json_web_token_expires() {
    let provider = Provider::new();
    let office = provider.office();
    let server = office.server(&[]);
    let mut other = server.client_with(NamespaceKind::Flat, &provider.token(&json!({})));
    let brief = provider.token(&json!({ "exp": unix_s() - LEEWAY_S + 2 }));
    let mut expiring = server.client_with(NamespaceKind::Flat, &brief);
    assert_ended(&mut expiring);
    assert_eq!(other.code_of(Request::KeepAlive(KeepAlive)), None);
    assert_eq!(refusal(&server, &brief), Some((ErrorCode::Unauthorized, "credentials".to_owned())));
}

#[tokio::test]
async fn after_a_change_of_the_key_set_tokens_of_the_old_key_are_refused_and_their_connections_end() {
    let (old, new) = (Provider::new(), Provider::new());
    let office = old.office();
    let server = office.server(&["--grpc-listen", "127.0.0.1:0"]);
    let (old_token, new_token) = (old.token(&json!({})), new.token(&json!({})));
    assert_eq!((refusal(&server, &old_token), refusal(&server, &new_token).is_some()), (None, true));
    let mut old_client = server.client_with(NamespaceKind::Flat, &old_token);
    // The server finds the change by itself.
    new.publish(&office);
    assert_ended(&mut old_client);
    wait_until("the server knows the new key", || refusal(&server, &new_token).is_none());
    assert_eq!(refusal(&server, &old_token), Some((ErrorCode::Unauthorized, "credentials".to_owned())));
    assert_eq!(grpc_code(&server, &old_token).await, Code::Unauthenticated);
    assert_eq!(grpc_code(&server, &new_token).await, Code::Ok);
    // A server reads its files once again after it has started, also without a change. So only another change shows that it watches the file.
    old.publish(&office);
    wait_until("the server knows the old key again", || refusal(&server, &old_token).is_none());
}

#[test]
fn connections_of_json_web_tokens_end_when_the_access_file_accepts_none() {
    let provider = Provider::new();
    let office = provider.office();
    let alice = office.token("alice");
    let server = office.server(&[]);
    let [mut by_jwt, mut by_token] =
        [provider.token(&json!({})), alice].map(|token| server.client_with(NamespaceKind::Flat, &token));
    office.set_rules(RULES);
    server.signal("HUP");
    assert_ended(&mut by_jwt);
    assert_eq!(by_token.code_of(Request::KeepAlive(KeepAlive)), None);
}

#[test]
fn a_key_set_that_cannot_be_used_keeps_the_previous_one() {
    let provider = Provider::new();
    let office = provider.office();
    let server = office.start(&[], Server::start_logged);
    let token = provider.token(&json!({}));
    let mut client = server.client_with(NamespaceKind::Flat, &token);
    office.write("keys.json", "{ \"keys\": [] }");
    server.signal("HUP");
    server.log_places(&[&["audit", "reload result=refused", "jwt.jwks", "the key set has no key"]]);
    assert_eq!(refusal(&server, &token), None);
    assert_eq!(client.code_of(Request::KeepAlive(KeepAlive)), None);
}
