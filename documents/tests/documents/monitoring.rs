//! The rules for Prometheus, the dashboard for Grafana and the table of the metrics agree. `monitoring/check` runs promtool on the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;
use waymaker_documents::links::headings;

use crate::root;

const RULES: &str = "monitoring/waymaker.rules.yml";
const DASHBOARD: &str = "monitoring/grafana/waymaker.json";
const OPERATIONS: &str = "docs/operations.md";
/// Data source of every query: a variable, so that the dashboard works in every Grafana.
const DATASOURCE: &str = "${datasource}";

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the metrics of the table in the reference, with their types.
fn documented() -> BTreeMap<String, String> {
    let text = text("docs/reference/metrics.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let known = ["waymaker_", "locket_"];
    rows.filter(|(name, _)| known.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(name, rest)| (name.to_owned(), rest.split(' ').next().unwrap_or_default().to_owned()))
        .collect()
}

/// Returns the names of metrics in a text, also of recorded ones.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || "_:".contains(letter)));
    words.filter(|word| word.contains("waymaker_") || word.starts_with("locket_")).collect()
}

/// Returns the name of the metric that a series belongs to.
fn metric_of<'a>(series: &'a str, documented: &BTreeMap<String, String>) -> &'a str {
    let of_histogram = ["_bucket", "_sum", "_count"].iter().filter_map(|suffix| series.strip_suffix(suffix));
    let is_histogram = |name: &&str| documented.get(*name).is_some_and(|kind| kind == "histogram");
    of_histogram.into_iter().find(is_histogram).unwrap_or(series)
}

/// Returns the values of a key in the rules.
fn values_in_rules<'a>(rules: &'a str, key: &str) -> Vec<&'a str> {
    let key = format!("{key}: ");
    rules.lines().filter_map(|line| line.trim_start().trim_start_matches("- ").strip_prefix(&*key)).collect()
}

/// Returns all panels, those in rows too.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        found.push(panel);
        found.extend(panel["panels"].as_array().into_iter().flatten());
    }
    found
}

fn dashboard() -> Value {
    serde_json::from_str(&text(DASHBOARD)).expect("the dashboard is JSON")
}

#[test]
fn every_metric_of_the_rules_and_the_dashboard_is_documented() {
    let (documented, rules) = (documented(), text(RULES));
    assert!(documented.len() > 20, "the table of the metrics was not found");
    let recorded: BTreeSet<_> = values_in_rules(&rules, "record").into_iter().collect();
    let dashboard = dashboard();
    let mut queries: Vec<_> = panels(&dashboard)
        .into_iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
        .map(|target| target["expr"].as_str().expect("a query").to_owned())
        .collect();
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    queries.extend(variables.iter().filter_map(|variable| Some(variable["definition"].as_str()?.to_owned())));
    assert!(queries.len() > 40, "the queries of the dashboard were not found");
    queries.push(rules.clone());
    let mut used = BTreeSet::new();
    for query in &queries {
        for series in named(query) {
            let metric = metric_of(series, &documented);
            let is_known = documented.contains_key(metric) || recorded.contains(series);
            assert!(is_known, "docs/reference/metrics.md has no {series}, which this uses: {query}");
            used.insert(metric.to_owned());
        }
    }
    let own = documented.keys().filter(|name| name.starts_with("waymaker_"));
    let unused: Vec<_> = own.filter(|name| !used.contains(*name)).collect();
    assert!(unused.is_empty(), "neither the rules nor the dashboard show {unused:?}");
}

#[test]
fn the_dashboard_works_with_every_data_source_and_selects_servers() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "the id of {title:?} is taken");
        if panel["type"] == "row" {
            continue;
        }
        assert!(
            panel["description"].as_str().is_some_and(|text| text.ends_with('.')),
            "{title:?} says nothing"
        );
        assert_eq!(panel["datasource"]["uid"], DATASOURCE, "{title:?}");
        let targets = panel["targets"].as_array().expect("queries");
        assert!(!targets.is_empty(), "{title:?} is empty");
        for target in targets {
            assert_eq!(target["datasource"]["uid"], DATASOURCE, "{title:?}");
            let query = target["expr"].as_str().expect("a query");
            let selectors = query.matches(r#"{job=~"$job", instance=~"$instance""#).count();
            let series = query.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
            let series = series.filter(|word| word.starts_with("waymaker_") || *word == "up").count();
            assert_eq!(selectors, series, "{title:?} does not select servers: {query}");
        }
    }
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let names: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["datasource", "job", "instance", "namespace"]);
    let annotations = dashboard["annotations"]["list"].as_array().expect("annotations");
    for shown in variables[1..].iter().chain(annotations) {
        assert_eq!(shown["datasource"]["uid"], DATASOURCE, "{}", shown["name"]);
    }
}

#[test]
fn every_alert_says_what_to_do_and_has_a_row_in_the_table() {
    let (rules, operations) = (text(RULES), text(OPERATIONS));
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 10, "the alerts were not found");
    let mut names = BTreeSet::new();
    for alert in alerts {
        let name = alert.lines().next().expect("a name");
        names.insert(name.to_owned());
        for key in ["expr", "for", "severity", "summary", "description"] {
            assert!(!values_in_rules(alert, key).is_empty(), "{name} has no {key}");
        }
        let runbook = values_in_rules(alert, "runbook");
        let (document, heading) = runbook.first().and_then(|runbook| runbook.split_once('#')).expect(name);
        assert!(headings(&text(document)).contains(heading), "{name}: {document} has no heading #{heading}");
    }
    let rows = operations.lines().filter_map(|line| line.strip_prefix("| `Waymaker")?.split_once('`'));
    let rows: BTreeSet<_> = rows.map(|(name, _)| format!("Waymaker{name}")).collect();
    assert_eq!(rows, names, "{OPERATIONS} has one row for each alert");
}
