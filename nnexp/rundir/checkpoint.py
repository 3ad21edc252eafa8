"""Checkpoints and weights on disk: tensors and plain numbers with a checksum, replaced atomically.

`torch.load(path, weights_only=True)` reads these files, so opening one never executes code.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nnexp.base import RecordError, write_atomically

LAST, PREVIOUS, MODEL_FILE = "last.ckpt", "previous.ckpt", "model.pt"


def digest(content: Any) -> str:
    """Return the SHA-256 checksum of nested dictionaries, lists, tensors and plain values, as 64 hexadecimal digits.

    Raises:
        RecordError: the content holds anything else.
    """
    result = hashlib.sha256()
    _feed(content, result)
    return result.hexdigest()


def _feed(node: Any, result: Any) -> None:
    if isinstance(node, dict):
        for key in node:
            result.update(f"key {key!r}".encode())
            _feed(node[key], result)
    elif isinstance(node, list | tuple):
        result.update(f"list {len(node)}".encode())
        for item in node:
            _feed(item, result)
    elif isinstance(node, torch.Tensor):
        result.update(f"tensor {node.dtype} {tuple(node.shape)}".encode())
        result.update(node.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    elif type(node) in (int, float, bool, str, type(None)):
        result.update(f"{type(node).__name__} {node!r}".encode())
    else:
        raise RecordError(f"a checkpoint holds tensors and plain numbers, not {type(node).__name__}: {node!r:.80}")


def to_python_numbers(node: Any) -> Any:
    """Return a nested structure with numpy scalars replaced by Python numbers.

    Optimisers keep numpy scalars where a plugin passes them in, and `weights_only` loading refuses those.
    """
    if isinstance(node, dict):
        return {to_python_numbers(key): to_python_numbers(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [to_python_numbers(item) for item in node]
    return node.item() if isinstance(node, np.generic) else node


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Write a file atomically; equal content gives equal bytes under any file name.

        save_tensors(folder / "model.pt", {"weights": module.state_dict()})

    Raises:
        RecordError: the content holds more than tensors and plain numbers.
        OSError: the file cannot be written.
    """
    write_atomically(path, _encode(content))


def _encode(content: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()  # torch.save writes a file's name into its bytes
    torch.save({**content, "checksum": digest(content)}, buffer)
    return buffer.getvalue()


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load a file of `save_tensors` onto the CPU and verify its checksum.

    Raises:
        RecordError: the file is missing, damaged, or holds more than tensors and plain numbers.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        checksum = content.pop("checksum")
        is_whole = checksum == digest(content)
    except Exception as error:
        raise RecordError(f"{path} cannot be read: {str(error).splitlines()[0] if str(error) else error!r}") from None
    if not is_whole:
        raise RecordError(f"{path} is damaged: its checksum does not match its content.")
    return dict(content)


def save_checkpoint(folder: Path, content: dict[str, Any]) -> None:
    """Write `last.ckpt` and keep the one before it as `previous.ckpt`.

    A process killed at any moment leaves at least one complete checkpoint.
    """
    last, new = folder / LAST, folder / f"{LAST}.new"
    save_tensors(new, content)
    if last.exists():
        os.replace(last, folder / PREVIOUS)
    os.replace(new, last)


def whole_checkpoints(folder: Path, fingerprint: str) -> Iterator[dict[str, Any]]:
    """Yield the undamaged checkpoints of this job, newest first, and delete damaged ones.

    A damaged file must go before the next save, which would otherwise keep it as `previous.ckpt`.
    """
    for name in (f"{LAST}.new", LAST, PREVIOUS):
        try:
            content = load_checkpoint(folder / name)
        except RecordError:
            (folder / name).unlink(missing_ok=True)
            continue
        if content.get("fingerprint") == fingerprint and isinstance(content.get("metrics_bytes"), int):
            yield content
