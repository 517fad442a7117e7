//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use waymaker_client::{AcquireBuilder, FenceScope, LockId, NamespaceKind, Tls};

use crate::exit;
use crate::log;
use crate::output::Format;
use crate::throttle::Rate;

const EXAMPLES: &str = "\
Examples:
  Run a backup, but never two at once:
      waymaker-ctl lock backup -- ./backup.sh
  Skip this run if another one is going on:
      waymaker-ctl lock nightly --wait 0s -- ./nightly.sh
  Run at most three conversions at once on all machines:
      waymaker-ctl semaphore converters --capacity 3 -- ./convert.sh
  Send at most a hundred mails a second:
      waymaker-ctl throttle mail --rate 100/s --wait 1m -- ./send.sh
  Run a server on one of several machines, and on another if that one fails:
      waymaker-ctl elect scheduler -- ./scheduler.sh
  Tell others where to find a worker, as long as it runs:
      waymaker-ctl presence set worker/7 --value 10.0.0.7:80 -- ./worker.sh
  See who holds what:
      waymaker-ctl locks list
  See who holds one key and who waits for it:
      waymaker-ctl status backup
  Be told whenever a key is taken or freed:
      waymaker-ctl watch leader
  Write only if nobody had the lock since:
      waymaker-ctl verify feed $WAYMAKER_FENCE && ./write.sh
  Take a lock away from whoever holds it:
      waymaker-ctl release backup 00000000000000010123456789abcdef
  Let nobody start anything in Europe, and take it back:
      waymaker-ctl freeze eu/
      waymaker-ctl freeze --thaw eu/
  See what a server left on its disk, and whether all of it is whole:
      waymaker-ctl log inspect /var/lib/waymaker
      waymaker-ctl log verify /var/lib/waymaker

Everything can be had as JSON: `--json`. How a shell learns to complete words:
`waymaker-ctl completions --help`. The server is started with `waymaker-server`.";

const LOCK_EXAMPLES: &str = "\
While CMD runs, the lease is renewed. CMD finds in its environment:
  WAYMAKER_KEY      the key
  WAYMAKER_LOCK_ID  the id of the lock, as `release` takes it
  WAYMAKER_FENCE    a number that rises with each grant of the key: pass it
                    to whatever CMD writes to, and let that refuse smaller
                    numbers than the largest it has seen
  WAYMAKER_LEASE_MS the length of the lease that the server granted, in
                    milliseconds

If the lock is lost, or cannot be renewed in time, CMD and all processes it
started get SIGTERM, and SIGKILL a grace later, early enough that nobody else
can have the lock yet. If it is known to have ended, they get SIGKILL at once,
and also if waymaker-ctl itself dies. A process that CMD has started and that
leaves the process group (a daemon, a job of an interactive shell) escapes, and
what CMD leaves running when it ends is not protected. SIGTERM, SIGINT, SIGHUP
and SIGQUIT are passed on to CMD, which is continued if it is stopped. The lock
is released when CMD has ended.

CMD gets the terminal if it reads or changes it, also if stdin is a pipe. Ctrl-Z
stops CMD and waymaker-ctl; the lock is not renewed until they are continued
with `fg` or `bg`, and CMD is killed if the lock would be lost before that.

Examples:
  Wait as long as it takes:
      waymaker-ctl lock deploy/eu -- ./deploy.sh eu
  Wait five seconds, then give up with exit code 120:
      waymaker-ctl lock deploy/eu --wait 5s -- ./deploy.sh eu
  Many may read while nobody writes:
      waymaker-ctl lock report --read -- ./print-report.sh
  Let a crashed machine block the others for ten seconds at most:
      waymaker-ctl lock leader --lease 10s -- ./serve.sh
  Keep the lock, and let its fence go on, if the server or its machine crashes:
      waymaker-ctl lock feed --scope local -- ./feed.sh
  Let a database refuse a writer that is too late:
      waymaker-ctl lock feed -- \\
          sh -c 'psql -v fence=$WAYMAKER_FENCE -f update.sql'
";

const SEMAPHORE_EXAMPLES: &str = "\
A semaphore is a pool of permits. CMD runs while its permits are held, as under
`lock`, and finds the same in its environment; WAYMAKER_KEY is the name of the
pool. All who use a pool must name the same capacity.

