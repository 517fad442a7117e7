//! Meaning of a DynamoDB condition for a lock.
//!
//! A condition is evaluated for every possible kind of row. Conditions that are true for the same kinds have the same
//! meaning, regardless of their wording.

use super::attribute::string;
use super::expression::{Comparator, Condition, Operand};
use super::instant;

/// Purpose of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The write succeeds if there is no row, or if the row belongs to the owner that the condition names. It also
    /// succeeds if the lease of another owner has expired and the grace period after that lease is over.
    Take,
    /// The condition is true if the row belongs to the owner that the condition names, even if its lease has expired.
    Keep,
}

/// Possible kinds of rows. `Own` is a row of the owner that the condition names, and `Other` a row of another owner.
/// The leases of `OwnOver` and `OtherOver` have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    Absent,
    Own,
    OwnOver,
    Other,
    OtherOver,
}

impl Row {
    const ALL: [Self; 5] = [Self::Absent, Self::Own, Self::OwnOver, Self::Other, Self::OtherOver];

    fn is_present(self) -> bool {
        self != Self::Absent
    }

    fn is_own(self) -> bool {
        matches!(self, Self::Own | Self::OwnOver)
    }

    fn is_over(self) -> bool {
        matches!(self, Self::OwnOver | Self::OtherOver)
    }
}

/// For each meaning of a condition (to take a lock or to keep it), the kinds of rows for which such a condition is
/// true. The kinds have the order of [`Row::ALL`].
const MEANINGS: [(Meaning, [bool; 5]); 2] =
    [(Meaning::Take, [true, true, true, false, true]), (Meaning::Keep, [false, true, true, false, false])];

const SUPPORTED: &str = "this server serves conditions that take a lock: attribute_not_exists(key) OR leasedUntil < :now OR owner = \
                         :owner; and conditions that keep one: owner = :owner";

/// Returns whether a condition takes or keeps the lock of this key, and the owner that the condition names. The row of
/// the key stores the lock.
///
/// # Errors
/// Returns an error message for the client if the condition has no meaning for a lock.
pub(super) fn meaning<'a>(condition: &Condition<'a>, key: &str) -> Result<(Meaning, &'a str), String> {
    let mut reader = Reader { key, owner: None, instant: None };
    let rows = Row::ALL.map(|row| reader.is_true(condition, row));
    let [absent, own, own_over, other, other_over] = rows;
    let rows = [absent?, own?, own_over?, other?, other_over?];
    let found = MEANINGS.iter().find(|(_, true_for)| *true_for == rows).map(|(meaning, _)| *meaning);
    // A condition that means `Take` or `Keep` is true for a row of the owner that it names (`Own`), but not for a row
    // of another owner (`Other`). So it compares the owner, and the reader has found the owner that it names.
    found
        .zip(reader.owner)
        .ok_or_else(|| format!("the ConditionExpression has no meaning for a lock: {SUPPORTED}"))
}

struct Reader<'a, 'k> {
    key: &'k str,
    /// Owner that all comparisons of `owner` so far name; `None` before the first of them.
    owner: Option<&'a str>,
    /// Time with which the condition compares `leasedUntil` in its parts that were evaluated so far, as written there.
    /// `None` before the first such comparison.
    instant: Option<&'a str>,
}

impl<'a> Reader<'a, '_> {
    fn is_true(&mut self, condition: &Condition<'a>, row: Row) -> Result<bool, String> {
        match condition {
            Condition::Any(terms) => {
                terms.iter().try_fold(false, |any, term| Ok(self.is_true(term, row)? || any))
            }
            Condition::All(terms) => {
                terms.iter().try_fold(true, |all, term| Ok(self.is_true(term, row)? && all))
            }
            Condition::Not(term) => self.is_true(term, row).map(|is_true| !is_true),
            Condition::Exists(attribute) => exists(attribute, row),
            Condition::NotExists(attribute) => exists(attribute, row).map(|exists| !exists),
            Condition::Compare(Operand::Attribute(name), comparator, Operand::Value(value)) => {
                self.compare(name, *comparator, string_of(name, value)?, row)
            }
            Condition::Compare(Operand::Value(value), comparator, Operand::Attribute(name)) => {
                self.compare(name, comparator.reversed(), string_of(name, value)?, row)
            }
            Condition::Compare(..) => {
                Err(format!("a comparison needs one attribute and one value: {SUPPORTED}"))
            }
        }
    }

    fn compare(
        &mut self,
        name: &str,
        comparator: Comparator,
        value: &'a str,
        row: Row,
    ) -> Result<bool, String> {
        match (name, comparator) {
            ("key", Comparator::Equal) if value == self.key => Ok(row.is_present()),
            ("key", Comparator::Equal) => {
                Err("the condition compares `key` with another key than that of the row".to_owned())
            }
            ("owner", Comparator::Equal) => self.is_owner(value).map(|()| row.is_own()),
            // A missing attribute differs from every value.
            ("owner", Comparator::NotEqual) => self.is_owner(value).map(|()| !row.is_own()),
            ("leasedUntil", Comparator::Less | Comparator::LessOrEqual) => {
                self.is_instant(value).map(|()| row.is_over())
            }
            ("leasedUntil", Comparator::Greater | Comparator::GreaterOrEqual) => {
                self.is_instant(value).map(|()| row.is_present() && !row.is_over())
            }
            _ => Err(format!(
                "the condition compares `{name}` in a way that has no meaning for a lock: {SUPPORTED}"
            )),
        }
    }

    fn is_owner(&mut self, owner: &'a str) -> Result<(), String> {
        if *self.owner.get_or_insert(owner) == owner {
            return Ok(());
        }
        Err("the condition names two owners".to_owned())
    }

    /// Checks the time that a comparison names. The server compares leases with its own clock and ignores the value.
    /// But an invalid time is a client error, and so are two differently written times in one condition.
    fn is_instant(&mut self, instant: &'a str) -> Result<(), String> {
        match self.instant {
            Some(known) if known == instant => Ok(()),
            Some(_) => Err("the condition compares `leasedUntil` with two instants".to_owned()),
            None if instant::parse_ms(instant).is_some() => {
                self.instant = Some(instant);
                Ok(())
            }
            None => Err(format!(
                "`leasedUntil` is compared with {instant:?}; a time has the form 2026-11-27T17:00:00Z"
            )),
        }
    }
}

