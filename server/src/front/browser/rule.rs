//! Rule that admits HTTP requests, based mainly on headers that a web page cannot choose.

use super::authority::Authority;
use super::options::{AllowedHost, AllowedOrigin, BrowserConfig, Origin};
use http::header::{HOST, HeaderName, HeaderValue, ORIGIN};
use http::{Method, Request, StatusCode, Version};

static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
static FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
static FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Paths whose requests every rule admits: health checks may use any name of the server, and they reveal only its
/// readiness.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// Rule by which one listener admits HTTP requests.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    config: BrowserConfig,
    /// Host of the listen address; `None` without an address of the form `HOST` or `HOST:PORT`.
    own_host: Option<String>,
    /// Scheme of this listener's own origin. Web pages of this origin need no entry in `--http-origins`.
    scheme: &'static str,
}

/// Reason to refuse a request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The request has no `Host` header, several of them, or a malformed host. Only HTTP/1.0 requests, and requests
    /// with a host in the request line, need no header.
    #[error("the request needs one valid Host header")]
    BadHost,
    /// The request names this host, which is not a known name of this server.
    #[error(
        "the Host header names {0:?}, which is not a known name of this server; to allow it, add it to --http-hosts. IP \
         addresses and localhost need no entry, but the name of a Docker or Kubernetes service does"
    )]
    OtherHost(String),
    /// A page of this origin sent the request, and `--http-origins` does not allow it. The text is empty if the request
    /// has several `Origin` headers, or if the header is not text.
    #[error(
        "web pages of the origin {0:?} may not use this server; to allow them, add the origin to --http-origins"
    )]
    OtherOrigin(String),
    /// A page of another origin requests the response as an embedded resource, such as an image or a frame.
    #[error(
        "web pages of other sites may not embed responses of this server; only --http-origins '*' allows it"
    )]
    Embedded,
}

impl Refusal {
    /// Returns the status of the response.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::BadHost => StatusCode::BAD_REQUEST,
            Self::OtherHost(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::OtherOrigin(_) | Self::Embedded => StatusCode::FORBIDDEN,
        }
    }
}

impl Rule {
    /// Creates the rule of the listener at this address.
    pub(crate) fn new(config: &BrowserConfig, listen: Option<&str>, is_encrypted: bool) -> Self {
        Self {
            config: config.clone(),
            own_host: listen.and_then(Authority::parse).map(|listen| listen.host),
            scheme: if is_encrypted { "https" } else { "http" },
        }
    }

    /// Returns whether the responses depend on the origin of the page: pages of some other origins may use the server,
    /// but not all. Such responses carry `Vary: Origin` for caches.
    pub(super) fn tells_origins_apart(&self) -> bool {
        !self.config.origins.is_empty() && !self.allows_every_origin()
    }

    /// Admits or refuses a request. Returns the value of `Access-Control-Allow-Origin` for its response; `None` if the
    /// response needs no such header.
    pub(super) fn judge<B>(&self, request: &Request<B>) -> Result<Option<HeaderValue>, Refusal> {
        let reader = self.judge_host(request).and_then(|host| self.judge_page(request, host));
        if reader.is_err() && OPEN_PATHS.contains(&request.uri().path()) { Ok(None) } else { reader }
    }

    fn judge_host<B>(&self, request: &Request<B>) -> Result<Option<Authority>, Refusal> {
        match host(request)? {
            Some(host) if !self.knows(&host) => Err(Refusal::OtherHost(host.host)),
            host => Ok(host),
        }
    }

    fn judge_page<B>(
        &self,
        request: &Request<B>,
        host: Option<Authority>,
    ) -> Result<Option<HeaderValue>, Refusal> {
        let mut origins = request.headers().get_all(ORIGIN).iter().filter(|origin| !origin.is_empty());
        let Some(origin) = origins.next() else {
            let is_refused = is_embedded(request) && !self.allows_every_origin();
            return if is_refused { Err(Refusal::Embedded) } else { Ok(None) };
        };
        if self.allows_every_origin() {
            return Ok(Some(HeaderValue::from_static("*")));
        }
        let text = origin.to_str().ok().filter(|_| origins.next().is_none()).unwrap_or_default();
        let own = host.map(|host| Origin::new(self.scheme, host));
        match Origin::parse(text) {
            Some(page) if own.as_ref() == Some(&page) => Ok(None),
            Some(page) if self.config.origins.iter().any(|allowed| allowed.allows(&page)) => {
                Ok(Some(origin.clone()))
            }
            _ => Err(Refusal::OtherOrigin(text.to_owned())),
        }
    }

