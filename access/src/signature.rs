//! Signatures of requests as AWS defines them: Signature Version 4, for requests to `/` without a query.

use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign, verify};
use std::fmt::Write as _;
use waymaker_protocol::Hex;

use crate::hex;
use crate::timestamp::Timestamp;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Service that requests must be signed for.
const SERVICE: &str = "dynamodb";
/// Maximum difference between the clocks of client and server, in seconds.
const SKEW_MAX_S: u64 = 15 * 60;
/// Maximum number of headers that a request signs.
const SIGNED_HEADERS_MAX: usize = 64;

/// A request with the parts that its signature covers.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// All headers with their values, by lower-case name, in the order of arrival.
    pub headers: &'a [(&'a str, &'a str)],
    /// Body of the request.
    pub body: &'a [u8],
}

/// The reason why a signature is refused. Texts for clients use the words of AWS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureRefusal {
    /// The request has no signature.
    #[error("Missing Authentication Token")]
    Missing,
    /// A part of the signature is missing or malformed.
    #[error("{0}")]
    Incomplete(String),
    /// No access key has this id.
    #[error("The security token included in the request is invalid.")]
    UnknownKey,
    /// The access key is no longer valid.
    #[error("The security token included in the request is expired.")]
    ExpiredKey,
    /// The request was signed with another secret, or changed afterwards.
    #[error(
        "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing \
         method."
    )]
    Wrong,
    /// The request was signed for another day, region or service.
    #[error("{0}")]
    Scope(String),
    /// The request was signed too long ago, or in the future.
    #[error(
        "Signature expired or not yet valid: the clocks of client and server differ by more than 15 minutes; the request was signed at \
         {0}"
    )]
    Skewed(String),
}

/// The parts of a signature.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signature<'a> {
    pub(crate) access_key_id: &'a str,
    /// Day of the scope, such as `20261129`.
    day: &'a str,
    pub(crate) region: &'a str,
    service: &'a str,
    /// Names of the signed headers, separated by semicolons.
    signed_headers: &'a str,
    signature: [u8; 32],
    /// Time of the signature, such as `20261129T210000Z`.
    signed_at: &'a str,
}

impl<'a> Signature<'a> {
    /// Parses the headers `authorization` and `x-amz-date` of a request.
    pub(crate) fn read(request: &SignedRequest<'a>) -> Result<Self, SignatureRefusal> {
        let mut authorizations = request.headers.iter().filter(|(name, _)| *name == "authorization");
        let (authorization, other) = (authorizations.next(), authorizations.next());
        let (_, authorization) =
            authorization.filter(|_| other.is_none()).ok_or(SignatureRefusal::Missing)?;
        let parts = authorization.strip_prefix(ALGORITHM).ok_or_else(|| {
            incomplete(format!("Unsupported signature: the header Authorization must begin with {ALGORITHM}"))
        })?;
        let part = |wanted: &str| {
            let mut parts = parts.split(',').filter_map(|part| part.trim().split_once('='));
            parts
                .find_map(|(name, value)| (name == wanted).then_some(value))
                .ok_or_else(|| incomplete(format!("Authorization header requires '{wanted}' parameter.")))
        };
        let credential = part("Credential")?;
        let mut scope = credential.rsplitn(5, '/');
        let (Some("aws4_request"), Some(service), Some(region), Some(day), Some(access_key_id)) =
            (scope.next(), scope.next(), scope.next(), scope.next(), scope.next())
        else {
            let form = "Credential must have the form ID/YYYYMMDD/REGION/SERVICE/aws4_request";
            return Err(incomplete(form.to_owned()));
        };
        let signature = hex::decode(part("Signature")?.as_bytes())
            .ok_or_else(|| incomplete("Signature must have 64 lower-case hexadecimal digits".to_owned()))?;
        let signed_at = request.headers.iter().find(|(name, _)| *name == "x-amz-date");
        let (_, signed_at) =
            signed_at.ok_or_else(|| incomplete("the header X-Amz-Date is missing".to_owned()))?;
        Ok(Self {
            access_key_id,
            day,
            region,
            service,
            signed_headers: part("SignedHeaders")?,
            signature,
            signed_at,
        })
    }

