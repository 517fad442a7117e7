//! Entrants of a contest: systems with the scope of their locks, and the servers started for them.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::result::Contestant;
use crate::address::Address;
use crate::compare::options::CompareOptions;
use crate::compare::session::{self, Session};
use crate::programs::Programs;
use crate::programs::server::{Server, Setup};
use crate::scope::Scope;
use crate::system::System;

/// Systems of a contest, in the order of a report.
pub const SYSTEMS: [System; 6] =
    [System::Waymaker, System::Redis, System::Etcd, System::Consul, System::Postgres, System::Slock];

/// Time for a new server to become idle.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// The same for a server that elects a leader, starts child processes or reads its directory.
const SETTLE_TIME_LONG: Duration = Duration::from_secs(2);

/// An entrant.
#[derive(Debug)]
pub struct Entrant {
    /// Name in the result.
    pub name: String,
    /// Address and server of the entrant.
    pub contestant: session::Contestant,
    /// Options, with the scope of the entrant's locks.
    pub options: CompareOptions,
    /// Whether a load has run on its server.
    is_loaded: bool,
}

impl Entrant {
    /// Prepares for another load: replaces a server that this program started and loaded, so that its old state
    /// does not affect the next result. Returns the time that the new server needs to become idle.
    pub fn renew(&mut self, session: &Session<'_>) -> Result<Duration> {
        let (Some(programs), Some(_)) = (&session.programs, &self.contestant.server) else {
            return Ok(Duration::ZERO);
        };
        if std::mem::replace(&mut self.is_loaded, true) {
            // Stop the old server first, because both run on the same core.
            self.contestant.server = None;
            self.contestant = start(programs, self.contestant.identity.system, &self.options)?;
        }
        Ok(match self.contestant.identity.system {
            System::Waymaker | System::Redis => SETTLE_TIME,
            _ => SETTLE_TIME_LONG,
        })
    }
}

/// All requested entrants.
#[derive(Debug)]
pub struct Entrants {
    /// Entrants whose servers are running.
    pub running: Vec<Entrant>,
    /// All entrants, including missing ones.
    pub contestants: Vec<Contestant>,
    /// Reasons why entrants are missing unexpectedly.
    pub failures: Vec<String>,
}

/// Returns the system of a target, by its name or by the scheme of its address.
pub fn system_of(target: &str) -> Option<System> {
    let name = target.split_once("://").map_or(target, |(scheme, _)| scheme);
    System::ALL.into_iter().find(|system| system.name() == name)
}

impl Entrants {
    /// Starts a server for each name, and checks the servers with an address.
    pub fn gather(session: &mut Session<'_>) -> Result<Self> {
        let options = session.options;
        let mut targets = options.targets.clone();
        if targets.is_empty() {
            if !options.spawn {
                bail!(
                    "a contest needs --spawn to start servers, or --targets ADDRESS,ADDRESS,... for running servers"
                );
            }
            targets = SYSTEMS.map(|system| system.name().to_owned()).to_vec();
        }
        let targets: Vec<(System, Option<Address>)> =
            targets.iter().map(|target| parse(target, options.spawn)).collect::<Result<_>>()?;
        for (place, (system, _)) in targets.iter().enumerate() {
            if targets[..place].iter().any(|(other, _)| other == system) {
                bail!("--targets contains {} twice", system.name());
            }
        }
        session.look_at_disk(Some(folder(options)))?;
        let mut all = Self { running: Vec::new(), contestants: Vec::new(), failures: Vec::new() };
        for (system, address) in targets {
            let is_started = address.is_none();
            for &scope in scopes(system, options.scope, is_started) {
                if session.stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                all.add(session, system, address.clone(), scope);
            }
        }
        if all.running.is_empty() {
            let why = all.contestants.iter().filter_map(|one| Some((&one.name, one.absent.as_ref()?)));
            let why: Vec<String> = why.map(|(name, why)| format!("{name}: {why}")).collect();
            bail!("no system takes part: {}", why.join("; "));
        }
        Ok(all)
    }

