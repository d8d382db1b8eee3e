"""The analytic model: FLOP and minimal bytes of operators, from shapes and dtypes alone."""
