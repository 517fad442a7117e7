//! `simulator/defects/README.md`: which defect is found by how many seeds, as it was last recorded.

use std::collections::BTreeMap;
use std::fmt::Write;

const TITLE: &str = "\
# Defects

Each `.toml` file here is a deliberate defect: the promise that it breaks, and the replacements of text that cause it. The program
`defects` plants each in a copy of the sources and requires that a check finds it:

```text
cargo run -p waymaker-simulator --bin defects -- --help
```

A defect changes only bodies of functions. So one build can have all of them: a function has a body for each of its defects beside its
own, and the variable `PLANTED_DEFECT` of the environment chooses.

The program writes this file (`--record`). It fails if a defect needs more than twice as many seeds as recorded here and more than 20
seeds more, or if the seeds of the simulator need more than 1.5 times the instructions.

";

/// Recorded result of one check for one defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Seeds to find it; `None` if the check does not run seeds, or does not find it.
    pub(crate) seed_count: Option<u64>,
    /// The rule that was broken.
    pub(crate) rule: String,
    pub(crate) promise: String,
}

/// The recorded table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Instructions of a seed.
    pub(crate) instructions: Option<u64>,
    /// By name of the defect and of the check.
    pub(crate) rows: BTreeMap<(String, String), Row>,
}

impl Table {
    /// Reads what [`Table::write`] wrote. Lines that it cannot read count as not recorded.
    pub(crate) fn parse(text: &str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("Instructions of a seed: ") {
                table.instructions =
                    rest.split(' ').next().and_then(|number| number.replace(',', "").parse().ok());
            }
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if let ["", defect, finder, seed_count, rule, promise, ""] = cells[..]
                && !matches!(defect, "defect" | "---")
            {
                let row =
                    Row { seed_count: seed_count.parse().ok(), rule: rule.into(), promise: promise.into() };
                table.rows.insert((defect.into(), finder.into()), row);
            }
        }
        table
    }

    pub(crate) fn write(&self) -> String {
        let mut text = TITLE.to_owned();
        if let Some(instructions) = self.instructions {
            let _ = writeln!(
                text,
                "Instructions of a seed: {} (the mean of the first 10, profile `dev`).\n",
                with_commas(instructions)
            );
        }
        text += "| defect | found by | seeds | rule | promise |\n|---|---|---|---|---|\n";
        for ((defect, finder), Row { seed_count, rule, promise }) in &self.rows {
            let seed_count = seed_count.map(|count| count.to_string()).unwrap_or_default();
            let _ = writeln!(text, "| {defect} | {finder} | {seed_count} | {rule} | {promise} |");
        }
        text
    }

    /// Whether seeds are recorded that find a defect.
    pub(crate) fn has_seeds(&self, defect: &str, finder: &str) -> bool {
        self.rows.get(&(defect.into(), finder.into())).is_some_and(|row| row.seed_count.is_some())
    }

    /// Whether a defect needs far more seeds than recorded.
    pub(crate) fn is_slower(&self, defect: &str, finder: &str, seed_count: u64) -> bool {
        let recorded = self.rows.get(&(defect.into(), finder.into())).and_then(|row| row.seed_count);
        recorded.is_some_and(|recorded| seed_count > 2 * recorded && seed_count > recorded + 20)
    }
}

/// Writes a number with a comma after every three digits.
pub(crate) fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let row = Row { seed_count: Some(30), rule: "exclusion".into(), promise: "It holds.".into() };
        let other = Row { seed_count: None, ..row.clone() };
        let rows = [(("a".into(), "simulator".into()), row), (("b".into(), "loom".into()), other)];
        Table { instructions: Some(12_345_678), rows: rows.into() }
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        assert_eq!(Table::parse(&table().write()), table());
        assert!(table().write().contains("12,345,678"));
    }

    #[test]
    fn a_defect_is_slower_beyond_twice_its_seeds_and_twenty_more() {
        let table = table();
        assert!(!table.is_slower("a", "simulator", 60));
        assert!(table.is_slower("a", "simulator", 61));
        assert!(!table.is_slower("new", "simulator", 400));
        assert!(!table.is_slower("b", "loom", 400));
        let few = Row { seed_count: Some(2), rule: String::new(), promise: String::new() };
        let table = Table { rows: [(("a".into(), "simulator".into()), few)].into(), ..Table::default() };
        assert!(!table.is_slower("a", "simulator", 22));
        assert!(table.is_slower("a", "simulator", 23));
    }
}
