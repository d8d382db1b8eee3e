"""Operators of a trace run again, here: rebuilt from recorded shapes, strides, dtypes and values, checked and timed.

recorded     a row of the report's kernel table, or an operator by name → what the trace holds of that kind of call
arguments    recorded arguments → a recipe (plain data), by the schema of the operator that they fit
origins      inputs of a backward operator that its forward operator makes
rebuilt      a recipe → tensors and a call; imports torch alone, for it is also the text of stand-alone scripts
ways         eager, torch.compile, choices of libraries, perfkit's own kernels that fit
replay       all of it as a benchmark (`perfkit.bench`), next to the trace's own time
script       a stand-alone Python file of a recipe
"""
