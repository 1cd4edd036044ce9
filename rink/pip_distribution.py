"""Name Rink's distribution, and refuse another one in the same folder.

The name `rink` on PyPI belongs to another project, which also has a package `rink` and a command
`rink`.
"""

from __future__ import annotations

import os

DISTRIBUTION = "etcd-rink"
"""Name for pip; the import name and the command are `rink`."""


def install_command(*extras: str) -> str:
    """Return the command that installs some extras, for messages."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"


def refuse_other_distribution(package: str) -> None:
    """Raise an ImportError if the distribution `rink` is installed, too.

    Every `import rink` runs this, so it lists one folder and imports nothing.

    Args:
        package: the folder of the package `rink`.
    """
    folder = os.path.dirname(package)  # noqa: PTH120 - pathlib takes longer to import
    try:
        names = os.listdir(folder)  # noqa: PTH208 - as above
    except OSError:  # the package lies in a zip file
        return
    for name in names:
        if name.startswith("rink-") and name.endswith((".dist-info", ".egg-info")):
            raise ImportError(
                f"two distributions have written into one package `rink` in {folder}: "
                f"{DISTRIBUTION!r}, which is Rink, and 'rink' ({name}), which is another project. "
                f"Run `pip uninstall -y rink {DISTRIBUTION}`, then `pip install {DISTRIBUTION}` "
                "with the extras that you need",
                name="rink",
            )
