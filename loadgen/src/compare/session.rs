//! What all parts of one comparison share: options, targets, and the servers that were started.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use super::identity::{Build, Identity};
use super::options::CompareOptions;
use crate::address::{Address, System};
use crate::process::Process;
use crate::programs::Programs;
use crate::programs::server::{Server, Setup};
use crate::scope::Scope;

/// One target of a comparison.
#[derive(Debug)]
pub struct Contestant {
    /// Which contestant it is.
    pub identity: Identity,
    /// Where it is.
    pub address: Address,
    /// Its process, where it is known.
    pub process: Option<Process>,
    /// Kept for as long as it is measured; `None` if it was there before.
    pub server: Option<Server>,
}

/// One comparison.
#[derive(Debug)]
pub struct Session<'a> {
    /// What was asked for.
    pub options: &'a CompareOptions,
    /// Seed of the first round.
    pub seed: u64,
    /// Programs of the servers that are started; absent without `--spawn`.
    pub programs: Option<Programs>,
    /// The same programs with the older build of our server; absent without `--baseline-bin`.
    pub baseline_programs: Option<Programs>,
    /// Ends it early.
    pub stop: Arc<AtomicBool>,
    /// How far it is.
    pub bar: ProgressBar,
    /// What should be read beside the numbers.
    pub notes: Vec<String>,
}

impl Contestant {
    /// One that was there before.
    pub(crate) fn existing(address: Address) -> Result<Self> {
        if address.is_encrypted {
            bail!("--targets {address}: compare loads nothing through TLS; use run --target {address}");
        }
        let process = Process::listening_at(address.resolve()?);
        Ok(Self { identity: address.system.into(), address, process, server: None })
    }

    /// The contestant of `others` with the same identity; itself if there is none.
    pub(crate) fn or_same_of<'a>(&'a self, others: &'a [Self]) -> &'a Self {
        others.iter().find(|other| other.identity == self.identity).unwrap_or(self)
    }
}

impl<'a> Session<'a> {
    /// Finds the programs of servers that are to be started, and draws the seed if the options have none.
    pub fn new(options: &'a CompareOptions, stop: &Arc<AtomicBool>) -> Result<Self> {
        let programs = options.spawn.then(|| Programs::find(options.server_bin.as_deref())).transpose()?;
        let programs = programs.map(|programs| programs.with_slock_source(options.slock_source.as_deref()));
        let baseline_programs = options
            .baseline_bin
            .as_ref()
            .zip(programs.as_ref())
            .map(|(path, programs)| programs.with_server(path));
        Ok(Self {
            options,
            seed: options.seed.unwrap_or_else(crate::plan::draw_seed),
            baseline_programs: baseline_programs.transpose()?,
            programs,
            stop: Arc::clone(stop),
            bar: ProgressBar::new(0),
            notes: Vec::new(),
        })
    }

    /// The programs from which servers of this build are started.
    pub fn programs_of(&self, build: Build) -> Result<&Programs> {
        match build {
            Build::Current => self.programs.as_ref().context("servers are started only with --spawn"),
            Build::Baseline => {
                self.baseline_programs.as_ref().context("an older build is started only with --baseline-bin")
            }
        }
    }

    /// Starts the server of a contestant, in scope quorum with the etcd that counts its locks.
    pub fn start(
        &self,
        identity: impl Into<Identity>,
        busy_poll: bool,
        quorum: Option<&Address>,
    ) -> Result<Contestant> {
        let identity = identity.into();
        let programs = self.programs_of(identity.build)?;
        let CompareOptions { server_core: core, scope, .. } = *self.options;
        let setup = Setup { core, busy_poll, scope, folder: self.options.folder(), quorum };
        let server = Server::start(programs, identity.system, setup)?;
        Ok(Contestant {
            identity,
            address: server.address.clone(),
            process: Some(server.process()),
            server: Some(server),
        })
    }

    /// Starts one more server for each contestant that is our server and was started here. These servers spin before they
    /// sleep.
    pub fn start_spinning(&self, contestants: &[Contestant]) -> Result<Vec<Contestant>> {
        let ours = contestants.iter().filter(|one| one.identity.system.is_ours() && one.server.is_some());
        ours.map(|one| self.start(one.identity, true, None)).collect()
    }

    /// Notes where what servers write is not written to a disk.
    pub(crate) fn look_at_disk(&mut self, folder: Option<&Path>) -> Result<()> {
        let Some(folder) = folder.filter(|_| self.options.spawn) else { return Ok(()) };
        let shown = folder.display();
        let system = statfs(folder).with_context(|| format!("--dir {shown}: no such directory"))?;
        if system.filesystem_type() == TMPFS_MAGIC {
            let note = format!(
                "**The servers wrote to {shown}, which is memory (tmpfs): a sync costs nothing there, so these numbers say \
                 nothing about durable locks.** Name a directory on a disk with --dir."
            );
            eprintln!("warning: --dir {shown} is memory (tmpfs), where a sync costs nothing");
            self.notes.push(note);
        }
        Ok(())
    }

    /// All targets that were asked for. A system that cannot be started is a column that is missing, named in the
    /// notes; our own must be there.
    pub fn contestants(&mut self) -> Result<Vec<Contestant>> {
        let mut contestants = Vec::<Contestant>::new();
        let mut targets = self.options.targets.clone();
        if targets.is_empty() {
            if !self.options.spawn {
                bail!(
                    "compare needs --targets ADDRESS,ADDRESS,... of servers that run, or --spawn to start them"
                );
            }
            let compared = System::ALL.into_iter().filter(|system| self.options.includes(*system));
            targets = compared.map(|system| system.name().to_owned()).collect();
        }
        if self.options.scope == Scope::Quorum {
            // It has to be there before the server whose locks it counts.
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
                    bail!("--targets {target}: a name needs --spawn; otherwise give its address")
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
                bail!("--targets: {} is there twice, and columns are named by system", contestant.identity);
            }
            contestants.push(contestant);
        }
        contestants.sort_by_key(|one| !one.identity.system.is_ours());
        Ok(contestants)
    }
}

/// Why a system is not measured.
fn why_not(system: System, options: &CompareOptions) -> &'static str {
    match (system, options.front) {
        (_, None) if options.scope == Scope::Quorum => {
            "with --scope quorum only puts of etcd are compared with ours"
        }
        (_, Some(_)) => "it is not among those that this front end is compared with",
        (System::Etcd, None) => "it has no locks but durable ones; compare them with --scope local",
        (System::Consul | System::Postgres | System::Slock, None) => "it has no column; use run --target",
        (_, None) => "it is compared with --front only",
    }
}
