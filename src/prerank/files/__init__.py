"""Reading and writing: forecasts, JSON, tensors, checkpoints; atomic writing, checks, locks."""

from typing import TYPE_CHECKING

from prerank.lazy_names import names_from

if TYPE_CHECKING:
    from prerank.files.disk import (
        FileLock,
        as_path,
        check_file,
        check_not_mounted,
        check_place,
        check_size,
        check_within,
        write_atomically,
        writing,
    )
    from prerank.files.folders import new_folder
    from prerank.files.forecast_files import Forecasts, read_forecasts
    from prerank.files.sample_files import SampleFile, read_samples
    from prerank.files.sample_writing import write_samples
    from prerank.files.values import (
        CheckpointFile,
        check_json,
        read_json,
        read_tensors,
        versions,
        write_json,
        write_tensors,
    )

__all__ = [
    "CheckpointFile",
    "FileLock",
    "Forecasts",
    "SampleFile",
    "as_path",
    "check_file",
    "check_json",
    "check_not_mounted",
    "check_place",
    "check_size",
    "check_within",
    "new_folder",
    "read_forecasts",
    "read_json",
    "read_samples",
    "read_tensors",
    "versions",
    "write_atomically",
    "write_json",
    "write_samples",
    "write_tensors",
    "writing",
]

__getattr__ = names_from(
    __name__, "disk", "folders", "forecast_files", "sample_files", "sample_writing", "values"
)
