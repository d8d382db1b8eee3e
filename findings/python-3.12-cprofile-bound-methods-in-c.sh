#!/bin/sh
# cProfile of CPython 3.12 and 3.13 miscounts a Python function that calls a bound method whose function is written in C: any
# method that pybind11 binds, such as save() of torch's profiler results. The return of the call is taken for the function's own,
# so its calls from then on count as recursive ones, and one is lost. Called through C (operator.methodcaller, map) all is right.
# The file fails when any of this changes. It downloads nothing; PYTHON names the interpreter.
#
# Seen: Python 3.11.7 (10, 10), 3.12.1 (3, 9), 3.13.0 (3, 9); by way of C always (10, 10)
set -eu
"${PYTHON:-python3}" - <<'PYTHON'
import cProfile
import pstats
import sys
import types

size = types.MethodType(len, [1])  # a bound method written in C


def direct(number):
    if number == 3:
        size()


def through_c(number):
    if number == 3:
        sorted([0], key=types.MethodType(max, 0))


with cProfile.Profile() as watch:
    for number in range(10):
        direct(number)
        through_c(number)
calls = {key[2]: value[:2] for key, value in pstats.Stats(watch).stats.items()}
print(f"Python {sys.version.split()[0]}: direct {calls['direct']}, through C {calls['through_c']} (primitive calls, calls)")
wrong = sys.version_info[:2] in ((3, 12), (3, 13))
assert calls["through_c"] == (10, 10) and (calls["direct"] != (10, 10)) == wrong
PYTHON