Examples:
  At most three at once, and the others wait:
      waymaker-ctl semaphore converters --capacity 3 -- ./convert.sh
  A large one counts twice; give up if it cannot start within a minute:
      waymaker-ctl semaphore converters --capacity 3 --permits 2 --wait 1m -- ./convert.sh large
  See who holds permits and who waits:
      waymaker-ctl status --pool converters
";

const ELECT_EXAMPLES: &str = "\
One leads, the others stand by, and what happens is said on stderr. CMD runs
while this one leads, as under `lock`, and finds the same in its environment.
If it is the leader no more, CMD is stopped in time, and this one stands by
again. A server that cannot be reached any more is tried again, without limit.
When CMD ends by itself that is the end, and another one leads at once; start
it again to stand by again.

Examples:
  On each of several machines:
      waymaker-ctl elect scheduler -- ./scheduler.sh
  Let another one lead ten seconds after a machine has vanished, at the latest:
      waymaker-ctl elect scheduler --lease 10s -- ./scheduler.sh
  Let fences go on over a crash of the server:
      waymaker-ctl elect scheduler --scope local -- ./scheduler.sh
  See who leads and who stands by:
      waymaker-ctl status scheduler
";

const PRESENCE_EXAMPLES: &str = "\
A presence is an entry of the registry, which says that something is there and
whose it is. It is kept while CMD runs, and taken out when CMD has ended. If
this machine vanishes it goes a --ttl later. It keeps nobody out but others who
claim the same name. CMD is stopped if waymaker-ctl itself dies, but not where
the entry cannot be kept for a while, which is said on stderr.

Examples:
  Tell others where to find a worker, as long as it runs:
      waymaker-ctl presence set worker/7 --value 10.0.0.7:80 -- ./worker.sh
  The same for something that runs elsewhere, until interrupted:
      waymaker-ctl presence set printer --value 10.0.0.9 --type device
  See who is there, and where one of them is:
      waymaker-ctl presence list
      waymaker-ctl presence get worker/7 --output json | jq -r .value
  See everything that is registered, whatever its type:
      waymaker-ctl entries
";

const COMPLETIONS_EXAMPLES: &str = "\
The shell must find the script when it starts.

Examples:
  bash, with the package bash-completion:
      mkdir -p ~/.local/share/bash-completion/completions
      waymaker-ctl completions bash \\
          > ~/.local/share/bash-completion/completions/waymaker-ctl
  zsh, with `fpath=(~/.zfunc $fpath)` before `compinit` in ~/.zshrc:
      mkdir -p ~/.zfunc
      waymaker-ctl completions zsh > ~/.zfunc/_waymaker-ctl
  fish:
      waymaker-ctl completions fish > ~/.config/fish/completions/waymaker-ctl.fish
  For this shell alone:
      source <(waymaker-ctl completions bash)
";

const THROTTLE_EXAMPLES: &str = "\
A bucket holds at most --burst tokens and gets --rate of them back. If it has
enough for --cost, they are taken, and CMD takes the place of this program, or
without CMD it is told what is left. If not, it is told when to come again, and
the exit code is 119. All who use a bucket should name the same rate and burst.

Examples:
  At most five a minute, and skip what is too much:
      waymaker-ctl throttle alerts --rate 5/m -- ./alert.sh
  A hundred a second, twenty at once, and wait for up to ten seconds:
      waymaker-ctl throttle mail --rate 100/s --burst 20 --wait 10s -- ./send.sh
  See what is left:
      waymaker-ctl throttle mail --rate 100/s --burst 20 --peek
";

/// Returns the text with the exit codes of a subcommand that runs no command.
fn question_help(text: &str) -> String {
    format!("{}\n\n{}", text.trim_end(), exit::QUESTION_HELP)
}

/// Locks from the shell: run a command under a lock, see who holds what, release what is stuck.
#[derive(Debug, Parser)]
#[command(
    name = "waymaker-ctl",
    version,
    after_help = format!("{EXAMPLES}\n\n{}\n\n{}", exit::HELP, exit::ERRORS_HELP),
    subcommand_required = true
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct OutputArguments {
    /// How results are printed and errors told
    #[arg(long, global = true, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
    /// The same as --output json
    #[arg(long, global = true)]
    json: bool,
}

