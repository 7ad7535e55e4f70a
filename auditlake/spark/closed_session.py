"""A session for statements of strangers, and Spark's own tree of a statement, which is checked before it is analysed.

The second wall behind `query.lexical` and `query.rewrite`, and independent of them: it holds whatever text arrives.

1. `close` makes a session in which a path is no table, a text is not searched for settings and variables of the
   environment, literals are those of Spark's defaults, and the functions that are not listed do not exist.
2. `check` has the session parse the statement and reads the tree that Spark would analyse: its nodes must be those of
   queries, its functions listed, and its tables temporary views or common table expressions. A command is not executed
   by that.
3. `check_analysed` refuses what only the analysed tree shows: a column `user` that no table has is the function.

A session of Spark Connect has no object of the JVM: there only the settings hold, and the server is its owner's.

The reader of trees is compiled in the JVM by Janino, as the log store is.
"""

from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from auditlake.errors import BadUsage
from auditlake.spark.connect import is_connected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS: Mapping[str, str] = {
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.legacy.parser.consecutiveStringLiterals.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
}
"""What decides how a text is read, and that a path in it is no table."""
_OF_DELTA = ("input_file_",)
"""Functions that Delta itself calls in the session; `check` refuses them in a statement."""
_PLANS = """
Aggregate CTERelationDef CTERelationRef Deduplicate DescribeQueryCommand DescribeRelation Distinct Except ExplainCommand
Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit LocalRelation Offset OneRowRelation Pivot
PipeOperator Project Range Repartition RepartitionByExpression ResolvedInlineTable Sample Sort SubqueryAlias Union
Unpivot UnresolvedHaving UnresolvedInlineTable UnresolvedQualify UnresolvedRelation UnresolvedSubqueryColumnAliases
UnresolvedTVFAliases UnresolvedTableOrView UnresolvedTableValuedFunction UnresolvedWith WithWindowDefinition
"""
_QUERIES = frozenset(_PLANS.split())
"""Nodes of plans that Spark 4.2 parses queries, EXPLAIN and DESCRIBE to."""
_NOT_READ = frozenset({"ExpressionWithUnresolvedIdentifier"})
"""IDENTIFIER(…), which names a function or a table by a text."""
_NOT_COMPUTED = frozenset(
    {
        *("CallMethodViaReflection", "TryReflect", "CurrentUser", "CurrentCatalog", "CurrentDatabase", "CurrentPath"),
        *("InputFileName", "InputFileBlockStart", "InputFileBlockLength"),
    }
)
"""Expressions that show more than the lake, by whatever name they were reached."""
_CLASS = "auditlake.StatementTree"
_SOURCE = r"""
package auditlake;

import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.trees.TreeNode;

public class StatementTree {
    /** List the nodes of a tree, subqueries included: kind and name, separated by a blank; parts of names by NUL. */
    public static List nodes(Object root) {
        List found = new ArrayList();
        walk(root, found, new IdentityHashMap());
        return found;
    }

    private static void walk(Object value, List found, IdentityHashMap seen) {
        if (value instanceof TreeNode) {
            if (seen.put(value, value) == null) {
                name((TreeNode) value, found);
                each(((TreeNode) value).productIterator(), found, seen);
                each(((TreeNode) value).innerChildren().iterator(), found, seen);
                each(((TreeNode) value).children().iterator(), found, seen);
            }
        } else if (value instanceof scala.collection.Iterable) {
            each(((scala.collection.Iterable) value).iterator(), found, seen);
        } else if (value instanceof scala.Product && value.getClass().getName().startsWith("scala.")) {
            each(((scala.Product) value).productIterator(), found, seen);
        }
    }

    private static void each(scala.collection.Iterator values, List found, IdentityHashMap seen) {
        while (values.hasNext()) {
            walk(values.next(), found, seen);
        }
    }

    private static void name(TreeNode node, List found) {
        String kind = node.getClass().getSimpleName().replace("$", "");
        found.add((node instanceof LogicalPlan ? "plan " : "expression ") + kind);
        if (node instanceof UnresolvedFunction) {
            found.add("function " + ((UnresolvedFunction) node).nameParts().mkString("\0"));
        } else if (node instanceof UnresolvedTableValuedFunction) {
            found.add("function " + ((UnresolvedTableValuedFunction) node).name().mkString("\0"));
        } else if (node instanceof UnresolvedRelation) {
            found.add("table " + ((UnresolvedRelation) node).multipartIdentifier().mkString("\0"));
        } else if (node instanceof UnresolvedTableOrView) {
            found.add("table " + ((UnresolvedTableOrView) node).multipartIdentifier().mkString("\0"));
        } else if (node instanceof SubqueryAlias) {
            found.add("alias " + ((SubqueryAlias) node).identifier().name());
        }
    }
}
"""


