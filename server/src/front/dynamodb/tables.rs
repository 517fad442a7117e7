//! Tables of a server and their creation and deletion. [`Tables`] decides without I/O.
//!
//! A table that one request is creating or deleting cannot be created or deleted by another. From the start of its
//! deletion, writes do not find a table until it is created again or the deletion has failed.

use super::members::is_table_name;
use super::problem::{Kind, Problem};
use super::space::namespace;
use crate::limits::DYNAMODB_TABLES_MAX;
use crate::namespaces::NamespaceUse;
use std::collections::BTreeMap;
use std::ops::Bound;

/// All tables by name.
#[derive(Debug, Default)]
pub(super) struct Tables {
    by_name: BTreeMap<Box<str>, NamedTable>,
}

/// A table with its namespace.
#[derive(Debug)]
struct NamedTable {
    state: State,
    /// Prevents the removal of the namespace while it is idle. Otherwise the next lock would create it again, and a
    /// server can create only a limited number of namespaces per run.
    namespace: Option<NamespaceUse>,
}

impl From<State> for NamedTable {
    fn from(state: State) -> Self {
        Self { state, namespace: None }
    }
}

/// State of a table. `created_ms` is the creation time in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The configuration declares the table.
    Declared,
    Creating,
    Active {
        created_ms: i64,
    },
    Deleting {
        created_ms: i64,
    },
}

/// Table as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Creation time in Unix milliseconds; `None` if the configuration declares the table.
    pub(super) created_ms: Option<i64>,
    pub(super) is_deleting: bool,
}

impl Tables {
    /// Adds a table that the configuration declares. Names that a client could not send are ignored.
    pub(super) fn declare(&mut self, name: &str) {
        if is_table_name(name) {
            self.by_name.insert(name.into(), State::Declared.into());
        }
    }

    /// Adds a table of an earlier run, unless a table has this name already.
    pub(super) fn restore(&mut self, name: &str, created_ms: i64) {
        if is_table_name(name) {
            self.by_name.entry(name.into()).or_insert_with(|| State::Active { created_ms }.into());
        }
    }

    fn state(&self, name: &str) -> Option<State> {
        self.by_name.get(name).map(|table| table.state)
    }

    fn set(&mut self, name: &str, state: State) {
        if let Some(table) = self.by_name.get_mut(name) {
            table.state = state;
        }
    }

    /// Returns the number of tables that the configuration does not declare.
    fn own_count(&self) -> usize {
        self.by_name.values().filter(|table| table.state != State::Declared).count()
    }

    /// Returns a table that exists or is being deleted.
    pub(super) fn find(&self, name: &str) -> Result<Table, Problem> {
        match self.state(name) {
            Some(State::Declared) => Ok(Table { created_ms: None, is_deleting: false }),
            Some(State::Active { created_ms }) => {
                Ok(Table { created_ms: Some(created_ms), is_deleting: false })
            }
            Some(State::Deleting { created_ms }) => {
                Ok(Table { created_ms: Some(created_ms), is_deleting: true })
            }
            Some(State::Creating) | None => Err(Problem::no_table(name)),
        }
    }

    /// Rejects a table that does not exist or is being deleted.
    pub(super) fn require(&self, name: &str) -> Result<(), Problem> {
        match self.find(name)? {
            Table { is_deleting: false, .. } => Ok(()),
            _ => Err(Problem::no_table(name)),
        }
    }

    /// Begins the creation of a table. The caller must complete it with [`Tables::end_creation`].
    pub(super) fn begin_creation(&mut self, name: &str) -> Result<(), Problem> {
        let message = match self.state(name) {
            Some(State::Declared | State::Active { .. }) => format!("Table already exists: {name}"),
            Some(State::Creating) => format!("Table is being created: {name}"),
            Some(State::Deleting { .. }) => format!("Table is being deleted: {name}"),
            None => {
                let count = self.own_count();
                if count >= DYNAMODB_TABLES_MAX {
                    let message = format!(
                        "the server has {count} tables, the maximum; delete one, or declare namespaces in its configuration"
                    );
                    return Err(Problem::new(Kind::LimitExceeded, message));
                }
                self.by_name.insert(name.into(), State::Creating.into());
                return Ok(());
            }
        };
        Err(Problem::new(Kind::ResourceInUse, message))
    }

    /// Completes the creation of a table. `created_ms` is `None` if the creation failed.
    pub(super) fn end_creation(&mut self, name: &str, created_ms: Option<i64>) {
        match created_ms {
            Some(created_ms) => self.set(name, State::Active { created_ms }),
            None => drop(self.by_name.remove(name)),
        }
    }

    /// Begins the deletion of a table and returns its creation time. The caller must complete the deletion with
    /// [`Tables::end_deletion`].
    pub(super) fn begin_deletion(&mut self, name: &str) -> Result<i64, Problem> {
        let message = match self.state(name) {
            None => return Err(Problem::no_table(name)),
            Some(State::Active { created_ms }) => {
                self.set(name, State::Deleting { created_ms });
                return Ok(created_ms);
            }
            Some(State::Declared) => {
                format!(
                    "the configuration of the server declares the namespace {}; remove it there",
                    namespace(name)
                )
            }
            Some(State::Creating) => format!("Table is being created: {name}"),
            Some(State::Deleting { .. }) => format!("Table is being deleted: {name}"),
        };
        Err(Problem::new(Kind::ResourceInUse, message))
    }

