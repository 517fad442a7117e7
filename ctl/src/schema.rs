//! `schema`: the JSON Schemas of the output.

use std::collections::BTreeMap;

use clap::Args;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use crate::exit::Exit;
use crate::output::{NoteObject, complain, print};
use crate::problem::ErrorObject;
use crate::{backup, locks, log, namespaces, pools, prefixes, registry, server, throttle, tls, tokens};

pub(crate) const HELP: &str = "\
With --json each command prints one object per line; a schema describes one such
object. `error` and `note` describe the objects on stderr. Without COMMAND, one
JSON object with all schemas is printed. Later versions may add members.

Examples:
  waymaker-ctl schema locks list
  waymaker-ctl schema locks list --waiting
  waymaker-ctl schema error
  waymaker-ctl schema | jq keys";

#[derive(Debug, Args)]
pub(crate) struct SchemaArguments {
    /// Command such as `locks list`, or `error`, or `note` [default: all]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Print the schema of COMMAND with the option --waiting
    #[arg(long, requires = "command")]
    waiting: bool,
}

/// The output of one command, or of stderr.
pub(crate) struct Output {
    /// The command without the name of the program, perhaps with an option, or `error`, or `note`.
    pub(crate) name: &'static str,
    pub(crate) schema: fn() -> Schema,
}

/// Every JSON output.
pub(crate) const OUTPUTS: [Output; 37] = [
    output::<backup::BackupObject>("backup"),
    output::<backup::BackupObject>("backup verify"),
    output::<locks::acquire::AcquiredObject>("locks acquire"),
    output::<locks::extend::ExtendedObject>("locks extend"),
    output::<locks::force_release::ReleasedObject>("locks force-release"),
    output::<locks::inspect::KeyObject>("locks inspect"),
    output::<locks::list::HeldObject>("locks list"),
    output::<locks::waiting::WaitingObject>("locks list --waiting"),
    output::<locks::verify::VerificationObject>("locks verify"),
    output::<locks::watch::StateObject>("locks watch"),
    output::<log::LogObject>("log inspect"),
    output::<log::LogObject>("log verify"),
    output::<namespaces::NamespaceObject>("namespaces list"),
    output::<namespaces::RemovedObject>("namespaces remove"),
    output::<pools::PoolDetailsObject>("pools inspect"),
    output::<pools::PoolObject>("pools list"),
    output::<pools::CapacityObject>("pools remove"),
    output::<pools::CapacityObject>("pools resize"),
    output::<prefixes::PrefixObject>("prefixes freeze"),
    output::<prefixes::PrefixObject>("prefixes thaw"),
    output::<registry::RegistrationObject>("presence get"),
    output::<registry::RegistrationObject>("presence list"),
    output::<registry::RegistrationObject>("registry get"),
    output::<registry::RegistrationObject>("registry list"),
    output::<registry::RemovedObject>("registry remove"),
    output::<registry::RegisteredObject>("registry set"),
    output::<backup::RestoredObject>("restore"),
    output::<server::ServerObject>("server status"),
    output::<throttle::BucketObject>("throttle"),
    output::<tls::CertificateObject>("tls client"),
    output::<tls::CertificateObject>("tls init"),
    output::<tls::RevokedObject>("tls revoke"),
    output::<tokens::CreatedObject>("tokens create"),
    output::<tokens::TokenObject>("tokens list"),
    output::<tokens::RevokedObject>("tokens revoke"),
    output::<ErrorObject>("error"),
    output::<NoteObject>("note"),
];

const fn output<T: JsonSchema>(name: &'static str) -> Output {
    Output { name, schema: schema_of::<T> }
}

fn schema_of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

pub(crate) fn run(arguments: &SchemaArguments) -> Exit {
    let option = if arguments.waiting { " --waiting" } else { "" };
    let name = arguments.command.join(" ") + option;
    let text = if name.is_empty() {
        let all: BTreeMap<_, _> = OUTPUTS.iter().map(|output| (output.name, (output.schema)())).collect();
        serde_json::to_string_pretty(&all)
    } else {
        let Some(output) = OUTPUTS.iter().find(|output| output.name == name) else {
            let names: Vec<_> = OUTPUTS.iter().map(|output| output.name).collect();
            let problem = format!("`{name}` has no JSON output; the outputs are: {}", names.join(", "));
            return complain(&problem, Exit::Usage);
        };
        serde_json::to_string_pretty(&(output.schema)())
    };
    print(&format!("{}\n", text.expect("schemas have text keys only")));
    Exit::Success
}
