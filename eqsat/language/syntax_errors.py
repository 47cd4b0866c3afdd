"""Explains text that does not parse: what was found, what was expected, and what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lark import Token, UnexpectedInput, UnexpectedToken

from eqsat.language.accuracies import ACCURACIES
from eqsat.language.common_mistakes import CHARACTERS, CLAUSES, COMMON_MISTAKES, FORMS, KEYWORDS, STATEMENTS
from eqsat.language.diagnostics import Rejection, alternatives
from eqsat.language.functions import GUARDS, REDUCTIONS
from eqsat.language.syntax import Position

_ARROWS = ("<==>", "<=>", "<->", "<--", "<-", "===", "==>", "=>>", "=>", "==", "->", ":=", "~>")
"""The arrows to tell apart in a text that does not parse, each before its prefixes."""

_LEXEME = re.compile(
    r"[A-Za-z_]\w*|[0-9]+(\.[0-9]+)?|"
    + "|".join(_ARROWS)
    + r"|<=|>=|!=|\*\*|//|&&|\|\||\.T\b|\.[0-9]+|\.[A-Za-z_]\w*|\.\.|.",
    re.DOTALL,
)

_STATEMENTS = {f"_{name.upper()}" for name in STATEMENTS}
_CLAUSES = {"_WHERE", "GUARD", "EXAMPLE", "_SOURCE"}

_IN_WORDS = {
    "RULE_NAME": "a name",
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "text in double quotes",
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
"""The names of the grammar's tokens in error messages."""

_CONTEXTS = {*_STATEMENTS, "_FOR", "_WHERE", "GUARD", "EXAMPLE", "_SOURCE", "_STATE", "_MERGE", "_FINISH"}
"""The tokens that determine what kind of text follows them."""


LONG = 80
"""A list of expected tokens that is longer than this many characters is left out if there is better advice.
"""


def syntax_error(
    text: str, file: str, error: UnexpectedInput, read: list[Token], accepts: set[str]
) -> Rejection:
    """Returns the error of a text that does not parse.

    **Arguments:**

    - `error`: the exception that lark raised.
    - `read`: the tokens before the error.
    - `accepts`: the types of tokens that could follow them.
    """
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
            message = "this quoted text does not end"
    context = next((token.type for token in reversed(read) if token.type in _CONTEXTS), "")
    place = _Place(found, after, context, read, accepts)
    beside = bool(read) and (read[-1].end_line, read[-1].end_column) == (line, column)
    joined = f"{read[-1]}{found}" if beside else ""
    if found and joined in COMMON_MISTAKES and place.before in ("MINUS", "BOTH_WAYS", "ARROW"):
        begin = Position(file, line, column - len(read[-1]))
        return Rejection(begin, f"unexpected `{joined}`", _about_arrows(context) or COMMON_MISTAKES[joined])
    nameless = _nameless(place)
    if nameless:
        where = read[-1] if place.before == "RULE_NAME" else None
        position = (
            Position(file, where.line or 1, where.column or 1) if where else Position(file, line, column)
        )
        return Rejection(position, *nameless)
    expectation, advice = _expectation(place), _advice(place)
    if advice and len(expectation) > LONG:
        expectation = ""
    hint = "\n".join(part for part in (expectation, advice) if part)
    return Rejection(Position(file, line, column), message, hint)


@dataclass(frozen=True, slots=True)
class _Place:
    """The place where parsing stopped.

    **Attributes:**

    - `found`, `after`: the text at this place, and the rest of its line.
    - `context`: the type of the last of the `_CONTEXTS` tokens before it.
    - `read`: all tokens before it.
    - `accepts`: the types of tokens that could follow them.
    """

    found: str
    after: str
    context: str
    read: list[Token]
    accepts: set[str]

    @property
    def before(self) -> str:
        return self.read[-1].type if self.read else ""

    @property
    def as_term(self) -> bool:
        """Whether the text after `found` continues a term, so that `found` was meant as a name."""
        operators = ("*", "+", "-", "/", "^", ")", ",", "{", "]")
        return self.after[:1] in operators or self.after[:2] in ("=>", "==")


def _nameless(place: _Place) -> tuple[str, str] | None:
    """Returns a message and a hint if a term stands where the name of a rule or fact should be, or None."""
    for begin, form in (("_RULE", "rule name  left => right"), ("_FACT", "fact name  symmetric[i, j](a)")):
        word = begin[1:].lower()
        starts_a_term = not place.found.isidentifier() and place.found not in ("", ":")
        if place.before == begin and starts_a_term:
            return f"this {word} has no name", f"write `{form}`"
        named = place.before == "RULE_NAME" and place.read[-2].type == begin
        if named and starts_a_term and place.found not in CHARACTERS and place.found != ".":
            hint = f"`{place.read[-1]}` stands in the place of the name: write `{form}`"
            return f"this {word} has no name", hint
    return None


