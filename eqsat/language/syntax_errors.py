"""What is said about text that does not parse: what was found, what was expected, what to do."""

from __future__ import annotations

import re

from lark import Token, UnexpectedInput, UnexpectedToken

from eqsat.errors import RuleSyntaxError
from eqsat.language.diagnostics import alternatives, diagnostic
from eqsat.language.functions import GUARDS, REDUCTIONS
from eqsat.language.habits import CHARACTERS, FORMS, HABITS, KEYWORDS, STATEMENTS
from eqsat.language.syntax import Position

_LEXEME = re.compile(
    r"[A-Za-z_]\w*|[0-9]+(\.[0-9]+)?|=>|==|->|<=|>=|!=|\*\*|//|&&|\|\||\.T\b|\.[0-9]+|\.[A-Za-z_]\w*|\.\.|.",
    re.DOTALL,
)

_STATEMENTS = {f"_{name.upper()}" for name in STATEMENTS}
_CLAUSES = {"_WHERE", "EXAMPLE", "_SOURCE"}

_IN_WORDS = {
    "RULE_NAME": "a name",
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a text in double quotes",
    "SCHEMA_NAME": "a name and a colon, as in `a: i k`",
    "ARROW": "`=>`",
    "BOTH_WAYS": "`==`",
    "_IN": "`in`",
    "_TO": "`->`",
    "_DOTS": "`..`",
    "_FROM": "`from`",
    "_STATE": "`state`",
    "_MERGE": "`merge`",
    "_FINISH": "`finish`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "COMMA": "`,`",
    "BANG": "`!`",
    "EQUAL": "`=`",
    "RELATION": "a relation (`<`, `<=`, `>`, `>=`, `=`, `!=`)",
    "MINUS": "`-`",
}
"""What the grammar's tokens are called in error messages."""

_CONTEXTS = {*_STATEMENTS, "_FOR", "_WHERE", "EXAMPLE", "_SOURCE", "_STATE", "_MERGE", "_FINISH"}
"""The tokens that say what the text after them is."""


LONG = 80
"""A list of what was expected that is longer is left out where there is better advice."""


def syntax_error(
    text: str, file: str, error: UnexpectedInput, read: list[Token], accepts: set[str]
) -> RuleSyntaxError:
    """The error in human words: what was found after the tokens `read`, and what was expected."""
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        line, column = (read[-1].end_line or 1, read[-1].end_column or 1) if read else (1, 1)
        found, after = "", ""
        statement = next((token for token in reversed(read) if token.type in _STATEMENTS), "file")
        message = f"the {statement} is not finished"
    else:
        line, column = error.line, error.column
        rest = text.split("\n")[line - 1][column - 1 :]
        lexeme = _LEXEME.match(rest)
        found = lexeme.group() if lexeme else ""
        after = rest[len(found) :].lstrip()
        message = f"unexpected `{found}`"
        if found == '"' and "STRING" in accepts:
            message = "this text does not end"
    context = next((token.type for token in reversed(read) if token.type in _CONTEXTS), "")
    expectation = _expectation(accepts, context, read)
    advice = _advice(found, after, context, read, accepts)
    if advice and len(expectation) > LONG:
        expectation = ""
    hint = "\n".join(part for part in (expectation, advice) if part)
    return RuleSyntaxError(diagnostic(text, Position(file, line, column), message, hint))


def _expectation(accepts: set[str], context: str, read: list[Token]) -> str:
    """What the parser accepts, without the names of the grammar's tokens."""
    if {"NAME", "NUMBER", "LPAR"} <= accepts:
        if context == "_WHERE" and read[-1].type in ("_WHERE", "COMMA"):
            return "expected a condition, such as `large(n)`, `n in K`, `size(k) < 9` or `spd[i, j](a)`"
        return "expected a term, such as `a`, `2`, `exp(a)` or `sum[k] a`"
    after_term = "PLUS" in accepts
    # After a term, an operator and a clause can follow nearly always: the brackets are noise there.
    noise = {"MINUS", "LPAR", "LSQB", "LBRACE"} if after_term else set()
    words = [phrase for token, phrase in _IN_WORDS.items() if token in accepts - noise]
    words = list(dict.fromkeys(words))
    if after_term:
        words.append("an operator")
    if accepts >= _CLAUSES:
        words.append("a clause (`for`, `where`, `example`, `reject`, `source`)")
    if accepts >= _STATEMENTS:
        words += ["the next `rule`"] if after_term else [f"`{name}`" for name in STATEMENTS]
    return f"expected {alternatives(words)}" if words else ""


