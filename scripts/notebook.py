"""Run the cells of docs/asking.ipynb in order and write their outputs into it."""

import ast
import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "docs" / "asking.ipynb"
Cell = dict[str, Any]


def outputs_of(cells: list[Cell]) -> list[list[Cell]]:
    """Run the code cells in one namespace; return the output of each and the value of its last expression."""
    names: dict[str, Any] = {}
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    return [_run("".join(cell["source"]), names, number) for number, cell in enumerate(code, 1)]


def _run(source: str, names: dict[str, Any], number: int) -> list[Cell]:
    body, last, printed = ast.parse(source).body, None, io.StringIO()
    if body and isinstance(body[-1], ast.Expr):
        last = ast.Expression(body.pop().value)  # type: ignore[attr-defined]
    with redirect_stdout(printed):
        exec(compile(ast.Module(body, []), f"cell {number}", "exec"), names)  # noqa: S102 - our own notebook
        value = None if last is None else eval(compile(last, f"cell {number}", "eval"), names)  # noqa: S307 - the same
    outputs: list[Cell] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def main() -> None:
    """Write the outputs."""
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, outputs) in enumerate(zip(code, outputs_of(notebook["cells"]), strict=True), 1):
        cell |= {"outputs": outputs, "execution_count": number}
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    sys.stderr.write(f"wrote the outputs of {len(code)} cells\n")


if __name__ == "__main__":
    main()
