//! Supported condition expressions of DynamoDB as a tree.
//!
//! ```text
//! any     = all { OR all }
//! all     = one { AND one }
//! one     = NOT one | ( any ) | attribute_exists ( name ) | attribute_not_exists ( name ) | operand comparator operand
//! operand = name | :value
//! name    = word | #placeholder
//! ```

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Maximum length of a condition expression in bytes.
const LEN_MAX: usize = 4096;
/// Maximum nesting depth of parentheses and `NOT` in an expression.
const DEPTH_MAX: usize = 32;
/// Maximum number of comparisons and functions in an expression.
const TERM_COUNT_MAX: usize = 300;
/// Maximum number of characters of the rest of the expression that a message quotes after `near:`. A token is quoted in
/// full.
const QUOTED_MAX: usize = 20;

/// Parsed condition expression, with names and values in place of its placeholders.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition<'a> {
    Any(Vec<Self>),
    All(Vec<Self>),
    Not(Box<Self>),
    Exists(&'a str),
    NotExists(&'a str),
    Compare(Operand<'a>, Comparator, Operand<'a>),
}

/// One side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operand<'a> {
    /// The attribute of this name.
    Attribute(&'a str),
    Value(&'a Value),
}

/// Comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparator {
    /// Returns the comparator for swapped operands.
    pub(super) fn reversed(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }
}

/// Values of the placeholders in an expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placeholders<'a> {
    /// Attribute names by `#placeholder`.
    pub(super) names: &'a Map<String, Value>,
    /// Values by `:placeholder`.
    pub(super) values: &'a Map<String, Value>,
}

/// Parses a condition expression, and checks that it uses all placeholders.
///
/// # Errors
/// Returns an error message for the client.
pub(super) fn parse<'a>(text: &'a str, placeholders: Placeholders<'a>) -> Result<Condition<'a>, String> {
    let invalid = |problem: String| format!("Invalid ConditionExpression: {problem}");
    if text.len() > LEN_MAX {
        return Err(invalid(format!(
            "Expression size has exceeded the maximum allowed size; expression size: {}, maximum: {LEN_MAX}",
            text.len()
        )));
    }
    if text.trim().is_empty() {
        return Err(invalid("The expression can not be empty;".to_owned()));
    }
    let mut parser = Parser::new(text, placeholders);
    let condition = parser.any(0).and_then(|condition| match parser.next()? {
        None => Ok(condition),
        Some(token) => Err(parser.unexpected(token)),
    });
    let condition = condition.map_err(invalid)?;
    parser.check_used()?;
    Ok(condition)
}

/// Token of an expression, with its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token<'a> {
    kind: TokenKind,
    text: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    Open,
    Close,
    Comparator(Comparator),
    /// `#placeholder`
    Name,
    /// `:placeholder`
    Value,
    /// A name, a function or a keyword.
    Word,
}

struct Parser<'a> {
    text: &'a str,
    /// Offset of the remaining text in bytes.
    at: usize,
    placeholders: Placeholders<'a>,
    used: BTreeSet<&'a str>,
    term_count: usize,
}

type Parsed<T> = Result<T, String>;

impl<'a> Parser<'a> {
    fn new(text: &'a str, placeholders: Placeholders<'a>) -> Self {
        Self { text, at: 0, placeholders, used: BTreeSet::new(), term_count: 0 }
    }

