"""Files and folders that are whole or absent: refused before the work, written in one step."""

from prerank.storage.atomic import new_folder, write_atomically, writing
from prerank.storage.checks import check_file, check_place, check_size, check_within
from prerank.storage.locks import FileLock
from prerank.storage.origin import versions
from prerank.storage.tensors import read_tensors, write_tensors
from prerank.storage.values import check_json, read_json, write_json

__all__ = [
    "FileLock",
    "check_file",
    "check_json",
    "check_place",
    "check_size",
    "check_within",
    "new_folder",
    "read_json",
    "read_tensors",
    "versions",
    "write_atomically",
    "write_json",
    "write_tensors",
    "writing",
]
