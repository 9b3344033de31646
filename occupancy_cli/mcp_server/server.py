"""The MCP server itself: tools, resources, progress, cancellation and roots, by the official SDK (package `mcp`).

    serve(Settings(folders=(Path.cwd(),)))        # until standard input ends

It answers both protocols that the SDK speaks: with a handshake (to 2025-11-25) the client is asked for its roots by a
request, from 2026-07-28 on by an answer that asks for them before the call is done.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from occupancy_cli.data_files import guide_text, shipped_dir
from occupancy_cli.errors import InputError, OccupancyError, unknown_name
from occupancy_cli.mcp_server import calls, resources
from occupancy_cli.mcp_server.answering import Call, HowToCompile
from occupancy_cli.mcp_server.results import ShortAnswer, output_schema
from occupancy_cli.mcp_server.roots import Roots, allowed_roots
from occupancy_cli.mcp_server.tools import REPORTS, TOOLS, Tool, ToolArguments, arguments_of
from occupancy_cli.report.visible_text import visible_lines
from occupancy_cli.version import VERSION

CALLS_AT_ONCE = 4
_ROOTS_WITHIN_S = 10.0
_ROOTS = "roots"


@dataclasses.dataclass(frozen=True)
class Settings:
    """`folders` may be named by clients that have no roots; with `only_these` a client's roots are held to them too.

    `time_limit_s` is the most that a call may take, `how` how it compiles.
    """

    folders: tuple[Path, ...]
    only_these: bool = False
    time_limit_s: float = 600.0
    how: HowToCompile = dataclasses.field(default_factory=HowToCompile)


def serve(settings: Settings) -> None:
    """Answer the client on standard input and output until it ends."""
    anyio.run(_serve, settings)


async def _serve(settings: Settings) -> None:
    session = _Session(settings)
    server: Any = Server(
        "occupancy",
        version=VERSION,
        title="occupancy: what Triton kernels take of a GPU, without one",
        instructions=guide_text(),
        on_list_tools=session.list_tools,
        on_call_tool=session.call_tool,
        on_list_resources=session.list_resources,
        on_list_resource_templates=session.list_templates,
        on_read_resource=session.read_resource,
    )
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Session:
    """A client's session: its Reports, and the calls under way."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.reports = resources.Reports()
        self._at_once = anyio.CapacityLimiter(CALLS_AT_ONCE)

    async def list_tools(self, _context: Any, _params: Any) -> Any:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS.values()])

    async def call_tool(self, context: Any, params: Any) -> Any:
        if params.name not in TOOLS:
            raise MCPError(types.INVALID_PARAMS, _one_line(unknown_name("tool", params.name, TOOLS)))
        tool = TOOLS[params.name]
        try:
            asked = arguments_of(tool, params.arguments or {})
            roots = await self._roots(context, params)
            if not isinstance(roots, Roots):
                return roots
            async with self._at_once:
                return self._result(tool, await self._ask(context, tool, asked, roots))
        except OccupancyError as bad:
            text = types.TextContent(type="text", text=visible_lines(str(bad)))
            return types.CallToolResult(content=[text], is_error=True)

    async def _ask(self, context: Any, tool: Tool, asked: ToolArguments, roots: Roots) -> ShortAnswer:
        arguments = asked.model_dump(mode="json")
        named = {v for v in arguments.values() if isinstance(v, str) and v.startswith(REPORTS)}
        reports = {uri: whole for uri in named if (whole := self.reports.get(uri)) is not None}
        folders = tuple(map(str, roots.folders))
        call = Call(tool.name, arguments, folders, self.settings.how, reports)
        limit = min(self.settings.time_limit_s, arguments.get("time_limit_s") or self.settings.time_limit_s)

        async def progress(state: Mapping[str, Any]) -> None:
            await context.session.report_progress(state["done"], state["total"], _compiled(state))

        return await calls.ask(call, limit, progress, roots.home or shipped_dir("kernels"))

    def _result(self, tool: Tool, answer: ShortAnswer) -> Any:
        uri = self.reports.keep(f"{tool.name}: {answer.text.partition(chr(10))[0][:100]}", answer.whole)
        structured = {"report_uri": uri, **answer.structured}
        text = types.TextContent(type="text", text=_with_the_rest(answer, uri))
        link = types.ResourceLink(
            type="resource_link", uri=uri, name=f"the whole Report of {tool.name}", mime_type=resources.JSON
        )
        return types.CallToolResult(content=[text, link], structured_content=structured)

    async def _roots(self, context: Any, params: Any) -> Roots | Any:
        """The roots of a call; what asks a client of the newer protocol for them, where they are not there yet."""
        allowed = functools.partial(allowed_roots, self.settings.folders, only_ours=self.settings.only_these)
        capabilities = context.session.client_capabilities
        if capabilities is None or capabilities.roots is None:
            return allowed(None)
        if context.session.can_send_request:
            try:
                answer = await context.session.send_request(
                    types.ListRootsRequest(), types.ListRootsResult, request_read_timeout_seconds=_ROOTS_WITHIN_S
                )
            except MCPError as bad:
                raise InputError(f"the client does not tell its roots: {bad}", where=_ROOTS) from None
        else:
            answer = (params.input_responses or {}).get(_ROOTS)
            if answer is None:
                return types.InputRequiredResult(input_requests={_ROOTS: types.ListRootsRequest()})
            if not isinstance(answer, types.ListRootsResult):
                raise InputError("the client does not tell its roots", where=_ROOTS)
        return allowed([str(root.uri) for root in answer.roots])

    async def list_resources(self, _context: Any, _params: Any) -> Any:
        found = [
            types.Resource(uri=one.uri, name=_name(one.uri), title=one.title, mime_type=one.mime_type)
            for one in resources.listed(self.reports)
        ]
        return types.ListResourcesResult(resources=found)

    async def list_templates(self, _context: Any, _params: Any) -> Any:
        found = [
            types.ResourceTemplate(uri_template=uri, name=_name(uri), title=title, mime_type=kind)
            for uri, (title, kind) in resources.TEMPLATES.items()
        ]
        return types.ListResourceTemplatesResult(resource_templates=found)

    async def read_resource(self, _context: Any, params: Any) -> Any:
        uri = str(params.uri)
        try:
            text, kind = await anyio.to_thread.run_sync(resources.read, uri, self.reports)
        except OccupancyError as bad:
            raise MCPError(types.INVALID_PARAMS, _one_line(bad)) from None
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=kind, text=text)])


