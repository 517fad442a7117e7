use std::time::Instant;

use base64ct::{Base64UrlUnpadded, Encoding};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
    RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use serde_json::json;

use super::*;
use crate::limits::{JWK_COUNT_MAX, JWKS_LEN_MAX};

/// Keys for tests only. `ring` cannot generate RSA keys.
const RSA_2048: &[u8] = include_bytes!("../../tests/keys/rsa2048.pk8");
const RSA_4096: &[u8] = include_bytes!("../../tests/keys/rsa4096.pk8");

const ISSUER: &str = "https://id.example";
const AUDIENCE: &str = "waymaker";
const NOW: u64 = 1_800_000_000;

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    Base64UrlUnpadded::encode_string(bytes.as_ref())
}

/// A key of an identity provider.
enum Key {
    Rsa(Box<RsaKeyPair>),
    Curve(EcdsaKeyPair, &'static str),
    Ed(Ed25519KeyPair),
}

impl Key {
    fn rsa(pkcs8: &[u8]) -> Self {
        Self::Rsa(Box::new(RsaKeyPair::from_pkcs8(pkcs8).expect("a key")))
    }

    fn curve(algorithm: &'static EcdsaSigningAlgorithm, name: &'static str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        Self::Curve(EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key"), name)
    }

    fn p256() -> Self {
        Self::curve(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256")
    }

    fn p384() -> Self {
        Self::curve(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384")
    }

    fn ed() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Self::Ed(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key"))
    }

    /// Returns the public key as a member of a JWKS.
    fn jwk(&self, id: &str) -> Value {
        match self {
            Self::Rsa(key) => {
                let PublicKeyComponents::<Vec<u8>> { n, e } = key.public().into();
                json!({ "kty": "RSA", "kid": id, "n": encoded(n), "e": encoded(e) })
            }
            Self::Curve(key, curve) => {
                let point = &key.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({ "kty": "EC", "kid": id, "crv": curve, "x": encoded(x), "y": encoded(y) })
            }
            Self::Ed(key) => {
                json!({ "kty": "OKP", "kid": id, "crv": "Ed25519", "x": encoded(key.public_key()) })
            }
        }
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let encoding: &dyn RsaEncoding = match algorithm {
                    "RS384" => &RSA_PKCS1_SHA384,
                    "RS512" => &RSA_PKCS1_SHA512,
                    "PS256" => &RSA_PSS_SHA256,
                    "PS384" => &RSA_PSS_SHA384,
                    "PS512" => &RSA_PSS_SHA512,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(encoding, &random, message, &mut signature).expect("a signature");
                signature
            }
            Self::Curve(key, _) => key.sign(&random, message).expect("a signature").as_ref().to_vec(),
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
        }
    }

    /// Returns a signed token with this header and these claims.
    fn token(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = self.sign(header["alg"].as_str().unwrap_or_default(), message.as_bytes());
        format!("{message}.{}", encoded(signature))
    }
}

/// Returns valid claims with these changes; a change to null removes a claim.
fn claims(changes: Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "billing", "exp": NOW + 300, "iat": NOW, "groups": ["writers", "ops"],
    });
    let (Value::Object(all), Value::Object(changes)) = (&mut claims, changes) else { panic!("objects") };
    all.extend(changes);
    all.retain(|_, value| !value.is_null());
    claims
}

fn verifier(keys: &[Value]) -> JwtVerifier {
    let jwks = json!({ "keys": keys }).to_string();
    JwtVerifier::from_jwks(jwks.as_bytes(), ISSUER, AUDIENCE, "sub", Some("groups")).expect("a key set")
}

/// Verifies a token of a new key with these changes to its claims.
fn verify_with(changes: Value) -> Result<Identity, JwtRefusal> {
    let key = Key::p256();
    let token = key.token(&json!({ "alg": "ES256", "kid": "k" }), &claims(changes));
    verifier(&[key.jwk("k")]).verify(token.as_bytes(), NOW)
}

/// Returns the time from which the token of an identity is refused.
fn expiry(identity: &Identity) -> u64 {
    let Proof::Jwt { expires, .. } = identity.proof else { panic!("{:?}", identity.proof) };
    expires
}

#[test]
fn a_token_is_trusted_as_long_as_its_key_and_the_settings_stay() {
    let (key, other) = (Key::ed(), Key::ed());
    let verifier = |keys: &[Value], issuer, audience, identity_claim, groups_claim| {
        let jwks = json!({ "keys": keys }).to_string();
        JwtVerifier::from_jwks(jwks.as_bytes(), issuer, audience, identity_claim, groups_claim)
            .expect("a key set")
    };
    let with = |keys: &[Value]| verifier(keys, ISSUER, AUDIENCE, "sub", Some("groups"));
    let (own, others) = ([key.jwk("k")], [other.jwk("k")]);
    let token = key.token(&json!({ "alg": "EdDSA", "kid": "k" }), &claims(json!({})));
    let Proof::Jwt { trust, .. } = with(&own).verify(token.as_bytes(), NOW).expect("a valid token").proof
    else {
        panic!("another proof")
    };
    let both = [other.jwk("2"), key.jwk("k")];
    assert!(with(&own).trusts(&trust) && with(&both).trusts(&trust));
    for (what, changed) in [
        ("another key with the same id", with(&others)),
        ("another id of the key", with(&[key.jwk("2")])),
        ("another issuer", verifier(&own, "https://other.example", AUDIENCE, "sub", Some("groups"))),
        ("another audience", verifier(&own, ISSUER, "other", "sub", Some("groups"))),
        ("another claim for identities", verifier(&own, ISSUER, AUDIENCE, "client_id", Some("groups"))),
        ("no claim for groups", verifier(&own, ISSUER, AUDIENCE, "sub", None)),
    ] {
        assert!(!changed.trusts(&trust), "{what}");
    }
}

#[test]
fn a_token_of_each_algorithm_proves_an_identity() {
    let (rsa, p256, ed) = (Key::rsa(RSA_2048), Key::p256(), Key::ed());
    let verifier = verifier(&[rsa.jwk("rsa"), p256.jwk("p256"), ed.jwk("ed")]);
    for (key, id, algorithms) in [
        (&rsa, "rsa", &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"][..]),
        (&p256, "p256", &["ES256"]),
        (&ed, "ed", &["EdDSA"]),
    ] {
        for algorithm in algorithms {
            let token = key.token(&json!({ "alg": algorithm, "kid": id, "typ": "JWT" }), &claims(json!({})));
            let identity = verifier.verify(token.as_bytes(), NOW).expect(algorithm);
            assert_eq!(&*identity.name, "billing");
            assert_eq!(identity.groups, ["writers", "ops"].map(Arc::from));
            assert_eq!(expiry(&identity), NOW + 360);
        }
    }
}

#[test]
fn unsigned_and_symmetric_tokens_are_refused_always() {
    let rsa = Key::rsa(RSA_2048);
    let verifier = verifier(&[rsa.jwk("k")]);
    let body = encoded(claims(json!({})).to_string());
    for algorithm in ["none", "None", "NONE", "HS256", "HS384", "HS512", "", "RS257"] {
        let header = encoded(json!({ "alg": algorithm, "kid": "k" }).to_string());
        for signature in ["", "AAAA", &encoded([0; 32])] {
            let token = format!("{header}.{body}.{signature}");
            let refusal = verifier.verify(token.as_bytes(), NOW).expect_err(algorithm);
            assert!(matches!(refusal, JwtRefusal::Malformed | JwtRefusal::Algorithm), "{refusal:?}");
        }
    }
    // The classic attack: the public key is used as the secret of a MAC.
    let header = encoded(json!({ "alg": "HS256", "kid": "k" }).to_string());
    let message = format!("{header}.{body}");
    let secret =
        ring::hmac::Key::new(ring::hmac::HMAC_SHA256, rsa.jwk("k")["n"].as_str().unwrap().as_bytes());
    let token = format!("{message}.{}", encoded(ring::hmac::sign(&secret, message.as_bytes())));
    assert_eq!(verifier.verify(token.as_bytes(), NOW), Err(JwtRefusal::Algorithm));
}

#[test]
fn a_symmetric_key_of_the_set_verifies_nothing() {
    let secret = json!({ "kty": "oct", "kid": "s", "alg": "HS256", "k": encoded([7; 32]) });
    let jwks = json!({ "keys": [secret] }).to_string();
    let refused = JwtVerifier::from_jwks(jwks.as_bytes(), ISSUER, AUDIENCE, "sub", None);
    assert!(matches!(refused, Err(JwksError::NoKey)));
    let p256 = Key::p256();
    let verifier = verifier(&[secret, p256.jwk("k")]);
    let message =
        format!("{}.{}", encoded(r#"{"alg":"HS256","kid":"s"}"#), encoded(claims(json!({})).to_string()));
    let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &[7; 32]), message.as_bytes());
    let token = format!("{message}.{}", encoded(tag));
    assert_eq!(verifier.verify(token.as_bytes(), NOW), Err(JwtRefusal::Algorithm));
}

#[test]
fn a_changed_token_is_refused() {
    let key = Key::p256();
    let verifier = verifier(&[key.jwk("k")]);
    let token = key.token(&json!({ "alg": "ES256", "kid": "k" }), &claims(json!({})));
    assert!(verifier.verify(token.as_bytes(), NOW).is_ok());
    for index in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
        assert!(verifier.verify(&changed, NOW).is_err(), "byte {index}");
    }
    for end in 0..token.len() {
        assert!(verifier.verify(&token.as_bytes()[..end], NOW).is_err(), "{end} bytes");
    }
    assert_eq!(verifier.verify(format!("{token}.x").as_bytes(), NOW), Err(JwtRefusal::Malformed));
    assert_eq!(verifier.verify(&vec![b'a'; JWT_LEN_MAX + 1], NOW), Err(JwtRefusal::Malformed));
}

#[test]
fn a_signature_of_another_key_is_refused() {
    let (own, other) = (Key::p256(), Key::p256());
    let token = other.token(&json!({ "alg": "ES256", "kid": "k" }), &claims(json!({})));
    assert_eq!(verifier(&[own.jwk("k")]).verify(token.as_bytes(), NOW), Err(JwtRefusal::Signature));
}

#[test]
fn the_key_is_chosen_by_its_id_or_is_the_only_one_of_the_algorithm() {
    let (one, two, ed) = (Key::p256(), Key::p256(), Key::ed());
    let sign = |key: &Key, header: Value| key.token(&header, &claims(json!({})));
    let both = verifier(&[one.jwk("1"), two.jwk("2"), ed.jwk("3")]);
    let check = |token: String| both.verify(token.as_bytes(), NOW).map(|identity| identity.name);
    assert!(check(sign(&two, json!({ "alg": "ES256", "kid": "2" }))).is_ok());
    assert!(check(sign(&ed, json!({ "alg": "EdDSA" }))).is_ok());
    assert_eq!(check(sign(&two, json!({ "alg": "ES256", "kid": "1" }))), Err(JwtRefusal::Signature));
    assert_eq!(check(sign(&two, json!({ "alg": "ES256" }))), Err(JwtRefusal::UnknownKey));
    assert_eq!(check(sign(&two, json!({ "alg": "ES256", "kid": "9" }))), Err(JwtRefusal::UnknownKey));
    assert_eq!(check(sign(&ed, json!({ "alg": "ES384", "kid": "3" }))), Err(JwtRefusal::Algorithm));
}

#[test]
fn a_key_that_names_its_algorithm_is_for_no_other() {
    let rsa = Key::rsa(RSA_2048);
    let mut jwk = rsa.jwk("k");
    jwk["alg"] = "PS256".into();
    let verifier = verifier(&[jwk]);
    for (algorithm, accepted) in [("PS256", true), ("RS256", false), ("PS512", false)] {
        let token = rsa.token(&json!({ "alg": algorithm, "kid": "k" }), &claims(json!({})));
        assert_eq!(verifier.verify(token.as_bytes(), NOW).is_ok(), accepted, "{algorithm}");
    }
}

#[test]
fn keys_for_other_purposes_are_left_out() {
    let key = Key::p256();
    let with = |member: &str, value: Value| {
        let mut jwk = key.jwk("k");
        jwk[member] = value;
        let jwks = json!({ "keys": [jwk] }).to_string();
        JwtVerifier::from_jwks(jwks.as_bytes(), ISSUER, AUDIENCE, "sub", None).is_ok()
    };
    assert!(with("use", "sig".into()) && with("key_ops", json!(["verify"])));
    assert!(!with("use", "enc".into()) && !with("key_ops", json!(["encrypt"])));
    assert!(!with("alg", "ECDH-ES".into()) && !with("alg", "ES384".into()));
    let slow = json!({ "keys": [Key::p384().jwk("k")] }).to_string();
    let refusal = JwtVerifier::from_jwks(slow.as_bytes(), ISSUER, AUDIENCE, "sub", None);
    assert!(refusal.is_err(), "a verification takes too long");
}

#[test]
fn a_key_set_that_is_wrong_or_too_large_is_refused() {
    let parse = |jwks: &[u8]| {
        let verifier = JwtVerifier::from_jwks(jwks, ISSUER, AUDIENCE, "sub", None);
        verifier.expect_err("a wrong key set").to_string()
    };
    assert!(parse(b"").contains("is not a JWKS"));
    assert!(parse(b"{\"keys\":[]}").contains("has no key"));
    assert!(parse(&vec![b' '; JWKS_LEN_MAX + 1]).contains("the maximum is 1048576"));
    let many = json!({ "keys": vec![Key::ed().jwk("k"); JWK_COUNT_MAX + 1] }).to_string();
    assert!(parse(many.as_bytes()).contains("the maximum is 1000"));
    let broken = json!({ "keys": [{ "kty": "RSA", "n": "!", "e": "AQAB" }] }).to_string();
    assert!(parse(broken.as_bytes()).starts_with("key 0 of the key set: "));
    let rsa =
        |len| json!({ "keys": [{ "kty": "RSA", "n": encoded(vec![1; len]), "e": "AQAB" }] }).to_string();
    assert!(parse(rsa(513).as_bytes()).ends_with("an RSA key has at most 4096 bits"));
    assert!(JwtVerifier::from_jwks(rsa(512).as_bytes(), ISSUER, AUDIENCE, "sub", None).is_ok());
}

#[test]
fn issuer_and_audience_must_be_those_of_the_server() {
    assert_eq!(verify_with(json!({ "iss": "https://other.example" })), Err(JwtRefusal::Issuer));
    assert_eq!(verify_with(json!({ "aud": "other" })), Err(JwtRefusal::Audience));
    assert_eq!(verify_with(json!({ "aud": ["other"] })), Err(JwtRefusal::Audience));
    assert!(verify_with(json!({ "aud": ["other", AUDIENCE] })).is_ok());
    for name in ["iss", "aud", "exp", "sub"] {
        assert_eq!(verify_with(json!({ name: null })), Err(JwtRefusal::Claim(name.to_owned())));
        assert!(verify_with(json!({ name: { "a": 1 } })).is_err(), "{name}");
    }
}

#[test]
fn times_are_checked_with_a_leeway_of_a_minute() {
    for (changes, expected) in [
        (json!({ "exp": NOW - 59 }), Ok(NOW + 1)),
        (json!({ "exp": NOW - 60 }), Err(JwtRefusal::Expired)),
        (json!({ "exp": 0 }), Err(JwtRefusal::Expired)),
        (json!({ "exp": (NOW + 1) as f64 + 0.9 }), Ok(NOW + 61)),
        (json!({ "exp": u64::MAX }), Ok(u64::MAX)),
        (json!({ "exp": -1 }), Err(JwtRefusal::Claim("exp".to_owned()))),
        (json!({ "exp": (NOW + 300).to_string() }), Err(JwtRefusal::Claim("exp".to_owned()))),
        (json!({ "nbf": NOW + 60 }), Ok(NOW + 360)),
        (json!({ "nbf": NOW + 61 }), Err(JwtRefusal::NotYetValid)),
        (json!({ "nbf": "soon" }), Err(JwtRefusal::Claim("nbf".to_owned()))),
    ] {
        let verified = verify_with(changes.clone());
        assert_eq!(verified.map(|identity| expiry(&identity)), expected, "{changes}");
    }
}

#[test]
fn critical_extensions_encryption_and_compression_are_refused() {
    let key = Key::p256();
    let verifier = verifier(&[key.jwk("k")]);
    for (name, value) in [("crit", json!(["b64"])), ("enc", json!("A128GCM")), ("zip", json!("DEF"))] {
        let mut header = json!({ "alg": "ES256", "kid": "k" });
        header[name] = value;
        let token = key.token(&header, &claims(json!({})));
        assert_eq!(verifier.verify(token.as_bytes(), NOW), Err(JwtRefusal::Malformed), "{name}");
    }
    // A key in the header must not be trusted.
    let other = Key::p256();
    let token =
        other.token(&json!({ "alg": "ES256", "kid": "k", "jwk": other.jwk("k") }), &claims(json!({})));
    assert_eq!(verifier.verify(token.as_bytes(), NOW), Err(JwtRefusal::Signature));
}

#[test]
fn names_have_the_limits_of_token_files() {
    let field = "identity";
    assert_eq!(verify_with(json!({ "sub": "" })), Err(RecordProblem::Empty { field }.into()));
    assert!(verify_with(json!({ "sub": "x".repeat(256) })).is_ok());
    assert!(verify_with(json!({ "sub": "x".repeat(257) })).is_err());
    let control = RecordProblem::NotPrintable { field, character: '\n' };
    assert_eq!(verify_with(json!({ "sub": "a\nb" })), Err(control.into()));
    assert_eq!(verify_with(json!({ "groups": vec!["g"; 64] })).map(|identity| identity.groups.len()), Ok(64));
    let many = RecordProblem::TooManyGroups { count: 65 };
    assert_eq!(verify_with(json!({ "groups": vec!["g"; 65] })), Err(many.into()));
    assert!(verify_with(json!({ "groups": [""] })).is_err());
}

#[test]
fn groups_are_a_list_one_text_or_absent() {
    let groups = |value: Value| verify_with(json!({ "groups": value })).map(|identity| identity.groups);
    assert_eq!(groups(json!("ops")), Ok(vec![Arc::from("ops")]));
    assert_eq!(groups(Value::Null), Ok(Vec::new()));
    for wrong in [json!(7), json!([7]), json!({ "ops": true })] {
        assert_eq!(groups(wrong), Err(JwtRefusal::Claim("groups".to_owned())));
    }
}

#[test]
fn a_claim_can_be_nested() {
    let key = Key::ed();
    let jwks = json!({ "keys": [key.jwk("k")] }).to_string();
    let verifier =
        JwtVerifier::from_jwks(jwks.as_bytes(), ISSUER, AUDIENCE, "client_id", Some("/realm_access/roles"));
    let changes = json!({ "client_id": "web", "realm_access": { "roles": ["admins"] } });
    let token = key.token(&json!({ "alg": "EdDSA" }), &claims(changes));
    let identity = verifier.expect("a key set").verify(token.as_bytes(), NOW).expect("a valid token");
    assert_eq!((&*identity.name, &identity.groups[..]), ("web", &[Arc::from("admins")][..]));
}

#[test]
#[ignore = "measures the time of a verification; run it with --ignored --nocapture"]
#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn time_of_a_verification() {
    for (name, algorithm, key) in [
        ("RS256, 2048 bits", "RS256", Key::rsa(RSA_2048)),
        ("RS256, 4096 bits", "RS256", Key::rsa(RSA_4096)),
        ("PS256, 2048 bits", "PS256", Key::rsa(RSA_2048)),
        ("ES256", "ES256", Key::p256()),
        ("EdDSA", "EdDSA", Key::ed()),
    ] {
        let verifier = verifier(&[key.jwk("k")]);
        let token = key.token(&json!({ "alg": algorithm, "kid": "k" }), &claims(json!({})));
        let mut times: Vec<_> = (0..2_000)
            .map(|_| {
                let begin = Instant::now();
                verifier.verify(token.as_bytes(), NOW).expect("a valid token");
                begin.elapsed()
            })
            .collect();
        times.sort_unstable();
        println!("{name}: median {:?}, p99 {:?}, token of {} bytes", times[1_000], times[1_980], token.len());
    }
}
