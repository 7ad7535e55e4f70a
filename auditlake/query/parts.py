"""Which parts of a statement's tree the translation has read: one that it did not read would be left out. Pure.

A node's arguments are watched from the parser to the end of the translation, so no rule of it lists those that it does
not know. What is left unread then is refused in PostgreSQL's dialect, for example the `(2)` of `interval '1.234567'
second(2)`, and left to Spark in Spark's. A walk over the tree does not count as reading.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, overload

from sqlglot import exp

_MEANINGLESS = frozenset(
    {
        (exp.Count, "big_int"),
        (exp.DataType, "nested"),
        (exp.DPipe, "safe"),
        (exp.Div, "safe"),
        (exp.Fetch, "direction"),  # FIRST or NEXT
        (exp.LimitOptions, "rows"),
        (exp.Literal, "is_string"),
        (exp.Version, "this"),
        (exp.Window, "over"),
    }
)
"""Arguments that sqlglot adds, or that tell apart words with one meaning."""


class _Watched(dict[str, Any]):
    """The arguments of a node, and the names of those that were asked for."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - sqlglot's
        self.read.add(name)
        return super().__getitem__(name)

    @overload
    def get(self, name: str, default: None = None, /) -> Any: ...  # noqa: ANN401
    @overload
    def get(self, name: str, default: Any, /) -> Any: ...  # noqa: ANN401
    def get(self, name: str, default: Any = None, /) -> Any:
        self.read.add(name)
        return super().get(name, default)


def watch_parts(tree: exp.Expr) -> list[exp.Expr]:
    """Watch the arguments of each node from now on; return the nodes."""
    nodes = [*tree.walk()]
    for node in nodes:
        node.args = _Watched(node.args)
    return nodes


def unread(
    nodes: Iterable[exp.Expr], besides: Collection[tuple[type[exp.Expr], str]] = ()
) -> Iterator[tuple[exp.Expr, str]]:
    """Yield the parts of watched nodes that were not read, by node and name; `besides`: parts without meaning."""
    for node in nodes:
        read = node.args.read if isinstance(node.args, _Watched) else node.args.keys()
        for name in sorted(node.args.keys() - read):
            part = (type(node), name)
            if node.args[name] not in (None, False, [], "") and part not in _MEANINGLESS and part not in besides:
                yield node, name


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    """Return the terms of a chain of ANDs, which are read by it."""
    terms = []
    while isinstance(condition, exp.And):
        terms.append(condition.expression.unnest())
        condition = condition.this
    return [condition.unnest(), *reversed(terms)]
