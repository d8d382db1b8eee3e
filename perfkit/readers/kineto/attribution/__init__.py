"""From events to their places: step, pass, module, range and logical operator, each with its evidence.

steps, places, modules   of events on the host: the steps, the pass, the module and the operator
gpu_steps, replays       of activities on a GPU: what launched them, and the steps as the GPU ran them
call_sites, graph_runs   of generated code: what a compiler recorded of the calls of a graph
columns                  all of it: `place`, and the place columns of rows"""
