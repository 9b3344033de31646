"""The questions of the Python API for an assistant: an MCP server on standard input and output (`occupancy mcp`).

    client ── tools/call ──► server ── a line of JSON ──► answering (a process a call) ──► occupancy_cli.api

`tools` has what each tool takes, and is all that stands between a client and a function of `api`; `roots` says which
paths a client may name; `calls` asks a process of its own for each call, so that a call that is cancelled or out of
time ends with its compiles and without another's; `answering` is that process; `results` makes a Report short;
`resources` lists what can be read. `server` alone imports the SDK (package `mcp`), and only `occupancy mcp` imports
`server`. May import `api` and the floors below it; `cli` stands above, and starts it.
"""
