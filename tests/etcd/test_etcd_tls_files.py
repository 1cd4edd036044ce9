"""Check that certificates are read for each connection."""

import shutil

import pytest
import trustme

from rink.errors import ConfigError
from rink.etcd.tls import TlsSource


class Files:
    """A CA, a certificate and its key, as files of a folder."""

    def __init__(self, folder):
        self.ca, self.cert, self.key = (folder / name for name in ("ca.pem", "c.pem", "c.key"))
        self.source = None

    def write(self):
        """Write new ones; return the texts."""
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        self.ca.write_bytes(authority.cert_pem.bytes())
        self.cert.write_bytes(issued.cert_chain_pems[0].bytes())
        self.key.write_bytes(issued.private_key_pem.bytes())
        return self.texts()

    def texts(self):
        return self.ca.read_bytes(), self.cert.read_bytes(), self.key.read_bytes()

    def read(self):
        """Return the texts for a connection that begins now."""
        if self.source is None:
            self.source = TlsSource(self.ca, str(self.cert), self.key)
        read = self.source.read()
        return read.ca, read.pair.cert, read.pair.key


@pytest.fixture
def files(tmp_path):
    made = Files(tmp_path)
    made.write()
    return made


def test_tls_source_whose_files_are_rotated_reads_the_new_ones(files):
    assert files.read() == files.texts()
    new = files.write()
    assert files.read() == new


def test_tls_source_of_bytes_stays_as_given(files):
    ca, cert, key = files.texts()
    source = TlsSource(ca, cert, key)
    files.write()
    read = source.read()
    assert (read.ca, read.pair.cert, read.pair.key) == (ca, cert, key)


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def empty(path):
    path.write_bytes(b"")


def garble(path):
    path.write_bytes(path.read_bytes().replace(b"M", b"N"))


def make_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.unlink(), "No such file"),
        (make_folder, "Is a directory"),
        (empty, "BEGIN"),
        (cut, "cut short"),
        (garble, "usable|used together"),
    ],
)
def test_tls_file_that_cannot_be_used_leaves_the_old_and_warns_once(
    files, caplog, name, spoil, says
):
    old, path = files.read(), getattr(files, name)
    spoil(path)
    assert files.read() == old
    assert files.read() == old
    [record] = caplog.records
    assert record.levelname == "WARNING"
    caplog.clear()
    assert str(path) in record.getMessage()
    assert any(word in record.getMessage() for word in says.split("|"))
    if path.is_dir():
        shutil.rmtree(path)
    new = files.write()
    assert files.read() == new
    assert not caplog.records


def test_tls_certificate_without_its_new_key_is_not_used_yet(files, caplog):
    old, key = files.read(), files.key.read_bytes()
    new = files.write()
    files.key.write_bytes(key)
    assert files.read() == (new[0], *old[1:])
    assert "used together" in caplog.text
    files.key.write_bytes(new[2])
    assert files.read() == new


def test_tls_pair_written_while_it_is_checked_is_not_used_yet(files, monkeypatch, caplog):
    old = files.read()
    texts = []
    monkeypatch.setattr("rink.etcd.tls.KeyPair.load_into", lambda *_: texts.append(files.write()))
    assert files.read() == old
    assert "being written" in caplog.text
    monkeypatch.undo()
    assert files.read() == texts[0]


def test_tls_key_of_another_certificate_is_refused(files, tmp_path):
    (tmp_path / "other").mkdir()
    other = Files(tmp_path / "other")
    other.write()
    with pytest.raises(ConfigError, match="belong together"):
        TlsSource(None, files.cert, other.key)


def test_tls_key_is_in_no_representation(files):
    assert "PRIVATE" not in repr(TlsSource(None, *files.texts()[1:]).read())