def _advice(found: str, after: str, context: str, read: list[Token], accepts: set[str]) -> str:
    """What to do about it, where we can guess what was meant."""
    before = read[-1].type if read else ""
    if found == "*" and before == "STAR":
        return HABITS["**"]
    if found == "/" and before == "SLASH":
        return HABITS["//"]
    if found in CHARACTERS:
        return CHARACTERS[found]
    if found and not found.isascii() and found.isalpha():
        return "names are made of the letters a to z and A to Z, digits and `_`"
    if found == '"':
        return 'a text ends in its line, by another `"`' if "STRING" in accepts else ""
    for guess in (_about_conditions, _about_names, _about_equations):
        advice = guess(found, after, context, read, accepts)
        if advice:
            return advice
    if found in HABITS and "_TO" not in accepts:
        return HABITS[found]
    forms = [FORMS[token.type] for token in read[-6:] if token.type in FORMS]
    return f"it is written {forms[-1]}" if forms else ""


def _about_conditions(found: str, after: str, context: str, read: list[Token], accepts: set[str]) -> str:
    if context != "_WHERE":
        return ""
    if found == "==":
        return "numbers are compared by one `=`"
    if found in ("and", "&&", "&"):
        return "conditions are separated by `,`"
    if found in ("or", "||", "|"):
        return "either condition is enough: that makes two rules"
    if found in ("<", "<=", ">", ">=", "=") and "RELATION" not in accepts:
        return "one relation at a time: `0 < c, c < 1`"
    if found == "=>":
        return "the conditions follow the equation"
    if found.isidentifier() and "STAR" in accepts:
        if read[-1] in GUARDS:
            return f"write `{read[-1]}({', '.join(GUARDS[read[-1]])})`"
        return "conditions are separated by `,`"
    return ""


def _about_equations(found: str, after: str, context: str, read: list[Token], accepts: set[str]) -> str:
    before = read[-1].type if read else ""
    if before == "RULE_NAME":
        what = "rule" if read[-2].type == "_RULE" else "fact"
        form = "rule name  left => right" if what == "rule" else "fact name  symmetric[i, j](a)"
        return f"a {what} has a name, of one word, and no colon: `{form}`"
    begun = before == "NAME" and read[-2].type == "RULE_NAME" and read[-2].line == read[-1].line
    if begun and found.isidentifier():
        return f"a name is one word, with hyphens: `{read[-2]}-{read[-1]}`"
    if found == "=" and "RPAR" in accepts:
        return "operands go by their order; axes stand in brackets: `sum[k] a`"
    if found == ")" and "PLUS" in accepts and "RPAR" not in accepts:
        return "it closes nothing"
    if "RPAR" in accepts and (found in KEYWORDS or found in ("=>", "==", "")):
        return "a parenthesis is not closed"
    if before == "LSQB" and (found in (":", "..", "-") or found.isdigit()):
        return "there are no indices and slices: a term has named axes, `a{i, j}`"
    if "RSQB" in accepts and "COMMA" in accepts:
        return "axes are separated by `,`, and a `]` ends them"
    if "_MERGE" in accepts:
        return "`merge m = ...` says how the parts of two results make those of one"
    if before == "RSQB" and found in ("*", "/", "+", ")", ",", "=>", "==", "^", ""):
        opening = max(place for place, token in enumerate(read) if token.type == "LSQB")
        name = read[opening - 1]
        if name.type == "NAME" and name not in REDUCTIONS:
            return f"a term's axes are a pattern: `{name}{{{read[opening + 1]}}}`"
    if "STAR" in accepts and (found.isidentifier() or found == "("):
        if read[-1] in REDUCTIONS:
            return f"a reduction names its axes: `{read[-1]}[k] a`"
        return "a product is written with `*`"
    return ""


def _about_names(found: str, after: str, context: str, read: list[Token], accepts: set[str]) -> str:
    before = read[-1].type if read else ""
    if found == ".T":
        return "axes have names instead of an order: A's transpose is A; `solve[j, i](A, b)` solves with it"
    if found.startswith(".") and found[1:].isdigit():
        return f"write `0{found}`"
    if found == "." and before == "NUMBER":
        return f"write `{read[-1]}` or `{read[-1]}.0`"
    if found.startswith(".") and found[1:].isidentifier():
        return "functions go by one name: `exp(a)`, `sum[k] a`"
    if before in ("_INCLUDE", "_SOURCE", "_FROM"):
        return 'write it in double quotes, as in `"my.rules"`'
    in_pattern = "RBRACE" in accepts or before in ("LBRACE", "BANG")
    if in_pattern and (found.isdigit() or found in ("=", ":")):
        return "a pattern names the axes that a term has or lacks: `a{k, !j}`"
    if found in KEYWORDS and "NAME" in accepts:
        as_term = after[:1] in ("*", "+", "-", "/", "^", ")", ",", "{", "]") or after[:2] in ("=>", "==")
        if "NUMBER" not in accepts or as_term:
            return f"`{found}` is a word of the language and can't be a name"
    return ""
