//! The part of HTTP/1.1 that a client of short responses needs: each response has a length, and the connection
//! stays open.

use std::io::{self, Read, Write};

use httparse::Status;

use super::{Broken, refused};

/// Maximum lengths of a head and a body.
const HEAD_LEN_MAX: usize = 4 << 10;
const BODY_LEN_MAX: usize = 4 << 10;
/// Maximum number of header lines.
const HEADER_COUNT_MAX: usize = 32;

/// One response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Response<'a> {
    /// Status code.
    pub status: u16,
    /// Body, without surrounding white space.
    pub body: &'a [u8],
}

impl Response<'_> {
    /// Formats the response for messages.
    pub(super) fn words(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(self.body))
    }
}

/// Returns the first response of a buffer and its length; `None` if it is incomplete.
#[inline]
pub(super) fn next_response(bytes: &[u8]) -> Result<Option<(Response<'_>, usize)>, Broken> {
    let broken = |what: &str| {
        let begin = &bytes[..bytes.len().min(60)];
        Err(Broken(format!("{what}: {:?}", String::from_utf8_lossy(begin))))
    };
    let mut headers = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(&bytes[..bytes.len().min(HEAD_LEN_MAX)]);
    if head.version == Some(0) {
        return broken("not an HTTP/1.1 response");
    }
    let start = match parsed {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) if bytes.len() < HEAD_LEN_MAX => return Ok(None),
        Ok(Status::Partial) => return broken("the response head is too long"),
        Err(httparse::Error::Version) => return broken("not an HTTP/1.1 response"),
        Err(httparse::Error::Status) => return broken("no HTTP status"),
        Err(httparse::Error::TooManyHeaders) => return broken("the response has too many header lines"),
        Err(_) => return broken("invalid header line"),
    };
    let Some(status) = head.code else { return broken("no HTTP status") };
    let mut body_len = None;
    for header in head.headers {
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return broken("a response without a length");
        }
        if header.name.eq_ignore_ascii_case("content-length") {
            let len = str::from_utf8(header.value).ok().and_then(|text| text.parse().ok());
            match (len, body_len) {
                (Some(len @ 0..=BODY_LEN_MAX), None) => body_len = Some(len),
                _ => return broken("an invalid content length"),
            }
        }
    }
    let Some(body_len) = body_len else { return broken("a response without a length") };
    let body = bytes.get(start..start + body_len);
    Ok(body.map(|body| (Response { status, body: body.trim_ascii() }, start + body_len)))
}

/// Sends one request and waits for the status and body of its response.
pub(super) fn ask(stream: &mut (impl Read + Write), request: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    stream.write_all(request)?;
    let mut received = Vec::new();
    loop {
        let mut chunk = [0; 1024];
        match stream.read(&mut chunk)? {
            0 => return Err(refused("the server closed the connection without an HTTP response")),
            count => received.extend_from_slice(&chunk[..count]),
        }
        match next_response(&received) {
            Ok(Some((response, len))) if len == received.len() => {
                return Ok((response.status, response.body.to_vec()));
            }
            Ok(Some(_)) => return Err(refused("more than one HTTP response to one request")),
            Ok(None) => {}
            Err(broken) => return Err(refused(broken.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER_COUNT_MAX, Response, next_response};

    #[test]
    fn parses_a_response_once_it_is_complete() {
        let bytes =
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: 5\r\n\r\ntrue\nHTTP";
        let whole_len = bytes.len() - 4;
        for len in 0..whole_len {
            assert!(next_response(&bytes[..len]).expect("nothing is wrong yet").is_none(), "{len}");
        }
        let (response, len) = next_response(bytes).expect("valid").expect("whole");
        assert_eq!((response, len), (Response { status: 200, body: b"true" }, whole_len));
    }

    #[test]
    fn quotes_the_beginning_of_an_invalid_response() {
        for (bytes, words) in [
            (&b"+PONG"[..], "not an HTTP/1.1 response"),
            (b"HTTP/1.0 200 OK\r\n\r\n", "not an HTTP/1.1 response"),
            (b"HTTP/1.1 2000 OK\r\n\r\n", "no HTTP status"),
            (b"HTTP/1.1 2x0 OK\r\n\r\n", "no HTTP status"),
            (b"HTTP/1.1 200 OK\r\n\r\n", "without a length"),
            (b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "invalid header line"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "invalid content length"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", "invalid content length"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "invalid content length"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "without a length"),
        ] {
            let broken = next_response(bytes).expect_err(words);
            assert!(broken.0.contains(words), "{broken:?}");
        }
        let lines = b"A: b\r\n".repeat(HEADER_COUNT_MAX + 1);
        let many = [&b"HTTP/1.1 200 OK\r\n"[..], &lines, b"\r\n"].concat();
        assert!(next_response(&many).expect_err("too many").0.contains("too many header lines"));
        let endless = [&b"HTTP/1.1 200 OK\r\nA: "[..], &[b'a'; 5000]].concat();
        assert!(next_response(&endless).expect_err("too long").0.contains("too long"));
    }
}
