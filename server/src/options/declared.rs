//! The namespaces that the configuration file declares, each with a table `[[namespace]]`.
//!
//! A declared namespace has no flags and no environment variables, so clap does not know these declarations. This
//! module reads them from the configuration file instead.

use super::file::{line, read_number};
use super::nearest::{nearest, suggestion};
use super::problem::Problem;
use crate::limits::DECLARED_NAMESPACE_COUNT_MAX;
use crate::milliseconds::Milliseconds;
use crate::namespaces::{DeclaredNamespace, built_in_kind};
use crate::option_values::time;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use waymaker_engine::limits::{LEASE_MAX_MS, LEASE_MIN_MS};
use waymaker_engine::{Quotas, Resource, Scope};
use waymaker_protocol::NamespaceKind;
use waymaker_protocol::limits::NAMESPACE_LEN_MAX;

/// Key of the declarations in the file.
pub(super) const KEY: &str = "namespace";
const KEYS: [&str; 5] = ["name", "kind", "default_lease", "min_scope", "quotas"];
const SCOPES: [(&str, Scope); 3] =
    [("ephemeral", Scope::Ephemeral), ("local", Scope::Local), ("quorum", Scope::Quorum)];
/// Resources of claims that a namespace can limit.
const LIMITED: [Resource; 3] = [Resource::Claims, Resource::Waiters, Resource::Bytes];

/// Returns a declaration as the text of a configuration file. Each line ends with the comment `# file`, the source of
/// the value.
pub(super) fn text(namespace: &DeclaredNamespace) -> String {
    let name = toml::Value::from(namespace.name.as_str());
    let mut text =
        format!("[[{KEY}]] # file\nname = {name} # file\nkind = \"{}\" # file\n", namespace.kind.name());
    if let Some(lease) = namespace.default_lease {
        let _ = writeln!(text, "default_lease = \"{lease}\" # file");
    }
    let _ = writeln!(text, "min_scope = \"{}\" # file", scope_name(namespace.min_scope));
    if !namespace.quotas.is_empty() {
        let _ = writeln!(text, "[{KEY}.quotas] # file");
        for resource in LIMITED {
            if let Some(max) = namespace.quotas.get(resource) {
                let _ = writeln!(text, "{} = {max} # file", resource.name());
            }
        }
    }
    text
}

fn scope_name(scope: Scope) -> &'static str {
    SCOPES.iter().find(|(_, own)| *own == scope).map_or("", |(name, _)| *name)
}