    fn allows_every_origin(&self) -> bool {
        self.config.origins.contains(&AllowedOrigin::Every)
    }

    /// Returns whether requests may name this host: an IP address, `localhost`, the host of the listen address, or a
    /// name in `--http-hosts`.
    fn knows(&self, authority: &Authority) -> bool {
        let host = authority.host.as_str();
        let is_listed = |allowed: &AllowedHost| match allowed {
            AllowedHost::Every => true,
            AllowedHost::Name(name) => name == host,
        };
        authority.is_ip()
            || host == "localhost"
            || self.own_host.as_deref() == Some(host)
            || self.config.hosts.iter().any(is_listed)
    }
}

/// Returns the host that a request names. Only HTTP/1.0 requests may name none, and no browser sends those.
fn host<B>(request: &Request<B>) -> Result<Option<Authority>, Refusal> {
    // RFC 9112: a host in the request line replaces the header.
    if let Some(authority) = request.uri().authority() {
        return Authority::parse(authority.as_str()).map(Some).ok_or(Refusal::BadHost);
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() < Version::HTTP_11 => Ok(None),
        (Some(host), None) => host.to_str().ok().and_then(Authority::parse).map(Some).ok_or(Refusal::BadHost),
        _ => Err(Refusal::BadHost),
    }
}

