"""Example scripts, run while the pages are built: what a page shows is what the script did."""

import os
import subprocess
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective
from sphinx.util.osutil import relative_uri

__all__ = ["Example", "setup"]


class Example(SphinxDirective):
    """`{example} wrong_dependence`: the script, what it prints and the picture that it draws.

    `examples/NAME.py FOLDER` prints, and writes `FOLDER/NAME.png`. Both are kept among the built
    pages, in `examples/`.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Run the script, in a process of its own."""
        name = self.arguments[0]
        script = Path(self.env.srcdir).parent / "examples" / f"{name}.py"
        self.env.note_dependency(script)
        folder = Path(self.env.app.outdir) / "examples"
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-W", "error", str(script), str(folder)],
            env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or done.stderr:
            raise ExtensionError(f"{script} failed:\n{done.stderr}")
        (folder / f"{name}.txt").write_text(done.stdout)
        here = self.env.app.builder.get_target_uri(self.env.docname)
        picture = relative_uri(here, f"examples/{name}.png")
        code = script.read_text()
        return [
            nodes.literal_block(code, code, language="python"),
            nodes.paragraph("", "It prints"),
            nodes.literal_block(done.stdout, done.stdout, language="text"),
            nodes.paragraph("", "and draws"),
            nodes.raw("", f'<img src="{picture}" alt="What {name}.py draws">', format="html"),
        ]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("example", Example)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