def close(spark: "SparkSession", functions: Collection[str]) -> "SparkSession":
    """Return a session beside `spark` for statements, in which only these functions exist."""
    closed = spark if is_connected(spark) else spark.newSession()
    for name, value in SETTINGS.items():
        closed.conf.set(name, value)
    if not is_connected(closed):
        state = _jvm(closed).sessionState()
        for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
            _keep(registry, functions)
    return closed


def _keep(registry: Any, functions: Collection[str]) -> None:  # noqa: ANN401 - an object of the JVM
    names = registry.listFunction().iterator()
    while names.hasNext():
        name = names.next()
        text = name.funcName()
        if text.isidentifier() and text not in functions and not text.startswith(_OF_DELTA):
            registry.dropFunction(name)


def check(spark: "SparkSession", sql: str, functions: Collection[str], views: Collection[str]) -> None:
    """Check Spark's tree of a statement; tables are these views, those of the session, and names of queries.

    Raises BadUsage, and Spark's error if it cannot parse the statement.
    """
    if is_connected(spark):
        return
    state = _jvm(spark).sessionState()
    found = [tuple(node.split(" ", 1)) for node in _nodes(spark, state.sqlParser().parsePlan(sql))]
    tables = {name.casefold() for kind, name in found if kind == "alias"} | {view.casefold() for view in views}
    for kind, name in found:
        if kind == "function" and name.lower() not in functions:
            raise _refused(f"the function {_shown(name)}")
        if kind == "plan" and name not in _QUERIES:
            raise _refused(name)
        if kind == "expression" and name in _NOT_READ:
            raise _refused(name)
        if kind == "table" and name.casefold() not in tables and not state.catalog().getTempView(name).isDefined():
            raise _refused(f"the table {_shown(name)}")


def check_analysed(rows: "DataFrame") -> None:
    """Check the analysed tree of a statement; raises BadUsage."""
    if is_connected(rows.sparkSession):
        return
    plan = cast("Any", rows)._jdf.queryExecution().analyzed()  # noqa: SLF001 - there is no public way to it
    for node in _nodes(rows.sparkSession, plan):
        kind, name = node.split(" ", 1)
        if kind == "expression" and name in _NOT_COMPUTED:
            raise _refused(name)


def _shown(name: str) -> str:
    return name.replace("\0", ".")


def _refused(what: str) -> BadUsage:
    return BadUsage(f"the statement is more than a query of the lake: {what}", "Write a query of tables of the lake.")


def _jvm(spark: "SparkSession") -> Any:  # noqa: ANN401 - an object of the JVM
    return cast("Any", spark)._jsparkSession  # noqa: SLF001 - there is no public way to it


def _nodes(spark: "SparkSession", tree: Any) -> list[str]:  # noqa: ANN401 - an object of the JVM
    gateway = cast("Any", spark.sparkContext)._gateway  # noqa: SLF001 - as above
    given = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    given[0] = tree
    return list(_reader(gateway).invoke(None, given))


@cache
def _reader(gateway: Any) -> Any:  # noqa: ANN401 - objects of the JVM
    """Compile the reader of trees; return its method."""
    java = gateway.jvm.java
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(8)
    compiler.setParentClassLoader(java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    parameters = gateway.new_array(java.lang.Class, 1)
    parameters[0] = java.lang.Class.forName("java.lang.Object")
    return compiler.getClassLoader().loadClass(_CLASS).getMethod("nodes", parameters)
