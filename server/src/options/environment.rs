//! Environment variables that look like options but are not.

use super::Options;
use super::nearest::{nearest, suggestion};
use clap::CommandFactory as _;

/// Prefix of the variables of this project.
const PREFIX: &str = "WAYMAKER_";
/// Variables of other programs, without the prefix `WAYMAKER_`: options of `waymaker-ctl`, and variables that it sets
/// for the programs that it runs.
const OF_PROGRAMS: [&str; 12] = [
    "FENCE",
    "KEY",
    "LEASE_MS",
    "LOCK_ID",
    "NAMESPACE",
    "OWNER",
    "SERVER",
    "TLS_CA",
    "TLS_CERT",
    "TLS_KEY",
    "TOKEN",
    "TOKEN_FILE",
];
/// Beginnings of the names of variables for tests and the load generator and of Kubernetes, after the prefix
/// `WAYMAKER_`.
const OF_TESTS: [&str; 12] = [
    "CUTS",
    "DEPTH",
    "FULL_",
    "KILLS",
    "LOADGEN_",
    "QUORUM_CYCLES",
    "REWRITE_",
    "SEED",
    "STRESS_",
    "TEST_",
    "SERVICE_",
    "PORT",
];

/// Returns a warning for each variable of this process that has the prefix of the options but is unknown. Variables of
/// other programs, of tests and of Kubernetes cause no warning.
pub fn unknown_variables() -> Vec<String> {
    warnings(std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()))
}

fn warnings(names: impl Iterator<Item = String>) -> Vec<String> {
    let command = Options::command();
    let known: Vec<_> = command
        .get_arguments()
        .filter_map(|option| Some(option.get_env()?.to_str()?.strip_prefix(PREFIX)?.to_owned()))
        .collect();
    let mut warnings: Vec<_> = names
        .filter_map(|name| {
            let rest = name.strip_prefix(PREFIX)?;
            if known.iter().any(|known| known == rest) || is_of_others(rest) {
                return None;
            }
            let nearest = nearest(rest, known.iter().map(String::as_str));
            let nearest = nearest.map(|known| format!("{PREFIX}{known}"));
            let suggestion = suggestion(nearest.as_deref());
            Some(format!("the environment variable `{name}` is not an option and has no effect{suggestion}"))
        })
        .collect();
    warnings.sort();
    warnings
}

/// Returns whether a variable, named without the prefix `WAYMAKER_`, belongs to another program. Kubernetes sets
/// variables for each service in the namespace of the pod, including services whose names begin with `waymaker`.
fn is_of_others(rest: &str) -> bool {
    let is_of_kubernetes = rest.contains("_SERVICE_HOST")
        || rest.contains("_SERVICE_PORT")
        || rest.contains("_PORT_")
        || rest.ends_with("_PORT");
    OF_PROGRAMS.contains(&rest) || OF_TESTS.iter().any(|start| rest.starts_with(start)) || is_of_kubernetes
}

#[cfg(test)]
mod tests {
    use super::warnings;

    #[test]
    fn a_misspelt_variable_is_named_with_the_nearest_option() {
        let names = ["WAYMAKER_WORKER", "WAYMAKER_WORKERS", "OTHER", "WAYMAKER_XYZ"];
        let expected = [
            "the environment variable `WAYMAKER_WORKER` is not an option and has no effect; did you mean `WAYMAKER_WORKERS`?",
            "the environment variable `WAYMAKER_XYZ` is not an option and has no effect",
        ];
        assert_eq!(warnings(names.into_iter().map(str::to_owned)), expected);
    }

    #[test]
    fn variables_of_clients_tests_and_kubernetes_are_not_reported() {
        let names = [
            "WAYMAKER_SERVER",
            "WAYMAKER_TOKEN",
            "WAYMAKER_FENCE",
            "WAYMAKER_SEED_COUNT",
            "WAYMAKER_REWRITE_DOCS",
            "WAYMAKER_PORT",
            "WAYMAKER_SERVICE_HOST",
            "WAYMAKER_GRPC_SERVICE_PORT_GRPC",
            "WAYMAKER_PORT_7420_TCP_ADDR",
        ];
        assert_eq!(warnings(names.into_iter().map(str::to_owned)), [""; 0]);
    }
}
