"""The machine's kernel: the newest of Debian's whose soft-RoCE devices count bytes as hardware does."""

from __future__ import annotations

import lzma
import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaigns.vm.archive import Archive
from tests.campaigns.vm.errors import MissingPartError
from tests.campaigns.vm.packages import Suite, read_package

SUITES = ("trixie-backports", "sid")
# The cloud and real-time flavours have other names: the cloud flavour has no rdma_rxe at all.
MODULES_PACKAGE = r"linux-modules-(\d+)\.(\d+)\.?(\d*)\+deb\d+-amd64"
OLDEST_VERSION = (7, 2)
# The function that answers performance-management queries; the byte counters of a port came with it.
COUNTER_FUNCTION = b"rxe_process_mad"
WANTED_MODULES = ("rdma_rxe", "ib_uverbs", "rdma_ucm", "veth", "virtio_net", "sch_netem")
MODULE_FOLDERS = ("/kernel/drivers/infiniband/", "/kernel/drivers/net/", "/kernel/net/", "/kernel/fs/configfs/")


@dataclass(slots=True)
class Modules:
    """Kernel modules by name, still as the package holds them, and the order in which to load those wanted."""

    packed: dict[str, bytes] = field(default_factory=dict)
    loading_order: list[str] = field(default_factory=list)

    def collect(self, package: Path) -> None:
        """Take over the modules of a package that may be wanted."""
        for name, content in read_package(package):
            if any(folder in name for folder in MODULE_FOLDERS) and ".ko" in name:
                self.packed[_module_name(name)] = content

    def unpack(self, module: str) -> bytes:
        """The module as the kernel loads it."""
        content = self.packed[module]
        return lzma.decompress(content) if content.startswith(b"\xfd7zXZ") else content

    def order(self, module: str) -> None:
        """Put a module into the loading order, behind all that it depends on. One that is built in is left out."""
        if module in self.loading_order or module not in self.packed:
            return
        found = re.search(rb"(?:^|\0)depends=([^\0]*)\0", self.unpack(module))
        for dependency in found.group(1).decode().split(",") if found else []:
            self.order(_module_name(dependency))
        self.loading_order.append(module)


def build_kernel(folder: Path, image: Path, archive: Path) -> str:
    """Version of the kernel that was fetched: its image and an archive of its modules are written."""
    for suite_name in SUITES:
        suite = Suite(suite_name, folder / suite_name)
        for package in sorted(suite.names(MODULES_PACKAGE), key=_version, reverse=True):
            if _version(package) < OLDEST_VERSION:
                break
            modules = Modules()
            modules.collect(suite.fetch(package))
            if COUNTER_FUNCTION in modules.unpack("rdma_rxe"):
                _write_image(suite, package, image)
                _write_modules(modules, archive)
                return package.removeprefix("linux-modules-")
    raise MissingPartError(
        f"Debian {' and '.join(SUITES)} have no kernel of at least 7.2 with rdma_rxe that counts bytes "
        f"({COUNTER_FUNCTION.decode()}): look for a linux-modules-*-amd64 package on the mirror"
    )


def _write_image(suite: Suite, modules_package: str, image: Path) -> None:
    names = suite.names(re.escape(modules_package).replace("modules", "(binary|binary-unsigned)"))
    if not names:
        raise MissingPartError(f"Debian {suite.name} has {modules_package} but no linux-binary package beside it")
    for name, content in read_package(suite.fetch(names[0])):
        if "vmlinuz" in name:
            image.write_bytes(content)


def _write_modules(modules: Modules, target: Path) -> None:
    for module in WANTED_MODULES:
        modules.order(module)
    with target.open("wb") as file:
        archive = Archive(file)
        for module in modules.loading_order:
            archive.add_file(f"modules/{module}.ko", modules.unpack(module))
        archive.add_file("modules/order", "".join(f"{module}\n" for module in modules.loading_order).encode())
        archive.close()


def _version(package: str) -> tuple[int, ...]:
    found = re.fullmatch(MODULES_PACKAGE, package)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def _module_name(path: str) -> str:
    return Path(path).name.split(".ko")[0].replace("-", "_")