    fn add(&mut self, session: &Session<'_>, system: System, address: Option<Address>, scope: Scope) {
        let name = match scope {
            Scope::Ephemeral => system.name().to_owned(),
            other => format!("{} {}", system.name(), other.name()),
        };
        let options = CompareOptions { scope, ..session.options.clone() };
        let (version, contestant) = match (&session.programs, address) {
            (_, Some(address)) => ("unknown".to_owned(), session::Contestant::existing(address)),
            (Some(programs), None) => {
                eprintln!("starting {name}");
                match programs.missing(system) {
                    Some(why) => {
                        self.absent(system, name, scope, why.to_owned());
                        return;
                    }
                    None => (programs.version(system), start(programs, system, &options)),
                }
            }
            (None, None) => return,
        };
        match contestant {
            Ok(contestant) => {
                self.contestants.push(described(system, name.clone(), scope, version, None));
                self.running.push(Entrant { name, contestant, options, is_loaded: false });
            }
            Err(error) => {
                self.failures.push(format!("{name}: {error:#}"));
                self.absent(system, name, scope, format!("{error:#}"));
            }
        }
    }

    fn absent(&mut self, system: System, name: String, scope: Scope, why: String) {
        self.contestants.push(described(system, name, scope, String::new(), Some(why)));
    }

    /// Returns notes about these systems for readers of the numbers.
    pub fn notes(&self) -> Vec<String> {
        let has = |system| self.running.iter().any(|entrant| entrant.contestant.identity.system == system);
        let mut notes = vec![
            "Locks of these systems differ in durability. Compare locks in memory with each other, and locks that \
             are on a disk before the grant with each other."
                .to_owned(),
        ];
        let polling: Vec<&str> =
            SYSTEMS.into_iter().filter(|system| polls(*system) && has(*system)).map(System::name).collect();
        if !polling.is_empty() {
            notes.push(format!(
                "{} have no waiters: a client that finds the key held polls, with up to 16 connections after 1 \
                 ms, with more \
                 after 20 ms.",
                polling.join(" and ")
            ));
        }
        notes
    }
}

/// Whether a client of this system polls for a key that another client holds.
pub fn polls(system: System) -> bool {
    matches!(system, System::Redis | System::Consul)
}

/// Starts a server, with a directory if it writes files.
pub fn start(programs: &Programs, system: System, options: &CompareOptions) -> Result<session::Contestant> {
    // Waymaker has a data directory in every scope, as in production.
    let scope = if system == System::Waymaker { Scope::Local } else { options.scope };
    let setup = Setup {
        core: options.server_core,
        busy_poll: false,
        scope,
        has_rights: false,
        folder: Some(folder(options)),
        quorum: None,
    };
    let server = Server::start(programs, system, setup)?;
    Ok(session::Contestant {
        identity: system.into(),
        address: server.address.clone(),
        process: Some(server.process()),
        server: Some(server),
    })
}

/// Returns the directory for the files of the servers.
fn folder(options: &CompareOptions) -> &std::path::Path {
    options.dir.as_deref().unwrap_or(std::path::Path::new("."))
}

/// Returns the scopes that a system takes part with: for a Waymaker server started here, all its scopes.
fn scopes(system: System, scope: Scope, is_started: bool) -> &'static [Scope] {
    match (system, scope) {
        (System::Waymaker, Scope::Ephemeral) if is_started => &[Scope::Ephemeral, Scope::Local],
        (System::Waymaker | System::Redis, Scope::Local) => &[Scope::Local],
        _ => &[Scope::Ephemeral],
    }
}

/// Parses a target: the system, and the address if the target is one.
fn parse(target: &str, spawn: bool) -> Result<(System, Option<Address>)> {
    let names = SYSTEMS.map(System::name).join(", ");
    let Some(system) = system_of(target).filter(|system| SYSTEMS.contains(system)) else {
        bail!(
            "--targets {target} is not part of a contest; use {names}, or an address such as redis://127.0.0.1:6379"
        );
    };
    if target == system.name() {
        if !spawn {
            bail!("--targets {target}: a name needs --spawn; without --spawn, use an address");
        }
        return Ok((system, None));
    }
    let address: Address = target.parse().with_context(|| format!("--targets {target}"))?;
    if address.is_encrypted {
        bail!("--targets {target}: compare does not support TLS; use run --target {target}");
    }
    Ok((system, Some(address)))
}

fn described(
    system: System,
    name: String,
    scope: Scope,
    version: String,
    absent: Option<String>,
) -> Contestant {
    Contestant {
        name,
        version,
        lock: system.lock_words().to_owned(),
        outlives: system.outlives(scope).to_owned(),
        absent,
    }
}
