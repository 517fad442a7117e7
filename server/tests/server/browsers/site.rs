//! A web site with one page, which reports its results. It may pass all other requests on to a server.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

const PAGE: &str = include_str!("page.html");

/// A site that serves until the process ends.
pub(super) struct Site {
    port: u16,
    reports: Receiver<String>,
}

impl Site {
    /// Starts a site. It passes requests for other paths on to `server`.
    pub(super) fn start(server: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a socket").port();
        let (sender, reports) = channel();
        let server = server.map(str::to_owned);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (server, sender) = (server.clone(), sender.clone());
                // A browser opens connections that it does not use, so each has a thread of its own.
                thread::spawn(move || serve(socket, server.as_deref(), &sender));
            }
        });
        Self { port, reports }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Waits for the next report of the page.
    pub(super) fn report(&self, patience: Duration) -> String {
        self.reports.recv_timeout(patience).expect("a report of the page")
    }
}

/// Serves one request, and then closes the connection.
fn serve(mut socket: TcpStream, server: Option<&str>, reports: &Sender<String>) -> io::Result<()> {
    let mut reader = BufReader::new(socket.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let path = head.split(' ').nth(1).unwrap_or_default();
    if let Some(report) = path.strip_prefix("/report?") {
        respond(&mut socket, "204 No Content", "")?;
        let _ = reports.send(report.to_owned());
        return Ok(());
    }
    if path.starts_with("/page?") {
        return respond(&mut socket, "200 OK", PAGE);
    }
    match server {
        // The next request may be for this site again.
        Some(server) => {
            pass_on(&socket, server, &head.replace("Connection: keep-alive", "Connection: close"))
        }
        None => respond(&mut socket, "404 Not Found", ""),
    }
}

fn respond(socket: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}", body.len());
    write!(socket, "{head}\r\nConnection: close\r\n\r\n{body}")
}

fn pass_on(browser: &TcpStream, server: &str, head: &str) -> io::Result<()> {
    let mut server = TcpStream::connect(server)?;
    server.write_all(head.as_bytes())?;
    let (mut from_browser, mut to_server) = (browser.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from_browser, &mut to_server);
        to_server.shutdown(Shutdown::Write)
    });
    io::copy(&mut server, &mut &*browser)?;
    browser.shutdown(Shutdown::Both)
}
