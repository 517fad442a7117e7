//! The effective options as a configuration file.

use super::declared;
use super::file::{FileKey, file_key};
use super::form::Form;
use super::read::{Configuration, Source};
use super::secret::is_secret;
use crate::option_values::without_user_info;
use clap::Arg;
use std::fmt::{self, Display, Formatter};

impl Display for Configuration {
    /// Writes a configuration file that sets the same options. Each option has a comment with its source. Secrets are
    /// omitted, and user names and passwords in addresses are replaced by `***`.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "# Configuration of waymaker-server {}.", env!("CARGO_PKG_VERSION"))?;
        let options = || self.command.get_arguments().filter_map(|option| Some((option, file_key(option)?)));
        let mut tables = vec![""];
        for (_, FileKey { table, .. }) in options() {
            if !tables.contains(&table) {
                tables.push(table);
            }
        }
        for table in tables {
            if !table.is_empty() {
                writeln!(formatter, "\n[{table}]")?;
            }
            for (option, key) in options().filter(|(_, key)| key.table == table) {
                writeln!(formatter, "{}", self.line(option, &key.name))?;
            }
        }
        for namespace in &self.options.namespaces {
            write!(formatter, "\n{}", declared::text(namespace))?;
        }
        Ok(())
    }
}

impl Configuration {
    fn line(&self, option: &Arg, name: &str) -> String {
        let source = match self.source(option) {
            Source::Flag => format!("flag --{}", option.get_long().unwrap_or_default()),
            Source::Variable => {
                let variable = option.get_env().unwrap_or_default();
                format!("environment variable {}", variable.to_string_lossy())
            }
            Source::File => "file".to_owned(),
            Source::Default => "default".to_owned(),
        };
        let raw = self.matches.get_raw(option.get_id().as_str());
        let texts: Vec<_> =
            raw.into_iter().flatten().map(|text| text.to_string_lossy().into_owned()).collect();
        if texts.is_empty() {
            return format!("# {name} is not set # {source}");
        }
        if is_secret(option) {
            return format!("# {name} is set and not shown # {source}");
        }
        format!("{name} = {} # {source}", value(Form::of(option), &texts))
    }
}

/// Returns a value as written in the file, without the user and the password in an address.
fn value(form: Form, texts: &[String]) -> toml::Value {
    let text = || texts.concat();
    match form {
        Form::Text if text().contains("://") => without_user_info(&text()).into(),
        Form::Text => text().into(),
        Form::Number => text().parse::<i64>().map_or_else(|_| text().into(), toml::Value::from),
        Form::Flag => text().parse::<bool>().map_or_else(|_| text().into(), toml::Value::from),
        Form::List => texts.iter().map(|text| without_user_info(text)).collect::<Vec<_>>().into(),
    }
}
