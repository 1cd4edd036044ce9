"""Write a CA and certificates as PEM files, which a test may replace."""

import trustme

from rink.testing import TlsFiles


class Files:
    """Hold a CA, and certificates signed by it, as PEM files."""

    def __init__(self, folder, *names):
        folder.mkdir()
        self.names = names
        self.ca = folder / "ca.pem"
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        self.authority = self.renew_authority()
        self.issue()

    def renew_authority(self):
        """Replace the CA's file, which makes all earlier certificates invalid."""
        self.authority = trustme.CA()
        self.ca.write_bytes(self.authority.cert_pem.bytes())
        return self.authority

    def issue(self, **settings):
        """Replace certificate and key."""
        issued = self.authority.issue_cert(*self.names, **settings)
        self.key.write_bytes(issued.private_key_pem.bytes())
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    def server(self, *, client_cert_auth=False):
        return TlsFiles(self.ca, self.cert, self.key, client_cert_auth=client_cert_auth)