impl OutputArguments {
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// The server: waymaker://HOST:PORT, waymaker+tls://HOST:PORT if it encrypts, or waymaker+unix:///PATH
    #[arg(
        long,
        global = true,
        env = "WAYMAKER_SERVER",
        default_value = "waymaker://127.0.0.1:7420",
        value_name = "URL"
    )]
    pub(crate) server: String,
    /// Who must have signed the certificate of a waymaker+tls:// server, in PEM [default: whom the system believes]
    #[arg(long, global = true, env = "WAYMAKER_TLS_CA", value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The certificate that is shown to a waymaker+tls:// server, in PEM
    #[arg(long, global = true, env = "WAYMAKER_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, global = true, env = "WAYMAKER_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The namespace of all keys
    #[arg(long, global = true, env = "WAYMAKER_NAMESPACE", default_value = "default", value_name = "NAME")]
    pub(crate) namespace: String,
    /// Whom others see when they meet a lock of this run; by default USER@HOST and the process
    #[arg(long, global = true, env = "WAYMAKER_OWNER", value_name = "TEXT")]
    pub(crate) owner: Option<String>,
    /// How long to try to reach the server, at the start and whenever the connection is lost, and to wait for the answer to one
    /// request [default: 5s, and at the start no longer than --wait or 1s]
    #[arg(long, global = true, value_parser = humantime::parse_duration, value_name = "TIME")]
    connect_timeout: Option<Duration>,
}

/// How long to try to reach the server if the command line does not say so.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// The same before a short wait.
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);

impl Connection {
    /// How long to try to reach the server.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(CONNECT_TIMEOUT_DEFAULT)
    }

    /// How long to try to reach the server before a wait of the given length.
    pub(crate) fn connect_timeout_before(&self, wait: Option<Duration>) -> Duration {
        match (self.connect_timeout, wait) {
            (None, Some(wait)) => wait.clamp(CONNECT_TIMEOUT_MIN, CONNECT_TIMEOUT_DEFAULT),
            _ => self.connect_timeout(),
        }
    }

    /// Whom to believe, and whom to be, if the server encrypts.
    pub(crate) fn tls(&self) -> Tls {
        let mut tls = Tls::new();
        if let Some(ca) = &self.tls_ca {
            tls = tls.ca_file(ca);
        }
        if let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) {
            tls = tls.identity_files(cert, key);
        }
        tls
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    #[command(after_help = format!("{LOCK_EXAMPLES}\n{}", exit::HELP))]
    Lock(LockArguments),
    /// Run a command while holding permits of a pool
    #[command(after_help = format!("{SEMAPHORE_EXAMPLES}\n{}", exit::HELP))]
    Semaphore(SemaphoreArguments),
    /// Run a command on one of many machines, and on another when that one fails
    #[command(after_help = format!("{ELECT_EXAMPLES}\n{}", exit::HELP))]
    Elect(ElectArguments),
    /// Say that something is there, for as long as it is, and see what else is
    #[command(after_help = format!("{PRESENCE_EXAMPLES}\n{}", exit::HELP))]
    Presence {
        #[command(subcommand)]
        command: PresenceCommand,
    },
    /// Take tokens of a bucket, and run a command if there are enough
    #[command(after_help = format!("{THROTTLE_EXAMPLES}\n{}", exit::HELP))]
    Throttle(ThrottleArguments),
    /// All locks of the namespace
    #[command(after_help = exit::QUESTION_HELP)]
    Locks {
        #[command(subcommand)]
        command: LocksCommand,
    },
    /// Who holds a key and who waits for it
    #[command(after_help = exit::QUESTION_HELP)]
    #[command(visible_alias = "inspect")]
    Status(StatusArguments),
    /// Say so whenever a key becomes held or free, beginning with how it is now
    #[command(after_help = question_help("It goes on until it is interrupted, also over lost connections. A state that lasted for too \
                            short a time to be read is left out."))]
    Watch(WatchArguments),
    /// Ask whether the grant with this fence is still the newest of its key
    #[command(after_help = question_help("The exit code is 0 if it is, held or not, and 121 if it is not: the key was granted again since.\n\nExample:\n  \
                      waymaker-ctl verify feed $WAYMAKER_FENCE && ./write.sh"))]
    Verify(VerifyArguments),
    /// List the entries of the registry, with their types and values, ordered by key
    #[command(after_help = exit::QUESTION_HELP)]
    Entries(EntriesArguments),
    /// List the pools of the namespace, with their capacities and permits in use, ordered by name
    #[command(after_help = question_help("The list has pools in use, and pools whose capacity was set with `set-capacity`. The latter stay until \
                      they are removed.\n\nExamples:\n  waymaker-ctl pools\n  waymaker-ctl pools --prefix \
                      eu/\n  waymaker-ctl set-capacity eu/converters 0    # removes a pool that nobody uses"))]
    Pools(PoolsArguments),
    /// Set how many permits a pool has, whoever holds some
    #[command(after_help = question_help("Nobody loses a permit: where more are held than there are now, nobody gets one until enough came \
                      back. Who waits for more than there will ever be is refused. From then on the pool stays, also \
                      while nobody uses it; `pools` lists it.\n\nExample:\n  waymaker-ctl set-capacity converters 5"))]
    SetCapacity(SetCapacityArguments),
    /// Take a lock away from whoever holds it, or end somebody's wait for it, by its id
    #[command(after_help = question_help("Who holds it, or waits, is told at once. The ids stand in `locks list` and `status`."))]
    Release(ReleaseArguments),
    /// Take a lock away as an operator, and tell its holder why
    #[command(after_help = question_help("The ids stand in `locks list` and `status`.\n\nExample:\n  waymaker-ctl force-release \
                      00000000000000010123456789abcdef --reason 'the host is gone'"))]
    ForceRelease(ForceReleaseArguments),
    /// Stop new grants of all keys with a prefix, or let them go on
    #[command(after_help = question_help("What is held stays held and can be renewed. Who waits goes on waiting, and who does not want to \
                      wait is refused.\n\nExamples:\n  waymaker-ctl freeze eu/\n  waymaker-ctl freeze --thaw eu/\n  \
                      waymaker-ctl freeze --kind pool ''"))]
    Freeze(FreezeArguments),
    /// All namespaces of the server, with what is held in them and what happened in them since it began
    #[command(after_help = exit::QUESTION_HELP)]
    Namespaces,
    /// Change the namespaces of the server
    #[command(after_help = exit::QUESTION_HELP)]
    Namespace {
        #[command(subcommand)]
        command: NamespaceCommand,
    },
    /// Look at a data directory, or check it, without a server
    #[command(after_help = log::EXAMPLES)]
    Log {
        #[command(subcommand)]
        command: log::Command,
    },
    /// Print a script that completes words of waymaker-ctl in a shell
    #[command(after_help = question_help(COMPLETIONS_EXAMPLES))]
    Completions(CompletionsArguments),
    /// Kills its own process group when its stdin ends
    #[command(hide = true)]
    Watchdog,
}

