//! `tls`: a small CA, and the certificates of a server and its clients.
//!
//! `names` are the names in certificates, `files` is the directory, and `authority` signs. No server is needed.

mod authority;
mod files;
mod names;

use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;

use crate::exit::{self, Exit, Use};
use crate::files::is_unusable;
use crate::output::{complain, show};

use authority::{Authority, Issued, LEAF_DAYS_DEFAULT, Purpose};
use files::{Directory, NewFiles};
use names::{ClientName, ServerName};

pub(crate) const HELP: &str = "\
DIR has these files. Only `tls revoke` replaces a file, clients.crl:

  ca.pem, ca.key          the CA, valid for 10 years. Keep ca.key away from servers
  server.pem, server.key  certificate and key of the server, valid for 1 year
  NAME.pem, NAME.key      certificate and key of a client, valid for 1 year
  clients.crl             revocation list: certificates that are no longer accepted

Files with a key can be read by their owner only.

Examples:
  waymaker-ctl tls init certificates --server-name locks.example --client alice
  waymaker-ctl tls client certificates bob
  waymaker-ctl tls revoke certificates alice";

const INIT_HELP: &str = "\
The server certificate is valid for localhost, 127.0.0.1, ::1 and each
--server-name. The common name of a client certificate is NAME, and so is its
subject alternative name: a URI if NAME contains ://, a DNS name otherwise. The
CA is valid for 10 years, the other certificates for 1 year or --days.

The command creates DIR if it is missing. It writes nothing if one of its files
exists. It prints the commands that start the server and connect to it.

Example:
  waymaker-ctl tls init certificates --server-name locks.example --client alice";

const CLIENT_HELP: &str = "\
The certificate is signed by the CA of DIR, which `tls init` has made. It is valid
for 1 year or --days, but not longer than the CA. The command writes NAME.pem and
NAME.key, and overwrites neither. To renew a certificate, move both files away
first.

Example:
  waymaker-ctl tls client certificates bob";

const REVOKE_HELP: &str = "\
The command adds the certificate in NAME.pem to clients.crl. A server that runs
with --tls-client-crl reads the changed file within a few seconds and refuses new
connections with the certificate. Connections that are open continue until they
end. Keep NAME.pem until the certificate has expired.

Example:
  waymaker-ctl tls revoke certificates alice";

#[derive(Debug, Subcommand)]
pub(crate) enum TlsCommand {
    /// Make a CA, a server certificate and client certificates
    #[command(after_help = exit::after(INIT_HELP, &[Use::Local]))]
    Init(InitArguments),
    /// Make another client certificate
    #[command(after_help = exit::after(CLIENT_HELP, &[Use::Local]))]
    Client(ClientArguments),
    /// Add a client certificate to the revocation list
    #[command(after_help = exit::after(REVOKE_HELP, &[Use::Local]))]
    Revoke(RevokeArguments),
}

#[derive(Debug, Args)]
pub(crate) struct InitArguments {
    /// Directory of the CA, created if it is missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Host name or IP address of the server, beside localhost, 127.0.0.1 and ::1; can be repeated
    #[arg(long = "server-name", value_name = "NAME")]
    server_names: Vec<ServerName>,
    /// Name of a client that gets a certificate; can be repeated
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<ClientName>,
    #[command(flatten)]
    validity: Validity,
}

#[derive(Debug, Args)]
pub(crate) struct ClientArguments {
    /// Directory of the CA
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Name of the client
    name: ClientName,
    #[command(flatten)]
    validity: Validity,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArguments {
    /// Directory of the CA
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Name of the client
    name: ClientName,
}

#[derive(Debug, Args)]
struct Validity {
    /// Number of days for which server and client certificates are valid, 1 to 3650
    #[arg(
        long,
        value_name = "DAYS",
        default_value_t = LEAF_DAYS_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=3650)
    )]
    days: u32,
}

/// A certificate that was made.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Certificate")]
pub(crate) struct CertificateObject {
    /// Purpose of the certificate: ca, server or client.
    purpose: &'static str,
    /// Common name of the certificate.
    name: String,
    /// PEM file with the certificate.
    certificate: String,
    /// PEM file with the private key.
    key: String,
    /// End of the validity in milliseconds since 1970.
    expires_unix_ms: i64,
}

/// A certificate that is no longer accepted.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Revoked certificate")]
pub(crate) struct RevokedObject {
    /// Name of the client.
    name: String,
    /// Hexadecimal digits of the serial number of the certificate.
    serial: String,
    /// File with the revocation list.
    list: String,
    /// Number of certificates in the revocation list.
    revoked_count: u64,
}

/// Why a command of this group failed.
#[derive(Debug)]
struct Failure {
    problem: String,
    exit: Exit,
}

impl Failure {
    /// A failure that other arguments or files would avoid.
    fn usage(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), exit: Exit::Usage }
    }

    /// A file that cannot be read or written.
    fn file(path: &std::path::Path, verb: &str, error: &io::Error) -> Self {
        let exit = if is_unusable(error) { Exit::Usage } else { Exit::Internal };
        Self { problem: format!("cannot {verb} {}: {error}", path.display()), exit }
    }
}

pub(crate) fn run(command: &TlsCommand) -> Exit {
    let result = match command {
        TlsCommand::Init(arguments) => init(arguments),
        TlsCommand::Client(arguments) => client(arguments),
        TlsCommand::Revoke(arguments) => revoke(arguments),
    };
    result.map_or_else(|failure| complain(&failure.problem, failure.exit), |()| Exit::Success)
}

