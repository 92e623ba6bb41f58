"""A module with one operator turned into another, put in place of what it was for as long as it takes."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from tests.differential.executed import forget_results

_OTHER: Final[Mapping[type[ast.AST], type[Any]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """functions: qualified name -> its code with the change. number, line: where it is, and what stood there."""

    functions: Mapping[str, CodeType]
    number: int
    line: str
    change: str

    def __str__(self) -> str:
        """For a person."""
        return f"line {self.number}: {self.line}   ({self.change})"


def mutants_of(module: ModuleType, *, orders: bool = False) -> Iterator[Mutant]:
    """One for each operator inside a function, each `not`, `~`, truth value and branch.

    orders: also for each two values that are returned, and each minus.
    """
    source = inspect.getsource(module)
    tree, lines = ast.parse(source), source.splitlines()
    before = _codes(tree, module)
    nodes = [(node, way) for node in ast.walk(tree) for way in range(_ways(node, orders=orders))]
    for node, way in nodes:
        as_it_was = {name: [*value] if isinstance(value, list) else value for name, value in vars(node).items()}
        found = _changed(node, way)
        if found is not None:
            number, change = found
            after = _codes(ast.fix_missing_locations(tree), module)
            functions = {name: code for name, code in after.items() if code != before[name]}
            vars(node).update(as_it_was)
            if functions:
                yield Mutant(functions, number, lines[number - 1].strip(), change)


@contextmanager
def put_in(module: ModuleType, mutant: Mutant) -> Iterator[None]:
    """The module's functions run the mutant's code meanwhile. What any has kept of before is forgotten."""
    before = {}
    forget_results()
    for name, code in mutant.functions.items():
        function = _function(module, name)
        before[function] = function.__code__
        function.__code__ = code
    try:
        yield
    finally:
        for function, code in before.items():
            function.__code__ = code
        forget_results()


def _ways(node: ast.AST, *, orders: bool) -> int:
    """How many changes there are."""
    match node:
        case ast.Return(value=ast.Tuple(elts=values)):
            return len(values) - 1 if orders else 0
        case ast.UnaryOp(op=ast.USub()):
            return int(orders)
        case _:
            return 1


def _changed(node: ast.AST, way: int) -> tuple[int, str] | None:  # noqa: C901, PLR0911 - one for each kind
    """Change the node itself, none below it; (line, what is changed), None where it is no operator.

    way: less than `_ways`.
    """
    match node:
        case ast.Return(value=ast.Tuple(elts=values) as returned) if len(values) > 1:
            exchanged = [*values[:way], values[way + 1], values[way], *values[way + 2 :]]
            node.value = ast.copy_location(ast.Tuple(exchanged, ast.Load()), returned)
            return node.lineno, f"values {way + 1} and {way + 2} exchanged"
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            node.operand = ast.UnaryOp(ast.USub(), operand)
            return node.lineno, "minus left out"
        case ast.Compare():
            node.ops[0] = _other(node.ops[0])
            return node.lineno, "comparison turned round"
        case ast.BoolOp():
            node.op = _other(node.op)
            return node.lineno, "and, or"
        case ast.BinOp() | ast.AugAssign() if type(node.op) in _OTHER:
            node.op = _other(node.op)
            return node.lineno, "another operator"
        case ast.UnaryOp(op=ast.Not()):
            # Twice: the same as nothing, and no parent has to be known.
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
            return node.lineno, "not left out"
        case ast.UnaryOp(op=ast.Invert()):
            node.operand = ast.UnaryOp(ast.Invert(), node.operand)
            return node.lineno, "~ left out"
        case ast.If() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
            return node.lineno, "the other branch"
        case ast.Constant(value=bool()):
            node.value = not node.value
            return node.lineno, "True, False"
        case ast.Match() if len(node.cases) > 1:
            first, second, *others = node.cases
            node.cases = [_with_body(first, second.body), _with_body(second, first.body), *others]
            return node.lineno, "the first two cases exchanged"
        case _:
            return None


def _with_body(case: ast.match_case, body: list[ast.stmt]) -> ast.match_case:
    return ast.match_case(case.pattern, case.guard, body)


def _other(operator: ast.AST) -> Any:  # noqa: ANN401 - of the same kind
    return _OTHER[type(operator)]()


def _codes(tree: ast.Module, module: ModuleType) -> dict[str, CodeType]:
    """Of each function that stands in the module or in a class."""
    found = {}
    left = [compile(tree, module.__file__ or "", "exec")]
    while left:
        code = left.pop()
        for inner in code.co_consts:
            if isinstance(inner, CodeType) and "<" not in inner.co_qualname:
                found[inner.co_qualname] = inner
                left.append(inner)
    return {name: code for name, code in found.items() if _is_function(module, name)}


def _is_function(module: ModuleType, name: str) -> bool:
    try:
        _function(module, name)
    except KeyError:
        return False
    return True


def _function(module: ModuleType, name: str) -> FunctionType:
    """KeyError: it is none."""
    *classes, last = name.split(".")
    holder: object = module
    for each in classes:
        holder = vars(holder)[each]
    found = vars(holder)[last]
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__wrapped__", None) or getattr(found, "__func__", None) or found
    if not isinstance(found, FunctionType):
        raise KeyError(name)
    return found