@functools.cache
def _described(tool: Tool) -> Any:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.arguments.model_json_schema(),
        output_schema=output_schema(tool.parts),
        annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )


def _name(uri: str) -> str:
    return uri.removeprefix(resources.SCHEME)


def _compiled(state: Mapping[str, Any]) -> str:
    last = f"; last {state['current']}" if state["current"] else ""
    return f"compiled {state['done']:,} of {state['total']:,}{last}"


def _with_the_rest(answer: ShortAnswer, uri: str) -> str:
    """The text, and where what it leaves out is to be had."""
    cut = _listed(answer.structured["left_out"])
    if not cut and "more lines]" not in answer.text:
        return answer.text
    most = max((one["of"] for one in answer.structured["left_out"]), default=0)
    again = f"ask again with rows={most}" if most else "ask again with more rows"
    return f"{answer.text}\n[all of it: read {uri}, or {again}{cut}]"


def _listed(left_out: Iterable[Mapping[str, Any]]) -> str:
    shown = [f"{one['at']} {one['shown']} of {one['of']}" for one in left_out]
    more = f" and {len(shown) - 3} more lists" if len(shown) > 3 else ""
    return f"; structured content has {', '.join(shown[:3])}{more}" if shown else ""


def _one_line(bad: OccupancyError) -> str:
    return json.dumps(str(bad), ensure_ascii=False)[1:-1].replace("\\n", " ")
