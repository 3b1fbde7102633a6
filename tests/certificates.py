"""An authority of the tests' own, and what it certifies."""

from __future__ import annotations

from pathlib import Path

import trustme


def certified(folder: Path, name: str = "rank") -> dict[str, str]:
    """The variables of a rank with a certificate of a new authority; the files lie in `folder`, under names that begin
    with `name`."""
    authority = trustme.CA()
    leaf = authority.issue_cert("hocket.invalid")
    files = {what: folder / f"{name}-{what.lower()}.pem" for what in ("CERT", "KEY", "CA")}
    leaf.cert_chain_pems[0].write_to_path(files["CERT"])
    leaf.private_key_pem.write_to_path(files["KEY"])
    authority.cert_pem.write_to_path(files["CA"])
    return {f"HOCKET_TLS_{what}": str(file) for what, file in files.items()}
