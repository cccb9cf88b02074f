"""The compiled build, for who asks for it: `EVERYTURN_NATIVE=1 pip install .`

What the package is stands in pyproject.toml. Without that variable this file adds nothing, and an
install is pure Python that needs no compiler; so is an editable one, whose source is what runs.
With it, mypyc translates the modules of `[tool.everyturn.native]` to C, from the same source.

`EVERYTURN_NATIVE_PROFILE=count` makes a build that counts what runs, into build/profile;
`=use` one that is laid out by these counts. `make native` does both, with a load in between.
"""

from __future__ import annotations

import os
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT: Final = Path(__file__).resolve().parent
OPTIONS: Final = ("--config-file=", "--strict", f"--cache-dir={os.devnull}")
"""Of the type checker, whose types the compiler goes by."""
PROFILE: Final = ROOT / "build" / "profile"
PROFILE_FLAGS: Final = {
    "count": [f"-fprofile-generate={PROFILE}", "-fprofile-update=prefer-atomic"],
    # What no turn of the load came to has no counts, and is made small. All files are optimised as
    # one, so that what is called often is put into its caller, from whatever file.
    "use": [f"-fprofile-use={PROFILE}", "-Wno-missing-profile", "-flto=auto"],
}
"""Of gcc. Source: its manual, "Program Instrumentation Options" and "Options That Control
Optimization"."""


class ManyAtOnce(build_ext):
    """Compiles the C files of an extension on every core."""

    def build_extension(self, ext: Extension) -> None:
        """As setuptools does it, a file a thread."""
        compile_one = self.compiler.compile

        def compile_all(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                parts = pool.map(lambda source: compile_one([source], **options), sources)
                return [built for part in parts for built in part]

        self.compiler.compile = compile_all
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = compile_one


def compiled_modules(native: dict[str, Any]) -> list[str]:
    """The files, from the root of the project on, that `[tool.everyturn.native]` names."""
    left_out = {name for names in native["left-out"].values() for name in names}
    package = ROOT / "src" / "everyturn"
    found: list[Path] = []
    for name in native["packages"]:
        place = package / name
        found += [place] if place.is_file() else place.rglob("*.py")
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in found
        if path.name != "__init__.py" and not left_out & names_of(path.relative_to(package))
    )


def names_of(path: Path) -> set[str]:
    """What a file of the package can be named by: its path, and that of each folder it is in."""
    return {path.as_posix(), *(folder.as_posix() for folder in path.parents)}


def main() -> None:
    """Give setuptools what pyproject.toml cannot say."""
    if os.environ.get("EVERYTURN_NATIVE") != "1":
        setup()
        return
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    # The compiler reads the types of what is imported, so that has to be there as well.
    compiler = [
        line for line in project["optional-dependencies"]["dev"] if line.startswith("mypy=")
    ]
    needed = [*project["dependencies"], *compiler]
    if not {"bdist_wheel", "build_ext"} & set(sys.argv):
        setup(setup_requires=needed)  # pip asks what the build needs, or what the package is.
        return
    from mypyc.build import mypycify

    paths = compiled_modules(settings["tool"]["everyturn"]["native"])
    extensions = mypycify(
        [*OPTIONS, *paths], opt_level="2", debug_level="0", multi_file=True, group_name="everyturn"
    )
    profile = PROFILE_FLAGS.get(os.environ.get("EVERYTURN_NATIVE_PROFILE", ""), [])
    for extension in extensions:
        # One function calls another without a look at a table of what might stand in for it.
        more = ["-fvisibility=hidden", *profile]
        extension.extra_compile_args = [*extension.extra_compile_args, *more]
        extension.extra_link_args = [*extension.extra_link_args, *profile]
    setup(setup_requires=needed, ext_modules=extensions, cmdclass={"build_ext": ManyAtOnce})


if __name__ == "__main__":
    main()
