//! Servers of other systems: real ones, started as `compare --spawn` starts them, and simulated ones with the
//! responses of a test.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use waymaker_loadgen::programs::Programs;
use waymaker_loadgen::programs::server::{Server, Setup};
use waymaker_loadgen::scope::Scope;
use waymaker_loadgen::system::System;

use crate::program::{Ended, run};
use crate::skip::skip;

/// Returns the program paths.
pub(crate) fn programs() -> Programs {
    Programs::beside(Path::new(env!("CARGO_BIN_EXE_waymaker-loadgen")).to_owned(), None)
        .expect("no option is wrong")
}

/// Starts a real server. Returns `None` and reports the test as skipped if the program is missing.
pub(crate) fn start(test: &str, system: System) -> Option<Server> {
    let programs = programs();
    if let Some(why) = programs.missing(system) {
        skip(test, &why);
        return None;
    }
    assert!(programs.version(system).starts_with(|first: char| first.is_ascii_digit()));
    let setup = Setup {
        core: 0,
        busy_poll: false,
        scope: Scope::Ephemeral,
        has_rights: false,
        folder: None,
        quorum: None,
    };
    Some(Server::start(&programs, system, setup).expect("it starts"))
}

/// Serves until the test ends. Sends what `answer` returns for each read; its first argument is the number of
/// earlier calls on this connection. Closes the connection after `None`.
pub(crate) fn actor(answer: impl Fn(usize, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            thread::spawn(move || {
                let mut chunk = [0; 4096];
                for turn in 0.. {
                    let len = stream.read(&mut chunk).unwrap_or(0);
                    let said = (len > 0).then(|| answer(turn, &chunk[..len])).flatten();
                    if said.is_none_or(|said| stream.write_all(&said).is_err()) {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Runs a short load with one connection.
pub(crate) fn load(system: System, address: &str, more: &[&str]) -> Ended {
    let target = format!("{}://{address}", system.name());
    let brief = ["--target", &target, "--duration", "500ms", "--warmup", "10ms", "--connections", "1"];
    run(&[&brief[..], more].concat())
}