    fn any(&mut self, depth: usize) -> Parsed<Condition<'a>> {
        let mut terms = vec![self.all(depth)?];
        while self.takes_keyword("OR")? {
            terms.push(self.all(depth)?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Condition::Any(terms) })
    }

    fn all(&mut self, depth: usize) -> Parsed<Condition<'a>> {
        let mut terms = vec![self.one(depth)?];
        while self.takes_keyword("AND")? {
            terms.push(self.one(depth)?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Condition::All(terms) })
    }

    fn one(&mut self, depth: usize) -> Parsed<Condition<'a>> {
        if depth > DEPTH_MAX {
            return Err(format!("The expression is nested deeper than {DEPTH_MAX} levels"));
        }
        if self.takes_keyword("NOT")? {
            return Ok(Condition::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.takes(TokenKind::Open)? {
            let inner = self.any(depth + 1)?;
            self.expect(TokenKind::Close)?;
            return Ok(inner);
        }
        self.term_count += 1;
        if self.term_count > TERM_COUNT_MAX {
            return Err(format!("The expression has more than {TERM_COUNT_MAX} comparisons and functions"));
        }
        let first = self.required()?;
        if first.kind == TokenKind::Word && self.takes(TokenKind::Open)? {
            return self.function(first);
        }
        let left = self.operand(first)?;
        let token = self.required()?;
        let TokenKind::Comparator(comparator) = token.kind else { return Err(self.unexpected(token)) };
        let right = self.required()?;
        Ok(Condition::Compare(left, comparator, self.operand(right)?))
    }

    /// Parses a function after its opening parenthesis.
    fn function(&mut self, name: Token<'a>) -> Parsed<Condition<'a>> {
        let make = match name.text {
            "attribute_exists" => Condition::Exists,
            "attribute_not_exists" => Condition::NotExists,
            other => {
                return Err(format!(
                    "Invalid function name; function: {other}; this server has attribute_exists and attribute_not_exists"
                ));
            }
        };
        let argument = self.required()?;
        let Operand::Attribute(attribute) = self.operand(argument)? else {
            return Err(format!(
                "Operator or function requires a document path; operator or function: {}",
                name.text
            ));
        };
        self.expect(TokenKind::Close)?;
        Ok(make(attribute))
    }

    fn operand(&mut self, token: Token<'a>) -> Parsed<Operand<'a>> {
        match token.kind {
            TokenKind::Word if !is_keyword(token.text) => Ok(Operand::Attribute(token.text)),
            TokenKind::Name => {
                self.used.insert(token.text);
                let name = self.placeholders.names.get(token.text).and_then(Value::as_str);
                name.map(Operand::Attribute).ok_or_else(|| {
                    format!(
                        "An expression attribute name used in the document path is not defined; attribute name: {}",
                        token.text
                    )
                })
            }
            TokenKind::Value => {
                self.used.insert(token.text);
                self.placeholders.values.get(token.text).map(Operand::Value).ok_or_else(|| {
                    format!(
                        "An expression attribute value used in expression is not defined; attribute value: {}",
                        token.text
                    )
                })
            }
            _ => Err(self.unexpected(token)),
        }
    }

    /// Rejects placeholders that the expression does not use.
    fn check_used(&self) -> Parsed<()> {
        for (member, known) in [
            ("ExpressionAttributeNames", self.placeholders.names),
            ("ExpressionAttributeValues", self.placeholders.values),
        ] {
            if let Some(unused) = known.keys().find(|key| !self.used.contains(key.as_str())) {
                return Err(format!("Value provided in {member} unused in expressions: keys: {{{unused}}}"));
            }
        }
        Ok(())
    }

    fn takes_keyword(&mut self, keyword: &str) -> Parsed<bool> {
        self.takes_if(|token| token.kind == TokenKind::Word && token.text.eq_ignore_ascii_case(keyword))
    }

    fn takes(&mut self, kind: TokenKind) -> Parsed<bool> {
        self.takes_if(|token| token.kind == kind)
    }

    fn takes_if(&mut self, is_wanted: impl FnOnce(Token<'a>) -> bool) -> Parsed<bool> {
        let before = self.at;
        let takes = self.next()?.is_some_and(is_wanted);
        if !takes {
            self.at = before;
        }
        Ok(takes)
    }

    fn expect(&mut self, kind: TokenKind) -> Parsed<()> {
        let token = self.required()?;
        if token.kind == kind { Ok(()) } else { Err(self.unexpected(token)) }
    }

    fn required(&mut self) -> Parsed<Token<'a>> {
        let end = "Syntax error; token: \"<EOF>\", near: the end of the expression";
        self.next()?.ok_or_else(|| end.to_owned())
    }

    fn next(&mut self) -> Parsed<Option<Token<'a>>> {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        let Some(first) = rest.chars().next() else { return Ok(None) };
        let (kind, len) = match first {
            '(' => (TokenKind::Open, 1),
            ')' => (TokenKind::Close, 1),
            '=' => (TokenKind::Comparator(Comparator::Equal), 1),
            '<' if rest.starts_with("<>") => (TokenKind::Comparator(Comparator::NotEqual), 2),
            '<' if rest.starts_with("<=") => (TokenKind::Comparator(Comparator::LessOrEqual), 2),
            '<' => (TokenKind::Comparator(Comparator::Less), 1),
            '>' if rest.starts_with(">=") => (TokenKind::Comparator(Comparator::GreaterOrEqual), 2),
            '>' => (TokenKind::Comparator(Comparator::Greater), 1),
            '#' => (TokenKind::Name, 1 + word_len(&rest[1..])),
            ':' => (TokenKind::Value, 1 + word_len(&rest[1..])),
            _ => (TokenKind::Word, word_len(rest)),
        };
        let is_placeholder = matches!(kind, TokenKind::Name | TokenKind::Value);
        if len == 0 || is_placeholder && len == 1 {
            return Err(format!("Syntax error; token: \"{first}\", near: {}", self.near(self.at)));
        }
        self.at += len;
        Ok(Some(Token { kind, text: &rest[..len] }))
    }

    fn unexpected(&self, token: Token<'a>) -> String {
        let begin = self.at - token.text.len();
        let hint = if ["BETWEEN", "IN"].iter().any(|word| token.text.eq_ignore_ascii_case(word)) {
            "; this server does not support BETWEEN and IN"
        } else {
            ""
        };
        format!("Syntax error; token: \"{}\", near: {}{hint}", token.text, self.near(begin))
    }

    /// Quotes the expression from this offset on, up to [`QUOTED_MAX`] characters.
    fn near(&self, at: usize) -> String {
        format!("{:?}", self.text[at..].chars().take(QUOTED_MAX).collect::<String>())
    }
}

/// Returns the length of the word at the start of a text: the ASCII letters, digits and underscores before the first
/// other character.
fn word_len(text: &str) -> usize {
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

fn is_keyword(word: &str) -> bool {
    ["AND", "OR", "NOT", "BETWEEN", "IN"].iter().any(|keyword| word.eq_ignore_ascii_case(keyword))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: &Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    /// Parses a text with the placeholders `#k`, `#o`, `:o` and `:t`, omitting those that it does not use.
    fn parsed(text: &str, read: impl FnOnce(Result<Condition<'_>, String>)) {
        let mut names = object(&json!({"#k": "key", "#o": "owner"}));
        let mut values = object(&json!({":o": {"S": "me"}, ":t": {"S": "now"}}));
        names.retain(|name, _| text.contains(name.as_str()));
        values.retain(|name, _| text.contains(name.as_str()));
        read(parse(text, Placeholders { names: &names, values: &values }));
    }

    fn assert_same(text: &str, other: &str) {
        parsed(text, |first| {
            parsed(other, |second| assert_eq!(first.expect(text), second.expect(other)));
        });
    }

    fn refusal(text: &str) -> String {
        let mut refusal = String::new();
        parsed(text, |parsed| refusal = parsed.expect_err(text));
        refusal
    }

    #[test]
    fn the_conditions_of_the_package_are_read() {
        let (me, now) = (json!({"S": "me"}), json!({"S": "now"}));
        let own = Condition::Compare(Operand::Attribute("owner"), Comparator::Equal, Operand::Value(&me));
        let over =
            Condition::Compare(Operand::Attribute("leasedUntil"), Comparator::Less, Operand::Value(&now));
        parsed("#o = :o", |condition| assert_eq!(condition.unwrap(), own));
        parsed("(attribute_not_exists (#k)) OR (leasedUntil < :t) OR (#o = :o)", |condition| {
            assert_eq!(condition.unwrap(), Condition::Any(vec![Condition::NotExists("key"), over, own]));
        });
    }

    #[test]
    fn not_binds_closer_than_and_and_and_closer_than_or() {
        assert_same("NOT a = :o AND b = :o OR c = :t", "((NOT (a = :o)) AND (b = :o)) OR (c = :t)");
        assert_same("a = :o OR b = :o AND c = :t", "a = :o OR (b = :o AND c = :t)");
        assert_same("not a = :o and b = :o", "NOT a=:o AND b=:o");
        assert_same("a<=:t AND b<>:t AND c>=:t AND d>:t", " a <= :t AND b <> :t AND c >= :t AND ( d > :t ) ");
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for (text, part) in [
            ("", "empty"),
            ("  ", "empty"),
            ("#o", "<EOF>"),
            ("#o =", "<EOF>"),
            ("(#o = :o", "<EOF>"),
            ("#o = :o)", "\")\""),
            ("#o = :o #k", "#k"),
            ("= :o", "\"=\""),
            ("#o :o", ":o"),
            ("#o = AND", "AND"),
            ("or = :o", "or"),
            ("#o = Between", "Between"),
            ("#o = :o AND", "<EOF>"),
            ("# = :o", "\"#\""),
            ("ö = :o", "ö"),
            ("a.b = :o", "."),
            ("a[0] = :o", "["),
            ("#other = :o", "#other"),
            ("#o = :other", ":other"),
            ("begins_with(#o, :o)", "begins_with"),
            ("attribute_exists(:o)", "document path"),
            ("attribute_exists(#o, #k)", ","),
            ("#o BETWEEN :o AND :t", "does not support"),
            ("#o IN (:o)", "does not support"),
        ] {
            let refusal = refusal(text);
            assert!(
                refusal.starts_with("Invalid ConditionExpression: ") && refusal.contains(part),
                "{text}: {refusal}"
            );
        }
    }

    #[test]
    fn unused_placeholders_are_refused() {
        let (names, values) = (object(&json!({"#k": "key"})), object(&json!({":o": {"S": "me"}})));
        let none = Map::new();
        for (placeholders, member) in [
            (Placeholders { names: &names, values: &none }, "ExpressionAttributeNames"),
            (Placeholders { names: &none, values: &values }, "ExpressionAttributeValues"),
        ] {
            let refusal = parse("attribute_exists(a)", placeholders).unwrap_err();
            assert!(refusal.contains(member) && refusal.contains("unused"), "{refusal}");
        }
    }

    #[test]
    fn an_expression_has_limits() {
        let nested = |depth| format!("{}#o = :o{}", "(".repeat(depth), ")".repeat(depth));
        parsed(&nested(DEPTH_MAX), |condition| drop(condition.expect("deep enough")));
        assert!(refusal(&nested(DEPTH_MAX + 1)).contains("nested"));
        assert!(refusal(&format!("{}#o = :o", "NOT ".repeat(DEPTH_MAX + 1))).contains("nested"));
        assert!(refusal(&nested(2_000)).contains("nested"));
        assert!(refusal(&nested(3_000)).contains("4096"));
        let padded = format!("#o = :o{}", " ".repeat(LEN_MAX - 7));
        parsed(&padded, |condition| drop(condition.expect("just short enough")));
        parsed(&vec!["a=:o"; TERM_COUNT_MAX].join(" OR "), |condition| {
            drop(condition.expect("just few enough"));
        });
        let wide = vec!["a=:o"; TERM_COUNT_MAX + 1].join(" OR ");
        assert!(refusal(&wide).contains("300"));
    }
}
