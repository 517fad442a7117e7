//! State of one comparison: options, targets, and the servers it started.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use waymaker_client::Credentials;

use super::identity::{Build, Identity};
use super::options::CompareOptions;
use crate::address::Address;
use crate::process::Process;
use crate::programs::Programs;
use crate::programs::server::{Server, Setup};
use crate::scope::Scope;
use crate::system::System;

/// One target of a comparison.
#[derive(Debug)]
pub struct Contestant {
    /// Identity of the target.
    pub identity: Identity,
    /// Address of the target.
    pub address: Address,
    /// Process of the server, if known.
    pub process: Option<Process>,
    /// Server that this program started; `None` for a server that was already running.
    pub server: Option<Server>,
}

/// One comparison.
#[derive(Debug)]
pub struct Session<'a> {
    /// Options of the comparison.
    pub options: &'a CompareOptions,
    /// Seed of the first round.
    pub seed: u64,
    /// Programs of the servers to start; `None` without `--spawn`.
    pub programs: Option<Programs>,
    /// Programs of the baseline, with the older build of Waymaker; `None` without `--baseline-bin` and `--rights`.
    pub baseline_programs: Option<Programs>,
    /// Set to end the comparison early.
    pub stop: Arc<AtomicBool>,
    /// Progress bar.
    pub bar: ProgressBar,
    /// Notes for readers of the numbers.
    pub notes: Vec<String>,
}

impl Contestant {
    /// Creates a contestant for a server that is already running.
    pub(crate) fn existing(address: Address) -> Result<Self> {
        if address.is_encrypted {
            bail!("--targets {address}: compare does not support TLS; use run --target {address}");
        }
        let process = Process::listening_at(address.resolve()?);
        Ok(Self { identity: address.system.into(), address, process, server: None })
    }

    /// Returns what its clients log in with.
    pub(crate) fn credentials(&self) -> Credentials {
        self.server.as_ref().map(|server| server.credentials.clone()).unwrap_or_default()
    }

    /// Returns the contestant of `others` with the same identity; itself if there is none.
    pub(crate) fn or_same_of<'a>(&'a self, others: &'a [Self]) -> &'a Self {
        others.iter().find(|other| other.identity == self.identity).unwrap_or(self)
    }
}

impl<'a> Session<'a> {
    /// Finds the programs of the servers to start, and draws a seed if the options contain none.
    pub fn new(options: &'a CompareOptions, stop: &Arc<AtomicBool>) -> Result<Self> {
        let programs = options.spawn.then(|| Programs::find(options.server_bin.as_deref())).transpose()?;
        let programs = programs.map(|programs| programs.with_slock_source(options.slock_source.as_deref()));
        let baseline_programs = match (&programs, &options.baseline_bin) {
            (Some(programs), Some(path)) => Some(programs.with_server(path)?),
            (Some(programs), None) if options.rights => Some(programs.clone()),
            _ => None,
        };
        Ok(Self {
            options,
            seed: options.seed.unwrap_or_else(crate::plan::draw_seed),
            baseline_programs,
            programs,
            stop: Arc::clone(stop),
            bar: ProgressBar::new(0),
            notes: Vec::new(),
        })
    }

    /// Returns the programs for servers of this build.
    pub fn programs_of(&self, build: Build) -> Result<&Programs> {
        match build {
            Build::Current => self.programs.as_ref().context("starting a server needs --spawn"),
            Build::Baseline => {
                self.baseline_programs.as_ref().context("starting an older build needs --baseline-bin")
            }
        }
    }

    /// Starts the server of a contestant; with scope quorum also passes the etcd that counts its fences.
    pub fn start(
        &self,
        identity: impl Into<Identity>,
        busy_poll: bool,
        quorum: Option<&Address>,
    ) -> Result<Contestant> {
        let identity = identity.into();
        let programs = self.programs_of(identity.build)?;
        let CompareOptions { server_core: core, scope, .. } = *self.options;
        let has_rights = self.options.rights && identity.build == Build::Current;
        let setup = Setup { core, busy_poll, scope, has_rights, folder: self.options.folder(), quorum };
        let server = Server::start(programs, identity.system, setup)?;
        Ok(Contestant {
            identity,
            address: server.address.clone(),
            process: Some(server.process()),
            server: Some(server),
        })
    }

