//! Keys with placeholders: `"order:close:{user_id}"`.

use darling::{Error, FromMeta};
use proc_macro2::TokenStream;
use quote::{ToTokens, quote_spanned};
use syn::{Expr, Lit, LitStr};

/// The largest length of a key, as the core has it.
const MAX_KEY_BYTES: usize = 512;

/// A key whose parts are joined by `:`, each of them a text or one value.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    parts: Vec<Part<Expr>>,
    source: LitStr,
}

#[derive(Debug, Clone, PartialEq)]
enum Part<V> {
    Text(String),
    Value(V),
}

impl FromMeta for Template {
    fn from_value(value: &Lit) -> Result<Self, Error> {
        match value {
            Lit::Str(text) => Self::parse(text),
            other => Err(Error::custom("a key is a string like \"order:close:{id}\"").with_span(other)),
        }
    }
}

impl Template {
    pub(crate) fn parse(source: &LitStr) -> Result<Self, Error> {
        let fail = |why: String| Error::custom(why).with_span(source);
        let parts = split(&source.value()).map_err(fail)?;
        let parts = parts
            .into_iter()
            .map(|part| match part {
                Part::Text(text) => Ok(Part::Text(text)),
                Part::Value(code) => placeholder(&code, source).map(Part::Value),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            parts,
            source: source.clone(),
        })
    }
}

/// A call that gives the checked key. The values are borrowed.
impl ToTokens for Template {
    fn to_tokens(&self, out: &mut TokenStream) {
        let span = self.source.span();
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => quote_spanned!(span=> &#text as &dyn ::core::fmt::Display),
            Part::Value(expr) => quote_spanned!(span=> &(#expr) as &dyn ::core::fmt::Display),
        });
        out.extend(quote_spanned!(span=> ::distlock::join_key(&[#(#parts),*])));
    }
}

/// One placeholder's expression, which must name a value and do nothing else.
fn placeholder(code: &str, source: &LitStr) -> Result<Expr, Error> {
    let fail = |why: String| Error::custom(why).with_span(source);
    let expr: Expr = LitStr::new(code, source.span()).parse().map_err(|e| {
        let hint = if code.contains(':') && !code.contains("::") {
            "; a key has no format specifiers such as `:?`, only values that implement `Display`"
        } else {
            ""
        };
        fail(format!("`{{{code}}}` is not an expression: {e}{hint}"))
    })?;
    if names_a_value(&expr) {
        Ok(expr)
    } else {
        Err(fail(format!(
            "`{{{code}}}` is more than a value: a placeholder holds an argument, a field, or a call, such as `{{id}}`, \
             `{{self.shop}}` or `{{order.id()}}`"
        )))
    }
}

fn names_a_value(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) | Expr::Lit(_) => true,
        Expr::Field(e) => names_a_value(&e.base),
        Expr::Reference(e) => names_a_value(&e.expr),
        Expr::Unary(e) => names_a_value(&e.expr),
        Expr::Paren(e) => names_a_value(&e.expr),
        Expr::Group(e) => names_a_value(&e.expr),
        Expr::Index(e) => names_a_value(&e.expr) && names_a_value(&e.index),
        Expr::Call(e) => names_a_value(&e.func) && e.args.iter().all(names_a_value),
        Expr::MethodCall(e) => names_a_value(&e.receiver) && e.args.iter().all(names_a_value),
        _ => false,
    }
}

/// Splits a key into its parts. `{{` and `}}` stand for the braces themselves.
fn split(key: &str) -> Result<Vec<Part<String>>, String> {
    check_text(key)?;
    let mut parts = Vec::new();
    let mut text = String::new();
    // The placeholder that is this whole part, if there was one.
    let mut value: Option<String> = None;
    let mut rest = key.chars().peekable();
    loop {
        match rest.next() {
            end @ (None | Some(':')) => {
                parts.push(match value.take() {
                    Some(code) => Part::Value(code),
                    None => Part::Text(std::mem::take(&mut text)),
                });
                if end.is_none() {
                    return Ok(parts);
                }
            }
            Some('{') if rest.peek() != Some(&'{') => {
                let code = code(&mut rest)?;
                if value.is_some() || !text.is_empty() {
                    return Err(touches(&code));
                }
                value = Some(code);
            }
            Some('}') if rest.peek() != Some(&'}') => {
                return Err("`}` without its `{`; write `}}` for the character itself".to_owned());
            }
            Some(c) => {
                if matches!(c, '{' | '}') {
                    rest.next();
                }
                if let Some(code) = &value {
                    return Err(touches(code));
                }
                text.push(c);
            }
        }
    }
}

/// What stands between the braces.
fn code(rest: &mut impl Iterator<Item = char>) -> Result<String, String> {
    let mut code = String::new();
    loop {
        match rest.next() {
            Some('}') if code.trim().is_empty() => {
                return Err("`{}` is empty: name the value, such as `{id}`".to_owned());
            }
            Some('}') => return Ok(code.trim().to_owned()),
            Some('{') => {
                return Err(format!(
                    "`{{{code}` holds another `{{`; a placeholder cannot hold braces"
                ));
            }
            Some(c) => code.push(c),
            None => {
                return Err(format!(
                    "`{{{code}` has no end; write `{{{{` for the character `{{` itself"
                ));
            }
        }
    }
}

fn touches(code: &str) -> String {
    format!(
        "`{{{code}}}` must be a whole part of the key, with `:` or an end on both sides: otherwise different values \
         could give the same key. Put a `:` between them"
    )
}

fn check_text(key: &str) -> Result<(), String> {
    if key.is_empty() {
        return Err("the key is empty".to_owned());
    }
    if key.len() > MAX_KEY_BYTES && !key.contains('{') {
        return Err(format!(
            "the key has {} bytes; a key has at most {MAX_KEY_BYTES}",
            key.len()
        ));
    }
    match key.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("the key has the control character U+{:04X}", c as u32)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Part, split};

    fn shown(key: &str) -> String {
        match split(key) {
            Err(e) => format!("error: {e}"),
            Ok(parts) => parts
                .iter()
                .map(|p| match p {
                    Part::Text(t) => format!("{t:?}"),
                    Part::Value(v) => format!("<{v}>"),
                })
                .collect::<Vec<_>>()
                .join(" "),
        }
    }

    #[test]
    fn keys_are_split_at_colons() {
        for (key, expected) in [
            ("order", r#""order""#),
            ("order:close:{id}", r#""order" "close" <id>"#),
            ("{a}:{ b.c }:d", r#"<a> <b.c> "d""#),
            ("{a}", "<a>"),
            ("a::{b}:", r#""a" "" <b> """#),
            ("a{{b}}:{c}", r#""a{b}" <c>"#),
            ("{Kind::NAME}:x", r#"<Kind::NAME> "x""#),
        ] {
            assert_eq!(shown(key), expected, "{key}");
        }
    }

    #[test]
    fn what_could_collide_or_is_malformed_is_refused() {
        for (key, expected) in [
            ("order{id}", "whole part"),
            ("{id}s", "whole part"),
            ("{a}{b}", "whole part"),
            ("{a}{{", "whole part"),
            ("a:{}", "is empty"),
            ("a:{ }", "is empty"),
            ("a:{b", "no end"),
            ("a:b}", "without its"),
            ("a:{b{c}}", "cannot hold braces"),
            ("", "empty"),
            ("a\tb", "U+0009"),
        ] {
            let shown = shown(key);
            assert!(
                shown.starts_with("error: ") && shown.contains(expected),
                "{key}: {shown}"
            );
        }
    }
}
