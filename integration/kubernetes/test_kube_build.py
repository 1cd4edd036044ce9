"""Test what is built, and the sentence where nothing can be.

Neither Go nor a network is needed.
"""

import re
from concurrent.futures import ThreadPoolExecutor

import kube_build
import pytest
from kube_build import NoControlPlaneError, built, cache, digest, go_mod, require_go

GO_MOD = """// generated
module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require (
\tgithub.com/a/b v1.2.3
\tk8s.io/api v0.0.0
\tk8s.io/klog/v2 v2.1.0
)

require (
\tgithub.com/c/d v0.1.0 // indirect
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/client-go => ./staging/src/k8s.io/client-go
)
"""


def test_go_mod_takes_staging_modules_as_they_are_published():
    lines = go_mod("1.37.2", GO_MOD).splitlines()
    assert "require k8s.io/kubernetes v1.37.2" in lines
    assert "replace k8s.io/client-go => k8s.io/client-go v0.37.2" in lines
    assert "require k8s.io/api v0.37.2" in lines
    assert {"require github.com/a/b v1.2.3", "require github.com/c/d v0.1.0"} <= set(lines)
    assert "require k8s.io/klog/v2 v2.1.0" in lines
    assert not [line for line in lines if line.endswith("v0.0.0")]
    assert {"go 1.26.0", "godebug default=go1.26"} <= set(lines)


def test_building_without_go_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(NoControlPlaneError, match=r"needs Go.*https://go\.dev/dl"):
        built()


def test_older_go_is_named_with_the_one_that_is_needed(tmp_path):
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.22.5\n")
    go.chmod(0o755)
    with pytest.raises(NoControlPlaneError, match=r"needs Go 1\.26\.0 or later, .* is go1\.22\.5"):
        require_go(str(go), "1.37.2", GO_MOD)


def test_what_is_built_is_kept_outside_of_the_checkout(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache() / f"kubernetes-1.37.2-{digest('1.37.2')}"
    folder.mkdir(parents=True)
    for name in ("controlplane", "elector", "awaiter"):
        (folder / name).touch()
    monkeypatch.setattr(kube_build, "go_command", lambda: pytest.fail("built again"))
    assert built("1.37.2").controlplane == folder / "controlplane"


FAKE_GO = """#!/bin/sh
case "$1 $2" in
  "mod download") echo '{"GoMod": "'$HOME'/go.mod"}' ;;
  "env GOVERSION") echo go1.99.0 ;;
  "list -deps") echo one; echo two ;;
  build*)
    for turn in $(seq 1000); do [ -e $HOME/go-on ] && break; sleep 0.01; done
    echo $$ >> $HOME/builds
    while [ "$1" != -o ]; do shift; done
    echo built > "$2" ;;
esac
"""


def test_two_builds_at_once_are_one(tmp_path, monkeypatch):
    """The first one is not done before the second one waits for it."""
    (tmp_path / "go.mod").write_text(GO_MOD)
    go = tmp_path / "go"
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kube_build, "go_command", lambda: str(go))
    monkeypatch.setattr(kube_build, "NEEDS_BYTES", 0)
    lines = []

    def show(line):
        lines.append(line)
        if "another process" in line:
            (tmp_path / "go-on").touch()

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: built("1.37.2", show), range(2))
    assert one == other
    assert one.controlplane.read_text() == "built\n"
    assert len((tmp_path / "builds").read_text().split()) == 3, "three binaries, each built once"
    assert any("another process" in line for line in lines)
    assert {path.name for path in one.controlplane.parent.iterdir()} == {
        "controlplane", "elector", "awaiter", "lock",
    }  # fmt: skip


def test_build_that_fails_leaves_no_binary_and_says_why(tmp_path, monkeypatch):
    (tmp_path / "go.mod").write_text(GO_MOD)
    go = tmp_path / "go"
    go.write_text(FAKE_GO.replace("build*)", "build*) echo no space >&2; exit 1;"))
    go.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kube_build, "go_command", lambda: str(go))
    monkeypatch.setattr(kube_build, "NEEDS_BYTES", 0)
    with pytest.raises(NoControlPlaneError, match=r"cannot build(.|\n)*no space"):
        built("1.37.2", lambda _: None)
    assert {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()} == {"lock"}


def test_digest_differs_by_version():
    assert digest("1.37.2") != digest("1.37.1")
    assert re.fullmatch(r"[0-9a-f]{12}", digest("1.37.2"))