/// Returns the declarations in a file.
///
/// # Errors
/// Returns all problems: unknown or missing keys, wrong values, and names that are declared twice. A value that is no
/// array of tables, or a too long one, is the only problem reported.
pub(super) fn parse(
    text: &str,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<DeclaredNamespace>, Vec<Problem>> {
    let mut reader = Reader { text, problems: Vec::new() };
    let Some(tables) = value.get_ref().as_array() else {
        reader.report(value, format!("{KEY}: use an array of tables, [[{KEY}]]"));
        return Err(reader.problems);
    };
    if tables.len() > DECLARED_NAMESPACE_COUNT_MAX {
        let message =
            format!("{KEY}: {} are declared; the maximum is {DECLARED_NAMESPACE_COUNT_MAX}", tables.len());
        reader.report(value, message);
        return Err(reader.problems);
    }
    let mut lines = BTreeMap::new();
    let mut declared = Vec::new();
    for table in tables {
        let Some(entries) = table.get_ref().as_table() else {
            reader.report(table, format!("{KEY}: use a table"));
            continue;
        };
        let Some(namespace) = reader.read(table, entries) else { continue };
        let line = line(text, table.span().start);
        match lines.insert(namespace.name.clone(), line) {
            None => declared.push(namespace),
            Some(first) => {
                let name = namespace.name;
                reader.report(table, format!("{KEY}: \"{name}\" is declared in line {first} too"));
            }
        }
    }
    if reader.problems.is_empty() { Ok(declared) } else { Err(reader.problems) }
}

struct Reader<'a> {
    text: &'a str,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    /// Reads one table. Returns `None` after reporting a problem.
    fn read(&mut self, table: &Spanned<DeValue<'_>>, entries: &DeTable<'_>) -> Option<DeclaredNamespace> {
        let problem_count = self.problems.len();
        let (mut name, mut kind, mut default_lease) = (None, None, None);
        let (mut min_scope, mut quotas) = (Scope::default(), Quotas::default());
        for (key, value) in entries {
            match &**key.get_ref() {
                "name" => name = self.read_name(value),
                "kind" => {
                    kind = self.read_word("kind", value, &NamespaceKind::ALL.map(|kind| (kind.name(), kind)));
                }
                "default_lease" => default_lease = self.read_lease(value),
                "min_scope" => min_scope = self.read_word("min_scope", value, &SCOPES).unwrap_or_default(),
                "quotas" => quotas = self.read_quotas(value).unwrap_or_default(),
                unknown => {
                    let suggestion = suggestion(nearest(unknown, KEYS));
                    self.report(key, format!("unknown key `{KEY}.{unknown}`{suggestion}"));
                }
            }
        }
        for needed in ["name", "kind"] {
            if !entries.keys().any(|key| &**key.get_ref() == needed) {
                self.report(table, format!("{KEY}: `{needed}` is missing"));
            }
        }
        if self.problems.len() > problem_count {
            return None;
        }
        let namespace = DeclaredNamespace { name: name?, kind: kind?, default_lease, min_scope, quotas };
        if let Some(message) = unfit(&namespace) {
            self.report(table, format!("{KEY} \"{}\": {message}", namespace.name));
            return None;
        }
        Some(namespace)
    }

    fn read_name(&mut self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let Some(name) = value.get_ref().as_str() else {
            self.report(value, format!("{KEY}.name: use a string"));
            return None;
        };
        if !(1..=NAMESPACE_LEN_MAX).contains(&name.len()) {
            let message = format!(
                "{KEY}.name: the name is {} bytes long; use 1 to {NAMESPACE_LEN_MAX} bytes",
                name.len()
            );
            self.report(value, message);
            return None;
        }
        Some(name.to_owned())
    }

    fn read_word<T: Copy>(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        words: &[(&str, T)],
    ) -> Option<T> {
        let Some(text) = value.get_ref().as_str() else {
            self.report(value, format!("{KEY}.{key}: use a string"));
            return None;
        };
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            let suggestion = suggestion(nearest(text, words.iter().map(|(word, _)| *word)));
            let message =
                format!("{KEY}.{key}: {text:?} is not valid; use {}{suggestion}", known.join(" or "));
            self.report(value, message);
        }
        found
    }

    fn read_lease(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Milliseconds> {
        let Some(text) = value.get_ref().as_str() else {
            self.report(value, format!("{KEY}.default_lease: use a string"));
            return None;
        };
        let lease = time(u64::from(LEASE_MIN_MS), u64::from(LEASE_MAX_MS))(text);
        lease
            .map_err(|error| {
                self.report(value, format!("{KEY}.default_lease: {text:?} is not valid; {error}"));
            })
            .ok()
    }

    fn read_quotas(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Quotas> {
        let Some(entries) = value.get_ref().as_table() else {
            self.report(value, format!("{KEY}.quotas: use a table"));
            return None;
        };
        let mut quotas = Quotas::default();
        for (key, value) in entries {
            let name: &str = key.get_ref();
            let Some(resource) = LIMITED.into_iter().find(|resource| resource.name() == name) else {
                let suggestion = suggestion(nearest(name, LIMITED.map(Resource::name)));
                self.report(key, format!("unknown key `{KEY}.quotas.{name}`{suggestion}"));
                continue;
            };
            match read_number(value.get_ref()).and_then(|number| u64::try_from(number).ok()) {
                Some(max) => quotas.set(resource, max),
                None => self.report(value, format!("{KEY}.quotas.{name}: use a whole number from 0")),
            }
        }
        Some(quotas)
    }

    fn report<T>(&mut self, at: &Spanned<T>, message: String) {
        self.problems.push(Problem { line: line(self.text, at.span().start), message });
    }
}

/// Returns the reason why a declared namespace has settings that its kind does not allow, or a kind that its built-in
/// name does not allow.
fn unfit(namespace: &DeclaredNamespace) -> Option<String> {
    let kind = namespace.kind;
    if let Some(own) = built_in_kind(namespace.name.as_bytes()).filter(|own| *own != kind) {
        return Some(format!("it is built in and has kind {}, not {}", own.name(), kind.name()));
    }
    let registers = matches!(kind, NamespaceKind::Registry | NamespaceKind::Lazy);
    let is_limit = kind == NamespaceKind::Limit;
    let problem = if namespace.default_lease.is_some() && (registers || is_limit) {
        "has no default lease; leave `default_lease` out"
    } else if namespace.min_scope.is_durable() && is_limit {
        "has no scopes; leave `min_scope` out"
    } else if namespace.min_scope == Scope::Quorum && registers {
        "has no scope quorum; use `local` or `ephemeral`"
    } else if !namespace.quotas.is_empty() && is_limit {
        "has no claims; leave `quotas` out"
    } else {
        return None;
    };
    Some(format!("kind {} {problem}", kind.name()))
}
