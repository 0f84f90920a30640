"""The recorded data sets this package can read: description, licence, source and reader.

>>> list_sets()
('broad', 'dido', 'euroc', 'uipdb')
>>> info("broad").licence
'CC BY 4.0'

Recordings are stored in ``$FWNKF_DATA`` or ``~/.cache/fwnkf``, one folder per data set. They are not part of this
package, and their licences are those of their authors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ...errors import DataError, UnknownNameError
from ..recording import Recording
from . import broad, dido, euroc, uipdb
from ._files import file_digest
from .archives import extract
from .sources import download

Status = Literal["ok", "differs", "missing", "unchecked"]


class RemoteFile(NamedTuple):
    """A file of a data set: its path in the folder of the set, its SHA-256 (or the first digits of it) and its URLs."""

    path: str
    sha256: str = ""
    size: int | None = None
    urls: tuple[str, ...] = ()


class FileReport(NamedTuple):
    """``unchecked`` means that the file exists, but its checksum is not known."""

    path: str
    status: Status


@dataclass(frozen=True)
class DataSet:
    """Description of a data set, and the functions that find and read its recordings."""

    name: str
    title: str
    description: str
    licence: str
    citation: str
    homepage: str
    manual: str
    """Instructions for a manual download."""
    files: tuple[RemoteFile, ...]
    find: Callable[[Path], dict[str, Path]]
    read: Callable[..., Recording | list[Recording]]
    folders: tuple[str, ...]
    """Possible names of the folder of the set; the first is the default."""


def _checksums(name: str) -> dict[str, str]:
    """SHA-256 of the published files of a data set, by path; files seen only as edited copies are not listed."""
    lines = (resources.files(__package__) / "checksums.sha256").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("  ", 1) for line in lines)
    return {path.removeprefix(f"{name}/"): digest for digest, path in pairs if path.startswith(f"{name}/")}


_CHECKSUMS = {name: _checksums(name) for name in ("broad", "dido", "euroc", "uipdb")}
_BROAD_TRIALS = (
    "01_undisturbed_slow_rotation_A", "02_undisturbed_slow_rotation_B", "03_undisturbed_slow_rotation_C",
    "04_undisturbed_slow_rotation_with_breaks_A", "05_undisturbed_slow_rotation_with_breaks_B",
    "06_undisturbed_fast_rotation_A", "07_undisturbed_fast_rotation_B", "08_undisturbed_fast_rotation_with_breaks_A",
    "09_undisturbed_fast_rotation_with_breaks_B", "10_undisturbed_slow_translation_A",
    "11_undisturbed_slow_translation_B", "12_undisturbed_slow_translation_C",
    "13_undisturbed_slow_translation_with_breaks_A", "14_undisturbed_slow_translation_with_breaks_B",
    "15_undisturbed_fast_translation_A", "16_undisturbed_fast_translation_B",
    "17_undisturbed_fast_translation_with_breaks_A", "18_undisturbed_fast_translation_with_breaks_B",
    "19_undisturbed_slow_combined_240s", "20_undisturbed_slow_combined_360s", "21_undisturbed_fast_combined",
    "22_undisturbed_fast_combined_240s", "23_undisturbed_fast_combined_360s", "24_disturbed_tapping_A",
    "25_disturbed_tapping_B", "26_disturbed_phone_vibration_A", "27_disturbed_phone_vibration_B",
    "28_disturbed_stationary_magnet_A", "29_disturbed_stationary_magnet_B", "30_disturbed_stationary_magnet_C",
    "31_disturbed_stationary_magnet_D", "32_disturbed_attached_magnet_1cm", "33_disturbed_attached_magnet_2cm",
    "34_disturbed_attached_magnet_3cm", "35_disturbed_attached_magnet_4cm", "36_disturbed_attached_magnet_5cm",
    "37_disturbed_office_A", "38_disturbed_office_B", "39_disturbed_mixed",
)  # fmt: skip
_BROAD_MIRRORS = (
    "https://raw.githubusercontent.com/dlaidig/broad/main/data_mat/",
    "https://github.com/dlaidig/broad/raw/main/data_mat/",
)

_SETS = {
    "broad": DataSet(
        name="broad",
        title="BROAD: Berlin Robust Orientation Estimation Assessment Dataset",
        description="39 trials of one IMU (gyroscope, accelerometer, magnetometer) with optical orientation, 285.7 Hz: "
        "slow and fast, rotation and translation, with breaks, and disturbed by tapping, vibration and magnets.",
        licence="CC BY 4.0",
        citation="D. Laidig, M. Caruso, A. Cereatti, T. Seel: BROAD, A Benchmark for Robust Inertial Orientation "
        "Estimation. Data 6(7):72, 2021. https://doi.org/10.3390/data6070072",
        homepage="https://github.com/dlaidig/broad",
        manual="Manual download: clone https://github.com/dlaidig/broad and copy the .mat files of data_mat into the "
        "folder.",
        files=tuple(
            RemoteFile(
                f"{trial}.mat",
                _CHECKSUMS["broad"].get(trial, ""),
                None,
                tuple(f"{m}{trial}.mat" for m in _BROAD_MIRRORS),
            )
            for trial in _BROAD_TRIALS
        ),
        find=broad.find,
        read=broad.read,
        folders=("broad",),
    ),
    "dido": DataSet(
        name="dido",
        title="DIDO: Deep Inertial Quadrotor Dynamical Odometry",
        description="Quadrotor flights with strong rotor vibration, IMU and motion capture at about 400 Hz, irregular "
        "time stamps. Read from two tables per flight, imu_data.csv and groundTruthPoses.csv.",
        licence="none stated; ask the authors before redistributing",
        citation="K. Zhang, C. Jiang, J. Li, S. Yang, T. Ma, C. Xu, F. Gao: DIDO: Deep Inertial Quadrotor Dynamical "
        "Odometry. IEEE Robotics and Automation Letters, 2022. https://arxiv.org/abs/2203.03149",
        homepage="https://github.com/zhangkunyi/DIDO",
        manual="Manual download: the flights at https://github.com/zhangkunyi/DIDO are HDF5 files; convert each to "
        "a folder with imu_data.csv (header '# timestamp,accel_x,accel_y,accel_z,gyro_x,gyro_y,gyro_z'; "
        "seconds, acc, gyr) and groundTruthPoses.csv (no header; microseconds, gt_p, gt_q as w x y z).",
        files=tuple(RemoteFile(path, digest) for path, digest in _CHECKSUMS["dido"].items()),
        find=dido.find,
        read=dido.read,
        folders=("dido", "dido_test"),
    ),
    "euroc": DataSet(
        name="euroc",
        title="EuRoC MAV: The EuRoC micro aerial vehicle datasets",
        description="11 flights of one IMU (ADIS16448, 200 Hz) with position, velocity, attitude and biases from a "
        "laser tracker (machine hall) or motion capture (Vicon rooms), in the ASL folder layout.",
        licence="In Copyright, Non-Commercial Use Permitted (http://rightsstatements.org/vocab/InC-NC/1.0/)",
        citation="M. Burri, J. Nikolic, P. Gohl, T. Schneider, J. Rehder, S. Omari, M. W. Achtelik, R. Siegwart: The "
        "EuRoC micro aerial vehicle datasets. International Journal of Robotics Research 35(10), 2016. "
        "https://doi.org/10.1177/0278364915620033",
        homepage="https://doi.org/10.3929/ethz-b-000690084",
        manual="Manual download: the ETH Research Collection, https://doi.org/10.3929/ethz-b-000690084, provides three "
        "archives (machine hall, Vicon room 1, Vicon room 2). Extract the tables of each, without the images, with "
        "fwnkf.data.sets.catalogue.unpack('euroc', archive).",
        files=tuple(
            RemoteFile(path := f"{name}/mav0/{table}/data.csv", _CHECKSUMS["euroc"].get(path, ""))
            for name in euroc.SEQUENCES
            for table in ("imu0", "state_groundtruth_estimate0")
        ),
        find=euroc.find,
        read=euroc.read,
        folders=("euroc",),
    ),
    "uipdb": DataSet(
        name="uipdb",
        title="UIP-DB: the dataset of Ultra Inertial Poser",
        description="Ten people wearing six sensors, each an IMU and an ultra-wideband radio, with optical motion "
        "capture, 60 Hz; ranges between all pairs at 20 Hz. Read from train.pt and test.pt, or from single sessions.",
        licence="set by the authors",
        citation="R. Armani, C. Qian, J. Jiang, C. Holz: Ultra Inertial Poser: Scalable Motion Capture and Tracking "
        "from Sparse Inertial Sensors and Ultra-Wideband Ranging. SIGGRAPH, 2024. https://arxiv.org/abs/2404.19541",
        homepage="https://github.com/eth-siplab/UltraInertialPoser",
        manual="Manual download: request it at https://github.com/eth-siplab/UltraInertialPoser, and copy train.pt "
        "and test.pt (processed form) into the folder.",
        files=(
            RemoteFile("train.pt", "695c532d", 323_109_217),
            RemoteFile("test.pt", "2fc24d01", 146_263_919),
            *(RemoteFile(path, digest) for path, digest in _CHECKSUMS["uipdb"].items()),
        ),
        find=uipdb.find,
        read=uipdb.read,
        folders=("uipdb", "uipdb_arm_trunk"),
    ),
}


def list_sets() -> tuple[str, ...]:
    """Names of the data sets."""
    return tuple(sorted(_SETS))


def info(name: str) -> DataSet:
    """The description of a data set."""
    if name not in _SETS:
        raise UnknownNameError(f"unknown data set {name!r}; available: {', '.join(list_sets())}")
    return _SETS[name]


def data_folder() -> Path:
    """The folder of all data sets: ``$FWNKF_DATA``, or ``~/.cache/fwnkf``."""
    folder = os.environ.get("FWNKF_DATA")
    return Path(folder).expanduser() if folder else Path.home() / ".cache" / "fwnkf"


def folder_of(name: str) -> Path:
    """The folder of one data set in :func:`data_folder`; the default name if it does not exist yet."""
    folders = [data_folder() / folder for folder in info(name).folders]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def fetch(
    name: str, folder: str | Path | None = None, *, progress: Callable[[str, int, int | None], None] | None = None
) -> list[Path]:
    """Download the files of a data set; for a set without URLs, the error contains the instructions for doing so.

    Args:
        progress: called with the file, the number of bytes received and the total number of bytes, if known.
    """
    data_set = info(name)
    place = Path(folder or folder_of(name))
    manual = f"{data_set.manual}\nFolder: {place}"
    files = [file for file in data_set.files if file.urls]
    if not files:
        raise DataError(f"{data_set.title} cannot be downloaded automatically.\n{manual}")
    return [
        download(
            file.urls, place / file.path, sha256=file.sha256 or None, manual=manual,
            progress=None if progress is None else partial(progress, file.path),
        )
        for file in files
    ]  # fmt: skip


def unpack(name: str, archive: str | Path, folder: str | Path | None = None) -> list[Path]:
    """Extract the recordings of a data set from an archive of its authors, including archives inside it."""
    data_set = info(name)
    # a path without its first folder, which is the name of the recording
    endings = tuple({f"/{file.path.partition('/')[2] or file.path}" for file in data_set.files})
    paths = extract(
        archive,
        folder or folder_of(name),
        select=lambda path: f"/{path}".endswith(endings),
        nested=2,
    )
    if not paths:
        raise DataError(f"{archive} contains no recording of {data_set.title}")
    return paths


def verify(name: str, folder: str | Path | None = None) -> list[FileReport]:
    """Compare every file of a data set with its size and checksum."""
    place = Path(folder or folder_of(name))
    reports = []
    for file in info(name).files:
        path = _locate(place, file.path)
        status: Status = "missing"
        if path is not None:
            status = "unchecked"
            if file.size is not None and path.stat().st_size != file.size:
                status = "differs"
            elif file.sha256:
                status = "ok" if file_digest(path).startswith(file.sha256) else "differs"
        reports.append(FileReport(file.path, status))
    return reports


def load(
    name: str, folder: str | Path | None = None, *, sequences: Iterable[str] | None = None, **options: Any
) -> list[Recording]:
    """Read the recordings of a data set, sorted by name, or the named ones in the given order.

    ``options`` are those of the reader of the data set, such as ``trim=False``.
    """
    data_set = info(name)
    place = Path(folder or folder_of(name))
    paths = data_set.find(place)
    if not paths:
        raise DataError(f"{place} contains no recording of {data_set.title}.\n{data_set.manual}\nFolder: {place}")
    names = sorted(paths) if sequences is None else list(sequences)
    missing = [one for one in names if one not in paths]
    if missing:
        raise DataError(f"{place} contains no recording {', '.join(missing)}; available: {', '.join(sorted(paths))}")
    read = [data_set.read(paths[one], **options) for one in names]
    return [recording for item in read for recording in (item if isinstance(item, list) else [item])]


def _locate(place: Path, path: str) -> Path | None:
    """A file in a folder, or one level deeper, where an archive with a top-level folder puts it."""
    candidates = [place / path, *(below / path for below in sorted(place.glob("*")))]
    return next((candidate for candidate in candidates if candidate.is_file()), None)
