"""Exceptions of the JVM: what a report of a bug shows of them."""

import pytest
from pyspark.sql import SparkSession

from auditlake.jvm_trace import classes_in, trace_of
from auditlake.messages import report_bug

pytestmark = pytest.mark.spark


def test_a_bug_is_reported_with_the_classes_of_the_jvm(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """The message, here with a row's value, is in the trace and not in the report."""
    with pytest.raises(Exception, match="a value") as raised:
        spark.sql("select raise_error('a ' || 'value')").collect()
    trace = trace_of(raised.value)
    assert trace is not None
    assert "a value" in trace
    report_bug(raised.value)
    shown = capsys.readouterr().err
    assert f"in the JVM: {', caused by '.join(classes_in(trace))}" in shown
    assert "org.apache.spark.SparkRuntimeException" in shown
    assert "a value" not in shown