/// Returns whether a row of this kind has this attribute. Every lock has the attributes `key`, `owner` and
/// `leasedUntil`; any other attribute is an error.
fn exists(attribute: &str, row: Row) -> Result<bool, String> {
    match attribute {
        "key" | "owner" | "leasedUntil" => Ok(row.is_present()),
        other => Err(format!(
            "the condition asks whether `{other}` exists; this server knows that of key, owner and leasedUntil"
        )),
    }
}

fn string_of<'a>(name: &str, value: &'a serde_json::Value) -> Result<&'a str, String> {
    string(value).ok_or_else(|| format!("`{name}` is compared with a value that is not of type S"))
}

#[cfg(test)]
mod tests {
    use super::super::expression::{Placeholders, parse};
    use super::*;
    use serde_json::{Map, json};

    const TAKE: &str = "attribute_not_exists(key) OR leasedUntil < :t OR owner = :o";

    fn read(text: &str) -> Result<(Meaning, String), String> {
        let values = json!({
            ":o": {"S": "me"}, ":p": {"S": "you"}, ":t": {"S": "2026-11-29T21:00:00.5+01:00"}, ":k": {"S": "key 1"}, ":u": {"S": "2026-11-29T22:00:00Z"},
            ":n": {"N": "1"},
        });
        let mut values = values.as_object().unwrap().clone();
        values.retain(|name, _| text.contains(name.as_str()));
        let names = Map::new();
        let condition = parse(text, Placeholders { names: &names, values: &values }).expect(text);
        meaning(&condition, "key 1").map(|(meaning, owner)| (meaning, owner.to_owned()))
    }

    #[test]
    fn conditions_that_are_true_for_the_same_rows_mean_the_same() {
        for text in [
            TAKE,
            "owner = :o OR (:t > leasedUntil OR (attribute_not_exists(owner)))",
            "NOT (attribute_exists(key) AND owner <> :o AND leasedUntil >= :t)",
            "NOT attribute_exists(leasedUntil) OR leasedUntil <= :t OR :o = owner OR owner = :o",
            "NOT (leasedUntil > :t) OR owner = :o",
            "NOT (:t <= leasedUntil) OR owner = :o",
            "attribute_not_exists(key) OR :t >= leasedUntil OR owner = :o",
        ] {
            assert_eq!(read(text), Ok((Meaning::Take, "me".to_owned())), "{text}");
        }
        for text in [
            "owner = :o",
            "NOT owner <> :o",
            "attribute_exists(key) AND owner = :o",
            "key = :k AND NOT owner <> :o",
        ] {
            assert_eq!(read(text), Ok((Meaning::Keep, "me".to_owned())), "{text}");
        }
    }

    #[test]
    fn other_conditions_have_no_meaning() {
        for text in [
            "attribute_not_exists(key)",
            "attribute_exists(key)",
            "attribute_not_exists(key) OR owner = :o",
            "attribute_not_exists(key) OR leasedUntil < :t",
            "leasedUntil < :t OR owner = :o",
            "owner = :o AND leasedUntil > :t",
            "NOT owner = :o",
            "owner = :o OR owner = :p",
            "owner > :o",
            "owner = owner",
            "owner = key",
            ":o = :o",
            "key = :o",
            "owner = :o AND (leasedUntil < :t OR leasedUntil > :u)",
            "key = :o AND owner = :o",
            "attribute_not_exists(key) OR leasedUntil < :o OR owner = :o",
            "key <> :k",
            "leasedUntil = :t",
            "leasedUntil < :o",
            "owner = :n",
            "ttl < :t OR owner = :o",
            "attribute_not_exists(ttl) OR owner = :o",
        ] {
            read(text).expect_err(text);
        }
    }

    /// A term is checked even if it does not affect the result.
    #[test]
    fn every_term_is_checked() {
        read(&format!("{TAKE} OR (owner = :o AND version = :n)")).expect_err("version means nothing");
        for text in [
            "owner = :o AND (attribute_exists(key) OR attribute_not_exists(key) OR version = :n)",
            "owner = :o OR (attribute_exists(key) AND attribute_not_exists(key) AND version = :n)",
        ] {
            read(text).expect_err(text);
        }
    }
}