    /// Completes the deletion of a table. The table stays if the deletion failed.
    pub(super) fn end_deletion(&mut self, name: &str, is_deleted: bool) {
        if is_deleted {
            self.by_name.remove(name);
        } else if let Some(State::Deleting { created_ms }) = self.state(name) {
            self.set(name, State::Active { created_ms });
        }
    }

    /// Prevents the removal of the namespace of a table, as long as the table exists. `find` marks the namespace as
    /// used; it is called if the table exists and its namespace is not marked yet.
    pub(super) fn pin_namespace(&mut self, name: &str, find: impl FnOnce() -> Option<NamespaceUse>) {
        if let Some(table @ NamedTable { namespace: None, .. }) = self.by_name.get_mut(name) {
            table.namespace = find();
        }
    }

    /// Returns the names of at most `count_max` tables that follow `after` in order, without those that are being
    /// created.
    pub(super) fn names_after(&self, after: &str, count_max: usize) -> Vec<String> {
        let range = self.by_name.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        let names =
            range.filter(|(_, table)| table.state != State::Creating).map(|(name, _)| name.to_string());
        names.take(count_max).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXISTS: &str = "Table already exists: jobs";
    const DELETES: &str = "Table is being deleted: jobs";
    const CREATES: &str = "Table is being created: jobs";

    fn with_table() -> Tables {
        let mut tables = Tables::default();
        tables.begin_creation("jobs").unwrap();
        tables.end_creation("jobs", Some(7));
        tables
    }

    fn message<T: std::fmt::Debug>(result: Result<T, Problem>) -> String {
        result.unwrap_err().message
    }

    #[test]
    fn a_table_is_there_once_it_was_created() {
        let mut tables = Tables::default();
        tables.begin_creation("jobs").unwrap();
        tables.require("jobs").unwrap_err();
        tables.find("jobs").unwrap_err();
        assert_eq!(tables.names_after("", 10), [""; 0]);
        assert_eq!(message(tables.begin_creation("jobs")), CREATES);
        assert_eq!(message(tables.begin_deletion("jobs")), CREATES);
        tables.end_creation("jobs", Some(7));
        tables.require("jobs").unwrap();
        assert_eq!(tables.find("jobs"), Ok(Table { created_ms: Some(7), is_deleting: false }));
        assert_eq!(message(tables.begin_creation("jobs")), EXISTS);
    }

    #[test]
    fn a_table_that_could_not_be_created_can_be_created_again() {
        let mut tables = Tables::default();
        tables.begin_creation("jobs").unwrap();
        tables.end_creation("jobs", None);
        assert!(message(tables.begin_deletion("jobs")).contains("not found"));
        tables.begin_creation("jobs").unwrap();
    }

    /// If the table were created again before its deletion has ended, the deletion would release the locks of the new
    /// table.
    #[test]
    fn a_table_is_created_again_only_after_its_deletion() {
        let mut tables = with_table();
        assert_eq!(tables.begin_deletion("jobs"), Ok(7));
        tables.require("jobs").unwrap_err();
        assert_eq!(tables.find("jobs"), Ok(Table { created_ms: Some(7), is_deleting: true }));
        assert_eq!(message(tables.begin_creation("jobs")), DELETES);
        assert_eq!(message(tables.begin_deletion("jobs")), DELETES);
        tables.end_deletion("jobs", true);
        tables.find("jobs").unwrap_err();
        tables.begin_creation("jobs").unwrap();
    }

    #[test]
    fn a_table_stays_if_its_deletion_failed() {
        let mut tables = with_table();
        tables.begin_deletion("jobs").unwrap();
        tables.end_deletion("jobs", false);
        tables.require("jobs").unwrap();
        assert_eq!(tables.begin_deletion("jobs"), Ok(7));
    }

    #[test]
    fn a_declared_table_stays() {
        let mut tables = Tables::default();
        tables.declare("jobs");
        tables.declare("no name");
        assert_eq!(tables.find("jobs"), Ok(Table { created_ms: None, is_deleting: false }));
        assert!(message(tables.begin_deletion("jobs")).contains("lazy/clever/jobs"));
        assert_eq!(message(tables.begin_creation("jobs")), EXISTS);
        assert_eq!(tables.names_after("", 10), ["jobs"]);
    }

    #[test]
    fn tables_have_a_maximum_that_includes_those_that_are_being_created() {
        let mut tables = Tables::default();
        tables.declare("declared");
        for number in 1..DYNAMODB_TABLES_MAX {
            tables.restore(&format!("t-{number}"), 1);
        }
        tables.begin_creation("last").unwrap();
        assert!(message(tables.begin_creation("more")).contains("1000 tables, the maximum"));
        tables.end_creation("last", None);
        tables.begin_creation("more").unwrap();
        tables.end_creation("more", Some(1));
        tables.begin_deletion("more").unwrap();
        message(tables.begin_creation("last"));
        tables.end_deletion("more", true);
        // Restored tables may exceed the maximum: tables that the configuration declared earlier did not count.
        tables.restore("restored", 1);
        tables.restore("one-more", 1);
        tables.require("one-more").unwrap();
        message(tables.begin_creation("last"));
    }

    #[test]
    fn names_are_listed_in_their_order() {
        let mut tables = Tables::default();
        for name in ["c-3", "a-1", "b-2"] {
            tables.restore(name, 1);
        }
        assert_eq!(tables.names_after("", 2), ["a-1", "b-2"]);
        assert_eq!(tables.names_after("a-1", 2), ["b-2", "c-3"]);
        assert_eq!(tables.names_after("b", 2), ["b-2", "c-3"]);
        assert_eq!(tables.names_after("c-3", 2), [""; 0]);
    }
}