fn init(arguments: &InitArguments) -> Result<(), Failure> {
    let directory = Directory::new(&arguments.directory);
    let stems = arguments.clients.iter().map(ClientName::stem);
    let stems: Vec<_> = ["ca".to_owned(), "server".to_owned()].into_iter().chain(stems).collect();
    directory.check_free(&stems)?;
    directory.check_no_list()?;
    let authority = Authority::new()?;
    let days = arguments.validity.days;
    let server = authority.issue(Purpose::Server(&arguments.server_names), days)?;
    let clients: Vec<_> = arguments
        .clients
        .iter()
        .map(|name| authority.issue(Purpose::Client(name), days))
        .collect::<Result<_, _>>()?;
    let list = authority.revocation_list(&[], 1)?;

    directory.create()?;
    let ca = authority.issued();
    let all =
        [("ca", &ca), ("server", &server)].into_iter().chain(clients.iter().map(|issued| ("client", issued)));
    let (mut new, mut objects) = (NewFiles::default(), Vec::new());
    for ((purpose, issued), stem) in all.zip(&stems) {
        objects.push(write(&directory, &mut new, purpose, stem, issued)?);
    }
    directory.write_list(&mut new, &list)?;
    new.keep();
    show(|| page_of_init(&directory, arguments), objects);
    Ok(())
}

fn client(arguments: &ClientArguments) -> Result<(), Failure> {
    let directory = Directory::new(&arguments.directory);
    let stem = arguments.name.stem();
    directory.check_free(std::slice::from_ref(&stem))?;
    let authority = directory.authority()?;
    let issued = authority.issue(Purpose::Client(&arguments.name), arguments.validity.days)?;
    let mut new = NewFiles::default();
    let object = write(&directory, &mut new, "client", &stem, &issued)?;
    new.keep();
    show(|| page_of_client(&directory, &arguments.name, "HOST"), [object]);
    Ok(())
}

fn revoke(arguments: &RevokeArguments) -> Result<(), Failure> {
    let directory = Directory::new(&arguments.directory);
    let authority = directory.authority()?;
    let revoked = directory.revoke(&authority, &arguments.name)?;
    let list = directory.list().display().to_string();
    let name = arguments.name.to_string();
    let sentence = match revoked.is_new {
        true => format!("{name}: revoked; number of certificates in {list}: {}\n", revoked.count),
        false => format!("{name}: was revoked before; {list} is unchanged\n"),
    };
    let object = RevokedObject { name, serial: revoked.serial, list, revoked_count: revoked.count };
    show(|| sentence, [object]);
    Ok(())
}

/// Writes a certificate and its key.
fn write(
    directory: &Directory,
    new: &mut NewFiles,
    purpose: &'static str,
    stem: &str,
    issued: &Issued,
) -> Result<CertificateObject, Failure> {
    let (certificate, key) = (directory.certificate(stem), directory.key(stem));
    directory.write_pair(new, stem, issued)?;
    Ok(CertificateObject {
        purpose,
        name: issued.common_name.clone(),
        certificate: certificate.display().to_string(),
        key: key.display().to_string(),
        expires_unix_ms: issued.expires_unix_ms,
    })
}

/// Returns the output of `tls init` for people: the commands that come next.
fn page_of_init(directory: &Directory, arguments: &InitArguments) -> String {
    let host = arguments.server_names.first().map_or("localhost".to_owned(), ServerName::in_url);
    let listen = if arguments.server_names.is_empty() { "127.0.0.1:7420" } else { "0.0.0.0:7420" };
    let shown = |path: PathBuf| quoted(&path.display().to_string());
    let mut page = format!(
        "{}: made a CA and the certificate of a server\n\n\
         Start the server:\n  waymaker-server --listen {listen} --tls-cert {} --tls-key {} \\\n    \
         --tls-client-ca {} --tls-client-crl {}\n",
        directory.path().display(),
        shown(directory.certificate("server")),
        shown(directory.key("server")),
        shown(directory.certificate("ca")),
        shown(directory.list()),
    );
    if arguments.clients.is_empty() {
        let path = quoted(&directory.path().display().to_string());
        page.push_str(&format!(
            "\nMake the certificate of a client:\n  waymaker-ctl tls client {path} NAME\n"
        ));
    }
    for client in &arguments.clients {
        page.push('\n');
        page.push_str(&page_of_client(directory, client, &host));
    }
    page
}

/// Returns the command that connects with the certificate of a client.
fn page_of_client(directory: &Directory, client: &ClientName, host: &str) -> String {
    let stem = client.stem();
    let shown = |path: PathBuf| quoted(&path.display().to_string());
    format!(
        "Connect as {client}:\n  waymaker-ctl --server waymaker+tls://{host}:7420 --tls-ca {} \\\n    \
         --tls-cert {} --tls-key {} locks list\n",
        shown(directory.certificate("ca")),
        shown(directory.certificate(&stem)),
        shown(directory.key(&stem)),
    )
}

/// Returns a word as a shell needs it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./+:@%,".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(quoted("/etc/waymaker/ca.pem"), "/etc/waymaker/ca.pem");
        assert_eq!(quoted("my certificates/ca.pem"), "'my certificates/ca.pem'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