/// Returns whether the headers show that a page of another origin requests a response otherwise than by a link.
/// Examples are images, scripts and frames.
fn is_embedded<B>(request: &Request<B>) -> bool {
    let is =
        |name: &HeaderName, value: &str| request.headers().get(name).is_some_and(|actual| actual == value);
    let is_foreign = is(&FETCH_SITE, "cross-site") || is(&FETCH_SITE, "same-site");
    let is_link =
        is(&FETCH_MODE, "navigate") && is(&FETCH_DEST, "document") && request.method() == Method::GET;
    is_foreign && !is_link
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVED: Result<Option<&str>, u16> = Ok(None);

    /// Returns the rule of a listener at `locks.internal:7422`.
    fn rule(hosts: &[&str], origins: &[&str]) -> Rule {
        let config = BrowserConfig {
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            origins: origins.iter().map(|origin| origin.parse().unwrap()).collect(),
        };
        Rule::new(&config, Some("locks.internal:7422"), false)
    }

    /// Applies the rule to a request that is given as `METHOD PATH` and header lines. Returns the value of
    /// `Access-Control-Allow-Origin` in the response, if it has one, or the HTTP status of the refusal.
    fn judge(rule: &Rule, text: &str) -> Result<Option<String>, u16> {
        let mut lines = text.lines();
        let (method, path) = lines.next().unwrap().split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            request = if name == "version" {
                request.version(Version::HTTP_10)
            } else {
                request.header(name, value)
            };
        }
        let reader = rule.judge(&request.body(()).unwrap());
        reader
            .map(|reader| reader.map(|reader| reader.to_str().unwrap().to_owned()))
            .map_err(|refusal| refusal.status().as_u16())
    }

    fn assert_judged(rule: &Rule, text: &str, expected: Result<Option<&str>, u16>) {
        assert_eq!(judge(rule, text), expected.map(|reader| reader.map(str::to_owned)), "{text}");
    }

    #[test]
    fn a_request_names_an_address_or_a_known_name_of_the_server() {
        let (default, listed, every) =
            (rule(&[], &[]), rule(&["Locks.Example", "redis"], &[]), rule(&["*"], &[]));
        for (host, by_default, if_listed) in [
            ("127.0.0.1:7422", SERVED, SERVED),
            ("192.0.2.7", SERVED, SERVED),
            ("[::1]:7422", SERVED, SERVED),
            ("localhost", SERVED, SERVED),
            ("LOCALHOST.:1", SERVED, SERVED),
            ("locks.internal", SERVED, SERVED),
            ("locks.example:80", Err(421), SERVED),
            ("redis:7422", Err(421), SERVED),
            ("evil.example:7422", Err(421), Err(421)),
            ("127.0.0.1.evil.example", Err(421), Err(421)),
            ("localhost.evil.example", Err(421), Err(421)),
            ("evil.example@127.0.0.1", Err(400), Err(400)),
            ("", Err(400), Err(400)),
        ] {
            for path in ["/v1", "/metrics", "/unknown"] {
                assert_judged(&default, &format!("GET {path}\nHost: {host}"), by_default);
                assert_judged(&listed, &format!("GET {path}\nHost: {host}"), if_listed);
            }
            assert_judged(&default, &format!("GET /healthz\nHost: {host}"), SERVED);
        }
        assert_judged(&every, "GET /\nHost: evil.example", SERVED);
        assert_judged(&default, "GET /", Err(400));
        assert_judged(&default, "GET /\nversion: 1.0", SERVED);
        assert_judged(&default, "GET /\nHost: localhost\nHost: evil.example", Err(400));
        assert_judged(&default, "GET http://evil.example/\nHost: localhost", Err(421));
        assert_judged(&default, "GET http://localhost/\nHost: evil.example", SERVED);
    }

    #[test]
    fn a_page_has_the_origin_of_the_server_or_an_allowed_one() {
        let default = rule(&["locks.example"], &[]);
        let listed = rule(&["locks.example"], &["https://app.example", "http://app.example:3000"]);
        let every = rule(&["locks.example"], &["*"]);
        for (origin, by_default, if_listed) in [
            ("http://locks.example", SERVED, SERVED),
            ("http://LOCKS.example:80", SERVED, SERVED),
            ("http://locks.example:3000", Err(403), Err(403)),
            ("https://locks.example", Err(403), Err(403)),
            ("http://127.0.0.1", Err(403), Err(403)),
            ("https://app.example", Err(403), Ok(Some("https://app.example"))),
            ("http://app.example:3000", Err(403), Ok(Some("http://app.example:3000"))),
            ("http://app.example", Err(403), Err(403)),
            ("https://app.example.evil.example", Err(403), Err(403)),
            ("null", Err(403), Err(403)),
            ("https://app.example\nOrigin: https://evil.example", Err(403), Err(403)),
        ] {
            for start in ["GET /v1", "GET /metrics", "POST /", "OPTIONS /v1"] {
                let request = format!("{start}\nHost: locks.example\nOrigin: {origin}");
                assert_judged(&default, &request, by_default);
                assert_judged(&listed, &request, if_listed);
                assert_judged(&every, &request, Ok(Some("*")));
            }
            let request = format!("GET /readyz\nHost: locks.example\nOrigin: {origin}");
            assert_judged(&default, &request, SERVED);
        }
        assert_judged(&default, "GET /\nHost: locks.example\nOrigin: ", SERVED);
        assert_judged(&default, "GET /\nversion: 1.0\nOrigin: http://locks.example", Err(403));
        assert_judged(&every, "GET /\nHost: evil.example\nOrigin: http://a", Err(421));
    }

    #[test]
    fn an_encrypted_server_serves_only_encrypted_pages() {
        let rule = Rule::new(&BrowserConfig::default(), Some("127.0.0.1:443"), true);
        assert_judged(&rule, "GET /\nHost: 127.0.0.1\nOrigin: https://127.0.0.1", SERVED);
        assert_judged(&rule, "GET /\nHost: 127.0.0.1\nOrigin: http://127.0.0.1", Err(403));
    }

    #[test]
    fn a_page_of_another_site_follows_links_but_embeds_nothing() {
        let (default, every) = (rule(&[], &[]), rule(&[], &["*"]));
        for (headers, expected) in [
            ("Sec-Fetch-Site: none\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document", SERVED),
            ("Sec-Fetch-Site: same-origin\nSec-Fetch-Mode: cors\nSec-Fetch-Dest: empty", SERVED),
            ("Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document", SERVED),
            ("Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: iframe", Err(403)),
            ("Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: image", Err(403)),
            ("Sec-Fetch-Site: same-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: script", Err(403)),
            ("Sec-Fetch-Site: cross-site", Err(403)),
        ] {
            assert_judged(&default, &format!("GET /metrics\nHost: localhost\n{headers}"), expected);
            assert_judged(&every, &format!("GET /metrics\nHost: localhost\n{headers}"), SERVED);
        }
    }
}
