"""Which files a client may name: below its roots and nowhere else, however they are written down."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from occupancy_cli import load_spec
from occupancy_cli.errors import InputError
from occupancy_cli.mcp_server.roots import Roots, allowed_roots, folder_of

KERNEL = "import triton\n\n@triton.jit\ndef k(x_ptr):\n    pass\n"
SPEC = (
    "schema: occupancy/kernel-spec/1\nkernel: {kernel}\narguments: {{x_ptr: {{type: '*fp32'}}}}\nconfigs: {configs}\n"
)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A root with a kernel, and a folder outside with one and with what links, specs and tables of the root name."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root, outside):
        (folder / "tables").mkdir(parents=True)
        (folder / "k.py").write_text(KERNEL)
        (folder / "tables" / "E=1.json").write_text('{"1": {"BLOCK": 64}}')
        (folder / "k.yaml").write_text(SPEC.format(kernel="k.py:k", configs="[{}]"))
    (root / "linked.py").symlink_to(outside / "k.py")
    (root / "linked").symlink_to(outside)
    (root / "loop.py").symlink_to(root / "loop.py")
    (root / "tables" / "linked.json").symlink_to(outside / "tables" / "E=1.json")
    return root, outside


def test_what_lies_below_a_root_is_seen_from_the_first_that_has_it(folders: tuple[Path, Path]) -> None:
    root, other = folders
    roots = Roots((root, other))
    assert roots.kernel("k.py:k", "kernel") == "k.py:k"
    assert roots.kernel(f"{root}/k.py:make(64, 'a/b').k", "kernel") == "k.py:make(64, 'a/b').k"
    (other / "own.py").write_text(KERNEL)
    assert roots.kernel("own.py:k", "kernel") == f"{other}/own.py:k"
    assert roots.kernel("k.yaml", "kernel") == "k.yaml"
    # Names are no paths: a shipped kernel's, a module's, a GPU's, a config.
    for name in ("sparse_mla_decode", "package.module:kernel", "no_such_kernel"):
        assert roots.kernel(name, "kernel") == name
    assert roots.side("12.0", "after") == "12.0" and roots.side("BLOCK=64", "after") == "BLOCK=64"
    assert roots.gpu("h200", "gpu") == "h200" and roots.gpu("mine.yaml", "gpu") == str(root / "mine.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "{outside}/k.py:k", "../outside/k.py:k", "linked.py:k", "linked/k.py:k", "./linked/../../outside/k.py:k",
        "{outside}/k.yaml", "../outside/k.yaml", "x:/../../outside/k.yaml", "{outside}/no-such.yaml", "{outside}",
        "{outside}/k", "../outside/k.py", "x(:/../../outside/k.py", "/etc/passwd", "/etc/passwd:k", "..//outside/x:k",
    ],
)  # fmt: skip
def test_no_spelling_leads_outside(folders: tuple[Path, Path], text: str) -> None:
    root, outside = folders
    for take in (Roots((root,)).kernel, Roots((root,)).side):
        with pytest.raises(InputError, match=r"lies outside the folders.*\nIt may read") as refused:
            take(text.format(outside=outside), "kernel")
        assert refused.value.where == "kernel"


def test_files_that_are_no_kernels_are_held_too(folders: tuple[Path, Path]) -> None:
    root, outside = folders
    roots = Roots((root,))
    for refused in (
        lambda: roots.gpu(f"{outside}/gpu.yaml", "gpu"),
        lambda: roots.side("../outside/before.json", "before"),
        lambda: roots.path("linked/calibration.yaml", "calibration"),
    ):
        with pytest.raises(InputError, match="lies outside"):
            refused()
    for odd in ("loop.py", "a\0b"):
        with pytest.raises(InputError):
            roots.path(odd, "kernel")
    with pytest.raises(InputError, match="The client has no root"):
        Roots(()).kernel("k.py:k", "kernel")


@pytest.mark.parametrize(
    ("kernel", "configs", "held"),
    [
        ("k.py:k", "[{{}}]", True),
        ("os.path:join", "[{{}}]", True),
        ("../outside/k.py:k", "[{{}}]", False),
        ("linked.py:k", "[{{}}]", False),
        ("k.py:k", "{{table: tables/E=1.json}}", True),
        ("k.py:k", "{{table: 'tables/E*.json'}}", True),
        ("k.py:k", "{{table: 'none/*.json'}}", True),
        ("k.py:k", "{{table: 'tables/*.json'}}", False),  # one of them is a link
        ("k.py:k", "{{table: tables}}", False),
        ("k.py:k", "{{table: '{outside}/tables/*.json'}}", False),
        ("k.py:k", "{{table: ../outside/tables}}", False),
        ("k.py:k", "{{table: 'json:../csv.py'}}", False),  # the package is installed, the file lies beside it
        ("k.py:k", "{{table: 'no_such_package:x'}}", True),
    ],
)
def test_a_spec_is_held_to_the_roots_of_who_names_it(
    folders: tuple[Path, Path], kernel: str, configs: str, held: bool
) -> None:
    root, outside = folders
    spec = root / "asked.yaml"
    spec.write_text(SPEC.format(kernel=kernel, configs=configs.format(outside=outside)))
    if held:
        Roots((root,)).hold(load_spec(spec))
    else:
        with pytest.raises(InputError, match=r"asked.yaml: (kernel|configs\.table): .* lies outside"):
            Roots((root,)).hold(load_spec(spec))


def test_kernels_that_follow_are_held_too(folders: tuple[Path, Path]) -> None:
    root, _ = folders
    spec = root / "asked.yaml"
    spec.write_text(SPEC.format(kernel="k.py:k", configs="[{}]") + "followed_by: [{kernel: ../outside/k.py:k}]\n")
    with pytest.raises(InputError, match=r"\.\./outside/k\.py lies outside"):
        Roots((root,)).hold(load_spec(spec))


def test_shipped_specs_may_always_be_named() -> None:
    Roots(()).hold(load_spec("sparse_mla_decode"))


def test_a_client_s_roots_are_held_to_those_a_person_named(tmp_path: Path) -> None:
    ours = [tmp_path / "project"]
    (ours[0] / "ops").mkdir(parents=True)
    uri = ours[0].as_uri()
    assert allowed_roots(ours, None, only_ours=True).folders == tuple(ours)
    assert allowed_roots(ours, [f"{uri}/ops"], only_ours=True).folders == (ours[0] / "ops",)
    assert allowed_roots(ours, ["file:///"], only_ours=True).folders == tuple(ours)
    assert allowed_roots(ours, ["file:///etc"], only_ours=True).folders == ()
    assert allowed_roots(ours, ["file:///etc"], only_ours=False).folders == (Path("/etc").resolve(),)
    assert allowed_roots(ours, ["https://x/y"], only_ours=False).folders == ()
    assert folder_of("file://localhost/a%20b") == Path("/a b")
    assert folder_of("file://elsewhere/a") is None and folder_of("file:///a%00b") is None


@pytest.mark.mcp
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_server_asks_its_client_for_its_roots(folders: tuple[Path, Path], mode: str) -> None:
    from mcp_client import talk, text_of

    root, outside = folders
    calls: list[tuple[str, dict[str, Any]]] = [
        ("analyze", {"kernel": f"{root}/k.py:k"}),
        ("explain", {"kernel": "../root/k.yaml"}),
        ("fit", {"kernel": f"{root}/k.py:k"}),
        ("recommend", {"kernel": f"{root}/k.yaml"}),
        ("recommend", {"calibration": f"{root}/k.yaml"}),
        ("check", {"kernels": ["sparse_mla_decode", f"{root}/k.yaml"]}),
        ("check", {"gpus": ["h200", f"{root}/gpu.yaml"]}),
        ("diff", {"before": f"{root}/a.json", "after": "b.json"}),
        ("diff", {"before": "h200", "after": "h100", "kernel": f"{root}/k.py:k"}),
        ("calc", {"num_warps": 4, "shared": 0, "gpu": f"{root}/gpu.yaml"}),
        ("gpus", {"names": [f"{root}/gpu.yaml"]}),
    ]

    # What is asked is the same in both protocols; how the roots are asked for is not.
    calls = calls if mode == "legacy" else calls[:2]

    async def refused(one: Any) -> list[str]:
        found = []
        for tool, arguments in calls:
            answer = await one.call_tool(tool, arguments)
            assert answer.is_error, (tool, arguments)
            found.append(text_of(answer))
        return found

    # The server runs in the one folder, and the client's root is another.
    said = talk(refused, root, roots=[outside / "tables"], mode=mode)
    assert all(f"lies outside the folders that this server may read\nIt may read {outside}/tables." in s for s in said)
    # A root that a person named is not widened by the client's.
    del calls[2:]
    said = talk(refused, outside, "--root", str(outside), roots=[Path("/")], mode=mode)
    assert all(f"lies outside the folders that this server may read\nIt may read {outside}." in text for text in said)


@pytest.mark.mcp
@pytest.mark.compiles
@pytest.mark.one_triton
def test_what_a_kernel_imports_may_lie_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_client import report_of, talk

    root, installed = tmp_path / "root", tmp_path / "installed"
    for folder in (root, installed):
        folder.mkdir()
    (installed / "sizes_of_ours.py").write_text("BLOCK = 256\n")
    (root / "k.py").write_text(
        "import sizes_of_ours\nimport triton\nimport triton.language as tl\n\n"
        "B = tl.constexpr(sizes_of_ours.BLOCK)\n\n\n"
        "@triton.jit\ndef k(x_ptr):\n    at = tl.arange(0, B)\n    tl.store(x_ptr + at, at)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}{installed}")

    async def conversation(one: Any) -> None:
        answer = await one.call_tool("analyze", {"kernel": "k.py:k", "args": {"x_ptr": "*i32"}, "gpu": "h200"})
        config = report_of(answer)["kernels"][0]["configs"][0]
        assert config["status"] == "ok" and config["resources"]["num_warps"] == 4
        # And the next call finds it in the cache, whose facts are of files outside too.
        again = await one.call_tool("analyze", {"kernel": "k.py:k", "args": {"x_ptr": "*i32"}, "gpu": "h200"})
        assert report_of(again)["kernels"] == report_of(answer)["kernels"]

    talk(conversation, root, roots=[root])