const REMOVE_NAMESPACE_HELP: &str = "The name is the one that `namespaces` shows, such as sem/jobs. Idle keys do not count: their fences \
    go on if the namespace is made again. The server refuses to remove a namespace of a front end, and one that a connection uses or that has \
    a claim, an entry, a frozen prefix, a pool with a set capacity, or a bucket that is not full. It removes idle namespaces by itself after a \
    minute.\n\nExample:\n  waymaker-ctl namespace remove sem/jobs";

#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceCommand {
    /// Remove a namespace in which there is nothing
    #[command(after_help = question_help(REMOVE_NAMESPACE_HELP))]
    Remove(RemoveNamespaceArguments),
}

#[derive(Debug, Args)]
pub(crate) struct RemoveNamespaceArguments {
    /// Name of the namespace, as `namespaces` shows it
    pub(crate) name: OsString,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LocksCommand {
    /// List the locks that are held, ordered by key and id
    #[command(after_help = exit::QUESTION_HELP)]
    List(ListArguments),
}

#[derive(Debug, Args)]
pub(crate) struct LockArguments {
    /// What to lock
    pub(crate) key: OsString,
    /// Share the lock with other readers
    #[arg(long)]
    pub(crate) read: bool,
    /// Larger is served earlier
    #[arg(long, value_name = "NUMBER")]
    pub(crate) priority: Option<u32>,
    #[command(flatten)]
    pub(crate) wait: WaitArguments,
    #[command(flatten)]
    pub(crate) guarded: GuardedArguments,
}

#[derive(Debug, Args)]
pub(crate) struct SemaphoreArguments {
    /// The pool
    pub(crate) name: OsString,
    /// How many permits the pool has
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) capacity: u64,
    /// How many of them to take
    #[arg(long, default_value = "1", value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) permits: u64,
    #[command(flatten)]
    pub(crate) wait: WaitArguments,
    #[command(flatten)]
    pub(crate) guarded: GuardedArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ElectArguments {
    /// What to lead: a key, as `lock` takes it
    pub(crate) name: OsString,
    #[command(flatten)]
    pub(crate) guarded: GuardedArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PresenceCommand {
    /// Keep an entry of the registry while a command runs, or until interrupted, and take it out then
    #[command(after_help = format!("{PRESENCE_EXAMPLES}\n{}", exit::HELP))]
    Set(PresenceSetArguments),
    /// List who is there, ordered by name
    #[command(after_help = exit::HELP)]
    List(PresenceListArguments),
    /// Look one up; exit code 118 if it is not there
    #[command(after_help = exit::HELP)]
    Get(PresenceGetArguments),
}

#[derive(Debug, Args)]
pub(crate) struct PresenceSetArguments {
    /// What is there: the key of its entry
    pub(crate) name: OsString,
    /// What others are to know about it, such as an address
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    pub(crate) value: OsString,
    /// What kind of thing it is
    #[arg(long = "type", default_value = "presence", value_name = "TYPE")]
    pub(crate) type_name: OsString,
    /// How long it stays there should this machine vanish, at most 24h
    #[arg(long, default_value = "15s", value_parser = lease, value_name = "TIME")]
    pub(crate) ttl: Duration,
    /// The command to run, and its arguments [default: none, until interrupted]
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct PresenceListArguments {
    /// Those of just this type
    #[arg(long = "type", default_value = "presence", value_name = "TYPE")]
    pub(crate) type_name: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct PresenceGetArguments {
    /// Which one
    pub(crate) name: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// Which shell
    pub(crate) shell: Shell,
}

/// How long to wait for what is to be held.
#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// How long to wait once the server is reached; 0s does not wait [default: without limit]
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) wait: Option<Duration>,
}

impl WaitArguments {
    /// The acquire as this argument wants it.
    pub(crate) fn apply<G>(&self, acquire: AcquireBuilder<G>) -> AcquireBuilder<G> {
        match self.wait {
            Some(wait) => acquire.wait(wait),
            None => acquire,
        }
    }
}

/// The longest lease that servers grant.
const LEASE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Parses a lease. A server would shorten a longer one without a word.
fn lease(text: &str) -> Result<Duration, String> {
    let lease = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if lease > LEASE_MAX {
        return Err(format!("a lease of {text} is too long; the maximum is 24h"));
    }
    Ok(lease)
}

/// How a command runs under what it holds.
#[derive(Debug, Args)]
pub(crate) struct GuardedArguments {
    /// How long it stays held should this machine vanish, at most 24h [default: the server's, 30s]
    #[arg(long, value_parser = lease, value_name = "TIME")]
    pub(crate) lease: Option<Duration>,
    /// How long CMD may take to end after SIGTERM if what it holds is lost; at most a third of the lease
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) grace: Duration,
    /// What it outlives [default: ephemeral, or what the key had before if that is more]
    #[arg(long, value_enum, value_name = "SCOPE")]
    pub(crate) scope: Option<Scope>,
    /// The command to run and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What a fence, and what is held under it, outlives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// Nothing but a clean stop of the server
    Ephemeral,
    /// A crash of the server or of its machine
    Local,
    /// The loss of the server's disk
    Quorum,
}

impl From<Scope> for FenceScope {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Ephemeral => Self::Ephemeral,
            Scope::Local => Self::Local,
            Scope::Quorum => Self::Quorum,
        }
    }
}