def _expectation(place: _Place) -> str:
    """Returns a text that lists what the parser expected, in the words of users."""
    accepts = place.accepts
    if {"NAME", "NUMBER", "LPAR"} <= accepts:
        if place.context == "_WHERE" and place.before in ("_WHERE", "COMMA"):
            return "expected a condition, such as `large(n)`, `n in K`, `size(k) < 9` or `spd[i, j](a)`"
        return "expected a term, such as `a`, `2`, `exp(a)` or `sum[k] a`"
    after_term = "PLUS" in accepts
    # After almost any term, an operator or a clause may follow, so listing brackets as well would not help.
    noise = {"MINUS", "LPAR", "LSQB", "LBRACE"} if after_term else set()
    words = [phrase for token, phrase in _IN_WORDS.items() if token in accepts - noise]
    words = list(dict.fromkeys(words))
    if after_term:
        words.append("an operator")
    if accepts >= _CLAUSES:
        words.append("a clause (`for`, `where`, `guard`, `example`, `reject`, `source`)")
    if accepts >= _STATEMENTS:
        words += ["the next `rule`"] if after_term else [f"`{name}`" for name in STATEMENTS]
    return f"expected {alternatives(words)}" if words else ""


def _advice(place: _Place) -> str:
    """Returns advice where the author's intention can be guessed, or ""."""
    found = place.found
    if found == "*" and place.before == "STAR":
        return COMMON_MISTAKES["**"]
    if found == "/" and place.before == "SLASH":
        return COMMON_MISTAKES["//"]
    if found in CHARACTERS:
        return CHARACTERS[found]
    if found and not found.isascii() and found.isalpha():
        return "names are made of the letters a to z and A to Z, digits and `_`"
    if found == '"':
        return 'quoted text must end in the same line, with another `"`' if "STRING" in place.accepts else ""
    for guess in (
        _about_classes,
        _about_clauses,
        _about_conditions,
        _about_names,
        _about_numbers,
        _about_equations,
        _about_brackets,
    ):
        advice = guess(place)
        if advice:
            return advice
    if found in COMMON_MISTAKES and "_TO" not in place.accepts:
        return COMMON_MISTAKES[found]
    forms = [FORMS[token.type] for token in place.read[-6:] if token.type in FORMS]
    return f"write {forms[-1]}" if forms else ""


def _about_arrows(context: str) -> str:
    """Returns advice about an arrow that stands after the equation."""
    return "the conditions follow the equation" if context == "_WHERE" else ""


def _about_classes(place: _Place) -> str:
    """Returns advice about `for f in ...`, which authors also write with `=`, other brackets or none."""
    found, before = place.found, place.before
    listed = "`for f in {sin, cos}` lists functions, `for f in elementwise` names a class"
    if place.context == "_WHERE" and before == "_IN" and found == "{":
        return "functions are listed by `for`: `for f in {sin, cos}`"
    if place.context != "_FOR" or before not in ("_FOR", "_IN", "NAME", "COMMA"):
        return ""
    if found in ("[", "(", "=", ":", "") or ("_IN" in place.accepts and found.isidentifier()):
        return listed
    return ""


def _about_clauses(place: _Place) -> str:
    """Returns advice about clauses that begin with another word, or that stand in the wrong place."""
    found, after, read = place.found, place.after, place.read
    follow = "conditions follow the equation: `left => right  where float(a)`"
    clauses = ("where", "for", "guard", "example", "reject", "source")
    if place.before == "RULE_NAME" and found in clauses and not place.as_term:
        return f"clauses follow the equation: `left => right  {found} {FORMS.get(found, '...')}`"
    if place.before == "NAME" and read[-2].type == "RULE_NAME" and CLAUSES.get(read[-1].lower()) == "where":
        return follow
    if place.before == "RPAR" and len(read) > 3 and read[-4].type == "RULE_NAME" and read[-2] in ACCURACIES:
        return f"the accuracy class is in brackets: `rule {read[-4]} [{read[-2]}]`"
    if "_WHERE" not in place.accepts:
        return ""
    if found == "unless":
        return "conditions cannot be negated, except for comparisons: `where size(k) != 1`"
    if found == "s" and after.startswith(".t"):
        return f"the word is `where` here: `where {FORMS['where']}`"
    if found == "," and place.context != "_WHERE":
        return "write no comma before a clause: `left => right  where float(a)`"
    if found == ":" and place.context in _STATEMENTS and "ARROW" not in place.accepts:
        return follow
    return ""


