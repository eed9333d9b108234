"""`make demo`: the official Python MCP client drives the three sample tools, each to an end of its own.

Nothing here is special to the demonstration but the data: the processes are those of a deployment, and the client is
not ours.
"""