    /// Verifies that a client with this secret signed the request recently.
    pub(crate) fn verify(
        &self,
        request: &SignedRequest<'_>,
        secret: &str,
        now_unix_s: u64,
    ) -> Result<(), SignatureRefusal> {
        let signed_unix_s = parse_date(self.signed_at)
            .ok_or_else(|| incomplete("X-Amz-Date must have the form YYYYMMDDTHHMMSSZ".to_owned()))?;
        self.check_signed_headers(request)?;
        let scope = format!("{}/{}/{}/aws4_request", self.day, self.region, self.service);
        let request_digest = digest(&SHA256, self.canonical(request).as_bytes());
        let signed = format!("{ALGORITHM}\n{}\n{scope}\n{}", self.signed_at, Hex(request_digest.as_ref()));
        let begin = format!("AWS4{secret}");
        let parts = [self.day, self.region, self.service, "aws4_request"];
        let key = parts.iter().fold(Key::new(HMAC_SHA256, begin.as_bytes()), |key, part| {
            Key::new(HMAC_SHA256, sign(&key, part.as_bytes()).as_ref())
        });
        verify(&key, signed.as_bytes(), &self.signature).map_err(|_| SignatureRefusal::Wrong)?;
        // Checked after the signature, so that only a client with the secret learns more.
        if self.service != SERVICE {
            return Err(SignatureRefusal::Scope(format!(
                "Credential should be scoped to correct service: '{SERVICE}'."
            )));
        }
        if !self.signed_at.starts_with(self.day) {
            return Err(SignatureRefusal::Scope(format!(
                "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '{}' != '{}'.",
                self.day, self.signed_at
            )));
        }
        if signed_unix_s.abs_diff(now_unix_s) > SKEW_MAX_S {
            return Err(SignatureRefusal::Skewed(self.signed_at.to_owned()));
        }
        Ok(())
    }

    /// Refuses a signature that does not cover a header which selects the operation or the server.
    fn check_signed_headers(&self, request: &SignedRequest<'_>) -> Result<(), SignatureRefusal> {
        let names = || self.signed_headers.split(';');
        if names().count() > SIGNED_HEADERS_MAX {
            return Err(incomplete(format!("SignedHeaders names more than {SIGNED_HEADERS_MAX} headers")));
        }
        // Sorted names are unique, so each header is hashed once.
        if !names().is_sorted_by(|name, next| name < next) {
            return Err(incomplete(
                "SignedHeaders must have its names in alphabetical order, each once".to_owned(),
            ));
        }
        let has_to_be_signed = |name: &str| name == "host" || name.starts_with("x-amz-");
        let mut needed = request.headers.iter().map(|(name, _)| *name).filter(|name| has_to_be_signed(name));
        match needed.find(|name| !names().any(|signed| signed == *name)) {
            Some(unsigned) => Err(incomplete(format!("the header {unsigned} must be signed"))),
            None => Ok(()),
        }
    }

    /// Returns the canonical request, which the signature covers.
    fn canonical(&self, request: &SignedRequest<'_>) -> String {
        let mut text = format!("{}\n/\n\n", request.method);
        for name in self.signed_headers.split(';') {
            let _ = write!(text, "{name}:");
            let values = request.headers.iter().filter(|(own, _)| *own == name).map(|(_, value)| value);
            for (index, value) in values.enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                for (index, word) in value.split_ascii_whitespace().enumerate() {
                    text.push_str(if index == 0 { "" } else { " " });
                    text.push_str(word);
                }
            }
            text.push('\n');
        }
        let body_digest = digest(&SHA256, request.body);
        let _ = write!(text, "\n{}\n{}", self.signed_headers, Hex(body_digest.as_ref()));
        text
    }
}

fn incomplete(message: String) -> SignatureRefusal {
    SignatureRefusal::Incomplete(message)
}

