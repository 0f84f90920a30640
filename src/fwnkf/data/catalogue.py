"""The recordings this package knows: what they are, whose they are, how to get them, and how to read them.

>>> list_sets()
('broad', 'dido', 'euroc', 'uipdb')
>>> info("broad").licence
'CC BY 4.0'

Recordings live in one folder, ``$FWNKF_DATA`` or ``~/.cache/fwnkf``, each set in a folder of its own. They are never
part of this package, and their licences are their owners'.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..errors import DataError, UnknownNameError
from . import _checksums, broad, dido, euroc, uipdb
from ._files import file_digest
from .archives import extract
from .recording import Recording
from .sources import Progress, download

Status = Literal["ok", "differs", "missing", "unchecked"]


class RemoteFile(NamedTuple):
    """A file of a set: where it lies below the set's folder, its checksum (or its beginning) and its addresses."""

    path: str
    sha256: str = ""
    size: int | None = None
    urls: tuple[str, ...] = ()


class FileReport(NamedTuple):
    """``unchecked`` means that the file is there but no checksum of it is known."""

    path: str
    status: Status


@dataclass(frozen=True)
class DataSet:
    """What there is to know about a set."""

    name: str
    title: str
    description: str
    licence: str
    citation: str
    homepage: str
    manual: str
    """How to get it by hand."""
    files: tuple[RemoteFile, ...]
    find: Callable[[Path], dict[str, Path]]
    read: Callable[..., Recording | list[Recording]]
    folders: tuple[str, ...]
    """Names under which the set's folder is looked for; the first is the usual one."""


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
        manual="By hand: clone or download https://github.com/dlaidig/broad and copy the .mat files of data_mat into "
        "the folder.",
        files=tuple(
            RemoteFile(
                f"{trial}.mat", _checksums.BROAD.get(trial, ""), None, tuple(f"{m}{trial}.mat" for m in _BROAD_MIRRORS)
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
        "stamps. Read in the form of two tables a flight, imu_data.csv and groundTruthPoses.csv.",
        licence="none stated by its authors; ask before you pass it on",
        citation="K. Zhang, C. Jiang, J. Li, S. Yang, T. Ma, C. Xu, F. Gao: DIDO: Deep Inertial Quadrotor Dynamical "
        "Odometry. IEEE Robotics and Automation Letters, 2022. https://arxiv.org/abs/2203.03149",
        homepage="https://github.com/zhangkunyi/DIDO",
        manual="By hand: the authors' page is https://github.com/zhangkunyi/DIDO. Its flights are HDF5 files; write "
        "each as a folder with imu_data.csv (header '# timestamp,accel_x,accel_y,accel_z,gyro_x,gyro_y,gyro_z'; "
        "seconds, acc, gyr) and groundTruthPoses.csv (no header; microseconds, gt_p, gt_q as w x y z).",
        files=tuple(RemoteFile(path, digest) for path, digest in _checksums.DIDO.items()),
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
        manual="By hand: the set lies in the ETH Research Collection, https://doi.org/10.3929/ethz-b-000690084, as "
        "three large archives (machine hall, Vicon room 1, Vicon room 2); the old address robotics.ethz.ch is dead. "
        "Download them, then unpack each with fwnkf.data.catalogue.unpack('euroc', archive): it takes the tables out "
        "of the archives inside and leaves the images.",
        files=tuple(
            RemoteFile(path := f"{name}/mav0/{table}/data.csv", _checksums.EUROC.get(path, ""))
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
        "capture, 60 Hz; ranges between all pairs at 20 Hz. Read as train.pt and test.pt, or in part as sessions.",
        licence="from its authors; their terms apply",
        citation="R. Armani, C. Qian, J. Jiang, C. Holz: Ultra Inertial Poser: Scalable Motion Capture and Tracking "
        "from Sparse Inertial Sensors and Ultra-Wideband Ranging. SIGGRAPH, 2024. https://arxiv.org/abs/2404.19541",
        homepage="https://github.com/eth-siplab/UltraInertialPoser",
        manual="By hand: get it from its authors, https://github.com/eth-siplab/UltraInertialPoser, and put train.pt "
        "and test.pt (processed form) into the folder.",
        files=(
            RemoteFile("train.pt", "695c532d", 323_109_217),
            RemoteFile("test.pt", "2fc24d01", 146_263_919),
            *(RemoteFile(path, digest) for path, digest in _checksums.UIPDB.items()),
        ),
        find=uipdb.find,
        read=uipdb.read,
        folders=("uipdb", "uipdb_arm_trunk"),
    ),
}


def list_sets() -> tuple[str, ...]:
    """Names of the known sets."""
    return tuple(sorted(_SETS))


def info(name: str) -> DataSet:
    """Everything known about a set."""
    if name not in _SETS:
        raise UnknownNameError(f"no data set is called {name!r}; there are: {', '.join(list_sets())}")
    return _SETS[name]


def data_folder() -> Path:
    """Where recordings are kept: ``$FWNKF_DATA``, or ``~/.cache/fwnkf``."""
    named = os.environ.get("FWNKF_DATA")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "fwnkf"


def folder_of(name: str) -> Path:
    """The folder of one set below :func:`data_folder`; the usual name if there is none yet."""
    known = info(name)
    places = [data_folder() / folder for folder in known.folders]
    return next((place for place in places if place.is_dir()), places[0])


def fetch(
    name: str,
    folder: str | Path | None = None,
    *,
    files: Iterable[str] | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
    **options: Any,
) -> list[Path]:
    """Download the files of a set that have addresses; for a set that has none, say how to get it by hand.

    Args:
        files: only these, by the name of the file with or without its ending.
        progress: called with file, bytes there are, bytes there will be.
        options: further arguments of :func:`fwnkf.data.sources.download`.
    """
    known = info(name)
    place = folder_of(name) if folder is None else Path(folder)
    offered = [file for file in known.files if file.urls]
    if not offered:
        raise DataError(f"{known.title} cannot be fetched automatically.\n{known.manual}\nFolder: {place}")
    if files is not None:
        chosen = {Path(file).name.removesuffix(".mat") for file in files}
        unknown = chosen - {Path(file.path).stem for file in offered}
        if unknown:
            raise UnknownNameError(f"{name} has no file called {', '.join(sorted(unknown))}")
        offered = [file for file in offered if Path(file.path).stem in chosen]

    def told(path: str) -> Progress | None:
        return None if progress is None else lambda have, total: progress(path, have, total)

    manual = f"{known.manual}\nFolder: {place}"
    return [
        download(
            file.urls, place / file.path, sha256=file.sha256 or None, size=file.size, progress=told(file.path),
            manual=manual, **options,
        )
        for file in offered
    ]  # fmt: skip


def unpack(name: str, archive: str | Path, folder: str | Path | None = None) -> list[Path]:
    """Take the recordings of a set out of an archive of its authors, archives inside included, and leave the rest."""
    known = info(name)
    place = folder_of(name) if folder is None else Path(folder)
    endings = {file.path.rsplit("/", 1)[-1] for file in known.files}

    def wanted(path: str) -> bool:
        parts = path.split("/")
        if name == "euroc":
            return parts[-1] in ("data.csv", "sensor.yaml") and parts[-2:-1] in (
                ["imu0"],
                ["state_groundtruth_estimate0"],
            )
        return parts[-1] in endings

    written = extract(archive, place, wanted=wanted, nested=2)
    if not written:
        raise DataError(f"{archive} holds no recording of {known.title}")
    return written


def verify(name: str, folder: str | Path | None = None) -> list[FileReport]:
    """Every expected file of a set with its status, by checksum; reads all that is there."""
    known = info(name)
    place = folder_of(name) if folder is None else Path(folder)
    reports = []
    for file in known.files:
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
    """Read the sequences of a set that are there, in the order of their names, or the named ones in their order.

    Further options go to the reader of the set, such as ``truth="corrected"`` of EuRoC.
    """
    known = info(name)
    place = folder_of(name) if folder is None else Path(folder)
    found = known.find(place)
    if not found:
        raise DataError(f"{place} holds no sequence of {known.title}.\n{known.manual}\nFolder: {place}")
    names = sorted(found) if sequences is None else list(sequences)
    missing = [one for one in names if one not in found]
    if missing:
        raise DataError(f"{place} has no sequence {', '.join(missing)}; there are: {', '.join(sorted(found))}")
    read = [known.read(found[one], **options) for one in names]
    return [sequence for item in read for sequence in (item if isinstance(item, list) else [item])]


def _locate(place: Path, path: str) -> Path | None:
    """A file below a folder, also one level down, as an archive with a folder of its own leaves it."""
    if (place / path).is_file():
        return place / path
    for below in sorted(place.iterdir()) if place.is_dir() else []:
        if (below / path).is_file():
            return below / path
    return None
