# SPDX-License-Identifier: Apache-2.0
"""Get an etcd server without touching the system: `python deploy/get_etcd.py` prints the path of a sound one.

The first of these that works, in this order:

1. `$TIMESLICE_ETCD`, an `etcd` of a sound version on PATH, or what an earlier run left in `.tools/etcd`;
2. on Debian, the package of suite `trixie`, pinned to 3.5.16, from the mirror in the machine's own apt
   sources, by an apt configuration of its own under `.tools`, unpacked with `dpkg -x`. Nothing is installed
   and no service is enabled. What proves it is apt's signature check with the machine's own Debian keys;
3. elsewhere, the official release archive of 3.5.21. What proves it is the SHA-256 below. It was not taken
   from the archive's own site: independent projects pin these same digests, so an archive that is exchanged
   at its source later is noticed.

It is safe to run twice, and two at once. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from ledger.etcd_server import (  # noqa: E402 - the checkout is not installed yet when this runs
    EtcdNotFoundError,
    EtcdServerError,
    EtcdUnsoundError,
    find_etcd,
    inspect,
    require_sound,
)

DEBIAN_SUITE = "trixie"
DEBIAN_PACKAGES = ("etcd-server=3.5.16*", "etcd-client=3.5.16*")
PROGRAMS = ("etcd", "etcdctl", "etcdutl")
RELEASE = "v3.5.21"
RELEASE_URL = "https://github.com/etcd-io/etcd/releases/download/{release}/{name}.tar.gz"
RELEASE_SHA256 = {
    "amd64": "adddda4b06718e68671ffabff2f8cee48488ba61ad82900e639d108f2148501c",
    "arm64": "95bf6918623a097c0385b96f139d90248614485e781ec9bee4768dbb6c79c53f",
}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_APT_SECONDS = 300.0
_SOCKET_SECONDS = 30.0
_CHUNK = 1 << 20


class FetchError(EtcdServerError):
    """One way of getting etcd did not work; the next one may."""

    code = "ETCD_NOT_FETCHED"


@dataclass(frozen=True, slots=True)
class AptSource:
    """A mirror that the machine's own apt sources name, and the keys that it trusts for it."""

    uri: str
    signed_by: str | None

    def line(self, suite: str) -> str:
        """This mirror as one line of a sources.list."""
        options = f"[signed-by={self.signed_by}] " if self.signed_by else ""
        return f"deb {options}{self.uri} {suite} main\n"


def say(text: str) -> None:
    """Progress, for people; the result alone goes to standard output."""
    print(f"get_etcd: {text}", file=sys.stderr, flush=True)


def parse_one_line(text: str, codename: str) -> Iterator[AptSource]:
    """The sources of a `sources.list` whose suite is `codename` and that have `main`. Pure."""
    for line in text.splitlines():
        found = re.match(r"deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.*)", line.split("#")[0].strip())
        if found is None or found[3] != codename or "main" not in found[4].split():
            continue
        options = dict(option.partition("=")[::2] for option in (found[1] or "").split())
        yield AptSource(found[2], options.get("signed-by"))


def parse_deb822(text: str, codename: str) -> Iterator[AptSource]:
    """The sources of a `.sources` file whose suites have `codename` and that have `main`. Pure.

    A source whose key is written into the file itself (`Signed-By:` with a block of text) is passed over.
    """
    for stanza in re.split(r"\n[ \t]*\n", text):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields = {
            name.strip().lower(): value.strip()
            for name, colon, value in (line.partition(":") for line in lines if not line[:1].isspace())
            if colon
        }
        signed_by = fields.get("signed-by")
        wanted = (
            "deb" in fields.get("types", "").split()
            and codename in fields.get("suites", "").split()
            and "main" in fields.get("components", "").split()
            and fields.get("enabled", "yes").lower() not in ("no", "false")
            and signed_by != ""
        )
        if wanted:
            yield from (AptSource(uri, signed_by) for uri in fields.get("uris", "").split())