    /// Starts one more server for each Waymaker contestant that this program started. These servers busy-poll
    /// before they sleep.
    pub fn start_spinning(&self, contestants: &[Contestant]) -> Result<Vec<Contestant>> {
        let ours = contestants.iter().filter(|one| one.identity.system.is_ours() && one.server.is_some());
        ours.map(|one| self.start(one.identity, true, None)).collect()
    }

    /// Adds a note if the servers write to memory instead of a disk.
    pub(crate) fn look_at_disk(&mut self, folder: Option<&Path>) -> Result<()> {
        let Some(folder) = folder.filter(|_| self.options.spawn) else { return Ok(()) };
        let shown = folder.display();
        let system =
            statfs(folder).with_context(|| format!("--dir: the directory {shown} does not exist"))?;
        if system.filesystem_type() == TMPFS_MAGIC {
            let note = format!(
                "**The servers wrote to {shown}, which is memory (tmpfs). A sync costs nothing there, so these \
                 numbers do \
                 not apply to durable locks.** Use --dir to choose a directory on a disk."
            );
            eprintln!("warning: --dir {shown} is memory (tmpfs), where a sync costs nothing");
            self.notes.push(note);
        }
        Ok(())
    }

    /// Returns all requested targets. If a system cannot be started, its column is missing and a note says why;
    /// Waymaker itself is required.
    pub fn contestants(&mut self) -> Result<Vec<Contestant>> {
        let mut contestants = Vec::<Contestant>::new();
        let mut targets = self.options.targets.clone();
        if targets.is_empty() {
            if !self.options.spawn {
                bail!(
                    "compare has no targets; use --targets ADDRESS,ADDRESS,... for running servers, or --spawn \
                     to start servers"
                );
            }
            let compared = System::ALL.into_iter().filter(|system| self.options.includes(*system));
            targets = compared.map(|system| system.name().to_owned()).collect();
        }
        if self.options.scope == Scope::Quorum {
            // etcd must start before the Waymaker server whose fences it counts.
            targets.sort_by_key(|target| target != System::Etcd.name());
        }
        self.look_at_disk(self.options.folder())?;
        for target in targets {
            let system = System::ALL.into_iter().find(|system| system.name() == target);
            if let Some(system) = system.filter(|system| !self.options.includes(*system)) {
                bail!("--targets {target}: {}", why_not(system, self.options));
            }
            let contestant = match (system, &self.programs) {
                (None, _) => Contestant::existing(target.parse().context("--targets")?)?,
                (Some(_), None) => {
                    bail!("--targets {target}: a name needs --spawn; without --spawn, use an address")
                }
                (Some(system), Some(programs)) => match programs.missing(system) {
                    Some(why) if system.is_ours() => bail!("{why}"),
                    Some(why) => {
                        self.notes.push(format!("The column {} is missing: {why}.", system.name()));
                        continue;
                    }
                    None => {
                        let etcd = contestants.iter().find(|one| one.identity.system == System::Etcd);
                        self.start(system, false, etcd.map(|etcd| &etcd.address))?
                    }
                },
            };
            if !self.options.includes(contestant.identity.system) {
                bail!("--targets {target}: {}", why_not(contestant.identity.system, self.options));
            }
            if contestants.iter().any(|other| other.identity == contestant.identity) {
                bail!(
                    "--targets contains {} twice; each system can have only one column",
                    contestant.identity
                );
            }
            contestants.push(contestant);
        }
        contestants.sort_by_key(|one| !one.identity.system.is_ours());
        Ok(contestants)
    }
}

/// Returns why a system is not measured.
fn why_not(system: System, options: &CompareOptions) -> &'static str {
    match (system, options.front) {
        (_, None) if options.scope == Scope::Quorum => "--scope quorum compares only waymaker and etcd",
        (_, Some(_)) => "this front end is not compared with it",
        (System::Etcd, None) => "all its locks are durable; use --scope local",
        (System::Consul | System::Postgres | System::Slock, None) => {
            "compare has no column for it; use run --target"
        }
        (_, None) => "it is compared with --front only",
    }
}
