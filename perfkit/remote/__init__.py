"""Work on another machine, over the user's own `ssh`: the working folder goes there, the run folder comes back.

    ssh       one connection, which the calls share; what can happen to it, in sentences
    probe.sh  the first call: finds a Python there, and puts bootstrap.py into its place
    bootstrap receives files there; the only file that stands there by itself
    environment, agent  what else happens there: the environment, running, stopping, bringing back
    there     the calls, from here
    files     what is sent: the working folder's files, and perfkit's own
    session   the whole way: connect, send, run, bring back

No daemon runs there: when the connection ends, so does the program. Rendering is done here.
"""