impl GuardedArguments {
    /// The acquire as these arguments want it.
    pub(crate) fn apply<G>(&self, mut acquire: AcquireBuilder<G>) -> AcquireBuilder<G> {
        if let Some(lease) = self.lease {
            acquire = acquire.lease(lease);
        }
        if let Some(scope) = self.scope {
            acquire = acquire.scope(scope.into());
        }
        acquire
    }
}

#[derive(Debug, Args)]
pub(crate) struct ThrottleArguments {
    /// The bucket
    pub(crate) name: OsString,
    /// How many tokens come back in which time, such as 100/s, 5/m or 1/250ms
    #[arg(long, value_name = "NUMBER/TIME")]
    pub(crate) rate: Rate,
    /// How many tokens the bucket holds when it is full [default: the number of the rate]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) burst: Option<u32>,
    /// How many tokens to take
    #[arg(long, default_value = "1", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cost: u32,
    /// Look without taking
    #[arg(long, conflicts_with_all = ["cost", "wait", "command"])]
    pub(crate) peek: bool,
    /// How long it may take until there are enough; else it is refused at once [default: not at all]
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) wait: Option<Duration>,
    /// The command to run, and its arguments, if there are enough
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What lies in a namespace. Those of trees, pools and entries are named after that of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Plain keys
    Flat,
    /// Paths
    Tree,
    /// Permits of pools
    Pool,
    /// Entries that end with their lease
    Registry,
    /// Entries that stay until somebody else takes their key
    Lazy,
}