def os_release(text: str) -> dict[str, str]:
    """The fields of an os-release(5) file. Pure."""
    pairs = (line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    return {name: value.strip("\"'") for name, value in pairs}


def machine_sources(etc_apt: Path, codename: str) -> list[AptSource]:
    """The machine's own Debian mirrors, in the order in which apt reads them."""
    parts = etc_apt / "sources.list.d"
    files = [etc_apt / "sources.list", *sorted(parts.glob("*.list")), *sorted(parts.glob("*.sources"))]
    found: list[AptSource] = []
    for file in files:
        if file.is_file():
            parse = parse_deb822 if file.suffix == ".sources" else parse_one_line
            found.extend(parse(file.read_text(encoding="utf-8"), codename))
    return found


def _run(command: Iterable[str | Path], *, cwd: Path) -> None:
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=_APT_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise FetchError(f"{words[0]}: {error}", "see the line above") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise FetchError(f"`{' '.join(words)}` ended with {done.returncode}:\n{tail}", "see the lines above")


def from_debian(work: Path) -> Path:
    """Unpack Debian's packages under `work`; the folder that has the programs. Raises FetchError."""
    release = os_release(Path("/etc/os-release").read_text(encoding="utf-8"))
    if release.get("ID") != "debian" or not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise FetchError("this is not Debian", "use the release archive")
    sources = machine_sources(Path("/etc/apt"), release.get("VERSION_CODENAME", ""))
    if not sources:
        raise FetchError("no Debian mirror in the machine's apt sources", "use the release archive")
    say(f"taking {DEBIAN_PACKAGES[0]} of Debian {DEBIAN_SUITE} from the machine's own mirror")
    for folder in ("lists/partial", "cache/archives/partial", "root"):
        (work / folder).mkdir(parents=True)
    (work / "sources.list").write_text("".join(s.line(DEBIAN_SUITE) for s in sources), encoding="utf-8")
    settings = {
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": work / "lists",
        "Dir::Cache": work / "cache",
        "APT::Sandbox::User": pwd.getpwuid(os.geteuid()).pw_name,
        "Acquire::Languages": "none",
        "Acquire::Retries": 3,
        "APT::Update::Error-Mode": "any",
    }
    apt = ["apt-get", *(f"-o{name}={value}" for name, value in settings.items())]
    _run([*apt, "update"], cwd=work)
    _run([*apt, "download", *DEBIAN_PACKAGES], cwd=work)
    for package in work.glob("*.deb"):
        _run(["dpkg", "-x", package, work / "root"], cwd=work)
    return work / "root" / "usr" / "bin"


def _download(url: str, target: Path) -> str:
    """Fetch `url` into `target`; its SHA-256. Raises FetchError."""
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=_SOCKET_SECONDS) as response, target.open("wb") as out:
            while chunk := response.read(_CHUNK):
                digest.update(chunk)
                out.write(chunk)
    except (OSError, urllib.error.URLError) as error:
        raise FetchError(f"{url}: {error}", "check the network or the proxy (https_proxy)") from error
    return digest.hexdigest()


def from_release(work: Path) -> Path:
    """Unpack the official release under `work`; the folder that has the programs. Raises FetchError."""
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise FetchError(f"no pinned release for a {platform.machine()}", "build etcd >= 3.5.16 from source")
    name = f"etcd-{RELEASE}-linux-{architecture}"
    url = RELEASE_URL.format(release=RELEASE, name=name)
    say(f"taking {url}")
    archive = work / "etcd.tar.gz"
    got = _download(url, archive)
    if got != RELEASE_SHA256[architecture]:
        raise FetchError(
            f"{url} has SHA-256 {got}, not {RELEASE_SHA256[architecture]}",
            "do not use it; a proxy may have answered instead of the site",
        )
    with tarfile.open(archive) as tar:
        for program in PROGRAMS:
            member = tar.extractfile(f"{name}/{program}")
            if member is None:
                raise FetchError(f"{url} has no file {program}", "report it: the release is not as it was")
            with member, (work / program).open("wb") as out:
                shutil.copyfileobj(member, out)
            (work / program).chmod(0o755)
    return work


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One fetch at a time; the lock ends with the process."""
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def fetch(folder: Path) -> None:
    """Put sound etcd programs into `folder`, all or none. Raises FetchError with each way's own reason."""
    reasons: list[str] = []
    for way in (from_debian, from_release):
        with tempfile.TemporaryDirectory(prefix="get-etcd-", dir=folder.parent) as work:
            try:
                programs = way(Path(work))
                require_sound(inspect(programs / "etcd"))
            except EtcdServerError as error:
                say(f"{way.__name__}: {error.cause}")
                reasons.append(f"{way.__name__}: {error.cause}")
                continue
            ready = Path(work) / "ready"
            ready.mkdir()
            for program in PROGRAMS:
                shutil.copy2(programs / program, ready / program)
            shutil.rmtree(folder, ignore_errors=True)
            ready.rename(folder)
            return
    raise FetchError(
        "etcd could not be had:\n  " + "\n  ".join(reasons),
        "put an etcd >= 3.5.16 on PATH, or name it in TIMESLICE_ETCD",
    )


def main(environ: Mapping[str, str] = os.environ, folder: Path = ROOT / ".tools" / "etcd") -> Path:
    """The path of a sound etcd, fetched if need be. Raises EtcdServerError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / "etcd.lock"):
        try:
            binary = find_etcd(environ, folder)
        except (EtcdNotFoundError, EtcdUnsoundError) as error:
            if environ.get("TIMESLICE_ETCD"):
                raise
            say(error.cause)
            fetch(folder)
            binary = find_etcd(environ, folder)
    say(f"etcd {binary.version} at {binary.path}: {binary.verdict.reason}")
    return binary.path


if __name__ == "__main__":
    try:
        print(main())
    except EtcdServerError as failure:
        sys.exit(f"get_etcd: {failure.code}: {failure}")