def _about_conditions(place: _Place) -> str:
    found, accepts = place.found, place.accepts
    if place.context != "_WHERE":
        return ""
    if found == "==":
        return "compare numbers with a single `=`"
    if found == ":=":
        return "a definition is written with `=`: `l = copy(k)`"
    if found in ("->", "<=>", "<->", "==>", "~>"):
        return _about_arrows(place.context)
    if found in ("and", "&&", "&"):
        return "conditions are separated by `,`"
    if found in ("or", "||", "|"):
        return "write two rules, one for each condition"
    if found in ("<", "<=", ">", ">=", "=") and "RELATION" not in accepts:
        return "write one relation at a time: `0 < c, c < 1`"
    if found == "=>":
        return "the conditions follow the equation"
    if found.isidentifier() and "STAR" in accepts:
        guard = str(place.read[-1])
        if guard == "not":
            return "conditions cannot be negated, except for comparisons: `size(k) != 1`"
        return (
            f"write `{guard}({', '.join(GUARDS[guard])})`"
            if guard in GUARDS
            else "separate conditions by `,`"
        )
    return ""


def _about_names(place: _Place) -> str:
    found, accepts = place.found, place.accepts
    if place.before in ("_INCLUDE", "_SOURCE", "_FROM"):
        return 'write it in double quotes, as in `"my.rules"`'
    in_pattern = "RBRACE" in accepts or place.before in ("LBRACE", "BANG")
    if in_pattern and (found.isdigit() or found in ("=", ":")):
        return "a pattern names the axes that a term has or lacks: `a{k, !j}`"
    # Where a term is expected, a keyword more likely begins what should follow the term.
    if found in KEYWORDS and "NAME" in accepts and ("NUMBER" not in accepts or place.as_term):
        return f"`{found}` is a word of the language, so it can't be a name"
    return ""


def _about_numbers(place: _Place) -> str:
    found = place.found
    if found == ".T":
        return "axes have names instead of an order: A's transpose is A; `solve[j, i](A, b)` solves with it"
    if found.startswith(".") and found[1:].isdigit():
        return f"write `0{found}`"
    if found == "." and place.before == "NUMBER":
        return f"write `{place.read[-1]}` or `{place.read[-1]}.0`"
    if found.startswith(".") and found[1:].isidentifier():
        return "write the name of a function alone: `exp(a)`, `sum[k] a`"
    return ""


def _about_equations(place: _Place) -> str:
    found, accepts, read = place.found, place.accepts, place.read
    if place.before == "RULE_NAME":
        if read[-2].type == "_RULE":
            return "a rule's name is one word, without a colon: `rule name  left => right`"
        return "a fact's name is one word, without a colon: `fact name  symmetric[i, j](a)`"
    begun = place.before == "NAME" and read[-2].type == "RULE_NAME" and read[-2].line == read[-1].line
    if begun and found.isidentifier():
        return f"a name is one word; join its parts with hyphens: `{read[-2]}-{read[-1]}`"
    if "_MERGE" in accepts:
        return "`merge m = ...` says how the parts of two results are combined"
    return ""


def _about_brackets(place: _Place) -> str:
    found, accepts, read = place.found, place.accepts, place.read
    if found == "=" and "RPAR" in accepts:
        return "operands are given in order, and axes in brackets: `sum[k] a`"
    if found == ")" and "PLUS" in accepts and "RPAR" not in accepts:
        return "it closes no parenthesis"
    if "RPAR" in accepts and (found in KEYWORDS or found in ("=>", "==", "")):
        return "a parenthesis is not closed"
    if place.before == "LSQB" and (found in (":", "..", "-") or found.isdigit()):
        return "there are no indices or slices: a term has named axes, `a{i, j}`"
    if {"RSQB", "COMMA"} <= accepts:
        return "separate axes by `,` and end them with `]`"
    if place.before == "RSQB" and not found[:1].isalnum():
        opening = max(number for number, token in enumerate(read) if token.type == "LSQB")
        name = read[opening - 1]
        if name.type == "NAME" and name not in REDUCTIONS:
            return f"write a term's axes as a pattern: `{name}{{{read[opening + 1]}}}`"
    if "STAR" in accepts and "_WHERE" in accepts and found.lower() in CLAUSES:
        clause = CLAUSES[found.lower()]
        return f"the word is `{clause}` here: `{clause} {FORMS[clause]}`"
    if "STAR" in accepts and (found.isidentifier() or found == "("):
        if read[-1] in REDUCTIONS:
            return f"a reduction names its axes: `{read[-1]}[k] a`"
        return "a product is written with `*`"
    return ""