impl Kind {
    /// All kinds, in the order in which they are listed.
    pub(crate) const ALL: [Self; 5] = [Self::Flat, Self::Tree, Self::Pool, Self::Registry, Self::Lazy];
}

impl From<Kind> for NamespaceKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Flat => Self::Flat,
            Kind::Tree => Self::Tree,
            Kind::Pool => Self::Pool,
            Kind::Registry => Self::Registry,
            Kind::Lazy => Self::Lazy,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Only keys that begin with this, or paths at or below it, written with slashes
    #[arg(long, default_value = "", value_name = "PREFIX", hide_default_value = true)]
    pub(crate) prefix: OsString,
    /// Of which kind [default: of every kind that there is under the name of the namespace]
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) kind: Option<Kind>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// Which key
    pub(crate) key: OsString,
    /// It is a pool: who holds permits and who waits
    #[arg(long)]
    pub(crate) pool: bool,
    /// It is a path, written with slashes: who holds it, or one above or below it, and who waits for these
    #[arg(long, conflicts_with = "pool")]
    pub(crate) tree: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArguments {
    /// The key of the lock
    pub(crate) key: OsString,
    /// The id of the lock: 32 hexadecimal digits
    pub(crate) id: LockId,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// Which key
    pub(crate) key: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Which key
    pub(crate) key: OsString,
    /// The fence of the grant, as WAYMAKER_FENCE has it
    pub(crate) fence: u64,
}

#[derive(Debug, Args)]
pub(crate) struct EntriesArguments {
    /// Only those of just this type
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) type_name: Option<OsString>,
    /// Those that stay until somebody else takes their key
    #[arg(long)]
    pub(crate) lazy: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PoolsArguments {
    /// List only pools whose names begin with this [default: all pools]
    #[arg(long, default_value = "", value_name = "PREFIX", hide_default_value = true)]
    pub(crate) prefix: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct SetCapacityArguments {
    /// The pool
    pub(crate) name: OsString,
    /// Number of permits from now on; 0 removes a pool that nobody uses
    pub(crate) capacity: u64,
}

#[derive(Debug, Args)]
pub(crate) struct ForceReleaseArguments {
    /// The id of the lock: 32 hexadecimal digits
    pub(crate) id: LockId,
    /// Why: told to its holder and written to the server's log
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
    /// Of which kind it is
    #[arg(long, value_enum, default_value = "flat", value_name = "KIND")]
    pub(crate) kind: Kind,
}

#[derive(Debug, Args)]
pub(crate) struct FreezeArguments {
    /// The first bytes of the keys; '' is the whole namespace, as which alone a tree can be frozen
    pub(crate) prefix: OsString,
    /// Take back an earlier freeze of just this prefix
    #[arg(long)]
    pub(crate) thaw: bool,
    /// Of which kind
    #[arg(long, value_enum, default_value = "flat", value_name = "KIND")]
    pub(crate) kind: Kind,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn everything_behind_the_dashes_belongs_to_the_command() {
        let words = ["waymaker-ctl", "lock", "k", "--wait", "0s", "--", "ls", "--wait", "-l"];
        let Command::Lock(lock) = Arguments::try_parse_from(words).unwrap().command else { panic!() };
        assert_eq!(lock.wait.wait, Some(Duration::ZERO));
        assert_eq!(lock.guarded.command, ["ls", "--wait", "-l"]);
    }

    #[test]
    fn a_lock_without_a_command_is_refused() {
        for words in [&["waymaker-ctl", "lock", "k"][..], &["waymaker-ctl", "lock", "k", "ls"]] {
            assert!(Arguments::try_parse_from(words).is_err());
        }
    }
}