/// Returns the seconds since 1970 of a time such as `20261129T210000Z`.
fn parse_date(text: &str) -> Option<u64> {
    let is_form = text.len() == 16
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    if !is_form {
        return None;
    }
    let part = |begin: usize, len: usize| &text[begin..begin + len];
    let (year, month, day) = (part(0, 4), part(4, 2), part(6, 2));
    let (hour, minute, second) = (part(9, 2), part(11, 2), part(13, 2));
    let time = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z").parse::<Timestamp>().ok()?;
    Some(time.unix_seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    /// 2026-11-29T21:00:00Z
    const NOW_S: u64 = 1_795_986_000;
    const TARGET: &str = "DynamoDB_20120810.ListTables";
    const SIGNED: &str = "host;x-amz-date;x-amz-target";
    const SCOPE: &str = "20261129/eu-west-1/dynamodb/aws4_request";
    /// Computed by botocore.
    const SIGNATURE: &str = "833c39e343dbe55d6161964cca0aae4a2a806e162bec55e8d6291101ac024d9a";

    fn authorization(scope: &str, signed: &str, signature: &str) -> String {
        format!(
            "{ALGORITHM} Credential=WAYMAKERBILLING1/{scope}, SignedHeaders={signed}, Signature={signature}"
        )
    }

    fn valid() -> String {
        authorization(SCOPE, SIGNED, SIGNATURE)
    }

    /// Verifies a request with these headers.
    fn verified(headers: &[(&str, &str)], body: &[u8], now_unix_s: u64) -> Result<(), SignatureRefusal> {
        let request = SignedRequest { method: "POST", headers, body };
        Signature::read(&request)?.verify(&request, SECRET, now_unix_s)
    }

    /// Verifies the request that `authorization` signs.
    fn verified_by(authorization: &str) -> Result<(), SignatureRefusal> {
        let headers = [
            ("x-amz-target", TARGET),
            ("host", "localhost:8000"),
            ("x-amz-date", "20261129T210000Z"),
            ("content-type", "application/x-amz-json-1.0"),
            ("authorization", authorization),
        ];
        verified(&headers, b"{}", NOW_S)
    }

    #[test]
    fn a_signature_of_an_aws_client_is_accepted() {
        assert_eq!(verified_by(&valid()), Ok(()));
        let parts = valid().replace(", ", ",");
        assert_eq!(verified_by(&parts), Ok(()));
    }

    #[test]
    fn a_changed_request_is_refused() {
        let valid = valid();
        let with = |target, host, body: &[u8]| {
            let date = ("x-amz-date", "20261129T210000Z");
            let headers = [("x-amz-target", target), ("host", host), date, ("authorization", valid.as_str())];
            verified(&headers, body, NOW_S)
        };
        assert_eq!(with(TARGET, "localhost:8000", b"{}"), Ok(()));
        assert_eq!(with(TARGET, " localhost:8000  ", b"{}"), Ok(()));
        assert_eq!(with(TARGET, "localhost:8000", b"{ }"), Err(SignatureRefusal::Wrong));
        assert_eq!(with(TARGET, "localhost:8001", b"{}"), Err(SignatureRefusal::Wrong));
        assert_eq!(
            with("DynamoDB_20120810.DeleteTable", "localhost:8000", b"{}"),
            Err(SignatureRefusal::Wrong)
        );
        assert_eq!(verified_by(&valid.replace("833c", "833d")), Err(SignatureRefusal::Wrong));
    }

    #[test]
    fn a_signature_for_something_else_is_refused() {
        let for_s3 = "f1c43a556138c9d965865e1faf01aae686d7a1a5adcab54ef1885fa1ad5a77c9";
        let for_yesterday = "5be137374269c5b6bb29e19e8cac3703cf89db6ff20f7c6fe93080cdf749392d";
        for (scope, signature) in [
            ("20261129/eu-west-1/s3/aws4_request", for_s3),
            ("20261128/eu-west-1/dynamodb/aws4_request", for_yesterday),
        ] {
            let refusal = verified_by(&authorization(scope, SIGNED, signature)).unwrap_err();
            assert!(matches!(refusal, SignatureRefusal::Scope(_)), "{refusal:?}");
        }
    }

    #[test]
    fn a_signature_is_valid_for_a_quarter_of_an_hour() {
        let valid = valid();
        let headers = [
            ("host", "localhost:8000"),
            ("x-amz-date", "20261129T210000Z"),
            ("x-amz-target", TARGET),
            ("authorization", valid.as_str()),
        ];
        for (now_unix_s, is_valid) in [
            (NOW_S - SKEW_MAX_S, true),
            (NOW_S + SKEW_MAX_S, true),
            (NOW_S - SKEW_MAX_S - 1, false),
            (NOW_S + SKEW_MAX_S + 1, false),
            (0, false),
            (u64::MAX, false),
        ] {
            assert_eq!(verified(&headers, b"{}", now_unix_s).is_ok(), is_valid, "{now_unix_s}");
        }
    }

    #[test]
    fn headers_that_decide_have_to_be_signed() {
        for signed in ["host;x-amz-date", "x-amz-date;x-amz-target", ""] {
            let refusal = verified_by(&authorization(SCOPE, signed, SIGNATURE)).unwrap_err();
            assert!(refusal.to_string().contains("must be signed"), "{refusal}");
        }
    }

    #[test]
    fn incomplete_signatures_are_refused() {
        let (no_key, many) = (valid().replace("WAYMAKERBILLING1/", ""), ["a"; 65].join(";"));
        for authorization in [
            "",
            "Bearer abc",
            "AWS4-HMAC-SHA256",
            "AWS4-HMAC-SHA256 Credential=a",
            &no_key,
            &valid().replace("aws4_request", "aws5_request"),
            &valid().replace("Signature=", "Signature=00"),
            &valid().replace("833c", "833C"),
            &valid().replace("SignedHeaders", "Headers"),
            &authorization(SCOPE, &many, SIGNATURE),
        ] {
            let refusal = verified_by(authorization).expect_err(authorization);
            assert!(matches!(refusal, SignatureRefusal::Incomplete(_)), "{refusal:?}");
        }
        let valid = valid();
        let twice = [("authorization", valid.as_str()), ("authorization", valid.as_str())];
        assert_eq!(verified(&twice, b"", NOW_S), Err(SignatureRefusal::Missing));
        assert_eq!(verified(&[], b"", NOW_S), Err(SignatureRefusal::Missing));
        for date in
            ["", "20261129", "20261329T210000Z", "2026-11-29T21:00Z", "ä26112T210000Z", "20261129T21000äZ"]
        {
            let headers =
                [("host", "a"), ("x-amz-date", date), ("x-amz-target", TARGET), ("authorization", &valid)];
            let refusal = verified(&headers, b"", NOW_S).expect_err(date);
            assert!(matches!(refusal, SignatureRefusal::Incomplete(_)), "{refusal:?}");
        }
        let undated = [("authorization", valid.as_str())];
        assert!(matches!(verified(&undated, b"", NOW_S), Err(SignatureRefusal::Incomplete(_))));
    }

    #[test]
    fn each_header_is_signed_once() {
        for names in ["host;x-amz-date;x-amz-target;x-amz-target", "x-amz-date;host;x-amz-target"] {
            let refusal = verified_by(&authorization(SCOPE, names, SIGNATURE)).unwrap_err();
            assert!(refusal.to_string().contains("each once"), "{refusal}");
        }
    }

    /// Values of one header are joined with commas, and blanks inside a value count as one. Computed with another implementation.
    #[test]
    fn values_are_canonical_and_the_method_is_signed() {
        let signature = "e2454a150252cba38ce5d9405bbd9725f5e50cc92e6bf047e8ed063b982e70db";
        let authorization = authorization(SCOPE, "host;x-amz-date;x-amz-note;x-amz-target", signature);
        let with = |method, notes: [&str; 2]| {
            let headers = [
                ("x-amz-note", notes[0]),
                ("host", "localhost:8000"),
                ("x-amz-note", notes[1]),
                ("x-amz-date", "20261129T210000Z"),
                ("x-amz-target", TARGET),
                ("authorization", authorization.as_str()),
            ];
            let request = SignedRequest { method, headers: &headers, body: b"{}" };
            Signature::read(&request)?.verify(&request, SECRET, NOW_S)
        };
        assert_eq!(with("POST", [" a   b", "c "]), Ok(()));
        assert_eq!(with("POST", ["c", "a b"]), Err(SignatureRefusal::Wrong));
        assert_eq!(with("GET", ["a b", "c"]), Err(SignatureRefusal::Wrong));
    }

    #[test]
    fn a_header_of_aws_that_is_not_signed_is_refused() {
        let valid = valid();
        let headers = [
            ("host", "localhost:8000"),
            ("x-amz-date", "20261129T210000Z"),
            ("x-amz-target", TARGET),
            ("x-amz-security-token", "token"),
            ("authorization", valid.as_str()),
        ];
        let refusal = verified(&headers, b"{}", NOW_S).unwrap_err();
        assert!(refusal.to_string().contains("x-amz-security-token must be signed"), "{refusal}");
    }
}
